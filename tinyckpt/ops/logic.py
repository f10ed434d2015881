"""Boolean logic, bitwise operators, floating-point classification, and the reductions any and all.

None of them has a derivative: the results are booleans or integers. The elementwise ones are rows
of ``elementwise_table``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive
from tinyckpt.core.tracing import Var, apply, as_var
from tinyckpt.ops import kernels_indexing
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.comparison import equal, less_equal, not_equal
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise import absolute, binary, unary
from tinyckpt.ops.reduce import Axes, reduced_shape, sum

logical_and = binary("logical_and")
logical_or = binary("logical_or")
logical_xor = binary("logical_xor")
logical_not = unary("logical_not")
isnan = unary("isnan")
isinf = unary("isinf")
isfinite = unary("isfinite")
signbit = unary("signbit")
bitwise_and = binary("bitwise_and")
bitwise_or = binary("bitwise_or")
bitwise_xor = binary("bitwise_xor")
invert = unary("invert")
left_shift = binary("left_shift")
right_shift = binary("right_shift")


def truth(name: str, forward: Callable[..., Any]) -> Primitive:
    """Make a primitive that reduces truth values over axes."""
    return Primitive(
        name,
        forward,
        lambda x, axes, keepdims: (Spec(reduced_shape(x.shape, axes, keepdims), "bool"),),
        flops=lambda inputs, outputs, **attrs: inputs[0].size,
    )


ANY = truth("any", kernels_indexing.any_)
ALL = truth("all", kernels_indexing.all_)


@eager
def any(x: Any, axis: Axes = None, keepdims: bool = False) -> Var:
    """Whether any element is true, over an axis or several; over all of them by default.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.any(x, 1))(np.array([[True, False], [False, False]]))
    array([ True, False])
    """
    x = as_var(x)
    return apply(ANY, x, axes=infer.checked_axes(axis, x.ndim), keepdims=keepdims)


@eager
def all(x: Any, axis: Axes = None, keepdims: bool = False) -> Var:
    """Whether all elements are true, over an axis or several; over all by default.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.all(x, 1))(np.array([[True, False], [True, True]]))
    array([False,  True])
    """
    x = as_var(x)
    return apply(ALL, x, axes=infer.checked_axes(axis, x.ndim), keepdims=keepdims)


@eager
def count_nonzero(x: Any, axis: Axes = None, keepdims: bool = False) -> Var:
    """Count the nonzero elements, over an axis or several; over all by default.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.count_nonzero(x, 1))(np.array([[0, 2], [3, 4]]))
    array([1, 2])
    """
    return sum(not_equal(x, 0), axis, keepdims)


@eager
def isclose(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Var:
    """Whether ``abs(x - y) <= atol + rtol abs(y)``; equal infinities are close.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.isclose)(np.array([1.0, 2.0]), np.array([1.0 + 1e-9, 2.1]))
    array([ True, False])
    """
    x, y = as_var(x), as_var(y)
    near = less_equal(absolute(x - y), atol + rtol * absolute(y))
    return logical_or(equal(x, y), logical_and(near, isfinite(y)))
