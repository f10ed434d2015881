"""Benchmark: plan cost against the lower bound, on graphs of thousands of operators.

Plans of ``plan(budget=...)`` in its time limit at several shares of store-all's peak: peak, cost,
and the gap to the lower bound. The networks are the package's, of 1,500 to 7,800 operators, or,
with ``--pytorch``, the joint graphs of PyTorch models of 2,700 to 10,600.

    python benchmarks/large.py [--pytorch] --seconds 20
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import table

import tinyckpt as tc

SHARES = (0.6, 0.4, 0.3, 0.2)


def shipped() -> Iterator[tc.Graph]:
    """Yield networks of the package, narrow but of full depth."""
    for layers, length in ((32, 512), (64, 1024), (120, 1024)):
        network = tc.networks.llama(
            layers, 256, 4, length=length, batch=2, vocabulary=512, hidden=688, fused=True
        )
        yield replace(network.graph(), name=f"llama of {layers} layers")
    network = tc.networks.gpt2(48, 768, length=1024, batch=4)
    yield replace(network.graph(), name="gpt2 of 48 layers")
    yield replace(tc.networks.resnet(152, 32).graph(), name="resnet152")


def joint() -> Iterator[tc.Graph]:
    """Yield training steps of Llama-like models as PyTorch captures them; none is allocated."""
    from torch._subclasses import FakeTensorMode

    from tinyckpt.interop import torch as tct

    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.torch_models import Llama, tokens_for

    for layers, length in ((16, 512), (32, 1024), (64, 1024)):
        with FakeTensorMode():
            model, args = tokens_for(Llama(layers, 256, 4, 688, vocabulary=512), 2, length)
        traced = tct.trace(model, *args, workspace=False)
        yield replace(traced.graph, name=f"Llama of {layers} layers")


def rows_of(graph: tc.Graph, seconds: float) -> Iterator[list[str]]:
    """Yield a row for each share of store-all's peak."""
    costs = tc.cost.flops(graph)
    least = sum(costs.operators)
    largest = tc.replay(tc.plan(graph)).peak_bytes
    for share in SHARES:
        # Another object: what was searched for the share before is not known here.
        fresh = replace(graph)
        begin = perf_counter()
        try:
            schedule = tc.plan(fresh, budget=share, costs=costs, time_limit=seconds)
        except tc.BudgetError as error:
            took = f"{perf_counter() - begin:.1f}"
            smallest = (error.smallest or largest) / largest
            proven = "proven" if error.proven else "found"
            yield [
                graph.name, f"{len(graph.operators):,}", f"{share}", took,
                f"{smallest:.3f}, the smallest {proven}", "", "", "", "",
            ]  # fmt: skip
            continue
        took = f"{perf_counter() - begin:.1f}"
        certificate = schedule.certificate
        assert certificate is not None
        yield [
            graph.name, f"{len(graph.operators):,}", f"{share}", took,
            f"{tc.replay(schedule).peak_bytes / largest:.3f}",
            f"{certificate.cost / least:.4f}", f"{certificate.lower_bound / least:.4f}",
            f"{100 * certificate.gap:.2f} %", schedule.policy,
        ]  # fmt: skip


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--pytorch", action="store_true", help="joint graphs of PyTorch models")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each plan")
    arguments = parser.parse_args()
    graphs = joint() if arguments.pytorch else shipped()
    body = []
    for graph in graphs:
        for row in rows_of(graph, arguments.seconds):
            print(" | ".join(row), flush=True)
            body.append(row)
    header = [
        "graph", "operators", "of store-all's peak", "s", "peak", "cost / store-all",
        "lower bound", "gap at most", "found by",
    ]  # fmt: skip
    budget_size = f"FLOPs; a fresh search of {arguments.seconds:g} s for every budget:"
    table.write(
        "large", "Plans of large graphs", [budget_size, table.rows(header, body)], ["numpy"]
    )


if __name__ == "__main__":
    main()
