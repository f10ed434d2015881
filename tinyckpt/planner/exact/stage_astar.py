"""The exact cost of one stage: from what is resident to what has to be, by A* over resident sets.

A state is the set of resident values. A move evaluates an operator, with any smallest set of values
freed before it that makes room; to hold more than that is never worse. The estimate is what is
missing for certain: the producers of the goal's values that are not there, and so on backwards. It
never exceeds the true cost, so the first time the goal comes up, its cost is the least.

What was evaluated and may not be again is part of the state, as a mark: a member of the set beyond
all values, which is never freed.

Source: Hart, Nilsson and Raphael, "A formal basis for the heuristic determination of minimum cost
paths", 1968, doi:10.1109/TSSC.1968.300136. States can be exponentially many, so every search is
capped, and says so by a SearchLimitError rather than by an answer. Views: see ``reduced``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from math import inf
from time import monotonic

from tinyckpt.planner.exact.reduced_graph import Reduced, members

EVERYTHING = -1  # the set of all operators
UNREACHABLE = 1 << 62
FREES_PER_STATE = 16  # sets of values to free that are looked at, on average
LIFT_STATES = 20_000


class SearchLimitError(Exception):
    """A search was cut short: neither a way nor its absence is proven."""


class StageSearch:
    """Ways to one goal.

    Args:
        reduced: the problem.
        goal: values to have at the end, and others if there is room.
        only: the operators that may be evaluated.
    """

    def __init__(self, reduced: Reduced, goal: int, only: int = EVERYTHING) -> None:
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
        # The marks of operators that may not be evaluated twice; of the others, none.
        self.values = (1 << len(reduced.data)) - 1
        self.mark = [
            (reduced.once >> operator & 1) << (len(reduced.data) + operator)
            for operator in range(len(reduced.operators))
        ]

    def cheapest(
        self, start: int, bound: int | None, states: int, deadline: float = inf
    ) -> tuple[int, list[int]] | None:
        """Return the least cost and the evaluations, or None if none costs at most the bound.

        Args:
            start: values that are there.
            bound: cost beyond which a way is of no interest; None if any is.
            states: how many may be visited.
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
                return spent, walked(back, start, resident)
            for operator, after in self.moves(resident):
                cost = spent + self.reduced.cost[operator]
                if cost < best.get(after, UNREACHABLE):
                    best[after], back[after] = cost, (resident, operator)
                    heapq.heappush(heap, (cost + self.missing(after), -cost, after))
        return None

    def missing(self, resident: int) -> int:
        """Return what must be paid at least: for all that the goal certainly needs again."""
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
        """Yield operators that can be evaluated and the values that are there afterwards."""
        reduced, spent = self.reduced, resident & ~self.values
        resident &= self.values
        for operator in self.operators:
            reads, makes = reduced.reads_set[operator], reduced.makes_set[operator]
            if reads & ~resident or not makes & self.useful & ~resident:
                continue
            mark = self.mark[operator]
            if spent & mark:
                continue
            # Of several outputs some may be there still: they go first.
            held = resident & ~makes
            over = reduced.weight(held | makes) + reduced.workspace[operator] - reduced.budget
            for left in self.freed(held, reads, over):
                yield operator, (left | makes) & self.useful | spent | mark

    def freed(self, held: int, keep: int, over: int) -> Iterator[int]:
        """Yield what is left after freeing any smallest set of values that weighs enough."""
        if over <= 0:
            yield held
            return
        reduced = self.reduced
        # A root goes with its views. The heaviest first: then the last one freed was needed.
        groups = [
            (reduced.weight(group & held), group)
            for data in members(held & ~keep)
            for group in (1 << data | reduced.views.get(data, 0),)
            if not group & keep
        ]
        groups = sorted((group for group in groups if group[0]), reverse=True)
        behind = [0] * (len(groups) + 1)
        for index in range(len(groups) - 1, -1, -1):
            behind[index] = behind[index + 1] + groups[index][0]
        todo = [(0, held, over)]
        while todo:
            self.effort -= 1
            if self.effort < 0:
                raise SearchLimitError
            index, left, missing = todo.pop()
            if missing <= 0:
                yield left
            elif behind[index] >= missing:
                group = groups[index][1]
                todo.append((index + 1, left, missing))
                if left & group:
                    freed = reduced.weight(left & group)
                    todo.append((index + 1, left & ~group, missing - freed))


def walked(back: dict[int, tuple[int, int]], start: int, end: int) -> list[int]:
    """Return the evaluations that lead from start to end."""
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
    only: int = EVERYTHING,
) -> tuple[int, int]:
    """Return a larger start and a smaller goal between which the bound still holds.

    Args:
        reduced: the problem.
        start, goal: values; to get from one to the other costs at least the bound.
        bound: a cost, or None if there is no way at all.
        deadline: by ``time.monotonic``; what is lifted until then is returned.
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
