"""Picking elements by arrays of integers, and the integers that say where elements are.

Everything here comes down to one primitive: ``take`` along one axis by a flat array of places. An
index of several arrays becomes the place in the flattened axes; the adjoint, ``take_vjp``, adds up
what was taken from the same place, and is linear, so that its own adjoint is ``take`` again.

Places that are known when the graph is built are checked then; those that are data are checked by
NumPy when they are used. CuPy wraps around what is out of range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import Spec
from tinyckpt.core.primitive import Primitive, active_builder, apply, apply_shared, as_var, zero
from tinyckpt.ops import infer
from tinyckpt.ops import kernels_indexing as kernels
from tinyckpt.ops.casting import astype, widened
from tinyckpt.ops.shape import CONTIGUOUS, index, reshape, transpose

if TYPE_CHECKING:
    from tinyckpt.core.tracing import Var

BASIC = (int, slice, type(None), type(...))
Places = Any  # integers: an array, a list, a number, or a Var

# The shape rules ---------------------------------------------------------------------------------


def infer_take(x: Spec, indices: Spec, axis: int, most: int) -> tuple[Spec, ...]:
    infer.require_integers(indices)
    return (Spec((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype),)


def infer_take_vjp(
    g: Spec, indices: Spec, shape: tuple[int, ...], axis: int, most: int
) -> tuple[Spec, ...]:
    return (Spec(shape, g.dtype),)


def infer_flat_index(
    *indices: Spec, extents: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[Spec, ...]:
    infer.require_integers(*indices)
    return (Spec(shape, "int64"),)


def infer_place(x: Spec, axis: int) -> tuple[Spec, ...]:
    if x.shape[axis] == 0:
        raise GraphError(f"{x} has no elements along axis {axis} to find one among")
    return (Spec((*x.shape[:axis], *x.shape[axis + 1 :]), "int64"),)


def infer_argsort(x: Spec, axis: int) -> tuple[Spec, ...]:
    return (Spec(x.shape, "int64"),)


def take_vjp_workspace(inputs: Any, outputs: Any, shape: Any, axis: int, most: int) -> int:
    """Return the bytes that are held if hardly a place occurs twice; otherwise they are fewer.

    What is added up, in order, and either the sums, where each begins and its place, 8 bytes each;
    or, before that, all places, where each sum begins, and its place.
    """
    g, indices = inputs
    count, nbytes = indices.size, int(g.nbytes)
    return 0 if most <= 1 else nbytes + max(nbytes + 16 * count, 24 * count)


def lines_workspace(inputs: Any, outputs: Any, axis: int) -> int:
    """Return the bytes of the copy in which NumPy lays the lines along an axis side by side."""
    return 0 if axis == len(inputs[0].shape) - 1 else int(inputs[0].nbytes)


# The facts ---------------------------------------------------------------------------------------

# ``most`` is how many of the indices may be equal.
TAKE = Primitive(
    "take", kernels.take, infer_take, contiguous=True,
    vjp=(
        lambda ct, ins, outs, axis, most: apply(
            TAKE_VJP, widened(ct[0]), ins[1], shape=ins[0].shape, axis=axis, most=most
        ),
        zero,
    ),
    takes_bfloat16=True,
)  # fmt: skip
TAKE_VJP: Primitive = Primitive(
    "take_vjp", kernels.take_vjp, infer_take_vjp, contiguous=True,
    vjp=(
        lambda ct, ins, outs, shape, axis, most: taken(ct[0], ins[1], axis, most),
        zero,
    ),
    flops=lambda inputs, outputs, **attrs: inputs[0].size,
    workspace=take_vjp_workspace,
)  # fmt: skip
FLAT_INDEX = Primitive(
    "flat_index", kernels.flat_index, infer_flat_index, contiguous=True,
    # The contribution of one array, and the places 0, 1, ... that it picks from.
    workspace=lambda inputs, outputs, extents, shape: (
        8 * max(spec.size + extent for spec, extent in zip(inputs, extents, strict=True))
    ),
)  # fmt: skip
ARGMAX = Primitive("argmax", kernels.argmax, infer_place, workspace=lines_workspace)
ARGMIN = Primitive("argmin", kernels.argmin, infer_place, workspace=lines_workspace)
ARGSORT = Primitive("argsort", kernels.argsort, infer_argsort)

# Places ------------------------------------------------------------------------------------------


def is_places(part: Any) -> bool:
    """Whether one part of an index is an array, a list or a Var, and no basic index."""
    return isinstance(part, np.ndarray | list) or hasattr(part, "node")


def checked_places(places: Places, extent: int, where: str) -> Any:
    """Return places as an array that counts from 0, or as a Var of int64.

    Raises:
        GraphError: if they are no integers, or known to be out of range.
    """
    if hasattr(places, "node"):
        variable = as_var(places)
        if variable.dtype == np.bool_:
            raise masked(variable.spec)
        infer.require_integers(variable.spec)
        return astype(variable, "int64")
    array = np.asarray(places)
    if array.dtype == np.bool_:
        raise masked(Spec(array.shape, array.dtype))
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise GraphError(f"{where}: an index of dtype {array.dtype}; give integers")
    outside = array[(array < -extent) | (array >= extent)]
    if outside.size:
        raise GraphError(
            f"{where}: index {outside.flat[0]} is out of range; legal are {-extent} to {extent - 1}"
            if extent
            else f"{where}: index {outside.flat[0]} into an axis without elements"
        )
    array = array.astype(np.int64)  # a uint8 may not hold the extent
    return np.where(array < 0, array + extent, array)


def masked(mask: Spec) -> GraphError:
    """Return the error for an index of booleans."""
    return GraphError(
        f"an index of booleans, {mask}: how many elements it picks, and so the result's shape, is "
        "not known before it is computed; use tc.where(mask, x, other), or multiply by the mask"
    )


def taken(x: Var, places: Any, axis: int, most: int | None = None) -> Var:
    """Return what stands at places along an axis; the places' axes stand where that axis stood."""
    known = isinstance(places, np.ndarray)
    if most is None:
        most = repetitions(places) if known else math.prod(places.shape)
    flat = as_var(places.ravel()) if known else reshape(places, -1)
    result = apply(TAKE, contiguous(x), flat, axis=axis, most=most)
    return reshape(result, (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]))


