"""Benchmark: joint recompute-and-offload planning, against offloading in single-device plans.

``plan_with_host`` with and without the dynamic program ``offload.offload_dp``: the simulated
makespan, relative to evaluating everything once, and a lower bound of every schedule. On a chain an
evaluation takes 1 and bandwidth is in values per evaluation; on a transformer, in bytes per FLOP.

    python benchmarks/joint_offload.py [--seconds 60]
"""

from __future__ import annotations

import argparse
from unittest.mock import patch

import table

import tinyckpt as tc
from tinyckpt.base.units import memory_text
from tinyckpt.planner.portfolio import plan_with_host

HEADER = ("graph", "budget", "bandwidth", "without", "with", "bound")
VALUE = 512  # bytes of a value of a chain
CHAINS = {"chain:16": (4, 5, 6), "chain:64": (4, 6, 10)}
PARTS_OF_VALUE = (0.125, 0.25, 0.5)
TRANSFORMER = "transformer:12x768"
SHARES = (0.5,)
BYTES_PER_FLOP = (2.5e-4, 1e-3)


def row(
    graph: tc.TrainingGraph, costs: tc.Costs, bandwidth: float, budget: int, seconds: float
) -> list[str]:
    """Return the time without and with, and the bound."""
    once, found, bound = sum(costs.operators), [], 0.0
    link = tc.Link(bandwidth)
    for left_out in (True, False):
        priced = (lambda *_: iter(())) if left_out else plan_with_host.priced_plans
        with patch.object(plan_with_host, "priced_plans", priced):
            try:
                plan = tc.plan_with_host(
                    graph, link, budget=budget, costs=costs, time_limit=seconds
                )
            except tc.BudgetError:
                found.append("-")
                continue
        assert plan.certificate is not None
        found.append(f"{plan.certificate.cost / once:.3f}")
        bound = plan.certificate.lower_bound / once
    return [*found, f"{bound:.3f}"]


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0, help="for each plan")
    seconds = parser.parse_args().seconds
    body = []
    for name, nodes in CHAINS.items():
        graph = tc.networks.network_from_text(name)[0]
        for count in nodes:
            for part in PARTS_OF_VALUE:
                cells = row(graph, tc.cost.evaluations(graph), part * VALUE, count * VALUE, seconds)
                body.append([name, f"{count} values", f"{part:g}", *cells])
    graph = tc.networks.network_from_text(TRANSFORMER)[0]
    peak = tc.replay(tc.plan(graph, "store_all")).peak_bytes
    for share in SHARES:
        for part in BYTES_PER_FLOP:
            budget = int(share * peak)
            cells = row(graph, tc.cost.flops(graph), part, budget, seconds)
            body.append(
                [TRANSFORMER, f"{share:.0%}, {memory_text(budget, 'bytes')}", f"{part:g}", *cells]
            )
    note = (
        "Times of the model, in shares of what all evaluations take once; a dash where nothing was "
        "found. Bandwidth: of chains in values for each evaluation, of the transformer in bytes "
        f"per FLOP. Each plan had {seconds:g} s."
    )
    table.write(
        "joint_offload", "Planning for a host at once", [note, table.rows(HEADER, body)], ["numpy"]
    )


if __name__ == "__main__":
    main()
