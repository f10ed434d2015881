"""Elementwise arithmetic, powers and selection, and the factories that make elementwise primitives.

Every binary operator broadcasts as NumPy does; its vjp rules sum the cotangent back to the shape
of the operand (``unbroadcast``). A compound derivative is one primitive, ``*_vjp``, so that one
forward operator has one backward operator per differentiable input; the second derivative is
composed of ordinary operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.dtypes import is_float
from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive, zero
from tinyckpt.core.tracing import apply, as_var
from tinyckpt.ops import kernels, kernels_elementwise_functions
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.casting import as_float32_if_bfloat16, astype, promote_to_float
from tinyckpt.ops.comparison import equal
from tinyckpt.ops.shape import unbroadcast
from tinyckpt.ops.shape_inference import per_element

if TYPE_CHECKING:
    from tinyckpt.core.tracing import Var

# Kinds of operators, of all families, that compute each element of the result from the elements of
# the operands at its place: what may be split along any axis.
ELEMENTWISE = (
    "absolute", "add", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "bitwise_and", "bitwise_or", "bitwise_xor", "cast", "cbrt", "ceil", "contiguous", "cos", "cosh",
    "divide", "equal", "exp", "exp2", "expm1", "floor", "floor_divide", "fmod", "gelu", "gelu_tanh",
    "greater", "greater_equal", "hypot", "invert", "isfinite", "isinf", "isnan", "left_shift",
    "less", "less_equal", "log", "log10", "log1p", "log2", "log_sigmoid", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply",
    "negative", "not_equal", "power", "powers", "relu", "remainder", "right_shift", "round",
    "sigmoid", "sign", "signbit", "silu", "sin", "sinh", "softplus", "sqrt", "subtract", "tan",
    "tanh", "trunc", "where",
)  # fmt: skip


def outputs_bytes(count: int) -> Callable[..., int]:
    """Return a workspace rule: ``count`` arrays like the output."""
    return lambda inputs, outputs, **attrs: count * outputs[0].nbytes


def mask_bytes(inputs: Any, outputs: Any, **attrs: Any) -> int:
    """Return a workspace of one boolean per element of the output."""
    return int(outputs[0].size)


def unary_vjp(
    name: str,
    forward: Callable[..., Any],
    slope: Callable[..., Var | float | None],
    *,
    flops: int,
    workspace: Callable[..., int] | None = None,
) -> Primitive:
    """Make the primitive ``(r, g) -> g d(r)``, given d's own derivative ``slope(r, **attrs)``.

    ``r`` is the residual that the derivative d is a function of: the operator's input, or its
    output.
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
        infer.same_spec_as(0),
        vjp=(with_respect_to_residual, with_respect_to_cotangent),
        flops=per_element(flops),
        workspace=workspace or outputs_bytes(0),
    )
    return primitive


# Second derivatives, as functions of the residual that the first reads ----------------------------


def power_slope(x: Var, exponent: float) -> Var | None:
    # No term for exponents 0 and 1: there it would be 0 times a power that is infinite at 0.
    if exponent in (0, 1):
        return None
    return exponent * (exponent - 1) * power(x, exponent - 2)


def zero_slope(r: Var) -> None:
    """Return None: the derivative is constant almost everywhere."""


# The primitives -----------------------------------------------------------------------------------

SQRT_VJP = unary_vjp("sqrt_vjp", kernels.sqrt_vjp, lambda y: -0.5 / (y * y), flops=2)
SIN_VJP = unary_vjp("sin_vjp", kernels.sin_vjp, lambda x: -sin(x), flops=2)
COS_VJP = unary_vjp("cos_vjp", kernels.cos_vjp, lambda x: -cos(x), flops=3)
ABSOLUTE_VJP = unary_vjp("absolute_vjp", kernels.absolute_vjp, zero_slope, flops=2)
POWER_VJP = unary_vjp("power_vjp", kernels.power_vjp, power_slope, flops=3)


def vjp_from_input(vjp: Primitive) -> Callable[..., Var]:
    """Return the vjp rule of a derivative that is a function of the input."""
    return lambda ct, ins, outs, **attrs: apply(vjp, ins[0], ct[0], **attrs)


def vjp_from_output(vjp: Primitive) -> Callable[..., Var]:
    """Return the vjp rule of a derivative that is a function of the output."""
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
    """Make a primitive of one array, of floats by default."""
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
SQRT = unary("sqrt", kernels.sqrt, vjp_from_output(SQRT_VJP))
SIN = unary("sin", kernels.sin, vjp_from_input(SIN_VJP))
COS = unary("cos", kernels.cos, vjp_from_input(COS_VJP))
ABSOLUTE = unary(
    "absolute", kernels.absolute, vjp_from_input(ABSOLUTE_VJP), infer_rule=infer.elementwise
)
POWER = unary(
    "power",
    kernels.power,
    lambda ct, ins, outs, exponent: (
        None if exponent == 0 else apply(POWER_VJP, ins[0], ct[0], exponent=exponent)
    ),
    infer_rule=infer.elementwise,
)


def unbroadcast_to(position: int, rule: Callable[..., Var]) -> Callable[..., Var]:
    """Wrap a vjp rule so that its cotangent is summed to the shape of the input at ``position``."""
    return lambda ct, ins, outs, **attrs: unbroadcast(rule(ct, ins, outs, **attrs), ins[position])


