"""Raster animation: the traces of a scene, step by step, with their legend.

A ``Scene`` comes in, a stream of ``Change`` rectangles comes out, for encoders; or one
frame for a still.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..node_looks import NodeLook
from ..node_style import arrow_sizes
from ..picture_layout import Item, sheet_of
from ..scene import Scene, select_frames
from ..theme import THEMES
from .canvas import Canvas, Change
from .inks import TRANSPARENT, Indices, Inks, inks_of
from .panel import PanelPicture, draw_arrow
from .sprites import node_sprite

ARROW = 20  # pixels: length of the legend's arrow, and height of its sprite


class Picture:
    """A scene drawn in step; ``play`` yields the picture frame by frame."""

    def __init__(self, scene: Scene) -> None:
        sheet = sheet_of(scene)
        self.moments, self.steps = scene.moments, scene.steps
        self.inks = inks_of(THEMES[scene.style.theme], sheet.scale)
        self.drawing = Canvas(sheet.pixels, self.inks)
        self.panels = [
            PanelPicture(self.drawing, scene, row, place)
            for row, place in zip(scene.rows, sheet.panels, strict=True)
        ]
        draw_legend(self.drawing, sheet.legend)

    @property
    def canvas(self) -> Indices:
        """Palette indices of the current frame, (height, width)."""
        return self.drawing.pixels

    def play(self) -> Iterator[Indices]:
        """Yield the canvas at every frame; it is the same array, changed in place."""
        moving = [panel.frames(self.steps) for panel in self.panels]
        for step in self.steps:
            for panel, stream in zip(self.panels, moving, strict=True):
                panel.draw(next(stream))
                if step < 0:
                    panel.draw_card()
            yield self.canvas

    def changes(self) -> Iterator[Change]:
        """Yield the change of every frame; the first is the whole picture."""
        for _ in self.play():
            yield self.drawing.change()

    def show(self, step: int) -> None:
        """Draw the frame of a still: the last selected one at or before a step.

        Raises:
            OptionError: if the step is out of range.
        """
        (at,), _ = select_frames(self.moments, (), step, step, None)
        for panel in self.panels:
            panel.draw(next(panel.frames([at])))

    def rgb(self) -> Any:
        """Return the current frame in colours, (height, width, 3)."""
        return self.inks.colours[self.canvas]


def draw_legend(canvas: Canvas, items: Sequence[Item]) -> None:
    """Draw the legend."""
    scale, theme = canvas.scale, canvas.inks.theme
    for item in items:
        icon = legend_icon(item.look, canvas.inks)
        left = round(item.x * scale - icon.shape[1] / 2)
        picture = np.where(icon == TRANSPARENT, canvas.ground, icon).astype(np.uint8)
        canvas.put(picture, left, round(item.y * scale - icon.shape[0] / 2))
        canvas.text(item.words, item.y - 8, item.name, "Regular", 12, theme.muted)


def arrow_sprite(inks: Inks) -> Indices:
    """Return the sprite of the legend's arrow."""

    def paint(draw: Any, factor: float) -> None:
        head, line = arrow_sizes(ARROW)
        ends = ((1.0, ARROW / 2), (ARROW - 1.0, ARROW / 2))
        draw_arrow(draw, ends, factor, head, line, inks.theme.edge)

    side = round(ARROW * inks.scale)
    sprite = inks.painted((side, side), paint)
    sprite[sprite == inks.index(inks.theme.background)] = TRANSPARENT
    return sprite


@lru_cache(maxsize=256)
def legend_icon(look: NodeLook | None, inks: Inks) -> Indices:
    """Return the sprite of a legend's node, trimmed at its sides."""
    sprite = arrow_sprite(inks) if look is None else node_sprite(look, (10.0, 10.0), inks)
    columns = np.flatnonzero((sprite != TRANSPARENT).any(axis=0))
    return sprite[:, columns[0] : columns[-1] + 1]
