"""One pass over a schedule that times its steps: see ``clock`` for what waits for what."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from fractions import Fraction
from typing import NoReturn

from tinyckpt.base.errors import BudgetError
from tinyckpt.base.units import size_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.replay import Machine
from tinyckpt.core.schedule import Evaluation, Fetch, Free, Offload, Schedule, step_title
from tinyckpt.planner.offload.link import Link

Flight = tuple[Fraction, int, int]  # when a copy ends, the position of its step, the block it holds


class TimedReplay:
    """A replay with times.

    What each step takes is a look at the first of a heap or two: moments only go on, those of
    evaluations and those at which fetches begin, so a copy that has ended is gone past once.

    Attributes:
        machine: the replay; a copy to the host holds the block that it reads until it ends.
        now: when the last evaluation ended, and every wait behind it.
        out, back: when the engine of each direction is free.
        flights: a heap of the copies that hold memory which nothing else may need.
        flying: how many of them hold each block, and when the last one ends.
        leaving: a heap of the blocks that copies alone hold, by when they end.
        left: blocks of those that are gone by the time that the last fetch begins; not by now.
        left_bytes: what they weigh.
        there: when each value that was moved out is on the host.
        arrival: when each fetched value has arrived, and the position of its step.
    """

    def __init__(self, schedule: Schedule, link: Link, costs: Costs, budget: int | None) -> None:
        self.machine = Machine(schedule)
        self.link, self.budget = link, budget
        self.costs = [Fraction(cost) for cost in costs.operators]
        self.sizes = [node.spec.nbytes for node in schedule.graph.data]
        self.durations: dict[int, Fraction] = {}
        self.now = self.out = self.back = Fraction(0)
        self.flights: list[Flight] = []
        self.flying: dict[int, tuple[int, Fraction]] = {}
        self.leaving: list[tuple[Fraction, int]] = []
        self.left: set[int] = set()
        self.left_bytes = 0
        self.there: dict[int, Fraction] = {}
        self.arrival: dict[int, tuple[Fraction, int]] = {}
        count = len(schedule.steps)
        self.begin, self.end, self.stall = ([Fraction(0)] * count for _ in range(3))
        self.memory = [0] * count

    def evaluate(self, position: int, step: Evaluation) -> None:
        """Evaluate an operator once its inputs have arrived, and there is room."""
        operator = self.machine.graph.operators[step.operator]
        workspace = self.machine.take(position, step)
        self.await_arrival(operator.inputs)
        while self.budget is not None and self.held(workspace) > self.budget:
            if not self.flights:
                self.fail(position, self.held(workspace))
            end, at, _ = self.flights[0]
            self.stall[at] += end - self.now
            self.now = end
            self.land_first()
        self.land()
        for data in operator.outputs:
            self.arrival.pop(data, None)
        self.memory[position] = self.held(workspace)
        self.begin[position] = self.now
        self.end[position] = self.now = self.now + self.costs[step.operator]

    def finish(self) -> None:
        """Wait until the results have arrived."""
        self.machine.check_outputs()
        self.await_arrival(self.machine.graph.outputs)

    def await_arrival(self, values: Iterable[int]) -> None:
        """Wait until those of some values that were fetched have arrived."""
        arrivals = [self.arrival[data] for data in values if data in self.arrival]
        arrived, fetched_at = max(arrivals, default=(self.now, 0))
        if arrived > self.now:
            self.stall[fetched_at] += arrived - self.now
            self.now = arrived
        self.land()

    def offload(self, position: int, step: Offload) -> None:
        """Begin a copy to the host; what it reads stays until it ends."""
        self.machine.require(position, step, step.data)
        block = self.machine.block[step.data]
        arrived = self.arrival.pop(step.data, (self.now, position))[0]
        begin = max(self.now, self.out, arrived)
        self.out = self.copied(position, step.data, begin)
        if self.link.engines == 1:
            self.back = self.out
        self.there[step.data] = self.out
        self.hold(position, block, self.out)
        self.machine.take(position, step)
        self.settle(position, block)

    def fetch(self, position: int, step: Fetch) -> None:
        """Begin a copy back, once there is room for it."""
        self.machine.take(position, step)
        begin = max(self.now, self.back, self.there.pop(step.data))
        self.leave_by(begin)
        while self.budget is not None and self.held(0) - self.left_bytes > self.budget:
            if not self.leaving:
                self.fail(position, self.held(0) - self.left_bytes)
            begin = max(begin, self.leaving[0][0])
            self.leave_first()
        self.leave_by(begin)
        self.back = self.copied(position, step.data, begin)
        if self.link.engines == 1:
            self.out = self.back
        self.arrival[step.data] = self.back, position
        self.memory[position] = self.held(0) - self.left_bytes

    def free(self, position: int, step: Free) -> None:
        """Give a value up; where it has not arrived, its memory is written to until it has."""
        block = self.machine.block[step.data]
        if step.data in self.arrival:
            arrived, _ = self.arrival.pop(step.data)
            self.hold(position, block, arrived)
        self.machine.take(position, step)
        self.begin[position] = self.end[position] = self.now
        self.settle(position, block)

    def copied(self, position: int, data: int, begin: Fraction) -> Fraction:
        """Note a copy; return when it ends."""
        nbytes = self.sizes[data]
        if nbytes not in self.durations:
            self.durations[nbytes] = self.link.duration(nbytes)
        self.begin[position], self.end[position] = begin, begin + self.durations[nbytes]
        return self.end[position]

    def hold(self, position: int, block: int | None, end: Fraction) -> None:
        """Let a copy hold a block until it ends; a view of a source is in none."""
        if block is not None and block >= 0:
            self.machine.holders[block] += 1
            count, last = self.flying.get(block, (0, end))
            self.flying[block] = count + 1, max(last, end)
            heapq.heappush(self.flights, (end, position, block))

    def settle(self, position: int, block: int | None) -> None:
        """Note what is held behind a step that takes no memory, and gave a block up."""
        if block in self.flying:
            count, last = self.flying[block]
            if count == self.machine.holders[block]:
                heapq.heappush(self.leaving, (last, block))
        self.land()
        self.memory[position] = self.held(0)

    def held(self, workspace: int) -> int:
        """Return the bytes on the device."""
        return sum(self.machine.live) + workspace

    def land(self) -> None:
        """Let go of what copies held that have ended by now."""
        while self.flights and self.flights[0][0] <= self.now:
            self.land_first()

    def land_first(self) -> None:
        """Let go of what the copy held that ends first."""
        block = heapq.heappop(self.flights)[2]
        count, last = self.flying.pop(block)
        if count > 1:
            self.flying[block] = count - 1, last
        self.machine.let_go(block)
        if not self.machine.holders[block] and block in self.left:
            self.left.remove(block)
            self.left_bytes -= self.machine.block_bytes[block]

    def leave_by(self, moment: Fraction) -> None:
        """Note the blocks that are gone by the time that a fetch begins; it is never earlier."""
        while self.leaving and self.leaving[0][0] <= moment:
            self.leave_first()

    def leave_first(self) -> None:
        """Note that the block which leaves first is gone, unless it is by now."""
        block = heapq.heappop(self.leaving)[1]
        if self.machine.holders[block]:
            self.left.add(block)
            self.left_bytes += self.machine.block_bytes[block]

    def fail(self, position: int, held: int) -> NoReturn:
        """Raise the BudgetError of a step for which there is no room, with what it wants."""
        assert self.budget is not None
        title = " ".join(step_title(self.machine.graph, self.machine.schedule.steps[position]))
        raise BudgetError(
            f"step {position}: {title} needs {size_text(held)} with nothing on its way to the "
            f"host, which is more than the budget of {size_text(self.budget)}",
            held,
        )
