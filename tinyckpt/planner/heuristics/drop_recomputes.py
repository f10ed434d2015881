"""Redundant recomputation elimination: drop recomputations by extending live ranges, greedily.

An order within the budget comes in, a shorter one within the budget goes out. A recomputation is
dropped if the earlier result can stay live until the reader, that is if memory in between has room
for it; the most expensive are tried first. Of m evaluations, those without room are excluded all at
once, in O(m log m), by a sparse table of range maxima; each remaining one queries and raises live
memory over a range of time in O(sqrt(m)), by square-root decomposition, mostly in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

import numpy as np

from tinyckpt.base.deadline import NO_DEADLINE, Clock
from tinyckpt.base.dtypes import Integers
from tinyckpt.planner.model.liveness import Problem

# Recomputations tried between two checks of the deadline; larger: fewer checks, a later stop.
CLOCK_EVERY_RECOMPUTES = 256

# Live range extensions that replace a recomputation, one per result: first position, end position
# (exclusive), memory.
Extensions = list[tuple[int, int, int]]


def drop_redundant_recomputes(
    problem: Problem, order: Sequence[int], budget: int, deadline: Clock = NO_DEADLINE
) -> list[int]:
    """Drop recomputations whose earlier results fit in memory until they are read again.

    The most expensive recomputations are tried first; passes repeat until none can be dropped.

    Args:
        problem: graph and costs.
        order: evaluations with a peak within the budget, unless delayed updates raise it.
        budget: the peak to stay within, in the memory unit of the costs.
        deadline: of the search; recomputations not dropped by then stay.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(2)
    >>> problem = Problem(graph, tc.cost.evaluations(graph))
    >>> drop_redundant_recomputes(problem, [0, 1, 0, 2, 3, 0, 4], budget=4 * 512)
    [0, 1, 2, 3, 4]
    """
    positions = problem.flat.updates_last(np.asarray(order, np.int64))
    if problem.flat.updates is not None and problem.peak(positions) > budget:
        return [int(index) for index in positions]
    while deadline.left():
        # A dropped recomputation no longer reads its inputs, which may make room for more: repeat.
        shorter = drop_pass(problem, positions, budget, deadline)
        if len(shorter) == len(positions):
            break
        assert problem.peak(shorter) <= budget  # see drop_pass
        positions = shorter
    return [int(index) for index in positions]


def drop_pass(problem: Problem, order: Integers, budget: int, deadline: Clock) -> Integers:
    """Drop recomputations whose results can stay live since their previous live range, in one pass.

    A recomputation can be dropped if live memory between the end of the previous live range and
    this one, plus the storage of the result, is within the budget. A view that stays keeps its old
    block alive for as long as it would have kept the new one, and its base may be in a new block by
    then: the old block counts up to the view's end. The test is conservative: it ignores the inputs
    that are then freed earlier, and a view's storage that is resident already. So the peak stays
    within the budget, and recomputations can be dropped one after another.
    """
    live = problem.live(order)
    candidates = droppable(problem, order, live, budget)
    memory = RangeMaximum(live)
    kept = np.ones(len(order), bool)
    cost = problem.cost
    ranked = sorted(candidates, key=lambda place: (-cost[order[place]], place))
    for number, place in enumerate(ranked):
        if not number % CLOCK_EVERY_RECOMPUTES and not deadline.left():
            break
        extensions = candidates[place]
        if any(memory.most(first, stop) + size > budget for first, stop, size in extensions):
            continue
        for first, stop, size in extensions:
            memory.add(first, stop, size)
        # Several results, each of which fits alone, may not fit together.
        kept[place] = any(memory.most(first, stop) > budget for first, stop, _ in extensions[1:])
        if kept[place]:
            for first, stop, size in extensions:
                memory.add(first, stop, -size)
    return order[kept]


def droppable(
    problem: Problem, order: Integers, live: Integers, budget: int
) -> dict[int, Extensions]:
    """Return the recomputations each of whose results, taken alone, fits if it stays live.

    Args:
        problem, order, budget: as above.
        live: the live memory during each evaluation.
    """
    spans = problem.flat.spans(order)
    again = np.flatnonzero(np.diff(spans.data, prepend=-1) == 0)
    root = np.asarray(problem.root)[spans.data[again]]
    size, begin, first = problem.size[root], spans.begin[again], spans.end[again - 1] + 1
    stop = begin
    if problem.view_levels:
        block_end = problem.block_ends(spans, len(order))[again] + 1
        stop = np.minimum(np.where(root == spans.data[again], begin, block_end), len(order))
    fits = range_maxima(live, first, stop) + size <= budget
    # An evaluation is a candidate if all its outputs have an earlier live range that can be
    # extended.
    results = np.diff(problem.flat.writes.first)[order]
    is_droppable = np.bincount(begin[fits], minlength=len(order)) == results
    chosen = np.flatnonzero(fits & is_droppable[begin])
    extensions: dict[int, Extensions] = {}
    for place, *what in zip(
        begin[chosen].tolist(), first[chosen].tolist(), stop[chosen].tolist(),
        size[chosen].tolist(), strict=True,
    ):  # fmt: skip
        extensions.setdefault(place, []).append((what[0], what[1], what[2]))
    return extensions


def range_maxima(values: Integers, first: Integers, stop: Integers) -> Integers:
    """Answer range maximum queries offline by a sparse table; 0 for an empty range.

    Two overlapping ranges of 2^k values cover any range. The maxima for each k are computed from
    those for k - 1, and answer all queries of that length, so that one row is kept at a time.

    >>> range_maxima(np.array([3, 1, 4, 1, 5]), np.array([0, 1, 2]), np.array([2, 4, 2])).tolist()
    [3, 4, 0]
    """
    length = stop - first
    most = np.zeros(len(first), np.int64)
    level = np.frexp(length.astype(np.float64))[1] - 1  # of the largest power of 2 within
    known = values
    for k in range(int(level.max(initial=-1)) + 1):
        queries = np.flatnonzero(level == k)
        most[queries] = np.maximum(known[first[queries]], known[stop[queries] - 2**k])
        known = np.maximum(known[: -(2**k)], known[2**k :])
    return most


class RangeMaximum:
    """Range addition and range maximum in O(sqrt(n)), by square-root decomposition.

    A block stores its maximum, and a lazy addition to all its numbers.

    >>> live = RangeMaximum(np.array([3, 1, 4, 1, 5]))
    >>> live.add(0, 2, 10)
    >>> live.most(0, 3), live.most(2, 4)
    (13, 4)
    """

    def __init__(self, values: Integers) -> None:
        self.width = max(isqrt(len(values)), 1)
        self.values = values.copy()
        self.added = np.zeros(len(values) // self.width + 1, np.int64)
        self.largest = np.zeros_like(self.added)
        for block in range(len(self.added)):
            self.look_at(block)

    def look_at(self, block: int) -> None:
        """Recompute the maximum of a block."""
        values = self.values[block * self.width : (block + 1) * self.width]
        self.largest[block] = values.max(initial=0) + self.added[block]

    def add(self, first: int, stop: int, amount: int) -> None:
        """Add an amount to the numbers from ``first`` up to ``stop``."""
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
        """Return the maximum of the numbers from ``first`` up to ``stop``; 0 if there are none."""
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
