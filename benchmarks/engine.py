"""Benchmark: per-operator overhead over plain NumPy, against HIPS/autograd and PyTorch.

The network: 200 layers ``h = tanh(h @ w)`` on 8x8 arrays, under half the squared norm: operators so
small that every microsecond between them shows. All run in turn, in one process; ratios are medians
over rounds.
"""

from __future__ import annotations

import os

# One thread: 8x8 products gain nothing from more, and PyTorch's pool would disturb the others.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib.util
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import table

import tinyckpt as tc
from tinyckpt.core.execute import execute

LAYERS, SIZE, ROUNDS = 200, 8, 300


def by_hand(weights: list[Any], x: Any) -> tuple[Any, list[Any]]:
    """Return loss and gradients as a person would write them in NumPy."""
    hs = [x]
    for w in weights:
        hs.append(np.tanh(hs[-1] @ w))
    loss = 0.5 * (hs[-1] * hs[-1]).sum()
    g = hs[-1]
    gradients: list[Any] = [None] * len(weights)
    for i in range(len(weights) - 1, -1, -1):
        g = g * (1 - hs[i + 1] * hs[i + 1])
        gradients[i] = hs[i].T @ g
        if i:
            g = g @ weights[i].T
    return loss, gradients


def loss(weights: Any, x: Any) -> Any:
    """Return the same loss as a tinyckpt graph."""
    h = x
    for w in weights:
        h = tc.tanh(h @ w)
    return tc.half_squared_norm(h)


def peers(weights: list[Any], x: Any) -> dict[str, Callable[[], object]]:
    """Return the other libraries that are installed."""
    found: dict[str, Callable[[], object]] = {}
    if importlib.util.find_spec("autograd"):
        import autograd
        import autograd.numpy as anp

        def autograd_loss(weights: Any) -> Any:
            h = x
            for w in weights:
                h = anp.tanh(anp.dot(h, w))
            return 0.5 * anp.sum(h * h)

        both = autograd.value_and_grad(autograd_loss)
        found["HIPS/autograd"] = lambda: both(weights)
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)
        tensors = [torch.tensor(w, requires_grad=True) for w in weights]
        start = torch.tensor(x)

        def torch_step() -> object:
            h = start
            for w in tensors:
                h = torch.tanh(h @ w)
            return torch.autograd.grad(0.5 * (h * h).sum(), tensors)

        found["PyTorch, eager, CPU"] = torch_step
    return found


def overhead() -> str:
    """Return the table of one training step."""
    weights, x = tc.networks.random_arrays(
        ([tc.Spec((SIZE, SIZE))] * LAYERS, tc.Spec((SIZE, SIZE))), seed=0
    )
    graph = tc.differentiate(tc.build(loss, weights, x))
    schedule = tc.plan(graph, "store_all")
    compiled = tc.compile(schedule)
    expected = by_hand(weights, x)[1]
    for gradient, other in zip(compiled(weights, x)[1], expected, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-9, atol=1e-12)
    step = tc.value_and_grad(loss)
    sources = dict(zip(tc.tree.leaves(graph.arguments), [*weights, x], strict=True))
    runners: dict[str, Callable[[], object]] = {
        "NumPy by hand": lambda: by_hand(weights, x),
        "compile": lambda: compiled.function(weights, x),
        "compile, arguments checked": lambda: compiled(weights, x),
        "value_and_grad": lambda: step(weights, x),
        "execute": lambda: execute(schedule, sources),
        "run": lambda: tc.run(schedule, weights, x),
        **peers(weights, x),
    }
    seconds = table.interleaved(runners, ROUNDS)
    baseline = seconds["NumPy by hand"]
    body = [
        [
            name,
            f"{1e3 * statistics.median(s):.2f}",
            f"{table.median_ratio(s, baseline):.2f}",
        ]
        for name, s in seconds.items()
    ]
    return table.rows(["one step, 200 layers of 8x8", "ms", "ratio to NumPy by hand"], body)


def long_chain() -> str:
    """Return the table of building, planning and replaying a chain of 100,001 operators."""
    begin = perf_counter()
    graph = tc.networks.chain(50_000)
    built = perf_counter()
    schedule = tc.plan(graph, "sqrt_n")
    planned = perf_counter()
    tc.replay(schedule)
    replayed = perf_counter()
    body = [
        ["build and differentiate", f"{built - begin:.2f}"],
        ["plan, sqrt_n", f"{planned - built:.2f}"],
        [f"replay, {len(schedule.steps):,} steps", f"{replayed - planned:.2f}"],
        ["all", f"{replayed - begin:.2f}"],
    ]
    return table.rows([f"chain of {len(graph.operators):,} operators", "s"], body)


if __name__ == "__main__":
    table.write(
        "engine",
        "What the engine costs",
        [overhead(), long_chain()],
        ["numpy", "autograd", "torch"],
    )
