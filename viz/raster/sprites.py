"""Sprite cache: palette-indexed images of nodes and glyphs, antialiased by supersampling.

Shapes are drawn once by Pillow, oversampled, scaled down, and quantised to the theme's palette;
after that a frame is made by copying.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from ..layout.geometry import WITH_HALO, Size
from ..node_looks import Activity, NodeLook
from ..node_style import STRIPE, dashes, is_dashed, node_colours, outline_of, stripes
from ..theme import RGB, Theme, blend, font, palette

OVERSAMPLE = 4
TRANSPARENT = 255  # never a palette index: palettes have at most 64 colours
Indices = Any  # uint8 array of palette indices, (height, width)


@dataclass(frozen=True, slots=True)
class Inks:
    """A theme's palette, and the quantiser from colours to its indices."""

    theme: Theme
    colours: Any  # uint8, (colours, 3)

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

    @property
    def table(self) -> bytes:
        """The palette as a GIF colour table."""
        flat: bytes = self.colours.tobytes()
        return flat


def inks_of(theme: Theme) -> Inks:
    """Return the inks of a theme."""
    return Inks(theme, np.array(palette(theme), np.uint8))


def layer(
    shape: tuple[int, int], background: RGB, scale: float, paint: Callable[[Any, float], None]
) -> Any:
    """Return an RGB array painted ``OVERSAMPLE`` times too large and scaled down (supersampling).

    Args:
        shape: height and width of the result.
        background: colour below everything.
        scale: of the result.
        paint: called as ``paint(ImageDraw, factor)``, with the factor from pixels at scale 1.
    """
    height, width = shape
    image = Image.new("RGB", (width * OVERSAMPLE, height * OVERSAMPLE), background)
    paint(ImageDraw.Draw(image), scale * OVERSAMPLE)
    return np.asarray(image.reduce(OVERSAMPLE))


def node_sprite(look: NodeLook, size: Size, inks: Inks, scale: float) -> Indices:
    """Return the sprite of an operator without its label; TRANSPARENT outside."""
    return shape_sprite(look, size, size[1] / 2, inks.theme, scale)


# Cached: sprites of groups are composed of few shapes, whatever their levels and labels.
@lru_cache(maxsize=1024)
def shape_sprite(look: NodeLook, size: Size, corner: float, theme: Theme, scale: float) -> Indices:
    """Return the cached sprite of a rounded rectangle with fill, ring and halo; read-only.

    Args:
        look: its look.
        size: width and height in pixels at scale 1, without ring and halo.
        corner: radius of its corners; half of its size makes a disc.
        theme: the colours.
        scale: of the result.
    """
    inks = inks_of(theme)
    shape = sprite_shape(size, scale)
    fill, outline, _ = node_colours(look, theme)
    stroke = outline_of(size)

    def paint(draw: Any, factor: float) -> None:
        def rounded(beyond: float, colour: RGB) -> None:
            x, y = (size[0] / 2 + beyond) * factor, (size[1] / 2 + beyond) * factor
            middle, centre = shape[1] * OVERSAMPLE / 2, shape[0] * OVERSAMPLE / 2
            corners = (middle - x, centre - y, middle + x, centre + y)
            draw.rounded_rectangle(corners, (corner + beyond) * factor, fill=colour)

        if look.activity is not Activity.NONE:
            rounded(5, theme.ink)
            rounded(4, theme.halo)
        elif look.checkpoint:
            rounded(4.5, theme.checkpoint)
            rounded(2.5, theme.background)
        rounded(0, fill if is_dashed(look) else outline)
        rounded(-stroke, fill)
        across, down = shape[1] * OVERSAMPLE / 2, shape[0] * OVERSAMPLE / 2
        for y, reach in stripes(look, size, corner):
            ends = [(across + x * factor, down + y * factor) for x in (-reach, reach)]
            draw.line(ends, fill=outline, width=round(STRIPE * factor))
        if is_dashed(look):
            middle = ((size[0] - stroke), (size[1] - stroke))
            for dash in dashes(middle, corner - stroke / 2):
                line = [(across + x * factor, down + y * factor) for x, y in dash]
                draw.line(line, fill=outline, width=round(stroke * factor), joint="curve")

    sprite = inks.match(layer(shape, theme.background, scale, paint))
    # Pixels outside the shape are transparent; all inside are opaque.
    beyond = 0.5 if look.activity is Activity.NONE and not look.checkpoint else 5.5
    sprite[distances(sprite.shape, size, corner, scale) > beyond * scale] = TRANSPARENT
    sprite.flags.writeable = False
    return sprite


