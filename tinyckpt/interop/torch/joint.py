"""Joint forward-backward FX graph of a training step (AOTAutograd), with the role of each node.

The capture makes it; import, fusion, code generation and min-cut read it. Plain data, no logic.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import fx

Values: TypeAlias = Mapping[fx.Node, Any]  # the FakeTensor of each node, or a tuple or list of them


@dataclass(frozen=True, slots=True, eq=False)
class JointGraph:
    """The joint graph of a training step, and the roles of its nodes.

    Attributes:
        module: the FX graph.
        values: of every node.
        sources: the placeholders and constants that the caller supplies, tangents excluded.
        tangents: the placeholders for cotangents of the forward results.
        forward: the outputs of the forward pass, in the graph's order.
        gradients: the outputs of the backward pass.
        mutations: for an input that is written to, the node of its new value.
        writes: the nodes that write them, where the graph itself does, as Inductor's.
        inputs: the role of each placeholder: ``("parameter", name)``, ``("buffer", name)`` or
            ``("argument", position among the flat arguments)``; absent where the graph does not
            say, as Dynamo's.
        gradient_of: the input that each gradient belongs to, if the graph says so.
    """

    module: fx.GraphModule
    values: Values
    sources: tuple[fx.Node, ...]
    tangents: tuple[fx.Node, ...]
    forward: tuple[Any, ...]
    gradients: tuple[Any, ...]
    mutations: dict[fx.Node, fx.Node]
    writes: tuple[fx.Node, ...]
    inputs: dict[fx.Node, tuple[str, Any]]
    gradient_of: tuple[Any, ...]


def is_getitem(node: fx.Node) -> bool:
    """Whether a node takes one of several results out of a tuple."""
    return node.op == "call_function" and node.target is operator.getitem
