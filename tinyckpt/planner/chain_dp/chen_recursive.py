"""Recursive checkpointing in O(log n) memory (Chen): keep k states, recurse into each part between.

Source: Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost", 2016, arXiv
1604.06174, section 4.4: memory g(n) = k + g(n / (k+1)), which is O(k log n / log(k+1)), for O(n log
n / log(k+1)) evaluations. With k = 1 it is recursive bisection.
"""

from __future__ import annotations

from itertools import pairwise
from math import log

from tinyckpt.base.deadline import check_length
from tinyckpt.base.errors import PolicyOptionError
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import nothing_to_reverse
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import evaluated_once
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.chain_dp.reversal import StageAction, schedule_of
from tinyckpt.planner.model.chain_cuts import local_minimum_cuts
from tinyckpt.planner.model.chain_stages import stages
from tinyckpt.planner.model.liveness import problem_of


def recursive_actions(steps: int, k: int = 1) -> list[StageAction]:
    """Return the actions that reverse a chain with k checkpoints per level of recursion."""
    actions = [StageAction("keep", 0)]
    todo = [(0, steps)]
    while todo:
        first, last = todo.pop()
        length = last - first
        if length == 1:
            actions.append(StageAction("back", first))
            continue
        parts = min(k + 1, length)
        ends = [first + round(part * length / parts) for part in range(parts + 1)]
        for begin, end in pairwise(ends[:-1]):
            actions.append(StageAction("advance", begin, end))
            actions.append(StageAction("keep", end))
        todo.extend(pairwise(ends))
    return actions


def plan_chen_recursive(graph: Graph, costs: Costs, *, k: int = 1) -> Schedule:
    """Keep k states at every level of the recursion.

    On ``chain(n)`` with k = 1 and n = 2^p - 1: p 2^(p-1) forward evaluations, n + 1 others, and a
    peak of p + 2 nodes.

    Args:
        graph: the training graph; its stages lie between the cuts where the fewest bytes cross.
        costs: sizes of values, for the choice of the cuts; stages count as equal.
        k: checkpoints per level of recursion, 1 or more.

    Raises:
        PolicyOptionError: if ``k`` is not an integer of 1 or more.
        ScheduleError: if the schedule would be too long.
    """
    if type(k) is not int or k < 1:
        raise PolicyOptionError(f"chen_recursive: k={k!r}; expected an integer of 1 or more")
    if nothing_to_reverse(graph):
        return evaluated_once(graph, "chen_recursive")
    flat = problem_of(graph, costs).flat
    parts = stages(flat, local_minimum_cuts(flat, costs))
    # Each of the log n levels advances through all but the last of its k + 1 parts.
    levels = log(max(len(parts), 2)) / log(k + 1)
    evaluations = len(graph.operators) + graph.forward_count * levels * k / (k + 1)
    check_length(evaluations, f"chen_recursive on {graph.name}, k={k},")
    actions = recursive_actions(len(parts), k)
    note = f"{len(parts)} stages, {k} kept at every level"
    return schedule_of(flat, parts, actions, "chen_recursive", {"k": k}, note)


CHEN_RECURSIVE = Policy(
    "chen_recursive",
    plan_chen_recursive,
    "recursive bisection: keep the middle state, recurse into both halves: O(log n) memory",
    "a heuristic: O(log n) memory for O(n log n) evaluations on a chain",
    "O(V + E) and the schedule",
    "Chen et al. 2016, arXiv 1604.06174, section 4.4",
)
