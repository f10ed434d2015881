"""A* search for a schedule of least makespan: keep, recompute or offload each value.

Three parts, each under its heading: the state space (placements of values, and the steps between
them), the admissible heuristic (a backward search over all placements), and the search (placements
with times). A state is a placement, that is which values are on the device and which on the host,
together with the times at which all running copies end, as ``offload.simulate`` times them.
Dominance: of two states with the same placement, one is pruned if none of its times is earlier; all
times are maxima of sums, so whatever follows is no earlier either.

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
from enum import Enum, auto
from fractions import Fraction
from itertools import combinations
from math import inf, lcm
from time import monotonic
from typing import NamedTuple

from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph, producer_of
from tinyckpt.core.schedule import Compute, Fetch, Free, Offload, Step
from tinyckpt.planner.exact.reduced_graph import as_set, members
from tinyckpt.planner.exact.stage_astar import UNREACHABLE, SearchLimitError
from tinyckpt.planner.model.link import Link
from tinyckpt.planner.model.lower_bounds import needed_operators

OFFLOAD_SCOPE = "schedules that evaluate backward operators once and move no results"
# Beam width of the first search, in states per placement: in most cases its makespan is the
# optimum, without proof. Doubled: it finds the optimum a little more often, in twice the time.
STATES_PER_PLACEMENT = 6
# Placements between two checks of the deadline; doubled: fewer checks, a later stop.
CLOCK_EVERY_PLACEMENTS = 256
NO_COPY = -1  # w of a path without copies; it need not wait for the link
ALL_VALUES = -1  # the set of all values
Front = list[tuple[int, int]]  # c ascends, w descends
Origin = tuple[tuple[int, int], "MoveKind", int]  # placement before a transition, the transition
Found = tuple[int, list["Transition"]]  # a makespan, and the transitions to it
Ends = tuple[tuple[int, int], ...]  # pairs of a value and the end of its copy, by value


def is_searched(graph: Graph, costs: Costs) -> bool:
    """Whether the search supports a graph: bytes, and no views, updates or ``once``."""
    views = any(node.view_of is not None for node in graph.data)
    return not (views or graph.once or graph.updates) and costs.memory_unit == "bytes"


# --------------------------------------------------------------------------------------------------
# The state space: which values are on the device and on the host, and the transitions.
#
# A placement is a pair of bit sets. Transitions are the steps of schedules: an evaluation, a copy
# to the host, a copy back. Each also frees values: minimal sets of forward values, to make room for
# what takes memory, or to keep it from waiting for copies; and values with no readers left. So no
# backward operator is ever evaluated a second time. Results are not moved, but are recomputed if
# that helps. The transitions depend on the placement alone, and are memoised: the search asks for
# them with many different times, and the heuristic traverses them in reverse.


class MoveKind(Enum):
    """The kind of a transition, besides frees."""

    OFFLOAD = auto()
    FETCH = auto()
    EVALUATE = auto()


class Transition(NamedTuple):
    """A transition, and the placement after it.

    Attributes:
        kind: offload, fetch or evaluate.
        which: the value, or the operator.
        freed: values that are freed before it.
        device, host: sets of values: the placement after it.
        dead: values that are freed after it, since nothing reads them any more.
    """

    kind: MoveKind
    which: int
    freed: int
    device: int
    host: int
    dead: int = 0

    def steps(self) -> list[Step]:
        """Return the transition as steps of a schedule."""
        makers: dict[MoveKind, type[Offload | Fetch | Compute]]
        makers = {MoveKind.OFFLOAD: Offload, MoveKind.FETCH: Fetch, MoveKind.EVALUATE: Compute}
        step = makers[self.kind](self.which)
        return [*map(Free, members(self.freed)), step, *map(Free, members(self.dead))]


class OffloadStateSpace:
    """A graph as a search space: values and their sets as integers, times in ticks.

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
        self.forward = as_set(
            node.id
            for node in graph.data
            if node.producer is not None and node.producer < graph.forward_count
        )
        self.goal = as_set(d for d in graph.outputs if not graph.data[d].is_source)
        produced = as_set(node.id for node in graph.data if node.producer is not None)
        self.movable = produced & ~self.goal if link.bandwidth > 0 else 0
        lasts = {d: link.duration(made[d]) for d in members(self.movable)}
        times = [Fraction(cost) for cost in costs.operators]
        self.ticks = lcm(*(time.denominator for time in [*times, *lasts.values(), Fraction(1)]))
        self.cost = [int(time * self.ticks) for time in times]
        self.lasts = {data: int(time * self.ticks) for data, time in lasts.items()}
        self.reads = [
            as_set(d for d in o.inputs if not graph.data[d].is_source) for o in graph.operators
        ]
        self.makes = [as_set(o.outputs) for o in graph.operators]
        self.operators = needed_operators(graph)
        self.readers = {
            data: [o for o in self.operators if self.reads[o] >> data & 1]
            for data in range(len(graph.data))
        }
        self.known_useful: dict[int, int] = {}
        self.known_moves: dict[tuple[int, int, int], tuple[Transition, ...]] = {}
        self.weights: dict[int, int] = {}

    def moves(self, device: int, host: int, arriving: int = 0) -> tuple[Transition, ...]:
        """Return the transitions from a placement, memoised.

        Args:
            device, host: the placement.
            arriving: values on the device whose copies have not ended, and which stay until then.
        """
        key = device, host, arriving
        if key not in self.known_moves:
            self.known_moves[key] = tuple(self.found_moves(device, host, arriving))
        return self.known_moves[key]

    def found_moves(self, device: int, host: int, arriving: int) -> Iterator[Transition]:
        """Enumerate the transitions from a placement."""
        useful = self.useful(device | host)
        for data in members(device & self.movable & useful & ~arriving):
            if self.weight(host | 1 << data) <= self.host_budget:
                yield Transition(MoveKind.OFFLOAD, data, 0, device & ~(1 << data), host | 1 << data)
        for data in members(host & useful):
            for freed in self.eviction_sets(device, host, 1 << data, 0, arriving):
                there = device & ~freed | 1 << data
                yield Transition(MoveKind.FETCH, data, freed, there, host & ~(1 << data))
        for operator in self.operators:
            reads, makes = self.reads[operator], self.makes[operator]
            if reads & ~device or makes & (host | arriving) or not makes & useful & ~device:
                continue
            stale = makes & device  # outputs still resident are freed first
            fixed = arriving | reads | stale
            for freed in self.eviction_sets(device, host, makes, self.workspace[operator], fixed):
                there = device & ~freed | makes
                dead = there & ~self.useful(there | host) & ~(arriving & ~reads)
                yield Transition(
                    MoveKind.EVALUATE, operator, freed | stale, there & ~dead, host, dead
                )

    def useful(self, present: int) -> int:
        """Return the values that may still be read, or are results, given the values present.

        Inputs of a forward operator may be read as long as its outputs may: it can be evaluated
        again.
        """
        if present not in self.known_useful:
            useful, seen = self.goal, set()
            todo = members(self.goal & (self.forward | ~present))
            while todo:
                operator = producer_of(self.graph, todo.pop())
                if operator in seen:
                    continue
                seen.add(operator)
                useful |= self.reads[operator]
                todo += members(self.reads[operator] & (self.forward | ~present))
            self.known_useful[present] = useful
        return self.known_useful[present]

    def eviction_sets(
        self, device: int, host: int, more: int, workspace: int, fixed: int
    ) -> Iterator[int]:
        """Enumerate minimal sets of values to free so that there is room in the end, or at once.

        Copies to the host may still occupy the memory of values on the host: up to that much more
        can be worth freeing, and no value beyond.
        """
        excess = self.weight(device | more) + workspace - self.budget
        most = max(0, excess) + self.weight(host)
        candidates = members(device & self.forward & ~fixed)
        for count in range(len(candidates) + 1):
            for chosen in combinations(candidates, count):
                freed = as_set(chosen)
                weight = self.weight(freed)
                least = min((self.size[data] for data in chosen), default=0)
                if weight >= excess and (not freed or weight - least < most):
                    yield freed

    def weight(self, values: int) -> int:
        """Return the memory of a set of values, memoised."""
        if values not in self.weights:
            self.weights[values] = sum(self.size[data] for data in members(values))
        return self.weights[values]


