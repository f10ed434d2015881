"""Benchmark: a step in one buffer against the plain program, NumPy written by hand, and PyTorch.

Loss and gradients; all run in turn, in one process; ratios are medians over rounds. Memory is what
tracemalloc sees of one call after the first two, above its start: of the plain program the peak;
with an arena, what is beside the buffer. How fast this machine could be at best is measured in the
same run (``roofline``). ``--models`` chooses by the beginning of a title.
"""

from __future__ import annotations

import os

# Before NumPy is imported. With OMP_NUM_THREADS=1 times are process time, for a busy machine.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ.setdefault("OMP_NUM_THREADS", "2")

import argparse
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from time import perf_counter, process_time
from typing import Any

import by_hand
import models
import numpy as np
import peers
import roofline
import table

import tinyckpt as tc
from tinyckpt.base.units import counted, size_text

SEED = 2
THREADS = int(os.environ["OMP_NUM_THREADS"])
CLOCK = perf_counter if THREADS > 1 else process_time
TRACED = 64 << 10  # bytes that a step may allocate beside its buffer
Written = Callable[..., Any]
measured_peak = cache(partial(roofline.measured_peak, clock=CLOCK))  # by dtype
measured_tanh = cache(partial(roofline.measured_tanh, clock=CLOCK))
measured_call = cache(partial(roofline.measured_call, clock=CLOCK))


@dataclass(frozen=True, slots=True)
class Case:
    """A step that is timed.

    Attributes:
        model, dtype: the step.
        written: by hand, if somebody has written it.
        over_hand, over_torch: the highest ratio of times that this project aims at, or None.
    """

    model: models.Model
    dtype: str = "float32"
    written: Written | None = by_hand.perceptron
    over_hand: float | None = None
    over_torch: float | None = None


def cases() -> dict[str, Case]:
    """Return the steps by their titles."""
    mlp = models.perceptron
    gpt = partial(by_hand.gpt_block, batch=4, heads=4)
    return {
        "MLP, 64 layers, 64x256, float64": Case(mlp(), "float64", over_hand=0.75),
        "MLP, 64 layers, 64x256, float32": Case(mlp(), over_hand=0.95),
        "MLP, 16 layers, 65,536x64, float32": Case(mlp(16, 64, 65_536), over_hand=0.75),
        "MLP, 16 layers, 2,048x512, float32": Case(mlp(16, 512, 2_048)),
        "GPT block, b=4, s=256, h=256, float32": Case(
            models.gpt_block(), written=gpt, over_hand=0.8, over_torch=1.0
        ),
        "conv block, float32": Case(
            models.conv_block(), written=by_hand.conv_block, over_hand=0.8, over_torch=1.5
        ),
        "ResNet-18, b=32, 32x32, float32": Case(models.resnet18(), written=None, over_torch=1.5),
        # Operators so small that only Python's overhead shows.
        "MLP, 200 layers, 8x8, float64": Case(mlp(200, 8, 8), "float64", over_hand=0.9),
    }


def as_dtype(model: models.Model, dtype: str) -> tuple[Any, Any]:
    """Return random parameters and input of a model in a dtype."""
    both = tc.networks.random_arrays((model.parameters, model.x), seed=SEED)
    parameters, x = tc.tree.map_leaves(lambda array: array.astype(dtype), both)
    return parameters, x


def traced_peak(function: Callable[[], object]) -> int:
    """Return the bytes that a call allocates above its start, at its peak."""
    function()
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of a step: seconds by runner, bytes, and the least seconds."""

    title: str
    case: Case
    seconds: dict[str, list[float]]
    live: int
    buffer: int
    traced: dict[str, int]
    least: roofline.Roofline
    machine: roofline.Machine

    def over(self, name: str, other: str) -> float | None:
        """Return the median ratio of two runners' times; None if there is no other."""
        if other not in self.seconds:
            return None
        return table.median_ratio(self.seconds[name], self.seconds[other])

    def best_over(self, other: str) -> float | None:
        """Return the ratio of the program in one buffer, in its faster form."""
        found = [ratio for name in ("new", "reused") if (ratio := self.over(name, other))]
        return min(found, default=None)


def measured(title: str, case: Case, rounds: int) -> Row:
    """Measure one step, and compare the bits of all programs."""
    parameters, x = as_dtype(case.model, case.dtype)
    dialect = peers.of_tinyckpt()
    graph = tc.differentiate(
        tc.build(lambda parameters, x: case.model.loss(dialect, parameters, x), parameters, x)
    )
    schedule = tc.plan(graph, "store_all")
    plain = tc.compile(schedule)
    new = tc.compile(schedule, arena=True)
    reused = tc.compile(schedule, arena=True, results="reused")
    runners: dict[str, Callable[[], object]] = {
        "plain": partial(plain.function, parameters, x),
        "new": partial(new.function, parameters, x),
        "reused": partial(reused.function, parameters, x),
    }
    expected = tc.tree.leaves(runners["plain"]())
    for name in ("new", "reused"):
        for _ in range(2):
            for found, bits in zip(tc.tree.leaves(runners[name]()), expected, strict=True):
                assert np.asarray(found).tobytes() == bits.tobytes(), f"{title}, {name}"
    if case.written is not None:
        runners["by hand"] = partial(case.written, parameters, x)
    if peers.installed("torch"):
        import torch

        torch.set_num_threads(THREADS)
        tensors = tc.tree.map_leaves(lambda a: torch.tensor(a, requires_grad=True), parameters)
        start = torch.tensor(x)
        runners["PyTorch"] = partial(peers.torch_step, case.model, tensors, start, False)
    assert reused.arena is not None
    machine = roofline.Machine(
        roofline.measured_bandwidth(reused.arena.nbytes, CLOCK),
        measured_peak(case.dtype),
        measured_call(),
        measured_tanh(case.dtype),
    )
    row = Row(
        title,
        case,
        table.interleaved(runners, rounds, settling=1, clock=CLOCK),
        tc.replay(schedule).peak_bytes,
        reused.arena.nbytes,
        {name: traced_peak(runners[name]) for name in ("plain", "reused")},
        roofline.roofline(schedule, machine),
        machine,
    )
    print(title, {name: statistics.median(s) for name, s in row.seconds.items()}, file=sys.stderr)
    return row


