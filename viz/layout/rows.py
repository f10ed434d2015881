"""Where the nodes of a chain stand: in rows that fold, each forward row above its mirrors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from viz.layout.cells import Cell
from viz.layout.geometry import MARGIN, WIDTH, Heading, Layout, Line, Point, Size

BAND = 32  # the most operators in a row, where a chain folds
GROUP_BAND = 10  # likewise of groups, which are wider
GROUP_BOX = 60.0, 30.0  # the largest that a group is drawn
LETTER = 5.4  # pixels of a disc's diameter for each letter of its label, at the smallest
HEADING = 18  # pixels above a row for the headings of its groups


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
    cells: Sequence[Cell],
    passing: set[int],
    backward_links: Sequence[tuple[int, int]],
) -> Layout:
    """Return a row of forward cells above their mirrors, folded into bands if it is long.

    Args:
        cells: the nodes.
        passing: forward cells below which a cotangent passes unchanged.
        backward_links: between which backward cells values flow.
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
    dots = {index: (centres[index][0], centres[index][1] + grid.apart) for index in passing}
    return Layout(
        tuple(cells),
        tuple(centres[cell.id] for cell in cells),
        grid.diameter,
        tuple(chain_arrows(cells, centres, dots, grid, backward_links)),
        tuple(dots.values()),
        grid.top + last_row * grid.band_height + grid.apart + grid.diameter / 2 + 7,
        grid.labelled,
        grid.box,
        headings=tuple(chain_headings([cells[index] for index in forward], centres, grid)),
    )


def chain_arrows(
    cells: Sequence[Cell],
    centres: Mapping[int, Point],
    dots: Mapping[int, Point],
    grid: Grid,
    backward_links: Sequence[tuple[int, int]],
) -> Iterator[Line]:
    """Yield short arrows in the gaps: along each row, down to the mirrors, stubs at folds."""
    mirrors = {cell.mirror: cell.id for cell in cells if cell.mirror is not None}
    forward = [cell.id for cell in cells if not cell.backward]
    alone = {cell.id for cell in cells if cell.backward and cell.mirror is None}
    air = max(2.0, 0.09 * grid.diameter)
    # Where arrows begin and end: the point, and how far from it, across and down.
    ends = {}
    for cell in cells:
        width, height = grid.box if cell.group else (grid.diameter, grid.diameter)
        ends[cell.id] = (*centres[cell.id], width / 2 + air, height / 2 + air)
    below = {above: ends[index] for above, index in mirrors.items()}
    below.update({index: (*point, 4.0, 4.0) for index, point in dots.items()})
    for source, target in pairwise(forward):
        yield from between(ends[source], ends[target], grid)
        if source in below and target in below:
            yield from between(below[target], below[source], grid)
    for above, index in mirrors.items():
        yield from between(ends[above], ends[index], grid)
    for begin, end in backward_links:
        if begin in alone or end in alone:
            yield from between(ends[begin], ends[end], grid)


End = tuple[float, float, float, float]


def between(start: End, end: End, grid: Grid) -> Iterator[Line]:
    """Yield the arrow between two nodes, or two stubs where the row folds between them."""
    (x0, y0, wide0, high0), (x1, y1, wide1, high1) = start, end
    if y0 == y1:
        sign = (x1 > x0) - (x1 < x0)
        yield (x0 + sign * wide0, y0), (x1 - sign * wide1, y1)
    elif x0 == x1:
        sign = (y1 > y0) - (y1 < y0)
        yield (x0, y0 + sign * high0), (x1, y1 - sign * high1)
    else:
        # A stub leaves at one end and another enters at the other.
        side = 1.0 if x0 > x1 else -1.0
        far = grid.pitch / 2 + 3
        yield (x0 + side * wide0, y0), (x0 + side * max(far, wide0 + 4.5), y0)
        yield (x1 - side * max(far, wide1 + 4.5), y1), (x1 - side * wide1, y1)


def chain_headings(
    forward: Sequence[Cell], centres: Mapping[int, Point], grid: Grid
) -> Iterator[Heading]:
    """Yield a heading for each run of groups within one scope, again in every row it reaches."""
    for (text, y), run in groupby(forward, key=lambda cell: (cell.within, centres[cell.id][1])):
        if text:
            xs = [centres[cell.id][0] for cell in run]
            half, above = grid.box[0] / 2, y - grid.box[1] / 2 - 10
            yield Heading(text, min(xs) - half, max(xs) + half, above)
