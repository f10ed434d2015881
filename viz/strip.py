"""The memory curve of a trace: what is stacked, and how many steps share a column of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.schedule import Compute, Fetch
from tinyckpt.units import size_text
from viz.scene import count_text, live_of
from viz.sprites import Indices, Inks, text_layer

if TYPE_CHECKING:
    from tinyckpt.trace import Trace

KINDS = ("activations", "gradients", "workspace")
HEAD = 14  # pixels above the highest peak, for the strip's own text
CURSOR = 2


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


@dataclass(frozen=True, slots=True)
class Strip:
    """A memory strip in palette indices: in full colour, for the past, and pale, for the future.

    Attributes:
        past, future: (height, width).
        longest: steps of the longest trace, which is what the width stands for.
        cursor: pixels of width of the line between past and future.
    """

    past: Indices
    future: Indices
    longest: int
    cursor: int

    def column(self, step: int) -> int:
        """Return the pixel column at the end of a step: a whole number of cursors, rounded up.

        So the cursor of a long trace stands still in many frames, which then are smaller.
        """
        cursors = int(self.past.shape[1]) // self.cursor
        return -(-(step + 1) * cursors // self.longest) * self.cursor


def strip_of(
    trace: Trace, in_nodes: bool, longest: int, highest: int, size: tuple[int, int], scale: int,
    inks: Inks,
) -> Strip:  # fmt: skip
    """Return the strip of a trace, ``size`` = (height, width) in pixels, on shared scales."""
    theme = inks.theme
    height, width = size
    unit = (height - HEAD * scale) / max(highest, 1)
    columns = by_column(stacked(trace, in_nodes), longest, width).astype(float)
    strips = []
    for fills in (
        (theme.kept, theme.gradient, theme.workspace),
        (theme.kept_pale, theme.gradient_pale, theme.workspace_pale),
    ):
        strip = np.full((height, width), inks.index(theme.panel), np.uint8)
        rows = height - 1 - np.arange(height)[:, None]
        edges = np.round(np.cumsum(columns, axis=0) * unit).astype(int)
        for top, below, fill in zip(edges, [np.zeros(width, int), *edges], fills, strict=False):
            strip[(rows >= below) & (rows < top)] = inks.index(fill)
        label(strip, trace, in_nodes, round(max(live_of(trace, in_nodes)) * unit), scale, inks)
        strips.append(strip)
    return Strip(strips[0], strips[1], longest, CURSOR * scale)


def label(strip: Indices, trace: Trace, in_nodes: bool, peak: int, scale: int, inks: Inks) -> None:
    """Draw the dashed line at the peak, ``peak`` pixels above the ground, and the texts."""
    theme = inks.theme
    height, width = strip.shape
    line = max(0, height - peak - scale)
    dashes = (np.arange(width) // (4 * scale)) % 2 == 0
    strip[line : line + scale, dashes] = inks.index(theme.muted)
    nodes = f"{count_text(trace.peak_nodes)} nodes = " if in_nodes else ""
    left = "live memory (grey: workspace)" if any(trace.workspace) else "live memory"
    right = f"peak {nodes}{size_text(trace.peak_bytes)}"
    gap = 4 * scale
    for text, at_the_peak in ((left, False), (right, True)):
        words = inks.match(text_layer(text, "Regular", 10, theme.muted, theme.panel, scale))
        x = width - words.shape[1] - gap if at_the_peak else gap
        y = max(0, line - words.shape[0]) if at_the_peak else 0
        region = strip[y : y + words.shape[0], x : x + words.shape[1]]
        region[:] = words[: region.shape[0], : region.shape[1]]


def peak_step(traces: Sequence[Trace], in_nodes: bool) -> set[int]:
    """Return the steps at which the traces reach their peaks."""
    return {
        live.index(max(live)) for live in (live_of(trace, in_nodes) for trace in traces) if live
    }
