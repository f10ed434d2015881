"""Dynamic tensor rematerialization (DTR): online eviction by cost / (memory x staleness).

Source: M. Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021, arXiv 2006.09616, with
the eviction heuristics of its section 4.1. The value with the lowest score is evicted; m is its
memory, s its staleness (time since the last access), c0 the cost of its operator, and e* its
evicted neighborhood, the evicted values that would have to be recomputed with it: evicted ancestors
and evicted descendants, reached through evicted values only.

    dtr    (c0 + c0 of e*) / (m s)
    e_star (c0 + c0 of e*) / m           the one that theorem 3.1 is about
    msps   (c0 + c0 of the ancestors in e*) / m
    local  c0 / (m s)
    lru    1 / s
    size   1 / m

Time is the accumulated cost of evaluations; ties are broken by the highest id. An operator accesses
its inputs when it is requested, before missing ones are recomputed. Values that the program does
not read again are freed. Not implemented: the union-find approximation of e*, which only makes the
same choice faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tinyckpt.base.deadline import DEFAULT_SECONDS, NO_DEADLINE, Clock, checked_seconds
from tinyckpt.base.errors import BudgetError, PolicyOptionError, did_you_mean
from tinyckpt.base.units import counted
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.heuristics.budget_grid import (
    BudgetGrid,
    Candidate,
    build_budget_grid,
    first_feasible,
    plan_at_nearest_level,
)
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.heuristics.eviction_heuristics import (
    Cost,
    Score,
    memory,
    recompute_cost,
)
from tinyckpt.planner.model.liveness import Problem, problem_of
from tinyckpt.planner.model.vectorised_lowering import lower


def entangled_cost(run: Eviction, data: int, most: float) -> Cost:
    """Return c0 plus the cost of the evicted neighborhood e*, and the operators.

    Once the sum exceeds ``most``, the partial sum is returned.
    """
    total, operators = recompute_cost(run, data, most)
    todo = [run.producer[data]]
    while todo and total <= most:
        for value in run.outputs[todo.pop()]:
            for reader in run.consumers[value]:
                if reader in operators or not run.computed[reader]:
                    continue
                if not any(run.resident[made] for made in run.outputs[reader]):
                    operators.add(reader)
                    todo.append(reader)
                    total += run.cost[reader]
    return total, operators


def local_recompute_cost(run: Eviction, data: int, most: float) -> Cost:
    """Return c0, the cost of the value's own operator."""
    return run.cost[run.producer[data]], set()


def unit_cost(run: Eviction, data: int, most: float) -> Cost:
    """Return 1, for a score that ignores costs."""
    return 1.0, set()


def staleness(run: Eviction, data: Any) -> Any:
    """Return s, the time since the last access of each value."""
    return run.clock - run.last_access[data]


def memory_and_staleness(run: Eviction, data: Any) -> Any:
    """Return m s, memory times staleness."""
    return run.sizes[data] * staleness(run, data)


HEURISTICS: dict[str, Score] = {
    "dtr": Score(entangled_cost, memory_and_staleness, falls=True),
    "e_star": Score(entangled_cost, memory),
    "msps": Score(recompute_cost, memory),
    "local": Score(local_recompute_cost, memory_and_staleness, falls=True),
    "lru": Score(unit_cost, staleness, own=False, falls=True),
    "size": Score(unit_cost, memory, own=False),
}


def dtr_candidates(
    problem: Problem,
    levels: BudgetGrid,
    level: int,
    heuristic: str = "dtr",
    deadline: Clock = NO_DEADLINE,
) -> Iterator[Candidate]:
    """Yield DTR's plan for the budget of a grid level, if there is one.

    Raises:
        OutOfTimeError: if the deadline has passed.
    """
    budget = levels.budgets[level]
    with suppress(BudgetError):
        order = Eviction(problem, budget, HEURISTICS[heuristic], deadline=deadline).run()
        recomputed = len(order) - len(problem.graph.operators)
        yield Candidate(
            "dtr", f"{counted(recomputed, 'recomputation')}, evicted by {heuristic}", order
        )


def plan_dtr(
    graph: Graph,
    costs: Costs,
    *,
    budget: int | None = None,
    heuristic: str = "dtr",
    time_limit: float = DEFAULT_SECONDS,
) -> Schedule:
    """Run the graph in build order within the budget, evicting online by a heuristic.

    Args:
        graph: the training graph.
        costs: costs of evaluations and sizes of values.
        budget: the peak to stay within, in the memory unit of the costs; if not given, half of
            store-all's peak, or the next feasible tenth of it. The run uses the nearest level of
            the budget grid below (see ``budget_grid``).
        heuristic: ``dtr``, ``e_star``, ``msps``, ``local``, ``lru`` or ``size``.
        time_limit: seconds after which the search is abandoned.

    Raises:
        PolicyOptionError: if there is no such heuristic.
        BudgetError: if an operator does not fit with the values that cannot be evicted; with the
            smallest peak of the levels above.
        OutOfTimeError: if the time limit passed.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(16)
    >>> schedule = tc.plan(graph, "dtr", budget="9 nodes", heuristic="lru")
    >>> tc.replay(schedule).peak_nodes
    9
    """
    if not isinstance(heuristic, str) or heuristic not in HEURISTICS:
        raise PolicyOptionError(
            f"dtr: unknown heuristic {heuristic!r:.80}; known: {', '.join(HEURISTICS)}"
            f"{did_you_mean(heuristic, HEURISTICS)}"
        )
    deadline = Clock(checked_seconds(time_limit))
    problem = problem_of(graph, costs)
    levels = build_budget_grid(problem, deadline)

    def planned(room: int) -> Candidate:
        if levels.highest <= room:
            return Candidate("dtr", "nothing is evicted", range(len(graph.operators)))
        return plan_at_nearest_level(
            levels,
            room,
            lambda level: dtr_candidates(problem, levels, level, heuristic, deadline),
            problem,
        )

    best = first_feasible(levels.highest, planned, budget)
    return lower(graph, best.order, "dtr", {"heuristic": heuristic}, best.detail)


DTR = Policy(
    "dtr",
    plan_dtr,
    "evict online by (cost of recomputing) / (memory x staleness), knowing no future",
    "a heuristic, online; O(n) evaluations in O(sqrt(n)) memory on chains (its theorem 3.1)",
    "O(n) evictions, each over what is resident",
    "Kirisame et al. 2021, arXiv 2006.09616",
)