def times(ratio: float | None) -> str:
    """Format a ratio; empty if there is none."""
    return "" if ratio is None else f"{ratio:.2f}"


def verdicts(rows: list[Row]) -> str:
    """Return the sentences that say which limits are met, and which not."""
    met, missed = [], []
    for row in rows:
        for other, limit in (("by hand", row.case.over_hand), ("PyTorch", row.case.over_torch)):
            ratio = row.best_over(other)
            if limit is not None and ratio is not None:
                what = f"{row.title}: {ratio:.2f} of {other} (limit {limit:g})"
                (met if round(ratio, 2) <= limit else missed).append(what)
        if row.traced["reused"] > TRACED:
            missed.append(f"{row.title}: {size_text(row.traced['reused'])} beside the buffer")
    return (
        f"Limits met, by the faster form of the program in one buffer: {'; '.join(met) or 'none'}."
        f"\n\nLimits not met: {'; '.join(missed) or 'none'}."
    )


def seconds_table(rows: list[Row]) -> str:
    """Return the table of times."""
    header = [
        "step", "by hand, ms", "plain program, times by hand", "arena, new results",
        "arena, reused results", "PyTorch eager, ms", "arena, times PyTorch",
    ]  # fmt: skip
    body = []
    for row in rows:
        hand, torch = (
            f"{1e3 * statistics.median(row.seconds[name]):.1f}" if name in row.seconds else ""
            for name in ("by hand", "PyTorch")
        )
        ratios = [times(row.over(name, "by hand")) for name in ("plain", "new", "reused")]
        body.append([row.title, hand, *ratios, torch, times(row.best_over("PyTorch"))])
    return table.rows(header, body)


def memory_table(rows: list[Row]) -> str:
    """Return the table of bytes."""
    header = [
        "step", "peak of live bytes", "buffer", "traced, plain program", "traced beside the buffer",
    ]  # fmt: skip
    body = [
        [row.title, *map(size_text, (row.live, row.buffer, *row.traced.values()))] for row in rows
    ]
    return table.rows(header, body)


def roofline_table(rows: list[Row]) -> str:
    """Return the table of the least times."""
    header = [
        "step", "copy within the buffer's size, GB/s", "product of matrices, GFLOP/s", "tanh, ns",
        "evaluations apart, ms", "times by hand", "all fused, ms", "times by hand",
        "arena, times the least apart",
    ]  # fmt: skip
    body = []
    for row in rows:
        hand = row.seconds.get("by hand")
        fastest = min(statistics.median(row.seconds[name]) for name in ("new", "reused"))
        line: list[object] = [
            row.title, f"{row.machine.bandwidth / 1e9:.1f}", f"{row.machine.peak / 1e9:.0f}",
            f"{1e9 * row.machine.tanh:.1f}",
        ]  # fmt: skip
        for least in (row.least.apart, row.least.fused):
            share = None if hand is None else least / statistics.median(hand)
            line += [f"{1e3 * least:.2f}", times(share)]
        body.append([*line, f"{fastest / row.least.apart:.1f}"])
    return table.rows(header, body)


ROOFLINE = """What this machine could do at best: every evaluation takes the bytes of its operands
and results over the bandwidth of a copy, or its FLOPs over the peak of a large product of matrices,
or NumPy's time for its `tanh`, or the {call:.2f} us of a call of NumPy, whichever is most; or, all
fused, arguments and results are moved once. `exp` and reductions run far below that peak too, so
that the best is above these bounds: a limit that lies below the first of them is out of reach for
NumPy's operators."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--models", default="", help="beginning of the titles to run")
    options = parser.parse_args()
    rows = [
        measured(title, case, options.rounds)
        for title, case in cases().items()
        if title.startswith(options.models)
    ]
    about = ROOFLINE.format(call=1e6 * measured_call())
    sections = [
        f"{counted(THREADS, 'thread')}, {'wall' if THREADS > 1 else 'process'} time; load of the "
        f"machine {os.getloadavg()[1]:.1f}.",
        verdicts(rows),
        seconds_table(rows),
        f"## Memory\n\n{memory_table(rows)}",
        f"## Roofline\n\n{about}\n\n{roofline_table(rows)}",
    ]
    table.write("arena_step", "Steps in one buffer", sections, ["numpy", "torch"])


if __name__ == "__main__":
    main()
