"""Advanced (integer-array) indexing, gather and scatter-add, sort, argsort, argmax.

All lookups reduce to one primitive: ``take`` (gather) along one axis by a flat array of indices. An
index of several arrays becomes one index into the flattened axes; the adjoint, ``take_vjp``
(scatter-add), sums the cotangents of equal indices. It is linear, and its own adjoint is ``take``.

Indices known when the graph is built are checked then; indices that are data are checked by NumPy
when they are used. CuPy wraps indices that are out of range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive, zero
from tinyckpt.core.tracing import Var, apply, as_var
from tinyckpt.ops import kernels_indexing as kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.casting import as_float32_if_bfloat16, astype
from tinyckpt.ops.eager import eager
from tinyckpt.ops.shape import CONTIGUOUS, flat_or_along, index, is_contiguous, reshape, transpose
from tinyckpt.ops.shared_adjoints import apply_shared

BASIC = (int, slice, type(None), type(...))
Indices = Any  # integers: an array, a list, a number, or a Var

# Shape inference ----------------------------------------------------------------------------------


def infer_take(x: Spec, indices: Spec, axis: int, most: int) -> tuple[Spec, ...]:
    infer.require_integers(indices)
    return (Spec((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype),)


def infer_flat_index(
    *indices: Spec, extents: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[Spec, ...]:
    infer.require_integers(*indices)
    return (Spec(shape, "int64"),)


def infer_arg_reduce(x: Spec, axis: int) -> tuple[Spec, ...]:
    if x.shape[axis] == 0:
        raise GraphError(f"{x} has no elements along axis {axis}")
    return (Spec((*x.shape[:axis], *x.shape[axis + 1 :]), "int64"),)


def take_vjp_workspace(inputs: Any, outputs: Any, shape: Any, axis: int, most: int) -> int:
    """Return the workspace of ``take_vjp`` in bytes when nearly all indices differ, the worst case.

    The cotangents in sorted order, and either the sums, the start and the index of each run, 8
    bytes each; or, before that, all indices, and the start and index of each run.
    """
    g, indices = inputs
    count, nbytes = indices.size, int(g.nbytes)
    return 0 if most <= 1 else nbytes + max(nbytes + 16 * count, 24 * count)


def lines_workspace(inputs: Any, outputs: Any, axis: int) -> int:
    """Return the bytes of NumPy's transposed copy, with the lines along an axis contiguous."""
    return 0 if axis == len(inputs[0].shape) - 1 else int(inputs[0].nbytes)


# The primitives -----------------------------------------------------------------------------------

# ``most`` is an upper bound on the multiplicity of an index.
TAKE = Primitive(
    "take", kernels.take, infer_take, contiguous=True,
    vjp=(
        lambda ct, ins, outs, axis, most: apply(
            TAKE_VJP, as_float32_if_bfloat16(ct[0]), ins[1],
            shape=ins[0].shape, axis=axis, most=most,
        ),
        zero,
    ),
    takes_bfloat16=True,
)  # fmt: skip
TAKE_VJP: Primitive = Primitive(
    "take_vjp", kernels.take_vjp,
    lambda g, indices, shape, axis, most: (Spec(shape, g.dtype),), contiguous=True,
    vjp=(
        lambda ct, ins, outs, shape, axis, most: gather(ct[0], ins[1], axis, most),
        zero,
    ),
    flops=lambda inputs, outputs, **attrs: inputs[0].size,
    workspace=take_vjp_workspace,
)  # fmt: skip
FLAT_INDEX = Primitive(
    "flat_index", kernels.flat_index, infer_flat_index, contiguous=True,
    # One array's contribution, and the range 0, 1, ... that it is gathered from.
    workspace=lambda inputs, outputs, extents, shape: (
        8 * max(spec.size + extent for spec, extent in zip(inputs, extents, strict=True))
    ),
)  # fmt: skip
ARGMAX = Primitive("argmax", kernels.argmax, infer_arg_reduce, workspace=lines_workspace)
ARGMIN = Primitive("argmin", kernels.argmin, infer_arg_reduce, workspace=lines_workspace)
ARGSORT = Primitive("argsort", kernels.argsort, lambda x, axis: (Spec(x.shape, "int64"),))

# Indices ------------------------------------------------------------------------------------------


def is_index_array(part: Any) -> bool:
    """Whether one part of an index is an array, a list or a Var (advanced), not a basic index."""
    return isinstance(part, np.ndarray | list) or hasattr(part, "node")


