"""How a memory curve is stacked: a trace as heights a step, in the bands that pictures show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from viz.memory import Memory
from viz.scene import live_of

if TYPE_CHECKING:
    from tinyckpt.trace import Trace


# What a curve is stacked of, from the ground up, and the fill that each band shares with its nodes.
BANDS = {
    "kept": "kept",  # forward values since their first evaluation
    "recomputed": "recomputed",  # forward values from an evaluation that was not their first
    "gradients": "gradient",
    "workspace": "workspace",
}


def stacked(trace: Trace, in_nodes: bool) -> Any:
    """Return live memory by BANDS and step, an array (4, steps), in nodes or bytes.

    Added up, they are the trace's live memory at every step: each block of memory counts once, for
    the value that it was taken for. Results are no band of their own: the loss is a forward value
    like any other, which is what its node looks like, and gradients are gradients.
    """
    graph = trace.graph
    backward = {
        node.id: int(node.producer >= graph.forward_count)
        for node in graph.data
        if node.producer is not None
    }
    memory = Memory(graph, backward, 2)
    rows = []
    for step in trace.steps:
        memory.take(step)
        again = memory.bytes_again[0]
        rows.append((memory.bytes[0] - again, again, memory.bytes[1]))
    bands = np.array([*zip(*rows, strict=True), trace.workspace])
    if in_nodes:
        bands = bands // max(node.nbytes for node in graph.data if not node.is_source)
    return bands


def by_column(bands: Any, longest: int, width: int) -> Any:
    """Return what each of ``width`` pixel columns shows of ``longest`` steps, (bands, width).

    Where several steps share a column, the one with the most live memory is shown: a moment that
    was, not the largest of every kind.
    """
    total = np.zeros((len(bands), longest), bands.dtype)
    total[:, : bands.shape[1]] = bands
    if longest <= width:
        return total[:, np.arange(width) * longest // width]
    edges = np.arange(width + 1) * longest // width
    sums = total.sum(axis=0)
    chosen = [start + int(sums[start:stop].argmax()) for start, stop in pairwise(edges)]
    return total[:, chosen]


def peak_step(traces: Sequence[Trace], in_nodes: bool) -> set[int]:
    """Return the steps at which the traces reach their peaks."""
    return {
        live.index(max(live)) for live in (live_of(trace, in_nodes) for trace in traces) if live
    }
