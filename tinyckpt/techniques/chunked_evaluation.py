"""Chunked evaluation (sequential map over an axis) of functions that are verified to allow it.

Memory for the inside of the function is then that of one chunk. Functions are refused whose chunked
result could differ: see ``batch_axis``. That a function computes the same for a chunk as for the
whole is verified as well: it is traced for the whole and for a chunk of each length, and the graphs
must have the same operators, the same constants, and shapes that differ in the chunked axis only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial, wraps
from operator import itemgetter
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.quantities import as_integer
from tinyckpt.base.spec import Spec
from tinyckpt.base.tree import fill, leaves, leaves_with_paths, map_leaves
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.core.tracing import as_var, build
from tinyckpt.ops.eager import eager
from tinyckpt.ops.shape import concatenate
from tinyckpt.planner.manual.regions import checkpoint
from tinyckpt.techniques.batch_axis import AxisPlace, Places, places

# Attributes that follow from shapes: sizes, and not what is computed.
FROM_SHAPES = (("reshape", "shape"), ("fused_attention", "block"))
MOST_OPERATORS = 10**6  # of all chunks together: building as many takes a minute and a GiB


def chunked(
    function: Callable[..., Any],
    chunks: int,
    axis: int = 0,
    arguments: int | Collection[int] = 0,
) -> Callable[..., Any]:
    """Map a function over chunks of its arguments along an axis, and concatenate the results.

    Each chunk is a checkpointed region: the policy ``regions`` recomputes it in the backward pass,
    so that the values inside are in memory for one chunk at a time.

    Args:
        function: of Vars, nested or not, all positional. It may read only Vars that are passed to
            it, and no operator in it may look across chunks.
        chunks: number of chunks; the first are longer by one where they cannot be equal.
        axis: the axis of the chunked arguments: a batch, or the positions of a sequence.
        arguments: positions of the chunked arguments; every array in them is chunked.

    Raises:
        GraphError: if an option is not legal; and on a call, if the result would differ from that
            of the whole, or might: names the first operator that is the cause.

    >>> import tinyckpt as tc
    >>> def block(x, w):
    ...     return tc.tanh(x @ w)
    >>> x, w = tc.Spec((6, 4)), tc.Spec((4, 4))
    >>> [operator.kind for operator in tc.build(tc.chunked(block, 2), x, w).operators]
    ['index', 'matmul', 'tanh', 'index', 'matmul', 'tanh', 'concatenate']
    >>> tc.build(tc.chunked(lambda x: tc.softmax(x, axis=0), 2), x)
    Traceback (most recent call last):
    tinyckpt.base.errors.GraphError: chunked: softmax_1: softmax looks across the chunked axis
    """
    if not callable(function):
        raise GraphError(f"chunked: {function!r:.80} is not a function")
    chunks, axis = checked_integer("chunks", chunks, 1), checked_integer("axis", axis, 0)
    which = positions_of(arguments)

    @eager
    @wraps(function)
    def over_pieces(*args: Any) -> Any:
        variables = tuple(map_leaves(as_var, argument) for argument in args)
        extent = common_extent(variables, which, axis)
        if chunks == 1:
            return checkpoint(function)(*variables)
        if chunks > extent:
            most = f"1 to {extent}" if extent > 1 else "1"
            raise GraphError(f"chunked: {chunks} chunks of an axis of {extent}; take {most}")
        template, found = verify_chunks(function, variables, which, axis, extent, chunks)
        results, begin = [], 0
        for place in range(chunks):
            length = extent // chunks + (place < extent % chunks)
            key = (*[slice(None)] * axis, slice(begin, begin + length))
            pieces = [
                map_leaves(itemgetter(key), variable) if place in which else variable
                for place, variable in enumerate(variables)
            ]
            results.append(leaves(checkpoint(function)(*pieces)))
            begin += length
        together = [
            concatenate(list(parts), axis=place.axis)
            for parts, place in zip(zip(*results, strict=True), found, strict=True)
        ]
        return fill(template, together)

    return over_pieces


def checked_integer(option: str, number: Any, least: int) -> int:
    """Return an integer option, NumPy's integers included, after checking its lower bound."""
    found = as_integer(number)
    if found is None or found < least:
        raise GraphError(
            f"chunked: {option}={number!r:.80}; it must be an integer of {least} or more"
        )
    return found


def positions_of(arguments: Any) -> set[int]:
    """Return the positions of the chunked arguments.

    Raises:
        GraphError: if they are not positions, or there are none.
    """
    try:
        several = (arguments,) if as_integer(arguments) is not None else tuple(arguments)
    except TypeError:
        several = ()
    found = [as_integer(position) for position in several]
    if not found or any(position is None or position < 0 for position in found):
        raise GraphError(
            f"chunked: arguments={arguments!r:.80}; it must be a position, counted from 0, or "
            "several of them"
        )
    return {position for position in found if position is not None}