# --------------------------------------------------------------------------------------------------
# The admissible heuristic: a lower bound on the remaining makespan of a placement.
#
# Relaxation: copies to the host free their memory at once. Then all that remains of the link is one
# queue: every path from a placement to the results takes some compute time and some link time, and
# waiting reduces neither. The Pareto front of the two is found for all placements at once, by a
# backward search from the results, the cheapest first.
#
# A point (c, w) of a front (compute time, link time) says: if the link is free after x ticks, the
# rest takes max(c, x + w) ticks at least. Backward steps: before an evaluation of duration a,
# copies handed over after the evaluation cannot run during it, so c becomes max(c, w) + a. Before a
# fetch, the fetched value is read after it has arrived, and some evaluations follow from that in
# any case: the tail. Before a copy to the host, with one engine the link has more to do; with two
# engines this queue is that of the copies back, and has not.


def fronts(
    space: OffloadStateSpace, most: float = inf, deadline: float = inf
) -> dict[tuple[int, int], Front]:
    """Return the Pareto front of every placement that is reachable and can reach the results.

    Args:
        space: the state space of the graph.
        most: limit of the number of placements visited.
        deadline: by ``time.monotonic``.

    Raises:
        SearchLimitError: if placements or time do not suffice.
    """
    before, goals = reached(space, most, deadline)
    tail = tail_times(space)
    is_shared = space.link.engines == 1
    found: dict[tuple[int, int], Front] = {}
    heap = [(0, NO_COPY, goal) for goal in goals]
    count = 0
    while heap:
        count += 1
        if count % CLOCK_EVERY_PLACEMENTS == 0 and monotonic() > deadline:
            raise SearchLimitError
        computing, copying, key = heapq.heappop(heap)
        front = found.setdefault(key, [])
        if front and front[-1][1] <= copying:
            continue
        front.append((computing, copying))
        for origin, kind, which in before[key]:
            if kind is MoveKind.EVALUATE:
                point = max(computing, copying) + space.cost[which], copying
            elif kind is MoveKind.FETCH:
                point = computing, space.lasts[which] + max(copying, tail[which])
            elif copying == NO_COPY:
                continue  # a value that is never fetched need not be offloaded
            else:
                point = computing, copying + space.lasts[which] * is_shared
            earlier = found.get(origin)
            if not earlier or earlier[-1][1] > point[1]:
                heapq.heappush(heap, (*point, origin))
    return found


