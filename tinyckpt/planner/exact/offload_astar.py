"""The least makespan with a host: keep, recompute or move each value, by exact search.

A* over what is where: which values are on the device and which on the host, and when everything
that is on its way will have ended. Moves are the steps of schedules (``places``), timed as
``offload.simulate`` times them. The estimate lets copies to the host give their memory up at once
(``remaining``). Of two ways to the same places, one is of no interest if nothing in it comes
earlier: all times are maxima of sums, so whatever follows comes no earlier either.

What is found with few moments in each place, mostly the best way, is the limit of the search that
proves it: of ways that take as long, none is looked at.

The class of schedules: backward operators are evaluated once, and results are not moved; what is
passed back may be, to make room for a recomputation. Within it nothing is left out but what cannot
help:

- a value is freed where room is wanted or once it has no more readers, and what is fetched is not
  freed before it has arrived;
- a copy to the host is handed over right after the last evaluation that made or read the value, or
  right behind another in the line of its engine: handed over earlier, it ends no later, and so does
  all that waits for it. Only where the host has no room for all that can be moved may it have to
  wait. Values that are all alike leave one engine in any order: there, it is right behind a copy
  back, or in the order of their numbers.

Source: the class is that of O. Beaumont, L. Eyraud-Dubois and A. Shilova, "Efficient combination of
rematerialization and offloading for training DNNs", NeurIPS 2021, with what is passed back, and
without its assumptions on where the offloaded values stand; their dynamic program, which those
allow, is not implemented here.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from time import monotonic

from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import Step
from tinyckpt.planner.exact.astar_bound import NO_COPY, Front, fronts
from tinyckpt.planner.exact.offload_state_space import MoveKind, Places, Transition
from tinyckpt.planner.exact.reduced_graph import members
from tinyckpt.planner.exact.stage_astar import UNREACHABLE, SearchLimitError
from tinyckpt.planner.offload.link import Link

OFFLOAD_SCOPE = "schedules that evaluate backward operators once and move no results"
WIDTH = 6  # moments in the same places, at first: finds the best way in most cases, proves nothing
ALL_VALUES = -1  # the set of all values
Found = tuple[int, list[Transition]]  # a makespan, and the moves to it
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
        may_leave: the values whose copies to the host may be handed over now.
    """

    device: int
    host: int
    now: int = 0
    out: int = 0
    back: int = 0
    leaving: Ends = ()
    arriving: Ends = ()
    may_leave: int = 0


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
        self.places = Places(graph, costs, link, budget, host_budget)
        self.budget, self.size = budget, self.places.size
        self.is_shared = link.engines == 1
        movable = members(self.places.movable)
        self.are_alike = len({self.size[data] for data in movable}) < 2
        self.has_room = self.places.weight(self.places.movable) <= host_budget
        self.remaining: dict[tuple[int, int], Front] = {}
        self.states, self.most, self.deadline = 0, inf, inf
        self.best: Found | None = None

    def cheapest(
        self, states: float = inf, deadline: float = inf
    ) -> tuple[Fraction, list[Step]] | None:
        """Return the least makespan and the steps to it, or None if nothing is within the budgets.

        Args:
            states: how many may be looked at, and how many places before.
            deadline: by ``time.monotonic``.

        Raises:
            SearchLimitError: if states or time do not suffice; ``steps`` are the best by then.
        """
        self.remaining = fronts(self.places, states, deadline)
        self.states, self.most, self.deadline = 0, states, deadline
        least = self.estimate(Moment(0, 0))
        if least == UNREACHABLE:
            return None
        self.best = self.found(WIDTH, UNREACHABLE)
        if self.best is None:  # what was left out may have been the only way
            self.best = self.found(inf, UNREACHABLE)
            assert self.best is not None, "copies end, so what the estimate goes by is a way"
        elif self.best[0] > least:
            self.best = self.found(inf, self.best[0]) or self.best
        return Fraction(self.best[0], self.places.ticks), self.steps()

    def steps(self) -> list[Step]:
        """Return the best steps that have been found, none if there are none."""
        moves = self.best[1] if self.best else []
        return [step for move in moves for step in move.steps()]

    def found(self, width: float, most_ticks: int) -> Found | None:
        """Return the least makespan below a bound and the moves to it, or None if there is none.

        Args:
            width: how many moments are looked at of those in the same places; if not all, what is
                found is a way, and need not be the best one.
            most_ticks: in ticks.
        """
        known: list[tuple[Moment, int, Transition | None]] = [(Moment(0, 0), -1, None)]
        best: dict[tuple[int, int], list[int]] = {(0, 0): [0]}
        beaten: set[int] = set()  # by something that came up later, and comes no later
        heap = [(0, 0, 0)]
        while heap:
            place = heapq.heappop(heap)[2]
            moment = known[place][0]
            if place in beaten:
                continue
            if not self.places.goal & ~moment.device:
                return moment.now, walked(known, place)
            self.states += 1
            if self.states > self.most or monotonic() > self.deadline:
                raise SearchLimitError
            for after, move in self.moves(moment):
                estimate = self.estimate(after)
                if estimate >= most_ticks:
                    continue
                others = best.setdefault((after.device, after.host), [])
                if len(others) >= width:
                    continue
                if any(self.comes_no_later(known[other][0], after) for other in others):
                    continue
                worse = [o for o in others if self.comes_no_later(after, known[o][0])]
                if worse:
                    beaten.update(worse)
                    others[:] = [other for other in others if other not in beaten]
                others.append(len(known))
                heapq.heappush(heap, (estimate, -after.now, len(known)))
                known.append((after, place, move))
        return None

    def estimate(self, moment: Moment) -> int:
        """Return a makespan that no way through a moment is below."""
        front = self.remaining.get((moment.device, moment.host))
        if front is None:  # no way on from there, or something was fetched in vain
            return UNREACHABLE
        wait = max(0, moment.back - moment.now)
        return moment.now + min(max(c, w + wait) if w != NO_COPY else c for c, w in front)

    def comes_no_later(self, one: Moment, other: Moment) -> bool:
        """Whether nothing of one moment comes later than the same of another, in equal places."""
        now = other.now
        if one.now > now or one.out > other.out or one.back > other.back:
            return False
        if other.may_leave & ~one.may_leave:
            return False
        if one.arriving:
            ends = dict(other.arriving)
            if any(end > max(ends.get(data, 0), now) for data, end in one.arriving):
                return False
        if not one.leaving:
            return True
        if not self.is_shared:  # with one engine whatever comes back has left before
            ends, line = dict(other.leaving), max(now, other.back)
            if any(end > max(ends.get(data, 0), line) for data, end in one.leaving):
                return False
        moments = [now, *(end for _, end in other.leaving if end > now)]
        return all(self.held(one.leaving, at) <= self.held(other.leaving, at) for at in moments)

    def held(self, leaving: Ends, moment: int) -> int:
        """Return the bytes that copies to the host still hold after some moment."""
        return sum(self.size[data] for data, end in leaving if end > moment)

    def moves(self, moment: Moment) -> Iterator[tuple[Moment, Transition]]:
        """Yield what may follow, and how."""
        arriving = 0
        for data, _ in moment.arriving:
            arriving |= 1 << data
        for move in self.places.moves(moment.device, moment.host, arriving):
            if move.kind is MoveKind.EVALUATE:
                yield self.evaluated(moment, move), move
            elif move.kind is MoveKind.FETCH:
                yield self.fetched(moment, move), move
            elif moment.may_leave >> move.which & 1:
                yield self.offloaded(moment, move), move

    def offloaded(self, moment: Moment, move: Transition) -> Moment:
        """Return the moment after a copy to the host has been handed over."""
        now, data = moment.now, move.which
        end = max(now, moment.out) + self.places.lasts[data]
        back = end if self.is_shared else moment.back
        leaving = with_end(moment.leaving, data, end, now)
        may_leave = ALL_VALUES
        if self.has_room and self.is_shared and self.are_alike:
            may_leave = moment.may_leave & -(2 << data)
        return Moment(move.device, move.host, now, end, back, leaving, moment.arriving, may_leave)

    def fetched(self, moment: Moment, move: Transition) -> Moment:
        """Return the moment after a copy back has been handed over; there is room in the end.

        With a line for each direction it is all the same whether what leaves is handed over before
        what comes back, or after; but for a place on the host, which it gives up.
        """
        now, data = moment.now, move.which
        begin = max([now, moment.back, *(end for left, end in moment.leaving if left == data)])
        begin = self.room_at(begin, moment.leaving, self.places.weight(move.device))
        end = begin + self.places.lasts[data]
        out = end if self.is_shared else moment.out
        may_leave = 0 if self.has_room and not self.is_shared else ALL_VALUES
        arriving = with_end(moment.arriving, data, end, now)
        return Moment(move.device, move.host, now, out, end, moment.leaving, arriving, may_leave)

    def evaluated(self, moment: Moment, move: Transition) -> Moment:
        """Return the moment after an evaluation; there is room in the end."""
        operator = move.which
        reads, makes = self.places.reads[operator], self.places.makes[operator]
        arrivals = [end for data, end in moment.arriving if reads >> data & 1]
        taken = self.places.weight(move.device | move.dead) + self.places.workspace[operator]
        begin = self.room_at(max([moment.now, *arrivals]), moment.leaving, taken)
        now = begin + self.places.cost[operator]
        return Moment(
            move.device,
            move.host,
            now,
            max(moment.out, now),
            max(moment.back, now),
            tuple(entry for entry in moment.leaving if entry[1] > now),
            tuple(entry for entry in moment.arriving if entry[1] > now),
            reads | makes if self.has_room else ALL_VALUES,
        )

    def room_at(self, begin: int, leaving: Ends, taken: int) -> int:
        """Return when so much of the copies to the host has ended that there is room."""
        if taken + self.held(leaving, begin) <= self.budget:
            return begin
        ends = sorted(end for _, end in leaving if end > begin)
        return next(end for end in ends if taken + self.held(leaving, end) <= self.budget)


def with_end(ends: Ends, data: int, end: int, now: int) -> Ends:
    """Return the ends with one more, unless it is over."""
    return tuple(sorted([*ends, (data, end)])) if end > now else ends


def walked(known: list[tuple[Moment, int, Transition | None]], place: int) -> list[Transition]:
    """Return the moves to a moment."""
    moves: list[Transition] = []
    while (move := known[place][2]) is not None:
        moves.append(move)
        place = known[place][1]
    return moves[::-1]
