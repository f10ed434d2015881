"""Edge routing of a layered drawing: dot's splines, mirrored for the backward pass; straight lines.

A ``Drawing`` is dot's result for the forward pass, in points; a ``Folding`` maps its bands to
pixels. Every read has exactly one arrow.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .drawn_nodes import Cell
from .geometry import Arrow, Line, Point, Size

STUB = 9  # pixels that a cut arrow reaches beyond the cut


@dataclass(frozen=True, slots=True)
class Drawing:
    """Dot's drawing of the forward cells, in points, y upwards.

    Attributes:
        wide: whether most of the cells are groups, or have names to be read.
        broad: widths of cells that are wider than discs for their names, in points.
        halves: 2, or 1 if no forward cell has a mirror.
        nodes: the centre of every forward cell; the first one is not in the lower half.
        curves: the polyline of every edge.
        alone: the centres of unpaired backward cells, behind the last rank.
        headings: headings of forward cells, where scopes stand side by side.
    """

    wide: bool
    broad: Mapping[int, float]
    halves: int
    nodes: Mapping[int, Point]
    curves: Mapping[tuple[int, int], Line]
    alone: Mapping[int, Point]
    headings: Mapping[int, str]

    def all_nodes(self) -> list[Point]:
        """Return the centres of all cells."""
        return [*self.nodes.values(), *self.alone.values()]


@dataclass(frozen=True, slots=True)
class Band:
    """An interval of ranks, and its position on the page.

    Attributes:
        left, right: its interval of the drawing, in points.
        low, high: the lowest and the highest point that it shows, in points.
        x, y: where (left, high) of the forward pass stands, in pixels.
        axis: of the mirror, in pixels.
    """

    left: float
    right: float
    low: float
    high: float
    x: float
    y: float
    axis: float


@dataclass(frozen=True, slots=True)
class Folding:
    """Bands from top to bottom, and their common scale."""

    bands: tuple[Band, ...]
    scale: float
    height: float

    def band_at(self, x: float) -> Band:
        """Return the band that contains ``x``."""
        rights = [band.right for band in self.bands[:-1]]
        return self.bands[bisect_right(rights, x)]

    def place(self, point: Point, band: Band) -> Point:
        """Map a point of the drawing to pixels."""
        x, y = point
        return (band.x + self.scale * (x - band.left), band.y + self.scale * (band.high - y))


def mirrored(point: Point, band: Band) -> Point:
    """Reflect a pixel of a band's forward pass at the band's axis."""
    return (point[0], 2 * band.axis - point[1])


@dataclass(frozen=True, slots=True)
class Placed:
    """Inputs of edge routing.

    Attributes:
        drawing, folding: of the forward pass.
        sizes: of all cells, in pixels.
    """

    drawing: Drawing
    folding: Folding
    sizes: Sequence[Size]


def dot_arrows(
    cells: Sequence[Cell], reads: Sequence[tuple[int, int]], passing: set[int], placed: Placed
) -> Iterator[Arrow]:
    """Yield an arrow per read: dot's splines, their mirror images, or straight lines.

    A cotangent follows the splines of the forward pass in reverse, and passes through dots where it
    is unchanged. A read without such a path is a straight line, pale and below everything else; so
    is the read of a forward value by a backward operator.
    """
    mirror = {cell.id: cell.mirror for cell in cells if cell.mirror is not None}
    for source, target in reads:
        if not cells[target].backward:
            yield Arrow(source, target, tuple(curve_lines(placed, (source, target), False)))
            continue
        way = reversed_path(placed.drawing.curves, passing, mirror.get(target), mirror.get(source))
        if cells[source].backward and way:
            lines = [line for link in way for line in curve_lines(placed, link, True)]
            yield Arrow(source, target, tuple(lines))
        else:
            lines = list(straight_lines(cells, placed, source, target))
            yield Arrow(source, target, tuple(lines), faint=True)


def reversed_path(
    curves: Mapping[tuple[int, int], Line], passing: set[int], first: int | None, last: int | None
) -> list[tuple[int, int]]:
    """Search a path of edges from one forward cell to another through dots alone (breadth first).

    Returns the edges in reverse order; empty, if there is no such path.
    """
    if first is None or last is None:
        return []
    came: dict[int, int] = {}
    ahead = [first]
    after: dict[int, list[int]] = {}
    for begin, end in curves:
        after.setdefault(begin, []).append(end)
    for cell in ahead:
        for end in after.get(cell, ()):
            if end not in came and (end == last or end in passing):
                came[end] = cell
                ahead.append(end)
        if last in came:
            break
    way = []
    while last in came:
        way.append((came[last], last))
        last = came[last]
    return way


def curve_lines(placed: Placed, link: tuple[int, int], mirror: bool) -> Iterator[Line]:
    """Yield the pieces of dot's spline between forward cells, or of its mirror image."""
    folding = placed.folding
    pieces = [
        (tuple(folding.place(point, band) for point in piece), band)
        for piece, band in split_into_bands(placed.drawing.curves[link], folding)
    ]
    for place, (piece, band) in enumerate(pieces):
        (x0, y0), (x1, y1) = piece[0], piece[-1]
        enters = ((x0 - STUB, y0),) if place else ()
        leaves = ((x1 + STUB, y1),) if place + 1 < len(pieces) else ()
        line = (*enters, *piece, *leaves)
        yield tuple(mirrored(point, band) for point in reversed(line)) if mirror else line


