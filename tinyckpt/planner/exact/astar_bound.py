"""Admissible A* heuristic for offloading: lower bound on the remaining makespan of a search state.

Relaxation: copies to the host free their memory at once. Then all that remains of the link is one
queue: every path from a placement (which values are on the device, which on the host) to the
results takes some compute time and some link time, and waiting reduces neither. The Pareto front of
the two is found for all placements at once, by a backward search from the results, the cheapest
first.

A point (c, w) of a front (compute time, link time) says: if the link is free after x ticks, the
rest takes max(c, x + w) ticks at least. Backward steps: before an evaluation of duration a, copies
handed over after the evaluation cannot run during it, so c becomes max(c, w) + a. Before a fetch,
the fetched value is read after it has arrived, and some evaluations follow from that in any case:
the tail. Before a copy to the host, with one engine the link has more to do; with two engines this
queue is that of the copies back, and has not.
"""

from __future__ import annotations

import heapq
from math import inf
from time import monotonic

from tinyckpt.planner.exact.offload_state_space import MoveKind, OffloadStateSpace
from tinyckpt.planner.exact.reduced_graph import members
from tinyckpt.planner.exact.stage_astar import SearchLimitError

NO_COPY = -1  # w of a path without copies; it need not wait for the link
PLACEMENTS_PER_CLOCK_CHECK = 256  # amortises the clock call

Front = list[tuple[int, int]]  # c ascends, w descends
Origin = tuple[tuple[int, int], MoveKind, int]  # placement before a transition, and the transition


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
        if count % PLACEMENTS_PER_CLOCK_CHECK == 0 and monotonic() > deadline:
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
        if len(before) > most or (
            count % PLACEMENTS_PER_CLOCK_CHECK == 0 and monotonic() > deadline
        ):
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
