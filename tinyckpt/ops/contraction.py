"""Tensor contraction (einsum, tensordot, dot, inner, outer, kron) by batched matrix product.

Axes carry labels, and the labels that the result lacks are summed over. Operands are brought into
the form (batch, rows, inner) and (batch, inner, columns), which costs nothing where each group is
one axis, and a copy where several axes are merged.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from string import ascii_letters
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.core.tracing import Var, as_var
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.casting import astype, promote_to_float
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise import multiply
from tinyckpt.ops.linalg import matmul, product
from tinyckpt.ops.manipulation import diagonal, moveaxis
from tinyckpt.ops.reduce import sum
from tinyckpt.ops.shape import extents_of, index, reshape, transpose

Labels = tuple[str, ...]
# Labels of an ellipsis's axes, numbered from the last: "...0" is the last axis.
ELLIPSIS = "..."


def contract(x: Var, y: Var, of_x: Labels, of_y: Labels, of_result: Labels) -> Var:
    """Tensor contraction: sum the products over the labels that the result lacks.

    No label occurs twice in one operand; each label of the result occurs in an operand.
    """
    # Labels of one operand alone that the result lacks are summed over first.
    x, of_x = sum_unneeded(x, of_x, {*of_y, *of_result})
    y, of_y = sum_unneeded(y, of_y, {*of_x, *of_result})
    batch = tuple(label for label in of_result if label in of_x and label in of_y)
    inner = tuple(label for label in of_x if label in of_y and label not in of_result)
    rows = tuple(label for label in of_x if label not in of_y)
    columns = tuple(label for label in of_y if label not in of_x)
    if not inner:
        # No contracted label: a broadcast product over the axes of the result.
        return multiply(expand_to_labels(x, of_x, of_result), expand_to_labels(y, of_y, of_result))
    left = merge_groups(x, of_x, (batch, rows, inner))
    right = merge_groups(y, of_y, (batch, inner, columns))
    extents = extents_by_label((x, of_x), (y, of_y))
    left, right = promote_to_float(np.matmul, left, right)
    z = product(left, right, False, False)
    z = reshape(z, [*z.shape[:-2], *(extents[label] for label in (*rows, *columns))])
    return permute_to_labels(z, (*batch, *rows, *columns), of_result)


def extents_by_label(*operands: tuple[Var, Labels]) -> dict[str, int]:
    """Return the extent of every label; axes that two operands share must agree."""
    extents: dict[str, int] = {}
    for x, labels in operands:
        for label, extent in zip(labels, x.shape, strict=True):
            known = extents.setdefault(label, extent)
            if label.startswith(ELLIPSIS) and 1 in (known, extent):
                extents[label] = max(known, extent)
            elif known != extent:
                raise GraphError(f"the axes {label!r} have {known} and {extent} elements")
    return extents


def sum_unneeded(x: Var, labels: Labels, wanted: set[str]) -> tuple[Var, Labels]:
    """Sum an operand over its unneeded labels; return it with the remaining labels."""
    axes = tuple(axis for axis, label in enumerate(labels) if label not in wanted)
    kept = tuple(label for label in labels if label in wanted)
    return (astype(sum(x, axes), x.dtype) if axes else x), kept


def expand_to_labels(x: Var, labels: Labels, target: Labels) -> Var:
    """Return a view with the axes of ``target``; axes that ``x`` lacks have length 1."""
    x = permute_to_labels(x, labels, tuple(label for label in target if label in labels))
    return index(x, tuple(slice(None) if label in labels else None for label in target))


def permute_to_labels(x: Var, labels: Labels, target: Labels) -> Var:
    """Return a view with its axes in the order of ``target``."""
    return x if labels == target else transpose(x, [labels.index(label) for label in target])


def merge_groups(x: Var, labels: Labels, groups: tuple[Labels, Labels, Labels]) -> Var:
    """Merge the axes of the second and third group into one axis each, after those of the first."""
    batch, second, third = groups
    x = permute_to_labels(x, labels, (*batch, *second, *third))
    shape = x.shape[: len(batch)]
    middle = x.shape[len(batch) : len(batch) + len(second)]
    last = x.shape[len(batch) + len(second) :]
    return reshape(x, (*shape, math.prod(middle), math.prod(last)))


# einsum -------------------------------------------------------------------------------------------


@eager
def einsum(subscripts: str, *operands: Any) -> Var:
    """Einstein summation: the sum of products that the subscripts describe, of one operand or two.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x, y: tc.einsum("bij,bjk->bik", x, y), tc.Spec((2, 3, 4)),
    ...                  tc.Spec((2, 4, 5)))
    >>> graph.data[graph.outputs[0]].spec
    Spec(shape=(2, 3, 5), dtype=dtype('float64'))

    Raises:
        GraphError: if the subscripts do not fit the operands, or there are three or more.
    """
    if not isinstance(subscripts, str):
        raise GraphError("einsum: begin with the subscripts as a string, as in 'ij,jk->ik'")
    variables = [as_var(operand) for operand in operands]
    if len(variables) not in (1, 2):
        raise GraphError(
            f"einsum: {len(variables)} operands; expected one or two: contract the others "
            "pairwise, small results first"
        )
    inputs, result = parse_subscripts(subscripts, variables)
    pairs = [take_diagonals(x, labels) for x, labels in zip(variables, inputs, strict=True)]
    extents_by_label(*pairs)
    x, of_x = pairs[0]
    if len(pairs) == 2:
        y, of_y = pairs[1]
        return contract(x, y, of_x, of_y, result)
    x, of_x = sum_unneeded(x, of_x, set(result))
    return permute_to_labels(x, of_x, result)


def parse_subscripts(subscripts: str, operands: Sequence[Var]) -> tuple[list[Labels], Labels]:
    """Parse the subscripts: the labels of the axes of every operand and of the result."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise GraphError(
            f"einsum: {subscripts!r} describes {len(terms)} operands, got {len(operands)}"
        )
    inputs = [
        axis_labels(subscripts, term, operand.ndim)
        for term, operand in zip(terms, operands, strict=True)
    ]
    hidden = max(len([a for a in labels if a.startswith(ELLIPSIS)]) for labels in inputs)
    if arrow:
        result = axis_labels(subscripts, right, len(right.replace(ELLIPSIS, "")) + hidden)
        missing = set(result) - {label for labels in inputs for label in labels}
        if missing or len(set(result)) < len(result):
            raise GraphError(
                f"einsum: {subscripts!r}: every label of the result must occur in an operand, "
                "and once in the result"
            )
        if hidden and ELLIPSIS not in right:
            raise GraphError(f"einsum: {subscripts!r}: the result must have the '...' too")
        return inputs, result
    # Without an arrow: the labels that occur once, in alphabetical order.
    letters = left.replace(",", "").replace(ELLIPSIS, "")
    once = sorted(label for label in set(letters) if letters.count(label) == 1)
    return inputs, (*ellipsis_labels(hidden), *once)


