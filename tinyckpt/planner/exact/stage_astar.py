"""A* over resident sets: the least cost from one set of resident values to another (pebbling).

The exact cost of a stage, or of the whole problem. A state is the set of resident values. A
transition evaluates an operator, after freeing any minimal set of values that makes room; keeping
more than that is never worse. The admissible heuristic is the cost of all operators certainly
missing: the producers of goal values that are not resident, and so on backwards. It never exceeds
the true cost, so the first time the goal is reached, its cost is the least.

An operator that may be evaluated only once is remembered in the state by a mark: a bit beyond those
of all values, which is never freed.

Source: Hart, Nilsson and Raphael, "A formal basis for the heuristic determination of minimum cost
paths", 1968, doi:10.1109/TSSC.1968.300136. States can be exponentially many, so every search is
capped, and says so by a SearchLimitError rather than by an answer. Views: see ``reduced_graph``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from math import inf
from time import monotonic

from tinyckpt.planner.exact.reduced_graph import Reduced, members

ALL_OPERATORS = -1  # the set of all operators
UNREACHABLE = 1 << 62
# Sets of values to free that are examined per state, on average: the limit on states limits these
# too. Doubled: searches in graphs of many small values go twice as far, in twice the time.
FREES_PER_STATE = 16
# States to decide whether a stage can be left out of a cut. Doubled: stronger cuts, more slowly.
LIFT_STATES = 20_000


class SearchLimitError(Exception):
    """A search was cut short: neither a path nor its absence is proven."""


class StageSearch:
    """An A* search for paths to one goal.

    Args:
        reduced: the reduced graph.
        goal: values to have at the end; others may be resident if there is room.
        only: the operators that may be evaluated.
    """

    def __init__(self, reduced: Reduced, goal: int, only: int = ALL_OPERATORS) -> None:
        self.reduced, self.goal, self.only = reduced, goal, only
        needed = 0
        for data in members(goal):
            producer = reduced.producer[data]
            needed |= reduced.ancestors[producer] | 1 << producer
        self.operators = members(needed & only)
        self.useful = goal
        for operator in self.operators:
            self.useful |= reduced.reads_set[operator]
        self.effort = 0
        # Bit of the mark of each operator that may be evaluated only once; 0 for the others.
        self.values = (1 << len(reduced.data)) - 1
        self.mark = [
            (reduced.once >> operator & 1) << (len(reduced.data) + operator)
            for operator in range(len(reduced.operators))
        ]

    def cheapest(
        self, start: int, bound: int | None, states: int, deadline: float = inf
    ) -> tuple[int, list[int]] | None:
        """Return the least cost and the evaluations, or None if no path costs at most the bound.

        Args:
            start: values resident at the start.
            bound: largest cost of interest; None if any is.
            states: limit of the number of states visited.
            deadline: by ``time.monotonic``.

        Raises:
            SearchLimitError: if states or time do not suffice.
        """
        start &= self.useful
        best, back = {start: 0}, dict[int, tuple[int, int]]()
        heap = [(self.missing(start), 0, start)]
        cost_limit = UNREACHABLE - 1 if bound is None else bound
        self.effort = states * FREES_PER_STATE
        while heap:
            if len(best) > states or self.effort < 0 or monotonic() > deadline:
                raise SearchLimitError
            estimate, negative, resident = heapq.heappop(heap)
            spent = -negative
            if estimate > cost_limit:
                return None
            if spent > best[resident]:
                continue
            if not self.goal & ~resident:
                return spent, backtrack(back, start, resident)
            for operator, after in self.moves(resident):
                cost = spent + self.reduced.cost[operator]
                if cost < best.get(after, UNREACHABLE):
                    best[after], back[after] = cost, (resident, operator)
                    heapq.heappush(heap, (cost + self.missing(after), -cost, after))
        return None

    def missing(self, resident: int) -> int:
        """Return the admissible heuristic: the cost of all evaluations certainly still needed."""
        reduced, total, seen = self.reduced, 0, 0
        wanted = self.goal & ~resident
        while wanted:
            data = wanted & -wanted
            wanted ^= data
            operator = reduced.producer[data.bit_length() - 1]
            if seen >> operator & 1:
                continue
            if not self.only >> operator & 1 or resident & self.mark[operator]:
                return UNREACHABLE
            seen |= 1 << operator
            total += reduced.cost[operator]
            wanted |= reduced.reads_set[operator] & ~resident
        return total

    def moves(self, resident: int) -> Iterator[tuple[int, int]]:
        """Yield the operators that can be evaluated, each with the resident set afterwards."""
        reduced, spent = self.reduced, resident & ~self.values
        resident &= self.values
        for operator in self.operators:
            reads, makes = reduced.reads_set[operator], reduced.makes_set[operator]
            if reads & ~resident or not makes & self.useful & ~resident:
                continue
            mark = self.mark[operator]
            if spent & mark:
                continue
            # Outputs that are still resident are freed first.
            held = resident & ~makes
            over = reduced.weight(held | makes) + reduced.workspace[operator] - reduced.budget
            for left in self.freed(held, reads, over):
                yield operator, (left | makes) & self.useful | spent | mark

    def freed(self, held: int, keep: int, over: int) -> Iterator[int]:
        """Yield the sets left after freeing any minimal set of values that weighs enough."""
        if over <= 0:
            yield held
            return
        reduced = self.reduced
        # A root is freed with its views. Heaviest first: then the last freed one was necessary, so
        # every set is minimal.
        groups = [
            (reduced.weight(group & held), group)
            for data in members(held & ~keep)
            for group in (1 << data | reduced.views.get(data, 0),)
            if not group & keep
        ]
        groups = sorted((group for group in groups if group[0]), reverse=True)
        weight_from = [0] * (len(groups) + 1)
        for index in range(len(groups) - 1, -1, -1):
            weight_from[index] = weight_from[index + 1] + groups[index][0]
        todo = [(0, held, over)]
        while todo:
            self.effort -= 1
            if self.effort < 0:
                raise SearchLimitError
            index, left, missing = todo.pop()
            if missing <= 0:
                yield left
            elif weight_from[index] >= missing:
                group = groups[index][1]
                todo.append((index + 1, left, missing))
                if left & group:
                    freed = reduced.weight(left & group)
                    todo.append((index + 1, left & ~group, missing - freed))


def backtrack(back: dict[int, tuple[int, int]], start: int, end: int) -> list[int]:
    """Backtrack: return the evaluations that lead from start to end."""
    path = []
    while end != start:
        end, operator = back[end]
        path.append(operator)
    return path[::-1]


def lift(
    reduced: Reduced,
    start: int,
    goal: int,
    bound: int | None,
    deadline: float,
    only: int = ALL_OPERATORS,
) -> tuple[int, int]:
    """Strengthen a cut: enlarge its start and shrink its goal as long as the bound holds.

    Args:
        reduced: the reduced graph.
        start, goal: values; to get from the first to the second costs at least the bound.
        bound: a cost, or None if the goal cannot be reached at all.
        deadline: by ``time.monotonic``; the result is as far lifted as possible until then.
        only: the operators that the bound is about.
    """

    def holds(search: StageSearch, start: int) -> bool:
        try:
            cost_limit = None if bound is None else bound - 1
            return search.cheapest(start, cost_limit, LIFT_STATES, deadline) is None
        except SearchLimitError:
            return False

    for data in members(goal):
        smaller = goal & ~(1 << data)
        if holds(StageSearch(reduced, smaller, only), start):
            goal = smaller
    search = StageSearch(reduced, goal, only)
    for data in range(len(reduced.data)):
        larger = start | 1 << data
        if larger != start and not goal >> data & 1 and holds(search, larger):
            start = larger
    return start, goal
