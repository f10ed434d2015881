"""Memory curve of a trace: live bytes per step, stacked by kind (kept, recomputed, gradients, ...).

Arrays of heights come out, in bytes or values, with the scales that several curves share and the
reference lines across them (budget, store-all peak). By construction the bands add up to the
trace's live memory. Drawing is done elsewhere: ``raster.memory_strip``, ``vector.memory_strip``,
``charts.timeline`` and the player stack the same bands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .node_memory import CellMemory
from .scene import counts_nodes, live_of

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace


# The bands of a curve from the bottom up, each with the theme colour that its nodes have too.
BANDS = {
    "kept": "kept",  # forward values since their first evaluation
    "recomputed": "recomputed",  # forward values from an evaluation that was not their first
    "gradients": "gradient",
    "workspace": "workspace",
}
FARTHEST = 1.5  # of the highest peak: a budget beyond it would flatten the curves


@dataclass(frozen=True, slots=True)
class Scales:
    """Scales that the curves of a picture share, so that they can be compared.

    Attributes:
        traces: all that are shown.
        in_nodes: whether memory is counted in values and not in bytes.
        longest: steps of the longest trace.
        highest: the largest amount that is shown.
        host: the largest host memory of any of them, in bytes.
    """

    traces: tuple[Trace, ...]
    in_nodes: bool
    longest: int
    highest: int
    host: int


def scales_of(traces: Sequence[Trace], in_bytes: bool = False) -> Scales:
    """Return the common scales of some traces: large enough for their peaks and budgets.

    Memory is counted in values where all have one size, unless ``in_bytes`` is set.
    """
    in_nodes = counts_nodes(traces) and not in_bytes
    peak = max(max(live_of(trace, in_nodes)) for trace in traces)
    budgets = [budget for trace in traces if (budget := budget_of(trace, in_nodes)) is not None]
    highest = max([peak, *(budget for budget in budgets if budget <= FARTHEST * peak)])
    longest = max(len(trace.steps) for trace in traces)
    host = max(max(trace.host) for trace in traces)
    return Scales(tuple(traces), in_nodes, longest, highest, host)


def budget_of(trace: Trace, in_nodes: bool) -> int | None:
    """Return the budget that a schedule was planned for, if it has one in the same unit."""
    schedule, known = trace.schedule, trace.schedule.certificate
    options = schedule.options
    budget = options.get("budget") if known is None else known.budget
    unit = options.get("memory_unit") if known is None else known.memory_unit
    if not isinstance(budget, int) or unit != ("nodes" if in_nodes else "bytes"):
        return None
    return budget


def limits_of(trace: Trace, scales: Scales) -> dict[str, int]:
    """Return the reference levels of a trace's curve: its budget and the peak of store-all."""
    limits = {}
    if (budget := budget_of(trace, scales.in_nodes)) is not None:
        limits["budget"] = budget
    for other in scales.traces:
        if other.graph is trace.graph and other.schedule.policy == "store_all":
            limits["store all"] = max(live_of(other, scales.in_nodes))
    if trace.schedule.policy == "store_all":
        limits.pop("store all", None)
    return {name: amount for name, amount in limits.items() if amount <= scales.highest}


def memory_bands(trace: Trace, in_nodes: bool) -> Any:
    """Return live memory by BANDS and step, an array (4, steps), in values or bytes.

    The sum over bands is the trace's live memory at every step: each block of memory counts once,
    for the value that it was allocated for. Results have no band of their own: the loss is a
    forward value like any other, as its node shows, and gradients are gradients.
    """
    graph = trace.graph
    backward = {
        node.id: int(node.producer >= graph.forward_count)
        for node in graph.data
        if node.producer is not None
    }
    memory = CellMemory(graph, backward, 2)
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
    """Downsample ``longest`` steps to ``width`` pixel columns, (bands, width).

    Where several steps share a column, the step with the most live memory is shown: a real moment,
    not the maximum of each band.
    """
    total = np.zeros((len(bands), longest), bands.dtype)
    total[:, : bands.shape[1]] = bands
    if longest <= width:
        return total[:, np.arange(width) * longest // width]
    edges = np.arange(width + 1) * longest // width
    sums = total.sum(axis=0)
    chosen = [start + int(sums[start:stop].argmax()) for start, stop in pairwise(edges)]
    return total[:, chosen]


def host_curve(trace: Trace) -> Any:
    """Return the bytes in host memory at every step, as the one band of a lane: (1, steps)."""
    return np.array([trace.host])


def peak_step(traces: Sequence[Trace], in_nodes: bool) -> set[int]:
    """Return the steps at which the traces reach their peaks."""
    return {
        live.index(max(live)) for live in (live_of(trace, in_nodes) for trace in traces) if live
    }
