"""Boolean logic, bitwise operators, floating-point classification, and the reductions any and all.

None of them has a derivative: the results are booleans or integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive
from tinyckpt.core.tracing import apply, as_var
from tinyckpt.ops import kernels_elementwise_functions as kernels
from tinyckpt.ops import kernels_indexing
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.comparison import equal, less_equal, not_equal
from tinyckpt.ops.elementwise import absolute
from tinyckpt.ops.reduce import Axes, reduced_shape, sum
from tinyckpt.ops.shape_inference import per_element

if TYPE_CHECKING:
    from tinyckpt.core.tracing import Var


def infer_bits(*specs: Spec) -> tuple[Spec, ...]:
    """Infer bitwise operators on integers and booleans."""
    dtype = np.result_type(*(spec.dtype for spec in specs))
    if dtype.kind not in "biu":
        raise GraphError(
            f"needs integers or booleans, got {infer.format_specs(specs)}; compare first, "
            "as in x > 0"
        )
    return (Spec(infer.broadcast_shape(*specs), dtype),)


def infer_shift(x: Spec, y: Spec) -> tuple[Spec, ...]:
    infer.require_integers(x, y)
    return infer_bits(x, y)


def infer_truth(x: Spec, axes: tuple[int, ...], keepdims: bool) -> tuple[Spec, ...]:
    return (Spec(reduced_shape(x.shape, axes, keepdims), "bool"),)


def logical(name: str, forward: Callable[..., Any]) -> Primitive:
    """Make a primitive with boolean results."""
    return Primitive(name, forward, infer.comparison, flops=per_element(1))


def bitwise(name: str, forward: Callable[..., Any], infer_rule: Any = infer_bits) -> Primitive:
    """Make a primitive of integers or booleans."""
    return Primitive(name, forward, infer_rule, flops=per_element(1))


def truth(name: str, forward: Callable[..., Any]) -> Primitive:
    """Make a primitive that reduces truth values over axes."""
    return Primitive(
        name, forward, infer_truth, flops=lambda inputs, outputs, **attrs: inputs[0].size
    )


# The primitives -----------------------------------------------------------------------------------

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

# The functions ------------------------------------------------------------------------------------


def logical_and(x: Any, y: Any) -> Var:
    """Elementwise logical AND.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.logical_and)(np.array([True, True]), np.array([True, False]))
    array([ True, False])
    """
    return apply(LOGICAL_AND, x, y)


def logical_or(x: Any, y: Any) -> Var:
    """Elementwise logical OR.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.logical_or)(np.array([False, False]), np.array([True, False]))
    array([ True, False])
    """
    return apply(LOGICAL_OR, x, y)


def logical_xor(x: Any, y: Any) -> Var:
    """Elementwise exclusive OR.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.logical_xor)(np.array([True, True]), np.array([True, False]))
    array([False,  True])
    """
    return apply(LOGICAL_XOR, x, y)


def logical_not(x: Any) -> Var:
    """Elementwise logical NOT.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.logical_not)(np.array([True, False]))
    array([False,  True])
    """
    return apply(LOGICAL_NOT, x)


def isnan(x: Any) -> Var:
    """Whether each element is NaN.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.isnan)(np.array([1.0, np.nan]))
    array([False,  True])
    """
    return apply(ISNAN, x)


def isinf(x: Any) -> Var:
    """Whether each element is infinite.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.isinf)(np.array([1.0, np.inf, np.nan]))
    array([False,  True, False])
    """
    return apply(ISINF, x)


def isfinite(x: Any) -> Var:
    """Whether each element is finite: neither infinite nor NaN.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.isfinite)(np.array([1.0, np.inf, np.nan]))
    array([ True, False, False])
    """
    return apply(ISFINITE, x)


def signbit(x: Any) -> Var:
    """Whether the sign bit of each element is set, as for negative numbers and -0.0.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.signbit)(np.array([1.0, -0.0]))
    array([False,  True])
    """
    return apply(SIGNBIT, x)


def bitwise_and(x: Any, y: Any) -> Var:
    """Bitwise AND, ``x & y``, of integers or booleans.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.bitwise_and)(np.array([12, 5]), 4)
    array([4, 4])
    """
    return apply(BITWISE_AND, x, y)


def bitwise_or(x: Any, y: Any) -> Var:
    """Bitwise OR, ``x | y``, of integers or booleans.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.bitwise_or)(np.array([8, 1]), 4)
    array([12,  5])
    """
    return apply(BITWISE_OR, x, y)


def bitwise_xor(x: Any, y: Any) -> Var:
    """Bitwise exclusive OR, ``x ^ y``, of integers or booleans.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.bitwise_xor)(np.array([12, 5]), 4)
    array([8, 1])
    """
    return apply(BITWISE_XOR, x, y)


def invert(x: Any) -> Var:
    """Bitwise NOT, ``~x``, of integers or booleans.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.invert)(np.array([0, 1]))
    array([-1, -2])
    """
    return apply(INVERT, x)


def left_shift(x: Any, y: Any) -> Var:
    """Left shift, ``x << y``, of integers.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.left_shift)(np.array([1, 3]), 2)
    array([ 4, 12])
    """
    return apply(LEFT_SHIFT, x, y)


def right_shift(x: Any, y: Any) -> Var:
    """Right shift, ``x >> y``, of integers.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.right_shift)(np.array([4, 13]), 2)
    array([1, 3])
    """
    return apply(RIGHT_SHIFT, x, y)


def any(x: Any, axis: Axes = None, keepdims: bool = False) -> Var:
    """Whether any element is true, over an axis or several; over all of them by default.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.any(x, 1))(np.array([[True, False], [False, False]]))
    array([ True, False])
    """
    x = as_var(x)
    return apply(ANY, x, axes=infer.checked_axes(axis, x.ndim), keepdims=keepdims)


def all(x: Any, axis: Axes = None, keepdims: bool = False) -> Var:
    """Whether all elements are true, over an axis or several; over all by default.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.all(x, 1))(np.array([[True, False], [True, True]]))
    array([False,  True])
    """
    x = as_var(x)
    return apply(ALL, x, axes=infer.checked_axes(axis, x.ndim), keepdims=keepdims)


def count_nonzero(x: Any, axis: Axes = None, keepdims: bool = False) -> Var:
    """Count the nonzero elements, over an axis or several; over all by default.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.count_nonzero(x, 1))(np.array([[0, 2], [3, 4]]))
    array([1, 2])
    """
    return sum(not_equal(x, 0), axis, keepdims)


def isclose(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Var:
    """Whether ``abs(x - y) <= atol + rtol abs(y)``; equal infinities are close.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.isclose)(np.array([1.0, 2.0]), np.array([1.0 + 1e-9, 2.1]))
    array([ True, False])
    """
    x, y = as_var(x), as_var(y)
    near = less_equal(absolute(x - y), atol + rtol * absolute(y))
    return logical_or(equal(x, y), logical_and(near, isfinite(y)))
