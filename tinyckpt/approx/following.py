"""Where the chunked axis goes: from the arguments through every operator, or why it cannot.

A piece of an array can be computed from the same piece of what it is computed from if no operator
looks across pieces. Each rule here says for one kind of operator where the axis is in its results,
or refuses; a kind without a rule is refused. After a reshape the axis may be a factor of one: of
``(batch, length, width)`` as ``(batch * length, width)``, the length is the inner factor of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import Graph, Operator

Shape = tuple[int, ...]


class AxisPlace(NamedTuple):
    """Where the chunked axis is in a value: a factor of one of its axes, or all of it.

    Attributes:
        axis: counted from the left.
        outer: the product of the factors of that axis before it; 1 if it is the first.
        extent: its own length.
    """

    axis: int
    outer: int
    extent: int


Places = list["AxisPlace | None"]
Rule = Callable[[Operator, list[Shape], Places, list[Shape]], Places]

ELEMENTWISE = (
    "absolute", "add", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "bitwise_and", "bitwise_or", "bitwise_xor", "cast", "cbrt", "ceil", "contiguous", "cos", "cosh",
    "divide", "equal", "exp", "exp2", "expm1", "floor", "floor_divide", "fmod", "gelu", "gelu_tanh",
    "greater", "greater_equal", "hypot", "invert", "isfinite", "isinf", "isnan", "left_shift",
    "less", "less_equal", "log", "log10", "log1p", "log2", "log_sigmoid", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply",
    "negative", "not_equal", "power", "powers", "relu", "remainder", "right_shift", "round",
    "sigmoid", "sign", "signbit", "silu", "sin", "sinh", "softplus", "sqrt", "subtract", "tan",
    "tanh", "trunc", "where",
)  # fmt: skip


def places(graph: Graph, sources: Mapping[int, AxisPlace]) -> Places:
    """Return for every value of a graph where the chunked axis is; None where it is not.

    Args:
        graph: a forward graph.
        sources: where it is in those sources that have it.

    Raises:
        GraphError: names the first operator that looks across pieces, or may.
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
                raise GraphError(f"{operator.kind} is not known to keep pieces apart")
            outputs = rule(operator, shapes, inputs, results)
        except GraphError as error:
            raise GraphError(f"{operator.name}: {error}") from None
        for data, place in zip(operator.outputs, outputs, strict=True):
            found[data] = place
    return found


def elementwise(
    operator: Operator, shapes: list[Shape], inputs: Places, results: list[Shape]
) -> Places:
    """Follow an axis that all operands have at the same distance from the right."""
    rank = len(results[0])
    found = {
        place._replace(axis=rank - len(shape) + place.axis)
        for shape, place in zip(shapes, inputs, strict=True)
        if place
    }
    if len(found) > 1:
        raise GraphError("it has the chunked axis at different places of its operands")
    (place,) = found
    for shape, own in zip(shapes, inputs, strict=True):
        axis = place.axis - rank + len(shape)
        if own is None and axis >= 0 and shape[axis] != 1:
            raise GraphError(
                f"an operand of shape {shape} is whole along the chunked axis; chunk it as well"
            )
    return [place] * len(results)


def within_last(count: int) -> Rule:
    """Return the rule of operators that look across the last ``count`` axes of their input."""

    def rule(
        operator: Operator, shapes: list[Shape], inputs: Places, results: list[Shape]
    ) -> Places:
        axes = range(len(shapes[0]) - count, len(shapes[0]))
        return [across(axes, inputs, operator.kind)] * len(results)

    return rule


def across(axes: object, inputs: Places, what: str) -> AxisPlace:
    """Return the place in the only input that has one, unless it is along one of some axes."""
    place, *others = inputs
    if place is None or any(others):
        raise GraphError("only its first operand may be chunked")
    if place.axis in axes:  # type: ignore[operator]
        raise GraphError(f"{what} looks across the chunked axis")
    return place


def along_axis(
    operator: Operator, shapes: list[Shape], inputs: Places, results: list[Shape]
) -> Places:
    """Follow past an operator along one axis, whose results have the axes of the input."""
    return [across((operator.attrs["axis"],), inputs, operator.kind)] * len(results)


def reduction(
    operator: Operator, shapes: list[Shape], inputs: Places, results: list[Shape]
) -> Places:
    """Follow past a reduction over other axes, which may be gone."""
    axes = operator.attrs["axes"]
    place = across(axes, inputs, operator.kind)
    gone = 0 if operator.attrs["keepdims"] else sum(axis < place.axis for axis in axes)
    return [place._replace(axis=place.axis - gone)]


def norm(operator: Operator, shapes: list[Shape], inputs: Places, results: list[Shape]) -> Places:
    """Follow past a norm over other axes; its statistics are those of the axes that remain."""
    axes = operator.attrs["axes"]
    if set(operator.attrs.get("parameter_axes", ())) - set(axes):
        raise GraphError("its parameters vary along axes that are not normalised")
    place = across(axes, inputs, operator.kind)
    gone = sum(axis < place.axis for axis in axes)
    statistics = place._replace(axis=place.axis - gone)
    return [place, *[statistics] * (len(results) - 1)]


