"""Bytes per parameter in training, and gradient accumulation."""

from __future__ import annotations

from typing import Any

import numpy as np

import tinyckpt as tc
from lessons.figures.figure import Figure
from tinyckpt.networks import mlp
from tinyckpt.training import sharded

ZERO = "Rajbhandari et al. 2020, arXiv 1910.02054"
GRADIENTS = "gradients"
RANKS = 64


def ledger_of(count: int, dtype: str, optimizer: Any) -> tuple[tc.Ledger, int]:
    """Return the ledger of a step with all gradients live, and the number of parameters."""
    width = int(count**0.5)

    def loss(params: Any, x: Any) -> Any:
        return tc.half_squared_norm(x @ params["w"])

    step = tc.train_step(loss, optimizer, gradients="held")
    state = step.init({"w": tc.Spec((width, width), dtype)})
    return tc.ledger(step.schedule(state, tc.Spec((1, width), dtype))), width * width


def parts_of(ledger: tc.Ledger) -> list[int]:
    """Return the bytes of parameters, of gradients and of the optimiser's state."""
    held = ledger.sources
    return [held["parameters"], max(ledger.held[GRADIENTS]), held["optimizer state"]]


def figures() -> list[Figure]:
    """Return the rows."""
    adam, count = ledger_of(10**10, "float32", tc.adam(1e-3))
    own = parts_of(adam)
    mixed, halves = ledger_of(75 * 10**8, "float16", tc.with_master_weights(tc.adam(1e-3)))
    parts = parts_of(mixed)
    of_each = [round(nbytes / halves, 3) for nbytes in parts]
    return [
        Figure(
            "Adam takes 16 bytes per parameter, of which the two moments are optimiser state",
            "arithmetic",
            " + ".join(f"{nbytes / count:.0f}" for nbytes in own),
            [nbytes // count for nbytes in own] == [4, 4, 8],
            "The moments are often taught as gradients. They are state, resident in every step.",
        ),
        Figure(
            "10 billion parameters in float32: 40, 40 and 80 GB",
            "arithmetic",
            ", ".join(f"{nbytes / 1e9:.1f} GB" for nbytes in own),
            [round(nbytes / 1e9) for nbytes in own] == [40, 40, 80],
            "Parameters, gradients, moments.",
        ),
        Figure(
            "mixed precision: 2 + 2 + 12 bytes per parameter, 120 GB for 7.5 billion",
            ZERO,
            f"{' + '.join(f'{nbytes:g}' for nbytes in of_each)}; {sum(parts) / 1e9:.1f} GB",
            of_each == [2, 2, 12] and round(sum(parts) / 1e9) == 120,
            "As much as in float32: the float32 copy takes what 16 bits save.",
        ),
        zero(mixed),
        *accumulated(),
    ]


def zero(mixed: tc.Ledger) -> Figure:
    """Return the row of a state partitioned over ranks."""
    claimed = ["31.4", "16.6", "1.9"]
    shares = [sharded(mixed, RANKS, zero) for zero in range(4)]
    found = [f"{share.nbytes / 1e9:.1f}" for share in shares[1:]]
    sent = [f"{share.exchanged / 1e9:.0f} GB" for share in shares]
    return Figure(
        f"of these 120 GB, each of {RANKS} ranks stores 31.4, 16.6 and 1.9 GB with ZeRO-1, 2 and 3",
        ZERO,
        f"{', '.join(found)} GB",
        found == claimed,
        "Partitioned are the optimiser state, then also gradients, then also parameters. A rank "
        f"sends {', '.join(sent[1:])} per step; without partitioning {sent[0]}.",
    )


def accumulated() -> list[Figure]:
    """Return the rows of micro-batches."""
    network = mlp(16, 64, 1024)
    params, x, labels = network.arrays()
    labels = np.arange(1024) % 10
    steps = {m: tc.train_step(network.loss, tc.sgd(0.1), micro_batches=m) for m in (1, 8)}
    after, peaks = {}, {}
    for count, step in steps.items():
        state = step.init(params)
        part = "whole" if count == 1 else "middle"
        batch = (x[: 1024 // count], labels[: 1024 // count])
        ledger = tc.ledger(step.schedule(state, *batch, part=part))
        peaks[count] = max(ledger.held["activations"])
        after[count] = tc.tree.leaves(step(state, x, labels)[0]["parameters"])
    error = max(
        float(np.abs(a - b).max() / np.abs(b).max())
        for a, b in zip(after[8], after[1], strict=True)
    )
    return [
        Figure(
            "M micro-batches, averaged, give the gradient of the whole batch",
            "for a mean loss",
            "the same step but for rounding" if error < 1e-12 else f"{error:.1e}",
            error < 1e-12,
            "Summed instead of averaged, the result is M times the gradient.",
            "float64, below 1e-12" if error < 1e-12 else f"{error:.1e}",
        ),
        Figure(
            "and activations are divided by M",
            "arithmetic",
            f"{peaks[1] / peaks[8]:.2f} times less for M = 8",
            round(peaks[1] / peaks[8], 1) == 8.0,
            "Activation memory is proportional to the micro-batch.",
        ),
        batch_normed(),
    ]


def batch_normed() -> Figure:
    """Return the row of batch norm, whose statistics are per micro-batch."""

    def loss(params: Any, x: Any) -> Any:
        y, _, _ = tc.batch_norm(x @ params["w"], params["scale"], params["shift"])
        return tc.mean(y**3)

    generator = np.random.default_rng(0)
    x, w = generator.normal(size=(64, 8)), generator.normal(size=(8, 8))
    values = []
    for count in (1, 4):
        step = tc.train_step(loss, tc.sgd(0.1), micro_batches=count)
        state = step.init({"w": w, "scale": np.ones(8), "shift": np.zeros(8)})
        values.append(step(state, x)[0]["parameters"]["w"])
    error = float(np.abs(values[1] - values[0]).max() / np.abs(values[0]).max())
    return Figure(
        "with batch norm the gradient differs",
        "arithmetic",
        "each micro-batch is normalised separately",
        error > 1e-3,
        "So M is not a free choice there.",
        "parameters differ after one step" if error > 1e-3 else f"{error:.1e}",
    )
