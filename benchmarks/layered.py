"""Benchmark: plan cost on random layered graphs within memory budgets, against Moccasin.

Graphs as in Gagrani et al. 2022 and in the Moccasin paper, forward only, one sample of each size;
budgets are shares of the peak in topological order. Costs are those of operators; "+2 %" is what
recomputations add to evaluating each once, a lower bound of every schedule. Both have the same time
and two cores: the solver two workers, ``plan`` one thread. Moccasin fixes the order of first
evaluations, ``plan`` may change it.

The whole benchmark takes nearly an hour. With ``--notes FILE`` outcomes are cached in a file;
``--cases`` limits how many new ones are computed.

    pip install ortools
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import table
from moccasin import moccasin

import tinyckpt as tc
from tests.layered_graphs import WIDTHS, layered_graph
from tinyckpt.planner.model.liveness import Problem

SHARES = (90, 80)  # per cent
QUICK, LARGE = 60.0, 500  # seconds, and operators from which there are more
PLANNERS = ("moccasin", "plan")
Outcome = dict[str, Any]


def by_moccasin(graph: tc.Graph, budget: int, seconds: float) -> tuple[list[int], str]:
    """Return the order that the model finds, empty if none, and the solver's status."""
    outcome = moccasin(graph, budget, seconds)
    return list(outcome.order), outcome.status if outcome.order else "nothing found"


def by_plan(graph: tc.Graph, budget: int, seconds: float) -> tuple[list[int], str]:
    """Return the order that ``plan`` finds, empty if none, and its certificate."""
    try:
        schedule = tc.plan(graph, budget=budget, time_limit=seconds)
    except tc.BudgetError:
        return [], "nothing found"
    certificate = schedule.certificate
    assert certificate is not None
    steps = [step.operator for step in schedule.steps if isinstance(step, tc.Compute)]
    return steps, f"{certificate.status}, by {schedule.policy}"


def outcome_of(case: str, seconds: float) -> Outcome:
    """Return the outcome of one planner in one case, verified by ``replay``."""
    planner, count, share = case.split()
    graph = layered_graph(int(count))
    problem = Problem(graph, tc.cost.given(graph))
    budget = problem.peak(range(int(count))) * int(share) // 100
    begin = perf_counter()
    order, said = (by_moccasin if planner == "moccasin" else by_plan)(graph, budget, seconds)
    found: Outcome = {"said": said, "seconds": perf_counter() - begin, "limit": seconds}
    if order:
        trace = tc.replay(tc.from_order(graph, order))
        assert trace.peak_bytes <= budget
        found["again"] = trace.recomputations
        found["more"] = problem.cost_of(order) / float(problem.cost.sum()) - 1
    return found


def rows_of(outcomes: dict[str, Outcome]) -> list[list[object]]:
    """Return the body of the table."""
    body: list[list[object]] = []
    for count in WIDTHS:
        graph = layered_graph(count)
        edges = sum(len(operator.inputs) for operator in graph.operators)
        for share in SHARES:
            row: list[object] = [f"{count:,}", f"{edges:,}", f"{share} %"]
            for planner in PLANNERS:
                found = outcomes[f"{planner} {count} {share}"]
                solved = "more" in found
                row += [
                    f"+{100 * found['more']:.3f} %" if solved else "",
                    found["again"] if solved else "",
                    found["said"],
                    f"{found['seconds']:.0f} of {found['limit']:.0f}",
                ]
            body.append(row)
    return body


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", type=float, default=300.0, help="seconds from 500 operators on")
    parser.add_argument("--notes", type=Path, help="a JSON file of outcomes")
    parser.add_argument("--cases", type=int, default=sys.maxsize, help="to be found now")
    parser.add_argument("--remark", default="", help="what else to say of the machine")
    arguments = parser.parse_args()
    outcomes: dict[str, Outcome] = {}
    if arguments.notes and arguments.notes.exists():
        outcomes = json.loads(arguments.notes.read_text(encoding="utf-8"))
    cases = [f"{p} {count} {share}" for count in WIDTHS for share in SHARES for p in PLANNERS]
    left = [case for case in cases if case not in outcomes]
    for case in left[: arguments.cases]:
        long = int(case.split()[1]) >= LARGE
        outcomes[case] = outcome_of(case, arguments.long if long else QUICK)
        print(case, outcomes[case], flush=True)
        if arguments.notes:
            arguments.notes.write_text(json.dumps(outcomes), encoding="utf-8")
    if len(left) <= arguments.cases:
        both = [
            name for planner in PLANNERS
            for name in (f"{planner}: cost", "recomputations", "result", "s")
        ]  # fmt: skip
        header = ["operators", "edges", "budget", *both]
        table.write(
            "layered", "Random layered graphs in less memory",
            [*filter(None, [arguments.remark]), table.rows(header, rows_of(outcomes))],
            ["ortools", "numpy"],
        )  # fmt: skip
