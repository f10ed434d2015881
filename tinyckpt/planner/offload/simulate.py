"""Discrete-event simulation of computation overlapped with copies: makespan, stalls, peak bytes.

Comes in: a schedule, the duration of its evaluations, and a link. Goes out: a ``Timeline``.
``replay`` has no time: there, a value moved to the host leaves the device at that step, as it does
where the machine waits for every copy (``execute`` does). A GPU goes on computing meanwhile. Then
the copy reads the device's memory until it has ended, and **only then is that memory free**: the
peak found here includes copies in flight.

Dependencies, as for streams on a GPU, where steps are issued in their order:

- evaluations run one after another; so do the copies of one engine;
- a copy begins when the evaluations before its step have ended, and its input has arrived;
- an evaluation waits until its fetched inputs have arrived: the stall of that ``Fetch``; so does
  the end, for results;
- memory is taken at the step that takes it. With a budget, an evaluation or a fetch for which there
  is no room waits for copies on their way to the host: the stall of those ``Offload`` steps.

A copy waits for evaluations and copies of earlier steps alone, so there is no deadlock. Times are
exact: ``Fraction``, of floats too. Each is a maximum of sums of durations (a longest path), so all
of them can only become earlier with more bandwidth, less latency or a larger budget.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from typing import Any, NoReturn

from tinyckpt.base.display import mimebundle
from tinyckpt.base.errors import BudgetError, ScheduleError, expect
from tinyckpt.base.units import cost_text, size_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.replay import ReplayState, replay
from tinyckpt.core.schedule import (
    EVALUATIONS,
    Evaluation,
    Fetch,
    Free,
    Offload,
    Schedule,
    step_title,
)
from tinyckpt.core.trace import Trace
from tinyckpt.planner.model.cost_models import given
from tinyckpt.planner.model.link import Link, checked_link


@dataclass(frozen=True, slots=True, repr=False)
class Timeline:
    """The times of a schedule's evaluations and copies, in the unit of the costs, from 0.

    >>> import tinyckpt as tc
    >>> line = tc.timed(tc.plan(tc.networks.chain(2), "sqrt_n"), tc.Link(bandwidth=512))
    >>> print(line.makespan, line.stalled, line.peak_bytes)
    5 0 2048

    Attributes:
        schedule, link: the schedule, and the link it was timed for.
        begin, end: of each evaluation and of each copy; of a ``Free``, the current time twice.
        stall: how long computation waited because of each step; 0 except for Fetch and Offload.
        memory: live bytes at each step, copies on their way to the host included.
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
        """The trace of ``replay``, step by step; computed anew each time."""
        return replay(self.schedule)

    @property
    def makespan(self) -> Fraction:
        """The time at which all results are ready: all evaluations, and all stalls."""
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
        """The most bytes on the device, copies on their way to the host included.

        Memory is taken by evaluations and fetches alone. At other steps a fetch that waits for its
        turn has its memory reserved, and not yet in use.
        """
        rows = zip(self.schedule.steps, self.memory, strict=True)
        taking = (*EVALUATIONS, Fetch)
        return max((nbytes for step, nbytes in rows if isinstance(step, taking)), default=0)

    def moved(self, kind: type[Offload] | type[Fetch]) -> int:
        """Return the bytes copied in one direction: ``Offload`` or ``Fetch``."""
        data = self.schedule.graph.data
        return sum(
            data[step.data].spec.nbytes for step in self.schedule.steps if type(step) is kind
        )

    def __repr__(self) -> str:
        return f"<Timeline {self.summary()}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the notebook display: a player, where ``viz`` is imported."""
        return mimebundle(repr(self), lambda: self)

    def summary(self) -> str:
        """Return the totals in one line."""
        return (
            f"{self.schedule.policy} on {self.schedule.graph.name}: "
            f"makespan {cost_text(float(self.makespan), self.unit)}, {float(self.stalled):.6g} of "
            f"them stalled; peak {size_text(self.peak_bytes)}, {size_text(self.moved(Offload))} to "
            f"the host and {size_text(self.moved(Fetch))} back"
        )


def total(times: Iterable[tuple[Fraction, int]]) -> Fraction:
    """Return the sum of signed times, grouped by denominator: fast integer additions."""
    parts: dict[int, int] = {}
    for time, sign in times:
        below = time.denominator
        parts[below] = parts.get(below, 0) + sign * time.numerator
    return sum((Fraction(above, below) for below, above in parts.items()), Fraction(0))


