"""Batch-axis propagation (as in vmap): track the axis to split into chunks through every operator.

A chunk of an array can be computed from the same chunk of its inputs if no operator looks across
chunks. Each rule gives for one kind of operator the place of the axis in its results, or refuses; a
kind without a rule is refused. After a reshape the axis may be a factor of another: if
``(batch, length, width)`` becomes ``(batch * length, width)``, the length is the inner factor of
the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.ops.elementwise import ELEMENTWISE

Shape = tuple[int, ...]


class AxisPlace(NamedTuple):
    """The place of the chunked axis in a value: an axis, or a factor of an axis.

    Attributes:
        axis: counted from the left.
        outer: product of the factors of that axis before the chunked one; 1 if it is the first.
        extent: length of the chunked axis.
    """

    axis: int
    outer: int
    extent: int


Places = list["AxisPlace | None"]


class Tracked(NamedTuple):
    """An operator, the shapes of its inputs and results, and the axis in its inputs."""

    operator: Operator
    shapes: list[Shape]
    inputs: Places
    results: list[Shape]


Rule = Callable[[Tracked], Places]


def places(graph: Graph, sources: Mapping[int, AxisPlace]) -> Places:
    """Propagate the chunked axis: return its place in every value of a graph; None for no place.

    Args:
        graph: a forward graph.
        sources: its place in the sources that have it.

    Raises:
        GraphError: names the first operator that looks across chunks, or might.
    """
    found: Places = [sources.get(node.id) for node in graph.data]
    for operator in graph.operators:
        inputs = [found[data] for data in operator.inputs]
        if not any(inputs):
            continue
        rule = RULES.get(operator.kind)
        shapes = [graph.data[data].spec.shape for data in operator.inputs]
        results = [graph.data[data].spec.shape for data in operator.outputs]
        try:
            if rule is None:
                raise GraphError(f"{operator.kind} is not known to keep chunks separate")
            outputs = rule(Tracked(operator, shapes, inputs, results))
        except GraphError as error:
            raise GraphError(f"{operator.name}: {error}") from None
        for data, place in zip(operator.outputs, outputs, strict=True):
            found[data] = place
    return found


def elementwise(at: Tracked) -> Places:
    """Track an axis through broadcasting: all operands have it at the same place from the right."""
    rank = len(at.results[0])
    found = {
        place._replace(axis=rank - len(shape) + place.axis)
        for shape, place in zip(at.shapes, at.inputs, strict=True)
        if place
    }
    if len(found) > 1:
        raise GraphError("it has the chunked axis at different places of its operands")
    (place,) = found
    for shape, own in zip(at.shapes, at.inputs, strict=True):
        axis = place.axis - rank + len(shape)
        if own is None and axis >= 0 and shape[axis] != 1:
            raise GraphError(
                f"an operand of shape {shape} is whole along the chunked axis; chunk it as well"
            )
    return [place] * len(at.results)


def within_last(count: int) -> Rule:
    """Return the rule of operators that look across the last ``count`` axes of their input."""

    def rule(at: Tracked) -> Places:
        axes = range(len(at.shapes[0]) - count, len(at.shapes[0]))
        return [place_outside(axes, at.inputs, at.operator.kind)] * len(at.results)

    return rule


def place_outside(axes: object, inputs: Places, what: str) -> AxisPlace:
    """Return the place of the axis in the first operand, refusing it along the given axes."""
    place, *others = inputs
    if place is None or any(others):
        raise GraphError("only its first operand may be chunked")
    if place.axis in axes:  # type: ignore[operator]
        raise GraphError(f"{what} looks across the chunked axis")
    return place


def along_axis(at: Tracked) -> Places:
    """Track an axis past an operator along another one, whose results have the input's axes."""
    return [place_outside((at.operator.attrs["axis"],), at.inputs, at.operator.kind)] * len(
        at.results
    )


def reduction(at: Tracked) -> Places:
    """Track an axis past a reduction over others, which may be dropped."""
    axes = at.operator.attrs["axes"]
    place = place_outside(axes, at.inputs, at.operator.kind)
    gone = 0 if at.operator.attrs["keepdims"] else sum(axis < place.axis for axis in axes)
    return [place._replace(axis=place.axis - gone)]


def norm(at: Tracked) -> Places:
    """Track an axis past a norm over others; its statistics have the remaining axes."""
    axes = at.operator.attrs["axes"]
    if set(at.operator.attrs.get("parameter_axes", ())) - set(axes):
        raise GraphError("its parameters vary along axes that are not normalised")
    place = place_outside(axes, at.inputs, at.operator.kind)
    gone = sum(axis < place.axis for axis in axes)
    statistics = place._replace(axis=place.axis - gone)
    return [place, *[statistics] * (len(at.results) - 1)]


