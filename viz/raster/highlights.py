"""Transient highlights of a frame: lit edges, rings around inputs, byte counts of freed nodes.

An overlay on the graph of one panel, removed before the next frame: each highlight is a cached
sprite, and the pixels below it are saved and restored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.units import size_text

from ..layout.geometry import Line, Size
from ..node_style import arrow_parts, arrow_sizes, corner_of
from ..theme import font
from .canvas import OVERSAMPLE, Indices, Inks
from .sprites import distances, sprite_shape
from .text_cache import words_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..scene import Frame
    from .canvas import Box, Canvas

BEYOND = 2.5  # pixels between a node and the outer edge of its ring: within a checkpoint's
HALO = 5.0  # pixels: width of the halo of a lit arrow
QUARTER = 4  # quantisation: arrows equal to a quarter of a pixel share a sprite
MOST_TAGS = 6  # freed nodes with their bytes next to them; the caption has the total
TAG = 9  # font size of these
BELOW = 5  # pixels: overlap of a byte count below a node with its sprite, since the caption is near
AROUND = 6  # pixels around an arrow for its halo and head

Sprite = tuple[Indices, Any]  # pixels, and the mask of opaque ones


class Lights:
    """Highlights on the graph of one panel."""

    def __init__(
        self, canvas: Canvas, plan: Any, boxes: Any, origin: tuple[float, float], highest: float
    ) -> None:
        self.canvas, self.plan, self.boxes, self.origin = canvas, plan, boxes, origin
        self.highest = round(highest * canvas.scale)  # upper limit: the heading is above
        self.inks, self.scale = canvas.inks, canvas.scale
        self.below: list[
            tuple[tuple[int, int, int, int], Indices]
        ] = []  # the saved pixels below highlights
        self.arrows: dict[tuple[int, int], list[Line]] = {}
        for read in plan.reads:
            self.arrows.setdefault((read.source, read.target), []).extend(read.lines)
        self.edges: dict[tuple[int, int], list[tuple[Sprite, int, int]]] = {}
        self.taken = np.array([*self.shapes(), *self.headings()]).reshape(-1, 4)
        self.tags = words_of("SemiBold", TAG, self.inks.theme.ink, self.inks)

    def clear(self) -> None:
        """Remove the highlights of the last frame."""
        for box, before in reversed(self.below):
            self.canvas.region(*box)[:] = before
        self.below.clear()

    def draw(self, frame: Frame) -> None:
        """Highlight the reads of a frame, and write the freed bytes next to freed nodes."""
        if frame.active is not None:
            for cell in frame.reads:
                for sprite, x, y in self.edge(cell, frame.active):
                    self.put(sprite, x, y)
            for cell in frame.reads:
                self.around(cell)
        told = [cell for cell, nbytes in frame.freed.items() if nbytes]
        written: list[Box] = []
        for cell in told[:MOST_TAGS]:
            self.tag(cell, f"\N{MINUS SIGN}{size_text(frame.freed[cell])}", written)

    def put(self, sprite: Sprite, x: int, y: int) -> None:
        """Draw a sprite at (x, y) in pixels, clipped to the canvas; save the pixels below."""
        picture, where = sprite
        high, wide = self.canvas.pixels.shape
        top, left = max(0, -y), max(0, -x)
        bottom, right = min(picture.shape[0], high - y), min(picture.shape[1], wide - x)
        if bottom <= top or right <= left:
            return
        box = (y + top, y + bottom, x + left, x + right)
        region = self.canvas.region(*box)
        self.below.append((box, region.copy()))
        inside = (slice(top, bottom), slice(left, right))
        np.copyto(region, picture[inside], where=where[inside])

    def around(self, cell: int) -> None:
        """Draw a ring around a cell."""
        top, _, left, _ = self.boxes[cell]
        size = self.plan.sizes[cell]
        corner = corner_of(size) if self.plan.cells[cell].group else size[1] / 2
        self.put(ring_sprite(size, corner, self.inks), left, top)

    def edge(self, source: int, target: int) -> list[tuple[Sprite, int, int]]:
        """Return the lit sprites of the arrows from one cell to another, and their positions."""
        if (source, target) not in self.edges:
            self.edges[source, target] = [
                self.lit(line) for line in self.arrows.get((source, target), ())
            ]
        return self.edges[source, target]

    def lit(self, line: Line) -> tuple[Sprite, int, int]:
        """Return the lit sprite of an arrow, and its position."""
        left = min(x for x, _ in line) - AROUND
        top = min(y for _, y in line) - AROUND
        x, y = (
            (place + begin) * self.scale
            for place, begin in zip((left, top), self.origin, strict=True)
        )
        # The fraction of a pixel is applied to the arrow within its sprite.
        over = (x % 1, y % 1)
        points = tuple(
            (
                round(((px - left) * self.scale + over[0]) * QUARTER) / QUARTER,
                round(((py - top) * self.scale + over[1]) * QUARTER) / QUARTER,
            )
            for px, py in line
        )
        sprite = edge_sprite(points, self.plan.diameter, self.inks)
        return sprite, int(x // 1), int(y // 1)

    def tag(self, cell: int, text: str, written: list[Box]) -> None:
        """Write the bytes of a freed node above or below it, in the outer place if that is free.

        Neither a name nor another node or label is covered; without such a place, nothing is
        written: the caption has the total.
        """
        picture, _ = self.tags.word(text)
        high, wide = picture.shape
        top, bottom, left, right = self.boxes[cell]
        x = min(max(0, (left + right - wide) // 2), self.canvas.pixels.shape[1] - wide)
        above = top + round(4 * self.scale) - high
        below = bottom - round(BELOW * self.scale)
        places = [below] if above < self.highest else [above, below]
        others = np.concatenate([np.delete(self.taken, cell, 0), np.array(written).reshape(-1, 4)])
        for y in reversed(places) if self.plan.cells[cell].backward else places:
            box = (y, y + high, x, x + wide)
            if not crosses(box, others):
                self.put((picture, np.ones(picture.shape, bool)), x, y)
                written.append(box)
                return

    def shapes(self) -> Iterator[Box]:
        """Yield the box of every node, without ring and halo."""
        for (top, bottom, left, right), (wide, high) in zip(
            self.boxes, self.plan.sizes, strict=True
        ):
            x, y = round(wide * self.scale / 2), round(high * self.scale / 2)
            across, down = (left + right) // 2, (top + bottom) // 2
            yield down - y, down + y, across - x, across + x

    def headings(self) -> Iterator[Box]:
        """Yield the box of every scope's name."""
        face = font("Regular", 10)
        for heading in self.plan.headings:
            left, bottom = self.origin[0] + heading.left, self.origin[1] + heading.y
            wide = min(face.getlength(heading.text), heading.right - heading.left)
            box = bottom - sum(face.getmetrics()), bottom, left, left + wide
            yield tuple(round(side * self.scale) for side in box)


