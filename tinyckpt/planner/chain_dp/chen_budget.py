"""Chen's memory-budget planner: close a segment at a size threshold, search for the best threshold.

Source: Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost", 2016, arXiv
1604.06174, algorithm 3 and the search over its budget that the text proposes. The paper estimates
the memory of a threshold as the cuts plus the largest segment; here each candidate is measured by
liveness, so that the returned schedule is within the budget.
"""

from __future__ import annotations

from collections.abc import Iterator

from tinyckpt.base.deadline import DEFAULT_SECONDS, Clock, OutOfTimeError, Pace, checked_seconds
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import (
    Cut,
    crossing_values,
    nothing_to_reverse,
    residual_operators,
    segmented_order,
    segments_note,
    values_kept_at_cuts,
)
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import evaluated_once, from_order
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.model.budget import nothing_within
from tinyckpt.planner.model.chain_cuts import local_minimum_cuts
from tinyckpt.planner.model.liveness import FlatGraph, problem_of

# Thresholds of a segment's size, from one stage to all of them, in geometric progression. Doubled:
# twice the schedules to choose from, half a step nearer to the budget.
SEGMENT_SIZES = 48


def filled_segments(flat: FlatGraph, costs: Costs, size: int) -> list[Cut]:
    """Place the cuts greedily: close a segment once its values exceed ``size``."""
    graph = flat.graph
    weight = {
        i: sum(costs.data[data] for data in graph.operators[i].outputs)
        for i in residual_operators(graph)
    }
    ends = []
    held = 0
    places = set(local_minimum_cuts(flat, costs))
    for index in range(graph.forward_count - 1):
        held += weight.get(index, 0)
        if held > size and index in places:
            ends.append(index)
            held = 0
    crossing = crossing_values(flat.graph, ends)
    return [Cut(end, values, len(values) == 1) for end, values in zip(ends, crossing, strict=True)]


def size_thresholds(flat: FlatGraph, costs: Costs) -> Iterator[tuple[int, list[Cut]]]:
    """Yield size thresholds, from large to small, with their cuts; each set of cuts once."""
    graph = flat.graph
    total = sum(
        costs.data[d] for i in residual_operators(graph) for d in graph.operators[i].outputs
    )
    before = None
    for step in range(SEGMENT_SIZES + 1):
        size = int(total ** (1 - step / SEGMENT_SIZES)) if total else 0
        cuts = filled_segments(flat, costs, size)
        if cuts != before:
            yield size, cuts
        before = cuts


def plan_chen_budget(
    graph: Graph,
    costs: Costs,
    *,
    budget: int | None = None,
    time_limit: float = DEFAULT_SECONDS,
) -> Schedule:
    """Choose the segment size of the least cost within the budget.

    Args:
        graph: the training graph; cuts are placed where the fewest bytes cross.
        costs: of evaluations, and sizes of values.
        budget: the largest peak allowed, in the memory unit of the costs; if not given, the
            smallest peak of any segment size.
        time_limit: seconds after which the best so far is returned.

    Raises:
        BudgetError: if no size is within the budget.
        OutOfTimeError: if the time is up before any size is within the budget.
    """
    deadline = Clock(checked_seconds(time_limit))
    if nothing_to_reverse(graph):
        return evaluated_once(graph, "chen_budget")
    problem = problem_of(graph, costs)
    found, pace, before, is_cut = [], Pace(), deadline.spent(), False
    for size, cuts in size_thresholds(problem.flat, costs):
        order = segmented_order(graph, cuts)
        found.append((problem.peak(order), problem.cost_of(order), -size, cuts, order))
        pace.note(deadline.spent() - before, len(order))
        before = deadline.spent()
        is_cut = not pace.allows(deadline, len(order))  # the next size would take about as long
        if is_cut:
            break
    smallest = min(found)
    within = [entry for entry in found if budget is not None and entry[0] <= budget]
    if budget is not None and not within:
        if is_cut:
            raise OutOfTimeError
        raise nothing_within("chen_budget", budget, smallest[0], costs.memory_unit)
    chosen = min(within, key=lambda entry: (entry[1], entry[0])) if within else smallest
    _, _, size, cuts, order = chosen
    note = segments_note(graph, len(residual_operators(graph)), len(cuts) + 1, cuts)
    options = {"segment_size": -size}
    return from_order(graph, order, "chen_budget", options, note, values_kept_at_cuts(cuts))


CHEN_BUDGET = Policy(
    "chen_budget",
    plan_chen_budget,
    "close segments at a size threshold, and search for the threshold that suits the budget",
    "a heuristic",
    "48 times O(V + E)",
    "Chen et al. 2016, arXiv 1604.06174, algorithm 3",
)
