"""Greedy: run in too little memory knowing the future; then take back what was not needed.

For graphs of any shape and size. Whenever there is no room, the resident value goes that is
cheapest to recompute for the memory and the time it frees: cost / (memory x distance^g), where the
distance is how many operators later it is read, and g weighs it. Then, dearest first, every
recomputation is struck out that the true peak can do without. Several g are tried, and two orders
of the backward half; the cheapest result is the plan.

A separator that no backward operator reads, such as the residual stream of a transformer, is worth
keeping for what can be recomputed from it. Every attempt is made with and without such anchors.

Eviction by next use is L. Belady's, "A study of replacement algorithms for a virtual-storage
computer", 1966; weighing by cost and size as in DTR, which does not know the future.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tinyckpt.cost import Costs
from tinyckpt.errors import BudgetError
from tinyckpt.graph import Graph
from tinyckpt.liveness import Integers, Problem
from tinyckpt.policies.dtr import evicted_neighbourhood, memory
from tinyckpt.policies.eviction import Eviction
from tinyckpt.policies.lowering import from_order
from tinyckpt.policies.policy import Policy
from tinyckpt.policies.program import frugal_program
from tinyckpt.schedule import Schedule

Score = Callable[[Eviction, int], float]


def by_distance(exponent: float, entangled: bool = False) -> Score:
    """Return the score cost / (memory x distance^exponent).

    Args:
        exponent: how much it counts that a value is not needed for long.
        entangled: whether the cost is that of all evicted values around it, as in DTR, or of what
            must be recomputed before it.
    """

    def score(run: Eviction, data: int) -> float:
        next_use = run.next_use(data)
        distance = next_use - run.position + 1 if next_use >= 0 else len(run.program)
        if entangled:
            cost = run.cost[run.producer[data]] + evicted_neighbourhood(run, data)
        else:
            cost = run.recompute_cost(data)
        return float(cost / (memory(run, data) * distance**exponent))

    return score


SCORES: dict[str, Score] = {
    "cost / memory": by_distance(0.0),
    "cost / (memory sqrt(distance))": by_distance(0.5),
    "cost / (memory distance)": by_distance(1.0),
    "entangled cost / memory": by_distance(0.0, entangled=True),
    "entangled cost / (memory sqrt(distance))": by_distance(0.5, entangled=True),
}


def pruned(problem: Problem, order: Sequence[int], budget: int) -> list[int]:
    """Return the order without the recomputations that the budget has room to do without.

    Dearest first. What an operator made stays until the reader that had it recomputed.

    Args:
        problem: graph and costs.
        order: evaluations with a peak within the budget.
        budget: the peak to stay within.
    """
    positions = np.asarray(order, np.int64)
    settled: set[int] = set()  # recomputations, counted from the end, that had to stay
    while True:
        found = roomy_recomputations(problem, positions, budget)
        for place in found:
            from_end = len(positions) - place
            if from_end in settled:
                continue
            shorter = np.delete(positions, place)
            if problem.peak(shorter) <= budget:
                positions = shorter
                break
            settled.add(from_end)
        else:
            return [int(index) for index in positions]


def roomy_recomputations(problem: Problem, order: Integers, budget: int) -> list[int]:
    """Return positions of recomputations whose results could have stayed instead, dearest first.

    That is judged by the memory between the last time the result was there and this one, without
    regard to what is freed when the inputs need not be there again.
    """
    spans = problem.flat.spans(order)
    live = problem.live(order)
    again = np.flatnonzero(np.diff(spans.data, prepend=-1) == 0)
    if not len(again):
        return []
    gaps = np.stack([spans.end[again - 1] + 1, spans.begin[again]], axis=1)
    highest = np.maximum.reduceat(np.append(live, 0), gaps.ravel())[::2]
    highest[gaps[:, 0] >= gaps[:, 1]] = 0
    fits = highest + problem.size[spans.data[again]] <= budget
    # An operator with several results: all of them must fit.
    failing = set(spans.begin[again[~fits]].tolist())
    places = {place for place in spans.begin[again[fits]].tolist() if place not in failing}
    return sorted(places, key=lambda place: (-problem.cost[order[place]], place))


def greedy_orders(
    problem: Problem, budget: int, programs: Sequence[Sequence[int]]
) -> list[tuple[float, str, list[int]]]:
    """Return costs, scores and orders within the budget, for every score and program."""
    found = []
    for program in programs:
        for name, score in SCORES.items():
            for anchors in (False, True):
                try:
                    order = Eviction(problem, budget, score, program, anchors).run()
                except BudgetError:
                    continue
                order = pruned(problem, order, budget)
                label = f"{name}, with anchors" if anchors else name
                found.append((problem.cost_of(order), label, order))
    return found


def plan_greedy(graph: Graph, costs: Costs, *, budget: int | None = None) -> Schedule:
    """Evict with foresight, then strike out recomputations that are not needed.

    Args:
        graph: the training graph.
        costs: what evaluations cost and values weigh.
        budget: the peak to stay within, in the memory unit of the costs; half of store-all's peak
            if not given.

    Raises:
        BudgetError: if none of the attempts stays within the budget.
    """
    problem = Problem(graph, costs)
    stored = list(range(len(graph.operators)))
    limit = problem.peak(stored) // 2 if budget is None else budget
    found = greedy_orders(problem, limit, (stored, frugal_program(problem)))
    if not found:
        raise BudgetError(
            f"greedy finds nothing within {limit} {costs.memory_unit}; at least one operator "
            f"needs {largest_need(problem)} at once"
        )
    _, score, order = min(found)
    note = f"{len(order) - len(stored)} recomputations, evicted by {score}"
    return from_order(graph, order, "greedy", note=note)


def largest_need(problem: Problem) -> int:
    """Return the most memory that any operator takes by itself: inputs, outputs and workspace."""
    operators = range(len(problem.graph.operators))
    return max((problem.need(index) for index in operators), default=0)


GREEDY = Policy(
    "greedy",
    plan_greedy,
    "evict with foresight by cost / (memory x distance), then undo what need not be",
    "Belady 1966 and Kirisame et al. 2021, with liveness checked exactly",
)
