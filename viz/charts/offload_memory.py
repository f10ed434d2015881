"""Device memory over time, including transfers in flight, computed from an offload timeline.

A value that is offloaded stays in device memory until its copy has ended: it is *in flight*, unless
its block is also live for another reason. So is a fetched value that is freed before it has
arrived. During an evaluation the curve is what the timeline charges to it, less any transfer that
ends meanwhile; during a stall it is the memory in use: a fetched value counts once its copy begins.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, takewhile
from operator import itemgetter
from typing import TYPE_CHECKING

from tinyckpt.core.schedule import EVALUATIONS, Fetch, Free, Offload

from ..node_memory import NOWHERE, CellMemory

if TYPE_CHECKING:
    from tinyckpt.planner.offload.simulate import Timeline

Row = tuple[int, int, int, int, int, int]  # bytes by BANDS, then bytes in flight to the host
Moment = tuple[Fraction, Row]


def memory_over_time(timeline: Timeline) -> list[Moment]:
    """Return (time, bytes by band) at every change, in order; the last is for the end."""
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
    """Simulation of device memory in time: live blocks, and transfers in flight.

    Attributes:
        memory: values and blocks; a transfer in flight is one more reference to its block.
        landings: when each transfer ends, and its block, in order.
        flights: by block, the number of transfers in flight.
        alone: bytes by band of the blocks that only transfers in flight refer to.
        arrivals: when each fetched value has arrived.
        reserved: fetched values whose copies begin later, during a stall, in order: when, and in
            which band. ``unused`` are their bytes.
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
        self.alone = [0, 0, 0, 0]
        self.arrivals: dict[int, Fraction] = {}
        self.reserved: dict[int, tuple[Fraction, int]] = {}
        self.unused = [0, 0, 0, 0]

    def evaluate(self, place: int) -> Iterator[Moment]:
        """Evaluate an operator; yield the memory from its begin to its end."""
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
        """Apply a step that evaluates nothing; a copied value stays live until its copy ends."""
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
        """Count the memory of a value whose fetch begins now, if it was reserved."""
        if data in self.reserved:
            _, band = self.reserved.pop(data)
            self.unused[band] -= self.graph.data[data].spec.nbytes

    def fly(self, block: int, end: Fraction) -> None:
        """Let a transfer refer to a block until it ends."""
        if block != NOWHERE:
            self.change(block, -1)
            self.memory.holders[block] += 1
            self.flights[block] = self.flights.get(block, 0) + 1
            self.change(block, 1)
            insort(self.landings, (end, block))

    def advance(self, now: Fraction) -> None:
        """End all transfers that end by now, and count the fetches that have begun."""
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
        """Add a block to ``alone``, or subtract it, if only transfers in flight refer to it."""
        flying = self.flights.get(block, 0)
        if flying and self.memory.holders[block] == flying:
            owner = self.memory.owner[block]
            self.alone[self.band(block)] += sign * self.graph.data[owner].spec.nbytes

    def band(self, block: int) -> int:
        """Return the band of a block: kept, recomputed, gradients, results."""
        owner = self.memory.owner[block]
        if self.memory.home[owner]:
            return 2 + self.memory.is_result[owner]
        return int(self.memory.again[block])

    def moments(self, begin: Fraction, end: Fraction, workspace: int) -> Iterator[Moment]:
        """Yield the memory at a time, and at every change before another time."""
        self.advance(begin)
        yield begin, self.row(workspace)
        lands = takewhile(lambda moment: moment < end, (moment for moment, _ in self.landings))
        turns = {*lands, *(moment for moment, _ in self.reserved.values() if moment < end)}
        for moment in sorted(turns):
            self.advance(moment)
            yield moment, self.row(workspace)

    def row(self, workspace: int) -> Row:
        """Return the current bytes by band."""
        memory = self.memory
        again = memory.bytes_again[0]
        bytes_results = memory.bytes_results[1]
        bands = (
            memory.bytes[0] - again, again, memory.bytes[1] - bytes_results, bytes_results
        )  # fmt: skip
        kept, recomputed, gradients, results = (
            held - alone - unused
            for held, alone, unused in zip(bands, self.alone, self.unused, strict=True)
        )
        return kept, recomputed, gradients, results, workspace, sum(self.alone)
