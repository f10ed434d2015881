"""Benchmark: time to proven optimality of policy ``optimal``, and CP-SAT against HiGHS (MILP).

Every case has 60 seconds. The second table solves the first model of some chains, in which cost is
the number of evaluations and memory is counted in nodes, with three solvers: CP-SAT with the two
subsolvers that the policy names, CP-SAT's own choice of as many, and HiGHS, on the same model. None
of them is given the upper bound that the policy has from other policies.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np
import table

import tinyckpt as tc
from tinyckpt.planner.exact.benders import SUBSOLVERS
from tinyckpt.planner.exact.cp_model import Master
from tinyckpt.planner.exact.optimal import plan_optimal
from tinyckpt.planner.exact.reduced_graph import reduce_problem
from tinyckpt.planner.exact.stage_order import whole_model
from tinyckpt.planner.model.liveness import Problem

TIME_LIMIT = 60.0
MODELS = [(8, 3), (8, 4), (8, 5), (16, 3), (16, 4), (16, 5)]  # chains and budgets
UNBOUNDED = 2**60  # beyond, CP-SAT's limits stand for none


def cases() -> Iterator[tuple[str, tc.Graph, tc.Costs, int]]:
    """Yield what is planned: a name, a graph, costs and a budget."""
    for n in (8, 16):
        graph = tc.networks.chain(n)
        for budget in range(3, n + 3):
            yield f"chain({n})", graph, tc.cost.in_nodes(tc.cost.evaluations(graph)), budget
    graph = tc.networks.residual_mlp(3, 8).graph()
    for budget in (12, 11, 10):
        yield "residual, 3 blocks", graph, tc.cost.in_nodes(tc.cost.evaluations(graph)), budget
    costs = tc.cost.evaluations(graph)
    stored = Problem(graph, costs).peak(range(len(graph.operators)))
    for share in (85, 75, 65):
        yield f"residual, 3 blocks, {share} %", graph, costs, stored * share // 100
    graph = tc.networks.branching(3, 8).graph()
    costs = tc.cost.in_nodes(tc.cost.evaluations(graph))
    stored = Problem(graph, costs).peak(range(len(graph.operators)))
    for budget in (stored // 2, 8, 9, 11):
        yield "U-Net, 3 levels", graph, costs, budget


def proven() -> str:
    """Return the table of what is proven."""
    body = []
    for name, graph, costs, budget in cases():
        begin = perf_counter()
        try:
            schedule = plan_optimal(graph, costs, budget=budget, time_limit=TIME_LIMIT)
        except tc.BudgetError as error:
            found = [
                "infeasible, proven" if "which is proven" in str(error) else "nothing found",
                "",
                "",
                "",
            ]
        else:
            certificate = schedule.certificate
            assert certificate is not None
            gap = f"{100 * certificate.gap:.1f} %" if certificate.gap else ""
            found = [certificate.status, f"{certificate.cost:g}",
                     f"{certificate.lower_bound:g}", gap]  # fmt: skip
        seconds = perf_counter() - begin
        within = f"{budget} {costs.memory_unit}"
        body.append([name, len(graph.operators), within, *found, f"{seconds:.1f}"])
        print(body[-1], flush=True)
    return table.rows(
        ["graph", "operators", "budget", "result", "evaluations", "bound", "gap", "s"], body
    )


def by_cp_sat(master: Master, subsolvers: tuple[str, ...]) -> str:
    """Solve a model with CP-SAT and some of its searches; return what came of it."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = TIME_LIMIT
    solver.parameters.num_workers = 2
    solver.parameters.subsolvers.extend(subsolvers)
    begin = perf_counter()
    status = solver.solve(master.model)
    seconds = perf_counter() - begin
    if status == cp_model.OPTIMAL:
        return f"{solver.objective_value:g} in {seconds:.1f} s"
    return f"at least {solver.best_objective_bound:g}"


def by_highs(master: Master) -> str:
    """Solve a model with HiGHS, through SciPy if that is installed; return what came of it."""
    if find_spec("scipy") is None:
        return "SciPy is not installed"
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    proto = master.model.proto
    entries: list[tuple[int, int, int]] = []
    low, high = [], []
    for constraint in proto.constraints:
        if not constraint.has_linear():
            continue  # trivial ones
        linear = constraint.linear
        domain = list(linear.domain)
        entries += [(len(low), v, c) for v, c in zip(linear.vars, linear.coeffs, strict=True)]
        low.append(domain[0] if domain[0] > -UNBOUNDED else -np.inf)
        high.append(domain[-1] if domain[-1] < UNBOUNDED else np.inf)
    rows, columns, values = np.array(entries, float).T
    matrix = coo_array((values, (rows.astype(int), columns.astype(int))))
    matrix.resize((len(low), len(proto.variables)))
    objective = np.zeros(len(proto.variables))
    objective[list(proto.objective.vars)] = list(proto.objective.coeffs)
    domains = [list(variable.domain) for variable in proto.variables]
    begin = perf_counter()
    result: Any = milp(
        objective,
        integrality=np.ones(len(domains)),
        bounds=Bounds([d[0] for d in domains], [d[-1] for d in domains]),
        constraints=LinearConstraint(matrix.tocsr(), np.array(low, float), np.array(high, float)),
        options={"time_limit": TIME_LIMIT},
    )
    seconds = perf_counter() - begin
    offset = proto.objective.offset
    if result.status == 0:
        return f"{result.fun + offset:g} in {seconds:.1f} s"
    bound = 0.0 if result.mip_dual_bound is None else result.mip_dual_bound + offset
    return f"at least {bound:.2f}"


def solvers() -> str:
    """Return the table of the solvers."""
    body = []
    for n, budget in MODELS:
        graph = tc.networks.chain(n)
        problem = Problem(graph, tc.cost.in_nodes(tc.cost.evaluations(graph)))
        reduced, _ = reduce_problem(problem, budget)
        master = whole_model(reduced, range(len(reduced.operators)))
        named = SUBSOLVERS[-1][0]
        outcome = [by_cp_sat(master, named), by_cp_sat(master, ()), by_highs(master)]
        body.append([f"chain({n}), {budget} nodes", *outcome])
        print(body[-1], flush=True)
    header = ["model", f"CP-SAT, {' + '.join(named)}", "CP-SAT, its own choice", "HiGHS"]
    return table.rows(header, body)


if __name__ == "__main__":
    table.write(
        "optimal", "What is proven optimal", [solvers(), proven()], ["ortools", "scipy", "numpy"]
    )