def reached(
    space: OffloadStateSpace, most: float, deadline: float
) -> tuple[dict[tuple[int, int], list[Origin]], list[tuple[int, int]]]:
    """Explore all placements: return the predecessors of each, and the goal placements."""
    start = 0, 0
    before: dict[tuple[int, int], list[Origin]] = {start: []}
    goals: list[tuple[int, int]] = []
    todo, count = [start], 0
    while todo:
        key = todo.pop()
        if not space.goal & ~key[0]:
            goals.append(key)
            continue
        count += 1
        if len(before) > most or (count % CLOCK_EVERY_PLACEMENTS == 0 and monotonic() > deadline):
            raise SearchLimitError
        for move in space.moves(*key):
            after = move.device, move.host
            if after not in before:
                before[after] = []
                todo.append(after)
            before[after].append((key, move.kind, move.which))
    return before, goals


def tail_times(space: OffloadStateSpace) -> dict[int, int]:
    """Return for each movable value the least compute time that follows once it is read.

    A backward operator is evaluated once, and so are all its descendants after it. The output of a
    forward operator is read again unless it is a result: no other reason to evaluate it exists.
    """
    after: dict[int, int] = {}
    least: dict[int, int] = {}
    for operator in reversed(space.operators):
        readers = [r for data in members(space.makes[operator]) for r in space.readers[data]]
        after[operator] = 0
        for reader in readers:
            after[operator] |= after[reader] | 1 << reader
        if space.makes[operator] & space.goal and operator < space.graph.forward_count:
            follows = 0
        elif operator < space.graph.forward_count:
            follows = min((least[reader] for reader in readers), default=0)
        else:
            follows = sum(space.cost[other] for other in members(after[operator]))
        least[operator] = space.cost[operator] + follows
    return {
        data: min((least[reader] for reader in space.readers[data]), default=0)
        for data in members(space.movable)
    }


# --------------------------------------------------------------------------------------------------
# The search: placements with times, ordered by the heuristic, pruned by dominance.


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
            SearchLimitError: if states or time do not suffice; ``steps`` are the best by then. Or
                if times have no common unit in which a makespan is less than UNREACHABLE.
        """
        space = self.space
        if len(space.cost) * sum(space.cost) + 2 * sum(space.lasts.values()) >= UNREACHABLE:
            raise SearchLimitError
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
