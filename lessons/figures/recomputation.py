"""The cost of recomputation: published figures about chains."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

import tinyckpt as tc
from lessons.figures.figure import Figure, percent

CHEN = "Chen et al. 2016, arXiv 1604.06174"
TEN_TIMES = "Bulatov 2018, gradient-checkpointing"
BACKWARD = 2  # times the forward pass: two products where the forward pass has one


def extra_time(n: int) -> tuple[tc.Trace, float]:
    """Return the trace of sqrt(n) on a chain, and its extra time relative to store-all."""
    trace = tc.replay(tc.plan(tc.networks.chain(n), "sqrt_n"))
    return trace, trace.recomputations / (n * (1 + BACKWARD))


def figures() -> list[Figure]:
    """Return the rows."""
    found = []
    for n, claimed in ((16, 0.1875), (100, 0.27)):
        trace, extra = extra_time(n)
        ran = tc.run(trace.schedule, np.ones((8, 8)) / 2).trace
        found.append(
            Figure(
                f"√n checkpointing takes {percent(claimed, 2)} more time at n = {n}",
                CHEN,
                f"{trace.recomputations} recomputations: {percent(extra, 2)}",
                extra == claimed,
                f"With backward = {BACKWARD}·forward it is (√n - 1)²/3n.",
                "the same evaluations" if ran == trace else f"{ran.recomputations} recomputations",
            )
        )
    extras = [extra_time(n)[1] for n in (100, 2_500, 10_000)]
    found.append(
        Figure(
            "its limit is one forward pass, 33.3 %",
            CHEN,
            ", ".join(percent(extra) for extra in extras) + " at n = 100, 2,500, 10,000",
            all(a < b < 1 / 3 for a, b in pairwise(extras)) and extras[-1] > 0.32,
            "It is approached from below: one forward pass is never reached.",
        )
    )
    return [*found, ten_times()]


def ten_times() -> Figure:
    """Return the row of the tenfold network."""
    trace, extra = extra_time(400)
    largest = trace.peak_nodes - 2  # of store-all, whose peak is n + 2 nodes
    assert (
        tc.replay(tc.plan(tc.networks.chain(largest), "store_all")).peak_nodes == trace.peak_nodes
    )
    return Figure(
        "a network 10 times larger fits, for 20 % more time",
        TEN_TIMES,
        f"in {trace.peak_nodes} nodes, {largest} layers with store-all, 400 with √n: "
        f"{400 / largest:.1f} times, {percent(extra)} more time",
        round(extra, 1) == 0.2,
        "The size does; the time is again (√n - 1)²/3n, already near its limit.",
    )
