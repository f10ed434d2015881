"""Planners of the leaderboard, each a command that reads a graph and writes a schedule.

    python -m benchmarks.leaderboard.planners NAME GRAPH BUDGET SECONDS SCHEDULE

The graph is the text of ``instances.text_of``, the budget bytes; the schedule is lines ``compute
ID`` and ``free ID``. The last line printed is what the planner says, as JSON: a few words, and a
lower bound on the cost of every schedule within the budget where it has proven one. A planner that
finds nothing writes no schedule. Nothing here has the name of the instance.

Where a planner is somebody else's, what runs is this project's implementation of the publication,
but for ``checkpoint_schedules``, a package (1.0.4 was run), which is not installed with any extra.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd, inf
from operator import itemgetter
from pathlib import Path
from time import monotonic

import tinyckpt as tc
from benchmarks.leaderboard.instances import Instance, chain, graph_of, parsed


@dataclass(frozen=True, slots=True)
class Found:
    """What a planner found: a schedule, if any; what it says; a bound that it has proven."""

    schedule: tc.Schedule | None
    said: str
    bound: float | None = None


Planner = Callable[[Instance, int, float], Found]


def portfolio(order: str) -> Planner:
    """Return ``tc.plan`` within a budget: all planners of this project but the solver."""

    def run(instance: Instance, budget: int, seconds: float) -> Found:
        graph = graph_of(instance)
        try:
            schedule = tc.plan(graph, budget=budget, time_limit=seconds, order=order, improve=True)
        except tc.BudgetError as error:
            return Found(None, str(error))
        certificate = schedule.certificate
        said = f"{certificate.status}, by {schedule.policy}"
        return Found(schedule, said, certificate.lower_bound)

    return run


def policy(name: str, takes_budget: bool = True, reverses: bool = True) -> Planner:
    """Return a policy of this project by itself.

    Args:
        name: of the policy.
        takes_budget: whether it takes one; else its only schedule may be over it.
        reverses: whether it plans backward passes alone.
    """

    def run(instance: Instance, budget: int, seconds: float) -> Found:
        graph = graph_of(instance)
        if reverses and not any(instance.backward):
            return Found(None, "needs a backward pass")
        try:
            if not takes_budget:
                return Found(tc.plan(graph, name), "takes no budget")
            return Found(tc.plan(graph, name, budget=budget, time_limit=seconds), "")
        except tc.BudgetError as error:
            return Found(None, str(error))

    return run


def online(heuristic: str) -> Planner:
    """Return DTR within this very budget, by one of its heuristics."""

    def run(instance: Instance, budget: int, seconds: float) -> Found:
        from tinyckpt.base.deadline import Clock
        from tinyckpt.planner.heuristics.dtr import HEURISTICS
        from tinyckpt.planner.heuristics.eviction import Eviction
        from tinyckpt.planner.model.liveness import Problem

        graph = graph_of(instance)
        problem = Problem(graph, tc.cost.given(graph))
        try:
            order = Eviction(problem, budget, HEURISTICS[heuristic], deadline=Clock(seconds)).run()
        except tc.BudgetError as error:
            return Found(None, str(error))
        return Found(tc.from_order(graph, order), "")

    return run


def knapsack(instance: Instance, budget: int, seconds: float) -> Found:
    """Run PyTorch's knapsack at eight settings: the cheapest of its schedules within the budget."""
    graph, begin = graph_of(instance), monotonic()
    costs = tc.cost.given(graph)
    if not any(instance.backward):
        return Found(None, "needs a backward pass")
    known: list[tuple[float, tc.Schedule]] = []
    tried = 0
    for part in range(8):
        if part and (monotonic() - begin) * (part + 1) / part > seconds:
            break
        tried += 1
        schedule = tc.plan(graph, "knapsack", activation_memory_budget=part / 8)
        if tc.replay(schedule).peak_bytes <= budget:
            known.append((tc.cost.cost_of(schedule, costs), schedule))
    best = min(known, key=itemgetter(0))[1] if known else None
    return Found(best, f"{len(known)} of {tried} settings are within the budget")


def revolve_of_others(instance: Instance, budget: int, seconds: float) -> Found:
    """Run Revolve of the package checkpoint_schedules, with as many slots as the budget allows."""
    layers = len(instance.costs) // 2
    if instance != chain(layers):
        return Found(None, "plans chains of equal steps alone")
    graph = graph_of(instance)
    for slots in range(layers - 1, 0, -1):
        schedule = tc.from_order(graph, order_of_actions(layers, slots))
        if tc.replay(schedule).peak_bytes <= budget:
            return Found(schedule, f"{slots} slots")
    return Found(None, "no number of slots is within the budget")


