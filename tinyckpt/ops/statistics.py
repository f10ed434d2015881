"""Statistics and scans: variance, median, products, cumulative sums and products, logsumexp."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyckpt.base.dtypes import is_float
from tinyckpt.base.errors import GraphError
from tinyckpt.base.quantities import as_integer
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive
from tinyckpt.core.tracing import Var, apply, as_var
from tinyckpt.ops import kernels_indexing as kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.casting import astype
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise import divide, exp, multiply, sqrt, subtract, where
from tinyckpt.ops.indexing import sort
from tinyckpt.ops.logic import isnan
from tinyckpt.ops.reduce import Axes, max, mean, min, reduced_shape, sum
from tinyckpt.ops.shape import concatenate, flat_or_along, full, index, reshape


def infer_logsumexp(x: Spec, axes: tuple[int, ...], keepdims: bool) -> tuple[Spec, ...]:
    infer.require_float(x)
    if any(x.shape[axis] == 0 for axis in axes):
        raise GraphError(f"{x} has no elements along the axes {axes}")
    return (Spec(reduced_shape(x.shape, axes, keepdims), x.dtype),)


def vjp_logsumexp_vjp_g(ct: Any, ins: Any, outs: Any, axes: tuple[int, ...], keepdims: bool) -> Var:
    x, y, _ = ins
    y = reshape(y, reduced_shape(x.shape, axes, keepdims=True))
    return sum(multiply(ct[0], exp(subtract(x, y))), axes, keepdims)


# The primitives -----------------------------------------------------------------------------------

LOGSUMEXP_VJP = Primitive(
    "logsumexp_vjp",  # (x, logsumexp, g) -> g softmax(x)
    kernels.logsumexp_vjp,
    lambda x, y, g, axes, keepdims: (x,),
    vjp=(
        lambda ct, ins, outs, axes, keepdims: multiply(ct[0], outs[0]),
        lambda ct, ins, outs, axes, keepdims: -sum(multiply(ct[0], outs[0]), axes, keepdims),
        vjp_logsumexp_vjp_g,
    ),
    flops=lambda inputs, outputs, **attrs: 3 * inputs[0].size,
)
LOGSUMEXP = Primitive(
    "logsumexp", kernels.logsumexp, infer_logsumexp,
    vjp=(
        lambda ct, ins, outs, **attrs: apply(LOGSUMEXP_VJP, ins[0], outs[0], ct[0], **attrs),
    ),
    # The maximum, the difference, exp, the sum.
    flops=lambda inputs, outputs, **attrs: 4 * inputs[0].size,
    # The exponentials, and the maximum.
    workspace=lambda inputs, outputs, **attrs: inputs[0].nbytes + outputs[0].nbytes,
)  # fmt: skip
CUMSUM: Primitive = Primitive(
    "cumsum", kernels.cumsum,
    lambda x, axis, reverse: (Spec(x.shape, x.dtype if is_float(x.dtype) else "int64"),),
    contiguous=False,
    vjp=(
        lambda ct, ins, outs, axis, reverse: apply(CUMSUM, ct[0], axis=axis, reverse=not reverse),
    ),
    flops=lambda inputs, outputs, **attrs: inputs[0].size,
)  # fmt: skip

# Moments ------------------------------------------------------------------------------------------


@eager
def var(x: Var, axis: Axes = None, ddof: float = 0, keepdims: bool = False) -> Var:
    """Variance over an axis or several: squared deviations from the mean, over ``count - ddof``.

    Raises:
        GraphError: if there are no more than ``ddof`` elements.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.var(x, 1))(np.array([[1.0, 3.0], [2.0, 6.0]]))
    array([1., 4.])
    """
    x = as_var(x)
    x = x if is_float(x.dtype) else astype(x, "float64")
    count = math.prod(x.shape[axis] for axis in infer.checked_axes(axis, x.ndim))
    if count <= ddof:
        raise GraphError(f"var: {count} elements of {x.spec} at ddof={ddof}; more are needed")
    centred = subtract(x, mean(x, axis, keepdims=True))
    return divide(sum(multiply(centred, centred), axis, keepdims), float(count - ddof))


@eager
def std(x: Var, axis: Axes = None, ddof: float = 0, keepdims: bool = False) -> Var:
    """Standard deviation, the root of ``var``; no derivative where all elements are equal.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.std(x, 1))(np.array([[1.0, 3.0], [2.0, 6.0]]))
    array([1., 2.])
    """
    return sqrt(var(x, axis, ddof, keepdims))


@eager
def average(x: Var, axis: Axes = None, weights: Any = None, keepdims: bool = False) -> Var:
    """Weighted mean, with ``weights`` that broadcast to the shape of ``x``.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x, w: tc.average(x, weights=w))(np.array([1.0, 5.0]), np.array([3.0, 1.0]))
    array(2.)
    """
    if weights is None:
        return mean(x, axis, keepdims)
    x = as_var(x)
    weights = as_var(weights)
    if weights.shape != x.shape:
        if weights.ndim != 1 or not isinstance(axis, int | np.integer):
            raise GraphError(
                f"average: weights {weights.spec} for {x.spec} over axis {axis!r}; give weights of "
                "that shape, or one for each element of one axis"
            )
        position = infer.checked_axis(int(axis), x.ndim)
        weights = reshape(weights, [-1 if a == position else 1 for a in range(x.ndim)])
        if weights.shape[position] != x.shape[position]:
            raise GraphError(f"average: {weights.size} weights for axis {axis} of {x.spec}")
    return divide(
        sum(multiply(x, weights), axis, keepdims),
        sum(multiply(full(x.shape, 1, weights.dtype), weights), axis, keepdims),
    )


@eager
def ptp(x: Var, axis: Axes = None, keepdims: bool = False) -> Var:
    """Range (peak to peak), the maximum minus the minimum, over an axis or several.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.ptp(x, 1))(np.array([[1.0, 3.0], [2.0, 6.0]]))
    array([2., 4.])
    """
    return subtract(max(x, axis, keepdims), min(x, axis, keepdims))


@eager
def median(x: Var, axis: int | None = None, keepdims: bool = False) -> Var:
    """Median along an axis: the middle element in ascending order, or the mean of the middle two.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.median(x, 1))(np.array([[9.0, 1.0, 3.0], [2.0, 8.0, 6.0]]))
    array([3., 6.])
    """
    x = as_var(x)
    ones = (1,) * x.ndim
    if axis is None:
        result = median(reshape(x, -1), 0)
        return reshape(result, ones) if keepdims else result
    position, (before, count) = axis_and_extent(x, axis)
    if count == 0:
        raise GraphError(f"median: {x.spec} has no elements along axis {axis}")
    ordered = sort(x, position)
    middle = index(ordered, (*before, slice((count - 1) // 2, count // 2 + 1)))
    if is_float(x.dtype):  # NaNs are sorted to the end, and make the median NaN, as in NumPy
        last = index(ordered, (*before, slice(count - 1, count)))
        middle = where(isnan(last), last, middle)
    return mean(middle, position, keepdims)


# Products and running sums ------------------------------------------------------------------------


@eager
def prod(x: Var, axis: Axes = None, keepdims: bool = False) -> Var:
    """Product over an axis or several; over all of them by default.

    A tree reduction (products of halves), without division, so that derivatives of every order are
    right where elements are 0, too. Integers and booleans are multiplied as int64.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.grad(tc.prod)(np.array([2.0, 0.0, 3.0]))
    array([0., 6., 0.])
    """
    x = as_var(x)
    x = x if is_float(x.dtype) else astype(x, "int64")
    axes = infer.checked_axes(axis, x.ndim)
    shape = reduced_shape(x.shape, axes, keepdims)
    for position in axes:
        x = tree_product(x, position)
    return reshape(x, shape)


def tree_product(x: Var, axis: int) -> Var:
    """Tree-reduce a product along one axis, which stays with length 1."""
    axis, (before, count) = axis_and_extent(x, axis)
    if count == 0:
        return full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), 1, x.dtype)
    rest: Var | None = None
    while count > 1:
        half = count // 2
        if count % 2:
            last = index(x, (*before, slice(count - 1, None)))
            rest = last if rest is None else multiply(rest, last)
        x = multiply(
            index(x, (*before, slice(0, half))), index(x, (*before, slice(half, 2 * half)))
        )
        count = half
    return x if rest is None else multiply(x, rest)


def axis_and_extent(x: Var, axis: int) -> tuple[int, tuple[tuple[slice, ...], int]]:
    """Return the axis counted from the front; the index of the axes before it, and its extent."""
    position = infer.checked_axis(axis, x.ndim)
    return position, ((slice(None),) * position, x.shape[position])


@eager
def cumsum(x: Var, axis: int | None = None) -> Var:
    """Cumulative sum (prefix sum) along an axis; of all elements, flattened, by default.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.cumsum)(np.array([1.0, 2.0, 3.0]))
    array([1., 3., 6.])
    """
    x, position = flat_or_along(x, axis)
    if x.dtype == np.uint8:
        x = astype(x, "int64")
    return apply(CUMSUM, x, axis=position, reverse=False)


@eager
def cumprod(x: Var, axis: int | None = None) -> Var:
    """Cumulative product along an axis; of all elements, flattened, by default.

    A parallel prefix scan: each element is multiplied by the ones 1, 2, 4, ... positions before it.
    Without division, so that derivatives are right where elements are 0, too.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.cumprod)(np.array([1.0, 2.0, 3.0]))
    array([1., 2., 6.])
    """
    x, position = flat_or_along(x, axis)
    x = x if is_float(x.dtype) else astype(x, "int64")
    _, (before, count) = axis_and_extent(x, position)
    step = 1
    while step < count:
        first = index(x, (*before, slice(0, step)))
        later = index(x, (*before, slice(step, None)))
        earlier = index(x, (*before, slice(0, count - step)))
        x = concatenate([first, multiply(later, earlier)], position)
        step *= 2
    return x


@eager
def diff(x: Var, n: int = 1, axis: int = -1) -> Var:
    """Finite difference along an axis: each element minus the previous one, ``n`` times over.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.diff)(np.array([1.0, 4.0, 9.0]))
    array([3., 5.])
    """
    x = as_var(x)
    axis, (before, extent) = axis_and_extent(x, axis)
    if (count := as_integer(n)) is None or count < 0:
        raise GraphError(f"diff: n={n!r:.80} must be an integer of 0 or more")
    for _ in range(count if count < extent else extent):  # then it is empty, and stays so
        x = subtract(index(x, (*before, slice(1, None))), index(x, (*before, slice(0, -1))))
    return x


@eager
def logsumexp(x: Var, axis: Axes = None, keepdims: bool = False) -> Var:
    """``log(sum(exp(x)))`` over an axis or several, evaluated without overflow.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.logsumexp)(np.array([1000.0, 1000.0])).round(4)
    np.float64(1000.6931)
    """
    x = as_var(x)
    return apply(LOGSUMEXP, x, axes=infer.checked_axes(axis, x.ndim), keepdims=keepdims)
