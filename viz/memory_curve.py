"""Memory curve of a trace: live bytes per step, stacked by kind (kept, recomputed, gradients, ...).

Arrays of heights come out, in bytes or values. By construction the bands add up to the trace's live
memory. A ``Curve`` is one of them as data to draw, on the scales of its scene:
``raster.memory_strip``, ``vector.memory_strip``, ``charts.timeline`` and the player stack the same
bands.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .node_memory import CellMemory

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace


# The ink of the stripes on a fill that could be taken for another without colour.
STRIPES = {"recomputed": "kept", "staying": "gradient"}
# The bands of a curve from the bottom up, each with the theme colour that its nodes have too.
BANDS = {
    "kept": "kept",  # forward values since their first evaluation
    "recomputed": "recomputed",  # forward values from an evaluation that was not their first
    "gradients": "gradient",
    "results": "staying",  # gradients that are results, such as weight gradients
    "workspace": "workspace",
}


@dataclass(frozen=True, slots=True)
class Limit:
    """A reference level of a memory curve.

    Attributes:
        name: peak, budget, store all (that policy's peak), or most (of host memory).
        amount: its height, in values or bytes.
        words: its label.
    """

    name: str
    amount: int
    words: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A memory curve as data to draw: of the device, or of the host.

    Attributes:
        limits: the levels across it, the highest amount of the curve first.
        words: the captions inside it, the most important one first.
        fills: the theme colour of each kind.
        bands: heights by kind and step, in values or bytes: an array (kinds, steps).
        longest: the steps that its width stands for.
        highest: the amount that its height stands for.
        striped: whether it is of the host, which is striped as nodes there are.
    """

    limits: tuple[Limit, ...]
    words: tuple[str, ...]
    fills: tuple[str, ...]
    bands: Any
    longest: int
    highest: int
    striped: bool = False

    def columns(self, width: int) -> Any:
        """Return the bands downsampled to pixel columns, (kinds, width)."""
        return by_column(self.bands, self.longest, width)


def memory_bands(trace: Trace, in_nodes: bool) -> Any:
    """Return live memory by BANDS and step, an array (5, steps), in values or bytes.

    The sum over bands is the trace's live memory at every step: each block of memory counts once,
    for the value that it was allocated for. The loss has no band of its own: it is a forward value
    like any other, as its node shows.
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
        results = memory.bytes_results[1]
        rows.append((memory.bytes[0] - again, again, memory.bytes[1] - results, results))
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
