"""The memory curve of a trace: what is stacked, and how many steps share a column of pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from viz.curve import BANDS, by_column, stacked
from viz.raster.sprites import Indices, Inks, text_layer
from viz.scene import live_of
from viz.sheet import HEAD, peak_words, strip_words

if TYPE_CHECKING:
    from tinyckpt.trace import Trace

CURSOR = 2
AIR = 4  # pixels between the strip's words and its sides


@dataclass(frozen=True, slots=True)
class Strip:
    """A memory strip in palette indices: filled, for the past, and in outline, for the future.

    Attributes:
        past, future: (height, width).
        words: where something is written: the cursor runs below it.
        longest: steps of the longest trace, which is what the width stands for.
        cursor: pixels of width of the line between past and future.
    """

    past: Indices
    future: Indices
    words: Any
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
    height, width = size
    unit = (height - HEAD * scale) / max(highest, 1)
    columns = by_column(stacked(trace, in_nodes), longest, width).astype(float)
    edges = np.round(np.cumsum(columns, axis=0) * unit).astype(int)
    past = np.full((height, width), inks.index(inks.theme.panel), np.uint8)
    future = past.copy()
    rows = height - 1 - np.arange(height)[:, None]
    bands = list(zip([np.zeros(width, int), *edges], edges, BANDS.values(), strict=False))
    for below, top, fill in bands:
        ink = inks.index(getattr(inks.theme, fill))
        past[(rows >= below) & (rows < top)] = ink
        future[outline(below, top, rows, scale)] = ink
    line = max(0, height - round(max(live_of(trace, in_nodes)) * unit) - scale)
    words = np.zeros((height, width), bool)
    for strip in (past, future):
        label(strip, words, trace, in_nodes, line, scale, inks)
    return Strip(past, future, words, longest, CURSOR * scale)


def outline(below: Any, top: Any, rows: Any, scale: int) -> Any:
    """Return for every pixel whether it lies on a band's upper edge, or on a step up or down.

    Args:
        below, top: of the band in every column, in pixels above the ground.
        rows: the height of every row of pixels.
        scale: pixels that a line is thick.
    """
    here = top > below
    edge = here & (rows < top) & (rows >= np.maximum(top - scale, below))
    before = np.concatenate([np.zeros(scale, int), top[:-scale]])
    near = here | np.concatenate([np.zeros(scale, bool), here[:-scale]])
    step = near & (rows < np.maximum(top, before)) & (rows >= np.minimum(top, before))
    return edge | step


def label(
    strip: Indices, written: Any, trace: Trace, in_nodes: bool, line: int, scale: int, inks: Inks
) -> None:
    """Draw the dashed line at the peak, whose upper side is ``line``, and the texts."""
    theme, width = inks.theme, strip.shape[1]
    dashes = (np.arange(width) // (4 * scale)) % 2 == 0
    strip[line : line + scale, dashes] = inks.index(theme.muted)
    gap = AIR * scale
    for text, at_the_peak in ((strip_words(trace), False), (peak_words(trace, in_nodes), True)):
        words = inks.match(text_layer(text, "Regular", 10, theme.muted, theme.panel, scale))
        x = width - words.shape[1] - gap if at_the_peak else gap
        y = max(0, line - words.shape[0]) if at_the_peak else 0
        region = strip[y : y + words.shape[0], x : x + words.shape[1]]
        region[:] = words[: region.shape[0], : region.shape[1]]
        written[y : y + words.shape[0], max(0, x - gap) : x + words.shape[1] + gap] = True
