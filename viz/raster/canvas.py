"""The pixels of a picture, as palette indices, and how text and pictures get onto them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from viz.layout.place import MARGIN, WIDTH
from viz.raster.sprites import Digits, Indices, Inks, inks_of, text_layer
from viz.scene import count_text, live_of, live_text
from viz.sheet import COUNTERS
from viz.theme import RGB, Theme, font

if TYPE_CHECKING:
    from tinyckpt.trace import Trace

Box = tuple[int, int, int, int]  # top, bottom, left, right, in pixels of the canvas


@dataclass(frozen=True, slots=True)
class Change:
    """What differs between a frame and the one before it: a rectangle.

    Attributes:
        left, top: where the rectangle lies on the canvas.
        pixels: its palette indices, (height, width); where nothing changed they are the number of
            colours, an index that no colour has. The first frame's are the whole canvas.
    """

    left: int
    top: int
    pixels: Indices


class Canvas:
    """A picture in the making.

    Attributes:
        pixels: palette indices, (height, width); changed in place.
        inks: the palette.
        ground: the background's index.
        scale: pixels for every pixel at scale 1, in which positions of text are given.
    """

    def __init__(self, height: int, inks: Inks, scale: int) -> None:
        self.inks, self.scale = inks, scale
        self.ground = inks.index(inks.theme.background)
        self.pixels = np.full((height * scale, WIDTH * scale), self.ground, np.uint8)
        self.shown: Indices = None  # the pixels at the last change, once there was one
        self.touched: dict[Box, None] = {}  # where they may differ from the pixels now

    def region(self, top: int, bottom: int, left: int, right: int) -> Indices:
        """Return a part of the pixels to draw on; whatever moves is drawn on such parts."""
        self.touched[top, bottom, left, right] = None
        return self.pixels[top:bottom, left:right]

    def change(self) -> Change:
        """Return what differs from the canvas at the last call, or all of it at the first."""
        if self.shown is None:
            self.shown = self.pixels.copy()
            self.touched.clear()
            return Change(0, 0, self.shown.copy())
        masks = []
        for box in self.touched:
            top, bottom, left, right = box
            differs = self.pixels[top:bottom, left:right] != self.shown[top:bottom, left:right]
            if differs.any():
                masks.append((box, differs))
        self.touched.clear()
        return self.patch(masks)

    def patch(self, masks: Sequence[tuple[Box, Any]]) -> Change:
        """Return one rectangle around what differs; ``masks`` say where within their boxes."""
        unchanged = len(self.inks.colours)
        if not masks:  # a frame all the same: one pixel that shows what was there
            return Change(0, 0, np.full((1, 1), unchanged, np.uint8))
        tops, bottoms, lefts, rights = zip(*(box for box, _ in masks), strict=True)
        top, left = min(tops), min(lefts)
        pixels = np.full((max(bottoms) - top, max(rights) - left), unchanged, np.uint8)
        for (y0, y1, x0, x1), differs in masks:
            new = self.pixels[y0:y1, x0:x1]
            np.copyto(pixels[y0 - top : y1 - top, x0 - left : x1 - left], new, where=differs)
            self.shown[y0:y1, x0:x1] = new
        return Change(left, top, pixels)

    def put(self, sprite: Indices, x: int, y: int) -> None:
        """Copy a picture to (x, y), in pixels of the canvas."""
        height, width = sprite.shape
        self.pixels[y : y + height, x : x + width] = sprite

    def text(self, x: float, y: float, text: str, weight: str, size: int, ink: RGB) -> int:
        """Write text with its top left corner at (x, y), at scale 1; return its width there."""
        line = words(text, weight, size, ink, self.inks.theme, self.scale)
        line = line[:, : self.pixels.shape[1] - round(x * self.scale)]
        self.put(line, round(x * self.scale), round(y * self.scale))
        return int(line.shape[1] / self.scale)


# Pictures have most of their words and all of their digits in common.
@lru_cache(maxsize=256)
def words(text: str, weight: str, size: int, ink: RGB, theme: Theme, scale: int) -> Indices:
    """Return the picture of a line of text on the background."""
    pixels = text_layer(text, weight, size, ink, theme.background, scale)
    return inks_of(theme).match(pixels)


@lru_cache(maxsize=16)
def digits_of(theme: Theme, scale: int) -> Digits:
    """Return what the counters are written with."""
    return Digits(15, inks_of(theme), scale)


class Counters:
    """The columns in which the counters of all panels stand.

    Attributes:
        columns: left edges, in pixels at scale 1, in the order of COUNTERS.
    """

    def __init__(self, traces: Sequence[Trace], in_nodes: bool, inks: Inks, scale: int) -> None:
        self.digits = digits_of(inks.theme, scale)
        self.widths = [font("Regular", 12).getlength(name) for name in COUNTERS]
        for trace in traces:
            memory = max(memory_texts(trace, in_nodes), key=self.digits.width)
            steps = count_text(len(trace.steps) - 1)
            evaluations = count_text(trace.evaluations)
            texts = [f"{steps} / {steps}", f"{evaluations} / {evaluations}", memory, memory]
            for column, text in enumerate(texts):
                needed = self.digits.width(text) / scale
                self.widths[column] = max(self.widths[column], needed)
        self.columns = [0.0] * len(COUNTERS)
        right = float(WIDTH - MARGIN)
        for column in reversed(range(len(COUNTERS))):
            self.columns[column] = right - self.widths[column]
            right = self.columns[column] - 26

    def write(self, canvas: Canvas, y: int, texts: Sequence[str]) -> None:
        """Write the counters of a panel over what stood there, at ``y`` at scale 1."""
        top, left = y * canvas.scale, round(self.columns[0] * canvas.scale)
        right = round((self.columns[-1] + self.widths[-1] + 4) * canvas.scale)
        row = canvas.region(top, top + self.digits.height, left, right)
        row[:] = canvas.ground
        for x, text in zip(self.columns, texts, strict=True):
            self.digits.write(row, round(x * canvas.scale) - left, 0, text)


def memory_texts(trace: Trace, in_nodes: bool) -> list[str]:
    """Return every text that the memory counters may show."""
    return [live_text(amount, in_nodes) for amount in {0, *live_of(trace, in_nodes)}]