def distances(shape: tuple[int, ...], size: Size, corner: float, scale: float) -> Any:
    """Return the signed distance of each pixel from a centred rounded rectangle."""
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    # Distance from the inner rectangle of the corners' centres, less the corner radius.
    down, across = (
        np.maximum(abs(places - (extent - 1) / 2) - (side / 2 - corner) * scale, 0)
        for places, extent, side in ((rows, shape[0], size[1]), (columns, shape[1], size[0]))
    )
    return np.hypot(down, across) - corner * scale


def sprite_shape(size: Size, scale: float) -> tuple[int, int]:
    """Return height and width of a node's sprite in pixels: ring and halo included."""
    width, height = (round(float(np.ceil(extent + WITH_HALO)) * scale) for extent in size)
    return height, width


INK_STEPS = 4  # steps from no ink to all of it; as many as the palette has between two colours


def label_coverage(label: str, size: Size, points: int, scale: float) -> Indices:
    """Return the coverage of each pixel of a node's sprite by its label, 0 to INK_STEPS."""
    height, width = sprite_shape(size, scale)
    image = Image.new("L", (width, height), 0)
    face = font("SemiBold", points * scale)
    ImageDraw.Draw(image).text((width / 2, height / 2), label, fill=255, font=face, anchor="mm")
    return np.round(np.asarray(image) * (INK_STEPS / 255)).astype(np.uint8)


def label_inks(look: NodeLook, inks: Inks) -> Indices:
    """Return the palette indices of a look's label, by coverage."""
    fill, _, ink = node_colours(look, inks.theme)
    blends = [blend(ink, fill, level / INK_STEPS) for level in range(INK_STEPS + 1)]
    return inks.match(np.array([blends], np.uint8))[0]


def text_layer(text: str, weight: str, size: int, ink: RGB, ground: RGB, scale: float) -> Any:
    """Return the RGB image of a line of text on a ground, as high as the font's line."""
    face = font(weight, size * scale)
    ascent, descent = face.getmetrics()
    width = max(1, int(np.ceil(face.getlength(text))))
    image = Image.new("RGB", (width, ascent + descent), ground)
    ImageDraw.Draw(image).text((0, 0), text, fill=ink, font=face)
    return np.asarray(image)


class Glyphs:
    """Glyph cache of one font size, for texts that change from frame to frame.

    Digits are monospaced, so that counters do not jitter.
    """

    def __init__(self, size: int, inks: Inks, scale: float) -> None:
        self.inks, self.size, self.scale = inks, size, scale
        self.sprites: dict[str, Indices] = {}
        face = font("SemiBold", size * scale)
        self.digit_width = max(int(np.ceil(face.getlength(digit))) for digit in "0123456789")
        self.height = sum(face.getmetrics())

    def sprite(self, character: str) -> Indices:
        """Return the sprite of one character."""
        if character not in self.sprites:
            theme = self.inks.theme
            pixels = text_layer(
                character, "SemiBold", self.size, theme.ink, theme.background, self.scale
            )
            indices = self.inks.match(pixels)
            if character.isdigit():
                wide = np.full(
                    (self.height, self.digit_width), self.inks.index(theme.background), np.uint8
                )
                start = (self.digit_width - indices.shape[1]) // 2
                wide[:, start : start + indices.shape[1]] = indices[:, : self.digit_width]
                indices = wide
            self.sprites[character] = indices
        return self.sprites[character]

    def width(self, text: str) -> int:
        """Return the width of a text in pixels."""
        return sum(self.sprite(character).shape[1] for character in text)

    def write(self, canvas: Indices, x: int, y: int, text: str) -> None:
        """Write a text with its top left corner at (x, y)."""
        for character in text:
            sprite = self.sprite(character)
            height, width = sprite.shape
            canvas[y : y + height, x : x + width] = sprite
            x += width