def binary(
    name: str,
    forward: Callable[..., Any],
    left: Callable[..., Var],
    right: Callable[..., Var],
    infer_rule: Callable[..., Any] = infer.elementwise,
) -> Primitive:
    """Make a broadcasting primitive of two arrays."""
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
    # x and y are only compared, so any numbers are allowed; the result is g, or 0.
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
    # The second selection, where x >= y, and its mask.
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
    # 0 where the base is 0; NaN where it is negative, as for every logarithm.
    x, _ = ins
    # In the result's dtype: NumPy takes logarithms of small integers in 16 bits.
    return multiply(multiply(ct[0], outs[0]), log(astype(where(equal(x, 0), 1, x), outs[0].dtype)))


POWERS = binary(
    "powers", kernels_elementwise_functions.powers, vjp_powers_base, vjp_powers_exponent
)


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


# The functions ------------------------------------------------------------------------------------


def add(x: Any, y: Any) -> Var:
    """Elementwise sum, ``x + y``.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.add)(np.array([1.0, 2.0]), 3.0)
    array([4., 5.])
    """
    return apply(ADD, x, y)


def subtract(x: Any, y: Any) -> Var:
    """Elementwise difference, ``x - y``.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.subtract)(np.array([1.0, 2.0]), 3.0)
    array([-2., -1.])
    """
    return apply(SUBTRACT, x, y)


def multiply(x: Any, y: Any) -> Var:
    """Elementwise product, ``x * y``.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.grad(lambda x, y: tc.sum(tc.multiply(x, y)))(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array([3., 4.])
    """
    return apply(MULTIPLY, x, y)


def divide(x: Any, y: Any) -> Var:
    """Elementwise quotient, ``x / y``.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.divide)(np.array([1, 2]), 4)
    array([0.25, 0.5 ])
    """
    return apply(DIVIDE, *promote_to_float(np.divide, x, y))


def negative(x: Any) -> Var:
    """Elementwise negation, ``-x``.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.negative)(np.array([1.0, -2.0]))
    array([-1.,  2.])
    """
    return apply(NEGATIVE, x)


def power(x: Any, exponent: Any) -> Var:
    """Elementwise power, ``x ** exponent``.

    A number is an attribute of the operator; an array is an operand. The derivative of a negative
    base with respect to an array of exponents is NaN; at base 0 it is taken as 0.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.grad(lambda x: tc.sum(tc.power(x, 3)))(np.array([1.0, 2.0]))
    array([ 3., 12.])
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
    """Exponential of every element; its derivative reads the output.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.exp)(np.array([0.0, 1.0]))
    array([1.        , 2.71828183])
    """
    return apply(EXP, *promote_to_float(np.exp, x))


def log(x: Any) -> Var:
    """Natural logarithm of every element.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.log)(np.array([1.0, 2.0]))
    array([0.        , 0.69314718])
    """
    return apply(LOG, *promote_to_float(np.log, x))


def sqrt(x: Any) -> Var:
    """Square root of every element.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.sqrt)(np.array([4.0, 9.0]))
    array([2., 3.])
    """
    return apply(SQRT, *promote_to_float(np.sqrt, x))


def sin(x: Any) -> Var:
    """Sine of every element, in radians.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.sin)(np.array([0.0, 1.0]))
    array([0.        , 0.84147098])
    """
    return apply(SIN, *promote_to_float(np.sin, x))


def cos(x: Any) -> Var:
    """Cosine of every element, in radians.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.cos)(np.array([0.0, 1.0]))
    array([1.        , 0.54030231])
    """
    return apply(COS, *promote_to_float(np.cos, x))


def absolute(x: Any) -> Var:
    """Absolute value of every element; its derivative at 0 is taken as 0.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.grad(lambda x: tc.sum(tc.absolute(x)))(np.array([-2.0, 0.0, 3.0]))
    array([-1.,  0.,  1.])
    """
    return apply(ABSOLUTE, x)


def maximum(x: Any, y: Any) -> Var:
    """Elementwise maximum of two arrays; in a tie, each gets half of the cotangent.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.grad(lambda x: tc.sum(tc.maximum(x, 1.0)))(np.array([0.0, 1.0, 2.0]))
    array([0. , 0.5, 1. ])
    """
    return apply(MAXIMUM, x, y)


def minimum(x: Any, y: Any) -> Var:
    """Elementwise minimum of two arrays; in a tie, each gets half of the cotangent.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.minimum)(np.array([0.0, 2.0]), 1.0)
    array([0., 1.])
    """
    return apply(MINIMUM, x, y)


def where(condition: Any, x: Any = None, y: Any = None) -> Var:
    """Select ``x`` where the boolean ``condition`` is true and ``y`` elsewhere.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.where(x > 0, x, -1.0))(np.array([-3.0, 3.0]))
    array([-1.,  3.])
    """
    if x is None or y is None:
        raise GraphError(
            "where: give the condition, x and y; the number of true elements is unknown while "
            "tracing"
        )
    return apply(WHERE, condition, x, y)


def accumulate_cotangents(x: Var, y: Var) -> Var:
    """Accumulate two cotangents: their sum, in their own dtype."""
    return astype(add(as_float32_if_bfloat16(x), as_float32_if_bfloat16(y)), x.dtype)
