"""Pattern matching: norms whose scale and shift can be folded into the linear layers after them.

For each layer norm or RMS norm of a forward graph: the linear layers that read it, if its scale and
shift can be merged into their weights and biases; else the reason why they cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tinyckpt.core.graph import DataNode, Graph, Operator

NORMS = ("layer_norm", "rms_norm")


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear layer that reads a norm, by the data ids of its parameters.

    Attributes:
        weight: shape ``(inputs, outputs)``; ``(outputs, inputs)`` if ``transposed``.
        bias: added to the product, shape ``(outputs,)``, or None.
        transposed: whether the function transposes the weight.
    """

    weight: int
    bias: int | None
    transposed: bool


@dataclass(frozen=True, slots=True)
class Merge:
    """A norm and the linear layers that its scale and shift fold into.

    Attributes:
        norm: id of the norm's operator.
        scale, shift: data ids of its parameters, or None.
        linears: its readers.
    """

    norm: int
    scale: int | None
    shift: int | None
    linears: tuple[Linear, ...]


class NotMergeableError(Exception):
    """The reason why a norm's scale and shift cannot be folded; caught by the search for norms."""


def norms_of(graph: Graph) -> Iterator[Operator]:
    """Yield the layer norms and RMS norms of a graph."""
    return (operator for operator in graph.operators if operator.kind in NORMS)


def merge_of(graph: Graph, norm: Operator, parameters: frozenset[int]) -> Merge:
    """Match a norm and its readers, and return how its affine part folds into them.

    Args:
        graph: a forward graph.
        norm: one of its norms.
        parameters: data ids of the parameters that may change.

    Raises:
        NotMergeableError: with the reason, if it cannot be folded.
    """
    x, *affine = norm.inputs
    y, *statistics = norm.outputs
    if any(graph.consumers[data] or data in graph.outputs for data in statistics):
        raise NotMergeableError("its statistics are read")
    if not affine:  # nothing to fold: exact for any reader
        return Merge(norm.id, None, None, ())
    last = (len(graph.data[x].spec.shape) - 1,)
    if norm.attrs["axes"] != last or norm.attrs["parameter_axes"] != last:
        raise NotMergeableError("it is not over the last axis alone")
    for data in affine:
        require_own(graph, data, parameters)
    if len(set(affine)) < len(affine):
        raise NotMergeableError(f"{graph.data[affine[0]].name} is its scale and its shift")
    scale, shift = (*affine, None)[:2]
    readers = [
        (reader, data) for data in row_reshapes_of(graph, y) for reader in readers_of(graph, data)
    ]
    linears = [linear_of(graph, reader, data, parameters, shift) for reader, data in readers]
    return Merge(norm.id, scale, shift, tuple(linears))


def require_own(graph: Graph, data: int, parameters: frozenset[int]) -> None:
    """Raise a NotMergeableError unless a value is a parameter with exactly one reader."""
    node = graph.data[data]
    if data not in parameters:
        raise NotMergeableError(f"{node.name} is not a parameter")
    if len(graph.consumers[data]) != 1 or data in graph.outputs:
        raise NotMergeableError(f"{node.name} is read elsewhere, too")


def row_reshapes_of(graph: Graph, data: int) -> list[int]:
    """Return a value and its reshapes that regroup rows."""
    found = [data]
    for value in found:  # the list grows meanwhile: a work list
        for reader in graph.consumers[value]:
            if is_regrouping(graph, graph.operators[reader]):
                found += graph.operators[reader].outputs
    return found


def is_regrouping(graph: Graph, operator: Operator) -> bool:
    """Whether an operator is a reshape that leaves the last axis alone, or the copy before it."""
    if operator.kind not in ("reshape", "contiguous"):
        return False
    before, after = (graph.data[d].spec.shape for d in (*operator.inputs, *operator.outputs))
    return before[-1:] == after[-1:]


def readers_of(graph: Graph, data: int) -> Iterator[Operator]:
    """Yield the readers of a value, except reshapes that regroup its rows."""
    if data in graph.outputs:
        raise NotMergeableError("the function returns it")
    readers = (graph.operators[reader] for reader in graph.consumers[data])
    return (reader for reader in readers if not is_regrouping(graph, reader))


def linear_of(
    graph: Graph, reader: Operator, data: int, parameters: frozenset[int], shift: int | None
) -> Linear:
    """Match a reader of a norm as a linear layer, or raise a NotMergeableError."""
    if reader.kind != "matmul" or reader.inputs[0] != data or reader.attrs["transpose_x"]:
        raise NotMergeableError(f"{reader.name} reads it, which is not a product with a weight")
    weight, transposed = reader.inputs[1], bool(reader.attrs["transpose_y"])
    node = graph.data[weight]
    if is_transpose(graph, node) and len(graph.consumers[weight]) == 1:
        (weight,) = graph.operators[node.producer or 0].inputs
        transposed = not transposed
    require_own(graph, weight, parameters)
    if len(graph.data[weight].spec.shape) != 2:
        raise NotMergeableError(f"{graph.data[weight].name} is not a matrix")
    bias = None if shift is None else bias_of(graph, reader, parameters)
    return Linear(weight, bias, transposed)


def is_transpose(graph: Graph, node: DataNode) -> bool:
    """Whether a value is a transposed matrix."""
    if node.producer is None:
        return False
    operator = graph.operators[node.producer]
    return operator.kind == "transpose" and tuple(operator.attrs["axes"]) == (1, 0)


def bias_of(graph: Graph, product: Operator, parameters: frozenset[int]) -> int:
    """Match the bias that is added to a product, or raise a NotMergeableError."""
    shapes = row_reshapes_of(graph, product.outputs[0])
    readers = [(reader, data) for data in shapes for reader in readers_of(graph, data)]
    if len(readers) == 1 and readers[0][0].kind == "add":
        others = [data for data in readers[0][0].inputs if data != readers[0][1]]
        width = graph.data[product.outputs[0]].spec.shape[-1:]
        if len(others) == 1 and graph.data[others[0]].spec.shape == width:
            require_own(graph, others[0], parameters)
            return others[0]
    raise NotMergeableError(f"{product.name} adds no bias, into which its shift could go")
