"""What a layout is: positions, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from viz.layout.cells import Cell

WIDTH = 800
MARGIN = 26
Point = tuple[float, float]
Line = tuple[Point, ...]
Size = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Heading:
    """What neighbouring groups have in common, over a line that runs above them.

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
class Layout:
    """Positions in pixels at scale 1, from the top left of the panel's graph area.

    Attributes:
        cells: what stands there.
        centres: the centre of every cell.
        diameter: of every cell that is no group.
        arrows: polylines, each ending in an arrowhead.
        dots: where a cotangent passes through a forward cell's mirror unchanged, as below an
            ``add``: no backward operator stands there.
        height: of the graph area.
        labelled: whether cells are large enough for text.
        box: width and height of every group, a rounded square.
        faint: arrows from forward cells to their mirrors that run behind other nodes, to be drawn
            pale and below everything else.
        headings: of neighbouring groups.
    """

    cells: tuple[Cell, ...]
    centres: tuple[Point, ...]
    diameter: float
    arrows: tuple[Line, ...]
    dots: tuple[Point, ...]
    height: float
    labelled: bool
    box: Size = (0.0, 0.0)
    faint: tuple[Line, ...] = ()
    headings: tuple[Heading, ...] = ()

    def size(self, cell: Cell) -> Size:
        """Return width and height of a cell."""
        return self.box if cell.group else (self.diameter, self.diameter)
