"""The memory curve of a trace: what is stacked, and how many steps share a column of pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tinyckpt.units import size_text
from viz.curve import by_column, stacked
from viz.raster.sprites import Indices, Inks, text_layer
from viz.scene import count_text, live_of
from viz.sheet import HEAD

if TYPE_CHECKING:
    from tinyckpt.trace import Trace

CURSOR = 2


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
