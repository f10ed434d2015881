"""Lazy priority queue of eviction candidates: the lowest score without scoring all resident values.

Lazy evaluation of lower bounds, as in M. Minoux, "Accelerated greedy algorithms for maximizing
submodular set functions", 1978. The value with the lowest score is the victim; ties are broken by
the highest id. Following evicted values through the graph, for the cost in a score, is the
expensive part. Both classes choose the same victim as if all values were scored each time; a test
asserts it.

``LazyQueue`` is for scores that only rise while a value stays and nothing is recomputed: evicting
another value raises the cost, and an approaching next use lowers the divisor. So an old score is a
lower bound, and a heap of such bounds finds the lowest score: the first entry is scored again, and
is the victim or is pushed back with its new score. Two events lower a score, and renew the bounds
of the values concerned: a value is read, so that its next use is further away; an operator is
evaluated again. The latter concerns the values whose last score included that operator. With k
operators per score, n evaluations take O(n k log n) as long as few bounds are loose; scanning all
resident values instead takes O(n²).

``LinearScan`` is for scores that fall over time (staleness). It bounds all of them at once, by the
cost of the value's own operator, and then scores in ascending order of the bounds.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tinyckpt.planner.heuristics.eviction import Eviction

# Relative rounding error between bounds and scores, which are summed in different orders; larger:
# more values are scored.
SLACK = 1e-9
# A cost is summed up to this multiple of the cost that would put the value behind the next entry:
# far enough that it is not soon the first again. Larger: fewer, but longer sums.
REACH = 2.0
NONE = -1.0  # sentinel: no entry in the heap


class LazyQueue:
    """Heap of the resident values of a run, by lower bounds of their scores.

    Values that cannot be evicted now are removed from the heap when they are met, and re-enter when
    they are unlocked.
    """

    def __init__(self, run: Eviction) -> None:
        self.run, self.score = run, run.score
        self._least = run.score.least(run)
        self._bound = list(self._least)  # lower bounds of the costs
        # Entries (bound of the score, negated id: of equal bounds the highest id comes first).
        self._heap: list[tuple[float, int]] = []
        self._valid = [NONE] * len(self._bound)  # bound of each value's valid entry; others: stale
        # For each operator, the values whose last score included its cost.
        self._seen_for: list[set[int]] = [set() for _ in run.cost]
        self._waiting: dict[int, list[int]] = {}  # values that cannot be evicted now, by storage

    def made(self, operator: int) -> None:
        """Record that an operator has been evaluated."""
        for data in self.run.outputs[operator]:
            self._bound[data] = self._least[data]
            self.renew(data)
        for data in self._seen_for[operator]:
            self._bound[data] = self._least[data]
            self.renew(data)
        self._seen_for[operator].clear()

    def gone(self, data: int) -> None:
        """Record that a value is no longer resident."""
        self._valid[data] = NONE

    def renew(self, data: int) -> None:
        """Record that the score of a value may have fallen."""
        if self.run.weighty[data]:
            bound = self._bound[data] / self.score.divisor(self.run, data)
            if bound < self._valid[data] or self._valid[data] == NONE:
                self._valid[data] = bound
                heappush(self._heap, (bound, -data))

    def wake(self, root: int) -> None:
        """Record that values in a storage may be evicted again."""
        if root in self._waiting:
            for data in self._waiting.pop(root):
                self.renew(data)

    def lowest(self) -> int:
        """Return the evictable value with the lowest score, ties by highest id; -1 if none."""
        best, pinned = self._first()
        for data in pinned:  # no event tells when they become evictable: keep them in the heap
            self.renew(data)
        return best

    def _first(self) -> tuple[int, list[int]]:
        """Return the victim, -1 if there is none, and the values skipped before it.

        Skipped are values that are pinned or locked, if the run has pinned values.
        """
        run, heap, valid = self.run, self._heap, self._valid
        pinned: list[int] = []
        while heap:
            bound, negative = heappop(heap)
            data = -negative
            if bound != valid[data]:
                continue  # stale: the value is gone, or has an entry with a lower bound
            valid[data] = NONE
            if not run.may_go(data):
                waiting = self._waiting.setdefault(run.root[data], [])
                (waiting if run.pins is None else pinned).append(data)
                continue
            divisor = self.score.divisor(run, data)
            most = REACH * heap[0][0] * divisor if heap else inf
            cost, operators = self.score.cost(run, data, most)
            if cost > most and cost / divisor <= bound:
                # The partial sum does not raise the bound (rounding): sum it completely.
                most = inf
                cost, operators = self.score.cost(run, data, most)
            entry = cost / divisor, negative
            if cost <= most and (not heap or entry <= heap[0]):
                return data, pinned
            for operator in operators:
                self._seen_for[operator].add(data)
            self._bound[data], valid[data] = cost, entry[0]
            heappush(heap, entry)
        return -1, pinned


class LinearScan:
    """Linear scan of the resident values of a run, with vectorised lower bounds of their scores."""

    def __init__(self, run: Eviction) -> None:
        self.run, self.score = run, run.score
        self._least = np.array(run.score.least(run))

    def ignore(self, number: int) -> None:
        """Ignore an event: a scan has no state."""

    made = gone = renew = wake = ignore

    def lowest(self) -> int:
        """Return the evictable value with the lowest score, ties by highest id; -1 if none."""
        values = np.flatnonzero(np.frombuffer(self.run.weighty, np.uint8))
        if not len(values):
            return -1
        divisors = self.score.divisor(self.run, values)
        bounds = self._least[values] * (1 - SLACK) / divisors
        bounds[bounds != bounds] = inf  # NaN is 0 / 0: no cost, accessed just now
        best, lowest = -1, inf
        # The value of the lowest bound is most often the victim, and its score separates the few
        # values that may be lower from the others before they are sorted.
        first = int(bounds.argmin())
        if self.run.may_go(int(values[first])):
            best = int(values[first])
            lowest = self._scored(best, float(divisors[first]), inf)
            chosen = np.flatnonzero(bounds <= lowest)
            values, divisors, bounds = values[chosen], divisors[chosen], bounds[chosen]
        ascending = bounds.argsort(kind="stable")
        for data, divisor, bound in zip(
            values[ascending].tolist(), divisors[ascending].tolist(), bounds[ascending].tolist(),
            strict=True,
        ):  # fmt: skip
            if bound > lowest:
                break
            if data != best and self.run.may_go(data):
                score = self._scored(data, divisor, lowest)
                if score < lowest or (score == lowest and data > best):
                    best, lowest = data, score
        return best

    def _scored(self, data: int, divisor: float, lowest: float) -> float:
        """Return the score of a value, or a number above the lowest so far."""
        if not divisor > 0:
            return inf  # accessed just now: must stay
        cost, _ = self.score.cost(self.run, data, lowest * divisor * (1 + SLACK))
        return cost / divisor
