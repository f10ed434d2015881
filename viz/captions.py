"""Captions: one sentence per step of a trace, for the caption line of a picture.

A trace and a step come in, clauses of a sentence come out. A run of recomputations is a ``Run``:
its one sentence is shown during the run and the evaluation that needs it, and says which operator
reads the values, and from which checkpoint they are recomputed. Freed values are named at the end.
``caption.js`` of the player is the same algorithm in JavaScript and must agree to the letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tinyckpt.base.units import size_text
from tinyckpt.codegen.in_place import InPlace
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Free, Offload
from tinyckpt.planner.model.value_fates import operator_words, value_words

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

MOST_NAMES = 3  # in a list of them
LONGEST = 200  # characters of a whole name
SHORT = 24  # characters of a short one
Naming = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Run:
    """A run of recomputations: "9, 10 and 11 are recomputed from 8".

    Attributes:
        first, last: its positions among the trace's evaluations.
        source: the resident values that it starts from; the caller's own if there are none.
        reader: the operator that is evaluated next, if it reads what was recomputed.
    """

    first: int
    last: int
    source: tuple[int, ...]
    reader: int | None


def whole(name: str) -> str:
    """Return a name with its scopes, truncated to a readable length."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def short(name: str) -> str:
    """Return a name without its scopes, and without its middle if it is long.

    >>> short("stage3/block2/relu_7"), short("the_weights_of_the_first_layer_matmul_1")
    ('relu_7', 'the_weights…yer_matmul_1')
    """
    own = whole(name)
    own = own[own.rfind("/") + 1 :]
    return own if len(own) <= SHORT else f"{own[: SHORT // 2 - 1]}…{own[-SHORT // 2 :]}"


