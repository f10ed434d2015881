"""Scores: what decides which value goes when there is no room. The lowest does.

A score is a cost over a divisor. The cost is that of the operators that must be evaluated again if
the value goes, which is followed through the graph from evicted value to evicted value; the divisor
is what that buys, in memory and in time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from tinyckpt.base.dtypes import Integers

if TYPE_CHECKING:
    from tinyckpt.planner.heuristics.eviction import Pins


class EvictionState(Protocol):
    """What scores look at: the state of a run in too little memory, as ``Eviction`` says it."""

    sequence: list[int]
    position: int
    clock: float
    last_access: Any
    next_use: list[int]
    resident: bytearray
    weighty: bytearray
    computed: bytearray
    inputs: list[list[int]]
    outputs: list[tuple[int, ...]]
    consumers: tuple[tuple[int, ...], ...]
    producer: list[int]
    cost: list[float]
    root: list[int]
    size: list[int]
    sizes: Integers
    score: Score
    pins: Pins | None

    def may_go(self, data: int) -> bool:
        """Whether nothing needs a value now, and it is no result nor in the memory of one."""


Cost = tuple[float, set[int]]


@dataclass(frozen=True, slots=True)
class Score:
    """What is lowest for the value to evict: a cost over a divisor.

    Attributes:
        cost: ``cost(run, data, most)``: a sum of costs, at least that of the value's own operator,
            and the operators it is the sum of. Beyond ``most`` it may stop adding up.
        divisor: ``divisor(run, data)``: what the cost is divided by, above 0; if the score falls,
            for an array of values.
        own: whether the cost of the own operator is a bound; where the cost is not a sum of costs
            of operators, it is 1.
        falls: whether the divisor grows as time goes by.
    """

    cost: Callable[[EvictionState, int, float], Cost]
    divisor: Callable[[EvictionState, Any], Any]
    own: bool = True
    falls: bool = False

    def least(self, run: EvictionState) -> list[float]:
        """Return for every value what its cost is at least."""
        if not self.own:
            return [1.0] * len(run.producer)
        return [run.cost[producer] if producer >= 0 else 0.0 for producer in run.producer]


def recompute_cost(run: EvictionState, data: int, most: float = inf) -> Cost:
    """Return what it takes to compute a value again from what is resident, and the operators.

    Beyond ``most`` the exact sum is of no interest, and what has been summed up is returned.
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


def memory(run: EvictionState, data: int) -> int:
    """Return the memory that goes with a value."""
    return run.size[run.root[data]]


def by_distance(
    exponent: float, cost: Callable[[EvictionState, int, float], Cost] = recompute_cost
) -> Score:
    """Return the score cost / (memory x distance^exponent), for runs that know the future.

    Args:
        exponent: how much it counts that a value is not needed for long.
        cost: of a value; of what must be recomputed before it, if not given.
    """

    def divisor(run: EvictionState, data: int) -> float:
        next_use = run.next_use[data]
        distance = next_use - run.position + 1 if next_use >= 0 else len(run.sequence)
        return float(memory(run, data) * distance**exponent)

    return Score(cost, divisor)
