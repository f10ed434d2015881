"""Benchmark: sensitivity of the planners to their numeric constants, each doubled and halved.

For each constant the Pareto frontiers of some graphs are searched anew, without a time limit that
cuts; and policy ``optimal`` solves some smaller ones. The table compares with the constants as they
stand: the cost of the plans at eight shares of store-all's peak, on average, at least and at most;
the budgets at which a plan appears or is lost; the time. Figures in the comments beside constants
("Doubled: ...") come from here.

    python -m benchmarks.constants [NAME ...] [--notes FILE]
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
SHARES = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.35)
GRAPHS: dict[str, Callable[[], tc.Graph]] = {
    "chain of 48": lambda: tc.networks.chain(48),
    "transformer of 2 layers": lambda: tc.networks.transformer(2, 64).graph(),
    "branching of 3": lambda: tc.networks.branching(3).graph(),
    "residual MLP of 8": lambda: tc.networks.residual_mlp(8, 16).graph(),
    "ResNet-18": lambda: tc.networks.resnet(18, 2, 32).graph(),
    "60 layered operators": lambda: layered_graph(60, 1, 0.3),
}
SOLVED: dict[str, Callable[[], tc.Graph]] = {
    "chain of 12": lambda: tc.networks.chain(12),
    "residual MLP of 3": lambda: tc.networks.residual_mlp(3, 16).graph(),
    "branching of 2": lambda: tc.networks.branching(2).graph(),
}
SOLVER_SECONDS = 20.0
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
                    if name.isupper() and is_tunable(value):
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


def measured(solver: bool) -> Figures:
    """Return, for each graph, its costs at the budgets, and the seconds."""
    found: Figures = {}
    for name, make in (SOLVED if solver else GRAPHS).items():
        graph = make()
        peak = tc.replay(tc.plan(graph)).peak_bytes
        begin, costs = perf_counter(), []
        frontier = None if solver else tc.frontier(graph, time_limit=600)
        for share in SHARES:
            budget = int(share * peak)
            try:
                if frontier is None:
                    limit = {"time_limit": SOLVER_SECONDS}
                    schedule = tc.plan(graph, "optimal", budget=budget, **limit)
                    costs.append(tc.certify(schedule).cost)
                else:
                    costs.append(frontier.within(budget).cost)
            except tc.BudgetError:
                costs.append(None)
        found[name] = {"costs": costs, "seconds": perf_counter() - begin}
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
    parser.add_argument("--notes", type=Path, help="where figures are kept from run to run")
    options = parser.parse_args()
    notes: dict[str, Figures] = {}
    if options.notes and options.notes.exists():
        notes = json.loads(options.notes.read_text())

    def figures(key: str, solver: bool) -> Figures:
        if key not in notes:
            notes[key] = measured(solver)
            if options.notes:
                options.notes.write_text(json.dumps(notes))
            print(key, file=sys.stderr, flush=True)
        return notes[key]

    body = []
    for name, module in constants().items():
        if options.names and name not in options.names:
            continue
        solver = ".exact." in module
        standing = figures("as they stand, solved" if solver else "as they stand", solver)
        for factor in (2.0, 0.5):
            with changed(name, module, factor):
                row = against(figures(f"{name} x {factor:g}", solver), standing)
            place = module.removeprefix("tinyckpt.planner.")
            body.append([f"{place}: {name}", f"x {factor:g}", *row])
    header = ("constant", "", "cost, mean", "least", "most", "budgets", "time")
    table.write("constants", "Planners and their constants", [table.rows(header, body)], ["numpy"])


if __name__ == "__main__":
    main()