class Captions:
    """Captions of the steps of a trace; consecutive steps are cheap.

    >>> import tinyckpt as tc
    >>> trace = tc.replay(tc.plan(tc.networks.chain(4), "sqrt_n"))
    >>> captions = Captions(trace)
    >>> for step in (0, 1, 11, 15, 16):
    ...     print(captions.text(step))
    f1 is computed
    f2 is computed from f1
    b3 reads f3 and b4; f3 and b4 are freed (1.0 KiB)
    b1 reads f1 and b2; f1 is recomputed from the inputs
    b1 reads f1 and b2; f1 is recomputed from the inputs
    """

    def __init__(self, trace: Trace) -> None:
        self.trace, self.graph = trace, trace.graph
        self.live, self.workspace = trace.live_bytes, trace.workspace
        evaluations = [step for step in trace.steps if isinstance(step, EVALUATIONS)]
        self.operators = [step.operator for step in evaluations]
        # By evaluation in place, the value that it overwrites.
        self.over = {n: s.data for n, s in enumerate(evaluations) if isinstance(s, InPlace)}
        seen = bytearray(len(self.graph.operators))
        self.again = bytearray(len(self.operators))  # by evaluation, whether it is a recomputation
        for position, operator in enumerate(self.operators):
            self.again[position], seen[operator] = seen[operator], 1
        self.run: Run | None = None  # the one that was looked at last
        self.said: dict[Naming, tuple[str, ...]] = {}  # its clauses

    def text(self, step: int, name: Naming = whole) -> str:
        """Return the caption of a step; empty before the first one."""
        return "; ".join(self.clauses(step, name))

    def texts(self, step: int) -> Iterator[str]:
        """Yield captions of a step, each shorter than the last, for narrower pictures."""
        yield self.text(step)
        yield self.text(step, short)
        yield from self.clauses(step, short)[-1:]

    def clauses(self, step: int, name: Naming = whole) -> tuple[str, ...]:
        """Return the clauses of a step's caption: the reason first, the step's own effect last."""
        if step < 0:
            return ()
        taken = self.trace.steps[step]
        if isinstance(taken, EVALUATIONS):
            return self.evaluated(self.trace.evaluations_so_far[step] - 1, name)
        if isinstance(taken, Free):
            return self.freed(step, name)
        moved = name(value_words(self.graph, taken.data))
        size = size_text(self.graph.data[taken.data].spec.nbytes)
        way = {Offload: "goes to the host", Fetch: "comes back from the host"}[type(taken)]
        return (f"{moved} {way} ({size})",)

    def freed(self, step: int, name: Naming) -> tuple[str, ...]:
        """Return the clauses of consecutive frees up to a step, after those of the evaluation."""
        steps, first = self.trace.steps, step
        while first and isinstance(steps[first - 1], Free):
            first -= 1
        freed = [s.data for s in steps[first : step + 1] if isinstance(s, Free)]
        names = listed(len(freed), lambda i: name(value_words(self.graph, freed[i])))
        before = self.live[first - 1] - self.workspace[first - 1] if first else 0
        given_back = max(0, before - self.live[step])
        size = f" ({size_text(given_back)})" if given_back else ""  # without the base of a view
        done = self.clauses(first - 1, name) if self.is_evaluation(first - 1) else ()
        return (*done, f"{names} {is_or_are(len(freed))} freed{size}")

    def is_evaluation(self, step: int) -> bool:
        """Whether a step evaluates an operator."""
        return step >= 0 and isinstance(self.trace.steps[step], EVALUATIONS)

    def evaluated(self, position: int, name: Naming) -> tuple[str, ...]:
        """Return the clauses of an evaluation, or of the run of recomputations that it is in."""
        run = self.run_at(position)
        if run is None or (position > run.last and run.reader is None):
            return (self.plain(position, name),)
        if run is not self.run:
            self.run, self.said = run, {}
        if name not in self.said:
            self.said[name] = tuple(self.clauses_of_run(run, name))
        return self.said[name]

    def run_at(self, position: int) -> Run | None:
        """Return the run of recomputations that an evaluation is in, or that it comes after."""
        known, again = self.run, self.again
        if known is not None and known.first <= position <= known.last + 1:
            return known
        first = again.rfind(b"\0", 0, position) + 1
        end = again.find(b"\0", position)
        end = len(again) if end < 0 else end
        if first == end:
            return None
        source: dict[int, None] = {}
        made: set[int] = set()
        for operator in self.operators[first:end]:
            source.update(dict.fromkeys(i for i in self.read(operator) if i not in made))
            made.update(self.graph.operators[operator].outputs)
        reader = self.operators[end] if end < len(again) else None
        if reader is not None and made.isdisjoint(self.graph.operators[reader].inputs):
            reader = None
        return Run(first, end - 1, tuple(source), reader)

    def clauses_of_run(self, run: Run, name: Naming) -> Iterator[str]:
        """Yield the clauses of a run: its reader, if it has one; its operators and its source."""
        if run.reader is not None:
            title = name(operator_words(self.graph, run.reader))
            yield f"{title} reads {self.sources(run.reader, name)}"
        operators = list(dict.fromkeys(self.operators[run.first : run.last + 1]))
        source = listed(len(run.source), lambda i: name(value_words(self.graph, run.source[i])))
        names = self.run_names(operators, name)
        yield f"{names} {is_or_are(len(operators))} recomputed from {source or 'the inputs'}"

    def run_names(self, run: Sequence[int], name: Naming) -> str:
        """Return the operators of a run: "first to last" if they are consecutive, else a list."""
        titles = [run[0], run[-1]]
        if len(run) > 2 and run[-1] - run[0] == len(run) - 1 and list(run) == sorted(run):
            return " to ".join(name(operator_words(self.graph, operator)) for operator in titles)
        return listed(len(run), lambda i: name(operator_words(self.graph, run[i])))

    def plain(self, position: int, name: Naming) -> str:
        """Return the caption of an evaluation that needs no recomputation."""
        operator = self.operators[position]
        title, source = name(operator_words(self.graph, operator)), self.sources(operator, name)
        over = ""
        if position in self.over:
            over = f", overwriting {name(value_words(self.graph, self.over[position]))}"
        if operator >= self.graph.forward_count and source:
            return f"{title} reads {source}{over}"
        return f"{title} is computed{' from ' if source else ''}{source}{over}"

    def sources(self, operator: int, name: Naming) -> str:
        """Return the names of the values that an operator reads, without the caller's own."""
        read = self.read(operator)
        return listed(len(read), lambda i: name(value_words(self.graph, read[i])))

    def read(self, operator: int) -> list[int]:
        """Return the values that an operator reads, without the caller's own, each once."""
        data = self.graph.data
        return [
            i for i in dict.fromkeys(self.graph.operators[operator].inputs) if not data[i].is_source
        ]


def is_or_are(count: int) -> str:
    """Return "is" or "are" for a count."""
    return "is" if count == 1 else "are"


def listed(count: int, name: Callable[[int], str]) -> str:
    """Return a list of names as text; only the names that appear in it are computed.

    >>> [listed(count, "abcdef".__getitem__) for count in (0, 1, 3, 6)]
    ['', 'a', 'a, b and c', 'a, b and 4 more']
    """
    shown = [name(i) for i in range(count if count <= MOST_NAMES else MOST_NAMES - 1)]
    if count > MOST_NAMES:
        shown.append(f"{count - MOST_NAMES + 1} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
