"""Pruning: recomputations are struck out that a budget has room to do without.

What an operator made stays until the reader that had it recomputed, if there is room in between.
The dearest are tried first. Of m evaluations, those for which there is no room to begin with are
told from the others all at once, in O(m log m); for each of the others the memory held over time is
asked about, and raised, a block of time at a time: O(sqrt(m)), and little of it in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

import numpy as np

from tinyckpt.base.deadline import ENDLESS, Clock
from tinyckpt.base.dtypes import Integers
from tinyckpt.planner.model.liveness import Problem

CLOCK_EVERY_RECOMPUTES = 256  # recomputations: between two looks at the clock

# What a recomputation makes: from when to when it would take memory instead, and how much.
Stays = list[tuple[int, int, int]]


def pruned(
    problem: Problem, order: Sequence[int], budget: int, deadline: Clock = ENDLESS
) -> list[int]:
    """Return the order without the recomputations that the budget has room to do without.

    Dearest first. What an operator made stays until the reader that had it recomputed.

    Args:
        problem: graph and costs.
        order: evaluations with a peak within the budget, as long as no update has to wait.
        budget: the peak to stay within.
        deadline: what has not been struck out by then stays.
    """
    positions = problem.flat.updates_last(np.asarray(order, np.int64))
    if problem.flat.updates is not None and problem.peak(positions) > budget:
        return [int(index) for index in positions]
    while deadline.left():
        # What is struck out frees inputs as well, which may make room for more: look again.
        shorter = without_roomy(problem, positions, budget, deadline)
        if len(shorter) == len(positions):
            break
        assert problem.peak(shorter) <= budget  # see there
        positions = shorter
    return [int(index) for index in positions]


def without_roomy(problem: Problem, order: Integers, budget: int, deadline: Clock) -> Integers:
    """Return the order without recomputations whose results can stay from the time before.

    There is room if the memory between the last time that a result was there and this one, and the
    memory that the result is in, are within the budget. A view that stays holds the block that it
    was made in for as long as it would have held the new one, and its base may be in a new block
    by then: the old one counts up to the view's end. All this is judged without regard to what its
    inputs then free, or to a view's memory being there already: it is enough for the peak, and one
    after another can go.
    """
    live = problem.live(order)
    roomy = roomy_alone(problem, order, live, budget)
    memory = RangeMaximum(live)
    kept = np.ones(len(order), bool)
    cost = problem.cost
    ranked = sorted(roomy, key=lambda place: (-cost[order[place]], place))
    for number, place in enumerate(ranked):
        if not number % CLOCK_EVERY_RECOMPUTES and not deadline.left():
            break
        stays = roomy[place]
        if any(memory.most(first, stop) + size > budget for first, stop, size in stays):
            continue
        for first, stop, size in stays:
            memory.add(first, stop, size)
        # Several results, each with room alone, may have none together.
        kept[place] = any(memory.most(first, stop) > budget for first, stop, _ in stays[1:])
        if kept[place]:
            for first, stop, size in stays:
                memory.add(first, stop, -size)
    return order[kept]


def roomy_alone(problem: Problem, order: Integers, live: Integers, budget: int) -> dict[int, Stays]:
    """Return the recomputations that there is room to do without, were it for one result alone.

    Args:
        problem, order, budget: as above.
        live: the memory held during each evaluation.
    """
    spans = problem.flat.spans(order)
    again = np.flatnonzero(np.diff(spans.data, prepend=-1) == 0)
    root = np.asarray(problem.root)[spans.data[again]]
    size, begin, first = problem.size[root], spans.begin[again], spans.end[again - 1] + 1
    stop = begin
    if problem.view_levels:
        held = problem.block_ends(spans, len(order))[again] + 1
        stop = np.minimum(np.where(root == spans.data[again], begin, held), len(order))
    fits = most_within(live, first, stop) + size <= budget
    # An operator goes if all its results have been there before, and there is room for each.
    results = np.diff(problem.flat.writes.first)[order]
    goes = np.bincount(begin[fits], minlength=len(order)) == results
    chosen = np.flatnonzero(fits & goes[begin])
    stays: dict[int, Stays] = {}
    for place, *what in zip(
        begin[chosen].tolist(), first[chosen].tolist(), stop[chosen].tolist(),
        size[chosen].tolist(), strict=True,
    ):  # fmt: skip
        stays.setdefault(place, []).append((what[0], what[1], what[2]))
    return stays


def most_within(values: Integers, first: Integers, stop: Integers) -> Integers:
    """Return the largest of each range of values, 0 of an empty one.

    Two overlapping ranges of 2^k values make up any range; those of each k are made from those of
    the one before, and all ranges of that length are answered with them.
    """
    length = stop - first
    most = np.zeros(len(first), np.int64)
    level = np.frexp(length.astype(np.float64))[1] - 1  # of the largest power of 2 within
    known = values
    for k in range(int(level.max(initial=-1)) + 1):
        asked = np.flatnonzero(level == k)
        most[asked] = np.maximum(known[first[asked]], known[stop[asked] - 2**k])
        known = np.maximum(known[: -(2**k)], known[2**k :])
    return most


class RangeMaximum:
    """Numbers that are added to, and asked for their largest, over ranges: sqrt(n) at a time.

    A block knows its largest number, and what has been added to all of it and not yet to each.
    """

    def __init__(self, values: Integers) -> None:
        self.width = max(isqrt(len(values)), 1)
        self.values = values.copy()
        self.added = np.zeros(len(values) // self.width + 1, np.int64)
        self.largest = np.zeros_like(self.added)
        for block in range(len(self.added)):
            self.look_at(block)

    def look_at(self, block: int) -> None:
        """Find the largest number of a block anew."""
        values = self.values[block * self.width : (block + 1) * self.width]
        self.largest[block] = values.max(initial=0) + self.added[block]

    def add(self, first: int, stop: int, amount: int) -> None:
        """Add to the numbers from one position up to another."""
        if first >= stop:
            return
        left, right = -(-first // self.width), stop // self.width  # whole blocks in between
        if left > right:
            self.values[first:stop] += amount
        else:
            self.values[first : left * self.width] += amount
            self.added[left:right] += amount
            self.largest[left:right] += amount
            self.values[right * self.width : stop] += amount
        self.look_at(first // self.width)
        self.look_at((stop - 1) // self.width)

    def most(self, first: int, stop: int) -> int:
        """Return the largest number from one position up to another; 0 if there is none."""
        if first >= stop:
            return 0
        left, right = -(-first // self.width), stop // self.width
        if left > right:
            return int(self.values[first:stop].max() + self.added[right])
        most = self.largest[left:right].max(initial=0)
        if first < left * self.width:
            most = max(most, self.values[first : left * self.width].max() + self.added[left - 1])
        if right * self.width < stop:
            most = max(most, self.values[right * self.width : stop].max() + self.added[right])
        return int(most)