def contiguous(x: Var) -> Var:
    """Return the array C-contiguous: where NumPy would make a copy unseen, one that is seen."""
    return x if active_builder("take").is_contiguous(x) else apply(CONTIGUOUS, x)


def contiguous_once(x: Var) -> Var:
    """Return the array C-contiguous, by one copy for all vjp rules of an operator."""
    if active_builder("contiguous").is_contiguous(x):
        return x
    return apply_shared(CONTIGUOUS, x)[0]


def repetitions(places: Any) -> int:
    """Return how often the most frequent place occurs."""
    return int(np.bincount(places.ravel()).max()) if places.size else 0


# The functions -----------------------------------------------------------------------------------


def getitem(x: Var, key: Any) -> Var:
    """Return ``x[key]``: a view for integers, slices, None and Ellipsis; a copy for arrays.

    Arrays of integers, lists and integer Vars pick elements as in NumPy: they broadcast, and their
    axes stand where they stood if they stand together, in front otherwise. A place that is picked
    twice gets both cotangents.
    """
    parts = key if isinstance(key, tuple) else (key,)
    if all(type(part) in BASIC for part in parts) or not any(map(is_places, parts)):
        return index(x, key)
    x = as_var(x)
    counts = sum(part is not None and part is not Ellipsis for part in parts)
    if counts > x.ndim:
        raise GraphError(f"{counts} indices for {x.spec}, which has {x.ndim} axes")
    if not any(part is Ellipsis for part in parts):
        parts = (*parts, Ellipsis)
    # What is basic comes first, as a view; it leaves one axis for every array.
    basic = tuple(slice(None) if is_places(part) else part for part in parts)
    whole = all(part is Ellipsis or part == slice(None) for part in basic)
    view = x if whole else index(x, basic)
    positions, arrays, axis = [], [], 0
    for part in parts:
        if part is Ellipsis:
            axis += x.ndim - counts
        elif is_places(part):
            positions.append(axis)
            arrays.append(checked_places(part, view.shape[axis], f"index of {x.spec}"))
            axis += 1
        elif not isinstance(part, int | np.integer):
            axis += 1
    result = picked(view, arrays, positions)
    # By NumPy's rule integers count as arrays here: what is not side by side goes to the front.
    advanced = [n for n, part in enumerate(parts) if is_places(part) or is_number(part)]
    together = advanced == list(range(advanced[0], advanced[-1] + 1))
    ndim = len(broadcast(arrays))
    target = positions[0] if together else 0
    adjacent = positions == list(range(positions[0], positions[-1] + 1))
    return moved(result, positions[0] if adjacent else 0, target, ndim)


def is_number(part: Any) -> bool:
    """Whether one part of an index is an integer."""
    return isinstance(part, int | np.integer)


def broadcast(arrays: Sequence[Any]) -> tuple[int, ...]:
    """Return the shape that index arrays have together."""
    return infer.broadcast_shape(*(Spec(array.shape) for array in arrays))


