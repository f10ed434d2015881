"""How fast the planners plan, beside the peers that are installed, and how good the plans are.

Speed: Revolve's actions as a list beside ``checkpoint_schedules`` (Multistage) and ``pyrevolve``;
the whole schedule of a chain, with every free; Rotor; sqrt(n) on 100,000 operators.

Quality: under half of store-all's peak, what ``plan(budget=...)`` finds in its time limit, beside
the best that any planner finds in LONG seconds a network, AP sqrt(n), AP greedy (Checkmate's names
for Chen's two policies on the separators of any graph), and the lower bound.

    pip install checkpoint-schedules pyrevolve ortools
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import table

import tinyckpt as tc
from tinyckpt.bounds import cost_bound
from tinyckpt.liveness import Problem
from tinyckpt.networks.shapes import SHAPES
from tinyckpt.policies.revolve import revolve_actions
from tinyckpt.policies.rotor import Table, unit_of
from tinyckpt.policies.stage_sizes import stage_sizes
from tinyckpt.search import Search
from tinyckpt.stages import stages, useful_cuts

ROUNDS = 5


def multistage(n: int, s: int) -> list[Any]:
    """Return checkpoint_schedules' schedule as a list."""
    from checkpoint_schedules import MultistageCheckpointSchedule

    schedule = MultistageCheckpointSchedule(n, s, 0)
    actions = []
    for action in schedule:
        actions.append(action)
        if type(action).__name__ == "EndForward" and schedule.max_n is None:
            schedule.finalize(n)
        if type(action).__name__ == "EndReverse":
            break
    return actions


def pyrevolve_actions(n: int, s: int) -> list[Any]:
    """Return pyrevolve's actions as a list."""
    from pyrevolve.schedulers import Action, CRevolve

    scheduler = CRevolve(s, n)
    actions = []
    while True:
        action = scheduler.next()
        actions.append(action)
        if action.type == Action.TERMINATE:
            return actions


def revolve_speed() -> str:
    """Return the table of Revolve and its peers."""
    body = []
    for n, s in ((100, 10), (1000, 32), (10_000, 100), (10_000, 13)):
        runners: dict[str, Callable[[], object]] = {
            "tinyckpt, actions": lambda n=n, s=s: revolve_actions(n, s),  # type: ignore[misc]
        }
        if importlib.util.find_spec("checkpoint_schedules"):
            runners["Multistage"] = lambda n=n, s=s: multistage(n, s)  # type: ignore[misc]
        if importlib.util.find_spec("pyrevolve"):
            runners["pyrevolve"] = lambda n=n, s=s: pyrevolve_actions(n, s)  # type: ignore[misc]
        graph = tc.networks.chain(n)
        runners["tinyckpt, plan(chain)"] = lambda g=graph, s=s: tc.plan(g, "revolve", slots=s)  # type: ignore[misc]
        seconds = table.interleaved(runners, ROUNDS)
        own = seconds["tinyckpt, actions"]
        body += [
            [f"{n}, {s}", name, f"{1e3 * statistics.median(times):.1f}",
             f"{table.median_ratio(own, times):.2f}"]
            for name, times in seconds.items()
        ]  # fmt: skip
    header = ["steps, slots", "planner", "ms, median of 5", "tinyckpt's actions take"]
    return table.rows(header, body)


def other_speed() -> str:
    """Return the table of Rotor and sqrt(n)."""
    body = []
    graph = tc.networks.mlp(199, 64, 512).graph()
    problem = Problem(graph, tc.cost.flops(graph))
    parts = stages(problem.flat, useful_cuts(problem.flat, problem.costs, 199))
    begin = perf_counter()
    sizes = stage_sizes(problem, parts)
    half = problem.peak(range(len(graph.operators))) // 2
    Table(sizes, unit_of(sizes, half, 200), 200)
    body.append(
        [f"rotor's table, {len(parts)} stages, 200 levels", f"{perf_counter() - begin:.2f}"]
    )
    for graph in (tc.networks.chain(50_000), tc.networks.residual_mlp(6000, 4).graph()):
        begin = perf_counter()
        tc.plan(graph, "sqrt_n")
        name = f"sqrt_n, {graph.name}, {len(graph.operators):,} operators"
        body.append([name, f"{perf_counter() - begin:.2f}"])
    return table.rows(["planner", "s"], body)