def matmul(operator: Operator, shapes: list[Shape], inputs: Places, results: list[Shape]) -> Places:
    """Follow the rows of the first operand, the columns of the second, or an axis of the batch."""
    rank = len(results[0])
    if min(map(len, shapes)) < 2:
        raise GraphError("a product with a vector is not followed")
    batch: Places = [None, None]
    edges = []
    for side, (shape, place) in enumerate(zip(shapes, inputs, strict=True)):
        if place is None:
            continue
        is_flipped = operator.attrs["transpose_x" if side == 0 else "transpose_y"]
        from_right = len(shape) - place.axis  # 2: rows, 1: columns, more: the batch
        if from_right > 2:
            batch[side] = place
            continue
        is_summed = (from_right == 1) == (side == 0)
        if is_summed != is_flipped:
            raise GraphError("matmul sums over the chunked axis")
        edges.append(place._replace(axis=rank - 2 + side))
    if any(batch) and not edges:
        whole = [(*shape[:-2], 1, 1) for shape in shapes]
        return elementwise(operator, whole, batch, results)
    if any(batch) or len(edges) > 1:
        raise GraphError("each operand has the chunked axis, at different places of the product")
    return [edges[0]]


def reshape(
    operator: Operator, shapes: list[Shape], inputs: Places, results: list[Shape]
) -> Places:
    """Follow an axis into the factor of an axis that it becomes."""
    (place,) = inputs
    assert place is not None
    before = prod(shapes[0][: place.axis]) * place.outer
    passed = 1
    for axis, extent in enumerate(results[0]):
        outer = before // passed
        if before % passed == 0 and extent % (outer * place.extent) == 0 and extent > 1:
            return [AxisPlace(axis, outer, place.extent)]
        passed *= extent
    raise GraphError(
        f"reshape from {shapes[0]} to {results[0]} tears the chunked axis apart, {place.extent} "
        f"along axis {place.axis}; leave it one axis, or a whole factor of one"
    )


def transpose(
    operator: Operator, shapes: list[Shape], inputs: Places, results: list[Shape]
) -> Places:
    """Follow an axis to where it is put."""
    (place,) = inputs
    assert place is not None
    return [place._replace(axis=operator.attrs["axes"].index(place.axis))]


def embedding(
    operator: Operator, shapes: list[Shape], inputs: Places, results: list[Shape]
) -> Places:
    """Follow the ids; the table is whole."""
    table, ids = inputs
    if table:
        raise GraphError("its table has the chunked axis")
    return [ids]


def cross_entropy(
    operator: Operator, shapes: list[Shape], inputs: Places, results: list[Shape]
) -> Places:
    """Follow the logits and labels of examples; the classes are whole."""
    logits, labels = inputs
    if logits is None or logits.axis == len(shapes[0]) - 1:
        raise GraphError("cross_entropy looks across all classes")
    if logits != labels:
        raise GraphError("its logits and labels have the chunked axis at different places")
    return [logits] * len(results)


def concatenate(
    operator: Operator, shapes: list[Shape], inputs: Places, results: list[Shape]
) -> Places:
    """Follow an axis that all operands have, if they are put together along another."""
    (place, *others) = set(inputs)
    if others or place is None:
        raise GraphError("not all of its operands have the chunked axis at one place")
    return [across((operator.attrs["axis"],), [place], operator.kind)]


def index(operator: Operator, shapes: list[Shape], inputs: Places, results: list[Shape]) -> Places:
    """Follow an axis of which all is taken past those of which a part is, or that are new."""
    (place,) = inputs
    assert place is not None
    axis = found = 0
    for part in written_out(operator.attrs["key"], len(shapes[0])):
        if axis == place.axis and part is not None:
            break
        axis += part is not None
        found += not isinstance(part, int)
    else:
        part = slice(None)
        found += place.axis - axis
    extent = shapes[0][place.axis]
    if not isinstance(part, slice) or part.indices(extent) != (0, extent, 1):
        raise GraphError(
            f"it does not take all of the chunked axis, in its order; legal is : for axis "
            f"{place.axis} of {shapes[0]}"
        )
    return [place._replace(axis=found)]


def written_out(key: tuple[Any, ...], rank: int) -> list[Any]:
    """Return an index with the slices that its ellipsis stands for."""
    at = next((place for place, part in enumerate(key) if part is Ellipsis), None)
    if at is None:
        return list(key)
    taken = sum(part is not None and part is not Ellipsis for part in key)
    return [*key[:at], *[slice(None)] * (rank - taken), *key[at + 1 :]]


def attention(
    operator: Operator, shapes: list[Shape], inputs: Places, results: list[Shape]
) -> Places:
    """Follow an axis of queries, keys and values before their heads."""
    (place, *others) = set(inputs)
    if others:
        raise GraphError("not all of its operands have the chunked axis at one place")
    rank = len(shapes[0])
    return [across(range(rank - 3, rank), [place], operator.kind)] * len(results)


def rotary(operator: Operator, shapes: list[Shape], inputs: Places, results: list[Shape]) -> Places:
    """Follow an axis before the positions, if these are the same for all that it is of."""
    if any(len(positions) > 1 for positions in shapes[1:]):
        raise GraphError("its positions are not the same for all pieces")
    return within_last(2)(operator, shapes, inputs, results)


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
