"""Canvas: palette-indexed frame buffer with dirty-rectangle tracking, and its palette.

Whatever a picture shows is painted by Pillow in colours, shapes by supersampling, and quantised to
the theme's palette; after that a frame is made by copying indices to regions of the canvas.
``change`` returns the bounding rectangle of the pixels that differ from the last frame, transparent
where they do not, as animation formats store frames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from ..theme import RGB, Theme, blend, font

OVERSAMPLE = 4
INK_STEPS = 4  # steps from no ink to all of it; as many as the palette has between two colours
TRANSPARENT = 255  # never a palette index: palettes have at most 64 colours
Indices = Any  # uint8 array of palette indices, (height, width)
WIDE = 100  # pixels: wider boxes are trimmed to their changed columns
LARGE, DENSE = 60_000, 0.25  # pixels of a box, and the changed share from which it is drawn whole
REMEMBERED = 8_000  # pixels: of larger masks none is kept, so that all take at most 8 MB
REACH = (1, 2, 4)  # pixels: shifts whose sums cover gaps of up to 7 pixels on either side
Box = tuple[int, int, int, int]  # top, bottom, left, right, in pixels of the canvas


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
        image = image.reduce(OVERSAMPLE)  # the large one is freed before it is matched
        return self.match(np.asarray(image))

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
    return Inks(theme, scale, np.array(theme.palette, np.uint8))


@dataclass(frozen=True, slots=True)
class Change:
    """Difference between a frame and the one before it: a rectangle.

    Attributes:
        left, top: position of the rectangle on the canvas.
        pixels: its palette indices, (height, width); unchanged pixels have the number of colours as
            index, which no colour has. The first frame's rectangle is the whole canvas.
    """

    left: int
    top: int
    pixels: Indices


def close_gaps(differs: Any) -> Any:
    """Close small horizontal gaps in a mask of changed pixels (morphological closing).

    Changed letters would otherwise be full of holes, which cost more to encode than their pixels.
    Of a large box that has changed for the most part, such as that of a title card, so would all.
    """
    if differs.size > LARGE and differs.mean() > DENSE:
        return np.ones_like(differs)
    if differs.size > REMEMBERED:
        return closing(differs)
    return remembered_closing(differs.tobytes(), differs.shape[1])


def closing(mask: Any) -> Any:
    """Return the morphological closing of a mask's rows."""
    before, after = mask.copy(), mask.copy()
    for by in REACH:
        before[:, by:] |= before[:, :-by]
        after[:, :-by] |= after[:, by:]
    return before & after


# Cached: nodes of one size that change from one state to another change the same pixels.
@lru_cache(maxsize=512)
def remembered_closing(mask: bytes, width: int) -> Any:
    """Return the closing of a small mask, read-only."""
    closed = closing(np.frombuffer(mask, bool).reshape(-1, width))
    closed.flags.writeable = False
    return closed


class Canvas:
    """Frame buffer of a picture.

    Attributes:
        pixels: palette indices, (height, width); changed in place.
        inks: the palette.
        ground: the background's index.
        scale: pixels per pixel at scale 1, the unit of text positions.
    """

    def __init__(self, shape: tuple[int, int], inks: Inks) -> None:
        self.inks, self.scale = inks, inks.scale
        self.ground = inks.index(inks.theme.background)
        self.pixels = np.full(shape, self.ground, np.uint8)
        self.shown: Indices = None  # the pixels at the last change; None before the first
        self.touched: dict[Box, None] = {}  # dirty boxes: where pixels may differ from shown

    def region(self, top: int, bottom: int, left: int, right: int) -> Indices:
        """Return a view of the pixels to draw on, and mark it as dirty."""
        self.touched[top, bottom, left, right] = None
        return self.pixels[top:bottom, left:right]

    def change(self) -> Change:
        """Return the difference from the canvas at the last call; at the first, all of it."""
        if self.shown is None:
            self.shown = self.pixels.copy()
            self.touched.clear()
            return Change(0, 0, self.shown.copy())
        masks = []
        for box in self.touched:
            top, bottom, left, right = box
            differs = self.pixels[top:bottom, left:right] != self.shown[top:bottom, left:right]
            if not differs.any():
                continue
            if right - left > WIDE:
                # Trim to the changed columns: a rectangle around all boxes is encoded.
                columns = np.flatnonzero(differs.any(axis=0))
                first, stop = int(columns[0]), int(columns[-1]) + 1
                differs, box = differs[:, first:stop], (top, bottom, left + first, left + stop)
            masks.append((box, close_gaps(differs)))
        self.touched.clear()
        return self.patch(masks)

    def patch(self, masks: Sequence[tuple[Box, Any]]) -> Change:
        """Return one rectangle around all changed pixels; ``masks`` mark them within boxes."""
        unchanged = len(self.inks.colours)
        if not masks:  # an unchanged frame is still a frame: one transparent pixel
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
        """Copy a sprite to (x, y), in pixels of the canvas, clipped to it."""
        region = self.pixels[y : y + sprite.shape[0], x : x + sprite.shape[1]]
        region[:] = sprite[: region.shape[0], : region.shape[1]]

    def text(self, x: float, y: float, text: str, weight: str, size: int, ink: RGB) -> None:
        """Write text with its top left corner at (x, y), at scale 1."""
        x, y = x * self.scale, y * self.scale
        self.put(words(text, weight, size, ink, self.inks), round(x), round(y))


# Cached: pictures share most of their words and all of their digits.
@lru_cache(maxsize=256)
def words(text: str, weight: str, size: int, ink: RGB, inks: Inks) -> Indices:
    """Return the rendered pixels of a line of text on the background."""
    return inks.line(text, weight, size, ink, inks.theme.background)
