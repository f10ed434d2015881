"""The pixels of a picture, as palette indices, and how text and pictures get onto them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from viz.layout import MARGIN, WIDTH
from viz.scene import count_text, live_of, live_text
from viz.sprites import Digits, Indices, Inks, text_layer
from viz.theme import RGB, font

if TYPE_CHECKING:
    from tinyckpt.trace import Trace

COUNTERS = ("step", "evaluations", "live", "peak")


class Canvas:
    """A picture in the making.

    Attributes:
        pixels: palette indices, (height, width); changed in place.
        inks: the palette.
        scale: pixels for every pixel at scale 1, in which positions of text are given.
    """

    def __init__(self, height: int, inks: Inks, scale: int) -> None:
        self.inks, self.scale = inks, scale
        ground = inks.index(inks.theme.background)
        self.pixels = np.full((height * scale, WIDTH * scale), ground, np.uint8)

    def put(self, sprite: Indices, x: int, y: int) -> None:
        """Copy a picture to (x, y), in pixels of the canvas."""
        height, width = sprite.shape
        self.pixels[y : y + height, x : x + width] = sprite

    def text(self, x: float, y: float, text: str, weight: str, size: int, ink: RGB) -> int:
        """Write text with its top left corner at (x, y), at scale 1; return its width there."""
        pixels = text_layer(text, weight, size, ink, self.inks.theme.background, self.scale)
        pixels = pixels[:, : self.pixels.shape[1] - round(x * self.scale)]
        self.put(self.inks.match(pixels), round(x * self.scale), round(y * self.scale))
        return int(pixels.shape[1] / self.scale)


@dataclass(frozen=True, slots=True)
class Scales:
    """What the panels of a picture share, so that they can be compared.

    Attributes:
        in_nodes: whether memory is counted in nodes, not in bytes.
        longest: steps of the longest trace.
        highest: the largest peak.
    """

    in_nodes: bool
    longest: int
    highest: int


class Counters:
    """The columns in which the counters of all panels stand.

    Attributes:
        columns: left edges, in pixels at scale 1, in the order of COUNTERS.
    """

    def __init__(self, traces: Sequence[Trace], in_nodes: bool, inks: Inks, scale: int) -> None:
        self.digits = Digits(15, inks, scale)
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
        ground, top = canvas.inks.index(canvas.inks.theme.background), y * canvas.scale
        for x, width, text in zip(self.columns, self.widths, texts, strict=True):
            left, right = round(x * canvas.scale), round((x + width + 4) * canvas.scale)
            canvas.pixels[top : top + self.digits.height, left:right] = ground
            self.digits.write(canvas.pixels, left, top, text)


def memory_texts(trace: Trace, in_nodes: bool) -> list[str]:
    """Return every text that the memory counters may show."""
    return [live_text(amount, in_nodes) for amount in {0, *live_of(trace, in_nodes)}]
