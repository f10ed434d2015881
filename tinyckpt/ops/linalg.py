"""Matrix products. The derivative of a product is a product of the same kind with a transposed
operand, so one primitive with two transposition flags is closed under differentiation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.errors import GraphError
from tinyckpt.graph import Spec
from tinyckpt.ops import infer, kernels
from tinyckpt.ops.primitive import Primitive, apply, as_var
from tinyckpt.ops.shape import reshape, unbroadcast

if TYPE_CHECKING:
    from tinyckpt.var import Var


def flipped(spec: Spec, transposed: bool) -> Spec:
    """Return the spec with its last two axes exchanged if ``transposed``."""
    *batch, rows, columns = spec.shape
    return Spec((*batch, columns, rows), spec.dtype) if transposed else spec


def infer_matmul(x: Spec, y: Spec, transpose_x: bool, transpose_y: bool) -> tuple[Spec, ...]:
    infer.require_float(x, y)
    left, right = flipped(x, transpose_x), flipped(y, transpose_y)
    if left.shape[-1] != right.shape[-2]:
        raise GraphError(
            f"{left} @ {right}: the last extent of the left, {left.shape[-1]}, must equal the "
            f"last but one of the right, {right.shape[-2]}"
        )
    batch = infer.broadcast_shape(Spec(left.shape[:-2]), Spec(right.shape[:-2]))
    shape = (*batch, left.shape[-2], right.shape[-1])
    return (Spec(shape, np.result_type(x.dtype, y.dtype)),)


def product(x: Var, y: Var, transpose_x: bool, transpose_y: bool) -> Var:
    """Return the matrix product over the last two axes, with operands transposed as flagged."""
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
    """Return one multiplication and one addition for every term of every inner product."""
    return 2 * int(outputs[0].size) * int(flipped(inputs[0], transpose_x).shape[-1])


def cast_bytes(inputs: Any, outputs: Any, **attrs: Any) -> int:
    """Return the bytes of the operands of another dtype: NumPy casts such a one as a whole."""
    dtype = outputs[0].dtype
    return sum(spec.size * int(dtype.itemsize) for spec in inputs if spec.dtype != dtype)


MATMUL = Primitive(
    "matmul", kernels.matmul, infer_matmul, vjp=(vjp_left, vjp_right),
    flops=matmul_flops, workspace=cast_bytes,
)  # fmt: skip


def matmul(x: Any, y: Any) -> Var:
    """Return the matrix product ``x @ y``, with NumPy's rules for vectors and batches.

    A batch of matrices times one matrix is a single product: ``x`` is reshaped to two axes, which
    costs no memory if it is C-contiguous, so that the weight's gradient needs no batch of partial
    gradients.
    """
    x, y = as_var(x), as_var(y)
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
