"""Piecewise linear fits of GELU and SiLU, whose step-function derivatives Approx-BP uses.

Each is ``a_1 max(x - c_1, 0) + a_2 max(x - c_2, 0) + a_3 max(x - c_3, 0)``: its derivative is a
step function with four values, which two bits per element select. Both parameter sets minimise the
squared error against gelu or silu, integrated over all x (least squares).

``published`` are the paper's numbers, found by simulated annealing. ``symmetric`` is the minimum
itself: gelu(x) - x/2 and silu(x) - x/2 are even, and so is their best fit, which leaves two
unknowns, a_1 and c_1. They were computed to 30 digits by setting both derivatives to 0; a test does
it again in float64. The integrals are 0.0095093 and 0.0095069 for gelu, 0.039944 and 0.039941 for
silu.

Source: Yang, Chen, Shi, Liu and Wang, "Reducing fine-tuning memory overhead by approximate and
memory-sharing backpropagation", ICML 2024, arXiv 2406.16282, section 4 (Approx-BP).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError, did_you_mean


@dataclass(frozen=True, slots=True)
class Fit:
    """A continuous piecewise linear function with three breakpoints.

    Attributes:
        weights: the change of slope at each breakpoint.
        breakpoints: positions of the breakpoints, ascending.
    """

    weights: tuple[float, float, float]
    breakpoints: tuple[float, float, float]


def round_down(number: float, dtype: np.dtype[Any]) -> float:
    """Round a float64 number down to a dtype: its largest number that is not above it."""
    nearest = dtype.type(number)
    if float(nearest) > number:
        nearest = np.nextafter(nearest, dtype.type(-math.inf))
    return float(nearest)


def symmetric(weight: float, breakpoint: float) -> Fit:
    """Return the fit of a function that is x/2 plus an even function."""
    return Fit((weight, 1 - 2 * weight, weight), (-breakpoint, 0.0, breakpoint))


GELU = {
    "published": Fit(
        (-0.04922261145617846, 1.0979632065417297, -0.048740595085551286),
        (-3.1858810036855245, -0.001178821281161997, 3.190832613414926),
    ),
    "symmetric": symmetric(-0.049575205652327287, 3.1713097426920701),
}
SILU = {
    "published": Fit(
        (-0.04060357190528599, 1.080925428529668, -0.040321856624382146),
        (-6.3050461001646445, -0.0008684942046214787, 6.325815242089708),
    ),
    "symmetric": symmetric(-0.040524294054930716, 6.3199334045496486),
}
FITS = {"gelu": GELU, "silu": SILU}


def slopes_of(name: str, fit: str) -> tuple[float, ...]:
    """Return a fit's slopes: below the first breakpoint, between each two, above the last."""
    return tuple(accumulate(FITS[name][fit].weights, initial=0.0))


def thresholds_of(name: str, fit: str, dtype: np.dtype[Any]) -> tuple[float, ...]:
    """Return each breakpoint rounded down to a dtype.

    A number of that dtype is above the rounded breakpoint if, and only if, it is above the exact
    one.
    """
    return tuple([round_down(point, dtype) for point in FITS[name][fit].breakpoints])


def checked_fit(what: str, fit: Any) -> str:
    """Return the name of a fit, or raise a GraphError that lists the names."""
    if not isinstance(fit, str) or fit not in GELU:
        raise GraphError(
            f"{what}: fit={fit!r}{did_you_mean(str(fit), GELU)}; expected one of {', '.join(GELU)}"
        )
    return fit
