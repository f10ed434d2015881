"""Memoised operator measurements: each distinct operator of a recorded step is measured once.

``workspace`` and ``costs`` measure nodes of an FX graph; an eager recording has none, so each
distinct call becomes an FX node here, with stand-ins for the tensors that it reads.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import fx

from tinyckpt.interop.torch.capture import FakeMode
from tinyckpt.interop.torch.costs import flops_of
from tinyckpt.interop.torch.infer_shapes import stand_in
from tinyckpt.interop.torch.isolated_worker import TOGETHER
from tinyckpt.interop.torch.known_values import true_elements
from tinyckpt.interop.torch.pytrees import map_tensors, tree_map
from tinyckpt.interop.torch.workspace import MeasuredOperator, measure, measure_ahead


class DistinctOperators:
    """The distinct operator calls of a step, and the call of each event.

    Args:
        mode: makes the stand-ins.
        measuring: whether to measure operators, most of them while others are still recorded.

    Attributes:
        graph, values: one node per distinct call, unordered, and its stand-in values.
        node_of: the node by its key: operator, argument layouts, constants.
        events: the node of each event.
    """

    def __init__(self, mode: FakeMode, measuring: bool) -> None:
        self.mode, self.measuring = mode, measuring
        self.graph = fx.Graph()
        self.values: dict[fx.Node, Any] = {}
        self.node_of: dict[Any, fx.Node] = {}
        self.events: dict[int, fx.Node] = {}

    def note(self, now: int, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Record an event that evaluates an operator."""
        key = func, repr(tree_map(layout, (args, kwargs)))
        if key not in self.node_of:
            given = map_tensors(self.placeholder, (args, kwargs))
            node = self.graph.create_node("call_function", func, *given)
            self.values[node] = map_tensors(partial(stand_in, self.mode), result)
            self.node_of[key] = node
            if self.measuring and len(self.node_of) % TOGETHER == 0:
                measure_ahead(self.values, [*self.node_of.values()][-TOGETHER:])
        self.events[now] = self.node_of[key]

    def placeholder(self, value: torch.Tensor) -> fx.Node:
        """Return a placeholder node for a tensor."""
        node = self.graph.placeholder("given")
        self.values[node] = stand_in(self.mode, value)
        return node

    def measured(self, events: int) -> tuple[list[int], list[int], dict[int, tuple[int, ...]]]:
        """Return workspace and FLOPs of every event, and the storage sizes of measured results."""
        nodes = list(self.node_of.values())
        found = dict.fromkeys(nodes, MeasuredOperator())
        if self.measuring:
            found = measure(self.values, nodes, timed=False)
        counted = {node: flops_of(self.values, node) for node in nodes}
        workspace, flops = [0] * events, [0] * events
        for event, node in self.events.items():
            workspace[event], flops[event] = found[node].workspace, counted[node]
        return workspace, flops, {event: found[node].outputs for event, node in self.events.items()}


def layout(value: Any) -> Any:
    """Return what an evaluation's cost depends on in an argument: a tensor's layout and device."""
    if not isinstance(value, torch.Tensor):
        return value
    nbytes = value.untyped_storage().nbytes()
    count = true_elements(value)
    return (value.dtype, value.device, tuple(value.shape), value.stride(), nbytes, count)
