"""Rounding, sign, floor division and remainder, clipping: piecewise constant or linear functions.

Where a function is flat its derivative is taken as 0 everywhere, at the jumps too. Most are rows of
``elementwise_table``; functions with options or casts of their own are written out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyckpt.base.dtypes import is_float
from tinyckpt.base.errors import GraphError
from tinyckpt.core.tracing import Var, active_builder, apply, as_var
from tinyckpt.ops.casting import PYTHON_NUMBERS, astype, promote_to_float
from tinyckpt.ops.comparison import equal, greater, less
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise import (
    PRIMITIVES,
    absolute,
    binary,
    maximum,
    minimum,
    negative,
    unary,
    where,
)
from tinyckpt.ops.logic import isnan, signbit

sign = unary("sign")
floor = unary("floor")
ceil = unary("ceil")
trunc = unary("trunc")
floor_divide = binary("floor_divide")
remainder = binary("remainder")
fmod = binary("fmod")
fmax = binary("fmax")
fmin = binary("fmin")


@eager
def round(x: Var, decimals: int = 0) -> Var:
    """Every element rounded, halves to even; its derivative is taken as 0.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.round)(np.array([0.5, 1.5, 2.6]))
    array([0., 2., 3.])
    """
    if isinstance(decimals, bool) or not isinstance(decimals, int | np.integer):
        raise GraphError(f"round: decimals {decimals!r} must be an integer")
    x = as_var(x)
    if x.dtype.kind in "iu" and decimals >= 0:
        return x
    return apply(PRIMITIVES["round"], x, decimals=int(decimals))


@eager
def clip(x: Any, min: Any = None, max: Any = None) -> Var:
    """Clip elements to the range from ``min`` to ``max``.

    At a bound itself, ``x`` and the bound get half of the cotangent each, as in ``maximum``.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.clip(x, 0.0, 1.0))(np.array([-2.0, 0.5, 2.0]))
    array([0. , 0.5, 1. ])
    """
    x = as_var(x)
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


@eager
def copysign(x: Any, y: Any) -> Var:
    """Absolute value of ``x`` with the sign of ``y``.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.copysign)(np.array([1.0, -2.0]), np.array([-1.0, 1.0]))
    array([-1.,  2.])
    """
    x, y = promote_to_float(np.copysign, x, y)
    dtype = np.result_type(*(o if type(o) in PYTHON_NUMBERS else o.dtype for o in (x, y)))
    size = absolute(active_builder("copysign").as_var(x, dtype))
    return astype(where(signbit(y), negative(size), size), dtype)


@eager
def heaviside(x: Any, at_0: Any) -> Var:
    """Heaviside step function: 0 where ``x`` is negative, 1 where it is positive, ``at_0`` at 0.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.heaviside(x, 0.5))(np.array([-1.0, 0.0, 1.0]))
    array([0. , 0.5, 1. ])
    """
    x, at_0 = promote_to_float(np.heaviside, x, at_0)
    step = where(less(x, 0), 0.0, where(greater(x, 0), 1.0, x * 0))
    return where(equal(x, 0), at_0, step)


@eager
def nan_to_num(
    x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Var:
    """Replace NaN and infinities by numbers.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.nan_to_num(x, posinf=9.0))(np.array([1.0, np.nan, np.inf]))
    array([1., 0., 9.])
    """
    x = number = as_var(x)
    if not is_float(number.dtype):
        return number
    largest = float(np.finfo(number.dtype).max)
    x = where(isnan(number), nan, number)
    x = where(equal(x, np.inf), largest if posinf is None else posinf, x)
    return where(equal(x, -np.inf), -largest if neginf is None else neginf, x)
