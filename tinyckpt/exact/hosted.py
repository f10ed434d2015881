"""The least makespan with a host: keep, recompute or move each forward value, by exact search.

A* over what is where: which values are on the device and which on the host, and when everything
that is on its way will have ended. Moves are the steps of schedules, timed as ``transfers.clock``
times them. Of two ways to the same places, one is of no interest if nothing in it comes earlier:
all times are maxima of sums, so whatever follows comes no earlier either.

The class of schedules: backward operators are evaluated once, and forward values alone are moved.
Within it nothing is left out but what cannot help: a value is freed where room is wanted or once it
has no more readers, and what is fetched is not freed before it has arrived.

Source: the class is that of O. Beaumont, L. Eyraud-Dubois and A. Shilova, "Efficient combination of
rematerialization and offloading for training DNNs", NeurIPS 2021, without its assumptions on where
the offloaded values stand; their dynamic program, which those allow, is not implemented here.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import inf, lcm
from time import monotonic

from tinyckpt.cost import Costs
from tinyckpt.exact.reduced import as_set, members
from tinyckpt.exact.search import SearchLimitError
from tinyckpt.graph import Graph, producer_of
from tinyckpt.schedule import Compute, Fetch, Free, Offload, Step
from tinyckpt.transfers.link import Link

SCOPE = "schedules that evaluate backward operators once and move forward values alone"
Ends = tuple[tuple[int, int], ...]  # values and when their copies end, ascending by value


@dataclass(frozen=True, slots=True)
class Moment:
    """What is where, as soon as the last evaluation has ended. Times are in ticks.

    Attributes:
        device, host: sets of values.
        now: when that is.
        out, back: when the line of each direction is free.
        leaving: values on their way to the host, whose memory is still taken.
        arriving: values on their way to the device.
        is_closed: whether no more leaves before the next evaluation. With a line for each direction
            it is all the same whether what leaves is handed over before what comes back, or after.
    """

    device: int
    host: int
    now: int = 0
    out: int = 0
    back: int = 0
    leaving: Ends = ()
    arriving: Ends = ()
    is_closed: bool = False

    def comes_no_later(self, other: Moment) -> bool:
        """Whether nothing of this comes later than the same of another, in the same places."""
        if self.is_closed > other.is_closed or self.now > other.now:
            return False
        if self.out > other.out or self.back > other.back:
            return False
        for own, others in ((self.leaving, other.leaving), (self.arriving, other.arriving)):
            ends = dict(others)
            if any(end > max(ends.get(data, 0), other.now) for data, end in own):
                return False
        return True


def is_searched(graph: Graph, costs: Costs) -> bool:
    """Whether the search knows all that a graph has: it knows no views, updates, or once."""
    views = any(node.view_of is not None for node in graph.data)
    return not (views or graph.once or graph.updates) and costs.memory_unit == "bytes"


class HostSearch:
    """Ways to the results of a graph.

    Args:
        graph, costs: what to evaluate; see ``is_searched``.
        link: to the host.
        budget, host_budget: bytes.
    """

    def __init__(
        self, graph: Graph, costs: Costs, link: Link, budget: int, host_budget: float = inf
    ) -> None:
        self.graph, self.link = graph, link
        self.budget, self.host_budget = budget, host_budget
        made = [0 if node.is_source else costs.data[node.id] for node in graph.data]
        self.size, self.workspace = made, costs.workspace
        can_move = link.bandwidth > 0
        forward = [
            node.id
            for node in graph.data
            if node.producer is not None and node.producer < graph.forward_count
        ]
        self.movable = as_set(d for d in forward if can_move and d not in graph.outputs)
        lasts = {d: link.duration(made[d]) for d in members(self.movable)}
        times = [Fraction(cost) for cost in costs.operators]
        self.ticks = lcm(*(time.denominator for time in [*times, *lasts.values(), Fraction(1)]))
        self.cost = [int(time * self.ticks) for time in times]
        self.lasts = {data: int(time * self.ticks) for data, time in lasts.items()}
        self.reads = [
            as_set(d for d in o.inputs if not graph.data[d].is_source) for o in graph.operators
        ]
        self.makes = [as_set(o.outputs) for o in graph.operators]
        self.goal = as_set(d for d in graph.outputs if not graph.data[d].is_source)
        self.known: dict[int, tuple[int, int]] = {}  # outlooks by what is present
        self.weights: dict[int, int] = {}

    def cheapest(self, states: int, deadline: float = inf) -> tuple[Fraction, list[Step]] | None:
        """Return the least makespan and the steps to it, or None if nothing is within the budgets.

        Args:
            states: how many may be looked at.
            deadline: by ``time.monotonic``.

        Raises:
            SearchLimitError: if states or time do not suffice.
        """
        start = Moment(0, 0)
        found: list[tuple[Moment, int, tuple[Step, ...]]] = [(start, -1, ())]
        best: dict[tuple[int, int], list[int]] = {(0, 0): [0]}
        beaten: set[int] = set()  # by something that came up later, and comes no later
        heap = [(self.outlook(start)[0], 0, 0)]
        while heap:
            place = heapq.heappop(heap)[2]
            moment = found[place][0]
            if place in beaten:
                continue
            if not self.goal & ~moment.device:
                return Fraction(moment.now, self.ticks), walked(found, place)
            if len(found) > states or monotonic() > deadline:
                raise SearchLimitError
            for after, steps in self.moves(moment):
                others = best.setdefault((after.device, after.host), [])
                if any(found[other][0].comes_no_later(after) for other in others):
                    continue
                worse = [other for other in others if after.comes_no_later(found[other][0])]
                if worse:
                    beaten.update(worse)
                    others[:] = [other for other in others if other not in beaten]
                others.append(len(found))
                estimate = after.now + self.outlook(after)[0]
                heapq.heappush(heap, (estimate, -after.now, len(found)))
                found.append((after, place, steps))
        return None

    def outlook(self, moment: Moment) -> tuple[int, int]:
        """Return what remains to be spent at least, and the values that may still be read."""
        present = moment.device | moment.host
        if present not in self.known:
            cost, wanted, seen = 0, 0, set()
            todo = [(data, True) for data in members(self.goal & ~present)]
            while todo:
                data, must = todo.pop()
                operator = producer_of(self.graph, data)
                if (operator, must) in seen or (operator, True) in seen:
                    continue
                if must:
                    cost += self.cost[operator]
                seen.add((operator, must))
                wanted |= self.reads[operator]
                for read in members(self.reads[operator]):
                    there = bool(present >> read & 1)
                    if not there or producer_of(self.graph, read) < self.graph.forward_count:
                        todo.append((read, must and not there))
            self.known[present] = cost, wanted | self.goal
        return self.known[present]

    def moves(self, moment: Moment) -> Iterator[tuple[Moment, tuple[Step, ...]]]:
        """Yield what may follow, and the steps to it."""
        useful = self.outlook(moment)[1]
        is_leaving = as_set(data for data, _ in moment.leaving)
        is_arriving = as_set(data for data, _ in moment.arriving)
        leaving = 0 if moment.is_closed else moment.device & self.movable
        for data in members(leaving & ~is_arriving & ~is_leaving):
            if self.weight(moment.host | 1 << data) <= self.host_budget:
                yield self.offloaded(moment, data), (Offload(data),)
        for data in members(moment.host & useful):
            for freed in self.rooms(moment, 1 << data, 0, is_arriving):
                after = self.fetched(replace(moment, device=moment.device & ~freed), data)
                yield after, (*frees(freed), Fetch(data))
        present = moment.device | moment.host
        for operator in range(len(self.cost)):
            reads, makes = self.reads[operator], self.makes[operator]
            if reads & ~moment.device or makes & present or not makes & useful:
                continue
            for freed in self.rooms(moment, makes, self.workspace[operator], is_arriving | reads):
                before = replace(moment, device=moment.device & ~freed)
                after = self.evaluated(before, operator)
                dead = after.device & ~self.outlook(after)[1]
                dead &= ~as_set(data for data, _ in after.arriving)
                yield (
                    replace(after, device=after.device & ~dead),
                    (*frees(freed), Compute(operator), *frees(dead)),
                )

    def rooms(self, moment: Moment, more: int, workspace: int, fixed: int) -> Iterator[int]:
        """Yield the smallest sets of values to free so that something has room in the end."""
        excess = self.weight(moment.device | more) + workspace - self.budget
        if excess <= 0:
            yield 0
            return
        candidates = members(moment.device & ~fixed & ~self.goal)
        smallest: list[int] = []
        for count in range(1, len(candidates) + 1):
            for chosen in combinations(candidates, count):
                freed = as_set(chosen)
                if self.weight(freed) >= excess and not any(s & ~freed == 0 for s in smallest):
                    smallest.append(freed)
                    yield freed

    def weight(self, values: int) -> int:
        """Return the memory of a set of values."""
        if values not in self.weights:
            self.weights[values] = sum(self.size[data] for data in members(values))
        return self.weights[values]

    def offloaded(self, moment: Moment, data: int) -> Moment:
        """Return the moment after a copy to the host has been handed over."""
        end = max(moment.now, moment.out) + self.lasts[data]
        return replace(
            moment,
            device=moment.device & ~(1 << data),
            host=moment.host | 1 << data,
            out=end,
            back=end if self.link.engines == 1 else moment.back,
            leaving=with_end(moment.leaving, data, end, moment.now),
        )

    def fetched(self, moment: Moment, data: int) -> Moment:
        """Return the moment after a copy back has been handed over; there is room in the end."""
        begin = max(moment.now, moment.back, dict(moment.leaving).get(data, 0))
        device = moment.device | 1 << data
        begin = self.room_at(begin, moment.leaving, self.weight(device))
        end = begin + self.lasts[data]
        return replace(
            moment,
            device=device,
            host=moment.host & ~(1 << data),
            back=end,
            out=end if self.link.engines == 1 else moment.out,
            arriving=with_end(moment.arriving, data, end, moment.now),
            is_closed=self.link.engines > 1,
        )

    def evaluated(self, moment: Moment, operator: int) -> Moment:
        """Return the moment after an evaluation; there is room in the end."""
        arriving = dict(moment.arriving)
        reads = members(self.reads[operator])
        begin = max([moment.now, *(arriving[data] for data in reads if data in arriving)])
        device = moment.device | self.makes[operator]
        begin = self.room_at(begin, moment.leaving, self.weight(device) + self.workspace[operator])
        now = begin + self.cost[operator]
        return Moment(
            device,
            moment.host,
            now,
            max(moment.out, now),
            max(moment.back, now),
            tuple(entry for entry in moment.leaving if entry[1] > now),
            tuple(entry for entry in moment.arriving if entry[1] > now),
        )

    def room_at(self, begin: int, leaving: Ends, held: int) -> int:
        """Return when so much of the copies to the host has ended that there is room."""
        total = held + sum(self.size[data] for data, end in leaving if end > begin)
        for end in sorted(end for _, end in leaving):
            if total <= self.budget:
                break
            if end > begin:
                begin = end
                total = held + sum(self.size[other] for other, at in leaving if at > begin)
        return begin


def with_end(ends: Ends, data: int, end: int, now: int) -> Ends:
    """Return the ends with one more, unless it is over."""
    return tuple(sorted([*ends, (data, end)])) if end > now else ends


def frees(values: int) -> tuple[Step, ...]:
    """Return the steps that free a set of values."""
    return tuple(Free(data) for data in members(values))


def walked(found: list[tuple[Moment, int, tuple[Step, ...]]], place: int) -> list[Step]:
    """Return the steps to a moment."""
    parts: list[tuple[Step, ...]] = []
    while place >= 0:
        _, before, steps = found[place]
        parts.append(steps)
        place = before
    return [step for part in reversed(parts) for step in part]
