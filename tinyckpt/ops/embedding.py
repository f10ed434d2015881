"""Embedding lookup: gather table rows by integer ids; the adjoint is a deterministic scatter-add.

The related operators differ in their indices: ``x[ids]`` and ``take`` count negative indices from
the end, as NumPy does; ``take_along_axis`` (gather, in other libraries) has one index array for
every line of an array; ``embedding`` rejects an id outside the table. The adjoint of all is one
primitive, ``take_vjp``: rows are added into zeros of the table's shape, sorted by index first, so
that the sum is bitwise reproducible.
"""

from __future__ import annotations

from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive, zero
from tinyckpt.core.tracing import Var, apply, as_var
from tinyckpt.ops import kernels_indexing as kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.casting import as_float32_if_bfloat16, astype
from tinyckpt.ops.eager import eager
from tinyckpt.ops.indexing import TAKE_VJP, contiguous
from tinyckpt.ops.shape import reshape


def infer_embedding(table: Spec, ids: Spec) -> tuple[Spec, ...]:
    infer.require_integers(ids)
    if not table.shape or (table.shape[0] == 0 and ids.size):
        raise GraphError(f"the table is {table}; expected at least one row, shape (rows, ...)")
    return (Spec((*ids.shape, *table.shape[1:]), table.dtype),)


def vjp_table(ct: Any, ins: Any, outs: Any) -> Var:
    table, ids = ins
    rows = reshape(as_float32_if_bfloat16(ct[0]), (ids.size, *table.shape[1:]))
    return apply(
        TAKE_VJP, rows, reshape(ids, (ids.size,)), shape=table.shape, axis=0, most=ids.size
    )


EMBEDDING = Primitive(
    "embedding",
    kernels.embedding,
    infer_embedding,
    contiguous=True,
    vjp=(vjp_table, zero),
    takes_bfloat16=True,
)


@eager
def embedding(table: Any, ids: Any) -> Var:
    """Look up the rows of a table by integer ids (gather).

    >>> import numpy as np, tinyckpt as tc
    >>> table, ids = np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([1, 0, 1])
    >>> tc.grad(lambda table: tc.sum(tc.embedding(table, ids)))(table)
    array([[1., 1.],
           [2., 2.]])

    Args:
        table: shape (rows, ...).
        ids: integers of any shape, each from 0 to rows - 1; one out of range stops the run with an
            error that gives the id, its position and the valid range.

    Returns:
        The shape of ids, then that of a row; the dtype of the table.

    Raises:
        GraphError: if the ids are not integers, or the table has no rows.
    """
    ids = as_var(ids)
    infer.require_integers(ids.spec)
    return apply(EMBEDDING, contiguous(as_var(table)), astype(ids, "int64"))
