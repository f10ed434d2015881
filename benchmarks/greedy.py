"""Benchmark: run time of greedy eviction and DTR against graph size, up to 100,000 operators.

Four families: the chain; a recurrent network, unrolled; a transformer; and random layered graphs as
in M. Gagrani et al., "Neural topological ordering for computation graphs", 2022: forward only, each
operator reads a few values of earlier layers, and every value without a reader is a result.

If the time grows as n log n, the last column stays at 1. Where no plan is found, the time is that
of the failed search.

    python benchmarks/greedy.py            greedy, all sizes
    python benchmarks/greedy.py dtr        dtr
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import log2
from random import Random
from time import perf_counter
from typing import Any

import table

import tinyckpt as tc
from tinyckpt.base.deadline import OutOfTimeError

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
SECONDS = 100.0  # for a plan; a family ends with a plan that takes an eighth of that
WIDTH = 16  # operators of a layer of the drawn graphs


def recurrent(steps: int) -> tc.Graph:
    """Return the graph of an unrolled recurrent network: 14 operators per step, most backward."""

    def loss(u: Any, w: Any, b: Any, x: Any) -> Any:
        h = x
        for _ in range(steps):
            h = tc.tanh(x @ u + h @ w + b)
        return tc.mean(h * h)

    square = tc.Spec((16, 16))
    graph = tc.build(loss, square, square, tc.Spec(16), tc.Spec((8, 16)))
    return tc.differentiate(graph, (0, 1, 2))


def layered(count: int) -> tc.Graph:
    """Return a random layered graph, forward only."""
    random = Random(count)
    sizes = [random.choice((64, 128, 256)) for _ in range(count)]
    reads: list[tuple[int, ...]] = []
    for index in range(count):
        begin = index // WIDTH * WIDTH  # of its layer
        back = [random.choice((WIDTH, WIDTH, WIDTH, begin)) for _ in range(random.randint(1, 3))]
        some = {begin - random.randint(1, reach) for reach in back} if begin else ()
        reads.append(tuple(sorted(some)))
    read = {data for some in reads for data in some}
    data = [
        tc.DataNode(index, f"v{index}", tc.Spec(size, "uint8"), "activation", size, index)
        for index, size in enumerate(sizes)
    ]
    operators = [
        tc.Operator(index, f"o{index}", "layer", some, (index,), "forward", flops=sizes[index])
        for index, some in enumerate(reads)
    ]
    results = [index for index in range(count) if index not in read]
    return tc.Graph(f"layered:{count}", tuple(data), tuple(operators), (), None, results)


def transformer(count: int) -> tc.Graph:
    """Return a transformer of about so many operators."""
    return tc.networks.transformer(max(1, round(count / 113)), 32, 1, 64, 4, 101).graph()


# How each is made, and the budget, of what storing all takes.
FAMILIES: dict[str, tuple[Callable[[int], tc.Graph], float]] = {
    "chain": (lambda n: tc.networks.chain(n // 2), 0.2),
    "recurrent": (lambda n: recurrent(n // 14), 0.35),
    "transformer": (transformer, 0.5),
    "layered": (layered, 0.95),
}


def growth(policy: str, family: str) -> list[list[str]]:
    """Return the rows of a family, up to the size that exceeds the time limit."""
    make, share = FAMILIES[family]
    rows, first = [], None
    for count in SIZES:
        graph = make(count)
        costs, n = tc.cost.flops(graph), len(graph.operators)
        budget = int(share * tc.replay(tc.plan(graph)).peak_bytes)
        begin = perf_counter()
        try:
            schedule = tc.POLICIES[policy].plan(graph, costs, budget=budget, time_limit=SECONDS)
            ended = "; cut short" if "cut short" in schedule.note else ""
            found = f"{tc.cost.cost_of(schedule, costs) / sum(costs.operators):.4f}{ended}"
        except tc.BudgetError:
            found = "none"
        except OutOfTimeError:
            found = f"none in {SECONDS:g} s"
        seconds = perf_counter() - begin
        unit = seconds / (n * log2(n))
        first = unit if first is None else first
        rows.append(
            [family, f"{n:,}", f"{share:.0%}", f"{seconds:.2f}", found, f"{unit / first:.2f}"]
        )
        print(*rows[-1], file=sys.stderr)
        if seconds > SECONDS / 8:
            break
    return rows


if __name__ == "__main__":
    policy = sys.argv[1] if len(sys.argv) > 1 else "greedy"
    header = [
        "graph",
        "operators n",
        "budget",
        "s",
        "cost / store-all",
        "s / (n log n) / the first",
    ]
    body = [row for family in FAMILIES for row in growth(policy, family)]
    title = f"How the time of {policy} grows with the graph"
    table.write(policy, title, [table.rows(header, body)], ["numpy"])
