"""Layout of a chain in folded rows, each forward row above its mirror image, the backward row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from .drawn_nodes import LONGEST_NAME, Cell
from .geometry import (
    HEADING,
    MARGIN,
    WIDTH,
    Arrow,
    Heading,
    Layout,
    Line,
    Point,
    Size,
    curve,
)
from .label_fitting import common_width, wide_cells

# Least pitch in pixels before a chain folds: 32 operators per row of 800 pixels, or 10 groups.
PITCH, GROUP_PITCH = 23.375, 74.8
WIDEST_PITCH = 93.5
DISC = 30.0  # largest diameter of an operator
GROUP_BOX = 60.0, 30.0  # largest size of a group
WIDEST = 74.0  # largest width of an operator with a long name
LABEL_PITCH = 30.0  # pixels: pitch at which discs have room for labels
LABEL_ROWS = 4  # rows that a chain may fold into for labels, in a panel narrower than a picture
SHARE = 0.8  # of a pitch: the width of a wide node
MOST_ROWS = 6  # rows that a chain may fold into so that its names are legible
LETTER = 5.4  # pixels of a disc's diameter for each letter of its label, at the smallest
DIP = 6  # pixels below a row that an arrow dips to pass nodes

Link = tuple[int, int]
End = tuple[
    float, float, float, float
]  # centre of a node, and the horizontal and vertical distance at which arrows end


@dataclass(frozen=True, slots=True)
class Grid:
    """Measures of a chain's rows, in pixels.

    Attributes:
        band: forward cells per row.
        columns: columns of the longest row.
        pitch: from one column to the next.
        left: the left edge of the first column.
        diameter: of operators.
        breadth: of operators with long names.
        box: of groups.
        apart: from a forward row to the mirrors below it.
        top: from the top to the first row.
        band_height: from one forward row to the next.
        labelled: whether every operator has room for its label.
    """

    band: int
    columns: int
    pitch: float
    left: float
    diameter: float
    breadth: float
    box: Size
    apart: float
    top: float
    band_height: float
    labelled: bool

    def place(self, position: float, row: int) -> Point:
        """Return the point of a column in a forward row."""
        x = self.left + self.pitch * (position + 0.5)
        return (x, self.top + row * self.band_height)

    def edge(self, side: float) -> float:
        """Return the x where arrows leave a row: on the right for 1, on the left for -1."""
        middle = self.left + self.pitch * self.columns / 2
        return middle + side * (self.pitch * self.columns / 2 + 6)


def grid_of(cells: Sequence[Cell], forward: int, alone: int, width: float) -> Grid:
    """Return the measures for counts of forward cells and of unpaired backward cells."""
    groups = any(cell.group for cell in cells)
    room = width - 2 * MARGIN
    wanted = common_width(cells, wide_cells(cells, DISC), WIDEST)
    least = GROUP_PITCH if groups else PITCH
    if width < WIDTH and not groups and forward * LABEL_PITCH <= LABEL_ROWS * room:
        least = LABEL_PITCH
    # Fewer per row where cells have names, unless the chain would fold into too many rows.
    wished = min(wanted / SHARE, MOST_ROWS * room / max(forward, 1)) if wanted else least
    most = max(1, int(room / max(least, wished) + 1e-9))
    most = max(most // 2, most - max(0, alone - 1), 1)
    bands = max(1, -(-forward // most))
    band = max(1, -(-forward // bands))  # equally long, so that the last is not a lone node
    # Unpaired backward cells, such as the seed of the backward pass, stand at the end.
    columns = band + alone
    pitch = min(room / columns, WIDEST_PITCH)
    left = (width - pitch * columns) / 2
    diameter = min(DISC, round(0.7 * pitch))
    breadth = max(diameter, min(wanted, SHARE * pitch))
    # Symbols and short names are shown in full or not at all; longer ones may be truncated.
    letters = (min(len(cell.label), LONGEST_NAME) for cell in cells if not cell.group)
    labelled = diameter >= max(20.0, LETTER * max(letters, default=0))
    apart = diameter + 22 if labelled else diameter + 14
    band_height = 2 * apart - 4 if labelled else diameter + apart + 18
    heading = HEADING if any(cell.within for cell in cells) else 0
    top = diameter / 2 + 7 + heading
    box = min(GROUP_BOX[0], round(0.76 * pitch)), min(GROUP_BOX[1], diameter)
    return Grid(
        band,
        columns,
        pitch,
        left,
        diameter,
        breadth,
        box,
        apart,
        top,
        band_height + heading,
        labelled,
    )


def sizes_of(cells: Sequence[Cell], grid: Grid) -> tuple[Size, ...]:
    """Return the size of every cell."""
    broad = wide_cells(cells, grid.diameter)
    return tuple(
        grid.box
        if cell.group
        else (grid.breadth if cell.id in broad else grid.diameter, grid.diameter)
        for cell in cells
    )


def chain_layout(
    cells: Sequence[Cell], passing: set[int], reads: Sequence[tuple[int, int]], width: float
) -> Layout:
    """Place forward cells in a row above their mirrors, folded into bands if it is long.

    Args:
        cells: the nodes.
        passing: forward cells below which a cotangent passes unchanged.
        reads: pairs of cells of which the second reads a value of the first.
        width: of the panel.
    """
    forward = [cell.id for cell in cells if not cell.backward]
    alone = [cell.id for cell in cells if cell.backward and cell.mirror is None]
    grid = grid_of(cells, len(forward), len(alone), width)
    sizes = sizes_of(cells, grid)
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
        tuple(chain_arrows(cells, centres, sizes, grid, reads)),
        dots,
        grid.top + last_row * grid.band_height + grid.apart + grid.diameter / 2 + DIP + 5,
        grid.labelled,
        sizes,
        headings=tuple(chain_headings([cells[index] for index in forward], centres, sizes)),
        width=width,
    )


def chain_arrows(
    cells: Sequence[Cell],
    centres: Mapping[int, Point],
    sizes: Sequence[Size],
    grid: Grid,
    reads: Iterable[Link],
) -> Iterator[Arrow]:
    """Yield the arrows: short ones in the gaps, arcs below nodes that they pass."""
    air = max(2.0, 0.09 * grid.diameter)
    ends = {}
    for cell in cells:
        width, height = sizes[cell.id]
        ends[cell.id] = (*centres[cell.id], width / 2 + air, height / 2 + air)
    # The backward cells in reading order, without gaps.
    backward = sorted((index for index in ends if cells[index].backward), key=lambda index: (
        centres[index][1], centres[index][0]
    ))  # fmt: skip
    place = {index: position for position, index in enumerate(backward)}
    for source, target in reads:
        start, end = ends[source], ends[target]
        across = cells[source].backward != cells[target].backward
        if across and not is_near(start, end, grid):
            yield Arrow(source, target, tuple(arrow_between(start, end, grid, False)), faint=True)
        elif across or not cells[source].backward or abs(place[source] - place[target]) == 1:
            yield Arrow(source, target, tuple(arrow_between(start, end, grid, not across)))
        else:
            yield Arrow(source, target, tuple(arc_below(start, end, grid)))


def is_near(start: End, end: End, grid: Grid) -> bool:
    """Whether an arrow to the other pass meets no node: straight down, or one column over."""
    return abs(start[0] - end[0]) < 1.5 * grid.pitch and abs(start[1] - end[1]) <= grid.apart


def arrow_between(start: End, end: End, grid: Grid, same_half: bool) -> Iterator[Line]:
    """Yield the arrow between two nodes, or two stubs where the row folds between them."""
    (x0, y0, wide0, high0), (x1, y1, wide1, high1) = start, end
    if abs(y0 - y1) <= grid.apart:
        across, down = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
        if across and down:  # straight from rim to rim
            length = math.hypot(x1 - x0, y1 - y0)
            ux, uy = (x1 - x0) / length, (y1 - y0) / length
            first, last = rim_distance(ux, uy, wide0, high0), rim_distance(ux, uy, wide1, high1)
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
        # An arrow to the other pass runs between the rows, as it would without a fold.
        slope = 0.0 if same_half else 0.5
        yield (
            (x0 + side * wide0, y0 + slope * high0),
            (x0 + side * max(far, wide0 + 4.5), y0 + slope * grid.apart),
        )
        yield (
            (x1 - side * max(far, wide1 + 4.5), y1 - slope * grid.apart),
            (x1 - side * wide1, y1 - slope * high1),
        )


def rim_distance(ux: float, uy: float, wide: float, high: float) -> float:
    """Return the distance from a node's centre to its rim, in a direction of length 1."""
    if wide == high:
        return wide
    return min(wide / max(abs(ux), 1e-9), high / max(abs(uy), 1e-9))


