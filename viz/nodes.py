"""How a node looks, whoever draws it: colours, outline, corner, fill and label."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from .layout.geometry import Line, Point, Size
from .memory import LABEL_BAND, LEVELS, shown_share
from .scene import Activity, Fill, NodeLook, one_line
from .theme import RGB, Theme, font

CORNER = 6.0  # radius, in pixels at scale 1
DASH_AND_GAP, DASH = 4.4, 0.6  # pixels, and the share of them that is drawn
STRIPE, STRIPE_AND_GAP = 1.2, 3  # pixels; whole ones from stripe to stripe, so that all are sharp
LABELLED = 20  # pixels of height from which an operator's node has room for a label


def node_colours(look: NodeLook, theme: Theme) -> tuple[RGB, RGB, RGB]:
    """Return fill, outline and label of a node."""
    if look.fill is Fill.ON_HOST:
        outline = theme.gradient if look.backward else theme.kept
        return theme.background, outline, theme.muted
    if look.activity is Activity.RECOMPUTING and look.fill is not Fill.DROPPED:
        return theme.recomputing, theme.ink, theme.recomputing_label
    if look.fill is Fill.NOT_YET:
        return theme.not_yet, theme.not_yet_outline, theme.muted
    if look.fill is Fill.DROPPED:
        outline = theme.dropped_backward if look.backward else theme.dropped_forward
        if look.activity is Activity.RECOMPUTING:
            outline = theme.recomputing  # the rest of a group of which little is there yet
        return theme.background, outline, theme.muted
    fills = {
        Fill.KEPT: (theme.kept, theme.ink, theme.kept_label),
        Fill.RECOMPUTED: (theme.recomputed, theme.ink, theme.recomputed_label),
        Fill.GRADIENT: (theme.gradient, theme.ink, theme.gradient_label),
    }
    return fills[look.fill]


def fitted(text: str, weight: str, size: int, room: float) -> str:
    """Return text cut to a width in pixels at scale 1."""
    line = one_line(text, 200)
    face = font(weight, size)
    if face.getlength(line) <= room:
        return line
    while line and face.getlength(line + "…") > room:
        line = line[:-1]
    return line.rstrip() + "…"


def emptied(look: NodeLook) -> NodeLook:
    """Return how the part of a group looks that is not resident."""
    if look.fill is Fill.NOT_YET:
        return look
    return replace(look, fill=Fill.ON_HOST if look.hosted else Fill.DROPPED)


def kept_part(look: NodeLook) -> NodeLook:
    """Return how the part of a group looks that was kept, where the rest is recomputed."""
    now = Activity.NONE if look.activity is Activity.NONE else Activity.COMPUTING
    return replace(look, fill=Fill.KEPT, activity=now, hosted=0)


def fill_of(look: NodeLook, theme: Theme) -> RGB:
    """Return what a whole node is filled with, below the level of a group."""
    return node_colours(emptied(look) if is_partial(look) else look, theme)[0]


def is_partial(look: NodeLook) -> bool:
    """Whether a look is that of a group with some of its memory resident, but not all."""
    return look.level not in (None, 0, LEVELS)


def share_of(look: NodeLook) -> float:
    """Return how far a node is filled."""
    return 1.0 if look.level is None else look.level / LEVELS


def corner_of(size: Size) -> float:
    """Return the radius of a group's corners."""
    return min(CORNER, size[1] / 4)


