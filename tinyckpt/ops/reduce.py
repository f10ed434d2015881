"""Reductions over axes (sum, max, min, mean) and their adjoints.

``mean`` is a sum and a division, so that its parts can be seen in the graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyckpt.base.dtypes import is_float
from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive, zero
from tinyckpt.core.tracing import Var, apply, as_var
from tinyckpt.ops import kernels, kernels_indexing
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.casting import astype
from tinyckpt.ops.comparison import equal
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise import divide, multiply, where
from tinyckpt.ops.shape import full, reshape

Axes = int | Sequence[int] | None


def keepdims_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape with the reduced axes at length 1."""
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))


def infer_sum(x: Spec, axes: tuple[int, ...], keepdims: bool) -> tuple[Spec, ...]:
    # Integers and booleans are accumulated in 64 bits, as in NumPy.
    dtype = x.dtype if is_float(x.dtype) else "int64"
    return (Spec(reduced_shape(x.shape, axes, keepdims), dtype),)


def infer_max(x: Spec, axes: tuple[int, ...], keepdims: bool) -> tuple[Spec, ...]:
    if any(x.shape[axis] == 0 for axis in axes):
        raise GraphError(
            f"{x} has no elements along the axes {axes}, so there is no maximum or minimum"
        )
    return (Spec(reduced_shape(x.shape, axes, keepdims), x.dtype),)


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """Return the shape after a reduction over the axes."""
    if not isinstance(keepdims, bool | np.bool_):
        raise GraphError(f"keepdims is {keepdims!r:.80}; it must be True or False")
    if keepdims:
        return keepdims_shape(shape, axes)
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def vjp_max_vjp(
    ct: Any, ins: Any, outs: Any, axes: tuple[int, ...], keepdims: bool
) -> Var:  # with respect to g, in which it is linear
    x, y, g = ins
    attained = equal(x, reshape(y, keepdims_shape(x.shape, axes)))
    ones = where(attained, full(x.shape, 1.0, x.dtype), 0.0)
    shared = sum(multiply(ct[0], ones), axes, keepdims=True) / sum(ones, axes, keepdims=True)
    return reshape(shared, g.shape)


@eager
def sum(x: Var, axis: Axes = None, keepdims: bool = False) -> Var:
    """Sum over an axis or several; over all of them by default.

    Integers and booleans are accumulated as int64.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.sum(x, 1))(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([3., 7.])
    """
    x = as_var(x)
    if x.dtype == np.uint8:  # NumPy's own choice would be uint64, which graphs do not have
        x = astype(x, "int64")
    return apply(SUM, x, axes=infer.checked_axes(axis, x.ndim), keepdims=keepdims)


SUM_VJP = Primitive(
    "sum_vjp", kernels.sum_vjp, lambda g, shape, axes, keepdims: (Spec(shape, g.dtype),),
    alias=0, contiguous=False,
    vjp=(lambda ct, ins, outs, shape, axes, keepdims: sum(ct[0], axes, keepdims),),
)  # fmt: skip
SUM = Primitive(
    "sum", kernels.sum_, infer_sum,
    vjp=(
        lambda ct, ins, outs, axes, keepdims: apply(
            SUM_VJP, ct[0], shape=ins[0].shape, axes=axes, keepdims=keepdims
        ),
    ),
    flops=lambda inputs, outputs, **attrs: inputs[0].size,
)  # fmt: skip
MAX_VJP = Primitive(
    "max_vjp",  # (x, y, g) -> g shared equally among the elements of x that attain y
    kernels.max_vjp,
    lambda x, y, g, axes, keepdims: (Spec(x.shape, g.dtype),),
    vjp=(zero, zero, vjp_max_vjp),
    # The comparison, the count, the selection.
    flops=lambda inputs, outputs, **attrs: 3 * inputs[0].size,
    # The mask of the elements that attain the maximum, and each one's share.
    workspace=lambda inputs, outputs, **attrs: inputs[0].size + inputs[2].nbytes,
)
MAX, MIN = (
    Primitive(
        name, kernel, infer_max,
        vjp=(lambda ct, ins, outs, **attrs: apply(MAX_VJP, ins[0], outs[0], ct[0], **attrs),),
        flops=lambda inputs, outputs, **attrs: inputs[0].size,
    )
    for name, kernel in (("max", kernels.max_), ("min", kernels_indexing.min_))
)  # fmt: skip


@eager
def max(x: Var, axis: Axes = None, keepdims: bool = False) -> Var:
    """Maximum over an axis or several; elements that tie share the cotangent equally.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.grad(lambda x: tc.max(x))(np.array([1.0, 3.0, 3.0]))
    array([0. , 0.5, 0.5])
    """
    x = as_var(x)
    return apply(MAX, x, axes=infer.checked_axes(axis, x.ndim), keepdims=keepdims)


@eager
def min(x: Var, axis: Axes = None, keepdims: bool = False) -> Var:
    """Minimum over an axis or several; elements that tie share the cotangent equally.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.min(x, 1))(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([1., 3.])
    """
    x = as_var(x)
    return apply(MIN, x, axes=infer.checked_axes(axis, x.ndim), keepdims=keepdims)


@eager
def mean(x: Var, axis: Axes = None, keepdims: bool = False) -> Var:
    """Mean over an axis or several, as a ``sum`` and a ``divide``.

    For float16 it is computed in float32, as NumPy does, since a sum soon exceeds 65,504.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.mean(x, 1))(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([1.5, 3.5])
    """
    x = as_var(x)
    if not is_float(x.dtype):
        x = astype(x, "float64")
    count = math.prod(x.shape[axis] for axis in infer.checked_axes(axis, x.ndim))
    if count == 0:
        raise GraphError(f"mean: {x.spec} has no elements to average")
    if x.dtype == np.float16:
        return astype(mean(astype(x, "float32"), axis, keepdims), "float16")
    return divide(sum(x, axis, keepdims), float(count))
