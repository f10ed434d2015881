"""What store-all keeps: the memory of the forward half that the backward half reads."""

from __future__ import annotations

from tinyckpt.core.graph import DataNode, Graph


def saved_values(graph: Graph) -> list[DataNode]:
    """Return the values whose memory the backward half reads, parameters left out.

    A view counts as the value in whose memory it is, and each memory once. Inputs and constants
    are among them, but for single numbers: they are there in any case, and have the ``role``.

    >>> import tinyckpt as tc
    >>> x, w = tc.Spec((2, 3)), tc.Spec((3, 4))
    >>> loss = lambda w, x: tc.sum(tc.tanh(x @ w))
    >>> graph = tc.differentiate(tc.build(loss, w, x))
    >>> [node.name for node in saved_values(graph)]
    ['x', 'tanh_1']
    """
    found: set[int] = set()
    for operator in graph.operators[graph.forward_count :]:
        for data in operator.inputs:
            node = graph.data[data]
            while node.view_of is not None:
                node = graph.data[node.view_of]
            if is_kept(graph, node):
                found.add(node.id)
    return [graph.data[data] for data in sorted(found)]


def is_kept(graph: Graph, node: DataNode) -> bool:
    """Whether a value is of the forward half, no parameter, and no number that the code holds."""
    if node.producer is not None:
        return node.producer < graph.forward_count
    return node.role != "parameter" and (node.role != "constant" or node.spec.shape != ())