def crosses(box: Box, others: Any) -> bool:
    """Whether a box has a pixel in common with one of others, an array (count, 4)."""
    top, bottom, left, right = others.T
    apart = (bottom <= box[0]) | (top >= box[1]) | (right <= box[2]) | (left >= box[3])
    return not apart.all()


@lru_cache(maxsize=256)
def ring_sprite(size: Size, corner: float, inks: Inks) -> Sprite:
    """Return a ring around a node that is read."""
    theme, scale = inks.theme, inks.scale
    shape = sprite_shape(size, scale)

    def paint(draw: Any, factor: float) -> None:
        across, down = shape[1] * OVERSAMPLE / 2, shape[0] * OVERSAMPLE / 2
        for beyond, colour in ((BEYOND, theme.halo), (0.0, theme.ink)):
            x, y = (size[0] / 2 + beyond) * factor, (size[1] / 2 + beyond) * factor
            corners = (across - x, down - y, across + x, down + y)
            draw.rounded_rectangle(corners, (corner + beyond) * factor, fill=colour)

    sprite = inks.painted(shape, paint)
    far = distances(shape, size, corner, scale)
    return sprite, (far > -0.25 * scale) & (far <= (BEYOND + 0.3) * scale)


@lru_cache(maxsize=1024)
def edge_sprite(points: Line, diameter: float, inks: Inks) -> Sprite:
    """Return a lit arrow; ``points`` are in pixels of its sprite."""
    theme, scale = inks.theme, inks.scale
    wide, high = (int(max(place) + AROUND * scale) + 1 for place in zip(*points, strict=True))
    head, width = arrow_sizes(diameter)
    shaft, tip = arrow_parts(points, 1.5 * head * scale)

    def paint(draw: Any, _: float) -> None:
        bold = [(x * OVERSAMPLE, y * OVERSAMPLE) for x, y in shaft]
        thick = HALO * scale * OVERSAMPLE
        draw.line(bold, fill=theme.halo, width=round(thick), joint="curve")
        draw.line(
            bold, fill=theme.ink, width=round((width + 0.7) * scale * OVERSAMPLE), joint="curve"
        )
        draw.polygon([(x * OVERSAMPLE, y * OVERSAMPLE) for x, y in tip], fill=theme.ink)

    sprite = inks.painted((high, wide), paint)
    return sprite, sprite != inks.index(theme.background)
