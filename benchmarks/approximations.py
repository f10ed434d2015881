"""Benchmark: approximation ratios of Chen's sqrt(n) and greedy policies on non-chain networks.

Checkmate's table 2 (arXiv 1910.02653) gives the cost of its approximations AP sqrt(n) and AP greedy
over the optimum's: 1.14 to 1.54 and 1.06 to 1.39. Here both run on graphs of the same networks, by
FLOPs, and are compared with ``plan(budget=...)`` at the peak that they reach, and with the lower
bound at that peak. Checkmate's graphs are coarser and its budgets different, so that the ranges are
comparable, not the numbers.
"""

from __future__ import annotations

import table

import tinyckpt as tc
from tinyckpt.networks.cnn_graphs import SHAPES


def rows_of(name: str, graph: tc.Graph) -> list[list[str]]:
    """Return the rows of one network."""
    costs = tc.cost.flops(graph)
    store_all = sum(costs.operators)
    largest = tc.replay(tc.plan(graph)).peak_bytes
    body = []
    for label, policy in (("AP sqrt(n)", "sqrt_n"), ("AP greedy", "chen_budget")):
        schedule = tc.plan(graph, policy, costs=costs)
        peak = tc.replay(schedule).peak_bytes
        own = tc.certify(schedule, costs)
        best = tc.plan(graph, budget=peak, costs=costs).certificate
        assert best is not None
        body.append(
            [name, label, f"{peak / largest:.3f}", f"{own.cost / store_all:.4f}",
             f"{best.cost / store_all:.4f}", f"{best.lower_bound / store_all:.4f}",
             f"{own.cost / best.cost:.3f}"]
        )  # fmt: skip
    return body


if __name__ == "__main__":
    body = [row for name, network in SHAPES.items() for row in rows_of(name, network())]
    body += rows_of("transformer", tc.networks.transformer().graph())
    header = [
        "network", "policy", "peak / store-all", "cost / store-all", "plan(budget) there",
        "lower bound there", "policy / plan(budget)",
    ]  # fmt: skip
    table.write(
        "approximations",
        "Chen's policies beside the best known at their own peaks",
        [table.rows(header, body)],
        ["numpy"],
    )
