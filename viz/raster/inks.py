"""Palette of a raster picture at its scale: quantised colours, antialiased shapes and text.

Whatever a picture shows is painted by Pillow in colours, shapes by supersampling, and quantised to
the theme's palette. After that a frame is made by copying indices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from ..theme import RGB, Theme, blend, font, palette

OVERSAMPLE = 4
INK_STEPS = 4  # steps from no ink to all of it; as many as the palette has between two colours
TRANSPARENT = 255  # never a palette index: palettes have at most 64 colours
Indices = Any  # uint8 array of palette indices, (height, width)


@dataclass(frozen=True, slots=True, eq=False)
class Inks:
    """A theme's palette at a scale; there is one of each, so that it can be the key of a cache.

    Attributes:
        theme: the colours by name.
        scale: pixels of the picture per pixel at scale 1.
        colours: all of the palette, uint8, (colours, 3).
    """

    theme: Theme
    scale: float
    colours: Any

    def index(self, colour: RGB) -> int:
        """Return the index of a colour of the palette."""
        return int(np.flatnonzero((self.colours == colour).all(axis=1))[0])

    def match(self, pixels: Any) -> Indices:
        """Return the nearest palette index of every pixel of a ``(height, width, 3)`` array."""
        # Pack each colour into one integer: a picture has few, and integers sort fast.
        packed = pixels.astype(np.int32) @ np.array([65536, 256, 1], np.int32)
        unique, inverse = np.unique(packed, return_inverse=True)
        found = np.stack([unique >> 16, (unique >> 8) & 255, unique & 255], axis=1)
        distances = ((found[:, None] - self.colours.astype(np.int32)) ** 2).sum(axis=2)
        return distances.argmin(axis=1).astype(np.uint8)[inverse].reshape(pixels.shape[:2])

    def painted(self, shape: tuple[int, int], paint: Callable[[Any, float], None]) -> Indices:
        """Return a shape on the background, painted too large and scaled down (supersampling).

        Args:
            shape: height and width of the result.
            paint: called as ``paint(ImageDraw, factor)``, with the factor from pixels at scale 1.
        """
        height, width = shape
        size = (width * OVERSAMPLE, height * OVERSAMPLE)
        image = Image.new("RGB", size, self.theme.background)
        paint(ImageDraw.Draw(image), self.scale * OVERSAMPLE)
        return self.match(np.asarray(image.reduce(OVERSAMPLE)))

    def line(self, text: str, weight: str, size: int, ink: RGB, ground: RGB) -> Indices:
        """Return a line of text on a ground, as high as the font's line."""
        face = font(weight, size * self.scale)
        ascent, descent = face.getmetrics()
        width = max(1, int(np.ceil(face.getlength(text))))
        image = Image.new("RGB", (width, ascent + descent), ground)
        ImageDraw.Draw(image).text((0, 0), text, fill=ink, font=face)
        return self.match(np.asarray(image))

    def coverage(self, text: str, weight: str, size: int) -> Any:
        """Return the coverage of each pixel by a line of text, 0 to INK_STEPS."""
        face = font(weight, size * self.scale)
        ascent, descent = face.getmetrics()
        image = Image.new("L", (max(1, int(np.ceil(face.getlength(text)))), ascent + descent), 0)
        ImageDraw.Draw(image).text((0, 0), text, fill=255, font=face)
        return np.round(np.asarray(image) * (INK_STEPS / 255)).astype(np.uint8)

    def ramp(self, ink: RGB, ground: RGB) -> Indices:
        """Return the palette indices of an ink on a ground, by coverage."""
        blends = [blend(ink, ground, level / INK_STEPS) for level in range(INK_STEPS + 1)]
        return self.match(np.array([blends], np.uint8))[0]


@lru_cache(maxsize=16)
def inks_of(theme: Theme, scale: float = 1.0) -> Inks:
    """Return the inks of a theme at a scale."""
    return Inks(theme, scale, np.array(palette(theme), np.uint8))
