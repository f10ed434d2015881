"""What a layout is: positions, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from .cells import Cell

WIDTH = 800  # pixels of a panel, where nothing else is asked for
MARGIN = 26
GHOST = 4.5  # pixels below the picture of a node to which the bytes of its ghost reach
WITH_HALO = 13  # pixels that the picture of a node is larger than it: for its ring and halo
HEADING = 18  # pixels above a row for the headings of its nodes
Point = tuple[float, float]
Line = tuple[Point, ...]
Size = tuple[float, float]


def curve(begin: Point, leaving: Point, entering: Point, end: Point, *, parts: int = 4) -> Line:
    """Return a polyline along the cubic curve between two points, with these handles."""
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
    """What neighbours have in common, over a line that runs above them.

    Attributes:
        text: such as ``stage3``.
        left, right: where the line begins and ends.
        y: of the line; the text stands upon it.
    """

    text: str
    left: float
    right: float
    y: float


@dataclass(frozen=True, slots=True)
class Arrow:
    """A read: the target reads a value that the source makes.

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
        cells: what stands there.
        centres: the centre of every cell.
        diameter: of the cells that are discs: operators, but for those with long names.
        reads: the arrows; there is no other kind.
        dots: where a cotangent passes through a forward cell's mirror unchanged, as below an
            ``add``: no backward operator stands there.
        height: of the graph area.
        labelled: whether cells are large enough for text.
        sizes: width and height of every cell: a disc, wider for a long name, or a rounded square.
        headings: of neighbours that have a scope in common.
        width: of the panel.
        labels: what every cell says, such that it fits and no two look alike; may be empty.
        points: the size of every label.
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
        """The lines of all arrows in the open."""
        return tuple(line for read in self.reads if not read.faint for line in read.lines)

    @property
    def faint(self) -> tuple[Line, ...]:
        """The lines of all arrows that run behind other nodes."""
        return tuple(line for read in self.reads if read.faint for line in read.lines)

    @property
    def room_below(self) -> int:
        """Pixels that the bytes of a ghost below the lowest node need beyond the graph area."""
        nodes = zip(self.centres, self.sizes, strict=True)
        lowest = max((y + (height + WITH_HALO) / 2 for (_, y), (_, height) in nodes), default=0.0)
        return max(0, ceil(lowest + GHOST - self.height))

    def size(self, cell: Cell) -> Size:
        """Return width and height of a cell."""
        return self.sizes[cell.id]
