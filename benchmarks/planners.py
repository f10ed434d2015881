"""Benchmark: run time of the planners, against checkpoint_schedules and pyrevolve.

Revolve on a chain: its actions as a list, which is what ``checkpoint_schedules`` (Multistage) and
``pyrevolve`` give, and the whole schedule of the graph, with every step and every free; Rotor;
sqrt(n) on 100,000 operators; a transformer at ten budgets. How good the plans are: budgets.py.

    pip install checkpoint-schedules pyrevolve
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import table

import tinyckpt as tc
from tinyckpt.planner.chain_dp.revolve import reversal
from tinyckpt.planner.chain_dp.rotor import RotorTable, unit_of
from tinyckpt.planner.model.chain_cuts import residual_cuts
from tinyckpt.planner.model.chain_stages import stages
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.stage_sizes import stage_sizes

ROUNDS = 9


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
            "tinyckpt, actions": lambda n=n, s=s: list(reversal(n, s)),  # type: ignore[misc]
        }
        if importlib.util.find_spec("checkpoint_schedules"):
            runners["Multistage"] = lambda n=n, s=s: multistage(n, s)  # type: ignore[misc]
        if importlib.util.find_spec("pyrevolve"):
            runners["pyrevolve"] = lambda n=n, s=s: pyrevolve_actions(n, s)  # type: ignore[misc]
        graph = tc.networks.chain(n)
        runners["tinyckpt, schedule"] = lambda g=graph, s=s: tc.plan(g, "revolve", slots=s)  # type: ignore[misc]
        seconds = table.interleaved(runners, ROUNDS)
        actions, schedule = seconds["tinyckpt, actions"], seconds["tinyckpt, schedule"]
        body += [
            [f"{n}, {s}", name, f"{1e3 * statistics.median(times):.1f}",
             f"{table.median_ratio(actions, times):.2f}",
             f"{table.median_ratio(schedule, times):.2f}"]
            for name, times in seconds.items()
        ]  # fmt: skip
    header = [
        "steps, slots", "planner", f"ms, median of {ROUNDS}",
        "of this, tinyckpt's actions take", "tinyckpt's schedule takes",
    ]  # fmt: skip
    return table.rows(header, body)


def other_speed() -> str:
    """Return the table of Rotor and sqrt(n)."""
    body = []
    graph = tc.networks.mlp(199, 64, 512).graph()
    problem = Problem(graph, tc.cost.flops(graph))
    parts = stages(problem.flat, residual_cuts(problem.flat, problem.costs, 199))
    begin = perf_counter()
    sizes = stage_sizes(problem, parts)
    half = problem.peak(range(len(graph.operators))) // 2
    RotorTable(sizes, unit_of(sizes, half, 200), 200)
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


if __name__ == "__main__":
    sections = [
        revolve_speed(),
        other_speed(),
        "A transformer of 12 layers at ten budgets, FLOPs; the first answer holds the search:",
        transformer_speed(),
    ]
    packages = ["numpy", "checkpoint-schedules", "pyrevolve"]
    table.write("planners", "How fast the planners plan", sections, packages)
