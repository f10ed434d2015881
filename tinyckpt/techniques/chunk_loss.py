"""Chunked linear cross-entropy as a graph rewrite: a network's logits, never whole in memory.

The loss of a network, and the matrix product before it, are replaced by ``losses_in_pieces``. The
rewrite is exact but for rounding. Refused are logits of another form, and logits that are read
elsewhere.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.core.tracing import build
from tinyckpt.networks.network import Network
from tinyckpt.ops.elementwise import add
from tinyckpt.ops.linalg import matmul
from tinyckpt.ops.nn import CROSS_ENTROPY
from tinyckpt.ops.shape import reshape
from tinyckpt.techniques.chunked_cross_entropy import losses_in_pieces
from tinyckpt.techniques.inline_graph import Replacement, call_graph
from tinyckpt.techniques.match_norms import is_regrouping


def chunked_loss(network: Network, chunks: int) -> tuple[Network, int]:
    """Rewrite a network's cross-entropy, and the matrix product before it, in chunks.

    Args:
        network: with one cross-entropy in its loss.
        chunks: number of chunks; fewer if there are fewer rows.

    Returns:
        The network, and the number of chunks.

    Raises:
        GraphError: if there is no such cross-entropy, or its logits are not a matrix product.
    """
    graph = build(network.loss, *network.specs, graph_name=network.name)
    crosses = [operator for operator in graph.operators if operator.kind == CROSS_ENTROPY.name]
    if len(crosses) != 1:
        raise GraphError("the loss is no cross-entropy whose logits could be chunked")
    (cross,) = crosses
    product, biases = logits_of(graph, cross)
    if any(operator.once for operator in (cross, product, *biases)):
        raise GraphError("the logits must be computed once, and cannot be recomputed in chunks")
    count = min(chunks, graph.data[cross.inputs[1]].spec.size)

    def loss(*args: Any) -> Any:
        return call_graph(graph, args, chunked_replacements(cross, product, biases, count))

    return Network(network.name, loss, network.specs), count


def logits_of(graph: Graph, cross: Operator) -> tuple[Operator, list[Operator]]:
    """Match logits of the form product + biases: return the product, and the operators after it.

    Raises:
        GraphError: if the logits have another form, or other readers.
    """
    data = cross.inputs[0]
    sums: list[Operator] = []
    if graph.consumers[cross.outputs[1]] or cross.outputs[1] in graph.outputs:
        raise GraphError("the log-sum-exp of the logits is read elsewhere, too")
    while True:
        producer = graph.data[data].producer
        if producer is None:
            raise GraphError("the logits are an argument, not a matrix product")
        if len(graph.consumers[data]) != 1 or data in graph.outputs:
            raise GraphError("the logits are read elsewhere, too")
        operator = graph.operators[producer]
        if operator.kind == "matmul" and not operator.attrs["transpose_x"]:
            return operator, sums
        if operator.kind == "add":
            rows = [d for d in operator.inputs if graph.data[d].spec.shape[1:]]
            if len(rows) != 1:
                raise GraphError("the logits are a sum of more than a product and a bias")
            sums.append(operator)
            data = rows[0]
        elif is_regrouping(graph, operator):
            sums.append(operator)
            data = operator.inputs[0]
        else:
            raise GraphError(f"the logits come from {operator.kind}, not from a matrix product")


def chunked_replacements(
    cross: Operator, product: Operator, others: list[Operator], chunks: int
) -> dict[int, Replacement]:
    """Return the replacements of a product and its cross-entropy by a chunked loss.

    The product and the operators after it only record their operands; the cross-entropy's
    replacement computes them all, chunk by chunk.

    Args:
        cross, product: the two operators.
        others: those between them, from last to first: additions of a bias, and reshapes of rows.
        chunks: number of chunks.
    """
    met: dict[int, Any] = {}
    biases = [operator for operator in reversed(others) if operator.kind == "add"]

    def noted(operator: Operator, *operands: Any) -> tuple[Any, ...]:
        met.update(zip(operator.inputs, operands, strict=True))
        return ()

    def losses(*operands: Any) -> tuple[Any, ...]:
        hidden, weight = (met[data] for data in product.inputs)
        added = [next(met[d] for d in op.inputs if met[d] is not None) for op in biases]

        def logits(rows: Any, weight: Any, *added: Any) -> Any:
            found = matmul(rows, weight.T if product.attrs["transpose_y"] else weight)
            return reduce(add, added, found)

        labels = operands[1]
        found = losses_in_pieces(logits, hidden, labels, chunks, weight, *added)
        return (reshape(found, labels.shape),)

    found: dict[int, Replacement] = {op.id: partial(noted, op) for op in (product, *others)}
    found[cross.id] = losses
    return found
