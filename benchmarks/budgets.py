"""Benchmark: plan cost at half the store-all peak, against other planners and a lower bound.

``plan(budget=...)`` in its time limit, against the best of all planners in LONG seconds per
network, AP sqrt(n), AP greedy (Checkmate's names for Chen's two policies on the separators of any
graph), and the lower bound.

    pip install ortools
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random
from time import perf_counter

import table

import tinyckpt as tc
from tinyckpt.networks.cnn_graphs import SHAPES
from tinyckpt.planner.heuristics.drop_recomputes import drop_redundant_recomputes
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.heuristics.greedy import greedy_orders, greedy_settings
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import cost_bound
from tinyckpt.planner.portfolio.candidates import random_score


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
        bound = cost_bound(Problem(graph, costs), budget)
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
        if schedule.certificate is None:
            continue  # it moves values to the host, and so is no plan for one device
        if schedule.certificate.cost < best:
            best, by = schedule.certificate.cost, policy.name
    end = perf_counter() + seconds * 3 / 4
    for detail, order in endless_orders(problem, budget):
        if problem.peak(order) <= budget and problem.cost_of(order) < best:
            best, by = problem.cost_of(order), f"greedy, {detail}"
        if perf_counter() > end:
            break
    return best, by


def endless_orders(problem: Problem, budget: int) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield orders for one budget, without end: greedy eviction, then random restarts."""
    settings = greedy_settings(problem)
    for _, label, order in greedy_orders(problem, budget, settings):
        yield f"evicted by {label}", order
    random = Random(0)
    while True:
        score = random_score(random, len(problem.graph.data))
        _, _, sequence, anchors = random.choice(settings)
        with suppress(tc.BudgetError):
            order = Eviction(problem, budget, score, sequence, anchors).run()
            pruned = drop_redundant_recomputes(problem, order, budget)
            yield "evicted with random weights", pruned


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", type=float, default=600.0, help="seconds for the best of all")
    arguments = parser.parse_args()
    sections = [
        f"Half of store-all's peak, FLOPs; the best of all planners in {arguments.long:.0f} s:",
        quality(arguments.long),
    ]
    table.write("budgets", "How good plans are under a budget", sections, ["numpy", "ortools"])
