"""Raster animation: the traces of a scene, step by step, with their legend.

A ``Scene`` comes in, a stream of ``Change`` rectangles comes out, for encoders; or one frame for a
still.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..picture_layout import Sheet, sheet_at, sheet_of
from ..scene import Frame, Scene, select_frames
from ..theme import THEMES
from .canvas import Canvas, Change, Indices, inks_of
from .panel import PanelPicture
from .sprites import draw_legend


class Picture:
    """A scene drawn tick by tick; ``play`` yields the picture frame by frame."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.sheet = scene, sheet_of(scene)
        self.moments, self.steps = scene.moments, scene.steps
        self.inks = inks_of(THEMES[scene.style.theme], self.sheet.scale)
        self.drawing = Canvas(self.sheet.pixels, self.inks)
        self.arrange(self.sheet)

    @property
    def canvas(self) -> Indices:
        """Palette indices of the current frame, (height, width)."""
        return self.drawing.pixels

    def arrange(self, sheet: Sheet) -> None:
        """Draw all that stands still, at the places of a sheet."""
        self.arranged = sheet
        self.drawing.region(0, sheet.pixels[0], 0, sheet.pixels[1])[:] = self.drawing.ground
        self.panels = [
            PanelPicture(self.drawing, self.scene, row, place)
            for row, place in zip(self.scene.rows, sheet.panels, strict=True)
        ]
        draw_legend(self.drawing, sheet.legend)

    def draw(self, tick: int, frames: Sequence[Frame]) -> None:
        """Draw a frame of each panel; the same as before where one waits, or has ended."""
        sheet, before = sheet_at(self.scene, self.sheet, tick), self.panels
        if sheet != self.arranged:
            self.arrange(sheet)
        again = [
            panel.row.title
            for panel, frame in zip(before, frames, strict=True)
            if frame is not panel.last and frame.recomputes
        ]
        others = f"{again[0]} recomputes" if len(again) == 1 else "the others recompute"
        for old, panel, frame in zip(before, self.panels, frames, strict=True):
            if panel is not old:
                panel.looks = old.looks
                panel.draw(replace(frame, changed=old.looks | frame.changed), tick)
                panel.last = frame
            elif frame is not panel.last:
                panel.draw(frame, tick)
            elif again and tick < panel.row.end:
                panel.wait(f"waits while {others}", tick)
            else:
                panel.draw_cursors(tick)

    def play(self) -> Iterator[Indices]:
        """Yield the canvas at every frame; it is the same array, changed in place."""
        moving = [panel.frames(self.steps) for panel in self.panels]
        for tick, *frames in zip(self.steps, *moving, strict=True):
            self.draw(tick, frames)
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
        self.draw(at, [next(panel.frames([at])) for panel in self.panels])

    def rgb(self) -> Any:
        """Return the current frame in colours, (height, width, 3)."""
        return self.inks.colours[self.canvas]
