"""The order of a joint graph's nodes: the forward half, then the backward half.

Two things differ from PyTorch's order. Results nobody needs are left out. And what the forward half
computes and its results do not need stands right before its first reader in the backward half,
since otherwise a plan would have to compute all of it when the backward half begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import fx

from tinyckpt.interop.torch.capture import is_random
from tinyckpt.interop.torch.joint import Joint, is_piece


def halves(joint: Joint) -> tuple[list[fx.Node], list[fx.Node]]:
    """Return the nodes of either half, in the order in which they are to be evaluated.

    Without those that nobody needs, but with all that draw random numbers: what follows them would
    draw others. These stay in their half, in their order.
    """
    nodes = [node for node in joint.module.graph.nodes if node.op == "call_function"]
    random = [node for node in nodes if is_random(node)]
    after_tangents = descendants(nodes, joint.tangents)
    early = [node for node in random if node not in after_tangents]
    forward = ancestors([*joint.forward, *joint.mutations.values(), *early])
    needed = ancestors([*joint.gradients, *random]) | forward
    calls = [
        node for node in nodes if node in needed and not is_piece(node) and node not in joint.writes
    ]
    late = [node for node in calls if node not in forward]
    return [node for node in calls if node in forward], lazily(late, after_tangents)


def ancestors(ends: Iterable[Any]) -> set[fx.Node]:
    """Return some nodes and all that they are computed from."""
    found: set[fx.Node] = set()
    stack = [node for node in ends if isinstance(node, fx.Node)]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found


def descendants(nodes: Iterable[fx.Node], begins: Iterable[fx.Node]) -> set[fx.Node]:
    """Return some nodes and all that are computed from them."""
    found = set(begins)
    for node in nodes:
        if any(source in found for source in node.all_input_nodes):
            found.add(node)
    return found


def lazily(nodes: Sequence[fx.Node], after_tangents: set[fx.Node]) -> list[fx.Node]:
    """Return nodes with those that no cotangent flows through right before their first reader."""
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