def moved(x: Var, start: int, target: int, count: int) -> Var:
    """Return ``x`` with ``count`` axes that begin at ``start`` moved to begin at ``target``."""
    if start == target:
        return x
    rest = [axis for axis in range(x.ndim) if not start <= axis < start + count]
    return transpose(x, (*rest[:target], *range(start, start + count), *rest[target:]))


def picked(x: Var, arrays: Sequence[Any], axes: Sequence[int], most: int | None = None) -> Var:
    """Return the elements at places along several axes.

    The places' axes stand where the first of the axes stood if these are side by side, else first.
    """
    if len(arrays) == 1:
        return taken(x, arrays[0], axes[0], most)
    first, count = axes[0], len(axes)
    if list(axes) != list(range(first, first + count)):
        x = transpose(x, (*axes, *(axis for axis in range(x.ndim) if axis not in axes)))
        first = 0
    extents = x.shape[first : first + count]
    merged = reshape(x, (*x.shape[:first], math.prod(extents), *x.shape[first + count :]))
    return taken(merged, flat_index(arrays, extents), first, most)


def flat_index(arrays: Sequence[Any], extents: tuple[int, ...]) -> Any:
    """Return the places in an array of these extents, flattened; known where all arrays are."""
    shape = broadcast(arrays)
    if all(isinstance(array, np.ndarray) for array in arrays):
        flat = np.zeros(shape, np.int64)
        for array, extent in zip(arrays, extents, strict=True):
            flat = flat * extent + array
        return flat
    return apply(FLAT_INDEX, *arrays, extents=extents, shape=shape)


def take(x: Var, indices: Places, axis: int | None = None) -> Var:
    """Return what stands at ``indices`` along an axis; in the flattened array without ``axis``.

    Negative indices count from the end. What is taken twice gets both cotangents.
    """
    x = as_var(x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    axis = infer.checked_axis(axis, x.ndim)
    places = checked_places(indices, x.shape[axis], f"take from {x.spec}")
    return taken(x, places, axis)


def take_along_axis(x: Var, indices: Places, axis: int | None = -1) -> Var:
    """Return what stands at ``indices`` along an axis, which have as many axes as ``x``.

    The other axes broadcast. Without ``axis``, from the flattened array.
    """
    x = as_var(x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    axis = infer.checked_axis(axis, x.ndim)
    places = checked_places(indices, x.shape[axis], f"take_along_axis of {x.spec}")
    if len(places.shape) != x.ndim:
        raise GraphError(
            f"take_along_axis: {x.spec} and indices of shape {places.shape} must have as many axes"
        )
    return along_axis(x, places, axis)


def along_axis(x: Var, places: Any, axis: int, most: int | None = None) -> Var:
    """Return what stands at places along an axis, one array for every line along it."""
    lines: list[Any] = [
        np.arange(extent).reshape([-1 if other == own else 1 for other in range(x.ndim)])
        for own, extent in enumerate(x.shape)
    ]
    lines[axis] = places
    return picked(x, lines, range(x.ndim), most)


def argmax(x: Var, axis: int | None = None, keepdims: bool = False) -> Var:
    """Return where the first maximum along an axis is; an integer, without a derivative."""
    return place(ARGMAX, x, axis, keepdims)


def argmin(x: Var, axis: int | None = None, keepdims: bool = False) -> Var:
    """Return where the first minimum along an axis is; an integer, without a derivative."""
    return place(ARGMIN, x, axis, keepdims)


def place(primitive: Primitive, x: Var, axis: int | None, keepdims: bool) -> Var:
    """Return the place along an axis, or in the flattened array."""
    x = as_var(x)
    whole = (1,) * x.ndim
    if axis is None:
        result = apply(primitive, reshape(x, -1), axis=0)
        return reshape(result, whole) if keepdims else result
    axis = infer.checked_axis(axis, x.ndim)
    result = apply(primitive, contiguous(x) if axis == x.ndim - 1 else x, axis=axis)
    return reshape(result, (*x.shape[:axis], 1, *x.shape[axis + 1 :])) if keepdims else result


def argsort(x: Var, axis: int | None = -1) -> Var:
    """Return the places in ascending order along an axis, equals in their order; integers."""
    x = as_var(x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    return apply(ARGSORT, x, axis=infer.checked_axis(axis, x.ndim))


def sort(x: Var, axis: int | None = -1) -> Var:
    """Return ``x`` in ascending order along an axis; each element keeps its own cotangent."""
    x = as_var(x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    axis = infer.checked_axis(axis, x.ndim)
    return along_axis(x, argsort(x, axis), axis, most=1)  # each place once
