"""Sprites of node groups: rounded squares, filled in proportion to their resident bytes.

Kept bytes are at the bottom and recomputed ones on top, as in a memory strip; of gradients, results
are at the bottom.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..layout.geometry import Size
from ..node_looks import NodeLook
from ..node_memory import LEVELS, shown_share
from ..node_style import corner_of, empty_part, lower_level, lower_part
from .canvas import Indices, Inks
from .sprites import label_coverage, shape_sprite, with_label


def group_sprite(look: NodeLook, label: str, points: int, box: Size, inks: Inks) -> Indices:
    """Return the sprite of a group with its label; TRANSPARENT outside.

    Args:
        look: its look.
        label: its text.
        points: font size of the label.
        box: width and height in pixels at scale 1, without ring and halo.
        inks: the palette.
    """
    scale = inks.scale
    coverage = label_coverage(label, box, points, scale)
    filled, lower = (
        filled_mask(level, coverage.shape, box, scale)
        for level in (look.level or 0, lower_level(look))
    )
    corner = corner_of(box)
    sprite: Indices = np.zeros(coverage.shape, np.uint8)
    held = replace(look, hosted=0)
    for part, where in (
        (held, filled & ~lower), (empty_part(look), ~filled), (lower_part(look), lower),
    ):  # fmt: skip
        if where.any():
            level = part.level if part.hosted else None  # the stripes begin at the level
            plain = replace(part, level=level, kept=0)
            shape = shape_sprite(plain, box, corner, inks)
            np.copyto(sprite, with_label(shape, part, coverage, inks), where=where)
    return sprite


def filled_mask(level: int, shape: tuple[int, ...], box: Size, scale: float) -> Any:
    """Return the mask of a group's pixels below its level."""
    if level in (0, LEVELS):
        # A full group includes its outline, and an empty one has no filled part.
        return np.full(shape, level == LEVELS)
    rows = np.arange(shape[0])[:, None]
    surface = (shape[0] + box[1] * scale) / 2 - box[1] * scale * shown_share(level / LEVELS)
    return np.broadcast_to(rows >= surface, shape)
