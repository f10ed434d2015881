"""Dynamic tensor rematerialization: evict online, by a heuristic, as if the future were unknown.

Source: M. Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021, arXiv 2006.09616, with
the heuristics of its section 4.1. The value with the lowest score goes; m is its memory, s the time
since it was last asked for, c0 the cost of its operator, and e* the evicted values that would have
to be computed again with it: evicted ancestors through evicted ones, and evicted descendants
through evicted ones.

    dtr    (c0 + c0 of e*) / (m s)
    e_star (c0 + c0 of e*) / m           the one that theorem 3.1 is about
    msps   (c0 + c0 of the ancestors in e*) / m
    local  c0 / (m s)
    lru    1 / s
    size   1 / m

Time is the cost of what was evaluated; of equals the latest goes. A value is asked for when the
operator that reads it is, before anything missing is computed. The program frees what it does not
read again. Not here: the union-find approximation of e*, which only makes the same choice faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tinyckpt.base.deadline import DEFAULT_SECONDS, ENDLESS, Clock, checked_seconds
from tinyckpt.base.errors import BudgetError, PolicyOptionError, meant
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order, kept_values
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.heuristics.budget_grid import (
    Candidate,
    Levels,
    first_that_fits,
    levels_of,
    nearest,
)
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.heuristics.eviction_heuristics import (
    Cost,
    EvictionState,
    Score,
    memory,
    recompute_cost,
)
from tinyckpt.planner.model.liveness import Problem


def entangled_cost(run: EvictionState, data: int, most: float) -> Cost:
    """Return c0 plus that of e*, and the operators.

    Beyond ``most`` the exact sum is of no interest, and what has been summed up is returned.
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


def local_recompute_cost(run: EvictionState, data: int, most: float) -> Cost:
    """Return c0."""
    return run.cost[run.producer[data]], set()


def one(run: EvictionState, data: int, most: float) -> Cost:
    """Return 1, for a score that regards no costs."""
    return 1.0, set()


def staleness(run: EvictionState, data: Any) -> Any:
    """Return the time since values were last asked for."""
    return run.clock - run.last_access[data]


def memory_and_staleness(run: EvictionState, data: Any) -> Any:
    """Return m s."""
    return run.sizes[data] * staleness(run, data)


HEURISTICS: dict[str, Score] = {
    "dtr": Score(entangled_cost, memory_and_staleness, falls=True),
    "e_star": Score(entangled_cost, memory),
    "msps": Score(recompute_cost, memory),
    "local": Score(local_recompute_cost, memory_and_staleness, falls=True),
    "lru": Score(one, staleness, own=False, falls=True),
    "size": Score(one, memory, own=False),
}


def dtr_at(
    problem: Problem, levels: Levels, level: int, heuristic: str = "dtr", deadline: Clock = ENDLESS
) -> Iterator[Candidate]:
    """Yield the plan for the budget of a level, if there is one.

    Raises:
        OutOfTimeError: if the deadline has passed.
    """
    budget = levels.budgets[level]
    with suppress(BudgetError):
        order = Eviction(problem, budget, HEURISTICS[heuristic], deadline=deadline).run()
        recomputed = len(order) - len(problem.graph.operators)
        yield Candidate("dtr", f"{recomputed} recomputations, evicted by {heuristic}", order)


def plan_dtr(
    graph: Graph,
    costs: Costs,
    *,
    budget: int | None = None,
    heuristic: str = "dtr",
    time_limit: float = DEFAULT_SECONDS,
) -> Schedule:
    """Run the graph in build order within the budget, evicting by a heuristic.

    Args:
        graph: the training graph.
        costs: what evaluations cost and values weigh.
        budget: the peak to stay within, in the memory unit of the costs; if not given, half of
            store-all's peak, or the next tenth of it that is feasible. The run is in the nearest
            level of memory below (see ``levels``).
        heuristic: ``dtr``, ``e_star``, ``msps``, ``local``, ``lru`` or ``size``.
        time_limit: seconds after which it is given up.

    Raises:
        PolicyOptionError: if there is no such heuristic.
        BudgetError: if an operator does not fit beside what it cannot do without; with the
            smallest peak of the levels above.
        OutOfTimeError: if the time is up.
    """
    if not isinstance(heuristic, str) or heuristic not in HEURISTICS:
        raise PolicyOptionError(
            f"dtr: unknown heuristic {heuristic!r:.80}; known: {', '.join(HEURISTICS)}"
            f"{meant(heuristic, HEURISTICS)}"
        )
    deadline = Clock(checked_seconds(time_limit))
    problem = Problem(graph, costs)
    levels = levels_of(problem, deadline)

    def planned(room: int) -> Candidate:
        if levels.highest <= room:
            return Candidate("dtr", "nothing is evicted", range(len(graph.operators)))
        return nearest(
            levels, room, lambda level: dtr_at(problem, levels, level, heuristic, deadline), problem
        )

    best = first_that_fits(levels.highest, planned, budget)
    kept = kept_values(graph, best.order)
    return from_order(graph, best.order, "dtr", {"heuristic": heuristic}, best.detail, kept)


DTR = Policy(
    "dtr",
    plan_dtr,
    "evict online by (cost of recomputing) / (memory x staleness), knowing no future",
    "a heuristic, online; O(n) evaluations in O(sqrt(n)) memory on chains (its theorem 3.1)",
    "O(n) evictions, each over what is resident",
    "Kirisame et al. 2021, arXiv 2006.09616",
)
