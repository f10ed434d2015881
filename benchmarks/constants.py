"""Benchmark: sensitivity of the planners to their numeric constants, each doubled and halved.

Each constant is tried with the planner that reads it, at seven shares of store-all's peak: Rotor,
Rockmate's blocks, Chen's budget and greedy eviction on networks, the portfolio on networks and on a
layered graph, whose local search it is, policy `optimal` on small ones, and offloading. The table
compares with the constants as they stand: the cost of the plans, on average, at least and at most;
the budgets at which a plan appears or is lost; the time. Figures in the comments beside constants
("Doubled: ...") come from here.

    python -m benchmarks.constants [NAME ...] [--factors 2] [--notes FILE]
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import tinyckpt as tc
from benchmarks import table
from tests.layered_graphs import layered_graph

PLANNER = Path(tc.__file__).parent / "planner"
SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
NETWORKS: dict[str, Callable[[], tc.Graph]] = {
    "chain of 100": lambda: tc.networks.chain(100),
    "transformer of 6 layers": lambda: tc.networks.transformer(6, 64).graph(),
    "ResNet-50": lambda: tc.networks.resnet50(),
    "U-Net": lambda: tc.networks.unet(),
}
# Planned in a minute by Rockmate's dynamic program; ResNet-50 takes an hour.
BLOCKS = {"chain of 50": lambda: tc.networks.chain(50), "U-Net": NETWORKS["U-Net"]}
SMALL: dict[str, Callable[[], tc.Graph]] = {
    "chain of 12": lambda: tc.networks.chain(12),
    "residual MLP of 3": lambda: tc.networks.residual_mlp(3, 16).graph(),
    "branching of 2": lambda: tc.networks.branching(2).graph(),
}
LAYERED: dict[str, Callable[[], tc.Graph]] = {
    "100 layered operators": lambda: layered_graph(100),
    "40 layered operators": lambda: layered_graph(40, 1),
}
# Planned with a host to which values may move, over a link of 25 GB/s for 10 TFLOP/s.
HOST, LINK = "with a host", tc.Link(2.5e-3)
HOSTED: dict[str, Callable[[], tc.Graph]] = {
    "chain of 7": lambda: tc.networks.chain(7),
    "transformer of 2 layers": lambda: tc.networks.transformer(2, 64).graph(),
    "ResNet-50": NETWORKS["ResNet-50"],
}
# The planner that reads the constants of a module, and the graphs that it is tried on: a policy, or
# None for the portfolio. The first module whose name begins so counts.
TRIED: tuple[tuple[str, str | None, dict[str, Callable[[], tc.Graph]]], ...] = (
    ("chain_dp.rotor", "rotor", NETWORKS),
    ("chain_dp.chain_table", "rotor", NETWORKS),
    ("chain_dp.chen_budget", "chen_budget", NETWORKS),
    ("chain_dp.revolve", "revolve", {"chain of 100": NETWORKS["chain of 100"]}),
    ("chain_dp", "blocks", BLOCKS),
    ("exact.offload_astar", HOST, HOSTED),
    ("exact", "optimal", SMALL),
    ("heuristics.local_search", None, LAYERED),
    ("heuristics.beam_toposort", None, LAYERED),
    ("heuristics.knapsack", "knapsack", NETWORKS),
    ("heuristics", "greedy", NETWORKS),
    ("portfolio.forward_only", None, LAYERED),
    ("model.link", HOST, HOSTED),
    ("offload", HOST, HOSTED),
    ("portfolio.plan_with_host", HOST, HOSTED),
    ("portfolio.offload_candidates", HOST, HOSTED),
    ("", None, {**SMALL, "transformer of 6 layers": NETWORKS["transformer of 6 layers"]}),
)
# Counts of what is there, and places in tables, which nothing else than that number can be.
COUNTS = ("LIVE_IN_OPERATORS", "HOST")
# What is shown of plans, and no plan, follows from the constants of these.
SHOWING = ("portfolio.explain", "portfolio.precomputed_choices")
SECONDS = {"optimal": 5.0, HOST: 5.0, None: 20.0}
LIMITED = (
    "`optimal`, and the planner with a host, whose cost is the makespan, have 5 seconds a budget, "
    "and the portfolio 20 a graph, so that their plans depend on "
    "the speed of the machine, too: what ends just in time, or just not, costs up to a fifth more."
)
Figures = dict[str, Any]


def constants() -> dict[str, str]:
    """Return the modules of the planner's numeric constants, by name; sentinels are left out."""
    found = {}
    for path in sorted(PLANNER.rglob("*.py")):
        module = ".".join(path.relative_to(PLANNER.parent.parent).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign):
                names = getattr(node.targets[0], "elts", node.targets)
                for name in map(ast.unparse, names):
                    value = getattr(importlib.import_module(module), name)
                    if name.isupper() and name not in COUNTS and is_tunable(value):
                        assert name not in found, f"{name} is in {found[name]} and in {module}"
                        found[name] = module
    return found


