"""Elementwise functions by NumPy's names: exponentials, trigonometry, hyperbolic functions, powers.

Facts first, functions below; ``elementwise`` makes the primitives. Where the derivative, the memory
or the last digits ask for it, a function is a primitive; else it is composed of others. Integers
are cast to the floats in which NumPy computes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.dtypes import is_float
from tinyckpt.core.primitive import Primitive, apply, as_var, per_element
from tinyckpt.ops import infer
from tinyckpt.ops import kernels_functions as kernels
from tinyckpt.ops.activation import sigmoid
from tinyckpt.ops.casting import as_computed, astype
from tinyckpt.ops.comparison import equal, greater
from tinyckpt.ops.elementwise import (
    binary,
    by_input,
    by_output,
    divide,
    exp,
    multiply,
    outputs_bytes,
    power,
    sin,
    unary,
    unary_vjp,
    unbroadcast_to,
    where,
)

if TYPE_CHECKING:
    from tinyckpt.core.tracing import Var

LN2 = math.log(2)  # of 2 ** x, the derivative is 2 ** x log 2

# Second derivatives, as functions of what the first is a function of -----------------------------


def softplus_slope(x: Var) -> Var:
    s = sigmoid(x)
    return s * (1 - s)


def arcsin_slope(x: Var) -> Var:
    return x / (1 - x * x) ** 1.5


def arccosh_slope(x: Var) -> Var:
    return -x / (x * x - 1) ** 1.5


# The facts ---------------------------------------------------------------------------------------

# flops= counts the arithmetic of the kernel for one element, a call of the library as 1.
EXP2_VJP = unary_vjp("exp2_vjp", kernels.exp2_vjp, lambda y: LN2, flops=2)
EXPM1_VJP = unary_vjp("expm1_vjp", kernels.expm1_vjp, lambda x: exp(x), flops=2)
LOGARITHM_VJP = unary_vjp(
    "logarithm_vjp", kernels.logarithm_vjp,
    lambda x, base: -1 / (math.log(base) * x * x), flops=2,
)  # fmt: skip
LOG1P_VJP = unary_vjp("log1p_vjp", kernels.log1p_vjp, lambda x: -1 / (1 + x) ** 2, flops=2)
SOFTPLUS_VJP = unary_vjp(
    "softplus_vjp", kernels.softplus_vjp, softplus_slope, flops=7,
    # The exponential, and which side of 0 it is on.
    workspace=lambda inputs, outputs: outputs[0].nbytes + outputs[0].size,
)  # fmt: skip
TAN_VJP = unary_vjp("tan_vjp", kernels.tan_vjp, lambda y: 2 * y, flops=3)
# One array like the output for 1 + x.
ARCSIN_VJP = unary_vjp(
    "arcsin_vjp", kernels.arcsin_vjp, arcsin_slope, flops=5, workspace=outputs_bytes(1)
)
ARCCOS_VJP = unary_vjp(
    "arccos_vjp", kernels.arccos_vjp, lambda x: -arcsin_slope(x), flops=6,
    workspace=outputs_bytes(1),
)  # fmt: skip
ARCTAN_VJP = unary_vjp(
    "arctan_vjp", kernels.arctan_vjp, lambda x: -2 * x / (1 + x * x) ** 2, flops=3
)
SINH_VJP = unary_vjp("sinh_vjp", kernels.sinh_vjp, lambda x: sinh(x), flops=2)
COSH_VJP = unary_vjp("cosh_vjp", kernels.cosh_vjp, lambda x: cosh(x), flops=2)
ARCSINH_VJP = unary_vjp(
    "arcsinh_vjp", kernels.arcsinh_vjp, lambda x: -x / (1 + x * x) ** 1.5, flops=2
)
ARCCOSH_VJP = unary_vjp(
    "arccosh_vjp", kernels.arccosh_vjp, arccosh_slope, flops=6, workspace=outputs_bytes(1)
)
ARCTANH_VJP = unary_vjp(
    "arctanh_vjp", kernels.arctanh_vjp, lambda x: 2 * x / (1 - x * x) ** 2, flops=4,
    workspace=outputs_bytes(1),
)  # fmt: skip
CBRT_VJP = unary_vjp("cbrt_vjp", kernels.cbrt_vjp, lambda y: -2 / (3 * y**3), flops=3)

EXP2 = unary("exp2", kernels.exp2, by_output(EXP2_VJP))
EXPM1 = unary("expm1", kernels.expm1, by_input(EXPM1_VJP))
LOG2 = unary(
    "log2", kernels.log2, lambda ct, ins, outs: apply(LOGARITHM_VJP, ins[0], ct[0], base=2)
)
LOG10 = unary(
    "log10", kernels.log10, lambda ct, ins, outs: apply(LOGARITHM_VJP, ins[0], ct[0], base=10)
)
LOG1P = unary("log1p", kernels.log1p, by_input(LOG1P_VJP))
SOFTPLUS = unary("softplus", kernels.softplus, by_input(SOFTPLUS_VJP), flops=3)
TAN = unary("tan", kernels.tan, by_output(TAN_VJP))
ARCSIN = unary("arcsin", kernels.arcsin, by_input(ARCSIN_VJP))
ARCCOS = unary("arccos", kernels.arccos, by_input(ARCCOS_VJP))
ARCTAN = unary("arctan", kernels.arctan, by_input(ARCTAN_VJP))
SINH = unary("sinh", kernels.sinh, by_input(SINH_VJP))
COSH = unary("cosh", kernels.cosh, by_input(COSH_VJP))
ARCSINH = unary("arcsinh", kernels.arcsinh, by_input(ARCSINH_VJP))
ARCCOSH = unary("arccosh", kernels.arccosh, by_input(ARCCOSH_VJP))
ARCTANH = unary("arctanh", kernels.arctanh, by_input(ARCTANH_VJP))
CBRT = unary("cbrt", kernels.cbrt, by_output(CBRT_VJP))

# With d = this^2 + other^2, the second derivatives of arctan2 are those of other / d.
ARCTAN2_VJP: Primitive = Primitive(
    "arctan2_vjp",  # (this, other, g) -> g other / (this^2 + other^2)
    kernels.arctan2_vjp,
    infer.float_elementwise,
    vjp=(
        unbroadcast_to(0, lambda ct, ins, outs: ct[0] * ins[2] * arctan2_slope(ins[0], ins[1])),
        unbroadcast_to(
            1,
            lambda ct, ins, outs: (
                ct[0] * ins[2] * (ins[0] * ins[0] - ins[1] * ins[1])
                / squared(ins[0] * ins[0] + ins[1] * ins[1])
            ),
        ),
        unbroadcast_to(2, lambda ct, ins, outs: apply(ARCTAN2_VJP, ins[0], ins[1], ct[0])),
    ),
    flops=per_element(4),
    workspace=outputs_bytes(1),
)  # fmt: skip
ARCTAN2 = binary(
    "arctan2", kernels.arctan2,
    lambda ct, ins, outs: apply(ARCTAN2_VJP, ins[0], ins[1], ct[0]),
    lambda ct, ins, outs: -apply(ARCTAN2_VJP, ins[1], ins[0], ct[0]),
    infer.float_elementwise,
)  # fmt: skip
HYPOT_VJP: Primitive = Primitive(
    "hypot_vjp",  # (this, distance, g) -> g this / distance
    kernels.hypot_vjp,
    infer.float_elementwise,
    vjp=(
        unbroadcast_to(0, lambda ct, ins, outs: ct[0] * ins[2] / ins[1]),
        unbroadcast_to(1, lambda ct, ins, outs: -(ct[0] * outs[0]) / ins[1]),
        unbroadcast_to(2, lambda ct, ins, outs: apply(HYPOT_VJP, ins[0], ins[1], ct[0])),
    ),
    flops=per_element(2),
)
HYPOT = binary(
    "hypot", kernels.hypot,
    lambda ct, ins, outs: apply(HYPOT_VJP, ins[0], outs[0], ct[0]),
    lambda ct, ins, outs: apply(HYPOT_VJP, ins[1], outs[0], ct[0]),
    infer.float_elementwise,
)  # fmt: skip
LOGADDEXP = binary(
    "logaddexp", kernels.logaddexp,
    lambda ct, ins, outs: ct[0] * exp(ins[0] - outs[0]),
    lambda ct, ins, outs: ct[0] * exp(ins[1] - outs[0]),
    infer.float_elementwise,
)  # fmt: skip


def squared(x: Var) -> Var:
    return x * x


def arctan2_slope(this: Var, other: Var) -> Var:
    """Return the derivative of ``other / (this^2 + other^2)`` with respect to ``this``."""
    return -2 * this * other / squared(this * this + other * other)


# The functions -----------------------------------------------------------------------------------


def exp2(x: Any) -> Var:
    """Return ``2 ** x`` of every element."""
    return apply(EXP2, *as_computed(np.exp2, x))


def expm1(x: Any) -> Var:
    """Return ``exp(x) - 1`` of every element, to all digits near 0."""
    return apply(EXPM1, *as_computed(np.expm1, x))


def log2(x: Any) -> Var:
    """Return the logarithm to base 2 of every element."""
    return apply(LOG2, *as_computed(np.log2, x))


def log10(x: Any) -> Var:
    """Return the logarithm to base 10 of every element."""
    return apply(LOG10, *as_computed(np.log10, x))


def log1p(x: Any) -> Var:
    """Return ``log(1 + x)`` of every element, to all digits near 0."""
    return apply(LOG1P, *as_computed(np.log1p, x))


def logaddexp(x: Any, y: Any) -> Var:
    """Return ``log(exp(x) + exp(y))``, evaluated without overflow."""
    return apply(LOGADDEXP, *as_computed(np.logaddexp, x, y))


def softplus(x: Any) -> Var:
    """Return ``log(1 + exp(x))`` of every element, evaluated without overflow."""
    return apply(SOFTPLUS, *as_computed(np.exp, x))


def leaky_relu(x: Any, slope: float = 0.01) -> Var:
    """Return ``x`` where it is positive and ``slope * x`` elsewhere, its derivative at 0 too.

    Source: Maas, Hannun and Ng, "Rectifier nonlinearities improve neural network acoustic models",
    ICML 2013.
    """
    (x,) = as_computed(np.exp, x)
    return where(greater(x, 0), x, multiply(x, slope))


def elu(x: Any, alpha: float = 1.0) -> Var:
    """Return ``x`` where it is positive and ``alpha * (exp(x) - 1)`` elsewhere.

    Source: Clevert, Unterthiner and Hochreiter, "Fast and accurate deep network learning by
    exponential linear units", arXiv 1511.07289.
    """
    (x,) = as_computed(np.exp, x)
    # The side that is not chosen must not overflow: 0 times infinity would reach the gradient.
    positive = greater(x, 0)
    return where(positive, x, multiply(expm1(where(positive, 0, x)), alpha))


def tan(x: Any) -> Var:
    """Return the tangent of every element, in radians."""
    return apply(TAN, *as_computed(np.tan, x))


def arcsin(x: Any) -> Var:
    """Return the angle whose sine every element is, from -pi/2 to pi/2."""
    return apply(ARCSIN, *as_computed(np.arcsin, x))


def arccos(x: Any) -> Var:
    """Return the angle whose cosine every element is, from 0 to pi."""
    return apply(ARCCOS, *as_computed(np.arccos, x))


def arctan(x: Any) -> Var:
    """Return the angle whose tangent every element is, from -pi/2 to pi/2."""
    return apply(ARCTAN, *as_computed(np.arctan, x))


def arctan2(y: Any, x: Any) -> Var:
    """Return the angle of the point ``(x, y)``, from -pi to pi; no derivative at the origin."""
    return apply(ARCTAN2, *as_computed(np.arctan2, y, x))


def hypot(x: Any, y: Any) -> Var:
    """Return ``sqrt(x * x + y * y)``, without overflow; no derivative at the origin."""
    return apply(HYPOT, *as_computed(np.hypot, x, y))


def sinh(x: Any) -> Var:
    """Return the hyperbolic sine of every element."""
    return apply(SINH, *as_computed(np.sinh, x))


def cosh(x: Any) -> Var:
    """Return the hyperbolic cosine of every element."""
    return apply(COSH, *as_computed(np.cosh, x))


def arcsinh(x: Any) -> Var:
    """Return the inverse of ``sinh`` of every element."""
    return apply(ARCSINH, *as_computed(np.arcsinh, x))


def arccosh(x: Any) -> Var:
    """Return the inverse of ``cosh`` of every element, which must be at least 1."""
    return apply(ARCCOSH, *as_computed(np.arccosh, x))


def arctanh(x: Any) -> Var:
    """Return the inverse of ``tanh`` of every element."""
    return apply(ARCTANH, *as_computed(np.arctanh, x))


def cbrt(x: Any) -> Var:
    """Return the cube root of every element."""
    return apply(CBRT, *as_computed(np.cbrt, x))


def square(x: Any) -> Var:
    """Return ``x ** 2``."""
    return power(x, 2)


def reciprocal(x: Any) -> Var:
    """Return ``1 / x``; of integers as floats, where NumPy divides integers."""
    return divide(1, x)


def deg2rad(x: Any) -> Var:
    """Return degrees as radians."""
    return multiply(as_computed(np.deg2rad, x)[0], math.pi / 180)


def rad2deg(x: Any) -> Var:
    """Return radians as degrees."""
    return multiply(as_computed(np.rad2deg, x)[0], 180 / math.pi)


def sinc(x: Var) -> Var:
    """Return ``sin(pi x) / (pi x)``, and 1 at 0; its derivative at 0 is taken as 0."""
    x = as_var(x)
    x = x if is_float(x.dtype) else astype(x, "float64")
    at_0 = equal(x, 0)
    turned = where(at_0, 1, x) * math.pi
    return where(at_0, 1, sin(turned) / turned)
