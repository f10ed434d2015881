"""The clock: computation and copies side by side, from a schedule, its costs and a link.

``replay`` knows no time: there, a value that is moved to the host is gone from the device at that
step, as it is where the machine waits for every copy (``execute`` does). A GPU goes on computing
meanwhile. Then the copy reads the device's memory until it has ended, and **not before then is that
memory free**: the peak found here holds what is still on its way.

What waits for what, as for streams on a GPU, where steps are handed over in their order:

- evaluations follow one another; so do the copies of one engine;
- a copy begins when the evaluations before its step have ended, and what it reads has arrived;
- an evaluation waits until what was fetched for it has arrived: the stall of that ``Fetch``; so
  does the end, for results;
- memory is taken at the step that takes it. With a budget, an evaluation or a fetch for which there
  is no room waits for copies on their way to the host: the stall of those ``Offload`` steps.

A copy waits for evaluations and copies of earlier steps alone, so nothing waits for itself. Times
are exact: ``Fraction``, of floats too. Each is a maximum of sums of durations, so all of them can
only come earlier with more bandwidth, less latency or a larger budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from typing import Any

from tinyckpt.base.display import mimebundle
from tinyckpt.base.errors import BudgetError, ScheduleError
from tinyckpt.base.units import cost_text, size_text
from tinyckpt.core.costs import Costs, given
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Offload, Schedule
from tinyckpt.core.trace import Trace
from tinyckpt.planner.offload.link import Link, checked_link
from tinyckpt.planner.offload.timing import TimedReplay


@dataclass(frozen=True, slots=True, repr=False)
class Timeline:
    """When everything happened. Times are in the unit of the costs, from 0.

    Attributes:
        schedule, link: what ran, and over what.
        begin, end: of each evaluation and of each copy; of a ``Free``, the present moment twice.
        stall: how long computation waited because of each step; 0 but for Fetch and Offload.
        memory: live bytes at each step, what is on its way to the host included.
        unit: of time.
    """

    schedule: Schedule
    link: Link
    begin: tuple[Fraction, ...]
    end: tuple[Fraction, ...]
    stall: tuple[Fraction, ...]
    memory: tuple[int, ...]
    unit: str

    @property
    def trace(self) -> Trace:
        """What ``replay`` says of the schedule, step by step; made anew each time."""
        return replay(self.schedule)

    @property
    def makespan(self) -> Fraction:
        """When all results are there: all evaluations, and all stalls."""
        return self.computing + self.stalled

    @property
    def computing(self) -> Fraction:
        """The sum of all evaluations."""
        spans = zip(self.schedule.steps, self.begin, self.end, strict=True)
        return total(
            time
            for step, begin, end in spans
            if isinstance(step, EVALUATIONS)
            for time in ((end, 1), (begin, -1))
        )

    @property
    def stalled(self) -> Fraction:
        """The sum of all stalls."""
        return total((stall, 1) for stall in self.stall)

    @property
    def peak_bytes(self) -> int:
        """The most bytes on the device, what is on its way to the host included.

        Memory is taken by evaluations and fetches alone. At other steps a fetch that waits for its
        turn has its memory reserved, and not yet in use.
        """
        rows = zip(self.schedule.steps, self.memory, strict=True)
        taking = (*EVALUATIONS, Fetch)
        return max((held for step, held in rows if isinstance(step, taking)), default=0)

    def moved(self, kind: type[Offload] | type[Fetch]) -> int:
        """Return the bytes that were copied one way: ``Offload`` or ``Fetch``."""
        data = self.schedule.graph.data
        return sum(
            data[step.data].spec.nbytes for step in self.schedule.steps if type(step) is kind
        )

    def __repr__(self) -> str:
        return f"<Timeline {self.summary()}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return how a notebook shows the timeline: as a player, where ``viz`` is imported."""
        return mimebundle(repr(self), lambda: self)

    def summary(self) -> str:
        """Return the totals in one line."""
        return (
            f"{self.schedule.policy} on {self.schedule.graph.name}: "
            f"{cost_text(float(self.makespan), self.unit)}, {float(self.stalled):.6g} stalled; "
            f"peak {size_text(self.peak_bytes)}, {size_text(self.moved(Offload))} to the host and "
            f"{size_text(self.moved(Fetch))} back"
        )


def total(times: Iterable[tuple[Fraction, int]]) -> Fraction:
    """Return the sum of times with their signs: in whole numbers, which are quickly added."""
    parts: dict[int, int] = {}
    for time, sign in times:
        below = time.denominator
        parts[below] = parts.get(below, 0) + sign * time.numerator
    return sum((Fraction(above, below) for below, above in parts.items()), Fraction(0))


def timed(
    schedule: Schedule, link: Link, costs: Costs | None = None, *, budget: int | None = None
) -> Timeline:
    """Return when each step of a schedule happens, with copies beside computation.

    Args:
        schedule: a legal one; without copies, the makespan is the sum of its evaluations.
        link: between device and host.
        costs: the duration of each evaluation; if not given, as in ``plan``.
        budget: bytes. If given, what has no room waits for copies to the host that are on their
            way; if not, nothing waits for memory, and the peak says what it takes.

    Raises:
        ScheduleError: if a step is not legal, or the link cannot do it.
        BudgetError: if something has no room though no copy is on its way, or the budget is none.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(2)  # f1 l b2 b1; f1 waits on the host while f2 is gone through
    >>> first, turn = [tc.Compute(0), tc.Compute(1)], [tc.Compute(2), tc.Compute(3)]
    >>> last = [tc.Free(2), tc.Free(4), tc.Fetch(1), tc.Compute(4), tc.Free(1), tc.Free(5)]
    >>> schedule = tc.Schedule(graph, (*first, tc.Offload(1), *turn, *last), "mine")
    >>> tc.timed(schedule, tc.Link(bandwidth=512)).summary()
    'mine on chain:2: 6 evaluations, 1 stalled; peak 1.5 KiB, 512 B to the host and 512 B back'
    """
    own = given(schedule.graph) if costs is None else costs
    if len(own.operators) != len(schedule.graph.operators):
        raise ScheduleError(f"the costs are not those of {schedule.graph.name}: other operators")
    clock = TimedReplay(schedule, checked_link(link), own, checked_bytes(budget))
    for position, step in enumerate(schedule.steps):
        if isinstance(step, EVALUATIONS):
            clock.evaluate(position, step)
        elif isinstance(step, Offload):
            clock.offload(position, step)
        elif isinstance(step, Fetch):
            clock.fetch(position, step)
        else:
            clock.free(position, step)
    clock.finish()
    return Timeline(
        schedule, link, tuple(clock.begin), tuple(clock.end), tuple(clock.stall),
        tuple(clock.memory), own.unit,
    )  # fmt: skip


def checked_bytes(budget: object) -> int | None:
    """Return a budget in bytes, or raise a BudgetError that says what one is here."""
    if budget is None:
        return None
    if isinstance(budget, bool) or not isinstance(budget, Integral) or budget < 0:
        raise BudgetError(
            f"timed: budget={budget!r:.80}; it must be a whole number of bytes, 0 or more, or None "
            "for a device without limit"
        )
    return int(budget)
