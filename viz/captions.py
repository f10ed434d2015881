"""What a step does, in words: for the caption of a picture.

A sentence of clauses. A run of recomputations has one sentence, which stands as long as the run and
the evaluation that it is for: who reads what, and what is recomputed from what. What is freed is
said behind it. The player says the same, in ``caption.js``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tinyckpt.base.units import size_text
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Free, Offload, data_title, operator_title

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

MOST_NAMES = 3  # in a list of them
LONGEST = 200  # characters of a whole name
SHORT = 24  # characters of a short one
Naming = Callable[[str], str]


def whole(name: str) -> str:
    """Return a name with its scopes, cut to what anybody reads."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def short(name: str) -> str:
    """Return a name without the scopes that it is in, and without its middle if it is long.

    >>> short("stage3/block2/relu_7"), short("the_weights_of_the_first_layer_matmul_1")
    ('relu_7', 'the_weights…yer_matmul_1')
    """
    own = whole(name)
    own = own[own.rfind("/") + 1 :]
    return own if len(own) <= SHORT else f"{own[: SHORT // 2 - 1]}…{own[-SHORT // 2 :]}"


class Captions:
    """What the steps of a trace do, in words: little work for one step after the other.

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
        self.operators = [s.operator for s in trace.steps if isinstance(s, EVALUATIONS)]
        seen = bytearray(len(self.graph.operators))
        self.again = bytearray(len(self.operators))  # by evaluation, whether it is a recomputation
        for position, operator in enumerate(self.operators):
            self.again[position], seen[operator] = seen[operator], 1
        self.run = (0, -1)  # the run of recomputations that was looked at last: first, and its end
        self.said: dict[Naming, tuple[str, ...]] = {}  # of that run

    def text(self, step: int, name: Naming = whole) -> str:
        """Return what a step does; nothing before the first one."""
        return "; ".join(self.clauses(step, name))

    def texts(self, step: int) -> Iterator[str]:
        """Yield what a step does in ever fewer letters, for where there is less room."""
        yield self.text(step)
        yield self.text(step, short)
        yield from self.clauses(step, short)[-1:]

    def clauses(self, step: int, name: Naming = whole) -> tuple[str, ...]:
        """Return what a step does, what it does itself last, or first of all why."""
        if step < 0:
            return ()
        taken = self.trace.steps[step]
        if isinstance(taken, EVALUATIONS):
            return self.evaluated(self.trace.evaluations_so_far[step] - 1, name)
        if isinstance(taken, Free):
            return self.freed(step, name)
        moved = name(data_title(self.graph, taken.data))
        size = size_text(self.graph.data[taken.data].spec.nbytes)
        way = {Offload: "goes to the host", Fetch: "comes back from the host"}[type(taken)]
        return (f"{moved} {way} ({size})",)

    def freed(self, step: int, name: Naming) -> tuple[str, ...]:
        """Return what is freed one after the other up to a step, behind what was done before."""
        steps, first = self.trace.steps, step
        while first and isinstance(steps[first - 1], Free):
            first -= 1
        freed = [s.data for s in steps[first : step + 1] if isinstance(s, Free)]
        names = listed(len(freed), lambda i: name(data_title(self.graph, freed[i])))
        before = self.live[first - 1] - self.workspace[first - 1] if first else 0
        given_back = max(0, before - self.live[step])
        size = f" ({size_text(given_back)})" if given_back else ""  # not that of a view's base
        done = self.clauses(first - 1, name) if self.is_evaluation(first - 1) else ()
        return (*done, f"{names} {are(len(freed))} freed{size}")

    def is_evaluation(self, step: int) -> bool:
        """Whether a step evaluates something."""
        return step >= 0 and isinstance(self.trace.steps[step], EVALUATIONS)

    def evaluated(self, position: int, name: Naming) -> tuple[str, ...]:
        """Return what an evaluation does, or the run of recomputations that it belongs to."""
        first, end = self.run
        if not first <= position <= end:
            end = self.again.find(b"\0", position)
            end = len(self.again) if end < 0 else end
            first = self.again.rfind(b"\0", 0, position if position == end else position + 1) + 1
            self.run, self.said = (first, end), {}
        if first == end:  # nothing is recomputed for it
            return (self.plain(position, name),)
        if name not in self.said:
            self.said[name] = tuple(self.recomputed(first, end, name))
        if position == end and len(self.said[name]) == 1:
            return (self.plain(position, name),)
        return self.said[name]

    def recomputed(self, first: int, end: int, name: Naming) -> Iterator[str]:
        """Yield who reads what is recomputed, if that is evaluated next; what, and from what."""
        graph, run = self.graph, list(dict.fromkeys(self.operators[first:end]))
        made = {data for operator in run for data in graph.operators[operator].outputs}
        if end < len(self.operators):
            reader = self.operators[end]
            if not made.isdisjoint(graph.operators[reader].inputs):
                yield f"{name(operator_title(graph, reader))} reads {self.sources(reader, name)}"
        there: dict[int, None] = {}  # what it begins with
        known: set[int] = set()
        for operator in self.operators[first:end]:
            there.update(dict.fromkeys(set_apart(self.read(operator), known)))
            known.update(graph.operators[operator].outputs)
        origin = list(there)
        source = listed(len(origin), lambda i: name(data_title(graph, origin[i])))
        names = self.run_names(run, name)
        yield f"{names} {are(len(run))} recomputed from {source or 'the inputs'}"

    def run_names(self, run: Sequence[int], name: Naming) -> str:
        """Return the operators of a run: from one to another, where none between is left out."""
        titles = [run[0], run[-1]]
        if len(run) > 2 and run[-1] - run[0] == len(run) - 1 and list(run) == sorted(run):
            return " to ".join(name(operator_title(self.graph, operator)) for operator in titles)
        return listed(len(run), lambda i: name(operator_title(self.graph, run[i])))

    def plain(self, position: int, name: Naming) -> str:
        """Return what an evaluation does that nothing is recomputed for."""
        operator = self.operators[position]
        title, source = name(operator_title(self.graph, operator)), self.sources(operator, name)
        if operator >= self.graph.forward_count and source:
            return f"{title} reads {source}"
        return f"{title} is computed{' from ' if source else ''}{source}"

    def sources(self, operator: int, name: Naming) -> str:
        """Return what an operator reads that the caller did not give."""
        read = self.read(operator)
        return listed(len(read), lambda i: name(data_title(self.graph, read[i])))

    def read(self, operator: int) -> list[int]:
        """Return the values that an operator reads and the caller did not give, each once."""
        data = self.graph.data
        return [
            i for i in dict.fromkeys(self.graph.operators[operator].inputs) if not data[i].is_source
        ]


def set_apart(values: Sequence[int], known: set[int]) -> Iterator[int]:
    """Yield the values that are not known."""
    return (value for value in values if value not in known)


def are(count: int) -> str:
    """Return the verb for so many."""
    return "is" if count == 1 else "are"


def listed(count: int, name: Callable[[int], str]) -> str:
    """Return some names as a text; only those are asked for that it has.

    >>> [listed(count, "abcdef".__getitem__) for count in (0, 1, 3, 6)]
    ['', 'a', 'a, b and c', 'a, b and 4 more']
    """
    shown = [name(i) for i in range(count if count <= MOST_NAMES else MOST_NAMES - 1)]
    if count > MOST_NAMES:
        shown.append(f"{count - MOST_NAMES + 1} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