def order_of_actions(layers: int, slots: int) -> list[int]:
    """Return the operators that the actions of checkpoint_schedules evaluate on a chain."""
    from checkpoint_schedules import EndForward, EndReverse, Forward, Reverse, Revolve

    order: list[int] = []
    for action in Revolve(layers, slots):
        if isinstance(action, EndReverse):
            break
        if isinstance(action, Forward):
            order += range(action.n0, action.n1)
        elif isinstance(action, EndForward):
            order.append(layers)
        elif isinstance(action, Reverse):
            order += range(2 * layers + 1 - action.n1, 2 * layers + 1 - action.n0)
    return order


def optimal(instance: Instance, budget: int, seconds: float) -> Found:
    """Run policy ``optimal``: the solver's plan over all schedules, and its bound."""
    graph = graph_of(instance)
    try:
        schedule = tc.plan(graph, "optimal", budget=budget, time_limit=seconds)
    except tc.BudgetError as error:
        bound = inf if "which is proven" in str(error) else None
        return Found(None, str(error), bound)
    return Found(schedule, schedule.certificate.status, schedule.certificate.lower_bound)


def moccasin(workers: int) -> Planner:
    """Return Moccasin's model, for a number of the solver's workers; sizes and costs are divided by
    their common divisors, as its authors do.
    """

    def run(instance: Instance, budget: int, seconds: float) -> Found:
        from benchmarks.moccasin import moccasin as solve

        size, cost = gcd(*instance.sizes), gcd(*instance.costs) or 1
        smaller = replace(
            instance,
            costs=tuple(each // cost for each in instance.costs),
            sizes=tuple(each // size for each in instance.sizes),
        )
        outcome = solve(graph_of(smaller), budget // size, seconds, workers=workers)
        if not outcome.order:
            return Found(None, f"nothing found: {outcome.status}")
        said = "proven in its class" if outcome.status == "OPTIMAL" else outcome.status
        return Found(tc.from_order(graph_of(instance), outcome.order), said)

    return run


def checkmate(instance: Instance, budget: int, seconds: float) -> Found:
    """Run Checkmate's mixed-integer program."""
    from benchmarks.leaderboard.checkmate import TooLargeError
    from benchmarks.leaderboard.checkmate import checkmate as solve

    try:
        order, said = solve(instance, budget, seconds)
    except TooLargeError as error:
        return Found(None, f"refused: {error}")
    return Found(tc.from_order(graph_of(instance), order) if order else None, said)


# The cheap ones first. On one processor CP-SAT's eight workers take turns: other searches than one.
PLANNERS: dict[str, Planner] = {
    "sqrt_n": policy("sqrt_n", takes_budget=False),
    "chen_budget": policy("chen_budget"),
    "chen_recursive": policy("chen_recursive", takes_budget=False),
    "revolve": policy("revolve"),
    "checkpoint_schedules": revolve_of_others,
    "rotor": policy("rotor"),
    "knapsack": knapsack,
    "dtr": online("dtr"),
    "greedy": policy("greedy", reverses=False),
    "blocks": policy("blocks"),
    "tinyckpt": portfolio("free"),
    "tinyckpt-given": portfolio("given"),
    "moccasin-1": moccasin(workers=1),
    "moccasin-8": moccasin(workers=8),
    "checkmate": checkmate,
    "optimal": optimal,
}


def text_of(schedule: tc.Schedule) -> str:
    """Return the text of a schedule."""
    lines = [
        f"compute {step.operator}" if isinstance(step, tc.Compute) else f"free {step.data}"
        for step in schedule.steps
        if isinstance(step, tc.Compute | tc.Free)
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Plan one instance."""
    name, graph, budget, seconds, target = arguments
    instance = parsed(Path(graph).read_text(encoding="utf-8"))
    found = PLANNERS[name](instance, int(budget), float(seconds))
    if found.schedule is not None:
        Path(target).write_text(text_of(found.schedule), encoding="utf-8")
    bound = None if found.bound is None or found.bound == inf else found.bound
    said = {"said": found.said, "bound": bound, "infeasible": found.bound == inf}
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1:])
