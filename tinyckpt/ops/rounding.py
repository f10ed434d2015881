"""Steps: sign, rounding, division with a rest, clipping. Where a function is flat its derivative is
taken as 0 everywhere, at the jumps too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.dtypes import is_float
from tinyckpt.base.errors import GraphError
from tinyckpt.core.primitive import Primitive, active_builder, apply, as_var, per_element, zero
from tinyckpt.ops import infer
from tinyckpt.ops import kernels_functions as kernels
from tinyckpt.ops.casting import PYTHON_NUMBERS, as_computed, astype
from tinyckpt.ops.comparison import equal, greater, less
from tinyckpt.ops.elementwise import absolute, binary, maximum, minimum, negative, unary, where
from tinyckpt.ops.logic import isnan, signbit

if TYPE_CHECKING:
    from tinyckpt.core.tracing import Var


# The facts ---------------------------------------------------------------------------------------

SIGN = unary("sign", kernels.sign, zero, infer_rule=infer.elementwise)
FLOOR = unary("floor", kernels.floor, zero)
CEIL = unary("ceil", kernels.ceil, zero)
TRUNC = unary("trunc", kernels.trunc, zero)
ROUND = unary("round", kernels.round_, zero, infer_rule=infer.elementwise)
FLOOR_DIVIDE = Primitive(
    "floor_divide", kernels.floor_divide, infer.elementwise, vjp=(zero, zero), flops=per_element(1)
)
# x - y floor(x / y): a line in x, with the number of times that y fits in as its slope in y.
REMAINDER = binary(
    "remainder", kernels.remainder,
    lambda ct, ins, outs: ct[0],
    lambda ct, ins, outs: -(ct[0] * floor_divide(ins[0], ins[1])),
)  # fmt: skip
FMOD = binary(
    "fmod", kernels.fmod,
    lambda ct, ins, outs: ct[0],
    lambda ct, ins, outs: -(ct[0] * trunc(ins[0] / ins[1])),
)  # fmt: skip

# The functions -----------------------------------------------------------------------------------


def sign(x: Any) -> Var:
    """Return -1, 0 or 1, as every element is; its derivative is taken as 0."""
    return apply(SIGN, x)


def of_floats(primitive: Primitive, x: Any) -> Var:
    """Return the primitive of floats; integers have nothing to be rounded, and stay."""
    x = as_var(x)
    return apply(primitive, x) if is_float(x.dtype) else x


def floor(x: Any) -> Var:
    """Return the largest integer not above every element; its derivative is taken as 0."""
    return of_floats(FLOOR, x)


def ceil(x: Any) -> Var:
    """Return the smallest integer not below every element; its derivative is taken as 0."""
    return of_floats(CEIL, x)


def trunc(x: Any) -> Var:
    """Return every element without its fraction; its derivative is taken as 0."""
    return of_floats(TRUNC, x)


def round(x: Var, decimals: int = 0) -> Var:
    """Return every element rounded, halves to even; its derivative is taken as 0."""
    if isinstance(decimals, bool) or not isinstance(decimals, int | np.integer):
        raise GraphError(f"round: decimals {decimals!r} must be an integer")
    x = as_var(x)
    if x.dtype.kind in "iu" and decimals >= 0:
        return x
    return apply(ROUND, x, decimals=int(decimals))


def floor_divide(x: Any, y: Any) -> Var:
    """Return ``x // y``, rounded down; its derivatives are taken as 0."""
    return apply(FLOOR_DIVIDE, x, y)


def remainder(x: Any, y: Any) -> Var:
    """Return ``x % y``, with the sign of ``y``; at its jumps the derivative is that beside them."""
    return apply(REMAINDER, x, y)


def fmod(x: Any, y: Any) -> Var:
    """Return what is left of ``x`` after division by ``y``, with the sign of ``x``."""
    return apply(FMOD, x, y)


def clip(x: Any, min: Any = None, max: Any = None) -> Var:
    """Return ``x`` with what is below ``min`` or above ``max`` replaced by that bound.

    At a bound itself, ``x`` and the bound get half of the cotangent each, as in ``maximum``.
    """
    x = as_var(x)
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


def fmax(x: Any, y: Any) -> Var:
    """Return the larger of each pair; the other one where one is not a number."""
    return where(isnan(x), y, where(isnan(y), x, maximum(x, y)))


def fmin(x: Any, y: Any) -> Var:
    """Return the smaller of each pair; the other one where one is not a number."""
    return where(isnan(x), y, where(isnan(y), x, minimum(x, y)))


def copysign(x: Any, y: Any) -> Var:
    """Return the absolute value of ``x`` with the sign of ``y``."""
    x, y = as_computed(np.copysign, x, y)
    dtype = np.result_type(*(o if type(o) in PYTHON_NUMBERS else o.dtype for o in (x, y)))
    size = absolute(active_builder("copysign").as_var(x, dtype))
    return astype(where(signbit(y), negative(size), size), dtype)


def heaviside(x: Any, at_0: Any) -> Var:
    """Return 0 where ``x`` is negative, 1 where it is positive, and ``at_0`` at 0."""
    x, at_0 = as_computed(np.heaviside, x, at_0)
    step = where(less(x, 0), 0.0, where(greater(x, 0), 1.0, x * 0))
    return where(equal(x, 0), at_0, step)


def nan_to_num(
    x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Var:
    """Return ``x`` with numbers in the places of what is not a number or infinite."""
    x = number = as_var(x)
    if not is_float(number.dtype):
        return number
    largest = float(np.finfo(number.dtype).max)
    x = where(isnan(number), nan, number)
    x = where(equal(x, np.inf), largest if posinf is None else posinf, x)
    return where(equal(x, -np.inf), -largest if neginf is None else neginf, x)
