"""Elementwise operators: primitives and public functions from the rows of ``elementwise_table``.

Every binary operator broadcasts as NumPy does; its vjp rules sum the cotangent back to the shape
of the operand (``unbroadcast``). A compound derivative is one primitive, ``*_vjp``, so that one
forward operator has one backward operator per differentiable input; the second derivative is
composed of ordinary operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Protocol

import numpy as np

from tinyckpt.base.dtypes import is_float
from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive, zero
from tinyckpt.core.tracing import Var, apply, as_var
from tinyckpt.ops import kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.casting import as_float32_if_bfloat16, astype, promote_to_float
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise_table import DERIVATIVES, ROWS, TABLE, Elementwise
from tinyckpt.ops.kernels_activation import GELU_CUBIC, GELU_SCALE
from tinyckpt.ops.kernels_elementwise import KERNELS
from tinyckpt.ops.shape import unbroadcast
from tinyckpt.ops.shape_inference import per_element

# Kinds of operators that compute each element of the result from the elements of the operands at
# its place: what may be split along any axis.
ELEMENTWISE = (*ROWS, "cast", "contiguous", "where")


class Unary(Protocol):
    """The type of a function of one array."""

    def __call__(self, x: Any) -> Var: ...


class Binary(Protocol):
    """The type of a function of two arrays, which broadcast."""

    def __call__(self, x: Any, y: Any) -> Var: ...


# Primitives of rows -------------------------------------------------------------------------------


def infer_larger_vjp(x: Spec, y: Spec, g: Spec) -> tuple[Spec, ...]:
    # x and y are only compared, so any numbers are allowed; the result is g, or 0.
    infer.require_float(g)
    return (Spec(infer.broadcast_shape(x, y, g), g.dtype),)


INFER: dict[str, infer.Infer] = {
    "promoted": infer.float_elementwise,
    "floats": infer.float_elementwise,
    "rounded": infer.float_elementwise,
    "numbers": infer.elementwise,
    "any": infer.comparison,
    "bits": infer.bits,
    "integers": infer.shift,
    "compared": infer_larger_vjp,
}


def unbroadcast_to(position: int, rule: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a vjp rule so that its cotangent is summed to the shape of the input at ``position``."""

    def summed(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var | None:
        cotangent = rule(ct, ins, outs, **attrs)
        return None if cotangent is None else unbroadcast(cotangent, ins[position])

    return summed


def vjp_from_input(vjp: Primitive) -> Callable[..., Var]:
    """Return the vjp rule of a derivative that is a function of the input."""
    return lambda ct, ins, outs, **attrs: apply(vjp, ins[0], ct[0], **attrs)


def vjp_from_output(vjp: Primitive) -> Callable[..., Var]:
    """Return the vjp rule of a derivative that is a function of the output."""
    return lambda ct, ins, outs, **attrs: apply(vjp, outs[0], ct[0], **attrs)


@cache
def formula(text: str, parameters: str) -> Callable[..., Any]:
    """Compile a formula of a row over traced values, when a rule first reads it."""
    function: Callable[..., Any] = eval(f"lambda {parameters}: {text}", SCOPE)
    return function


def make_primitive(name: str, infer_rule: infer.Infer, vjp: tuple[Callable[..., Any], ...]) -> Any:
    """Make the primitive of a kernel of this name, with its costs."""
    kernel = KERNELS[name]

    def workspace(inputs: Any, outputs: Any, **attrs: Any) -> int:
        return int(kernel.arrays * outputs[0].nbytes + kernel.masks * outputs[0].size)

    return Primitive(name, kernel.function, infer_rule, vjp, per_element(kernel.flops), workspace)


def slope_primitive(row: Elementwise) -> Primitive:
    """Make the primitive ``(r, g) -> g d(r)`` of a row's slope d, given the slope of d itself.

    ``r`` is the residual that the derivative d is a function of: the operator's input, or its
    output.
    """
    parameters = ", ".join(filter(None, (row.reads, row.attrs)))

    def with_respect_to_residual(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var | None:
        second = formula(row.second, parameters)(ins[0], **attrs)
        product: Var | None = None if second is None else ct[0] * ins[1] * second
        return product

    def with_respect_to_cotangent(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var:
        return apply(primitive, ins[0], ct[0], **attrs)

    primitive: Primitive = make_primitive(
        f"{row.name}_vjp",
        infer.same_spec_as(0),
        (with_respect_to_residual, with_respect_to_cotangent),
    )
    return primitive


def row_primitives(row: Elementwise) -> Iterator[Primitive]:
    """Yield the primitives of a row: its slope, if it has one, and its function."""
    rules: list[Callable[..., Any]] = []
    if row.slope:
        slope = slope_primitive(row)
        yield slope
        rules = [(vjp_from_output if row.reads == "y" else vjp_from_input)(slope)]
    for position, text in enumerate(row.vjp):
        parameters = ", ".join(filter(None, (row.of, "out", "ct", row.attrs)))

        def rule(
            ct: Any, ins: Any, outs: Any, of: tuple[str, str] = (text, parameters), **attrs: Any
        ) -> Any:
            return formula(*of)(*ins, outs[0], ct[0], **attrs)

        rules[position:] = [rule if row.of == "x" else unbroadcast_to(position, rule)]
    if row.value:
        yield make_primitive(row.name, INFER[row.dtypes], tuple(rules))


# What the formulas of the rows refer to: filled below.
SCOPE: dict[str, Any] = {"math": math}
PRIMITIVES: dict[str, Primitive] = {
    primitive.name: primitive
    for row in (*ROWS.values(), *DERIVATIVES)
    for primitive in row_primitives(row)
}

# Public functions of rows -------------------------------------------------------------------------


def apply_row(row: Elementwise, *operands: Any) -> Var:
    """Apply a row's primitive, to integers as its dtypes say."""
    if row.dtypes == "promoted":
        # NumPy has no softplus, and promotes every function of one operand alike.
        operands = tuple(promote_to_float(getattr(np, row.name, np.exp), *operands))
    elif row.dtypes == "rounded":
        x = as_var(operands[0])
        if not is_float(x.dtype):  # integers need no rounding
            return x
    if row.composed:
        composed: Var = formula(row.composed, row.of)(*operands)
        return composed
    return apply(PRIMITIVES[row.name], *operands)


def public_function(row: Elementwise, module: str) -> Callable[..., Var]:
    """Make the public function of a row, with its docstring."""

    def of_one(x: Any) -> Var:
        return apply_row(row, x)

    def of_two(x: Any, y: Any) -> Var:
        return apply_row(row, x, y)

    function: Callable[..., Var] = of_one if row.of == "x" else of_two
    example = row.example
    call = example if example.startswith("tc.") else f"tc.jit(tc.{row.name})({example})"
    function.__name__ = function.__qualname__ = row.name
    function.__module__ = f"{__package__}.{module}"
    function.__doc__ = (
        f"{row.text}\n\n>>> import numpy as np, tinyckpt as tc\n>>> {call}\n{row.shows}\n"
    )
    return eager(function)


FUNCTIONS: dict[str, Callable[..., Var]] = {
    row.name: public_function(row, module)
    for module, rows in TABLE.items()
    for row in rows
    if row.text
}
__test__ = FUNCTIONS  # doctest finds their examples here


def unary(name: str) -> Unary:
    """Return the public function of one array that is made from a row."""
    return FUNCTIONS[name]


def binary(name: str) -> Binary:
    """Return the public function of two arrays that is made from a row."""
    return FUNCTIONS[name]


add = binary("add")
subtract = binary("subtract")
multiply = binary("multiply")
divide = binary("divide")
negative = unary("negative")
exp = unary("exp")
log = unary("log")
sqrt = unary("sqrt")
sin = unary("sin")
cos = unary("cos")
absolute = unary("absolute")
maximum = binary("maximum")
minimum = binary("minimum")
equal = binary("equal")
sigmoid = unary("sigmoid")
tanh = unary("tanh")

# What the formulas of derivatives share -----------------------------------------------------------


def squared(x: Var) -> Var:
    return x * x


def arctan2_slope(x: Var, y: Var) -> Var:
    """Return the derivative of ``y / (x^2 + y^2)`` with respect to ``x``."""
    return -2 * x * y / squared(x * x + y * y)


def power_slope(x: Var, exponent: float) -> Var | None:
    # No term for exponents 0 and 1: there it would be 0 times a power that is infinite at 0.
    if exponent in (0, 1):
        return None
    return exponent * (exponent - 1) * power(x, exponent - 2)


def vjp_powers_base(x: Var, y: Var, ct: Var) -> Var:
    # No term where the exponent is 0: there it would be 0 times a power that is infinite at 0.
    return multiply(multiply(ct, y), power(x, where(equal(y, 0), 1, y) - 1))


def vjp_powers_exponent(x: Var, out: Var, ct: Var) -> Var:
    # 0 where the base is 0; NaN where it is negative, as for every logarithm. In the result's
    # dtype: NumPy takes logarithms of small integers in 16 bits.
    return multiply(multiply(ct, out), log(astype(where(equal(x, 0), 1, x), out.dtype)))


def sigmoid_slope(x: Var) -> Var:
    s = sigmoid(x)
    return s * (1 - s)


def silu_slope(x: Var) -> Var:
    s = sigmoid(x)
    return s * (1 - s) * (2 + x * (1 - 2 * s))


def normal_density(x: Var) -> Var:
    return exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))


def gelu_tanh_slope(x: Var) -> Var:
    t = tanh(GELU_SCALE * (x + GELU_CUBIC * x * x * x))
    first = GELU_SCALE * (1 + 3 * GELU_CUBIC * x * x)
    second = GELU_SCALE * 6 * GELU_CUBIC * x
    return (1 - t * t) * (first + 0.5 * x * (second - 2 * t * first * first))


SHARED = (
    squared, arctan2_slope, power_slope, vjp_powers_base, vjp_powers_exponent, sigmoid_slope,
    silu_slope, normal_density, gelu_tanh_slope,
)  # fmt: skip
SCOPE.update(
    {function.__name__: function for function in SHARED}
    | FUNCTIONS
    | {name: partial(apply, PRIMITIVES[name]) for name in PRIMITIVES if name.endswith("_vjp")}
)

# Selection and powers -----------------------------------------------------------------------------


def infer_where(condition: Any, x: Any, y: Any) -> tuple[Any, ...]:
    if condition.dtype != np.bool_:
        raise GraphError(f"the condition must be bool, got {condition}; compare first, as in x > 0")
    return (Spec(infer.broadcast_shape(condition, x, y), np.result_type(x.dtype, y.dtype)),)


def vjp_where_true(ct: Any, ins: Any, outs: Any) -> Var:
    return where(ins[0], ct[0], 0.0)


def vjp_where_false(ct: Any, ins: Any, outs: Any) -> Var:
    return where(ins[0], 0.0, ct[0])


WHERE = Primitive(
    "where",
    kernels.where,
    infer_where,
    vjp=(zero, unbroadcast_to(1, vjp_where_true), unbroadcast_to(2, vjp_where_false)),
    flops=per_element(1),
)


@eager
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
        return apply(PRIMITIVES["powers"], x, exponent)
    x = as_var(x)
    if not is_float(x.dtype):
        x = astype(x, np.result_type(x.dtype, exponent))
    if not is_float(x.dtype) and exponent < 0:
        raise GraphError(
            f"power: {x.spec} to the power {exponent}: integers have no negative powers; "
            "convert with x.astype('float64')"
        )
    return apply(PRIMITIVES["power"], x, exponent=exponent)


@eager
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


SCOPE.update(power=power, where=where)
