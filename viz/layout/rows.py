"""Where the nodes of a chain stand: in rows that fold, each forward row above its mirrors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from viz.layout.cells import Cell
from viz.layout.geometry import MARGIN, WIDTH, Arrow, Heading, Layout, Line, Point, Size, curve

BAND = 32  # the most operators in a row, where a chain folds
GROUP_BAND = 10  # likewise of groups, which are wider
GROUP_BOX = 60.0, 30.0  # the largest that a group is drawn
LETTER = 5.4  # pixels of a disc's diameter for each letter of its label, at the smallest
HEADING = 18  # pixels above a row for the headings of its groups
DIP = 6  # pixels below a row to which an arrow goes that passes nodes by

Link = tuple[int, int]
End = tuple[float, float, float, float]  # a node's centre, and how far from it arrows end


@dataclass(frozen=True, slots=True)
class Grid:
    """The measures of a chain's rows, in pixels.

    Attributes:
        band: forward cells in a row.
        pitch: from one column to the next.
        left: the left edge of the first column.
        diameter, box: sizes of operators and groups.
        apart: from a forward row to the mirrors below it.
        top: from the top to the first row.
        band_height: from one forward row to the next.
        labelled: whether every operator has room for its label.
    """

    band: int
    pitch: float
    left: float
    diameter: float
    box: Size
    apart: float
    top: float
    band_height: float
    labelled: bool

    def place(self, position: float, row: int) -> Point:
        """Return the place of a column in a forward row."""
        x = self.left + self.pitch * (position + 0.5)
        return (x, self.top + row * self.band_height)

    def edge(self, side: float) -> float:
        """Return where arrows leave a row, on the right for 1 and on the left for -1."""
        return WIDTH / 2 + side * (WIDTH / 2 - self.left + 6)


def grid_of(cells: Sequence[Cell], forward: int, alone: int) -> Grid:
    """Return the measures for so many forward cells and cells without a counterpart above."""
    groups = any(cell.group for cell in cells)
    bands = max(1, -(-forward // (GROUP_BAND if groups else BAND)))
    band = -(-forward // bands)  # equally long, so that the last is not a lone node
    # Cells without a counterpart above, such as the seed of the backward half, stand at the end.
    columns = band + alone
    pitch = (WIDTH - 2 * MARGIN) / max(columns, 8)
    left = (WIDTH - pitch * columns) / 2
    diameter = min(30.0, round(0.7 * pitch))
    longest = max((len(cell.label) for cell in cells if not cell.group), default=0)
    labelled = diameter >= max(20.0, LETTER * longest)
    apart = diameter + 22 if labelled else diameter + 14
    band_height = 2 * apart - 4 if labelled else diameter + apart + 18
    heading = HEADING if any(cell.within for cell in cells) else 0
    top = diameter / 2 + 7 + heading
    box = min(GROUP_BOX[0], round(0.76 * pitch)), min(GROUP_BOX[1], diameter)
    return Grid(band, pitch, left, diameter, box, apart, top, band_height + heading, labelled)


def chain_layout(
    cells: Sequence[Cell], passing: set[int], reads: Sequence[tuple[int, int]]
) -> Layout:
    """Return a row of forward cells above their mirrors, folded into bands if it is long.

    Args:
        cells: the nodes.
        passing: forward cells below which a cotangent passes unchanged.
        reads: pairs of cells of which the second reads a value of the first.
    """
    forward = [cell.id for cell in cells if not cell.backward]
    alone = [cell.id for cell in cells if cell.backward and cell.mirror is None]
    grid = grid_of(cells, len(forward), len(alone))
    centres: dict[int, Point] = {}
    for position, index in enumerate(forward):
        centres[index] = grid.place(position % grid.band, position // grid.band)
    for cell in cells:
        if cell.mirror is not None:
            x, y = centres[cell.mirror]
            centres[cell.id] = (x, y + grid.apart)
    last_row = max(0, len(forward) - 1) // grid.band if forward else 0
    last = (len(forward) - 1) % grid.band + 1 if forward else 0
    for offset, index in enumerate(alone):
        x, y = grid.place(last + offset, last_row)
        centres[index] = (x, y + grid.apart)
    dots = tuple((centres[index][0], centres[index][1] + grid.apart) for index in sorted(passing))
    return Layout(
        tuple(cells),
        tuple(centres[cell.id] for cell in cells),
        grid.diameter,
        tuple(chain_arrows(cells, centres, grid, reads)),
        dots,
        grid.top + last_row * grid.band_height + grid.apart + grid.diameter / 2 + DIP + 5,
        grid.labelled,
        grid.box,
        headings=tuple(chain_headings([cells[index] for index in forward], centres, grid)),
    )


def chain_arrows(
    cells: Sequence[Cell], centres: Mapping[int, Point], grid: Grid, reads: Iterable[Link]
) -> Iterator[Arrow]:
    """Yield the arrows: short ones in the gaps, arcs below nodes that are passed by."""
    air = max(2.0, 0.09 * grid.diameter)
    ends = {}
    for cell in cells:
        width, height = grid.box if cell.group else (grid.diameter, grid.diameter)
        ends[cell.id] = (*centres[cell.id], width / 2 + air, height / 2 + air)
    # The backward cells as a reader meets them, with nothing between two that are neighbours.
    backward = sorted((index for index in ends if cells[index].backward), key=lambda index: (
        centres[index][1], centres[index][0]
    ))  # fmt: skip
    place = {index: position for position, index in enumerate(backward)}
    for source, target in reads:
        start, end = ends[source], ends[target]
        across = cells[source].backward != cells[target].backward
        if across and not is_near(start, end, grid):
            yield Arrow(source, target, tuple(between(start, end, grid, False)), faint=True)
        elif across or not cells[source].backward or abs(place[source] - place[target]) == 1:
            yield Arrow(source, target, tuple(between(start, end, grid, not across)))
        else:
            yield Arrow(source, target, tuple(below(start, end, grid)))


def is_near(start: End, end: End, grid: Grid) -> bool:
    """Whether an arrow down to the other half meets no node: straight down, or one column on."""
    return abs(start[0] - end[0]) < 1.5 * grid.pitch and abs(start[1] - end[1]) <= grid.apart


def between(start: End, end: End, grid: Grid, same_half: bool) -> Iterator[Line]:
    """Yield the arrow between two nodes, or two stubs where the row folds between them."""
    (x0, y0, wide0, high0), (x1, y1, wide1, high1) = start, end
    if abs(y0 - y1) <= grid.apart:
        across, down = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
        if across and down:  # from rim to rim, as the crow flies
            length = math.hypot(x1 - x0, y1 - y0)
            ux, uy = (x1 - x0) / length, (y1 - y0) / length
            first, last = reach(ux, uy, wide0, high0), reach(ux, uy, wide1, high1)
            yield (x0 + ux * first, y0 + uy * first), (x1 - ux * last, y1 - uy * last)
        else:
            yield (
                (x0 + across * wide0, y0 + down * high0),
                (x1 - across * wide1, y1 - down * high1),
            )
    else:
        # A stub leaves at one end and another enters at the other.
        side = 1.0 if x0 > x1 else -1.0
        far = grid.pitch / 2 + 3
        # What goes to the other half does so between the rows, as it would without a fold.
        slope = 0.0 if same_half else 0.5
        yield (
            (x0 + side * wide0, y0 + slope * high0),
            (x0 + side * max(far, wide0 + 4.5), y0 + slope * grid.apart),
        )
        yield (
            (x1 - side * max(far, wide1 + 4.5), y1 - slope * grid.apart),
            (x1 - side * wide1, y1 - slope * high1),
        )


def reach(ux: float, uy: float, wide: float, high: float) -> float:
    """Return how far the rim of a node is from its centre, into a direction of length 1."""
    if wide == high:
        return wide
    return min(wide / max(abs(ux), 1e-9), high / max(abs(uy), 1e-9))


def below(start: End, end: End, grid: Grid) -> Iterator[Line]:
    """Yield the arrow that passes below the nodes between two of a row, or below those of folds."""
    (x0, y0, _, high0), (x1, y1, _, high1) = start, end
    low0, low1 = (x0, y0 + high0), (x1, y1 + high1)
    if y0 == y1:
        dip = 4 / 3 * DIP  # a cubic curve goes as far as three quarters of the way to its handles
        yield curve(low0, (x0, low0[1] + dip), (x1, low1[1] + dip), low1, parts=12)
    else:
        side = 1.0 if x0 > x1 else -1.0
        leaves, enters = grid.edge(side), grid.edge(-side)
        yield low0, (x0, low0[1] + DIP), (leaves, low0[1] + DIP)
        yield (enters, low1[1] + DIP), (x1, low1[1] + DIP), low1


def chain_headings(
    forward: Sequence[Cell], centres: Mapping[int, Point], grid: Grid
) -> Iterator[Heading]:
    """Yield a heading for each run of groups within one scope, again in every row it reaches."""
    for (text, y), run in groupby(forward, key=lambda cell: (cell.within, centres[cell.id][1])):
        if text:
            xs = [centres[cell.id][0] for cell in run]
            half, above = grid.box[0] / 2, y - grid.box[1] / 2 - 10
            yield Heading(text, min(xs) - half, max(xs) + half, above)
