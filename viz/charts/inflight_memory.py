"""What the device holds at every moment, from a timeline: in bands, with what is on its way.

A value that is moved to the host stays until its copy has ended: that is *on its way*, unless its
memory is held by something else as well. So is one that is given up before it has arrived. During
an evaluation the curve is what the timeline says of it, less whatever ends its flight meanwhile;
while computation waits, it is what is in use: a value that comes back counts once its copy begins.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, takewhile
from operator import itemgetter
from typing import TYPE_CHECKING

from tinyckpt.core.schedule import EVALUATIONS, Fetch, Free, Offload

from ..memory import NOWHERE, CellMemory

if TYPE_CHECKING:
    from tinyckpt.planner.offload.simulate import Timeline

Row = tuple[int, int, int, int, int]  # bytes by BANDS, and on their way to the host
Moment = tuple[Fraction, Row]


def held_over_time(timeline: Timeline) -> list[Moment]:
    """Return from when on how much is held, in order; the last is for the end."""
    device = Device(timeline)
    steps = timeline.schedule.steps
    moments: list[Moment] = []
    places = [place for place, step in enumerate(steps) if isinstance(step, EVALUATIONS)]
    now, last = Fraction(0), max(timeline.end)
    for before, place in pairwise([-1, *places, len(steps)]):
        for between in range(before + 1, place):
            device.give(between, now)
        begin = timeline.begin[place] if place < len(steps) else last
        if begin > now:
            moments += device.moments(now, begin, 0)
        if place < len(steps):
            moments += device.evaluate(place)
            now = timeline.end[place]
    device.advance(last)
    return [*moments, (last, device.row(0))]


class Device:
    """Which memory is held, by what, as time goes on.

    Attributes:
        memory: values and blocks; a flight is one more holder of its block.
        landings: when a flight ends, and whose block it holds, in order.
        flights: by block, how many.
        alone: bytes by band of the blocks that nothing but flights hold.
        arrivals: when each value that was fetched has arrived.
        reserved: of values whose copies back begin later, while computation waits, in order: when,
            and in which band. ``unused`` are their bytes.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline, self.graph = timeline, timeline.schedule.graph
        home = {
            node.id: int(node.producer >= self.graph.forward_count)
            for node in self.graph.data
            if node.producer is not None
        }
        self.memory = CellMemory(self.graph, home, 2)
        self.landings: list[tuple[Fraction, int]] = []
        self.flights: dict[int, int] = {}
        self.alone = [0, 0, 0]
        self.arrivals: dict[int, Fraction] = {}
        self.reserved: dict[int, tuple[Fraction, int]] = {}
        self.unused = [0, 0, 0]

    def evaluate(self, place: int) -> Iterator[Moment]:
        """Evaluate; yield what is held from its begin to its end."""
        step, begin = self.timeline.schedule.steps[place], self.timeline.begin[place]
        assert isinstance(step, EVALUATIONS)
        operator = self.graph.operators[step.operator]
        for data in list(self.reserved):
            self.use(data)
        self.memory.take(step)
        for data in operator.outputs:
            self.arrivals.pop(data, None)
        yield from self.moments(begin, self.timeline.end[place], operator.workspace)

    def give(self, place: int, now: Fraction) -> None:
        """Do a step that evaluates nothing: what is copied is held until that has ended."""
        step, end = self.timeline.schedule.steps[place], self.timeline.end[place]
        assert isinstance(step, Free | Offload | Fetch)
        data = step.data
        if isinstance(step, Fetch):
            self.memory.take(step)
            self.arrivals[data] = end
            self.reserved[data] = self.timeline.begin[place], self.band(self.memory.block[data])
            self.unused[self.reserved[data][1]] += self.graph.data[data].spec.nbytes
            return
        self.use(data)
        block = self.memory.block[data]
        arrived = self.arrivals.pop(data, now)
        self.fly(block, end if isinstance(step, Offload) else arrived)
        self.change(block, -1)
        self.memory.take(step)
        self.change(block, 1)

    def use(self, data: int) -> None:
        """Count the memory of a value whose copy back begins now, if it is one of those."""
        if data in self.reserved:
            _, band = self.reserved.pop(data)
            self.unused[band] -= self.graph.data[data].spec.nbytes

    def fly(self, block: int, end: Fraction) -> None:
        """Let a copy hold a block until it ends."""
        if block != NOWHERE:
            self.change(block, -1)
            self.memory.holders[block] += 1
            self.flights[block] = self.flights.get(block, 0) + 1
            self.change(block, 1)
            insort(self.landings, (end, block))

    def advance(self, now: Fraction) -> None:
        """End all flights that end by now, and use what copies back fill from now on."""
        count = bisect_right(self.landings, now, key=itemgetter(0))
        for _, block in self.landings[:count]:
            self.change(block, -1)
            self.flights[block] -= 1
            self.memory.holders[block] -= 1
            if not self.memory.holders[block]:
                self.memory.count_bytes(block, -1)
            self.change(block, 1)
        del self.landings[:count]
        for data in list(takewhile(lambda data: self.reserved[data][0] <= now, self.reserved)):
            self.use(data)

    def change(self, block: int, sign: int) -> None:
        """Count a block with those that nothing but flights hold, if it is one; or take it away."""
        flying = self.flights.get(block, 0)
        if flying and self.memory.holders[block] == flying:
            owner = self.memory.owner[block]
            self.alone[self.band(block)] += sign * self.graph.data[owner].spec.nbytes

    def band(self, block: int) -> int:
        """Return the band of a block: kept, recomputed, gradients."""
        return 2 if self.memory.home[self.memory.owner[block]] else int(self.memory.again[block])

    def moments(self, begin: Fraction, end: Fraction, workspace: int) -> Iterator[Moment]:
        """Yield what is held from a moment on, and whenever that changes before another one."""
        self.advance(begin)
        yield begin, self.row(workspace)
        lands = takewhile(lambda moment: moment < end, (moment for moment, _ in self.landings))
        turns = {*lands, *(moment for moment, _ in self.reserved.values() if moment < end)}
        for moment in sorted(turns):
            self.advance(moment)
            yield moment, self.row(workspace)

    def row(self, workspace: int) -> Row:
        """Return what is held now."""
        memory = self.memory
        again = memory.bytes_again[0]
        bands = (memory.bytes[0] - again, again, memory.bytes[1])
        kept, recomputed, gradients = (
            held - alone - unused
            for held, alone, unused in zip(bands, self.alone, self.unused, strict=True)
        )
        return kept, recomputed, gradients, workspace, sum(self.alone)
