"""Views and data movement: reshape, transpose, broadcast, basic indexing, concatenate, split.

``reshape``, ``transpose``, ``broadcast_to``, ``index``, ``split`` and ``sum_vjp`` are views: their
outputs alias the input's memory, cost no bytes and keep that memory alive. ``reshape`` is a view
only of a C-contiguous array; any other is copied first, by ``contiguous``, an operator of its own.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.base.tree import Tree, map_leaves
from tinyckpt.core.primitive import Primitive, zero
from tinyckpt.core.tracing import Var, active_builder, apply, apply_all, as_var
from tinyckpt.ops import kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.eager import eager

# Shape inference ----------------------------------------------------------------------------------


def infer_reshape(x: Spec, shape: tuple[int, ...]) -> tuple[Spec, ...]:
    if math.prod(shape) != x.size:
        raise GraphError(f"{x} has {x.size} elements, the shape {shape} has {math.prod(shape)}")
    return (Spec(shape, x.dtype),)


def infer_transpose(x: Spec, axes: tuple[int, ...]) -> tuple[Spec, ...]:
    if sorted(axes) != list(range(len(x.shape))):
        raise GraphError(f"axes {axes} must be a permutation of 0 to {len(x.shape) - 1} for {x}")
    return (Spec(tuple(x.shape[axis] for axis in axes), x.dtype),)


def infer_broadcast_to(x: Spec, shape: tuple[int, ...]) -> tuple[Spec, ...]:
    if infer.broadcast_shape(x, Spec(shape)) != shape:
        raise GraphError(f"{x} does not broadcast to {shape}")
    return (Spec(shape, x.dtype),)


def infer_index(x: Spec, key: tuple[Any, ...]) -> tuple[Spec, ...]:
    # A zero-stride dummy array of the right shape: NumPy's own rules, without memory.
    try:
        return (Spec(np.broadcast_to(np.empty((), x.dtype), x.shape)[key].shape, x.dtype),)
    except (IndexError, TypeError) as error:
        raise GraphError(f"{x}: {error}") from error


def infer_concatenate(*specs: Spec, axis: int) -> tuple[Spec, ...]:
    dtype = np.result_type(*(spec.dtype for spec in specs))
    rest = {spec.shape[:axis] + spec.shape[axis + 1 :] for spec in specs}
    if len(rest) > 1 or len({len(spec.shape) for spec in specs}) > 1:
        raise GraphError(f"{infer.format_specs(specs)} must agree on every axis but {axis}")
    first = specs[0].shape
    extent = sum(spec.shape[axis] for spec in specs)
    return (Spec((*first[:axis], extent, *first[axis + 1 :]), dtype),)


def infer_split(x: Spec, boundaries: tuple[int, ...], axis: int) -> tuple[Spec, ...]:
    edges = (0, *boundaries, x.shape[axis])
    if list(edges) != sorted(edges):
        raise GraphError(f"boundaries {boundaries} must ascend within 0 to {x.shape[axis]} for {x}")
    return tuple(
        Spec((*x.shape[:axis], stop - start, *x.shape[axis + 1 :]), x.dtype)
        for start, stop in pairwise(edges)
    )


# The vjp rules ------------------------------------------------------------------------------------


def vjp_transpose(ct: Any, ins: Any, outs: Any, axes: tuple[int, ...]) -> Var:
    inverse = sorted(range(len(axes)), key=lambda position: axes[position])
    return transpose(ct[0], inverse)


def vjp_concatenate(position: int) -> Any:
    def rule(ct: Any, ins: Any, outs: Any, axis: int) -> Var:
        start, stop = concatenation_offsets(axis, ins)[position : position + 2]
        return index(ct[0], (slice(None),) * axis + (slice(start, stop),))

    return rule


def concatenation_offsets(axis: int, operands: Sequence[Var]) -> list[int]:
    """Return the offset of each operand in their concatenation, and the end of the last.

    The rules of one operator are called one by one with the same operands, of which there may be
    many: the builder caches the prefix sum until another operator's operands come.
    """
    scratch = active_builder("concatenate").scratch
    known, offsets = scratch.get("concatenation", (None, None))
    if known is not operands:
        offsets = [*accumulate((operand.shape[axis] for operand in operands), initial=0)]
        scratch["concatenation"] = operands, offsets
    found: list[int] = offsets
    return found


def vjp_split(ct: Any, ins: Any, outs: Any, boundaries: tuple[int, ...], axis: int) -> Var:
    parts = [
        full(out.shape, 0.0, out.dtype) if cotangent is None else cotangent
        for cotangent, out in zip(ct, outs, strict=True)
    ]
    return concatenate(parts, axis)


def vjp_reshape(ct: Any, ins: Any, outs: Any, shape: Any) -> Var:
    return reshape(ct[0], ins[0].shape)


def vjp_unbroadcast(ct: Any, ins: Any, outs: Any, shape: Any, axes: Any) -> Var:
    return broadcast_to(ct[0], ins[0].shape)


# The primitives -----------------------------------------------------------------------------------

RESHAPE = Primitive(
    "reshape", kernels.reshape, infer_reshape, alias=0, contiguous=True,
    vjp=(vjp_reshape,),
    takes_bfloat16=True,
)  # fmt: skip
TRANSPOSE = Primitive(
    "transpose", kernels.transpose, infer_transpose, alias=0, contiguous=False,
    vjp=(vjp_transpose,),
    takes_bfloat16=True,
)  # fmt: skip
STOP_GRADIENT = Primitive(
    "stop_gradient", kernels.stop_gradient, lambda x: (x,), alias=0, vjp=(zero,),
    takes_bfloat16=True,
)  # fmt: skip
BROADCAST_TO = Primitive(
    "broadcast_to", kernels.broadcast_to, infer_broadcast_to, alias=0, contiguous=False,
    vjp=(lambda ct, ins, outs, shape: unbroadcast(ct[0], ins[0]),),
)  # fmt: skip
UNBROADCAST = Primitive(
    "unbroadcast", kernels.unbroadcast, lambda g, shape, axes: (Spec(shape, g.dtype),),
    vjp=(vjp_unbroadcast,),
    flops=lambda inputs, outputs, **attrs: inputs[0].size,
)  # fmt: skip
INDEX = Primitive(
    "index", kernels.index, infer_index, alias=0, contiguous=False,
    vjp=(lambda ct, ins, outs, key: apply(INDEX_VJP, ct[0], shape=ins[0].shape, key=key),),
    takes_bfloat16=True,
)  # fmt: skip
INDEX_VJP: Primitive = Primitive(
    "index_vjp", kernels.index_vjp, lambda g, shape, key: (Spec(shape, g.dtype),), contiguous=True,
    vjp=(lambda ct, ins, outs, shape, key: apply(INDEX, ct[0], key=key),),
    takes_bfloat16=True,
)  # fmt: skip
CONCATENATE = Primitive(
    "concatenate", kernels.concatenate, infer_concatenate, vjp=vjp_concatenate,
    takes_bfloat16=True,
)  # fmt: skip
SPLIT = Primitive(
    "split", kernels.split, infer_split, alias=0, contiguous=False, vjp=(vjp_split,),
    takes_bfloat16=True,
)  # fmt: skip
CONTIGUOUS = Primitive(
    "contiguous", kernels.contiguous, lambda x: (x,), contiguous=True,
    vjp=(lambda ct, ins, outs: ct[0],),
    takes_bfloat16=True,
)  # fmt: skip
FULL = Primitive(
    "full", kernels.full, lambda shape, value, dtype: (Spec(shape, dtype),), contiguous=True,
)  # fmt: skip

# The functions ------------------------------------------------------------------------------------


def extents_of(shape: Any) -> tuple[int, ...]:
    """Return a shape as integers; one integer is a shape of one axis."""
    try:
        return (operator.index(shape),)
    except TypeError:
        pass
    try:
        return tuple(operator.index(extent) for extent in shape)
    except TypeError as error:
        raise GraphError(f"shape {shape!r}: give integers") from error


def resolved_shape(size: int, shape: int | Sequence[int]) -> tuple[int, ...]:
    """Replace -1, if there is one, by the extent that the size implies."""
    extents = extents_of(shape)
    if extents.count(-1) > 1 or any(extent < -1 for extent in extents):
        raise GraphError(f"shape {extents}: at most one extent may be -1, the others 0 or more")
    if -1 not in extents:
        return extents
    known = math.prod(extent for extent in extents if extent != -1)
    if known == 0 or size % known:
        raise GraphError(f"reshape: {size} elements do not fill the shape {extents}")
    return tuple(size // known if extent == -1 else extent for extent in extents)


@eager
def reshape(x: Var, shape: int | Sequence[int]) -> Var:
    """Reshape an array; one extent may be -1, inferred from the size.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.reshape(x, (2, -1)))(np.arange(4))
    array([[0, 1],
           [2, 3]])
    """
    x = as_var(x)
    target = resolved_shape(x.size, shape)
    if target == x.shape:
        return x
    if not is_contiguous(x):
        x = apply(CONTIGUOUS, x)
    return apply(RESHAPE, x, shape=target)


@eager
def transpose(x: Var, axes: Sequence[int] | None = None) -> Var:
    """Permute the axes; reversed without ``axes``; a view.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.transpose)(np.array([[1, 2], [3, 4]]))
    array([[1, 3],
           [2, 4]])
    """
    x = as_var(x)
    order = tuple(range(x.ndim))[::-1] if axes is None else extents_of(axes)
    return apply(TRANSPOSE, x, axes=tuple(infer.checked_axis(axis, x.ndim) for axis in order))


@eager
def stop_gradient(x: Any) -> Any:
    """Pass values on, and no derivative: a constant to the backward pass; a view.

    Of an array, or of arrays nested in dicts, lists and tuples. PyTorch: ``x.detach()``.

    >>> import tinyckpt as tc
    >>> float(tc.grad(lambda x: x * tc.stop_gradient(x))(3.0))
    3.0
    """
    return map_leaves(lambda leaf: apply(STOP_GRADIENT, leaf), x)


@eager
def broadcast_to(x: Var, shape: Sequence[int]) -> Var:
    """Broadcast to a shape along new and length-1 axes, without copying.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.grad(lambda x: tc.sum(tc.broadcast_to(x, (3, 2))))(np.ones(2))
    array([3., 3.])
    """
    x = as_var(x)
    target = extents_of(shape)
    return x if target == x.shape else apply(BROADCAST_TO, x, shape=target)


def unbroadcast(g: Var, like: Var) -> Var:
    """Sum ``g`` over the axes along which ``like`` was broadcast: the adjoint of broadcasting."""
    if g.shape == like.shape:
        return g
    padded = (1,) * (g.ndim - like.ndim) + like.shape
    axes = tuple(
        axis for axis in range(g.ndim) if axis < g.ndim - like.ndim or padded[axis] != g.shape[axis]
    )
    return apply(UNBROADCAST, g, shape=like.shape, axes=axes)


def index(x: Var, key: Any) -> Var:
    """Return the view ``x[key]`` for basic keys: integers, slices, None and Ellipsis."""
    parts = key if isinstance(key, tuple) else (key,)
    for part in parts:
        if isinstance(part, bool) or not (
            part is None or part is Ellipsis or isinstance(part, int | np.integer | slice)
        ):
            raise GraphError(
                f"index {part!r}: expected integers, slices, None, Ellipsis or arrays of integers"
            )
    # The Ellipsis keeps a full integer index a 0-d view, where NumPy would return a scalar, a copy.
    if not any(part is Ellipsis for part in parts):
        parts = (*parts, Ellipsis)
    return apply(INDEX, x, key=tuple(int(p) if isinstance(p, np.integer) else p for p in parts))


@eager
def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Var:
    """Concatenate arrays along an existing axis; flattened first if ``axis`` is None.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x, y: tc.concatenate([x, y]))(np.array([1, 2]), np.array([3]))
    array([1, 2, 3])
    """
    if not isinstance(arrays, list | tuple) or not arrays:
        raise GraphError("concatenate: needs a list or tuple of at least one array")
    variables = [as_var(array) for array in arrays]
    if axis is None:
        variables, axis = [reshape(variable, -1) for variable in variables], 0
    return apply(CONCATENATE, *variables, axis=infer.checked_axis(axis, variables[0].ndim))


@eager
def stack(arrays: Sequence[Any], axis: int = 0) -> Var:
    """Stack arrays along a new axis.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x, y: tc.stack([x, y]))(np.array([1, 2]), np.array([3, 4]))
    array([[1, 2],
           [3, 4]])
    """
    if not isinstance(arrays, list | tuple) or not arrays:
        raise GraphError("stack: needs a list or tuple of at least one array")
    variables = [as_var(array) for array in arrays]
    position = infer.checked_axis(axis, variables[0].ndim + 1)
    return concatenate([expand_dims(variable, position) for variable in variables], position)


@eager
def expand_dims(x: Var, axis: int | Sequence[int]) -> Var:
    """Insert an axis of length 1 at ``axis``, or at several.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.expand_dims(x, 0))(np.ones(3)).shape
    (1, 3)
    """
    x = as_var(x)
    count = x.ndim + (1 if isinstance(axis, int | np.integer) else len(axis))
    extents = list(x.shape)
    for position in infer.checked_axes(axis, count):
        extents.insert(position, 1)
    return reshape(x, extents)


def flat_or_along(x: Var, axis: int | None) -> tuple[Var, int]:
    """Return the flattened array and its only axis, or the array and the checked axis."""
    x = as_var(x)
    return (reshape(x, -1), 0) if axis is None else (x, infer.checked_axis(axis, x.ndim))


@eager
def split(x: Var, sections: int | Sequence[int], axis: int = 0) -> tuple[Var, ...]:
    """Split ``x`` along an axis into views: into equal parts, or at the given positions.

    One operator with several outputs.

    Raises:
        GraphError: if equal parts are requested and the extent is not divisible.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.split(x, 2))(np.arange(4))
    (array([0, 1]), array([2, 3]))
    """
    x = as_var(x)
    position = infer.checked_axis(axis, x.ndim)
    extent = x.shape[position]
    boundaries = extents_of(sections)
    if np.ndim(sections) == 0:
        (count,) = boundaries
        if count < 1 or extent % count:
            raise GraphError(f"split: {extent} elements do not divide into {count} equal parts")
        boundaries = tuple(extent // count * part for part in range(1, count))
    if not boundaries:
        return (x,)
    return apply_all(SPLIT, x, boundaries=boundaries, axis=position)


@eager
def full(shape: Sequence[int], value: float, dtype: Any = "float64") -> Var:
    """Return a new array filled with a number.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda: tc.full(3, 7.0))()
    array([7., 7., 7.])
    """
    spec = Spec(extents_of(shape), dtype)
    return apply(FULL, shape=spec.shape, value=value, dtype=spec.dtype.name)


def unalias_results(results: Tree, shown: Iterable[Var] = ()) -> Tree:
    """Copy results where needed so that no two share memory: the caller may write to each.

    A view that shows all of its memory, each byte once, is returned as it is. A copy is made of a
    view that repeats elements or shows part of a larger array, of an argument or a constant, and of
    memory that another result shows. The copy is an operator, so that it is planned and counted.

    Args:
        results: Vars in any nesting.
        shown: further results, already in the graph.
    """
    builder = active_builder("a result")
    updated = {operator.inputs[0] for operator in builder.operators if operator.is_update}
    owners = {shown_by(variable)[0] for variable in shown}

    def own(variable: Var) -> Var:
        owner, shows_all = shown_by(variable)
        # A single element is not worth a copy, and an updated value aliases its source by design.
        if variable.size <= 1 or owner in updated:
            return variable
        if shows_all and owner not in owners and builder.data[owner].producer is not None:
            owners.add(owner)
            return variable
        with builder.named(f"{variable.node.name}_copy"):
            return apply(CONTIGUOUS, variable)

    return map_leaves(own, results)


def shown_by(variable: Var) -> tuple[int, bool]:
    """Return the value that owns a view's memory, and whether the view shows all of it once."""
    data = variable.builder.data
    node, shows_all = data[variable.node.id], True
    while node.view_of is not None:
        shows_all &= data[node.view_of].spec.size == node.spec.size
        node = data[node.view_of]
    return node.id, shows_all


def is_contiguous(variable: Var) -> bool:
    """Whether a value is known to be C-contiguous when it is computed: sources are."""
    builder = variable.builder
    known: list[bool] = builder.scratch.setdefault("contiguous", [])
    # Values are added in topological order, so that those of earlier operators are known.
    for node in builder.data[len(known) :]:
        if node.producer is None:
            known.append(
                known[builder.stand_ins[node.id]] if node.id in builder.stand_ins else True
            )
            continue
        operator = builder.operators[node.producer]
        promised = operator.primitive.contiguous if operator.primitive else None
        inputs = (known[data] for data in operator.inputs)
        known.append(all(inputs) if promised is None else promised)
    return known[variable.node.id]