def matmul(at: Tracked) -> Places:
    """Track rows of the first operand, columns of the second, or a batch axis."""
    rank = len(at.results[0])
    if min(map(len, at.shapes)) < 2:
        raise GraphError("a product with a vector has no rule")
    batch: Places = [None, None]
    edges = []
    for side, (shape, place) in enumerate(zip(at.shapes, at.inputs, strict=True)):
        if place is None:
            continue
        is_flipped = at.operator.attrs["transpose_x" if side == 0 else "transpose_y"]
        from_right = len(shape) - place.axis  # 2: rows, 1: columns, more: the batch
        if from_right > 2:
            batch[side] = place
            continue
        is_summed = (from_right == 1) == (side == 0)
        if is_summed != is_flipped:
            raise GraphError("matmul sums over the chunked axis")
        edges.append(place._replace(axis=rank - 2 + side))
    if any(batch) and not edges:
        whole = [(*shape[:-2], 1, 1) for shape in at.shapes]
        return elementwise(at._replace(shapes=whole, inputs=batch))
    if any(batch) or len(edges) > 1:
        raise GraphError("each operand has the chunked axis, at different places of the product")
    return [edges[0]]


def reshape(at: Tracked) -> Places:
    """Track an axis into the factor of a new axis that it becomes."""
    (place,) = at.inputs
    assert place is not None
    before = prod(at.shapes[0][: place.axis]) * place.outer
    passed = 1
    for axis, extent in enumerate(at.results[0]):
        outer = before // passed
        if before % passed == 0 and extent % (outer * place.extent) == 0 and extent > 1:
            return [AxisPlace(axis, outer, place.extent)]
        passed *= extent
    raise GraphError(
        f"reshape from {at.shapes[0]} to {at.results[0]} splits the chunked axis, {place.extent} "
        f"along axis {place.axis}; leave it one axis, or a whole factor of one"
    )


def transpose(at: Tracked) -> Places:
    """Track an axis through a permutation."""
    (place,) = at.inputs
    assert place is not None
    return [place._replace(axis=at.operator.attrs["axes"].index(place.axis))]


def embedding(at: Tracked) -> Places:
    """Track an axis of the ids; the table is whole."""
    table, ids = at.inputs
    if table:
        raise GraphError("its table has the chunked axis")
    return [ids]


def cross_entropy(at: Tracked) -> Places:
    """Track an axis of examples in logits and labels; the classes are whole."""
    logits, labels = at.inputs
    if logits is None or logits.axis == len(at.shapes[0]) - 1:
        raise GraphError("cross_entropy looks across all classes")
    if logits != labels:
        raise GraphError("its logits and labels have the chunked axis at different places")
    return [logits] * len(at.results)


def concatenate(at: Tracked) -> Places:
    """Track an axis that all operands have, if they are concatenated along another."""
    (place, *others) = set(at.inputs)
    if others or place is None:
        raise GraphError("not all of its operands have the chunked axis at one place")
    return [place_outside((at.operator.attrs["axis"],), [place], at.operator.kind)]


def index(at: Tracked) -> Places:
    """Track an axis that is taken whole, past indexed and new axes."""
    (place,) = at.inputs
    assert place is not None
    axis = found = 0
    for part in expand_ellipsis(at.operator.attrs["key"], len(at.shapes[0])):
        if axis == place.axis and part is not None:
            break
        axis += part is not None
        found += not isinstance(part, int)
    else:
        part = slice(None)
        found += place.axis - axis
    extent = at.shapes[0][place.axis]
    if not isinstance(part, slice) or part.indices(extent) != (0, extent, 1):
        raise GraphError(
            f"it does not take all of the chunked axis, in its order; expected : for axis "
            f"{place.axis} of {at.shapes[0]}"
        )
    return [place._replace(axis=found)]


def expand_ellipsis(key: tuple[Any, ...], rank: int) -> list[Any]:
    """Expand the ellipsis of an index; every key of an ``index`` operator has one."""
    at = next(place for place, part in enumerate(key) if part is Ellipsis)
    taken = sum(part is not None for part in key) - 1
    return [*key[:at], *[slice(None)] * (rank - taken), *key[at + 1 :]]


def attention(at: Tracked) -> Places:
    """Track an axis of queries, keys and values before their heads."""
    (place, *others) = set(at.inputs)
    if others:
        raise GraphError("not all of its operands have the chunked axis at one place")
    rank = len(at.shapes[0])
    return [place_outside(range(rank - 3, rank), [place], at.operator.kind)] * len(at.results)


def rotary(at: Tracked) -> Places:
    """Track an axis before the positions, if the positions are the same along it."""
    if any(len(positions) > 1 for positions in at.shapes[1:]):
        raise GraphError("its positions are not the same for all chunks")
    return within_last(2)(at)


RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(("sum", "max", "logsumexp"), reduction),
    **dict.fromkeys(("softmax", "log_softmax", "cumsum", "split"), along_axis),
    **dict.fromkeys(("layer_norm", "rms_norm", "ms_layer_norm", "ms_rms_norm"), norm),
    **dict.fromkeys(("causal_softmax", "max_pool", "avg_pool"), within_last(2)),
    **dict.fromkeys(("conv2d", "conv_transpose2d"), within_last(3)),
    "fused_attention": attention,
    "index": index,
    "matmul": matmul,
    "reshape": reshape,
    "rotary": rotary,
    "transpose": transpose,
    "embedding": embedding,
    "cross_entropy": cross_entropy,
    "concatenate": concatenate,
}
