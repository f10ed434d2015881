"""Benchmark: makespan of offloading, recomputation, or both, over budgets and link bandwidths.

Simulated makespan, evaluations plus stalls, relative to evaluating everything once. The only
parameter of the hardware is the link's bandwidth over the device's speed, in bytes per FLOP: with a
link of 25 GB/s, 2.5e-4 is a device of 100 TFLOP/s, 2.5e-3 one of 10.

- recompute only: ``plan`` without a host;
- move only: every operator evaluated once, and as few values offloaded as the budget requires,
  those read last first; no figure where offloading all of them is not enough;
- both: ``plan_with_host``, with its share of recomputations, the bytes it moves, and its stalls as
  a share of its makespan;
- bound: a lower bound of every schedule.

    python benchmarks/offload.py [--seconds 60]
"""

from __future__ import annotations

import argparse

import table

import tinyckpt as tc
from tinyckpt.base.units import memory_text
from tinyckpt.planner.offload.offload_saved_values import (
    movable_values,
    offload_order,
    offload_to_peak,
)

NETWORKS = ("resnet50:32", "transformer:12x768")
SHARES = (0.7, 0.5, 0.4)  # of the peak of store-all
BANDWIDTHS = (2.5e-4, 2.5e-3, 2.5e-2)  # bytes per FLOP
HEADER = (
    "budget", "bytes/FLOP", "recompute only", "move only", "both", "recomputed", "moved", "stalled",
    "bound",
)  # fmt: skip


def compared(name: str, seconds: float) -> str:
    """Return the table of a network."""
    graph = tc.networks.network_from_text(name)[0]
    costs = tc.cost.flops(graph)
    once = sum(costs.operators)
    stored = tc.plan(graph, "store_all", costs=costs)
    peak = tc.replay(stored).peak_bytes
    order = offload_order(stored, set(movable_values(graph)))
    body = []
    for share in SHARES:
        budget = int(peak * share)
        recomputed = tc.plan(graph, budget=budget, costs=costs, time_limit=seconds)
        alone = tc.timed(recomputed, tc.Link(0), costs).makespan
        moved = offload_to_peak(stored, order, budget, costs)
        for bandwidth in BANDWIDTHS:
            link = tc.Link(bandwidth)
            both = tc.plan_with_host(graph, link, budget=budget, costs=costs, time_limit=seconds)
            line = tc.timed(both, link, costs, budget=budget)
            known = both.certificate
            assert known is not None
            only = "-"
            if moved is not None:
                only = f"{float(tc.timed(moved, link, costs, budget=budget).makespan) / once:.3f}"
            body.append(
                [
                    f"{share:.0%}",
                    f"{bandwidth:.2g}",
                    f"{float(alone) / once:.3f}",
                    only,
                    f"{known.cost / once:.3f}",
                    f"{tc.replay(both).recomputations} of {tc.replay(both).evaluations}",
                    memory_text(line.moved(tc.Offload), "bytes"),
                    f"{float(line.stalled / line.makespan):.1%}",
                    f"{known.lower_bound / once:.3f}",
                ]
            )
    title = f"## {name}: {len(graph.operators):,} operators, {memory_text(peak, 'bytes')}"
    return f"{title}\n\n{table.rows(HEADER, body)}"


def main() -> None:
    """Compare all networks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0, help="for each plan")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    options = parser.parse_args()
    sections = [compared(name, options.seconds) for name in options.networks]
    note = (
        "Times of the model, in shares of what all evaluations take once. With a link of 25 GB/s, "
        "2.5e-4 bytes/FLOP are a device of 100 TFLOP/s, 2.5e-3 one of 10. Move only: a dash where "
        "all that can be moved is too little. What a plan finds depends on the time it has; each "
        f"had {options.seconds:g} s."
    )
    table.write("offload", "Recompute, move, or both", [note, *sections], ["numpy"])


if __name__ == "__main__":
    main()
