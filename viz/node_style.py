"""Node styling for every renderer: fill, outline, corner, dashes, stripes, arrowheads, labels.

A ``NodeLook`` and a theme come in; colours and geometry in pixels at scale 1 go out. ``raster`` and
``vector`` turn them into pixels and SVG, so that both show the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from .layout.geometry import Line, Point, Size
from .node_looks import Activity, Fill, NodeLook
from .node_memory import LABEL_BAND, LEVELS, shown_share
from .scene import one_line
from .theme import RGB, Theme, font

CORNER = 6.0  # radius, in pixels at scale 1
DASH_AND_GAP, DASH = 4.4, 0.6  # pixels, and the share of them that is drawn
HATCH = 5  # pixels from stripe to stripe of what was recomputed, across
STRIPE, STRIPE_AND_GAP = 1.2, 3  # pixels; the period is an integer, so that all stripes are sharp
LABELLED = 20  # pixels: least height of an operator's node with a label


def hatch_id(theme: Theme) -> str:
    """Return the id of a theme's hatch in SVG."""
    return f"again-{theme.name}"


def node_colours(look: NodeLook, theme: Theme) -> tuple[RGB, RGB, RGB]:
    """Return the colours of fill, outline and label of a node."""
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
            outline = theme.recomputing  # the empty part of a nearly empty group
        return theme.background, outline, theme.muted
    fills = {
        Fill.KEPT: (theme.kept, theme.ink, theme.kept_label),
        Fill.RECOMPUTED: (theme.recomputed, theme.ink, theme.recomputed_label),
        Fill.GRADIENT: (theme.gradient, theme.ink, theme.gradient_label),
    }
    if look.results == LEVELS:
        return theme.staying, theme.ink, theme.staying_label
    return fills[look.fill]


def truncated(text: str, weight: str, size: int, room: float) -> str:
    """Truncate a text to a width in pixels at scale 1."""
    line = one_line(text, 200)
    face = font(weight, size)
    if face.getlength(line) <= room:
        return line
    while line and face.getlength(line + "…") > room:
        line = line[:-1]
    return line.rstrip() + "…"


def empty_part(look: NodeLook) -> NodeLook:
    """Return the look of the non-resident part of a group."""
    if look.fill is Fill.NOT_YET:
        return look
    return replace(look, fill=Fill.ON_HOST if look.hosted else Fill.DROPPED)


def lower_level(look: NodeLook) -> int:
    """Return how many eighths of a group the lower of the two parts of its fill takes."""
    return look.kept or (look.results if look.results < LEVELS else 0)


def lower_part(look: NodeLook) -> NodeLook:
    """Return the look of the lower part of a group's fill: kept values, or result gradients."""
    if look.fill is Fill.GRADIENT:
        return replace(look, results=LEVELS, hosted=0)
    now = Activity.NONE if look.activity is Activity.NONE else Activity.COMPUTING
    return replace(look, fill=Fill.KEPT, activity=now, hosted=0)


def is_partial(look: NodeLook) -> bool:
    """Whether a look is of a group with some of its memory resident, but not all."""
    return look.level not in (None, 0, LEVELS)


def share_of(look: NodeLook) -> float:
    """Return the fraction of a node that is filled."""
    return 1.0 if look.level is None else look.level / LEVELS


def corner_of(size: Size) -> float:
    """Return the corner radius of a group."""
    return min(CORNER, size[1] / 4)


def stripes(look: NodeLook, size: Size, corner: float) -> list[tuple[float, float]]:
    """Return the stripes of a node for its memory on the host: heights and half lengths.

    They are relative to the centre, and leave out the label. An operator is striped as a whole; a
    group from its resident level upwards, in proportion to its bytes in host memory, with at least
    one stripe: solid fill is memory on the device, stripes are memory on the host.
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


def is_hatched(look: NodeLook) -> bool:
    """Whether a node's fill is hatched: for values that were recomputed, as in a memory strip."""
    return look.fill is Fill.RECOMPUTED and look.activity is not Activity.RECOMPUTING


def is_dashed(look: NodeLook) -> bool:
    """Whether a node's outline is dashed: for values not yet computed, but not for freed ones."""
    return look.fill is Fill.NOT_YET


def dash_lengths(size: Size, corner: float) -> tuple[float, float]:
    """Return the lengths of dash and gap on a rounded rectangle's rim, in pixels."""
    length = 2 * sum(size) - (8 - math.tau) * corner  # for a disc, that of its corners alone
    period = length / max(4, round(length / DASH_AND_GAP))
    return DASH * period, (1 - DASH) * period


def dashes(size: Size, corner: float) -> list[Line]:
    """Return the dashes of a rounded rectangle's rim around the origin, as dense polylines."""
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
    """Yield points along a rounded rectangle around the origin, corner by corner."""
    x, y = size[0] / 2 - corner, size[1] / 2 - corner
    steps = 2 + math.ceil(2 * corner)
    for quarter, (across, down) in enumerate(((x, y), (-x, y), (-x, -y), (x, -y))):
        for step in range(steps):
            angle = math.tau / 4 * (quarter + step / (steps - 1))
            yield across + corner * math.cos(angle), down + corner * math.sin(angle)


def arrow_sizes(diameter: float) -> tuple[float, float]:
    """Return length of arrowheads and thickness of lines between nodes of a diameter."""
    return (3.2, 1.3) if diameter >= 20 else (2.2, 1.0)


def arrow_parts(line: Line, head: float) -> tuple[Line, Line]:
    """Split an arrow into its shaft, a polyline, and its head, a triangle with the tip first."""
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
    """Return the thickness of a node's outline."""
    return 1.5 if size[1] >= 14 else 1.0
