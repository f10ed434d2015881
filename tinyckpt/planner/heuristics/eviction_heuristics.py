"""Eviction heuristics: cost-benefit scores of resident values; the lowest score is evicted.

A score is a cost over a divisor. The cost is that of the operators that must be evaluated again if
the value is evicted, found by following evicted values through the graph; the divisor is the gain,
in memory and in time until the next use or since the last access. DTR's own heuristics are in
``dtr``; here are the common cost, and the score of runs that know the future (``by_distance``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyckpt.planner.heuristics.eviction import Eviction

Cost = tuple[float, set[int]]


@dataclass(frozen=True, slots=True)
class Score:
    """Eviction score: cost / divisor; the value with the lowest score is evicted.

    Attributes:
        cost: ``cost(run, data, most)``: a sum of operator costs, at least that of the value's own
            operator, and the set of these operators. Beyond ``most`` it may stop summing.
        divisor: ``divisor(run, data)``: a number above 0; if ``falls``, also for an array of
            values.
        own: whether the cost of the value's own operator is a lower bound of the cost; if not, the
            cost is no sum of operator costs, and the bound is 1.
        falls: whether scores fall over time, since the divisor grows.
    """

    cost: Callable[[Eviction, int, float], Cost]
    divisor: Callable[[Eviction, Any], Any]
    own: bool = True
    falls: bool = False

    def least(self, run: Eviction) -> list[float]:
        """Return a lower bound on the cost of each value."""
        if not self.own:
            return [1.0] * len(run.producer)
        return [run.cost[producer] if producer >= 0 else 0.0 for producer in run.producer]


def recompute_cost(run: Eviction, data: int, most: float = inf) -> Cost:
    """Return the cost of recomputing a value from the resident values, and the operators.

    Once the sum exceeds ``most``, the partial sum is returned.
    """
    operators = {run.producer[data]}
    todo = list(operators)
    total = 0.0
    while todo:
        operator = todo.pop()
        total += run.cost[operator]
        if total > most:
            break
        for value in run.inputs[operator]:
            if not run.resident[value] and run.producer[value] not in operators:
                operators.add(run.producer[value])
                todo.append(run.producer[value])
    return total, operators


def memory(run: Eviction, data: int) -> int:
    """Return the memory of a value's storage, which its eviction frees."""
    return run.size[run.root[data]]


def by_distance(
    exponent: float, cost: Callable[[Eviction, int, float], Cost] = recompute_cost
) -> Score:
    """Build the score cost / (memory x distance^exponent), for runs that know the future.

    The distance is the number of operators of the sequence until the next use.

    Args:
        exponent: weight of the distance; 0 ignores it.
        cost: cost function of a value; by default the cost of recomputing it.

    >>> by_distance(0.5).falls
    False
    """

    def divisor(run: Eviction, data: int) -> float:
        next_use = run.next_use[data]
        distance = next_use - run.position + 1 if next_use >= 0 else len(run.sequence)
        return float(memory(run, data) * distance**exponent)

    return Score(cost, divisor)
