"""Matrix multiplication, and vector and matrix norms (``tinyckpt.linalg``).

The derivative of a product is a product of the same kind with a transposed operand, so one
primitive with two transposition flags is closed under differentiation. Not here: decompositions,
and norms by singular values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyckpt.base.dtypes import is_float
from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive
from tinyckpt.core.tracing import Var, apply, as_var
from tinyckpt.ops import kernels, reduce
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.casting import astype, promote_to_float
from tinyckpt.ops.comparison import equal, not_equal
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise import absolute, multiply, power, sqrt, where
from tinyckpt.ops.reduce import Axes
from tinyckpt.ops.shape import reshape, unbroadcast


def swapped_if(spec: Spec, transposed: bool) -> Spec:
    """Return the spec with its last two axes exchanged if ``transposed``."""
    *batch, rows, columns = spec.shape
    return Spec((*batch, columns, rows), spec.dtype) if transposed else spec


def infer_matmul(x: Spec, y: Spec, transpose_x: bool, transpose_y: bool) -> tuple[Spec, ...]:
    dtype = np.result_type(x.dtype, y.dtype)
    if dtype == np.bool_:
        raise GraphError(f"needs numbers, got {x} and {y}; convert with x.astype('float64')")
    left, right = swapped_if(x, transpose_x), swapped_if(y, transpose_y)
    if left.shape[-1] != right.shape[-2]:
        raise GraphError(
            f"{left} @ {right}: the last extent of the left, {left.shape[-1]}, must equal the "
            f"last but one of the right, {right.shape[-2]}"
        )
    batch = infer.broadcast_shape(Spec(left.shape[:-2]), Spec(right.shape[:-2]))
    shape = (*batch, left.shape[-2], right.shape[-1])
    return (Spec(shape, dtype),)


def product(x: Var, y: Var, transpose_x: bool, transpose_y: bool) -> Var:
    """Matrix product over the last two axes, with operands transposed as flagged."""
    return apply(MATMUL, x, y, transpose_x=transpose_x, transpose_y=transpose_y)


def vjp_left(ct: Any, ins: Any, outs: Any, transpose_x: bool, transpose_y: bool) -> Var:
    # x' y' = z has dx' = g y'^T; when x' = x^T, the transpose of that: dx = y' g^T.
    x, y = ins
    (g,) = ct
    result = (
        product(y, g, transpose_y, True) if transpose_x else product(g, y, False, not transpose_y)
    )
    return unbroadcast(result, x)


def vjp_right(ct: Any, ins: Any, outs: Any, transpose_x: bool, transpose_y: bool) -> Var:
    # dy' = x'^T g; when y' = y^T, the transpose of that: dy = g^T x'.
    x, y = ins
    (g,) = ct
    result = (
        product(g, x, True, transpose_x) if transpose_y else product(x, g, not transpose_x, False)
    )
    return unbroadcast(result, y)


def matmul_flops(inputs: Any, outputs: Any, transpose_x: bool, transpose_y: bool) -> int:
    """Count one multiplication and one addition per term of every inner product."""
    return 2 * int(outputs[0].size) * int(swapped_if(inputs[0], transpose_x).shape[-1])


def cast_bytes(inputs: Any, outputs: Any, **attrs: Any) -> int:
    """Return the bytes of cast operands: NumPy casts an operand of another dtype as a whole."""
    dtype = outputs[0].dtype
    return sum(spec.size * int(dtype.itemsize) for spec in inputs if spec.dtype != dtype)


MATMUL = Primitive(
    "matmul", kernels.matmul, infer_matmul, vjp=(vjp_left, vjp_right),
    flops=matmul_flops, workspace=cast_bytes,
)  # fmt: skip


@eager
def matmul(x: Any, y: Any) -> Var:
    """Matrix product ``x @ y``, with NumPy's rules for vectors and batches.

    A batch of matrices times one matrix is a single product: ``x`` is reshaped to two axes, which
    costs no memory if it is C-contiguous, so that the weight's gradient needs no batch of partial
    gradients.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.matmul)(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0]))
    array([3., 7.])
    """
    x, y = (as_var(operand) for operand in promote_to_float(np.matmul, x, y))
    for operand in (x, y):
        if operand.ndim == 0:
            raise GraphError(f"matmul: {operand.node} is a scalar; multiply with * instead")
    if x.ndim == 1 or y.ndim == 1:
        z = matmul(x[None, :] if x.ndim == 1 else x, y[:, None] if y.ndim == 1 else y)
        rows = () if x.ndim == 1 else z.shape[-2:-1]
        columns = () if y.ndim == 1 else z.shape[-1:]
        return reshape(z, (*z.shape[:-2], *rows, *columns))
    if x.ndim > 2 and y.ndim == 2:
        rows_together = reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
        z = product(rows_together, y, False, False)
        return reshape(z, (*x.shape[:-1], y.shape[-1]))
    return product(x, y, False, False)


# Norms --------------------------------------------------------------------------------------------


def root_of_sum(total: Var, order: float = 2) -> Var:
    """Root of a sum of powers; where that is 0, the derivative is taken as 0."""
    at_0 = equal(total, 0)
    filled = where(at_0, 1, total)
    return where(at_0, 0, sqrt(filled) if order == 2 else power(filled, 1 / order))


@eager
def norm(x: Any, ord: Any = None, axis: Axes = None, keepdims: bool = False) -> Var:
    """Norm of all elements, of vectors along one axis, or of matrices along two.

    Args:
        x: of any shape.
        ord: 2 by default. For vectors also 0, 1, inf, -inf and any other number; for matrices
            "fro", 1, -1, inf, -inf.
        axis: one axis for vectors, two for matrices; without it, ``x`` is the vector or matrix.
        keepdims: whether the axes stay, with length 1.

    The gradient is taken as 0 where a norm is 0. Norms by singular values are not supported.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.linalg.norm(x, axis=1))(np.array([[3.0, 4.0], [5.0, 12.0]]))
    array([ 5., 13.])
    """
    x = as_var(x)
    if ord is None and axis is None:
        return vector_norm(x, keepdims=keepdims)
    axes = infer.checked_axes(axis, x.ndim)
    if len(axes) == 1:
        return vector_norm(x, axes[0], keepdims, 2 if ord is None else ord)
    if len(axes) == 2:
        order = axes if axis is None else [infer.checked_axis(a, x.ndim) for a in axis]  # type: ignore[union-attr]
        return matrix_norm_over(x, (order[0], order[1]), keepdims, "fro" if ord is None else ord)
    raise GraphError(f"norm: {x.spec} over {len(axes)} axes with ord={ord!r}; give one axis or two")


@eager
def vector_norm(x: Any, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Var:
    """Norm of vectors along an axis or several; of all elements by default.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.linalg.vector_norm(x, ord=1))(np.array([3.0, -4.0]))
    array(7.)
    """
    x = as_var(x)
    x = x if is_float(x.dtype) else astype(x, "float64")
    if not isinstance(ord, int | float) or math.isnan(ord):
        raise GraphError(f"norm of vectors: ord {ord!r}; give a number, inf or -inf")
    if math.isinf(ord):
        return (reduce.max if ord > 0 else reduce.min)(absolute(x), axis, keepdims)
    if ord == 0:
        return reduce.sum(astype(not_equal(x, 0), x.dtype), axis, keepdims)
    if ord == 1:
        return reduce.sum(absolute(x), axis, keepdims)
    if ord == 2:
        return root_of_sum(reduce.sum(multiply(x, x), axis, keepdims))
    return root_of_sum(reduce.sum(power(absolute(x), ord), axis, keepdims), ord)


@eager
def matrix_norm(x: Any, keepdims: bool = False, ord: Any = "fro") -> Var:
    """Norm of the matrices in the last two axes; see ``norm``.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.linalg.matrix_norm(x, ord=1))(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array(6.)
    """
    x = as_var(x)
    return matrix_norm_over(x, (x.ndim - 2, x.ndim - 1), keepdims, ord)


def matrix_norm_over(x: Var, axes: tuple[int, int], keepdims: bool, ord: Any) -> Var:
    """Norm of the matrices whose rows and columns are indexed by two axes."""
    if x.ndim < 2 or axes[0] == axes[1]:
        raise GraphError(f"norm: {x.spec} expected two distinct axes, got {axes}")
    if ord == "fro":
        return vector_norm(x, axes, keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        raise GraphError(
            f"norm of matrices: ord {ord!r}; expected 'fro', 1, -1, inf or -inf: norms by singular "
            "values are not supported"
        )
    along = axes if abs(ord) == 1 else axes[::-1]
    sums = reduce.sum(absolute(x), along[0], keepdims=True)
    result = (reduce.max if ord > 0 else reduce.min)(sums, along[1], keepdims=True)
    kept = tuple(extent for axis, extent in enumerate(result.shape) if axis not in axes)
    return result if keepdims else reshape(result, kept)
