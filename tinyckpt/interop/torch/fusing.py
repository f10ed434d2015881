"""Operator fusion model: pointwise operators inlined into their consumers, as Inductor does.

Inductor makes one kernel of a pointwise operator and its pointwise or reduction consumers; the
intermediate value is never written to memory. Here such an operator is merged into each of its
consumers. It is not merged if the backward pass reads it from the forward pass, or if some consumer
needs it in memory, such as a matrix product: a plan may then save it. Thresholds are Inductor's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from tinyckpt.interop.torch.capture import is_random, storage_of
from tinyckpt.interop.torch.joint import Values
from tinyckpt.interop.torch.split_joint import ancestors

# Constants, generated within a kernel.
CONSTANTS = {
    torch.ops.aten.full.default,
    torch.ops.aten.scalar_tensor.default,
    torch.ops.prims.iota.default,
}
# A value with several consumers is recomputed in each of their kernels if that reads at most so
# many tensors and takes at most so many operators: Inductor's realize_reads_threshold and
# realize_opcount_threshold.
MOST_READS, MOST_OPERATORS = 4, 30

Fused = Mapping[fx.Node, tuple[fx.Node, ...]]


def inlined_by_consumer(values: Values, *passes: Sequence[fx.Node]) -> Fused:
    """Map each operator that has a kernel to the operators inlined into it, in order.

    Args:
        values: of the nodes of a joint graph.
        passes: its operators: the forward and the backward pass, each in order.
    """
    found: dict[fx.Node, tuple[fx.Node, ...]] = {}
    for nodes in passes:
        inside = inlined_operators(values, nodes)
        place = {node: index for index, node in enumerate(nodes)}
        for node in nodes:
            if node not in inside:
                within = ancestors(node.all_input_nodes, inside)
                found[node] = tuple(sorted(within, key=place.__getitem__))
    return found


def inlined_operators(values: Values, nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """Return the operators of a pass that are only evaluated within other operators' kernels."""
    own, small = set(nodes), set()
    sizes: dict[fx.Node, tuple[frozenset[fx.Node], int]] = {}  # tensors read, and operators
    for node in nodes:
        if is_inlinable(values, node):
            read: frozenset[fx.Node] = frozenset()
            count = 1
            for source in node.all_input_nodes:
                theirs, more = sizes.get(source, (frozenset((source,)), 0))
                read, count = read | theirs, count + more
            if len(read) <= MOST_READS and count <= MOST_OPERATORS:
                sizes[node] = read, count
                small.add(node)
    inside: set[fx.Node] = set()
    for node in reversed(nodes):
        if (
            is_inlinable(values, node)
            and (len(node.users) == 1 or node in small)
            and all(
                user in own and (user in inside or is_fusible_consumer(user)) for user in node.users
            )
        ):
            inside.add(node)
    return inside


def is_fusible_consumer(node: fx.Node) -> bool:
    """Whether an operator becomes a kernel that can inline its pointwise operands."""
    return bool({torch.Tag.pointwise, torch.Tag.reduction} & tags_of(node))


def is_inlinable(values: Values, node: fx.Node) -> bool:
    """Whether a kernel can compute each element of a node's value on demand."""
    made = values[node]
    if not isinstance(made, torch.Tensor) or is_random(node):
        return False
    sources = [storage_of(values[source]) for source in node.all_input_nodes]
    is_view = storage_of(made) in sources
    return is_view or node.target in CONSTANTS or torch.Tag.pointwise in tags_of(node)


def tags_of(node: fx.Node) -> set[Any]:
    """Return the tags of a node's operator."""
    return set(getattr(node.target, "tags", ()))