def split_into_bands(curve: Line, folding: Folding) -> Iterator[tuple[Line, Band]]:
    """Split a polyline from left to right into one piece per band that it crosses."""
    band = folding.band_at(curve[0][0])
    piece = [curve[0]]
    for (x0, y0), (x1, y1) in pairwise(curve):
        while folding.band_at(x1) is not band and x1 > band.right > x0 - 1e-9:
            share = (band.right - x0) / (x1 - x0)
            crossing = (band.right, y0 + share * (y1 - y0))
            yield (*piece, crossing), band
            band = folding.bands[folding.bands.index(band) + 1]
            piece = [crossing]
        piece.append((x1, y1))
    yield tuple(piece), band


def straight_lines(
    cells: Sequence[Cell], placed: Placed, source: int, target: int
) -> Iterator[Line]:
    """Yield the pieces of the straight line from rim to rim, one per band that it crosses.

    In each band the line runs as it would if the whole drawing stood there.
    """
    folding = placed.folding
    (x0, _), (x1, _) = places = [
        drawing_position(cells[index], placed) for index in (source, target)
    ]
    bands = folding.bands
    first, last = (bands.index(folding.band_at(x)) for x in (x0, x1))
    way = 1 if last >= first else -1
    for number in range(first, last + way, way):
        band = bands[number]
        (begin, high), (end, low) = (
            position_in_band(cells[index], place, band, placed)
            for index, place in zip((source, target), places, strict=True)
        )
        edges = folding.place((band.left, 0), band)[0], folding.place((band.right, 0), band)[0]
        enters, leaves = edges[::way]
        x_begin = begin if number == first else enters - way * STUB
        x_end = end if number == last else leaves + way * STUB
        slope = (low - high) / (end - begin) if abs(end - begin) > 1e-9 else 0.0
        line = (
            (x_begin, high + slope * (x_begin - begin)),
            (x_end, low if x_end == end else high + slope * (x_end - begin)),
        )
        begins = placed.sizes[source] if number == first else None
        yield clipped(line, begins, placed.sizes[target] if number == last else None)


def drawing_position(cell: Cell, placed: Placed) -> Point:
    """Return the position of a cell in the drawing: a mirror has that of its forward cell."""
    drawing = placed.drawing
    if cell.backward and cell.mirror is None:
        return drawing.alone[cell.id]
    return drawing.nodes[cell.id if cell.mirror is None else cell.mirror]


def position_in_band(cell: Cell, place: Point, band: Band, placed: Placed) -> Point:
    """Return the position that a cell would have in a band."""
    point = placed.folding.place(place, band)
    return mirrored(point, band) if cell.backward and placed.drawing.halves == 2 else point


def clipped(line: tuple[Point, Point], begins: Size | None, ends: Size | None) -> Line:
    """Clip a line to the rims of the nodes in which it begins and ends, if it does."""
    (x0, y0), (x1, y1) = line
    length = max(math.hypot(x1 - x0, y1 - y0), 1e-9)
    ux, uy = (x1 - x0) / length, (y1 - y0) / length
    first, last = (0.0 if size is None else rim(size, ux, uy) + 2 for size in (begins, ends))
    return (x0 + ux * first, y0 + uy * first), (x1 - ux * last, y1 - uy * last)


def rim(size: Size, ux: float, uy: float) -> float:
    """Return the distance from a node's centre to its rim, in a direction of length 1."""
    width, height = size
    if width <= height:
        return height / 2
    return min(width / 2 / max(abs(ux), 1e-9), height / 2 / max(abs(uy), 1e-9))
