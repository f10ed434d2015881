"""Pipelines: published bubbles, micro-batches in flight, and the gain of early recomputation."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import tinyckpt as tc
from lessons.figures.figure import Figure, percent
from tinyckpt.pipeline import (
    Footprint,
    Pipeline,
    gpipe,
    one_f_one_b,
    partition,
    plan_stages,
    replay_pipeline,
    stages_of,
    v_half,
    v_min,
)

GPIPE = "Huang et al. 2019, arXiv 1811.06965"
FLUSH = "Narayanan et al. 2021, arXiv 2104.04473"
V_SHAPES = "Qi et al. 2024, arXiv 2405.15362"
LAYERS, DEVICES, BATCH, PARTS = 24, 4, 64, 8  # of GPipe's peak
MOST_DEVICES = 24  # up to which V-shaped schedules are replayed
NEGLIGIBLE = 0.05  # an idle share below which the bubble counts as negligible


def figures() -> list[Figure]:
    """Return the rows."""
    shapes = (("V-Min", v_min, 4, 3), ("V-Half", v_half, 2, 2))
    return [
        bubble(4, 16, "3/19"),
        bubble(8, 32, "7/39"),
        negligible(),
        peak(),
        early(),
        in_flight(),
        *(v_shaped(*shape) for shape in shapes),
    ]


def bubble(devices: int, micro_batches: int, claimed: str) -> Figure:
    """Return the row of GPipe's bubble."""
    found = replay_pipeline(gpipe(devices, micro_batches)).bubble
    return Figure(
        f"GPipe's bubble is (K-1)/(M+K-1): {claimed} for {devices} devices and {micro_batches} "
        "micro-batches",
        GPIPE,
        f"{found}, or {percent(float(found))} of device time",
        found == Fraction(claimed),
        "For any forward and backward times, if they are the same on every device.",
    )


def negligible() -> Figure:
    """Return the row of the bubble where it is claimed to be negligible."""
    shares = {k: float(replay_pipeline(gpipe(k, 4 * k)).bubble) for k in (2, 4, 8, 16)}
    return Figure(
        "with M = 4K micro-batches GPipe's bubble is negligible",
        GPIPE,
        ", ".join(map(percent, shares.values())) + f" for K = {', '.join(map(str, shares))}",
        max(shares.values()) < NEGLIGIBLE,
        "It approaches a fifth, (K-1)/(5K-1). Early recomputation, below, hides in it.",
    )


def peak() -> Figure:
    """Return the row of GPipe's peak, in values of one layer and one sample."""
    each = BATCH // PARTS
    inside = LAYERS // DEVICES * each
    own = Footprint(
        forward=each + inside, held=each, recompute=each + inside, recomputed=each + inside,
        backward=each + inside,
    )  # fmt: skip
    model = max(replay_pipeline(gpipe(DEVICES, PARTS, "late"), None, own).peaks)
    whole = tc.replay(tc.plan(tc.networks.chain(LAYERS, (BATCH, 1)), "store_all"))
    value = whole.graph.data[whole.graph.operators[0].outputs[0]].nbytes // BATCH
    stored = sum(
        whole.graph.data[data].nbytes
        for operator in whole.graph.operators[:LAYERS]
        for data in operator.outputs
    )
    graph = tc.networks.chain(LAYERS, (each, 1))
    stages = plan_stages(stages_of(graph, partition(graph, DEVICES)), "retain", keep=[])
    real = replay_pipeline(
        gpipe(DEVICES, PARTS, "late"), None, [stage.footprint for stage in stages]
    )
    peaks = [nbytes // value for nbytes in real.peaks]
    return Figure(
        f"GPipe's peak is N + (L/K)(N/M) = 112 instead of N L = 1,536, for L = {LAYERS}, "
        f"K = {DEVICES}, N = {BATCH}, M = {PARTS}",
        GPIPE,
        f"{model:,} instead of {stored // value:,}, in layers times samples",
        (model, stored // value) == (112, 1536),
        "This counts the stages' inputs and what one of them recomputes. A chain of tanh in "
        f"stages, cotangents included, takes {', '.join(map(str, peaks))}: all but the first "
        "device also keep the values that they sent, which tanh's derivative reads.",
    )


def early() -> Figure:
    """Return the row of recomputation while a device waits."""
    spans = [replay_pipeline(gpipe(8, 32, form)).makespan for form in (None, "late", "early")]
    return Figure(
        "early recomputation, while waiting for the gradient, takes 149 units instead of 156, and "
        "no recomputation 117; for 8 devices, 32 micro-batches, forwards of 1, backwards of 2",
        "arithmetic, after Huang et al.",
        ", ".join(map(str, reversed(spans))) + " early, late, none",
        spans == [117, 156, 149],
        "It hides K-1 forwards, one on each device except the last, which does not wait.",
    )


def in_flight() -> Figure:
    """Return the row of 1F1B's micro-batches."""
    sizes = [(4, 2), (4, 16), (8, 32), (16, 64)]
    traces = {size: replay_pipeline(one_f_one_b(*size)) for size in sizes}
    same = all(
        trace.peaks == tuple(min(k - device, m) for device in range(k))
        and trace.bubble == replay_pipeline(gpipe(k, m)).bubble
        for (k, m), trace in traces.items()
    )
    shown = " ".join(map(str, traces[8, 32].peaks))
    return Figure(
        "1F1B has GPipe's bubble, and min(K-k, M) micro-batches in flight on device k",
        FLUSH,
        f"{shown} on 8 devices with 32 micro-batches, where GPipe has 32 on each",
        same,
        f"For {', '.join(f'({k}, {m})' for k, m in sizes)} devices and micro-batches.",
    )


def v_shaped(name: str, make: Callable[[int, int], Pipeline], more: int, divisor: int) -> Figure:
    """Return the row of a V-shaped pipeline's peak: floor((p + more) / divisor)."""
    counts = range(2, MOST_DEVICES + 1)
    # A device has two stages, each with half of the layers.
    peaks = [max(replay_pipeline(make(p, 4 * p + 10)).peaks) / 2 for p in counts]
    shown = {p: peak for p, peak in zip(counts, peaks, strict=True) if p in (4, 8, 16, 24)}
    return Figure(
        f"{name} stores ⌊(p+{more})/{divisor}⌋ micro-batches per device, where 1F1B stores p",
        V_SHAPES,
        f"{', '.join(f'{peak:g}' for peak in shown.values())} for p = {', '.join(map(str, shown))}",
        peaks == [(p + more) // divisor for p in counts],
        f"For every p from 2 to {MOST_DEVICES}. The paper's schedules are rebuilt from its "
        "building blocks.",
    )