def checked_indices(indices: Indices, extent: int, where: str) -> Any:
    """Return indices as a nonnegative array, or as a Var of int64.

    Raises:
        GraphError: if they are not integers, or known to be out of range.
    """
    if hasattr(indices, "node"):
        variable = as_var(indices)
        if variable.dtype == np.bool_:
            raise boolean_index_error(variable.spec)
        infer.require_integers(variable.spec)
        return astype(variable, "int64")
    array = np.asarray(indices)
    if array.dtype == np.bool_:
        raise boolean_index_error(Spec(array.shape, array.dtype))
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise GraphError(f"{where}: an index of dtype {array.dtype}; expected integers")
    outside = array[(array < -extent) | (array >= extent)]
    if outside.size:
        raise GraphError(
            f"{where}: index {outside.flat[0]} is out of range; expected {-extent} to {extent - 1}"
            if extent
            else f"{where}: index {outside.flat[0]} into an empty axis"
        )
    array = array.astype(np.int64)  # the extent may overflow a uint8
    return np.where(array < 0, array + extent, array)


def boolean_index_error(mask: Spec) -> GraphError:
    """Return the error for a boolean index."""
    return GraphError(
        f"boolean index {mask}: the shape of the result depends on the data, and is unknown while "
        "tracing; use tc.where(mask, x, other), or multiply by the mask"
    )


