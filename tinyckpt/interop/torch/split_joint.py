"""Forward-backward partition of a joint graph, with dead code elimination and code sinking.

Two things differ from PyTorch's node order. Dead code is eliminated. And forward operators that the
forward results do not depend on are moved to right before their first consumer in the backward
pass, since otherwise a plan would have to compute all of them when the backward pass begins.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from torch import fx

from tinyckpt.interop.torch.capture import is_random
from tinyckpt.interop.torch.joint import JointGraph, is_getitem


def split_forward_backward(joint: JointGraph) -> tuple[list[fx.Node], list[fx.Node]]:
    """Return the nodes of the forward and of the backward pass, in evaluation order.

    Dead code is eliminated, random operators excepted: later ones would draw other numbers. These
    stay in their pass, in their order.
    """
    nodes = [node for node in joint.module.graph.nodes if node.op == "call_function"]
    random = [node for node in nodes if is_random(node)]
    after_tangents = descendants(nodes, joint.tangents)
    early = [node for node in random if node not in after_tangents]
    forward = ancestors([*joint.forward, *joint.mutations.values(), *early])
    needed = ancestors([*joint.gradients, *random]) | forward
    calls = [
        node
        for node in nodes
        if node in needed and not is_getitem(node) and node not in joint.writes
    ]
    late = [node for node in calls if node not in forward]
    return [node for node in calls if node in forward], lazily_ordered(late, after_tangents)


def ancestors(ends: Iterable[Any], among: Container[fx.Node] | None = None) -> set[fx.Node]:
    """Return some nodes and all their ancestors (a backward slice), through some nodes alone."""
    found: set[fx.Node] = set()
    stack = [node for node in ends if isinstance(node, fx.Node)]
    while stack:
        node = stack.pop()
        if node not in found and (among is None or node in among):
            found.add(node)
            stack += node.all_input_nodes
    return found


def descendants(nodes: Iterable[fx.Node], begins: Iterable[fx.Node]) -> set[fx.Node]:
    """Return some nodes and all their descendants."""
    found = set(begins)
    for node in nodes:
        if any(source in found for source in node.all_input_nodes):
            found.add(node)
    return found


def lazily_ordered(nodes: Sequence[fx.Node], after_tangents: set[fx.Node]) -> list[fx.Node]:
    """Move nodes that no cotangent flows through to right before their first consumer."""
    position = {node: index for index, node in enumerate(nodes)}
    placed: set[fx.Node] = set()
    order: list[fx.Node] = []
    flowing = [node for node in nodes if node in after_tangents]
    for node in (*flowing, *nodes):
        missing: set[fx.Node] = set()
        stack = [node]
        while stack:
            wanted = stack.pop()
            if wanted not in placed and wanted not in missing:
                missing.add(wanted)
                stack += wanted.all_input_nodes
        placed |= missing
        order += sorted((n for n in missing if n in position), key=position.__getitem__)
    return order
