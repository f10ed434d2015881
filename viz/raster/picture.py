"""Raster animation: the traces of a scene, frame by frame, with their legend.

A ``Scene`` comes in, a stream of ``Change`` rectangles comes out, for encoders.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..picture_layout import sheets_of
from ..scene import Scene
from ..theme import THEMES
from .canvas import Canvas, Change, Indices, inks_of
from .panel import PanelPicture
from .sprites import draw_legend


class Picture:
    """A scene drawn tick by tick, on one sheet after the other."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.sheets = scene, sheets_of(scene)
        self.inks = inks_of(THEMES[scene.style.theme], self.sheets[0].scale)
        self.drawing = Canvas(self.sheets[0].pixels, self.inks)
        self.panels: list[PanelPicture] = []  # on the sheet that is played

    @property
    def canvas(self) -> Indices:
        """Palette indices of the current frame, (height, width)."""
        return self.drawing.pixels

    def play(self) -> Iterator[Indices]:
        """Yield the canvas at every frame; it is the same array, changed in place."""
        for sheet in self.sheets:
            self.drawing.region(0, sheet.pixels[0], 0, sheet.pixels[1])[:] = self.drawing.ground
            self.panels = [
                PanelPicture(self.drawing, self.scene, row, place)
                for row, place in zip(self.scene.rows, sheet.panels, strict=True)
            ]
            draw_legend(self.drawing, sheet.legend)
            for _ in zip(*(panel.play(sheet.ticks) for panel in self.panels), strict=True):
                yield self.canvas

    def changes(self) -> Iterator[Change]:
        """Yield the change of every frame; the first is the whole picture."""
        for _ in self.play():
            yield self.drawing.change()

    def rgb(self) -> Any:
        """Return the current frame in colours, (height, width, 3)."""
        return self.inks.colours[self.canvas]
