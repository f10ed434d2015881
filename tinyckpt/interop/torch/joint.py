"""The joint graph of a training step, as it is handed from the capture to what plans it."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from torch import fx


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """The joint graph of a training step, and what its nodes are.

    Attributes:
        module: the graph, in FX.
        values: the FakeTensor of every node, or a tuple or list of them.
        sources: the placeholders and constants that the caller supplies, tangents aside.
        tangents: the placeholders for cotangents of the forward half's results.
        forward: the outputs of the forward half, as they stand in the graph.
        gradients: the outputs of the backward half.
        mutations: for an input that is written to, the node of its new value.
        writes: the nodes that write them, where the graph does it itself, as Inductor's.
        inputs: what each placeholder is: ``("parameter", name)``, ``("buffer", name)`` or
            ``("argument", position among the flat arguments)``; empty for one whose graph does not
            say, as Dynamo's.
        gradient_of: the input of which each gradient is, if the graph says so.
    """

    module: fx.GraphModule
    values: dict[fx.Node, Any]
    sources: tuple[fx.Node, ...]
    tangents: tuple[fx.Node, ...]
    forward: tuple[Any, ...]
    gradients: tuple[Any, ...]
    mutations: dict[fx.Node, fx.Node]
    writes: tuple[fx.Node, ...]
    inputs: dict[fx.Node, tuple[str, Any]]
    gradient_of: tuple[Any, ...]


def is_piece(node: fx.Node) -> bool:
    """Whether a node takes one of several results out of a tuple."""
    return node.op == "call_function" and node.target is operator.getitem