def timed(
    schedule: Schedule, link: Link, costs: Costs | None = None, *, budget: int | None = None
) -> Timeline:
    """Simulate a schedule with copies overlapped with computation: when each step happens.

    Args:
        schedule: a legal one; without copies, the makespan is the sum of its evaluations.
        link: between device and host.
        costs: the duration of each evaluation; if not given, as in ``plan``.
        budget: bytes. If given, a step without room waits for copies in flight to the host; if not,
            nothing waits for memory, and the peak reports the demand.

    Raises:
        ScheduleError: if a step is illegal, or the link cannot do it.
        BudgetError: if a step has no room though no copy is in flight, or the budget is invalid.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(2)  # f1 l b2 b1; f1 is on the host while f2 is reversed
    >>> first, turn = [tc.Compute(0), tc.Compute(1)], [tc.Compute(2), tc.Compute(3)]
    >>> last = [tc.Free(2), tc.Free(4), tc.Fetch(1), tc.Compute(4), tc.Free(1), tc.Free(5)]
    >>> schedule = tc.Schedule(graph, (*first, tc.Offload(1), *turn, *last), "mine")
    >>> timeline = tc.timed(schedule, tc.Link(bandwidth=512))
    >>> print(timeline.summary().replace("; ", ";\\n"))
    mine on chain:2: makespan 6 evaluations, 1 of them stalled;
    peak 1.5 KiB, 512 B to the host and 512 B back
    """
    expect(schedule, Schedule)
    own = given(schedule.graph) if costs is None else expect(costs, Costs)
    if len(own.operators) != len(schedule.graph.operators):
        raise ScheduleError(
            f"the costs are not those of {schedule.graph.name}: numbers of operators differ"
        )
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
    """Check a budget in bytes; raise a BudgetError if it is invalid."""
    if budget is None:
        return None
    if isinstance(budget, bool) or not isinstance(budget, Integral) or budget < 0:
        raise BudgetError(
            f"timed: budget={budget!r:.80}; it must be a whole number of bytes, 0 or more, or None "
            "for a device without limit"
        )
    return int(budget)


# --------------------------------------------------------------------------------------------------
# One pass over a schedule that times its steps; the dependencies are in the module docstring.


Flight = tuple[Fraction, int, int]  # end of a copy, position of its step, block it holds


