"""Automatic label placement in charts: greedy, over candidate positions; no overlaps if possible.

Points and label sizes come in, in points (1/72 inch) of the figure; a box for each label comes out.
Each candidate has a penalty: covering labels, points or edges is worst, crossing a curve next,
distance last. Leader lines join distant labels to their points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import ceil, cos, hypot, pi, sin
from typing import Any

DISTANCES = (7, 14, 24, 36, 50, 66, 84, 104, 126, 150)  # points
DIRECTIONS = 16
CROSSING = 100.0  # penalty: a label may be this many points farther away to avoid a line through it
PADDING = 3.0  # points around every label
DOTS = 4.0  # points between two samples of a line
MARKER = 4.0  # half a marker's width, in points


@dataclass(frozen=True, slots=True)
class Box:
    """An axis-aligned rectangle."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        """Return the area of the intersection of two boxes."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return width * height if width > 0 and height > 0 else 0.0

    def holds(self, x: float, y: float) -> bool:
        """Whether a point is inside."""
        return self.left <= x <= self.right and self.bottom <= y <= self.top


@dataclass(frozen=True, slots=True)
class LabelPlace:
    """A candidate position of a label: its box, and its distance from the point."""

    box: Box
    distance: float


def candidates(x: float, y: float, width: float, height: float) -> Iterator[LabelPlace]:
    """Yield candidate boxes around a point, near ones first, the upper right first."""
    for distance in DISTANCES:
        for turn in range(DIRECTIONS):
            # 0, +1, -1, +2, -2, ... sixteenths of a circle from the upper right.
            angle = pi / 4 + (turn + 1) // 2 * (-1) ** turn * 2 * pi / DIRECTIONS
            towards_x, towards_y = cos(angle), sin(angle)
            left = x + distance * towards_x - width * (1 - towards_x) / 2
            bottom = y + distance * towards_y - height * (1 - towards_y) / 2
            yield LabelPlace(Box(left, bottom, left + width, bottom + height), distance)


def place_labels(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    inside: Box,
    avoid: Sequence[tuple[float, float]] = (),
) -> list[LabelPlace]:
    """Choose a position for the label of every point, greedily.

    Args:
        points: in points (1/72 inch), as everything here.
        sizes: width and height of each label.
        inside: the box that labels must stay in.
        avoid: points of curves that labels should not cover.

    A label that fits nowhere goes where it covers least; with fewer labels than fill the area, that
    does not happen.
    """
    markers = [Box(x - MARKER, y - MARKER, x + MARKER, y + MARKER) for x, y in points]
    lines = list(avoid)
    places: list[LabelPlace] = []
    for (x, y), (width, height) in zip(points, sizes, strict=True):
        labels = [place.box for place in places]
        taken = [*labels, *(marker for marker in markers if not marker.holds(x, y))]
        around = candidates(x, y, width + 2 * PADDING, height + 2 * PADDING)
        prices = partial(penalty, at=(x, y), taken=taken, labels=labels, inside=inside, lines=lines)
        places.append(min(around, key=prices))
        lines += leader(places[-1], (x, y))
    return places


def penalty(
    place: LabelPlace,
    at: tuple[float, float],
    taken: Sequence[Box],
    labels: Sequence[Box],
    inside: Box,
    lines: Sequence[tuple[float, float]],
) -> float:
    """Return the penalty of a position: overlap first, then crossed curves, then distance."""
    box = place.box
    covered = sum(box.overlap(other) for other in taken)
    text = Box(box.left + PADDING, box.bottom + PADDING, box.right - PADDING, box.top - PADDING)
    outside = (text.right - text.left) * (text.top - text.bottom) - text.overlap(inside)
    crossed = sum(box.holds(*point) for point in lines)
    crossed += sum(label.holds(*point) for label in labels for point in leader(place, at))
    return 1000 * (covered + round(outside, 6)) + CROSSING * crossed + place.distance


