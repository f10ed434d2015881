"""Learning rate schedules: warm-up with cosine or linear decay, as functions of the step count.

They are called on a Var and are part of the graph, so that one program serves every step.

>>> import numpy as np, tinyckpt as tc
>>> rate = tc.jit(tc.cosine_rate(1.0, steps=100, warmup=10))
>>> [round(float(rate(np.int64(step))), 3) for step in (0, 4, 9, 55, 100, 200)]
[0.1, 0.5, 1.0, 0.5, 0.0, 0.0]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from tinyckpt.base.errors import OptionError
from tinyckpt.core.tracing import Var
from tinyckpt.ops.casting import astype
from tinyckpt.ops.elementwise import cos, maximum, minimum, where
from tinyckpt.training.optimizers import check


def cosine_rate(
    peak: float, steps: int, warmup: int = 0, floor: float = 0.0
) -> Callable[[Any], Var]:
    """Cosine decay with linear warm-up.

    >>> import numpy as np, tinyckpt as tc
    >>> rate = tc.jit(tc.cosine_rate(1.0, steps=100, warmup=10))
    >>> [round(float(rate(np.int64(step))), 3) for step in (0, 9, 55, 100)]
    [0.1, 1.0, 0.5, 0.0]

    Args:
        peak: the largest rate, that of step ``warmup``.
        steps: number of steps, warm-up included, after which it stays at the floor.
        warmup: steps of the warm-up; the first of them has ``peak / warmup``.
        floor: the rate at the end.

    Source: Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts",
    arXiv 1608.03983, equation 5, without restarts.

    Raises:
        OptionError: if a number is out of its range.
    """
    check_phases(peak, steps, warmup, floor)
    return partial(rate_at, cosine_fall, peak, steps, warmup, floor)


def linear_rate(
    peak: float, steps: int, warmup: int = 0, floor: float = 0.0
) -> Callable[[Any], Var]:
    """Linear decay with linear warm-up.

    >>> import numpy as np, tinyckpt as tc
    >>> rate = tc.jit(tc.linear_rate(1.0, steps=100, warmup=10))
    >>> [round(float(rate(np.int64(step))), 3) for step in (0, 9, 55, 100)]
    [0.1, 1.0, 0.5, 0.0]

    Args:
        peak, steps, warmup, floor: as in ``cosine_rate``.

    Raises:
        OptionError: if a number is out of its range.
    """
    check_phases(peak, steps, warmup, floor)
    return partial(rate_at, linear_fall, peak, steps, warmup, floor)


def rate_at(
    fall: Callable[[float, float, Var], Var],
    peak: float,
    steps: int,
    warmup: int,
    floor: float,
    step: Any,
) -> Var:
    """Return the rate of a step: linear warm-up, then decay."""
    taken = astype(step, "float64")
    share = minimum(1.0, maximum(0.0, (taken - warmup) / (steps - warmup)))
    later = fall(peak, floor, share)
    return where(taken < warmup, (taken + 1.0) * (peak / warmup), later) if warmup else later


def cosine_fall(peak: float, floor: float, share: Var) -> Var:
    """Return the rate after a fraction of the cosine decay."""
    return floor + (peak - floor) * 0.5 * (1.0 + cos(share * math.pi))


def linear_fall(peak: float, floor: float, share: Var) -> Var:
    """Return the rate after a fraction of the linear decay."""
    return peak + (floor - peak) * share


def check_phases(peak: float, steps: int, warmup: int, floor: float) -> None:
    """Raise an OptionError unless the phases of a learning rate schedule are consistent."""
    check(peak=(peak, 0, None), floor=(floor, 0, None), steps=(steps, 1, None))
    check(warmup=(warmup, 0, None))
    if not warmup < steps:
        raise OptionError(f"warmup={warmup}: it must be less than the steps, {steps}")
    if not floor <= peak < math.inf:
        raise OptionError(f"floor={floor}, peak={peak}: the peak is finite, the floor at most that")
