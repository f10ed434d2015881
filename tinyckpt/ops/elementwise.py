"""Elementwise operators: arithmetic, functions of one array, selection.

Every binary operator broadcasts as NumPy does; its vjp rules sum the cotangent back to the shape
of the operand (``unbroadcast``). A derivative that is compound is one primitive, ``*_vjp``, so that
one forward operator has one backward operator per differentiable input; the second derivative is
composed of ordinary operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.dtypes import is_float
from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import Spec
from tinyckpt.core.primitive import Primitive, apply, as_var, per_element, zero
from tinyckpt.ops import infer, kernels, kernels_functions
from tinyckpt.ops.casting import as_computed, astype, widened
from tinyckpt.ops.comparison import equal
from tinyckpt.ops.shape import unbroadcast

if TYPE_CHECKING:
    from tinyckpt.core.tracing import Var


def outputs_bytes(count: int) -> Callable[..., int]:
    """Return a workspace of ``count`` arrays like the output."""
    return lambda inputs, outputs, **attrs: count * outputs[0].nbytes


def mask_bytes(inputs: Any, outputs: Any, **attrs: Any) -> int:
    """Return a workspace of one boolean an element of the output."""
    return int(outputs[0].size)


def unary_vjp(
    name: str,
    forward: Callable[..., Any],
    slope: Callable[..., Var | float | None],
    *,
    flops: int,
    workspace: Callable[..., int] | None = None,
) -> Primitive:
    """Return the primitive ``(r, g) -> g d(r)``, given d's own derivative ``slope(r, **attrs)``.

    ``r`` is what the derivative is a function of: the operator's input, or its output.
    """

    def with_respect_to_residual(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var | None:
        second = slope(ins[0], **attrs)
        product: Var | None = None if second is None else ct[0] * ins[1] * second
        return product

    def with_respect_to_cotangent(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var:
        return apply(primitive, ins[0], ct[0], **attrs)

    primitive = Primitive(
        name,
        forward,
        infer.like(0),
        vjp=(with_respect_to_residual, with_respect_to_cotangent),
        flops=per_element(flops),
        workspace=workspace or outputs_bytes(0),
    )
    return primitive


# Second derivatives, as functions of what the first is a function of -----------------------------


def power_slope(x: Var, exponent: float) -> Var | None:
    # No term for exponents 0 and 1: there it would be 0 times a power that is infinite at 0.
    if exponent in (0, 1):
        return None
    return exponent * (exponent - 1) * power(x, exponent - 2)


def no_slope(r: Var) -> None:
    """Return nothing: the derivative is constant almost everywhere."""


# The facts ---------------------------------------------------------------------------------------

SQRT_VJP = unary_vjp("sqrt_vjp", kernels.sqrt_vjp, lambda y: -0.5 / (y * y), flops=2)
SIN_VJP = unary_vjp("sin_vjp", kernels.sin_vjp, lambda x: -sin(x), flops=2)
COS_VJP = unary_vjp("cos_vjp", kernels.cos_vjp, lambda x: -cos(x), flops=3)
ABSOLUTE_VJP = unary_vjp("absolute_vjp", kernels.absolute_vjp, no_slope, flops=2)
POWER_VJP = unary_vjp("power_vjp", kernels.power_vjp, power_slope, flops=3)


def by_input(vjp: Primitive) -> Callable[..., Var]:
    """Return the rule of a derivative that is a function of the input."""
    return lambda ct, ins, outs, **attrs: apply(vjp, ins[0], ct[0], **attrs)


def by_output(vjp: Primitive) -> Callable[..., Var]:
    """Return the rule of a derivative that is a function of the output."""
    return lambda ct, ins, outs, **attrs: apply(vjp, outs[0], ct[0], **attrs)


def unary(
    name: str,
    forward: Callable[..., Any],
    vjp: Callable[..., Var | None],
    *,
    flops: int = 1,
    workspace: Callable[..., int] | None = None,
    infer_rule: infer.Infer = infer.float_elementwise,
) -> Primitive:
    """Return a primitive of one array, of floats if not said otherwise."""
    return Primitive(
        name,
        forward,
        infer_rule,
        vjp=(vjp,),
        flops=per_element(flops),
        workspace=workspace or outputs_bytes(0),
    )


NEGATIVE = Primitive(
    "negative", kernels.negative, infer.elementwise,
    vjp=(lambda ct, ins, outs: -ct[0],), flops=per_element(1),
)  # fmt: skip
EXP = unary("exp", kernels.exp, lambda ct, ins, outs: ct[0] * outs[0])
LOG = unary("log", kernels.log, lambda ct, ins, outs: ct[0] / ins[0])
SQRT = unary("sqrt", kernels.sqrt, by_output(SQRT_VJP))
SIN = unary("sin", kernels.sin, by_input(SIN_VJP))
COS = unary("cos", kernels.cos, by_input(COS_VJP))
ABSOLUTE = unary("absolute", kernels.absolute, by_input(ABSOLUTE_VJP), infer_rule=infer.elementwise)
POWER = unary(
    "power",
    kernels.power,
    lambda ct, ins, outs, exponent: (
        None if exponent == 0 else apply(POWER_VJP, ins[0], ct[0], exponent=exponent)
    ),
    infer_rule=infer.elementwise,
)


def unbroadcast_to(position: int, rule: Callable[..., Var]) -> Callable[..., Var]:
    """Return the rule with its cotangent summed to the shape of the input at ``position``."""
    return lambda ct, ins, outs, **attrs: unbroadcast(rule(ct, ins, outs, **attrs), ins[position])


def binary(
    name: str,
    forward: Callable[..., Any],
    left: Callable[..., Var],
    right: Callable[..., Var],
    infer_rule: Callable[..., Any] = infer.elementwise,
) -> Primitive:
    """Return a broadcasting primitive of two arrays."""
    return Primitive(
        name,
        forward,
        infer_rule,
        vjp=(unbroadcast_to(0, left), unbroadcast_to(1, right)),
        flops=per_element(1),
    )


DIVIDE_VJP = Primitive(
    "divide_vjp",  # (y, quotient, g) -> -g quotient / y, the cotangent of the denominator
    kernels.divide_vjp,
    infer.float_elementwise,
    vjp=(
        unbroadcast_to(0, lambda ct, ins, outs: -(ct[0] * outs[0]) / ins[0]),
        unbroadcast_to(1, lambda ct, ins, outs: -(ct[0] * ins[2]) / ins[0]),
        unbroadcast_to(2, lambda ct, ins, outs: -(ct[0] * ins[1]) / ins[0]),
    ),
    flops=per_element(3),  # the product, the quotient, the sign
)


def infer_larger_vjp(x: Spec, y: Spec, g: Spec) -> tuple[Spec, ...]:
    # x and y are compared, as any numbers are; what comes out is g, or nothing.
    infer.require_float(g)
    return (Spec(infer.broadcast_shape(x, y, g), g.dtype),)


LARGER_VJP: Primitive = Primitive(
    "larger_vjp",  # (x, y, g) -> g where x > y, half of it where they tie
    kernels.larger_vjp,
    infer_larger_vjp,
    vjp=(
        zero,
        zero,
        unbroadcast_to(2, lambda ct, ins, outs: apply(LARGER_VJP, ins[0], ins[1], ct[0])),
    ),
    # Two comparisons, a sum, a product with a half, and the selections as one.
    flops=per_element(5),
    # What is chosen where x >= y, and the mask that it is chosen by.
    workspace=lambda inputs, outputs: outputs[0].nbytes + outputs[0].size,
)

ADD = binary("add", kernels.add, lambda ct, ins, outs: ct[0], lambda ct, ins, outs: ct[0])
SUBTRACT = binary(
    "subtract", kernels.subtract, lambda ct, ins, outs: ct[0], lambda ct, ins, outs: -ct[0]
)
MULTIPLY = binary(
    "multiply", kernels.multiply,
    lambda ct, ins, outs: ct[0] * ins[1], lambda ct, ins, outs: ct[0] * ins[0],
)  # fmt: skip
DIVIDE = binary(
    "divide", kernels.divide,
    lambda ct, ins, outs: ct[0] / ins[1],
    lambda ct, ins, outs: apply(DIVIDE_VJP, ins[1], outs[0], ct[0]),
    infer.float_elementwise,
)  # fmt: skip
MAXIMUM = binary(
    "maximum", kernels.maximum,
    lambda ct, ins, outs: apply(LARGER_VJP, ins[0], ins[1], ct[0]),
    lambda ct, ins, outs: apply(LARGER_VJP, ins[1], ins[0], ct[0]),
)  # fmt: skip
MINIMUM = binary(
    "minimum", kernels.minimum,
    lambda ct, ins, outs: apply(LARGER_VJP, ins[1], ins[0], ct[0]),
    lambda ct, ins, outs: apply(LARGER_VJP, ins[0], ins[1], ct[0]),
)  # fmt: skip


def vjp_powers_base(ct: Any, ins: Any, outs: Any) -> Var:
    # No term where the exponent is 0: there it would be 0 times a power that is infinite at 0.
    x, y = ins
    return multiply(multiply(ct[0], y), power(x, where(equal(y, 0), 1, y) - 1))


def vjp_powers_exponent(ct: Any, ins: Any, outs: Any) -> Var:
    # Nothing where the base is 0; not a number where it is negative, as of every logarithm.
    x, _ = ins
    # In the result's dtype: of small integers NumPy takes logarithms in 16 bits.
    return multiply(multiply(ct[0], outs[0]), log(astype(where(equal(x, 0), 1, x), outs[0].dtype)))


POWERS = binary("powers", kernels_functions.powers, vjp_powers_base, vjp_powers_exponent)


def infer_where(condition: Any, x: Any, y: Any) -> tuple[Any, ...]:
    if condition.dtype != np.bool_:
        raise GraphError(f"the condition must be bool, got {condition}; compare first, as in x > 0")
    return (Spec(infer.broadcast_shape(condition, x, y), np.result_type(x.dtype, y.dtype)),)


WHERE = Primitive(
    "where",
    kernels.where,
    infer_where,
    vjp=(
        zero,
        unbroadcast_to(1, lambda ct, ins, outs: where(ins[0], ct[0], 0.0)),
        unbroadcast_to(2, lambda ct, ins, outs: where(ins[0], 0.0, ct[0])),
    ),
    flops=per_element(1),
)


# The functions -----------------------------------------------------------------------------------


def add(x: Any, y: Any) -> Var:
    """Return ``x + y``."""
    return apply(ADD, x, y)


def subtract(x: Any, y: Any) -> Var:
    """Return ``x - y``."""
    return apply(SUBTRACT, x, y)


def multiply(x: Any, y: Any) -> Var:
    """Return ``x * y``, element by element."""
    return apply(MULTIPLY, x, y)


def divide(x: Any, y: Any) -> Var:
    """Return ``x / y``, element by element."""
    return apply(DIVIDE, *as_computed(np.divide, x, y))


def negative(x: Any) -> Var:
    """Return ``-x``."""
    return apply(NEGATIVE, x)


def power(x: Any, exponent: Any) -> Var:
    """Return ``x ** exponent``.

    A number is an attribute of the operator; an array is an operand. The derivative for a negative
    base by an array of exponents is not a number; for the base 0 it is taken as 0.
    """
    if isinstance(exponent, np.generic | np.ndarray) and exponent.ndim == 0:
        x = as_var(x)
        x, exponent = astype(x, np.result_type(x.dtype, exponent.dtype)), exponent.item()
    if type(exponent) not in (int, float):
        return apply(POWERS, x, exponent)
    x = as_var(x)
    if not is_float(x.dtype):
        x = astype(x, np.result_type(x.dtype, exponent))
    if not is_float(x.dtype) and exponent < 0:
        raise GraphError(
            f"power: {x.spec} to the power {exponent}: integers have no negative powers; "
            "convert with x.astype('float64')"
        )
    return apply(POWER, x, exponent=exponent)


def exp(x: Any) -> Var:
    """Return the exponential of every element."""
    return apply(EXP, *as_computed(np.exp, x))


def log(x: Any) -> Var:
    """Return the natural logarithm of every element."""
    return apply(LOG, *as_computed(np.log, x))


def sqrt(x: Any) -> Var:
    """Return the square root of every element."""
    return apply(SQRT, *as_computed(np.sqrt, x))


def sin(x: Any) -> Var:
    """Return the sine of every element, in radians."""
    return apply(SIN, *as_computed(np.sin, x))


def cos(x: Any) -> Var:
    """Return the cosine of every element, in radians."""
    return apply(COS, *as_computed(np.cos, x))


def absolute(x: Any) -> Var:
    """Return the absolute value of every element; its derivative at 0 is taken as 0."""
    return apply(ABSOLUTE, x)


def maximum(x: Any, y: Any) -> Var:
    """Return the larger of each pair; where they tie, each side gets half of the cotangent."""
    return apply(MAXIMUM, x, y)


def minimum(x: Any, y: Any) -> Var:
    """Return the smaller of each pair; where they tie, each side gets half of the cotangent."""
    return apply(MINIMUM, x, y)


def where(condition: Any, x: Any = None, y: Any = None) -> Var:
    """Return ``x`` where the boolean ``condition`` holds and ``y`` elsewhere."""
    if x is None or y is None:
        raise GraphError(
            "where: give the condition and both choices; where it holds is not known before it is "
            "computed"
        )
    return apply(WHERE, condition, x, y)


def accumulated(x: Var, y: Var) -> Var:
    """Return the sum of two cotangents in their own dtype."""
    return astype(add(widened(x), widened(y)), x.dtype)
