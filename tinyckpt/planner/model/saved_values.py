"""Saved tensors (residuals) of a training graph: the forward values that the backward pass reads.

A property of the graph, found without a schedule: store-all keeps exactly these until they are
read. PyTorch calls them saved tensors, JAX residuals.
"""

from __future__ import annotations

from tinyckpt.base.errors import expect
from tinyckpt.core.graph import DataNode, Graph


def saved_values(graph: Graph) -> list[DataNode]:
    """Return the values whose storage the backward pass reads, parameters excluded.

    A view counts as its base, and each storage once. Inputs and constants are included, scalar
    constants excepted; as sources they are resident in any case, and ``role`` tells them apart.

    >>> import tinyckpt as tc
    >>> x, w = tc.Spec((2, 3)), tc.Spec((3, 4))
    >>> loss = lambda w, x: tc.sum(tc.tanh(x @ w))
    >>> graph = tc.differentiate(tc.build(loss, w, x))
    >>> [node.name for node in saved_values(graph)]
    ['x', 'tanh_1']
    """
    expect(graph, Graph)
    found: set[int] = set()
    for operator in graph.operators[graph.forward_count :]:
        for data in operator.inputs:
            node = graph.data[data]
            while node.view_of is not None:
                node = graph.data[node.view_of]
            if is_saved(graph, node):
                found.add(node.id)
    return [graph.data[data] for data in sorted(found)]


def is_saved(graph: Graph, node: DataNode) -> bool:
    """Whether a value read by the backward pass is forward, no parameter and no scalar constant."""
    if node.producer is not None:
        return node.producer < graph.forward_count
    return node.role != "parameter" and (node.role != "constant" or node.spec.shape != ())
