"""The graph without what nobody needs: what a traced function computed and did not return."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.core.graph import DataNode, Graph, Operator


def without_unused(graph: Graph) -> Graph:
    """Return the graph without the operators that no result depends on; itself if all are needed.

    Arguments stay, read or not: they are what a caller passes.
    """
    wanted = bytearray(len(graph.data))
    for data in (*graph.outputs, *leaves(graph.arguments)):
        wanted[data] = 1
    kept = bytearray(len(graph.operators))
    for operator in reversed(graph.operators):
        if any(wanted[output] for output in operator.outputs):
            kept[operator.id] = 1
            for data in (*operator.inputs, *operator.outputs):
                wanted[data] = 1
    if all(wanted) and all(kept):
        return graph
    data_ids, operator_ids = numbering(wanted), numbering(kept)
    return replace(
        graph,
        data=tuple(
            renumbered_data(node, data_ids, operator_ids) for node in graph.data if wanted[node.id]
        ),
        operators=tuple(
            renumbered_operator(operator, data_ids, operator_ids)
            for operator in graph.operators
            if kept[operator.id]
        ),
        arguments=map_leaves(data_ids.__getitem__, graph.arguments),
        results=map_leaves(data_ids.__getitem__, graph.results),
        gradients=map_leaves(data_ids.__getitem__, graph.gradients),
        constants={data_ids[i]: value for i, value in graph.constants.items() if wanted[i]},
    )


def numbering(kept: bytearray) -> dict[Any, Any]:
    """Return new consecutive ids for the positions that are kept; None stays None."""
    ids: dict[Any, Any] = {None: None}
    ids.update((old, new) for new, old in enumerate(i for i, keep in enumerate(kept) if keep))
    return ids


def renumbered_data(node: DataNode, data_ids: Any, operator_ids: Any) -> DataNode:
    """Return the node under its new id; the very node if nothing changes."""
    new_id, producer = data_ids[node.id], operator_ids[node.producer]
    view_of = data_ids[node.view_of]
    if new_id == node.id and producer == node.producer and view_of == node.view_of:
        return node
    return DataNode(
        new_id, node.name, node.spec, node.role, node.nbytes, producer, view_of, node.label
    )


def renumbered_operator(operator: Operator, data_ids: Any, operator_ids: Any) -> Operator:
    """Return the operator under its new id; the very operator if nothing changes."""
    new_id = operator_ids[operator.id]
    inputs = tuple([data_ids[i] for i in operator.inputs])
    outputs = tuple([data_ids[i] for i in operator.outputs])
    # The adjoint's forward operator may be gone: a loss whose value nobody asked for.
    adjoint_of = operator_ids.get(operator.adjoint_of)
    if (new_id, inputs, outputs, adjoint_of) == (
        operator.id, operator.inputs, operator.outputs, operator.adjoint_of,
    ):  # fmt: skip
        return operator
    return replace(operator, id=new_id, inputs=inputs, outputs=outputs, adjoint_of=adjoint_of)
