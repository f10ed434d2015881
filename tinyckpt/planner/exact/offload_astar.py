"""A* search for a schedule of least makespan: keep, recompute or offload each value.

A state is a placement (which values are on the device and which on the host) together with the
times at which all running copies end. Transitions are the steps of schedules
(``offload_state_space``), timed as ``offload.simulate`` times them. The admissible heuristic
relaxes copies to the host to free their memory at once (``astar_bound``). Dominance: of two states
with the same placement, one is pruned if none of its times is earlier; all times are maxima of
sums, so whatever follows is no earlier either.

A first, incomplete search keeps only a few states per placement (a beam). Its makespan, in most
cases the optimum, is the upper bound of the search that proves it, which visits no state that takes
as long.

The class of schedules: backward operators are evaluated once, and results are not moved; cotangents
may be moved, to make room for a recomputation. Within it nothing is left out but what cannot help:

- a value is freed where memory is wanted or once it has no more readers, and a fetched value is not
  freed before it has arrived;
- a copy to the host is handed over right after the last evaluation that made or read the value, or
  right behind another in the queue of its engine: handed over earlier, it ends no later, and
  neither does anything that waits for it. Only where the host has no room for all that can be moved
  may it have to wait. If all values have the same size, they may leave one engine in any order:
  there, a copy is right behind a copy back, or in the order of the values' ids (symmetry breaking).

Source: the class is that of O. Beaumont, L. Eyraud-Dubois and A. Shilova, "Efficient combination of
rematerialization and offloading for training DNNs", NeurIPS 2021, with cotangents, and without its
assumptions on where the offloaded values stand; their dynamic program, which those allow, is not
implemented here. The search is A* (Hart, Nilsson and Raphael 1968).
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
from tinyckpt.planner.exact.offload_state_space import MoveKind, OffloadStateSpace, Transition
from tinyckpt.planner.exact.reduced_graph import members
from tinyckpt.planner.exact.stage_astar import UNREACHABLE, SearchLimitError
from tinyckpt.planner.offload.link import Link

OFFLOAD_SCOPE = "schedules that evaluate backward operators once and move no results"
# Beam width of the first search: in most cases its makespan is the optimum, without proof.
STATES_PER_PLACEMENT = 6
ALL_VALUES = -1  # the set of all values
Found = tuple[int, list[Transition]]  # a makespan, and the transitions to it
Ends = tuple[tuple[int, int], ...]  # pairs of a value and the end of its copy, by value


@dataclass(frozen=True, slots=True)
class TimedState:
    """A search state: the placement, and all times, as soon as the last evaluation has ended.

    Times are in ticks.

    Attributes:
        device, host: sets of values.
        now: the current time.
        out, back: when the queue of each direction is free.
        leaving: values being copied to the host, whose memory is still taken.
        arriving: values being copied to the device.
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
    """Whether the search supports a graph: bytes, and no views, updates or ``once``."""
    views = any(node.view_of is not None for node in graph.data)
    return not (views or graph.once or graph.updates) and costs.memory_unit == "bytes"


