"""Offload: the bandwidth from which copies are free, and the break-even with recomputation."""

from __future__ import annotations

from fractions import Fraction

import tinyckpt as tc
from lessons.figures.figure import Figure

LAYERS = 64
ROOM = 9  # values on the device
ARITHMETIC = "arithmetic, for backward = 2·forward"


def figures() -> list[Figure]:
    """Return the rows."""
    stalls = {d: stalled(d) for d in (Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(2))}
    shown = ", ".join(f"{float(stall):g}" for stall in stalls.values())
    at = ", ".join(f"{float(duration):g}" for duration in stalls)
    both_ways = stalled(Fraction(3)) - stalls[Fraction(2)]
    return [
        Figure(
            "offloading everything is free while a copy takes no longer than a layer's forward",
            ARITHMETIC,
            f"{shown} units of stall for copies of {at} layers, with {LAYERS} layers in "
            f"{ROOM} values",
            [stall == 0 for stall in stalls.values()] == [True, True, False, False],
            "Offloads overlap with the forward pass, and fetches with the backward pass, which "
            "takes twice as long.",
        ),
        Figure(
            "it breaks even with recomputing every layer when a copy takes as long as two",
            ARITHMETIC,
            f"{float(stalls[Fraction(2)]):g} units of stall; {LAYERS} to recompute",
            stalls[Fraction(2)] <= LAYERS < stalled(Fraction(2) + Fraction(1, 16)),
            "The last value is read at once, and stays resident. Beyond that, copies in both "
            f"directions stall: {float(both_ways):g} units more for copies of 3 layers.",
        ),
    ]


def stalled(duration: Fraction) -> Fraction:
    """Return the stall of computation for a duration of a copy, in layers."""
    graph = tc.networks.chain(LAYERS)
    costs = tc.cost.custom(graph, [1] * (LAYERS + 1) + [2] * LAYERS)
    value = graph.data[graph.operators[0].outputs[0]].nbytes
    link = tc.Link(value / duration)
    schedule = tc.plan(graph, "offload", costs=costs, bandwidth=link.bandwidth, budget=ROOM * value)
    return tc.timed(schedule, link, costs, budget=ROOM * value).stalled