class TimedReplay:
    """A replay with a clock.

    Amortised O(log n) per step: one or two heap operations. The times of evaluations and the begins
    of fetches only increase, so each ended copy is popped once.

    Attributes:
        machine: the replay; a copy to the host is a holder of the block that it reads until it
            ends.
        now: when the last evaluation, and every wait after it, ended.
        out, back: when the engine of each direction is free.
        flights: a heap of the copies that occupy memory for which there may be no other holder.
        in_flight: the number of copies that hold each block, and when the last one ends.
        releases: a heap of the blocks with no holders but copies, by end time.
        freed: those blocks that are freed by the time the last fetch begins, but not yet now.
        freed_bytes: their total size.
        on_host: when each offloaded value is on the host.
        arrival: when each fetched value has arrived, and the position of its step.
    """

    def __init__(self, schedule: Schedule, link: Link, costs: Costs, budget: int | None) -> None:
        self.machine = ReplayState(schedule)
        self.link, self.budget = link, budget
        self.costs = [Fraction(cost) for cost in costs.operators]
        self.sizes = [node.spec.nbytes for node in schedule.graph.data]
        self.durations: dict[int, Fraction] = {}
        self.now = self.out = self.back = Fraction(0)
        self.flights: list[Flight] = []
        self.in_flight: dict[int, tuple[int, Fraction]] = {}
        self.releases: list[tuple[Fraction, int]] = []
        self.freed: set[int] = set()
        self.freed_bytes = 0
        self.on_host: dict[int, Fraction] = {}
        self.arrival: dict[int, tuple[Fraction, int]] = {}
        count = len(schedule.steps)
        self.begin, self.end, self.stall = ([Fraction(0)] * count for _ in range(3))
        self.memory = [0] * count

    def evaluate(self, position: int, step: Evaluation) -> None:
        """Evaluate an operator once its inputs have arrived, and there is room."""
        operator = self.machine.graph.operators[step.operator]
        workspace = self.machine.take(position, step)
        self.await_arrival(operator.inputs)
        while self.budget is not None and self.used(workspace) > self.budget:
            if not self.flights:
                self.fail(position, self.used(workspace))
            end, at, _ = self.flights[0]
            self.stall[at] += end - self.now
            self.now = end
            self.release_first()
        self.release_ended()
        for data in operator.outputs:
            self.arrival.pop(data, None)
        self.memory[position] = self.used(workspace)
        self.begin[position] = self.now
        self.end[position] = self.now = self.now + self.costs[step.operator]

    def finish(self) -> None:
        """Wait until the results have arrived."""
        self.machine.check_outputs()
        self.await_arrival(self.machine.graph.outputs)

    def await_arrival(self, values: Iterable[int]) -> None:
        """Wait until all fetched values among the given ones have arrived."""
        arrivals = [self.arrival[data] for data in values if data in self.arrival]
        arrived, fetched_at = max(arrivals, default=(self.now, 0))
        if arrived > self.now:
            self.stall[fetched_at] += arrived - self.now
            self.now = arrived
        self.release_ended()

    def offload(self, position: int, step: Offload) -> None:
        """Begin a copy to the host; the block it reads stays until it ends."""
        self.machine.require(position, step, step.data)
        block = self.machine.block[step.data]
        arrived = self.arrival.pop(step.data, (self.now, position))[0]
        begin = max(self.now, self.out, arrived)
        self.out = self.copied(position, step.data, begin)
        if self.link.engines == 1:
            self.back = self.out
        self.on_host[step.data] = self.out
        self.hold(position, block, self.out)
        self.machine.take(position, step)
        self.settle(position, block)

    def fetch(self, position: int, step: Fetch) -> None:
        """Begin a copy back, once there is room for it."""
        self.machine.take(position, step)
        begin = max(self.now, self.back, self.on_host.pop(step.data))
        self.free_by(begin)
        while self.budget is not None and self.used(0) - self.freed_bytes > self.budget:
            if not self.releases:
                self.fail(position, self.used(0) - self.freed_bytes)
            begin = max(begin, self.releases[0][0])
            self.free_first()
        self.free_by(begin)
        self.back = self.copied(position, step.data, begin)
        if self.link.engines == 1:
            self.out = self.back
        self.arrival[step.data] = self.back, position
        self.memory[position] = self.used(0) - self.freed_bytes

    def free(self, position: int, step: Free) -> None:
        """Free a value; if its fetch has not arrived, the memory is in use until it has."""
        block = self.machine.block[step.data]
        if step.data in self.arrival:
            arrived, _ = self.arrival.pop(step.data)
            self.hold(position, block, arrived)
        self.machine.take(position, step)
        self.begin[position] = self.end[position] = self.now
        self.settle(position, block)

    def copied(self, position: int, data: int, begin: Fraction) -> Fraction:
        """Record a copy; return its end."""
        nbytes = self.sizes[data]
        if nbytes not in self.durations:
            self.durations[nbytes] = self.link.duration(nbytes)
        self.begin[position], self.end[position] = begin, begin + self.durations[nbytes]
        return self.end[position]

    def hold(self, position: int, block: int | None, end: Fraction) -> None:
        """Let a copy hold a block until it ends; a view of a source has no block."""
        if block is not None and block >= 0:
            self.machine.holders[block] += 1
            count, last = self.in_flight.get(block, (0, end))
            self.in_flight[block] = count + 1, max(last, end)
            heapq.heappush(self.flights, (end, position, block))

    def settle(self, position: int, block: int | None) -> None:
        """Record the memory after a step that takes none and released a block."""
        if block in self.in_flight:
            count, last = self.in_flight[block]
            if count == self.machine.holders[block]:
                heapq.heappush(self.releases, (last, block))
        self.release_ended()
        self.memory[position] = self.used(0)

    def used(self, workspace: int) -> int:
        """Return the bytes on the device."""
        return sum(self.machine.live) + workspace

    def release_ended(self) -> None:
        """Release the blocks of all copies that have ended by now."""
        while self.flights and self.flights[0][0] <= self.now:
            self.release_first()

    def release_first(self) -> None:
        """Release the block of the copy that ends first."""
        block = heapq.heappop(self.flights)[2]
        count, last = self.in_flight.pop(block)
        if count > 1:
            self.in_flight[block] = count - 1, last
        self.machine.let_go(block)
        if not self.machine.holders[block] and block in self.freed:
            self.freed.remove(block)
            self.freed_bytes -= self.machine.block_bytes[block]

    def free_by(self, moment: Fraction) -> None:
        """Mark the blocks freed by the time a fetch begins; these times never decrease."""
        while self.releases and self.releases[0][0] <= moment:
            self.free_first()

    def free_first(self) -> None:
        """Mark the block that is freed first, unless it is already."""
        block = heapq.heappop(self.releases)[1]
        if self.machine.holders[block]:
            self.freed.add(block)
            self.freed_bytes += self.machine.block_bytes[block]

    def fail(self, position: int, needed: int) -> NoReturn:
        """Raise the BudgetError of a step for which there is no room, with the bytes it needs."""
        assert self.budget is not None
        title = " ".join(step_title(self.machine.graph, self.machine.schedule.steps[position]))
        raise BudgetError(
            f"step {position}: {title} needs {size_text(needed)} with no copy in flight to the "
            f"host, which is more than the budget of {size_text(self.budget)}",
            needed,
        )