def stripes(look: NodeLook, size: Size, corner: float) -> list[tuple[float, float]]:
    """Return the stripes of a node, of what waits on the host: heights, and half their lengths.

    They lie around 0, 0, and leave out where the label stands. An operator is striped as a whole;
    a group from what is resident on, as far as its bytes are on the host, and with one stripe at
    least: as a solid fill is what is held here, a striped one is what is held there.
    """
    whole = look.level is None
    if not (look.hosted or (whole and look.fill is Fill.ON_HOST)):
        return []
    height, stroke = size[1], outline_of(size)
    most = height / 2 - stroke - STRIPE / 2
    least = LABEL_BAND / 2 * height if not whole or height >= LABELLED else 0.0
    reach = range(-int(most // STRIPE_AND_GAP), int(most // STRIPE_AND_GAP) + 1)
    places = [y for turn in reach if abs(y := turn * float(STRIPE_AND_GAP)) >= least] or [0.0]
    if not whole:
        held = look.level or 0
        low, high = (shown_share(min(n, LEVELS) / LEVELS) for n in (held, held + look.hosted))
        above = [y for y in places if 0.5 - y / height >= low] or places[:1]
        places = [y for y in above if 0.5 - y / height <= high] or above[-1:]
    straight = height / 2 - corner  # up to which the sides run straight
    inner = corner - stroke
    insets = [inner - math.sqrt(max(inner**2 - max(abs(y) - straight, 0) ** 2, 0)) for y in places]
    return [(y, size[0] / 2 - stroke - inset) for y, inset in zip(places, insets, strict=True)]


def is_dashed(look: NodeLook) -> bool:
    """Whether a node's outline is dashed: that of what is not there yet is, of what is gone not."""
    return look.fill is Fill.NOT_YET


def dash_lengths(size: Size, corner: float) -> tuple[float, float]:
    """Return how long the dashes of a rounded rectangle's rim are, and the gaps, in pixels."""
    length = 2 * sum(size) - (8 - math.tau) * corner  # for a disc, that of its corners alone
    period = length / max(4, round(length / DASH_AND_GAP))
    return DASH * period, (1 - DASH) * period


def dashes(size: Size, corner: float) -> list[Line]:
    """Return the dashes of a rounded rectangle's rim around 0, 0, in points close together."""
    period = sum(dash_lengths(size, corner))
    found: dict[int, list[Point]] = {}
    walked = 0.0
    for (x0, y0), (x1, y1) in pairwise([*(points := list(rim(size, corner))), points[0]]):
        far = math.hypot(x1 - x0, y1 - y0)
        parts = math.ceil(4 * far)
        for part in range(parts):
            number, share = divmod((walked + far * part / parts) / period, 1)
            if share < DASH:
                at = (x0 + (x1 - x0) * part / parts, y0 + (y1 - y0) * part / parts)
                found.setdefault(int(number), []).append(at)
        walked += far
    return [tuple(dash) for dash in found.values() if len(dash) > 1]


def rim(size: Size, corner: float) -> Iterator[Point]:
    """Yield points around 0, 0 along a rounded rectangle, from one corner to the next."""
    x, y = size[0] / 2 - corner, size[1] / 2 - corner
    steps = 2 + math.ceil(2 * corner)
    for quarter, (across, down) in enumerate(((x, y), (-x, y), (-x, -y), (x, -y))):
        for step in range(steps):
            angle = math.tau / 4 * (quarter + step / (steps - 1))
            yield across + corner * math.cos(angle), down + corner * math.sin(angle)


def arrow_sizes(diameter: float) -> tuple[float, float]:
    """Return how long arrowheads are, and how thick the lines, between nodes of a size."""
    return (3.2, 1.3) if diameter >= 20 else (2.2, 1.0)


def arrow_parts(line: Line, head: float) -> tuple[Line, Line]:
    """Return an arrow's shaft as a polyline, and its head as a triangle, the tip first."""
    (x0, y0), (x1, y1) = line[-2], line[-1]
    if (x0, y0) == (x1, y1) and len(line) > 2:
        x0, y0 = line[-3]
    length = max(math.hypot(x1 - x0, y1 - y0), 1e-9)
    ux, uy = (x1 - x0) / length * head, (y1 - y0) / length * head
    x, y = x1 - ux, y1 - uy
    wide = 0.62  # of its length, half of a head's width
    tip = ((x1, y1), (x - wide * uy, y + wide * ux), (x + wide * uy, y - wide * ux))
    return (*line[:-1], (x, y)), tip


def outline_of(size: Size) -> float:
    """Return how thick a node's outline is."""
    return 1.5 if size[1] >= 14 else 1.0
