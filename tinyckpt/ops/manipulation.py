"""Array manipulation routines by NumPy's names: axes, order, tiling, padding, stacking, diagonals.

All but ``pad`` are composed of the views and joins of ``shape``, and cost the same: nothing for a
view, one copy where elements are repeated or arrays joined.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive
from tinyckpt.core.tracing import Var, apply, as_var
from tinyckpt.ops import kernels_indexing as kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise import where
from tinyckpt.ops.indexing import gather
from tinyckpt.ops.shape import (
    broadcast_to,
    concatenate,
    expand_dims,
    extents_of,
    flat_or_along,
    index,
    reshape,
    split,
    transpose,
)

# Modes of pad other than "constant": np.pad of the indices says which element goes where.
PAD_MODES = ("edge", "reflect", "symmetric", "wrap")
MOST_PARTS = 10**6  # outputs of one operator: adding as many to a graph takes half a minute


PAD = Primitive(
    "pad", kernels.pad, lambda x, shape, key, value: (Spec(shape, x.dtype),), contiguous=True,
    vjp=(lambda ct, ins, outs, shape, key, value: index(ct[0], key),),
)  # fmt: skip

# Axes ---------------------------------------------------------------------------------------------


@eager
def ravel(x: Var) -> Var:
    """Flatten ``x`` to one axis, in C order.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.ravel)(np.arange(4).reshape(2, 2))
    array([0, 1, 2, 3])
    """
    return reshape(x, -1)


@eager
def squeeze(x: Var, axis: int | Sequence[int] | None = None) -> Var:
    """Remove axes of length 1: all of them, or those given.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.squeeze)(np.ones((1, 2, 1))).shape
    (2,)
    """
    x = as_var(x)
    if axis is None:
        return reshape(x, tuple(extent for extent in x.shape if extent != 1))
    axes = infer.checked_axes(axis, x.ndim)
    longer = [position for position in axes if x.shape[position] != 1]
    if longer:
        raise GraphError(f"squeeze: axis {longer[0]} of {x.spec} is not of length 1")
    return reshape(x, tuple(n for position, n in enumerate(x.shape) if position not in axes))


@eager
def swapaxes(x: Var, axis1: int, axis2: int) -> Var:
    """Exchange two axes; a view.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.swapaxes(x, 0, 2))(np.ones((2, 3, 4))).shape
    (4, 3, 2)
    """
    x = as_var(x)
    first, second = infer.checked_axis(axis1, x.ndim), infer.checked_axis(axis2, x.ndim)
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return transpose(x, order)


@eager
def matrix_transpose(x: Var) -> Var:
    """Transpose the matrices in the last two axes; a view.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.matrix_transpose)(np.ones((5, 2, 3))).shape
    (5, 3, 2)
    """
    return swapaxes(require_matrix(x), -1, -2)


@eager
def moveaxis(x: Var, source: int | Sequence[int], destination: int | Sequence[int]) -> Var:
    """Move axes to other positions; the others keep their order; a view.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.moveaxis(x, 0, -1))(np.ones((2, 3, 4))).shape
    (3, 4, 2)
    """
    x = as_var(x)
    sources = [infer.checked_axis(axis, x.ndim) for axis in extents_of(source)]
    targets = [infer.checked_axis(axis, x.ndim) for axis in extents_of(destination)]
    if len(sources) != len(targets) or any(
        len(set(axes)) < len(axes) for axes in (sources, targets)
    ):
        raise GraphError(
            f"moveaxis: source {source!r} and destination {destination!r} must have the same "
            "number of distinct axes"
        )
    order = [axis for axis in range(x.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return transpose(x, order)


@eager
def atleast_1d(x: Var) -> Var:
    """Return ``x`` with at least one axis.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.atleast_1d)(np.array(3.0)).shape
    (1,)
    """
    x = as_var(x)
    return reshape(x, (1,)) if x.ndim == 0 else x


@eager
def atleast_2d(x: Var) -> Var:
    """Return ``x`` with at least two axes; new ones are prepended.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.atleast_2d)(np.ones(3)).shape
    (1, 3)
    """
    x = atleast_1d(x)
    return expand_dims(x, 0) if x.ndim == 1 else x


@eager
def atleast_3d(x: Var) -> Var:
    """Return ``x`` with at least three axes; a matrix gets its new one at the end.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.atleast_3d)(np.ones((2, 3))).shape
    (2, 3, 1)
    """
    x = atleast_2d(x)
    return expand_dims(x, 2) if x.ndim == 2 else x


@eager
def broadcast_arrays(*arrays: Any) -> tuple[Var, ...]:
    """Broadcast arrays against each other, as views of their common shape.

    >>> import numpy as np, tinyckpt as tc
    >>> [y.shape for y in tc.jit(tc.broadcast_arrays)(np.ones((2, 1)), np.ones(3))]
    [(2, 3), (2, 3)]
    """
    variables = [as_var(array) for array in arrays]
    shape = infer.broadcast_shape(*(variable.spec for variable in variables))
    return tuple(broadcast_to(variable, shape) for variable in variables)


# Order --------------------------------------------------------------------------------------------


@eager
def flip(x: Var, axis: int | Sequence[int] | None = None) -> Var:
    """Reverse the order of elements along all axes, or along those given; a view.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.flip)(np.arange(3))
    array([2, 1, 0])
    """
    x = as_var(x)
    axes = infer.checked_axes(axis, x.ndim)
    return index(x, tuple(slice(None, None, -1) if a in axes else slice(None)
                          for a in range(x.ndim)))  # fmt: skip


@eager
def fliplr(x: Var) -> Var:
    """Reverse the second axis; a view.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.fliplr)(np.array([[1, 2], [3, 4]]))
    array([[2, 1],
           [4, 3]])
    """
    return flip(x, 1)


@eager
def flipud(x: Var) -> Var:
    """Reverse the first axis; a view.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.flipud)(np.array([[1, 2], [3, 4]]))
    array([[3, 4],
           [1, 2]])
    """
    return flip(x, 0)


@eager
def rot90(x: Var, k: int = 1, axes: Sequence[int] = (0, 1)) -> Var:
    """Rotate by ``k`` right angles in the plane of two axes; a view.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.rot90)(np.array([[1, 2], [3, 4]]))
    array([[2, 4],
           [1, 3]])
    """
    x = as_var(x)
    first, second = (infer.checked_axis(axis, x.ndim) for axis in axes)
    if first == second:
        raise GraphError(f"rot90: axes {axes!r} must be two axes")
    if k % 4 == 0:
        return index(x, ...)
    if k % 4 == 2:
        return flip(x, (first, second))
    return (
        flip(swapaxes(x, first, second), first)
        if k % 4 == 1
        else swapaxes(flip(x, first), first, second)
    )


@eager
def roll(x: Var, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Var:
    """Shift elements cyclically along an axis or several; flattened without an axis.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.roll(x, 1))(np.arange(4))
    array([3, 0, 1, 2])
    """
    x = as_var(x)
    if axis is None:
        return reshape(roll(reshape(x, -1), shift, 0), x.shape)
    pairs = np.broadcast(extents_of(shift), extents_of(axis))
    for step, position in pairs:
        position = infer.checked_axis(int(position), x.ndim)
        extent = x.shape[position]
        cut = -int(step) % extent if extent else 0
        if cut:
            front, back = split(x, [cut], position)
            x = concatenate([back, front], position)
    return x


# Repetition and padding ---------------------------------------------------------------------------


@eager
def tile(x: Var, reps: int | Sequence[int]) -> Var:
    """Repeat an array ``reps`` times along every axis.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.tile(x, 2))(np.array([1, 2]))
    array([1, 2, 1, 2])
    """
    x = as_var(x)
    counts = extents_of(reps)
    if any(count < 0 for count in counts):
        raise GraphError(f"tile: reps {reps!r} must be 0 or more")
    shape = (1,) * (len(counts) - x.ndim) + x.shape
    counts = (1,) * (x.ndim - len(counts)) + counts
    # Every axis gets a new one before it to broadcast along: no copy until both are merged.
    apart = [extent for pair in zip((1,) * len(shape), shape, strict=True) for extent in pair]
    wide = [extent for pair in zip(counts, shape, strict=True) for extent in pair]
    repeated = broadcast_to(reshape(x, apart), wide)
    return reshape(repeated, [a * b for a, b in zip(counts, shape, strict=True)])


@eager
def repeat(x: Var, repeats: Any, axis: int | None = None) -> Var:
    """Repeat each element ``repeats`` times in a row, along an axis or flattened.

    ``repeats`` is a number, or one for each element of the axis.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.repeat(x, 2))(np.array([1, 2]))
    array([1, 1, 2, 2])
    """
    x, position = flat_or_along(x, axis)
    extent = x.shape[position]
    counts = extents_of(repeats)
    if any(count < 0 for count in counts) or len(counts) not in (1, extent):
        raise GraphError(
            f"repeat: repeats {repeats!r} along axis {position} of {x.spec}: give one number of 0 "
            f"or more, or {extent}"
        )
    if len(counts) != 1:
        return gather(x, np.repeat(np.arange(extent), np.asarray(counts, int)), position)
    shape = (*x.shape[: position + 1], counts[0], *x.shape[position + 1 :])
    wide = broadcast_to(expand_dims(x, position + 1), shape)
    return reshape(wide, (*x.shape[:position], extent * counts[0], *x.shape[position + 1 :]))


@eager
def pad(x: Var, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Var:
    """Pad an array before and after its elements along every axis.

    Args:
        x: of any shape.
        pad_width: a number for all sides, a pair (before, after), or one pair for every axis.
        mode: "constant", or "edge", "reflect", "symmetric", "wrap", which repeat elements of ``x``.
        constant_values: the number for "constant".

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.pad(x, (1, 2)))(np.array([7, 8]))
    array([0, 7, 8, 0, 0])
    """
    x = as_var(x)
    try:
        widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2))
    except ValueError as error:
        raise GraphError(f"pad: pad_width {pad_width!r} for {x.ndim} axes: give a number, a pair, "
                         "or a pair for every axis") from error  # fmt: skip
    if widths.dtype.kind not in "iu" or (widths < 0).any():
        raise GraphError(f"pad: pad_width {pad_width!r} must be integers of 0 or more")
    pairs = [(int(before), int(after)) for before, after in widths]
    if mode in PAD_MODES:
        whole = x.spec
        for axis, (extent, pair) in enumerate(zip(x.shape, pairs, strict=True)):
            if any(pair):
                if not extent:
                    raise GraphError(f"pad: axis {axis} of {whole} has no elements for {mode!r}")
                x = gather(x, np.pad(np.arange(extent), pair, mode), axis)  # type: ignore[call-overload]
        return x
    if mode != "constant":
        raise GraphError(f"pad: mode {mode!r}; expected one of constant, {', '.join(PAD_MODES)}")
    if np.ndim(constant_values) or not isinstance(constant_values, int | float | np.number):
        raise GraphError(f"pad: constant_values {constant_values!r} must be one number")
    shape = tuple(before + n + after for n, (before, after) in zip(x.shape, pairs, strict=True))
    key = tuple(slice(before, before + n) for n, (before, _) in zip(x.shape, pairs, strict=True))
    value = x.dtype.type(constant_values).item()
    return apply(PAD, x, shape=shape, key=(*key, Ellipsis), value=value)


# Joining and splitting ----------------------------------------------------------------------------


@eager
def vstack(arrays: Sequence[Any]) -> Var:
    """Stack arrays vertically, along the first axis; an array with one axis is a row.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x, y: tc.vstack([x, y]))(np.array([1, 2]), np.array([3, 4]))
    array([[1, 2],
           [3, 4]])
    """
    return concatenate([atleast_2d(array) for array in arrays], 0)


@eager
def hstack(arrays: Sequence[Any]) -> Var:
    """Stack arrays horizontally: along the second axis, or the only one.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x, y: tc.hstack([x, y]))(np.array([1, 2]), np.array([3, 4]))
    array([1, 2, 3, 4])
    """
    variables = [atleast_1d(array) for array in arrays]
    return concatenate(variables, 0 if variables and variables[0].ndim == 1 else 1)


@eager
def dstack(arrays: Sequence[Any]) -> Var:
    """Stack arrays depthwise, along the third axis.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x, y: tc.dstack([x, y]))(np.ones((2, 3)), np.ones((2, 3))).shape
    (2, 3, 2)
    """
    return concatenate([atleast_3d(array) for array in arrays], 2)


@eager
def column_stack(arrays: Sequence[Any]) -> Var:
    """Stack vectors as the columns of a matrix.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x, y: tc.column_stack([x, y]))(np.array([1, 2]), np.array([3, 4]))
    array([[1, 3],
           [2, 4]])
    """
    variables = [as_var(array) for array in arrays]
    return concatenate([reshape(x, (-1, 1)) if x.ndim < 2 else x for x in variables], 1)


@eager
def array_split(x: Var, sections: int | Sequence[int], axis: int = 0) -> tuple[Var, ...]:
    """Split ``x`` along an axis into views that may differ by one in length.

    >>> import numpy as np, tinyckpt as tc
    >>> [part.shape for part in tc.jit(lambda x: tc.array_split(x, 3))(np.ones(7))]
    [(3,), (2,), (2,)]
    """
    x = as_var(x)
    extent = x.shape[infer.checked_axis(axis, x.ndim)]
    if np.ndim(sections) == 0:
        (count,) = extents_of(sections)
        if not 1 <= count <= MOST_PARTS:
            raise GraphError(f"array_split: {count:,} parts; give 1 to {MOST_PARTS:,}")
        lengths = [extent // count + (part < extent % count) for part in range(count)]
        sections = [int(edge) for edge in np.cumsum(lengths)[:-1]]
    return split(x, sections, axis)


@eager
def unstack(x: Var, axis: int = 0) -> tuple[Var, ...]:
    """Split ``x`` into the slices along an axis, each without that axis.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.unstack)(np.array([[1, 2], [3, 4]]))
    (array([1, 2]), array([3, 4]))
    """
    x = as_var(x)
    position = infer.checked_axis(axis, x.ndim)
    # One split, whose adjoint is one concatenation: each slice's adjoint would be as large as x.
    parts = split(x, range(1, x.shape[position]), position) if x.shape[position] else ()
    return tuple(index(part, (slice(None),) * position + (0,)) for part in parts)


# Diagonals ----------------------------------------------------------------------------------------


def require_matrix(x: Var) -> Var:
    """Return ``x``, which must have at least two axes."""
    x = as_var(x)
    if x.ndim < 2:
        raise GraphError(f"{x.spec} is not a matrix: expected at least two axes")
    return x


@eager
def tril(x: Var, k: int = 0) -> Var:
    """Lower triangle: ``x`` with zeros above the ``k``-th diagonal of its last two axes.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.tril)(np.array([[1, 2], [3, 4]]))
    array([[1, 0],
           [3, 4]])
    """
    x = require_matrix(x)
    rows, columns = x.shape[-2:]
    return where(np.tri(rows, columns, k, dtype=bool), x, 0)


@eager
def triu(x: Var, k: int = 0) -> Var:
    """Upper triangle: ``x`` with zeros below the ``k``-th diagonal of its last two axes.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.triu)(np.array([[1, 2], [3, 4]]))
    array([[1, 2],
           [0, 4]])
    """
    x = require_matrix(x)
    rows, columns = x.shape[-2:]
    return where(np.tri(rows, columns, k - 1, dtype=bool), 0, x)


@eager
def diagonal(x: Var, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Var:
    """Extract a diagonal of two axes as the last axis: a view if the array is C-contiguous.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.diagonal)(np.array([[1, 2], [3, 4]]))
    array([1, 4])
    """
    x = require_matrix(x)
    x = moveaxis(x, (axis1, axis2), (-2, -1))
    rows, columns = x.shape[-2:]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    flat = reshape(x, (*x.shape[:-2], math.prod(x.shape[-2:])))
    start = offset if offset >= 0 else -offset * columns
    stop = start + (length - 1) * (columns + 1) + 1 if length else start
    return index(flat, (..., slice(start, stop, columns + 1)))


@eager
def diag(x: Var, k: int = 0) -> Var:
    """Extract the ``k``-th diagonal of a matrix, or make a matrix with that diagonal from a vector.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.diag)(np.array([1, 2]))
    array([[1, 0],
           [0, 2]])
    """
    x = as_var(x)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise GraphError(f"diag: {x.spec} has {x.ndim} axes; give one or two")
    size = x.size + abs(k)
    column = pad(expand_dims(x, 1), ((max(-k, 0), max(k, 0)), (0, 0))) if k else expand_dims(x, 1)
    return where(np.eye(size, k=k, dtype=bool), broadcast_to(column, (size, size)), 0)
