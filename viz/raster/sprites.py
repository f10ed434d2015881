"""Sprite cache: palette-indexed images of nodes, their labels, arrows, and the legend's entries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from ..layout.geometry import WITH_HALO, Line, Size
from ..node_looks import Activity, NodeLook
from ..node_style import (
    HATCH,
    STRIPE,
    arrow_parts,
    arrow_sizes,
    dashes,
    is_dashed,
    is_hatched,
    node_colours,
    outline_of,
    stripes,
)
from ..theme import RGB, font
from .canvas import INK_STEPS, OVERSAMPLE, TRANSPARENT, Indices, Inks

if TYPE_CHECKING:
    from ..picture_layout import Item
    from .canvas import Canvas

ARROW = 20  # pixels: length of the legend's arrow, and height of its sprite


def node_sprite(look: NodeLook, size: Size, inks: Inks) -> Indices:
    """Return the sprite of an operator without its label; TRANSPARENT outside."""
    return shape_sprite(look, size, size[1] / 2, inks)


# Cached: sprites of groups are composed of few shapes, whatever their levels and labels.
@lru_cache(maxsize=1024)
def shape_sprite(look: NodeLook, size: Size, corner: float, inks: Inks) -> Indices:
    """Return the cached sprite of a rounded rectangle with fill, ring and halo; read-only.

    Args:
        look: its look.
        size: width and height in pixels at scale 1, without ring and halo.
        corner: radius of its corners; half of its size makes a disc.
        inks: the palette.
    """
    theme, scale = inks.theme, inks.scale
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

    far = distances(shape, size, corner, scale)
    sprite = inks.painted(shape, paint)
    if is_hatched(look):
        sprite[hatch_mask(shape, scale) & (far < -stroke * scale)] = inks.index(theme.kept)
    # Pixels outside the shape are transparent; all inside are opaque.
    beyond = 0.5 if look.activity is Activity.NONE and not look.checkpoint else 5.5
    sprite[far > beyond * scale] = TRANSPARENT
    sprite.flags.writeable = False
    return sprite


def hatch_mask(shape: tuple[int, ...], scale: float) -> Any:
    """Return the mask of diagonal stripes, which rise to the right, over a picture."""
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    return (rows + columns) % max(3, round(HATCH * scale)) < max(1, round(scale))


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


def label_coverage(label: str, size: Size, points: int, scale: float) -> Indices:
    """Return the coverage of each pixel of a node's sprite by its label, 0 to INK_STEPS."""
    height, width = sprite_shape(size, scale)
    image = Image.new("L", (width, height), 0)
    face = font("SemiBold", points * scale)
    ImageDraw.Draw(image).text((width / 2, height / 2), label, fill=255, font=face, anchor="mm")
    return np.round(np.asarray(image) * (INK_STEPS / 255)).astype(np.uint8)


@lru_cache(maxsize=256)
def label_inks(look: NodeLook, inks: Inks) -> Indices:
    """Return the palette indices of a look's label, by coverage."""
    fill, _, ink = node_colours(look, inks.theme)
    return inks.ramp(ink, fill)


def with_label(shape: Indices, look: NodeLook, coverage: Indices, inks: Inks) -> Indices:
    """Return the sprite of a look's shape with its label; no hatch touches a letter."""
    plain = coverage == 0
    if is_hatched(look):
        reach = 2 * max(1, round(inks.scale)) + 1
        near = Image.fromarray(coverage).filter(ImageFilter.MaxFilter(reach))
        plain = np.asarray(near) == 0
    return np.where(plain, shape, label_inks(look, inks)[coverage])


def draw_legend(canvas: Canvas, items: Sequence[Item]) -> None:
    """Draw the legend."""
    scale, theme = canvas.scale, canvas.inks.theme
    for item in items:
        icon = legend_icon(item.look, canvas.inks)
        left = round(item.x * scale - icon.shape[1] / 2)
        picture = np.where(icon == TRANSPARENT, canvas.ground, icon).astype(np.uint8)
        canvas.put(picture, left, round(item.y * scale - icon.shape[0] / 2))
        canvas.text(item.words, item.y - 8, item.name, "Regular", 12, theme.muted)


@lru_cache(maxsize=256)
def legend_icon(look: NodeLook | None, inks: Inks) -> Indices:
    """Return the sprite of a legend's node, trimmed at its sides."""
    sprite = node_sprite(look, (10.0, 10.0), inks) if look is not None else arrow_sprite(inks)
    columns = np.flatnonzero((sprite != TRANSPARENT).any(axis=0))
    return sprite[:, columns[0] : columns[-1] + 1]


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


def draw_arrow(draw: Any, arrow: Line, factor: float, head: float, line: float, ink: RGB) -> None:
    """Draw a polyline with an arrowhead at its end."""
    shaft, triangle = (
        [(x * factor, y * factor) for x, y in points] for points in arrow_parts(arrow, head)
    )
    draw.line(shaft, fill=ink, width=max(1, round(line * factor)), joint="curve")
    draw.polygon(triangle, fill=ink)
