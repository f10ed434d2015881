"""Raster plot of memory over time (memory strip): stacked, filled up to the cursor.

Past and future are rendered once; a frame copies columns. Several steps may share a pixel column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..memory_curve import STRIPES, Curve
from ..node_style import HATCH, STRIPE, STRIPE_AND_GAP
from ..strip_layout import AIR, HEAD, StripLine, strip_lines, strip_words
from .canvas import Indices, Inks

CURSOR = 2

Layers = tuple[Indices, Indices]  # past and future: text is drawn on both


@dataclass(frozen=True, slots=True)
class Strip:
    """A memory strip in palette indices: filled for the past, outlined for the future.

    Attributes:
        past, future: (height, width).
        free: mask without text: the cursor runs below it.
        longest: steps of the longest trace, which span the width.
        cursor: width of the line between past and future, in pixels.
    """

    past: Indices
    future: Indices
    free: Any
    longest: int
    cursor: int

    def column(self, step: int) -> int:
        """Return the pixel column at the end of a step, rounded up to the cursor's width.

        So the cursor of a long trace does not move in many frames, which then are smaller.
        """
        cursors = int(self.past.shape[1]) // self.cursor
        return -(-(step + 1) * cursors // self.longest) * self.cursor


def strip_of(curve: Curve, size: tuple[int, int], inks: Inks) -> Strip:
    """Render the strip of a memory curve, ``size`` = (height, width) in pixels."""
    height, width = size
    scale, thick = inks.scale, max(1, round(inks.scale))
    unit = (height - HEAD * scale) / max(curve.highest, 1)
    edges = np.round(np.cumsum(curve.columns(width).astype(float), axis=0) * unit).astype(int)
    lines = strip_lines(curve, height / scale)
    words = strip_words(curve, width / scale, height / scale)
    past = np.full((height, width), inks.index(inks.theme.panel), np.uint8)
    future = past.copy()
    rows = height - 1 - np.arange(height)[:, None]
    stripes = rows % max(2, round(STRIPE_AND_GAP * scale)) < round(STRIPE * scale)
    period = max(3, round(HATCH * scale))
    hatch = (rows - np.arange(width)) % period < max(1, round(scale))
    for below, top, fill in zip([0 * edges[0], *edges], edges, curve.fills, strict=False):
        ink, edge = inks.index(getattr(inks.theme, fill)), outline(below, top, rows, thick)
        filled = (rows >= below) & (rows < top)
        past[filled & stripes | edge if curve.striped else filled] = ink
        if fill in STRIPES:
            past[filled & hatch] = inks.index(getattr(inks.theme, STRIPES[fill]))
        future[edge] = ink
    free = np.ones((height, width), bool)
    draw_lines((past, future), free, lines, words, unit, inks)
    return Strip(past, future, free, curve.longest, max(1, round(CURSOR * scale)))


def outline(below: Any, top: Any, rows: Any, thick: int) -> Any:
    """Return the mask of a band's upper edge, with its vertical steps.

    Args:
        below, top: of the band in every column, in pixels above the ground.
        rows: the height of every row of pixels.
        thick: thickness of the line in pixels.
    """
    here = top > below
    edge = here & (rows < top) & (rows >= np.maximum(top - thick, below))
    before = np.concatenate([np.zeros(thick, int), top[:-thick]])
    near = here | np.concatenate([np.zeros(thick, bool), here[:-thick]])
    step = near & (rows < np.maximum(top, before)) & (rows >= np.minimum(top, before))
    return edge | step


def draw_lines(
    layers: Layers,
    free: Any,
    lines: Sequence[StripLine],
    words: str,
    unit: float,
    inks: Inks,
) -> None:
    """Draw the lines at the peak and at reference levels, then their labels, and the caption."""
    height, width = free.shape
    scale, thick = inks.scale, max(1, round(inks.scale))
    tops = [max(0, height - round(line.amount * unit) - thick) for line in lines]
    for line, top in zip(lines, tops, strict=True):
        drawn, gap = max(1, round(scale * line.dashes[0])), round(scale * line.dashes[1])
        dashes = np.arange(width) % (drawn + gap) < drawn
        for layer in layers:
            layer[top : top + thick, dashes] = inks.index(inks.theme.muted)
    taken: list[int] = []
    for line, top in zip(lines, tops, strict=True):
        right = width - sum(taken[place] for place in line.beside)
        taken.append(write(layers, free, line.words, right, top, inks))
    write(layers, free, words, None, 0, inks)


def write(layers: Layers, free: Any, text: str, right: int | None, line: int, inks: Inks) -> int:
    """Write a right-aligned label on a line, or at the upper left; return its width."""
    theme, gap = inks.theme, round(AIR * inks.scale)
    words = inks.line(text, "Regular", 10, theme.muted, theme.panel)
    x = gap if right is None else right - words.shape[1] - gap
    y = max(0, line - words.shape[0])
    for layer in layers:
        if right is not None:  # a line of another amount ends beside the label
            layer[y : y + words.shape[0], max(0, x - gap) : right] = inks.index(theme.panel)
        region = layer[y : y + words.shape[0], x : x + words.shape[1]]
        region[:] = words[: region.shape[0], : region.shape[1]]
    # The gap to the right end stays free: there the cursor is at the end.
    free[y : y + words.shape[0], max(0, x - gap) : x + words.shape[1]] = False
    return int(words.shape[1]) + 2 * gap
