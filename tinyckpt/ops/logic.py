"""Truth: logic of booleans, bits of integers, what kind of number an element is, any and all.

Nothing here has a derivative: the results are booleans or integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import Spec
from tinyckpt.core.primitive import Primitive, apply, as_var, per_element
from tinyckpt.ops import infer, kernels_indexing
from tinyckpt.ops import kernels_functions as kernels
from tinyckpt.ops.comparison import equal, less_equal, not_equal
from tinyckpt.ops.elementwise import absolute
from tinyckpt.ops.reduce import Axes, reduced, sum

if TYPE_CHECKING:
    from tinyckpt.core.tracing import Var


def infer_bits(*specs: Spec) -> tuple[Spec, ...]:
    """Infer what works on the bits of integers and on booleans."""
    dtype = np.result_type(*(spec.dtype for spec in specs))
    if dtype.kind not in "biu":
        raise GraphError(
            f"needs integers or booleans, got {infer.listing(specs)}; compare first, as in x > 0"
        )
    return (Spec(infer.broadcast_shape(*specs), dtype),)


def infer_shift(x: Spec, y: Spec) -> tuple[Spec, ...]:
    infer.require_integers(x, y)
    return infer_bits(x, y)


def infer_truth(x: Spec, axes: tuple[int, ...], keepdims: bool) -> tuple[Spec, ...]:
    return (Spec(reduced(x.shape, axes, keepdims), "bool"),)


def logical(name: str, forward: Callable[..., Any]) -> Primitive:
    """Return a primitive whose results are booleans."""
    return Primitive(name, forward, infer.comparison, flops=per_element(1))


def bitwise(name: str, forward: Callable[..., Any], infer_rule: Any = infer_bits) -> Primitive:
    """Return a primitive of integers or booleans."""
    return Primitive(name, forward, infer_rule, flops=per_element(1))


def truth(name: str, forward: Callable[..., Any]) -> Primitive:
    """Return a primitive that reduces what is true over axes."""
    return Primitive(
        name, forward, infer_truth, flops=lambda inputs, outputs, **attrs: inputs[0].size
    )


# The facts ---------------------------------------------------------------------------------------

LOGICAL_AND = logical("logical_and", kernels.logical_and)
LOGICAL_OR = logical("logical_or", kernels.logical_or)
LOGICAL_XOR = logical("logical_xor", kernels.logical_xor)
LOGICAL_NOT = logical("logical_not", kernels.logical_not)
ISNAN = logical("isnan", kernels.isnan)
ISINF = logical("isinf", kernels.isinf)
ISFINITE = logical("isfinite", kernels.isfinite)
SIGNBIT = logical("signbit", kernels.signbit)
BITWISE_AND = bitwise("bitwise_and", kernels.bitwise_and)
BITWISE_OR = bitwise("bitwise_or", kernels.bitwise_or)
BITWISE_XOR = bitwise("bitwise_xor", kernels.bitwise_xor)
INVERT = bitwise("invert", kernels.invert)
LEFT_SHIFT = bitwise("left_shift", kernels.left_shift, infer_shift)
RIGHT_SHIFT = bitwise("right_shift", kernels.right_shift, infer_shift)
ANY = truth("any", kernels_indexing.any_)
ALL = truth("all", kernels_indexing.all_)

# The functions -----------------------------------------------------------------------------------


def logical_and(x: Any, y: Any) -> Var:
    """Return whether both are true."""
    return apply(LOGICAL_AND, x, y)


def logical_or(x: Any, y: Any) -> Var:
    """Return whether one of the two is true, or both."""
    return apply(LOGICAL_OR, x, y)


def logical_xor(x: Any, y: Any) -> Var:
    """Return whether exactly one of the two is true."""
    return apply(LOGICAL_XOR, x, y)


def logical_not(x: Any) -> Var:
    """Return whether it is not true."""
    return apply(LOGICAL_NOT, x)


def isnan(x: Any) -> Var:
    """Return whether every element is not a number."""
    return apply(ISNAN, x)


def isinf(x: Any) -> Var:
    """Return whether every element is infinite."""
    return apply(ISINF, x)


def isfinite(x: Any) -> Var:
    """Return whether every element is a number and finite."""
    return apply(ISFINITE, x)


def signbit(x: Any) -> Var:
    """Return whether every element is negative, -0.0 too."""
    return apply(SIGNBIT, x)


def bitwise_and(x: Any, y: Any) -> Var:
    """Return ``x & y`` of integers or booleans."""
    return apply(BITWISE_AND, x, y)


def bitwise_or(x: Any, y: Any) -> Var:
    """Return ``x | y`` of integers or booleans."""
    return apply(BITWISE_OR, x, y)


def bitwise_xor(x: Any, y: Any) -> Var:
    """Return ``x ^ y`` of integers or booleans."""
    return apply(BITWISE_XOR, x, y)


def invert(x: Any) -> Var:
    """Return ``~x`` of integers or booleans."""
    return apply(INVERT, x)


def left_shift(x: Any, y: Any) -> Var:
    """Return ``x << y`` of integers."""
    return apply(LEFT_SHIFT, x, y)


def right_shift(x: Any, y: Any) -> Var:
    """Return ``x >> y`` of integers."""
    return apply(RIGHT_SHIFT, x, y)


def any(x: Any, axis: Axes = None, keepdims: bool = False) -> Var:
    """Return whether an element is true, over an axis or several; over all of them by default."""
    x = as_var(x)
    return apply(ANY, x, axes=infer.checked_axes(axis, x.ndim), keepdims=keepdims)


def all(x: Any, axis: Axes = None, keepdims: bool = False) -> Var:
    """Return whether all elements are true, over an axis or several; over all by default."""
    x = as_var(x)
    return apply(ALL, x, axes=infer.checked_axes(axis, x.ndim), keepdims=keepdims)


def count_nonzero(x: Any, axis: Axes = None, keepdims: bool = False) -> Var:
    """Return how many elements are not 0, over an axis or several."""
    return sum(not_equal(x, 0), axis, keepdims)


def isclose(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Var:
    """Return whether ``abs(x - y) <= atol + rtol abs(y)``, and for the equal infinities too."""
    x, y = as_var(x), as_var(y)
    near = less_equal(absolute(x - y), atol + rtol * absolute(y))
    return logical_or(equal(x, y), logical_and(near, isfinite(y)))
