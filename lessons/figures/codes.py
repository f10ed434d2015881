"""Quantised activations: bias and variance of stochastic rounding, and the memory saved."""

from __future__ import annotations

from typing import Any

import numpy as np

import tinyckpt as tc
from lessons.figures.figure import Figure
from tinyckpt.networks import Network, resnet

MESA = "Pan et al. 2021, arXiv 2111.11124"
ACTNN = "Chen et al. 2021, arXiv 2104.14129"
DRAWS, GROUP = 10**6, 1000
BETWEEN = (0.1, 0.25, 0.5, 0.75, 0.9)  # positions between two steps


def figures() -> list[Figure]:
    """Return the rows."""
    return [rounding(), smaller()]


def rounding() -> Figure:
    """Return the row of stochastic rounding."""
    variances, unbiased = {}, []
    for bits in (8, 4, 2):
        found = []
        for where in BETWEEN:
            error = errors(bits, where)
            expected = (where * (1 - where) / error.size) ** 0.5
            unbiased.append(abs(error.mean()) < 4 * expected)
            found.append(float((error**2).mean()))
        variances[bits] = max(found)
    shown = ", ".join(f"{variance:.3f}" for variance in variances.values())
    return Figure(
        "stochastic rounding is unbiased, with a variance of at most a quarter of the squared step",
        MESA,
        f"at most {shown} steps squared with {', '.join(map(str, variances))} bits",
        all(unbiased) and max(variances.values()) <= 0.25 * (1 + 4 / DRAWS**0.5),
        "It is largest halfway between two steps. A gradient that reads codes linearly is "
        "unbiased; one that multiplies or exponentiates them is not.",
        "10⁶ draws at each of five places: the mean within 4 standard errors"
        if all(unbiased)
        else "the mean is off",
    )


def errors(bits: int, where: float) -> Any:
    """Return the error, in steps, of dequantised numbers between two steps."""
    x = np.full((DRAWS // GROUP, GROUP), 1 + where)
    x[:, 0], x[:, 1] = 1, 2**bits  # minimum and maximum of the group: steps of 1

    def loss(w: Any, x: Any) -> Any:  # its gradient is the dequantised array
        return tc.sum(tc.compressed(x * 1.0, bits, GROUP, seed=bits) * w)

    return (tc.grad(loss)(np.ones_like(x), x) - x)[:, 2:]


def smaller() -> Figure:
    """Return the row of a network at two bits."""
    network = resnet(50, batch=8)
    before, after = kept(network), kept(tc.with_compression(network, bits=2))
    return Figure(
        "with 2 bits, activations are 12 times smaller",
        ACTNN,
        f"{before / after:.1f} times, for ResNet-50",
        before / after > 12,
        "ActNN uses 2 bits on average, allocated per value. Here all have 2, and each group of 256 "
        "has two 32-bit numbers in addition.",
    )


def kept(network: Network) -> int:
    """Return the bytes of activations that store-all saves."""
    return sum(v.nbytes for v in tc.saved_values(network.graph()) if v.role == "activation")
