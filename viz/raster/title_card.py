"""Title card: first frame of an animation, legible as a thumbnail, with the schedule's totals.

Title, network and cost cover heading and graph; the memory strip below is drawn in full, as its
shape identifies the policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..node_style import truncated
from ..theme import font
from .canvas import Indices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .canvas import Canvas

LARGEST, SMALLEST = 48, 12  # pixels: largest title, smallest line
SHARE = 0.54  # size of the lines below, as a share of the title's
LEADING = 1.24  # line spacing, as a share of a line's size
FILLED = 0.94  # largest share of the height that lines take


def sizes_of(lines: Sequence[str], wide: float, high: float) -> list[int]:
    """Return the font size of each line of a card, as large as all of them fit."""
    title = LARGEST
    while title * SHARE > SMALLEST:
        sizes = [title, *(round(title * SHARE) for _ in lines[1:])]
        tall = LEADING * sum(sizes)
        if tall <= FILLED * high and all(
            font(weight_of(place), size).getlength(line) <= wide
            for place, (line, size) in enumerate(zip(lines, sizes, strict=True))
        ):
            return sizes
        title -= 2
    return [max(round(title), SMALLEST), *(SMALLEST for _ in lines[1:])]


def weight_of(line: int) -> str:
    """Return the font weight of a card's line."""
    return "SemiBold" if line in (0, 2) else "Regular"


def draw_card(canvas: Canvas, region: Indices, lines: Sequence[str]) -> None:
    """Draw a card over a region of the canvas.

    Args:
        canvas: whose colours are used.
        region: of its pixels.
        lines: a title, and lines below it; lines that do not fit are left out.
    """
    theme, scale = canvas.inks.theme, canvas.scale
    region[:] = canvas.ground
    high, wide = region.shape[0] / scale, region.shape[1] / scale
    shown = list(lines)
    while len(shown) > 2 and sizes_of(shown, wide, high)[1] <= SMALLEST + 2:
        shown.pop()
    sizes = sizes_of(shown, wide, high)
    y = max(0.0, (high - LEADING * sum(sizes)) / 2)
    for place, (line, size) in enumerate(zip(shown, sizes, strict=True)):
        ink = theme.ink if weight_of(place) == "SemiBold" else theme.muted
        text = truncated(line, weight_of(place), size, wide)
        coverage = canvas.inks.coverage(text, weight_of(place), size)
        top = round(y * scale)
        target = region[top : top + coverage.shape[0], : coverage.shape[1]]
        ramp = canvas.inks.ramp(ink, theme.background)
        np.copyto(target, ramp[coverage[: target.shape[0], : target.shape[1]]])
        y += LEADING * size
