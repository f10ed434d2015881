"""What remains at least from where values are: the estimate of the search with a host.

Let copies to the host give their memory up at once. Then what is left of the link is one line of
work: of all ways from some places to the results, each takes some time to compute and some time of
the link, neither of which is gained by waiting. Those of which nothing else is better in both are a
front, and all fronts are found at once by going back from the results, the cheapest first.

A point (c, w) of a front says: if the link is free in x, then it takes max(c, x + w) at least.
Going back, before an evaluation of a: nothing is copied by what is handed over after it while it
lasts, so c becomes max(c, w) + a. Before a fetch: what is fetched is read after it has arrived, and
something follows from that, whatever else is done: the tail. Before a copy to the host: with one
engine the link has more to do; with two this line is that of the copies back, and has not.
"""

from __future__ import annotations

import heapq
from math import inf
from time import monotonic

from tinyckpt.planner.exact.offload_state_space import MoveKind, Places
from tinyckpt.planner.exact.reduced_graph import members
from tinyckpt.planner.exact.stage_astar import SearchLimitError

NO_COPY = -1  # w of a way without copies; it need not wait for the link
CLOCK_EVERY_PLACES = 256  # places between two looks at the clock

Front = list[tuple[int, int]]  # c ascends, w descends
Origin = tuple[tuple[int, int], MoveKind, int]  # device and host before a move, and the move


def fronts(
    places: Places, most: float = inf, deadline: float = inf
) -> dict[tuple[int, int], Front]:
    """Return the front of each device and host that moves lead to, if the results can be reached.

    Args:
        places: the graph.
        most: how many places may be looked at.
        deadline: by ``time.monotonic``.

    Raises:
        SearchLimitError: if places or time do not suffice.
    """
    before, goals = reached(places, most, deadline)
    tail = tails(places)
    is_shared = places.link.engines == 1
    found: dict[tuple[int, int], Front] = {}
    heap = [(0, NO_COPY, goal) for goal in goals]
    count = 0
    while heap:
        count += 1
        if count % CLOCK_EVERY_PLACES == 0 and monotonic() > deadline:
            raise SearchLimitError
        computing, copying, key = heapq.heappop(heap)
        front = found.setdefault(key, [])
        if front and front[-1][1] <= copying:
            continue
        front.append((computing, copying))
        for origin, kind, which in before[key]:
            if kind is MoveKind.EVALUATE:
                point = max(computing, copying) + places.cost[which], copying
            elif kind is MoveKind.FETCH:
                point = computing, places.lasts[which] + max(copying, tail[which])
            elif copying == NO_COPY:
                continue  # what never comes back need not be copied
            else:
                point = computing, copying + places.lasts[which] * is_shared
            earlier = found.get(origin)
            if not earlier or earlier[-1][1] > point[1]:
                heapq.heappush(heap, (*point, origin))
    return found


def reached(
    places: Places, most: float, deadline: float
) -> tuple[dict[tuple[int, int], list[Origin]], list[tuple[int, int]]]:
    """Return where each device and host can be come to from, and those with all results."""
    start = 0, 0
    before: dict[tuple[int, int], list[Origin]] = {start: []}
    goals: list[tuple[int, int]] = []
    todo, count = [start], 0
    while todo:
        key = todo.pop()
        if not places.goal & ~key[0]:
            goals.append(key)
            continue
        count += 1
        if len(before) > most or (count % CLOCK_EVERY_PLACES == 0 and monotonic() > deadline):
            raise SearchLimitError
        for move in places.moves(*key):
            after = move.device, move.host
            if after not in before:
                before[after] = []
                todo.append(after)
            before[after].append((key, move.kind, move.which))
    return before, goals


def tails(places: Places) -> dict[int, int]:
    """Return for each value that can be moved the least that is evaluated from when it is read.

    A backward operator is evaluated once, and all that depend on it after it. What a forward one
    makes is read again, if it is no result: why else was it evaluated?
    """
    after: dict[int, int] = {}
    least: dict[int, int] = {}
    for operator in reversed(places.operators):
        readers = [r for data in members(places.makes[operator]) for r in places.readers[data]]
        after[operator] = 0
        for reader in readers:
            after[operator] |= after[reader] | 1 << reader
        if places.makes[operator] & places.goal and operator < places.graph.forward_count:
            follows = 0
        elif operator < places.graph.forward_count:
            follows = min((least[reader] for reader in readers), default=0)
        else:
            follows = sum(places.cost[other] for other in members(after[operator]))
        least[operator] = places.cost[operator] + follows
    return {
        data: min((least[reader] for reader in places.readers[data]), default=0)
        for data in members(places.movable)
    }
