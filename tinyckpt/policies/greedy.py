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

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyckpt.analysis.liveness import Integers, Problem
from tinyckpt.cost import Costs
from tinyckpt.errors import BudgetError
from tinyckpt.graph import Graph
from tinyckpt.orders.backward import frugal_program
from tinyckpt.orders.eviction import Eviction, Score
from tinyckpt.orders.lowering import from_order, kept_values
from tinyckpt.policies.dtr import entangled_cost, memory
from tinyckpt.policies.policy import Policy
from tinyckpt.schedule import Schedule
from tinyckpt.units import memory_text


def by_distance(exponent: float, entangled: bool = False) -> Score:
    """Return the score cost / (memory x distance^exponent).

    Args:
        exponent: how much it counts that a value is not needed for long.
        entangled: whether the cost is that of all evicted values around it, as in DTR, or of what
            must be recomputed before it.
    """

    def divisor(run: Eviction, data: Any) -> Any:
        next_use = run.next_use[data]
        distance = np.where(next_use >= 0, next_use - run.position + 1, len(run.program))
        return memory(run, data) * distance**exponent

    return Score(entangled_cost if entangled else Eviction.recompute_cost, divisor)


SCORES: dict[str, Score] = {
    "cost / (memory sqrt(distance))": by_distance(0.5),
    "cost / memory": by_distance(0.0),
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
    while True:
        # What is struck out frees inputs as well, which may make room for more: look again.
        shorter = without_roomy(problem, positions, budget)
        if len(shorter) == len(positions):
            return [int(index) for index in positions]
        assert problem.peak(shorter) <= budget  # see there
        positions = shorter


def without_roomy(problem: Problem, order: Integers, budget: int) -> Integers:
    """Return the order without recomputations whose results can stay from the time before.

    There is room if the memory between the last time that a result was there and this one, and the
    memory that the result is in, are within the budget. A view that stays holds the block that it
    was made in for as long as it would have held the new one, and its base may be in a new block
    by then: the old one counts up to the view's end. All this is judged without regard to what its
    inputs then free, or to a view's memory being there already: it is enough for the peak, and one
    after another can go.
    """
    spans = problem.flat.spans(order)
    live = problem.live(order)
    again = np.flatnonzero(np.diff(spans.data, prepend=-1) == 0)
    root = np.asarray(problem.root)[spans.data[again]]
    sizes = problem.size[root].tolist()
    until = spans.begin[again]
    if problem.view_levels:
        held = problem.block_ends(spans, len(order))[again] + 1
        until = np.where(root == spans.data[again], until, held)
    # For each recomputation, what it makes: from when to when it takes memory, and how much.
    absent: dict[int, list[tuple[int, int, int]]] = {}
    begins, ends = spans.begin[again].tolist(), spans.end[again - 1].tolist()
    for begin, end, stop, size in zip(begins, ends, until.tolist(), sizes, strict=True):
        absent.setdefault(begin, []).append((end + 1, stop, size))
    widths = np.diff(problem.flat.writes.first)
    kept = np.ones(len(order), bool)
    for place in sorted(absent, key=lambda place: (-problem.cost[order[place]], place)):
        made = absent[place]
        if len(made) < widths[order[place]]:
            continue  # one of its results has not been there before
        fits = True
        for first, stop, size in made:
            live[first:stop] += size
        if any(live[first:stop].max(initial=0) > budget for first, stop, _ in made):
            fits = False
            for first, stop, size in made:
                live[first:stop] -= size
        kept[place] = not fits
    return order[kept]


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
        budget: the peak to stay within, in the memory unit of the costs; if not given, half of
            store-all's peak, or the next tenth of it that is feasible.

    Raises:
        BudgetError: if none of the attempts stays within the budget.
    """
    problem = Problem(graph, costs)
    stored = list(range(len(graph.operators)))
    programs = (stored, frugal_program(problem))
    limits = tenths(problem.peak(stored)) if budget is None else [budget]
    found = next(filter(None, (greedy_orders(problem, limit, programs) for limit in limits)), None)
    if found is None:
        unit = costs.memory_unit
        raise BudgetError(
            f"greedy finds nothing within {memory_text(limits[-1], unit)}; at least one operator "
            f"needs {memory_text(largest_need(problem), unit)} at once"
        )
    _, score, order = min(found)
    note = f"{len(order) - len(stored)} recomputations, evicted by {score}"
    return from_order(graph, order, "greedy", {}, note, kept_values(graph, order))


def tenths(peak: int) -> list[int]:
    """Return budgets to try where none is given: from half of a peak up to all of it."""
    return [peak * tenth // 10 for tenth in range(5, 11)]


def largest_need(problem: Problem) -> int:
    """Return the most memory that any operator takes by itself: inputs, outputs and workspace."""
    operators = range(len(problem.graph.operators))
    return max((problem.need(index) for index in operators), default=0)


GREEDY = Policy(
    "greedy",
    plan_greedy,
    "evict with foresight by cost / (memory x distance), then undo what need not be",
    "a heuristic",
    "20 runs, each O(n) evictions over what is resident",
    "Belady 1966 and Kirisame et al. 2021, with liveness checked exactly",
)
