"""Benchmark: a step in one buffer against the plain program and NumPy written by hand.

Loss and gradients; all run in turn, in one process, on two threads; ratios are medians over rounds.
Memory is what tracemalloc sees of one call after the first two, above its start: of the plain
program the peak; with an arena, what is beside the buffer. ``--models`` chooses by the beginning of
a title.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "2"

import argparse
import statistics
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import by_hand
import models
import numpy as np
import peers
import table

import tinyckpt as tc
from tinyckpt.base.units import size_text

SEED = 2


def as_dtype(model: models.Model, dtype: str) -> tuple[Any, Any]:
    """Return random parameters and input of a model in a dtype."""
    both = tc.networks.random_arrays((model.parameters, model.x), seed=SEED)
    parameters, x = tc.tree.map_leaves(lambda array: array.astype(dtype), both)
    return parameters, x


def small_steps() -> models.Model:
    """Return 200 layers on 8x8 arrays: operators so small that only Python's overhead shows."""
    return models.perceptron(200, 8, 8)


def cases() -> dict[str, tuple[models.Model, str, Callable[..., Any]]]:
    """Return the steps that are timed, with each of them by hand."""
    mlp, gpt = models.perceptron, models.gpt_block()
    return {
        "MLP, 64 layers, 64x256, float64": (mlp(), "float64", by_hand.perceptron),
        "MLP, 64 layers, 64x256, float32": (mlp(), "float32", by_hand.perceptron),
        "MLP, 16 layers, 65,536x64, float32": (
            mlp(16, 64, 65_536), "float32", by_hand.perceptron,
        ),
        "MLP, 16 layers, 2,048x512, float32": (
            mlp(16, 512, 2_048), "float32", by_hand.perceptron,
        ),
        "GPT block, b=4, s=256, h=256, float32": (
            gpt, "float32", partial(by_hand.gpt_block, batch=4, heads=4),
        ),
        "conv block, float32": (models.conv_block(), "float32", by_hand.conv_block),
        "MLP, 200 layers, 8x8, float64": (small_steps(), "float64", by_hand.perceptron),
    }  # fmt: skip


def traced_peak(function: Callable[[], object]) -> int:
    """Return the bytes that a call allocates above its start, at its peak."""
    function()
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measured(
    title: str, model: models.Model, dtype: str, written: Callable[..., Any], rounds: int
) -> list[object]:
    """Return the table's row of one step."""
    parameters, x = as_dtype(model, dtype)
    dialect = peers.of_tinyckpt()
    graph = tc.differentiate(
        tc.build(lambda parameters, x: model.loss(dialect, parameters, x), parameters, x)
    )
    schedule = tc.plan(graph, "store_all")
    plain = tc.compile(schedule)
    new = tc.compile(schedule, arena=True)
    reused = tc.compile(schedule, arena=True, results="reused")
    runners: dict[str, Callable[[], object]] = {
        "by hand": partial(written, parameters, x),
        "plain": partial(plain.function, parameters, x),
        "new": partial(new.function, parameters, x),
        "reused": partial(reused.function, parameters, x),
    }
    expected = tc.tree.leaves(runners["plain"]())
    for name in ("new", "reused"):
        for _ in range(2):
            for found, bits in zip(tc.tree.leaves(runners[name]()), expected, strict=True):
                assert np.asarray(found).tobytes() == bits.tobytes(), f"{title}, {name}"
    seconds = table.interleaved(runners, rounds, settling=1)
    hand = seconds["by hand"]
    assert reused.arena is not None
    return [
        title,
        f"{1e3 * statistics.median(hand):.1f}",
        *(f"{table.median_ratio(seconds[name], hand):.2f}" for name in ("plain", "new", "reused")),
        size_text(tc.replay(schedule).peak_bytes),
        size_text(reused.arena.nbytes),
        size_text(traced_peak(runners["plain"])),
        size_text(traced_peak(runners["reused"])),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--models", default="", help="beginning of the titles to run")
    args = parser.parse_args()
    body = [
        measured(title, *case, args.rounds)
        for title, case in cases().items()
        if title.startswith(args.models)
    ]
    header = [
        "step", "by hand, ms", "plain program, times by hand", "arena, new results",
        "arena, reused results", "peak of live bytes", "buffer", "traced, plain",
        "traced beside the buffer",
    ]  # fmt: skip
    title = "Steps in one buffer"
    table.write("arena_step", title, [table.rows(header, body)], ["numpy"])


if __name__ == "__main__":
    main()