def transformer_speed() -> str:
    """Return the table of a 12-layer transformer at ten budgets."""
    graph = tc.networks.transformer().graph()
    costs = tc.cost.flops(graph)
    store_all = sum(costs.operators)
    largest = tc.replay(tc.plan(graph)).peak_bytes
    body = []
    for percent in (95, 90, 80, 70, 60, 55, 50, 45, 40, 36):
        begin = perf_counter()
        schedule = tc.plan(graph, budget=f"{percent} %", costs=costs)
        seconds = perf_counter() - begin
        certificate = schedule.certificate
        assert certificate is not None
        peak = tc.replay(schedule).peak_bytes
        body.append(
            [f"{percent} %", f"{seconds:.1f}", f"{100 * peak / largest:.1f} %",
             f"{certificate.cost / store_all:.4f}", f"{certificate.lower_bound / store_all:.4f}",
             schedule.policy]
        )  # fmt: skip
    header = ["budget", "s", "peak", "cost / store-all", "lower bound", "found by"]
    return table.rows(header, body)


def ap_greedy(graph: tc.Graph, costs: tc.Costs, budget: int) -> float | None:
    """Return the cost of Chen's greedy segments at the separators, if they fit."""
    try:
        certificate = tc.plan(graph, "chen_budget", costs=costs, budget=budget).certificate
    except tc.BudgetError:
        return None
    assert certificate is not None
    return certificate.cost


def ap_sqrt(graph: tc.Graph, costs: tc.Costs, budget: int) -> float | None:
    """Return the cost of sqrt(n) at the separators, if it fits."""
    schedule = tc.plan(graph, "sqrt_n", costs=costs)
    if tc.replay(schedule).peak_bytes > budget:
        return None
    return tc.certify(schedule, costs).cost


def quality(long: float) -> str:
    """Return the table of plans under half of store-all's peak."""
    body = []
    for name, network in SHAPES.items():
        graph = network()
        costs = tc.cost.flops(graph)
        store_all = sum(costs.operators)
        budget = tc.replay(tc.plan(graph)).peak_bytes // 2
        begin = perf_counter()
        try:
            schedule = tc.plan(graph, budget=budget, costs=costs)
        except tc.BudgetError as error:
            body.append([name, "", "infeasible", "", "", "", "", str(error).split(": ", 1)[1]])
            continue
        seconds = perf_counter() - begin
        assert schedule.certificate is not None
        found = schedule.certificate.cost
        best, by = best_of_all(graph, costs, budget, long, schedule)
        bound = cost_bound(graph, costs, budget)
        others = [ap_sqrt(graph, costs, budget), ap_greedy(graph, costs, budget)]
        body.append(
            [name, f"{seconds:.1f}", f"{found / store_all:.4f}", f"{best / store_all:.4f}",
             f"{found / best:.4f}",
             *("does not fit" if cost is None else f"{cost / best:.3f}" for cost in others),
             f"lower bound {bound / store_all:.4f}; best by {by}"]
        )  # fmt: skip
        print(body[-1])
    header = [
        "network", "s", "plan(budget) / store-all", "best of all / store-all",
        "plan(budget) / best", "AP sqrt(n) / best", "AP greedy / best", "",
    ]  # fmt: skip
    return table.rows(header, body)


def best_of_all(
    graph: tc.Graph, costs: tc.Costs, budget: int, seconds: float, first: tc.Schedule
) -> tuple[float, str]:
    """Return the least cost that any planner finds in so many seconds, and which planner that is.

    A quarter of the time goes to the solver, the rest to the portfolio with random restarts at this
    very budget.
    """
    assert first.certificate is not None
    best, by = first.certificate.cost, first.policy
    problem = Problem(graph, costs)
    for policy in tc.POLICIES.values():
        options = policy.plan.__kwdefaults__ or {}
        if "budget" not in options:
            continue
        extra = {"time_limit": seconds / 4} if "time_limit" in options else {}
        try:
            schedule = tc.plan(graph, policy, costs=costs, budget=budget, **extra)
        except (tc.BudgetError, tc.BackendError):
            continue
        assert schedule.certificate is not None
        if schedule.certificate.cost < best:
            best, by = schedule.certificate.cost, policy.name
    search = Search(graph, costs)
    end = perf_counter() + seconds * 3 / 4
    for policy_name, detail, order in search.at(budget):
        if problem.peak(order) <= budget and problem.cost_of(order) < best:
            best, by = problem.cost_of(order), f"{policy_name}, {detail}"
        if perf_counter() > end:
            break
    return best, by


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", type=float, default=600.0, help="seconds for the best of all")
    arguments = parser.parse_args()
    sections = [
        revolve_speed(),
        other_speed(),
        "A transformer of 12 layers at ten budgets, FLOPs; the first answer holds the search:",
        transformer_speed(),
        f"Half of store-all's peak, FLOPs; the best of all planners in {arguments.long:.0f} s:",
        quality(arguments.long),
    ]
    packages = ["numpy", "ortools", "checkpoint-schedules", "pyrevolve"]
    table.write("planners", "How fast and how well the planners plan", sections, packages)
