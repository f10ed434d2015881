"""The piecewise linear functions of ReGELU2 and ReSiLU2: coefficient sums and squared errors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

import tinyckpt as tc
from lessons.figures.figure import Figure
from tinyckpt.ops.gelu_silu_fits import FITS, Fit

PAPER = "Yang et al. 2024, arXiv 2406.16282"
ACTIVATIONS: dict[str, tuple[str, Any]] = {
    "gelu": ("ReGELU2", tc.regelu2),
    "silu": ("ReSiLU2", tc.resilu2),
}
ERRORS = {"gelu": (0.00950934, 0.00950694), "silu": (0.0399438, 0.0399413)}
FARTHEST = 60.0  # silu is x, and 0 on the left, but for 1e-24


def figures() -> list[Figure]:
    """Return the rows."""
    return [sums(), *(fitted(name) for name in FITS), kept()]


def sums() -> Figure:
    """Return the row of the coefficients' sums."""
    published = [fits["published"] for fits in FITS.values()]
    totals = [sum(fit.weights) for fit in published]
    moments = [
        sum(a * c for a, c in zip(fit.weights, fit.breakpoints, strict=True)) for fit in published
    ]
    return Figure(
        "both fits have Σa = 1 and Σac = 0",
        PAPER,
        f"Σa - 1 is {worst([total - 1 for total in totals])}, Σac is {worst(moments)}",
        max(abs(total - 1) for total in totals) < 1e-12 and max(map(abs, moments)) < 1e-8,
        "So their asymptotes are 0 and x, as of gelu and silu, and the squared error is finite.",
    )


def worst(values: list[float]) -> str:
    """Return a power of ten that bounds the absolute values."""
    largest = max(map(abs, values))
    return f"below 1e{int(np.ceil(np.log10(max(largest, 1e-16))))}"


def fitted(name: str) -> Figure:
    """Return the row of one activation's two fits."""
    published, symmetric = (error(name, FITS[name][fit]) for fit in ("published", "symmetric"))
    claimed = ERRORS[name]
    digits = len(str(claimed[0])) - 2
    return Figure(
        f"∫({name} - fit)² is {claimed[0]:g} with {ACTIVATIONS[name][0]}'s six parameters, and "
        f"{claimed[1]:g} at the minimum, which is symmetric and has two",
        f"{PAPER}, by simulated annealing; the minimum is derived",
        f"{published:.{digits}f} and {symmetric:.{digits}f}",
        (round(published, digits), round(symmetric, digits)) == claimed and symmetric < published,
        f'{name}(x) - x/2 is even. It is available as `fit="symmetric"`.',
    )


def error(name: str, fit: Fit) -> float:
    """Return the squared error of a fit, integrated by Gauss-Legendre quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    exact = tc.jit(tc.gelu if name == "gelu" else tc.silu)
    ends = [-FARTHEST, -FARTHEST / 3, *fit.breakpoints, FARTHEST / 3, FARTHEST]
    total = 0.0
    for low, high in pairwise(ends):  # smooth between breakpoints
        x = (high - low) / 2 * nodes + (high + low) / 2
        linear = sum(
            a * np.maximum(x - c, 0) for a, c in zip(fit.weights, fit.breakpoints, strict=True)
        )
        total += float(((exact(x) - linear) ** 2 * weights).sum()) * (high - low) / 2
    return total


def kept() -> Figure:
    """Return the row of the saved bits per element, and of the error of slopes."""
    count, bits = 1001, {}
    for name, (_, activation) in ACTIVATIONS.items():
        graph = tc.differentiate(
            tc.build(lambda x, f=activation: tc.sum(f(x * 2)), tc.Spec(count, "float16"))
        )
        bits[name] = [node.nbytes for node in tc.saved_values(graph) if node.role == "activation"]
    x = np.linspace(-10, 10, 40_000)
    off = [
        abs(slope(activation, x) - slope(getattr(tc, name), x)).max()
        for name, (_, activation) in ACTIVATIONS.items()
    ]
    return Figure(
        "two bits per element are saved, an eighth of 16",
        PAPER,
        f"{bits['gelu'][0]} bytes of {count} elements, ⌈N/4⌉",
        list(bits.values()) == [[-(-count // 4)]] * 2,
        f"Forward values are exact to the last bit. Slopes are off by up to {off[0]:.2f} and "
        f"{off[1]:.2f}, close to 0.",
    )


def slope(function: Any, x: Any) -> Any:
    """Return the derivative of a scalar function, elementwise."""
    return tc.grad(lambda x: tc.sum(function(x)))(x)
