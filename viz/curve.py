"""How a memory curve is stacked: a trace as heights a step, in the kinds that pictures show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.schedule import Compute, Fetch
from viz.scene import live_of

if TYPE_CHECKING:
    from tinyckpt.trace import Trace


KINDS = ("activations", "gradients", "workspace")


def stacked(trace: Trace, in_nodes: bool) -> Any:
    """Return live memory by KINDS and step, an array (3, steps), in nodes or bytes.

    Results are not a kind of their own here: the loss counts as an activation, which is what its
    node looks like, and gradients as gradients.
    """
    results = np.array(trace.output)
    forward = np.minimum(np.array(forward_results(trace)), results)
    activations = np.array(trace.activation) + forward
    gradients = np.array(trace.cotangent) + results - forward
    kinds = np.stack([activations, gradients, np.array(trace.workspace)])
    if in_nodes:
        size = max((node.nbytes for node in trace.graph.data if not node.is_source), default=1)
        kinds = kinds // max(size, 1)
    return kinds


def by_column(kinds: Any, longest: int, width: int) -> Any:
    """Return what each of ``width`` pixel columns shows of ``longest`` steps, (3, width).

    Where several steps share a column, the one with the most live memory is shown: a moment that
    was, not the largest of every kind.
    """
    total = np.zeros((len(kinds), longest), kinds.dtype)
    total[:, : kinds.shape[1]] = kinds
    if longest <= width:
        return total[:, np.arange(width) * longest // width]
    edges = np.arange(width + 1) * longest // width
    sums = total.sum(axis=0)
    chosen = [start + int(sums[start:stop].argmax()) for start, stop in pairwise(edges)]
    return total[:, chosen]


def forward_results(trace: Trace) -> list[int]:
    """Return the bytes of results of the forward half that are resident at every step."""
    graph = trace.graph
    sizes = {i: graph.data[i].nbytes for i in graph.outputs if graph.data[i].role == "activation"}
    live, column = 0, []
    for step in trace.steps:
        if isinstance(step, Compute):
            live += sum(sizes.get(data, 0) for data in graph.operators[step.operator].outputs)
        elif isinstance(step, Fetch):
            live += sizes.get(step.data, 0)
        else:
            live -= sizes.get(step.data, 0)
        column.append(live)
    return column


def peak_step(traces: Sequence[Trace], in_nodes: bool) -> set[int]:
    """Return the steps at which the traces reach their peaks."""
    return {
        live.index(max(live)) for live in (live_of(trace, in_nodes) for trace in traces) if live
    }