def ellipsis_labels(count: int) -> Labels:
    """Return the labels of an ellipsis of ``count`` axes, which align from the right."""
    return tuple(f"{ELLIPSIS}{position}" for position in reversed(range(count)))


def axis_labels(subscripts: str, term: str, ndim: int) -> Labels:
    """Return one label for each of ``ndim`` axes."""
    before, dots, after = term.partition(ELLIPSIS)
    letters = before + after
    if any(letter not in ascii_letters for letter in letters):
        raise GraphError(
            f"einsum: {subscripts!r}: labels are letters, operands are separated by ',' and the "
            "result by '->'"
        )
    hidden = ndim - len(letters)
    if hidden < 0 or (hidden and not dots):
        raise GraphError(
            f"einsum: {subscripts!r}: {term!r} describes {len(letters)} axes of {ndim}"
        )
    return (*before, *ellipsis_labels(hidden), *after)


def take_diagonals(x: Var, labels: Labels) -> tuple[Var, Labels]:
    """Replace axes with a repeated label by their diagonal."""
    while len(set(labels)) < len(labels):
        label = next(label for label in labels if labels.count(label) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        if x.shape[first] != x.shape[second]:
            raise GraphError(
                f"einsum: the axes {label!r} of {x.spec} have {x.shape[first]} and "
                f"{x.shape[second]} elements"
            )
        x = diagonal(x, 0, first, second)
        rest = [own for axis, own in enumerate(labels) if axis not in (first, second)]
        labels = (*rest, label)
    return x, labels


# The functions ------------------------------------------------------------------------------------


@eager
def tensordot(x: Any, y: Any, axes: Any = 2) -> Var:
    """Tensor contraction over axes of ``x`` and of ``y``.

    Args:
        x, y: floats.
        axes: how many, the last of ``x`` and the first of ``y``; or a pair, the axes of each.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x, y: tc.tensordot(x, y, 1))(np.ones((2, 3)), np.ones((3, 4))).shape
    (2, 4)
    """
    x, y = as_var(x), as_var(y)
    try:
        count = operator.index(axes)
        if not 0 <= count <= min(x.ndim, y.ndim):
            raise GraphError(f"tensordot: {count} axes of {x.spec} and {y.spec}")
        own, others = list(range(x.ndim - count, x.ndim)), list(range(count))
    except TypeError:
        first, second = axes
        own = [infer.checked_axis(axis, x.ndim) for axis in extents_of(first)]
        others = [infer.checked_axis(axis, y.ndim) for axis in extents_of(second)]
    if [x.shape[axis] for axis in own] != [y.shape[axis] for axis in others]:
        raise GraphError(f"tensordot: the axes {axes!r} of {x.spec} and {y.spec} do not fit")
    of_x = tuple(f"x{axis}" for axis in range(x.ndim))
    pairs = dict(zip(others, own, strict=True))
    of_y = tuple(f"x{pairs[a]}" if a in pairs else f"y{a}" for a in range(y.ndim))
    left = [label for axis, label in enumerate(of_x) if axis not in own]
    right = [label for axis, label in enumerate(of_y) if axis not in others]
    return contract(x, y, of_x, of_y, (*left, *right))


@eager
def dot(x: Any, y: Any) -> Var:
    """Dot product by NumPy's rules.

    For scalars, the product; for vectors, the inner product; for matrices, the matrix product; else
    the sum of products over the last axis of ``x`` and the last but one of ``y``.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.dot)(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array(11.)
    """
    x, y = as_var(x), as_var(y)
    if x.ndim == 0 or y.ndim == 0:
        return multiply(x, y)
    if x.ndim <= 2 and y.ndim <= 2:
        return matmul(x, y)
    return tensordot(x, y, ((-1,), (-1 if y.ndim == 1 else -2,)))


@eager
def inner(x: Any, y: Any) -> Var:
    """Inner product over the last axis of each.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.inner)(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0]))
    array([3., 7.])
    """
    x, y = as_var(x), as_var(y)
    return multiply(x, y) if x.ndim == 0 or y.ndim == 0 else tensordot(x, y, ((-1,), (-1,)))


@eager
def vdot(x: Any, y: Any) -> Var:
    """Dot product of the flattened arrays.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.vdot)(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array(11.)
    """
    return dot(reshape(x, -1), reshape(y, -1))


@eager
def vecdot(x: Any, y: Any, axis: int = -1) -> Var:
    """Dot product along one axis; the other axes broadcast.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.vecdot)(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0]))
    array([3., 7.])
    """
    x, y = moveaxis(as_var(x), axis, -1), moveaxis(as_var(y), axis, -1)
    if x.shape[-1] != y.shape[-1]:
        raise GraphError(f"vecdot: {x.spec} and {y.spec} differ in length along the axis")
    terms = multiply(x, y)
    return astype(sum(terms, -1), terms.dtype)


@eager
def matvec(x: Any, y: Any) -> Var:
    """Matrix-vector product; leading axes broadcast.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.matvec)(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0]))
    array([3., 7.])
    """
    x, y = as_var(x), as_var(y)
    if x.ndim < 2 or y.ndim < 1:
        raise GraphError(f"matvec: {x.spec} and {y.spec} are not a matrix (two axes) and a vector")
    return index(matmul(x, index(y, (..., None))), (..., 0))


@eager
def vecmat(x: Any, y: Any) -> Var:
    """Vector-matrix product; leading axes broadcast.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.vecmat)(np.array([1.0, 1.0]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([4., 6.])
    """
    x, y = as_var(x), as_var(y)
    if x.ndim < 1 or y.ndim < 2:
        raise GraphError(f"vecmat: {x.spec} and {y.spec} are not a vector and a matrix (two axes)")
    return index(matmul(index(x, (..., None, slice(None))), y), (..., 0, slice(None)))


@eager
def outer(x: Any, y: Any) -> Var:
    """Outer product of the flattened arrays, a matrix.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.outer)(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array([[3., 4.],
           [6., 8.]])
    """
    return multiply(index(reshape(x, -1), (slice(None), None)), reshape(y, -1))


@eager
def kron(x: Any, y: Any) -> Var:
    """Kronecker product: every element of ``x`` times all of ``y``, in its place.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.kron)(np.array([1, 10]), np.array([1, 2]))
    array([ 1,  2, 10, 20])
    """
    x, y = as_var(x), as_var(y)
    ndim = max(x.ndim, y.ndim)
    x = reshape(x, (1,) * (ndim - x.ndim) + x.shape)
    y = reshape(y, (1,) * (ndim - y.ndim) + y.shape)
    apart = multiply(index(x, (slice(None), None) * ndim), index(y, (None, slice(None)) * ndim))
    return reshape(apart, [a * b for a, b in zip(x.shape, y.shape, strict=True)])


def matrix_trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Var:
    """Sum of a diagonal of two axes, the trace.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(np.trace)(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array(5.)
    """
    return sum(diagonal(as_var(x), offset, axis1, axis2), -1)