def leader(place: LabelPlace, at: tuple[float, float]) -> list[tuple[float, float]]:
    """Return points of the leader line from a label to its point; empty if it is near."""
    if place.distance <= DISTANCES[1]:
        return []
    (x0, y0), (x1, y1) = at, nearest(place.box, at)
    return sample_line([(x0, y0), (x1, y1)])


def nearest(box: Box, point: tuple[float, float]) -> tuple[float, float]:
    """Return the point of a box that is nearest to a given point."""
    x, y = point
    return min(max(x, box.left), box.right), min(max(y, box.bottom), box.top)


def write_labels(
    axis: Any,
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    curve: Sequence[tuple[float, float]],
    **look: Any,
) -> list[Any]:
    """Write a label for each point of axes whose limits are final; return the texts.

    Args:
        axis: of matplotlib.
        points: in data units.
        texts: may have several lines.
        curve: corners of a line that labels should not cover, in data units.
        look: colour and size of the text, as matplotlib takes them.
    """
    figure = axis.figure
    scale = 72 / figure.dpi
    renderer = figure.canvas.get_renderer()
    place = axis.transData.transform
    written = [
        axis.annotate(text, point, **look) for text, point in zip(texts, points, strict=True)
    ]
    extents = [text.get_window_extent(renderer) for text in written]
    around = axis.get_window_extent(renderer)
    inside = Box(*(scale * edge for edge in (around.x0, around.y0, around.x1, around.y1)))
    centres = [tuple(scale * place(point)) for point in points]
    sizes = [(scale * extent.width, scale * extent.height) for extent in extents]
    corners = [tuple(scale * place(corner)) for corner in curve]
    places = place_labels(centres, sizes, inside, sample_line(corners))
    for text, (x, y), found in zip(written, centres, places, strict=True):
        text.set_position((found.box.left + PADDING - x, found.box.bottom + PADDING - y))
        text.anncoords = "offset points"
        text.set_horizontalalignment("left")
        text.set_verticalalignment("bottom")
        if found.distance > DISTANCES[1]:
            draw_leader(axis, (x, y), found.box, text, scale)
    return written


def sample_line(corners: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Sample a polyline so densely that no label fits between two points.

    >>> sample_line([(0.0, 0.0), (8.0, 0.0), (8.0, 2.0)])
    [(0.0, 0.0), (4.0, 0.0), (8.0, 0.0), (8.0, 2.0)]
    """
    points = list(corners[:1])
    for (x0, y0), (x1, y1) in pairwise(corners):
        count = max(1, ceil(hypot(x1 - x0, y1 - y0) / DOTS))
        shares = [(place + 1) / count for place in range(count)]
        points += [(x0 + (x1 - x0) * share, y0 + (y1 - y0) * share) for share in shares]
    return points


def draw_leader(axis: Any, point: tuple[float, float], box: Box, text: Any, scale: float) -> None:
    """Draw the leader line from a label to its point."""
    (x, y), (to_x, to_y) = point, nearest(box, point)
    length = hypot(to_x - x, to_y - y)
    if length <= MARKER:
        return
    share = MARKER / length
    begin = (x + share * (to_x - x), y + share * (to_y - y))
    ends = axis.transData.inverted().transform(
        [[value / scale for value in end] for end in (begin, (to_x, to_y))]
    )
    axis.plot(ends[:, 0], ends[:, 1], color=text.get_color(), linewidth=0.5, zorder=2)


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Return heights at least ``gap`` apart, in the same order, by one greedy sweep.

    >>> spread([1.0, 1.1, 5.0], 1.0)
    [0.55, 1.55, 5.0]
    """
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    groups: list[tuple[float, list[int]]] = []  # the middle of each run of touching labels
    for place in order:
        middle, members = heights[place], [place]
        while groups and middle - groups[-1][0] < gap * (len(members) + len(groups[-1][1])) / 2:
            _, before = groups.pop()
            members = before + members
            middle = sum(heights[member] for member in members) / len(members)
        groups.append((middle, members))
    result = [0.0] * len(heights)
    for middle, members in groups:
        for position, member in enumerate(members):
            result[member] = middle + (position - (len(members) - 1) / 2) * gap
    return [round(height, 9) for height in result]
