"""Which operators a compiler evaluates within the kernels of their readers, without memory.

Inductor makes one kernel of an operator on single elements and whoever reads what it makes, element
by element or summed up: the value between them never stands in memory. Here such an operator is one
with each of its readers. It is not where the other half reads it, or something besides does that
needs it in memory, such as a product of matrices: a plan may keep it then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from tinyckpt.interop.torch.capture import is_random, storage_of
from tinyckpt.interop.torch.joint import Joint

# Made within a kernel, from nothing.
CONSTANTS = {
    torch.ops.aten.full.default,
    torch.ops.aten.scalar_tensor.default,
    torch.ops.prims.iota.default,
}
# What has several readers is evaluated in each of their kernels if it takes no more than so many
# tensors and operators: Inductor's realize_reads_threshold and realize_opcount_threshold.
MOST_READS, MOST_OPERATORS = 4, 30

Fused = Mapping[fx.Node, tuple[fx.Node, ...]]


def fused_into(joint: Joint, *halves: Sequence[fx.Node]) -> Fused:
    """Return for each operator that has a kernel those that are evaluated within it, in order.

    Args:
        joint: the graph.
        halves: its operators, each half in order.
    """
    found: dict[fx.Node, tuple[fx.Node, ...]] = {}
    for half in halves:
        inside = without_kernels(joint, half)
        place = {node: index for index, node in enumerate(half)}
        for node in half:
            if node not in inside:
                within = ancestors_among(node, inside)
                found[node] = tuple(sorted(within, key=place.__getitem__))
    return found


def without_kernels(joint: Joint, half: Sequence[fx.Node]) -> set[fx.Node]:
    """Return the operators of a half that are evaluated within kernels of others alone."""
    own, small = set(half), set()
    sizes: dict[fx.Node, tuple[frozenset[fx.Node], int]] = {}  # tensors read, and operators
    for node in half:
        if is_by_element(joint, node):
            read: frozenset[fx.Node] = frozenset()
            count = 1
            for source in node.all_input_nodes:
                theirs, more = sizes.get(source, (frozenset((source,)), 0))
                read, count = read | theirs, count + more
            if len(read) <= MOST_READS and count <= MOST_OPERATORS:
                sizes[node] = read, count
                small.add(node)
    inside: set[fx.Node] = set()
    for node in reversed(half):
        if (
            is_by_element(joint, node)
            and (len(node.users) == 1 or node in small)
            and all(user in own and (user in inside or is_kernel(user)) for user in node.users)
        ):
            inside.add(node)
    return inside


def ancestors_among(node: fx.Node, inside: set[fx.Node]) -> set[fx.Node]:
    """Return what a node is computed from through some nodes alone."""
    found: set[fx.Node] = set()
    stack = [node]
    while stack:
        before = [
            source
            for source in stack.pop().all_input_nodes
            if source in inside and source not in found
        ]
        found.update(before)
        stack += before
    return found


def is_kernel(node: fx.Node) -> bool:
    """Whether an operator becomes a kernel that computes what it reads, if that is by element."""
    return bool({torch.Tag.pointwise, torch.Tag.reduction} & tags_of(node))


def is_by_element(joint: Joint, node: fx.Node) -> bool:
    """Whether a kernel can compute each element of what a node makes where it wants it."""
    made = joint.values[node]
    if not isinstance(made, torch.Tensor) or is_random(node):
        return False
    sources = [storage_of(joint.values[source]) for source in node.all_input_nodes]
    is_view = storage_of(made) in sources
    return is_view or node.target in CONSTANTS or torch.Tag.pointwise in tags_of(node)


def tags_of(node: fx.Node) -> set[Any]:
    """Return the tags of a node's operator."""
    return set(getattr(node.target, "tags", ()))
