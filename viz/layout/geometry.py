"""Geometry types of a graph layout: positions, arrows, headings, Bezier curves."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from .drawn_nodes import Cell

WIDTH = 800  # default pixels of a panel
MARGIN = 26
GHOST = 4.5  # pixels that the byte count of a freed node extends below its sprite
WITH_HALO = 13  # pixels: margin of a node's sprite for ring and halo
HEADING = 18  # pixels above a row for the headings of its nodes
Point = tuple[float, float]
Line = tuple[Point, ...]
Size = tuple[float, float]


def curve(begin: Point, leaving: Point, entering: Point, end: Point, *, parts: int = 4) -> Line:
    """Sample the cubic Bezier curve between two points with these control points."""
    line = [begin]
    for part in range(1, parts + 1):
        t = part / parts
        s = 1 - t
        weights = (s**3, 3 * s * s * t, 3 * s * t * t, t**3)
        x, y = (
            sum(w * p[axis] for w, p in zip(weights, (begin, leaving, entering, end), strict=True))
            for axis in (0, 1)
        )
        line.append((x, y))
    return tuple(line)


@dataclass(frozen=True, slots=True)
class Heading:
    """Common scope of neighbours, over a line that runs above them.

    Attributes:
        text: such as ``stage3``.
        left, right: where the line begins and ends.
        y: of the line; the text stands on it.
    """

    text: str
    left: float
    right: float
    y: float


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge: the target reads an output of the source.

    Attributes:
        source, target: ids of cells.
        lines: each ends in an arrowhead; several where a fold or a dot is on the way.
        faint: whether it runs behind other nodes, to be drawn pale and below everything else.
    """

    source: int
    target: int
    lines: tuple[Line, ...]
    faint: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions in pixels at scale 1, from the top left of the panel's graph area.

    Attributes:
        cells: the nodes.
        centres: the centre of every cell.
        diameter: of the cells that are discs: operators, but for those with long names.
        reads: the arrows; there is no other kind.
        dots: where a cotangent passes a forward cell's mirror position unchanged, as below an
            ``add``: no backward operator stands there.
        height: of the graph area.
        labelled: whether cells are large enough for text.
        sizes: width and height of every cell: a disc, wider for a long name, or a rounded square.
        headings: of neighbours that have a scope in common.
        width: of the panel.
        labels: the label of every cell, fitted, unique to the eye; may be empty.
        points: the font size of every label.
    """

    cells: tuple[Cell, ...]
    centres: tuple[Point, ...]
    diameter: float
    reads: tuple[Arrow, ...]
    dots: tuple[Point, ...]
    height: float
    labelled: bool
    sizes: tuple[Size, ...]
    headings: tuple[Heading, ...] = ()
    width: float = WIDTH
    labels: tuple[str, ...] = ()
    points: tuple[int, ...] = ()

    @property
    def arrows(self) -> tuple[Line, ...]:
        """Lines of all arrows that do not run behind nodes."""
        return tuple(line for read in self.reads if not read.faint for line in read.lines)

    @property
    def faint(self) -> tuple[Line, ...]:
        """Lines of all arrows that run behind other nodes."""
        return tuple(line for read in self.reads if read.faint for line in read.lines)

    @property
    def room_below(self) -> int:
        """Pixels below the graph area that the byte count under the lowest node needs."""
        nodes = zip(self.centres, self.sizes, strict=True)
        lowest = max((y + (height + WITH_HALO) / 2 for (_, y), (_, height) in nodes), default=0.0)
        return max(0, ceil(lowest + GHOST - self.height))

    def size(self, cell: Cell) -> Size:
        """Return width and height of a cell."""
        return self.sizes[cell.id]
