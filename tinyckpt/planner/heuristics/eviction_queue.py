"""Victims: which resident value goes when there is no room, without scoring all that are resident.

The one of the lowest score goes; of equals the latest. To follow evicted values through the graph,
for the cost in a score, is what takes time. Both classes here choose as if all were scored anew
each time; a test says so.

``Queue`` is for scores that only rise while a value stays and nothing is recomputed: what is
evicted besides makes a value dearer, and what comes nearer divides by less. So a score from before
is a lower bound, and a heap of such bounds finds the lowest score: what is first is scored again,
and stays first, or goes back to where it belongs now (lazy evaluation, as in M. Minoux,
"Accelerated greedy algorithms for maximizing submodular set functions", 1978). Two things lower a
score, and renew the bounds of those they concern: a value is read, and its next reader is further
away; an operator is evaluated again. The latter concerns the values whose last score it was seen
for. With k operators to a score, n evaluations take O(n k log n) as long as few bounds
miss by much; scanning all that are resident instead takes O(n²).

``Scan`` is for scores that fall as time goes by. It bounds all of them at once, by the cost of the
value's own operator, and then scores in ascending order of the bounds.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

import numpy as np

from tinyckpt.planner.heuristics.eviction_heuristics import EvictionState

SLACK = 1e-9  # by which bounds and scores, rounded differently, may miss each other
# A cost is followed up to so many times what would put the value behind the next in the queue:
# far enough that it is not soon the first again, and no further than that.
REACH = 2.0
NONE = -1.0  # no score


class Queue:
    """The resident values of a run, in a heap by lower bounds of their scores.

    Values that may not go now are taken out when they are met, and wait.
    """

    def __init__(self, run: EvictionState) -> None:
        self.run, self.score = run, run.score
        self._least = run.score.least(run)
        self._bound = list(self._least)  # of the cost
        self._heap: list[tuple[float, int]] = []  # bounds of scores, and values, the latest first
        self._valid = [NONE] * len(self._bound)  # the entry that counts of those for each value
        self._seen_for: list[set[int]] = [set() for _ in run.cost]  # values, by operator
        self._waiting: dict[int, list[int]] = {}  # values that may not go, by their memory

    def made(self, operator: int) -> None:
        """Take note that an operator has been evaluated."""
        for data in self.run.outputs[operator]:
            self._bound[data] = self._least[data]
            self.renew(data)
        for data in self._seen_for[operator]:
            self._bound[data] = self._least[data]
            self.renew(data)
        self._seen_for[operator].clear()

    def gone(self, data: int) -> None:
        """Take note that a value is not there any more."""
        self._valid[data] = NONE

    def renew(self, data: int) -> None:
        """Take note that the score of a value may have fallen."""
        if self.run.weighty[data]:
            bound = self._bound[data] / self.score.divisor(self.run, data)
            if bound < self._valid[data] or self._valid[data] == NONE:
                self._valid[data] = bound
                heappush(self._heap, (bound, -data))

    def wake(self, root: int) -> None:
        """Take note that values in some memory may go again."""
        if root in self._waiting:
            for data in self._waiting.pop(root):
                self.renew(data)

    def lowest(self) -> int:
        """Return the value with the lowest score that may go, of equals the latest; -1 if none."""
        best, pinned = self._first()
        for data in pinned:  # who knows when they may go
            self.renew(data)
        return best

    def _first(self) -> tuple[int, list[int]]:
        """Return the value to go, -1 if none may, and those before it that cannot be made again."""
        run, heap, valid = self.run, self._heap, self._valid
        pinned: list[int] = []
        while heap:
            bound, negative = heappop(heap)
            data = -negative
            if bound != valid[data]:
                continue  # gone, or there is a lower bound
            valid[data] = NONE
            if not run.may_go(data):
                waiting = self._waiting.setdefault(run.root[data], [])
                (waiting if run.pins is None else pinned).append(data)
                continue
            divisor = self.score.divisor(run, data)
            most = REACH * heap[0][0] * divisor if heap else inf
            cost, operators = self.score.cost(run, data, most)
            if cost > most and cost / divisor <= bound:
                # Costs so small, or so unlike, that the bound does not grow: all of it, at once.
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


class Scan:
    """The resident values of a run, looked through one and all."""

    def __init__(self, run: EvictionState) -> None:
        self.run, self.score = run, run.score
        self._least = np.array(run.score.least(run))

    def ignore(self, number: int) -> None:
        """Remember nothing: all are looked at anew."""

    made = gone = renew = wake = ignore

    def lowest(self) -> int:
        """Return the value with the lowest score that may go, of equals the latest; -1 if none."""
        values = np.flatnonzero(np.frombuffer(self.run.weighty, np.uint8))
        if not len(values):
            return -1
        divisors = self.score.divisor(self.run, values)
        bounds = self._least[values] * (1 - SLACK) / divisors
        bounds[bounds != bounds] = inf  # costs nothing, and was asked for just now
        best, lowest = -1, inf
        # The first is most often the one, and a score parts the few that may be lower from the
        # others before they are sorted.
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
        """Return the score of a value, or more than the lowest so far."""
        if not divisor > 0:
            return inf  # what was asked for just now must stay
        cost, _ = self.score.cost(self.run, data, lowest * divisor * (1 + SLACK))
        return cost / divisor
