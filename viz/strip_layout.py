"""Layout of a memory strip: reference lines, their labels, the caption.

A ``Curve`` and a height in pixels at scale 1 come in; raster and SVG strips draw what goes out.
"""

from __future__ import annotations

from dataclasses import dataclass

from .memory_curve import Curve
from .theme import font

STRIP = 64  # least pixels of a memory strip
AIR = 4  # pixels between the strip's words and its sides
HEAD = 14  # pixels above the highest peak, for the strip's own text
WORDS = 13  # pixels: height of a label on a line of a strip
# Of the line at a limit: pixels that are drawn, and pixels between.
DASHES_OF = {"peak": (4, 4), "budget": (1, 0), "store all": (1, 1), "most": (4, 4)}


@dataclass(frozen=True, slots=True)
class StripLine:
    """A horizontal reference line across a memory strip, with a label at its right end.

    Attributes:
        words: the label.
        amount: its height, in values or bytes.
        dashes: pixels that are drawn, and pixels between.
        beside: the earlier lines so near that its label stands to the left of theirs.
    """

    words: str
    amount: int
    dashes: tuple[int, int]
    beside: tuple[int, ...] = ()


def strip_lines(curve: Curve, height: float = STRIP) -> list[StripLine]:
    """Return the lines across the strip of a curve, ``height`` pixels high."""
    lines: list[StripLine] = []
    for limit in curve.limits:
        near = tuple(
            place
            for place, line in enumerate(lines)
            if abs(line.amount - limit.amount) * (height - HEAD) < WORDS * curve.highest
        )
        lines.append(StripLine(limit.words, limit.amount, DASHES_OF[limit.name], near))
    return lines


def strip_words(curve: Curve, width: float, height: float = STRIP) -> str:
    """Return the caption inside a strip, as long as the labels of its lines leave room."""
    face = font("Regular", 10)
    room = width - 2 * AIR
    for limit in curve.limits:
        if (curve.highest - limit.amount) * (height - HEAD) < WORDS * curve.highest:
            room -= face.getlength(limit.words) + 2 * AIR
    words = list(curve.words)
    while len(words) > 1 and face.getlength(" · ".join(words)) > room:
        words.pop()
    return " · ".join(words)