def gather(x: Var, indices: Any, axis: int, most: int | None = None) -> Var:
    """Gather the elements at indices along an axis; the indices' axes replace that axis."""
    known = isinstance(indices, np.ndarray)
    if most is None:
        most = max_multiplicity(indices) if known else math.prod(indices.shape)
    flat = as_var(indices.ravel()) if known else reshape(indices, -1)
    result = apply(TAKE, contiguous(x), flat, axis=axis, most=most)
    return reshape(result, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def contiguous(x: Var) -> Var:
    """Return the array C-contiguous: NumPy's implicit copy, made an explicit operator."""
    return x if is_contiguous(x) else apply(CONTIGUOUS, x)


def contiguous_once(x: Var) -> Var:
    """Return the array C-contiguous, by one copy shared by all vjp rules of an operator."""
    if is_contiguous(x):
        return x
    return apply_shared(CONTIGUOUS, x)[0]


def max_multiplicity(indices: Any) -> int:
    """Return the number of occurrences of the most frequent index."""
    return int(np.bincount(indices.ravel()).max()) if indices.size else 0


# The functions ------------------------------------------------------------------------------------


def getitem(x: Var, key: Any) -> Var:
    """Index an array: a view for integers, slices, None and Ellipsis; a copy for arrays.

    Integer arrays, lists and integer Vars gather elements as in NumPy: they broadcast, and their
    axes replace theirs if these are adjacent, and come first otherwise. An element gathered twice
    gets both cotangents.
    """
    parts = key if isinstance(key, tuple) else (key,)
    if all(type(part) in BASIC for part in parts) or not any(map(is_index_array, parts)):
        return index(x, key)
    x = as_var(x)
    counts = sum(part is not None and part is not Ellipsis for part in parts)
    if counts > x.ndim:
        raise GraphError(f"{counts} indices for {x.spec}, which has {x.ndim} axes")
    if not any(part is Ellipsis for part in parts):
        parts = (*parts, Ellipsis)
    # Basic parts are applied first, as a view; each array keeps one axis.
    basic = tuple(slice(None) if is_index_array(part) else part for part in parts)
    whole = all(part is Ellipsis or part == slice(None) for part in basic)
    view = x if whole else index(x, basic)
    positions, arrays, axis = [], [], 0
    for part in parts:
        if part is Ellipsis:
            axis += x.ndim - counts
        elif is_index_array(part):
            positions.append(axis)
            arrays.append(checked_indices(part, view.shape[axis], f"index of {x.spec}"))
            axis += 1
        elif not isinstance(part, int | np.integer):
            axis += 1
    result = gather_along_axes(view, arrays, positions)
    # By NumPy's rule integers count as arrays here: axes that are not adjacent go to the front.
    advanced = [n for n, part in enumerate(parts) if is_index_array(part) or is_number(part)]
    together = advanced == list(range(advanced[0], advanced[-1] + 1))
    ndim = len(common_shape(arrays))
    target = positions[0] if together else 0
    adjacent = positions == list(range(positions[0], positions[-1] + 1))
    return move_adjacent_axes(result, positions[0] if adjacent else 0, target, ndim)


def is_number(part: Any) -> bool:
    """Whether one part of an index is an integer."""
    return isinstance(part, int | np.integer)


def common_shape(arrays: Sequence[Any]) -> tuple[int, ...]:
    """Return the common shape of index arrays."""
    return infer.broadcast_shape(*(Spec(array.shape) for array in arrays))


def move_adjacent_axes(x: Var, start: int, target: int, count: int) -> Var:
    """Move ``count`` axes that begin at ``start`` to begin at ``target``."""
    if start == target:
        return x
    rest = [axis for axis in range(x.ndim) if not start <= axis < start + count]
    return transpose(x, (*rest[:target], *range(start, start + count), *rest[target:]))


def gather_along_axes(
    x: Var, arrays: Sequence[Any], axes: Sequence[int], most: int | None = None
) -> Var:
    """Gather the elements at indices along several axes.

    The indices' axes replace the first of the axes if these are adjacent, and come first otherwise.
    """
    if len(arrays) == 1:
        return gather(x, arrays[0], axes[0], most)
    first, count = axes[0], len(axes)
    if list(axes) != list(range(first, first + count)):
        x = transpose(x, (*axes, *(axis for axis in range(x.ndim) if axis not in axes)))
        first = 0
    extents = x.shape[first : first + count]
    merged = reshape(x, (*x.shape[:first], math.prod(extents), *x.shape[first + count :]))
    return gather(merged, flat_index(arrays, extents), first, most)


def flat_index(arrays: Sequence[Any], extents: tuple[int, ...]) -> Any:
    """Ravel multi-dimensional indices into flat ones; a constant where all arrays are known."""
    shape = common_shape(arrays)
    if all(isinstance(array, np.ndarray) for array in arrays):
        flat = np.zeros(shape, np.int64)
        for array, extent in zip(arrays, extents, strict=True):
            flat = flat * extent + array
        return flat
    return apply(FLAT_INDEX, *arrays, extents=extents, shape=shape)


@eager
def take(x: Var, indices: Indices, axis: int | None = None) -> Var:
    """Gather the elements at ``indices`` along an axis; from the flattened array without ``axis``.

    Negative indices count from the end. An element taken twice gets both cotangents.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.grad(lambda x: tc.sum(tc.take(x, [0, 2, 2])))(np.array([1.0, 2.0, 3.0]))
    array([1., 0., 2.])
    """
    x, axis = flat_or_along(x, axis)
    checked = checked_indices(indices, x.shape[axis], f"take from {x.spec}")
    return gather(x, checked, axis)


@eager
def take_along_axis(x: Var, indices: Indices, axis: int | None = -1) -> Var:
    """Gather along an axis by an index array per line, with as many axes as ``x`` (torch.gather).

    The other axes broadcast. Without ``axis``, from the flattened array.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.take_along_axis)(np.array([[5, 6], [7, 8]]), np.array([[1], [0]]))
    array([[6],
           [7]])
    """
    x, axis = flat_or_along(x, axis)
    checked = checked_indices(indices, x.shape[axis], f"take_along_axis of {x.spec}")
    if len(checked.shape) != x.ndim:
        raise GraphError(
            f"take_along_axis: {x.spec} and indices of shape {checked.shape} must have equally "
            "many axes"
        )
    return gather_lines(x, checked, axis)


def gather_lines(x: Var, indices: Any, axis: int, most: int | None = None) -> Var:
    """Gather along an axis, with one index array for every line along it."""
    lines: list[Any] = [
        np.arange(extent).reshape([-1 if other == own else 1 for other in range(x.ndim)])
        for own, extent in enumerate(x.shape)
    ]
    lines[axis] = indices
    return gather_along_axes(x, lines, range(x.ndim), most)


@eager
def argmax(x: Var, axis: int | None = None, keepdims: bool = False) -> Var:
    """Index of the first maximum along an axis; an integer, without a derivative.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.argmax(x, 1))(np.array([[1, 3], [5, 2]]))
    array([1, 0])
    """
    return arg_reduce(ARGMAX, x, axis, keepdims)


@eager
def argmin(x: Var, axis: int | None = None, keepdims: bool = False) -> Var:
    """Index of the first minimum along an axis; an integer, without a derivative.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.argmin(x, 1))(np.array([[1, 3], [5, 2]]))
    array([0, 1])
    """
    return arg_reduce(ARGMIN, x, axis, keepdims)


def arg_reduce(primitive: Primitive, x: Var, axis: int | None, keepdims: bool) -> Var:
    """Apply argmax or argmin along an axis, or in the flattened array."""
    x = as_var(x)
    whole = (1,) * x.ndim
    if axis is None:
        result = apply(primitive, reshape(x, -1), axis=0)
        return reshape(result, whole) if keepdims else result
    axis = infer.checked_axis(axis, x.ndim)
    result = apply(primitive, contiguous(x) if axis == x.ndim - 1 else x, axis=axis)
    return reshape(result, (*x.shape[:axis], 1, *x.shape[axis + 1 :])) if keepdims else result


@eager
def argsort(x: Var, axis: int | None = -1) -> Var:
    """Indices that sort along an axis in ascending order, stable; integers.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.argsort)(np.array([3.0, 1.0, 2.0]))
    array([1, 2, 0])
    """
    x, axis = flat_or_along(x, axis)
    return apply(ARGSORT, x, axis=axis)


@eager
def sort(x: Var, axis: int | None = -1) -> Var:
    """Sort in ascending order along an axis; each element keeps its own cotangent.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.sort)(np.array([3.0, 1.0, 2.0]))
    array([1., 2., 3.])
    """
    x, axis = flat_or_along(x, axis)
    return gather_lines(x, argsort(x, axis), axis, most=1)  # each index once