def common_extent(variables: tuple[Any, ...], which: set[int], axis: int) -> int:
    """Return the length of the chunked axis, after checking that all chunked arguments have it."""
    if not which <= set(range(len(variables))):
        raise GraphError(
            f"chunked: arguments={sorted(which)}; there are {len(variables)}, counted from 0"
        )
    extents: dict[int, str] = {}
    for place in sorted(which):
        for path, leaf in leaves_with_paths(variables[place], f"argument {place}"):
            if len(leaf.shape) <= axis:
                raise GraphError(
                    f"chunked: axis={axis}; {path} has shape {leaf.shape}, and so no such axis"
                )
            extents.setdefault(leaf.shape[axis], path)
    if not extents:
        raise GraphError(f"chunked: arguments={sorted(which)}; there is no array in them")
    if len(extents) > 1:
        each = ", ".join(f"{path} has {extent}" for extent, path in extents.items())
        raise GraphError(f"chunked: the chunked arguments differ along axis {axis}: {each}")
    return next(iter(extents))


def verify_chunks(
    function: Callable[..., Any],
    variables: tuple[Any, ...],
    which: set[int],
    axis: int,
    extent: int,
    chunks: int,
) -> tuple[Any, list[AxisPlace]]:
    """Verify that chunks give the result of the whole; return its template and chunked axes.

    Raises:
        GraphError: if chunks might not give the same, or are too many.
    """

    def traced(length: int) -> Graph:
        def spec(variable: Any, is_chunked: bool) -> Spec:
            shape = list(variable.shape)
            if is_chunked:
                shape[axis] = length
            return Spec(tuple(shape), variable.dtype)

        specs = [
            map_leaves(partial(spec, is_chunked=place in which), variable)
            for place, variable in enumerate(variables)
        ]
        return build(function, *specs, graph_name="chunked")

    whole = traced(extent)
    count = chunks * max(len(whole.operators), 1)
    if count > MOST_OPERATORS:
        raise GraphError(
            f"chunked: chunks={chunks}: chunks of {len(whole.operators)} operators each, "
            f"{count:,} total; take {MOST_OPERATORS // len(whole.operators) or 1} chunks at most"
        )
    sources = {
        data: AxisPlace(axis, 1, extent)
        for place in which
        for data in leaves(whole.arguments[place])
    }
    try:
        found = places(whole, sources)
        for length in {extent // chunks, -(-extent // chunks)}:
            try:
                piece = traced(length)
            except GraphError as error:
                raise GraphError(
                    f"for a chunk of length {length} along axis {axis}: {error}; the function must "
                    "use the shapes of its arguments, as in x.reshape(x.shape[0], -1)"
                ) from None
            compare(whole, piece, found, length)
        ends = [result_axis(whole, data, found[data]) for data in leaves(whole.results)]
    except GraphError as error:
        raise GraphError(f"chunked: {error}") from None
    numbers = iter(range(len(ends)))
    return map_leaves(lambda leaf: next(numbers), whole.results), ends


def result_axis(whole: Graph, data: int, place: AxisPlace | None) -> AxisPlace:
    """Return the chunked axis of a result, along which its chunks are concatenated."""
    node = whole.data[data]
    if place is None:
        raise GraphError(
            f"its result {node.name}, of shape {node.spec.shape}, does not have the chunked axis; "
            "return only what has it"
        )
    if place.outer != 1:
        raise GraphError(
            f"in its result {node.name}, of shape {node.spec.shape}, the chunked axis is part of "
            f"axis {place.axis}, and not the first part; return it as an axis of its own"
        )
    return place


def shape_independent_attrs(operator: Operator) -> dict[str, Any]:
    """Return the attributes of an operator that do not follow from shapes."""
    return {
        key: value
        for key, value in operator.attrs.items()
        if (operator.kind, key) not in FROM_SHAPES
    }


def compare(whole: Graph, piece: Graph, found: Places, length: int) -> None:
    """Raise a GraphError unless a chunk's graph equals the whole's but for the chunked axis."""
    if len(whole.operators) != len(piece.operators) or len(whole.data) != len(piece.data):
        raise GraphError("it computes something else for a chunk than for the whole")
    for own, other in zip(whole.operators, piece.operators, strict=True):
        same = (own.kind, own.inputs, own.outputs) == (other.kind, other.inputs, other.outputs)
        if not same or repr(shape_independent_attrs(own)) != repr(shape_independent_attrs(other)):
            raise GraphError(f"{own.name}: for a chunk, {other.name} is a different operator")
    for node, place, part in zip(whole.data, found, piece.data, strict=True):
        shape = list(node.spec.shape)
        if place is not None:
            shape[place.axis] = shape[place.axis] // place.extent * length
        if tuple(shape) != part.spec.shape or node.spec.dtype != part.spec.dtype:
            raise GraphError(f"{node.name}: for a chunk it is {part.spec}, not of shape {shape}")
    for data, value in whole.constants.items():
        if value.tobytes() != piece.constants[data].tobytes():
            raise GraphError(f"{whole.data[data].name}: a constant that differs for a chunk")