class OffloadSearch:
    """An A* search for the least makespan to the results of a graph.

    Args:
        graph, costs: what to evaluate; see ``is_searched``.
        link: to the host.
        budget, host_budget: bytes.
    """

    def __init__(
        self, graph: Graph, costs: Costs, link: Link, budget: int, host_budget: float = inf
    ) -> None:
        self.space = OffloadStateSpace(graph, costs, link, budget, host_budget)
        self.budget, self.size = budget, self.space.size
        self.is_shared = link.engines == 1
        movable = members(self.space.movable)
        self.same_size = len({self.size[data] for data in movable}) < 2
        self.has_room = self.space.weight(self.space.movable) <= host_budget
        self.remaining: dict[tuple[int, int], Front] = {}
        self.states, self.most, self.deadline = 0, inf, inf
        self.best: Found | None = None

    def cheapest(
        self, states: float = inf, deadline: float = inf
    ) -> tuple[Fraction, list[Step]] | None:
        """Return the least makespan and its steps, or None if no schedule is within the budgets.

        Args:
            states: limit of the number of states visited, and of placements before.
            deadline: by ``time.monotonic``.

        Raises:
            SearchLimitError: if states or time do not suffice; ``steps`` are the best by then.
        """
        self.remaining = fronts(self.space, states, deadline)
        self.states, self.most, self.deadline = 0, states, deadline
        least = self.estimate(TimedState(0, 0))
        if least == UNREACHABLE:
            return None
        self.best = self.found(STATES_PER_PLACEMENT, UNREACHABLE)
        if self.best is None:  # the beam may have pruned the only path
            self.best = self.found(inf, UNREACHABLE)
            assert self.best is not None, (
                "copies end, so the path that the estimate follows is feasible"
            )
        elif self.best[0] > least:
            self.best = self.found(inf, self.best[0]) or self.best
        return Fraction(self.best[0], self.space.ticks), self.steps()

    def steps(self) -> list[Step]:
        """Return the steps of the incumbent; none if there is no incumbent."""
        moves = self.best[1] if self.best else []
        return [step for move in moves for step in move.steps()]

    def found(self, width: float, most_ticks: int) -> Found | None:
        """Run A*: return the least makespan below a bound and its transitions, or None.

        Args:
            width: states kept per placement; if not infinite, the result is feasible, and need not
                be optimal.
            most_ticks: the upper bound, in ticks.
        """
        known: list[tuple[TimedState, int, Transition | None]] = [(TimedState(0, 0), -1, None)]
        best: dict[tuple[int, int], list[int]] = {(0, 0): [0]}
        dominated: set[int] = set()  # by a state that was found later and dominates it
        heap = [(0, 0, 0)]
        while heap:
            place = heapq.heappop(heap)[2]
            state = known[place][0]
            if place in dominated:
                continue
            if not self.space.goal & ~state.device:
                return state.now, backtrack(known, place)
            self.states += 1
            if self.states > self.most or monotonic() > self.deadline:
                raise SearchLimitError
            for after, move in self.moves(state):
                estimate = self.estimate(after)
                if estimate >= most_ticks:
                    continue
                others = best.setdefault((after.device, after.host), [])
                if len(others) >= width:
                    continue
                if any(self.dominates(known[other][0], after) for other in others):
                    continue
                worse = [o for o in others if self.dominates(after, known[o][0])]
                if worse:
                    dominated.update(worse)
                    others[:] = [other for other in others if other not in dominated]
                others.append(len(known))
                heapq.heappush(heap, (estimate, -after.now, len(known)))
                known.append((after, place, move))
        return None

    def estimate(self, state: TimedState) -> int:
        """Return a lower bound on the makespan of every path through a state."""
        front = self.remaining.get((state.device, state.host))
        if front is None:  # a dead end, or a useless fetch
            return UNREACHABLE
        wait = max(0, state.back - state.now)
        return state.now + min(max(c, w + wait) if w != NO_COPY else c for c, w in front)

    def dominates(self, one: TimedState, other: TimedState) -> bool:
        """Whether one state dominates another of the same placement: none of its times is later."""
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
        if not self.is_shared:  # with one engine, a fetch implies that the offload ended
            ends, line = dict(other.leaving), max(now, other.back)
            if any(end > max(ends.get(data, 0), line) for data, end in one.leaving):
                return False
        times = [now, *(end for _, end in other.leaving if end > now)]
        return all(self.held(one.leaving, at) <= self.held(other.leaving, at) for at in times)

    def held(self, leaving: Ends, time: int) -> int:
        """Return the bytes that copies to the host still occupy after a given time."""
        return sum(self.size[data] for data, end in leaving if end > time)

    def moves(self, state: TimedState) -> Iterator[tuple[TimedState, Transition]]:
        """Yield the successors of a state, and the transitions to them."""
        arriving = 0
        for data, _ in state.arriving:
            arriving |= 1 << data
        for move in self.space.moves(state.device, state.host, arriving):
            if move.kind is MoveKind.EVALUATE:
                yield self.evaluated(state, move), move
            elif move.kind is MoveKind.FETCH:
                yield self.fetched(state, move), move
            elif state.may_leave >> move.which & 1:
                yield self.offloaded(state, move), move

    def offloaded(self, state: TimedState, move: Transition) -> TimedState:
        """Return the state after a copy to the host has been handed over."""
        now, data = state.now, move.which
        end = max(now, state.out) + self.space.lasts[data]
        back = end if self.is_shared else state.back
        leaving = with_end(state.leaving, data, end, now)
        may_leave = ALL_VALUES
        if self.has_room and self.is_shared and self.same_size:
            may_leave = state.may_leave & -(2 << data)
        return TimedState(
            move.device, move.host, now, end, back, leaving, state.arriving, may_leave
        )

    def fetched(self, state: TimedState, move: Transition) -> TimedState:
        """Return the state after a copy back has been handed over; there is room in the end.

        With a queue for each direction the order in which an offload and a fetch are handed over
        does not matter, except for the room on the host, which the fetch frees.
        """
        now, data = state.now, move.which
        begin = max([now, state.back, *(end for left, end in state.leaving if left == data)])
        begin = self.room_at(begin, state.leaving, self.space.weight(move.device))
        end = begin + self.space.lasts[data]
        out = end if self.is_shared else state.out
        may_leave = 0 if self.has_room and not self.is_shared else ALL_VALUES
        arriving = with_end(state.arriving, data, end, now)
        return TimedState(move.device, move.host, now, out, end, state.leaving, arriving, may_leave)

    def evaluated(self, state: TimedState, move: Transition) -> TimedState:
        """Return the state after an evaluation; there is room in the end."""
        operator = move.which
        reads, makes = self.space.reads[operator], self.space.makes[operator]
        arrivals = [end for data, end in state.arriving if reads >> data & 1]
        taken = self.space.weight(move.device | move.dead) + self.space.workspace[operator]
        begin = self.room_at(max([state.now, *arrivals]), state.leaving, taken)
        now = begin + self.space.cost[operator]
        return TimedState(
            move.device,
            move.host,
            now,
            max(state.out, now),
            max(state.back, now),
            tuple(entry for entry in state.leaving if entry[1] > now),
            tuple(entry for entry in state.arriving if entry[1] > now),
            reads | makes if self.has_room else ALL_VALUES,
        )

    def room_at(self, begin: int, leaving: Ends, taken: int) -> int:
        """Return the time by which enough copies to the host have ended for there to be room."""
        if taken + self.held(leaving, begin) <= self.budget:
            return begin
        ends = sorted(end for _, end in leaving if end > begin)
        return next(end for end in ends if taken + self.held(leaving, end) <= self.budget)


def with_end(ends: Ends, data: int, end: int, now: int) -> Ends:
    """Return the ends with one more, unless it is already past."""
    return tuple(sorted([*ends, (data, end)])) if end > now else ends


def backtrack(
    known: list[tuple[TimedState, int, Transition | None]], place: int
) -> list[Transition]:
    """Backtrack: return the transitions to a state."""
    moves: list[Transition] = []
    while (move := known[place][2]) is not None:
        moves.append(move)
        place = known[place][1]
    return moves[::-1]