def arc_below(start: End, end: End, grid: Grid) -> Iterator[Line]:
    """Yield the arrow that passes below the nodes between two of a row, or below those of folds."""
    (x0, y0, _, high0), (x1, y1, _, high1) = start, end
    low0, low1 = (x0, y0 + high0), (x1, y1 + high1)
    if y0 == y1:
        dip = (
            4 / 3 * DIP
        )  # a cubic Bezier curve reaches three quarters of the way to its control points
        yield curve(low0, (x0, low0[1] + dip), (x1, low1[1] + dip), low1, parts=12)
    else:
        side = 1.0 if x0 > x1 else -1.0
        leaves, enters = grid.edge(side), grid.edge(-side)
        yield low0, (x0, low0[1] + DIP), (leaves, low0[1] + DIP)
        yield (enters, low1[1] + DIP), (x1, low1[1] + DIP), low1


def chain_headings(
    forward: Sequence[Cell], centres: Mapping[int, Point], sizes: Sequence[Size]
) -> Iterator[Heading]:
    """Yield a heading for each run of cells of one scope, repeated in every row it reaches."""
    for (text, y), run in groupby(forward, key=lambda cell: (cell.within, centres[cell.id][1])):
        if text:
            cells = [cell.id for cell in run]
            left = min(centres[index][0] - sizes[index][0] / 2 for index in cells)
            right = max(centres[index][0] + sizes[index][0] / 2 for index in cells)
            yield Heading(text, left, right, y - max(sizes[index][1] for index in cells) / 2 - 10)
