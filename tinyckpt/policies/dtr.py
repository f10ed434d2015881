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

from math import inf
from typing import Any

from tinyckpt.analysis.liveness import Problem
from tinyckpt.cost import Costs
from tinyckpt.errors import BudgetError, ScheduleError
from tinyckpt.graph import Graph
from tinyckpt.orders.eviction import Eviction, Score
from tinyckpt.orders.lowering import from_order, kept_values
from tinyckpt.policies.policy import Policy
from tinyckpt.schedule import Schedule


def evicted_neighbourhood(
    run: Eviction, data: int, most: float = inf, both_ways: bool = True
) -> float:
    """Return the cost of the evicted values that a value is entangled with, itself not included.

    Beyond ``most`` the exact sum is of no interest, and infinity is returned.
    """
    own = run.producer[data]
    operators = {own}
    todo = [own]
    total = 0.0
    while todo:
        for value in run.inputs[todo.pop()]:
            producer = run.producer[value]
            if not run.resident[value] and producer not in operators:
                operators.add(producer)
                todo.append(producer)
                total += run.cost[producer]
        if total > most:
            return inf
    if both_ways:
        total = 0.0
        seen = {own}
        todo = [own]
        while todo:
            for value in run.outputs[todo.pop()]:
                for reader in run.consumers[value]:
                    if reader in seen or not run.computed[reader]:
                        continue
                    if not any(run.resident[made] for made in run.outputs[reader]):
                        seen.add(reader)
                        todo.append(reader)
                        total += run.cost[reader]
            if total > most:
                return inf
        operators |= seen
    return sum(run.cost[operator] for operator in operators) - run.cost[own]


def entangled_cost(run: Eviction, data: int, most: float) -> float:
    """Return c0 plus that of e*."""
    own = run.cost[run.producer[data]]
    return own + evicted_neighbourhood(run, data, most - own)


def ancestors_cost(run: Eviction, data: int, most: float) -> float:
    """Return c0 plus that of the ancestors in e*."""
    own = run.cost[run.producer[data]]
    return own + evicted_neighbourhood(run, data, most - own, both_ways=False)


def own_cost(run: Eviction, data: int, most: float) -> float:
    """Return c0."""
    return run.cost[run.producer[data]]


def one(run: Eviction, data: int, most: float) -> float:
    """Return 1, for a score that regards no costs."""
    return 1.0


def staleness(run: Eviction, data: Any) -> Any:
    """Return the time since values were last asked for."""
    return run.clock - run.last_access[data]


def memory(run: Eviction, data: Any) -> Any:
    """Return the memory that goes with values."""
    return run.sizes[data]


def memory_and_staleness(run: Eviction, data: Any) -> Any:
    """Return m s."""
    return run.sizes[data] * staleness(run, data)


HEURISTICS: dict[str, Score] = {
    "dtr": Score(entangled_cost, memory_and_staleness),
    "e_star": Score(entangled_cost, memory),
    "msps": Score(ancestors_cost, memory),
    "local": Score(own_cost, memory_and_staleness),
    "lru": Score(one, staleness, own=False),
    "size": Score(one, memory, own=False),
}


def plan_dtr(
    graph: Graph, costs: Costs, *, budget: int | None = None, heuristic: str = "dtr"
) -> Schedule:
    """Run the graph in build order within the budget, evicting by a heuristic.

    Args:
        graph: the training graph.
        costs: what evaluations cost and values weigh.
        budget: the peak to stay within, in the memory unit of the costs; if not given, half of
            store-all's peak, or the next tenth of it that is feasible.
        heuristic: ``dtr``, ``e_star``, ``msps``, ``local``, ``lru`` or ``size``.

    Raises:
        ScheduleError: if there is no such heuristic.
        BudgetError: if an operator does not fit beside what it cannot do without.
    """
    if not isinstance(heuristic, str) or heuristic not in HEURISTICS:
        raise ScheduleError(f"dtr: unknown heuristic {heuristic!r}; known: {', '.join(HEURISTICS)}")
    problem = Problem(graph, costs)
    if budget is None:
        order = first_feasible(problem, heuristic)
    else:
        order = Eviction(problem, budget, HEURISTICS[heuristic]).run()
    note = f"{len(order) - len(graph.operators)} recomputations, evicted by {heuristic}"
    options = {"heuristic": heuristic}
    return from_order(graph, order, "dtr", options, note, kept_values(graph, order))


def first_feasible(problem: Problem, heuristic: str) -> list[int]:
    """Return the order within half of store-all's peak, or the next tenth of it that suffices."""
    peak = problem.peak(range(len(problem.graph.operators)))
    for tenth in range(5, 10):
        try:
            return Eviction(problem, peak * tenth // 10, HEURISTICS[heuristic]).run()
        except BudgetError:
            continue
    return Eviction(problem, peak, HEURISTICS[heuristic]).run()


DTR = Policy(
    "dtr",
    plan_dtr,
    "evict online by (cost of recomputing) / (memory x staleness), knowing no future",
    "a heuristic, online; O(n) evaluations in O(sqrt(n)) memory on chains (its theorem 3.1)",
    "O(n) evictions, each over what is resident",
    "Kirisame et al. 2021, arXiv 2006.09616",
)
