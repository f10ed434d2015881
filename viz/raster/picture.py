"""Raster animation: the traces of a scene, step by step, with their legend.

A ``Scene`` comes in, a stream of ``Change`` rectangles comes out, for encoders; or one frame for a
still.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..picture_layout import sheet_of
from ..scene import Scene, select_frames
from ..theme import THEMES
from .canvas import Canvas, Change, Indices, inks_of
from .panel import PanelPicture
from .sprites import draw_legend


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
        for _ in self.steps:
            for panel, stream in zip(self.panels, moving, strict=True):
                panel.draw(next(stream))
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
