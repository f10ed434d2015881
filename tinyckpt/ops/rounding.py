"""Rounding, sign, floor division and remainder, clipping: piecewise constant or linear functions.

Where a function is flat its derivative is taken as 0 everywhere, at the jumps too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.dtypes import is_float
from tinyckpt.base.errors import GraphError
from tinyckpt.core.primitive import Primitive, zero
from tinyckpt.core.tracing import active_builder, apply, as_var
from tinyckpt.ops import kernels_elementwise_functions as kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.casting import PYTHON_NUMBERS, astype, promote_to_float
from tinyckpt.ops.comparison import equal, greater, less
from tinyckpt.ops.elementwise import absolute, binary, maximum, minimum, negative, unary, where
from tinyckpt.ops.logic import isnan, signbit
from tinyckpt.ops.shape_inference import per_element

if TYPE_CHECKING:
    from tinyckpt.core.tracing import Var


# The primitives -----------------------------------------------------------------------------------

SIGN = unary("sign", kernels.sign, zero, infer_rule=infer.elementwise)
FLOOR = unary("floor", kernels.floor, zero)
CEIL = unary("ceil", kernels.ceil, zero)
TRUNC = unary("trunc", kernels.trunc, zero)
ROUND = unary("round", kernels.round_, zero, infer_rule=infer.elementwise)
FLOOR_DIVIDE = Primitive(
    "floor_divide", kernels.floor_divide, infer.elementwise, vjp=(zero, zero), flops=per_element(1)
)
# x - y floor(x / y): linear in x with slope 1; the slope in y is minus the floored quotient.
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

# The functions ------------------------------------------------------------------------------------


def sign(x: Any) -> Var:
    """Sign of every element, -1, 0 or 1; its derivative is taken as 0.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.sign)(np.array([-2.0, 0.0, 3.0]))
    array([-1.,  0.,  1.])
    """
    return apply(SIGN, x)


def apply_to_floats(primitive: Primitive, x: Any) -> Var:
    """Apply a primitive to floats; integers need no rounding, and are returned unchanged."""
    x = as_var(x)
    return apply(primitive, x) if is_float(x.dtype) else x


def floor(x: Any) -> Var:
    """Largest integer not above every element; its derivative is taken as 0.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.floor)(np.array([-1.5, 1.5]))
    array([-2.,  1.])
    """
    return apply_to_floats(FLOOR, x)


def ceil(x: Any) -> Var:
    """Smallest integer not below every element; its derivative is taken as 0.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.ceil)(np.array([-1.5, 1.5]))
    array([-1.,  2.])
    """
    return apply_to_floats(CEIL, x)


def trunc(x: Any) -> Var:
    """Integer part of every element, rounded toward zero; its derivative is taken as 0.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.trunc)(np.array([-1.5, 1.5]))
    array([-1.,  1.])
    """
    return apply_to_floats(TRUNC, x)


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
    return apply(ROUND, x, decimals=int(decimals))


def floor_divide(x: Any, y: Any) -> Var:
    """Floor division, ``x // y``; its derivatives are taken as 0.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.floor_divide)(np.array([-7, 7]), 2)
    array([-4,  3])
    """
    return apply(FLOOR_DIVIDE, x, y)


def remainder(x: Any, y: Any) -> Var:
    """Remainder of floor division, ``x % y``, with the sign of ``y``.

    At a jump the derivative is that next to it.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.remainder)(np.array([-7, 7]), 3)
    array([2, 1])
    """
    return apply(REMAINDER, x, y)


def fmod(x: Any, y: Any) -> Var:
    """Remainder of truncated division of ``x`` by ``y``, with the sign of ``x``.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.fmod)(np.array([-7.0, 7.0]), 3.0)
    array([-1.,  1.])
    """
    return apply(FMOD, x, y)


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


def fmax(x: Any, y: Any) -> Var:
    """Elementwise maximum that ignores NaN: the other operand where one is NaN.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.fmax)(np.array([1.0, np.nan]), np.array([2.0, 3.0]))
    array([2., 3.])
    """
    return where(isnan(x), y, where(isnan(y), x, maximum(x, y)))


def fmin(x: Any, y: Any) -> Var:
    """Elementwise minimum that ignores NaN: the other operand where one is NaN.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.fmin)(np.array([1.0, np.nan]), np.array([2.0, 3.0]))
    array([1., 3.])
    """
    return where(isnan(x), y, where(isnan(y), x, minimum(x, y)))


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


def heaviside(x: Any, at_0: Any) -> Var:
    """Heaviside step function: 0 where ``x`` is negative, 1 where it is positive, ``at_0`` at 0.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.heaviside(x, 0.5))(np.array([-1.0, 0.0, 1.0]))
    array([0. , 0.5, 1. ])
    """
    x, at_0 = promote_to_float(np.heaviside, x, at_0)
    step = where(less(x, 0), 0.0, where(greater(x, 0), 1.0, x * 0))
    return where(equal(x, 0), at_0, step)


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