def is_tunable(value: Any) -> bool:
    """Whether a value is a number or numbers, and no sentinel: negative or beyond any count."""
    if isinstance(value, tuple):
        return bool(value) and all(map(is_tunable, value))
    return type(value) in (int, float) and 0 < value < 1 << 40


def scaled(value: Any, factor: float) -> Any:
    """Return a constant times a factor; integers stay integers of 1 or more."""
    if isinstance(value, tuple):
        return tuple(scaled(each, factor) for each in value)
    return max(1, round(value * factor)) if type(value) is int else value * factor


@contextmanager
def changed(name: str, module: str, factor: float) -> Iterator[None]:
    """Scale a constant in each module that has imported it."""
    value = getattr(sys.modules[module], name)
    users = [
        user for key, user in sys.modules.items()
        if key.startswith("tinyckpt.planner") and getattr(user, name, None) is value
    ]  # fmt: skip
    try:
        for user in users:
            setattr(user, name, scaled(value, factor))
        yield
    finally:
        for user in users:
            setattr(user, name, value)


def measured(policy: str | None, graphs: dict[str, Callable[[], tc.Graph]]) -> Figures:
    """Return, for each graph, its costs at the budgets, and the seconds."""
    found: Figures = {}
    for name, make in graphs.items():
        graph = make()
        costs = tc.cost.given(graph) if graphs is LAYERED else tc.cost.flops(graph)
        if name.startswith("chain") and policy != HOST:
            costs = tc.cost.evaluations(graph)
        peak = tc.replay(tc.plan(graph)).peak_bytes
        begin = perf_counter()
        paid: list[float | None] = []
        limit: dict[str, Any] = {"time_limit": SECONDS[policy]} if policy in SECONDS else {}
        frontier = tc.frontier(graph, costs, **limit) if policy is None else None
        for share in SHARES:
            budget = int(share * peak)
            # The knapsack bounds what is saved, not the peak.
            is_share = policy == "knapsack"
            own = {"activation_memory_budget": share} if is_share else {"budget": budget, **limit}
            try:
                if policy == HOST:
                    planned = tc.plan_with_host(graph, LINK, costs=costs, **own)
                    paid.append(float(tc.timed(planned, LINK, costs, budget=budget).makespan))
                elif frontier is None:
                    schedule = tc.plan(graph, policy, costs=costs, **own)
                    paid.append(tc.certify(schedule, costs).cost)
                else:
                    paid.append(frontier.within(budget).cost)
            except tc.BudgetError:
                paid.append(None)
        found[name] = {"costs": paid, "seconds": perf_counter() - begin}
    return found


def against(new: Figures, old: Figures) -> list[str]:
    """Return the cells of a row: how figures differ from those of the constants as they stand."""
    ratios, gained, lost = [], 0, 0
    for name, figures in new.items():
        for cost, before in zip(figures["costs"], old[name]["costs"], strict=True):
            if cost and before:
                ratios.append(cost / before)
            gained += cost is not None and before is None
            lost += cost is None and before is not None
    seconds = [sum(each["seconds"] for each in figures.values()) for figures in (new, old)]
    return [
        f"{100 * (sum(ratios) / len(ratios) - 1):+.2f} %",
        f"{100 * (min(ratios) - 1):+.2f} %",
        f"{100 * (max(ratios) - 1):+.2f} %",
        f"{gained - lost:+d}" if gained or lost else "",
        f"{seconds[0] / seconds[1]:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="constants; default: all")
    parser.add_argument("--factors", nargs="*", type=float, default=(2.0, 0.5))
    parser.add_argument("--notes", type=Path, help="where figures are kept from run to run")
    options = parser.parse_args()
    notes: dict[str, Figures] = {}
    if options.notes and options.notes.exists():
        notes = json.loads(options.notes.read_text())

    def figures(key: str, policy: str | None, graphs: dict[str, Any]) -> Figures:
        if key not in notes:
            notes[key] = measured(policy, graphs)
            if options.notes:
                options.notes.write_text(json.dumps(notes))
            print(key, file=sys.stderr, flush=True)
        return notes[key]

    body = []
    for name, module in constants().items():
        if options.names and name not in options.names:
            continue
        place = module.removeprefix("tinyckpt.planner.")
        if place in SHOWING:
            continue
        case = next(number for number, each in enumerate(TRIED) if place.startswith(each[0]))
        _, policy, graphs = TRIED[case]
        standing = figures(f"{policy} as it stands, {case}", policy, graphs)
        for factor in options.factors:
            with changed(name, module, factor):
                row = against(figures(f"{name} x {factor:g}", policy, graphs), standing)
            body.append([f"{place}: {name}", f"x {factor:g}", policy or "portfolio", *row])
    header = ("constant", "", "planner", "cost, mean", "least", "most", "budgets", "time")
    found = [table.rows(header, body), LIMITED]
    table.write("constants", "Planners and their constants", found, ["numpy"])


if __name__ == "__main__":
    main()
