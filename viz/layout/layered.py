"""Layered graph drawing (Sugiyama et al. 1981) by Graphviz dot, wrapped into rows if too wide.

Graphviz's ``dot`` assigns the forward cells to ranks from left to right. Where that is too wide to
be legible, the drawing is cut between ranks into bands below each other, and arrows with it: an
arrow that leaves a band on the right enters the next one on the left, at the same height. The
backward pass of a band is its mirror image, below it. Chains do not need this: see ``chain_rows``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from .dot import dot
from .drawn_nodes import Cell
from .edge_routing import Band, Drawing, Folding, Placed, dot_arrows, mirrored
from .geometry import HEADING, MARGIN, WIDTH, Heading, Layout, Point, Size
from .label_fitting import common_width, wide_cells
from .run_graphviz import curve_of, point_of, run_dot

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph

# Nodes are 30 of dot's points wide. The least scale of a drawing folded into bands, and the
# scale from which one band is better than several.
SCALES = 0.54, 0.6
WIDE_SCALES = 0.7, 0.8  # names are longer than symbols
MOST_BANDS = 12  # at 800 pixels of width, like the heights below; a narrower picture is higher
HIGHEST = 300  # pixels from the uppermost to the lowest node of a pass that has one band
FOLDED = 560, 900  # pixels for all bands together: desired, and the limit at the smallest scale
TINY = 0.25  # a scale at which nodes are illegible
MOST_ASKED = 4  # factor on height and bands for drawings that would be illegible otherwise
DIAMETER = 30.0
BOX = 52.0, 30.0
ALONE = 40  # points from one column of cells without a counterpart to the next


def dot_layout(
    graph: Graph,
    cells: Sequence[Cell],
    reads: Sequence[tuple[int, int]],
    passing: set[int],
    width: float,
) -> tuple[Layout, Mapping[int, str]]:
    """Place forward cells as dot does, backward cells as their mirror image.

    Also returns the heading of each forward cell, if it has one.

    Args:
        graph: the graph.
        cells: the nodes.
        reads: edges (a, b): b reads an output of a.
        passing: forward cells below which a cotangent passes unchanged.
        width: of the panel.

    Raises:
        BackendError: if pygraphviz is not installed.
    """
    links = [(source, target) for source, target in reads if not cells[target].backward]
    drawing = drawing_of(graph, cells, links)
    folding = fold(drawing, width)
    home = {index: folding.band_at(x) for index, (x, _) in drawing.nodes.items()}
    centres = {index: folding.place(point, home[index]) for index, point in drawing.nodes.items()}
    for cell in cells:
        if cell.mirror is not None:
            centres[cell.id] = mirrored(centres[cell.mirror], home[cell.mirror])
    for index, point in drawing.alone.items():
        band = folding.band_at(point[0])
        centres[index] = folding.place(point, band)
        if drawing.halves == 2:
            centres[index] = mirrored(centres[index], band)
    diameter, wide, high = (max(6.0, side * folding.scale) for side in (DIAMETER, *BOX))
    sizes = tuple(
        (wide, high)
        if cell.group
        else (max(diameter, drawing.broad.get(cell.id, 0.0) * folding.scale), diameter)
        for cell in cells
    )
    plan = Layout(
        tuple(cells),
        tuple(centres[cell.id] for cell in cells),
        diameter,
        tuple(dot_arrows(cells, reads, passing, Placed(drawing, folding, sizes))),
        tuple(mirrored(centres[index], home[index]) for index in passing),
        folding.height,
        diameter >= 16,
        sizes,
        tuple(dot_headings(drawing, folding, sizes)),
        width,
    )
    return plan, drawing.headings


def drawing_of(graph: Graph, cells: Sequence[Cell], links: Sequence[tuple[int, int]]) -> Drawing:
    """Return dot's drawing of the forward cells, and unpaired backward cells behind them."""
    broad = wide_cells(cells, DIAMETER)
    breadth = common_width(cells, broad, BOX[0])
    widths = dict.fromkeys(broad, breadth)
    placed = run_dot(dot(graph, forward_only=True, cells=cells, widths=widths).source)
    raw = {
        cell.id: point_of(placed.get_node(str(cell.id)).attr["pos"])
        for cell in cells
        if not cell.backward
    }
    # A U reads better than an arch: the first node stands above.
    down = 2 * raw[0][1] < min(y for _, y in raw.values()) + max(y for _, y in raw.values())
    sign = -1 if down else 1
    nodes = {index: (x, sign * y) for index, (x, y) in raw.items()}
    curves = {
        link: tuple((x, sign * y) for x, y in curve_of(placed.get_edge(*link).attr["pos"]))
        for link in links
    }
    alone = [cell.id for cell in cells if cell.backward and cell.mirror is None]
    right = max(x for x, _ in nodes.values()) + 10
    low, high = min(y for _, y in nodes.values()), max(y for _, y in nodes.values())
    rows = int((high - low) // ALONE) + 1
    middle = (low + high + (min(rows, len(alone)) - 1) * ALONE) / 2
    beside = {
        index: (right + ALONE * (offset // rows + 1), middle - ALONE * (offset % rows))
        for offset, index in enumerate(alone)
    }
    wide = any(cell.group for cell in cells) or 2 * len(broad) > len(cells)
    halves = 2 if any(cell.mirror is not None for cell in cells) else 1
    return Drawing(wide, widths, halves, nodes, curves, beside, heading_scopes(cells, nodes))


def heading_scopes(cells: Sequence[Cell], nodes: Mapping[int, Point]) -> dict[int, str]:
    """Return by forward cell the scope of its heading, as deep as its cells are contiguous."""
    paths = {cell.id: cell.within.split("/") for cell in cells if cell.within and not cell.backward}
    for depth in range(max(map(len, paths.values()), default=0), 0, -1):
        names = {index: "/".join(path[:depth]) for index, path in paths.items()}
        spans: dict[str, list[float]] = {}
        for index, name in names.items():
            spans.setdefault(name, []).append(nodes[index][0])
        ordered = sorted((min(xs), max(xs)) for xs in spans.values())
        if all(one[1] < other[0] for one, other in pairwise(ordered)):
            return names
    return {}


def fold(drawing: Drawing, width: float) -> Folding:
    """Return the bands at which the drawing is largest within the height limit."""
    xs = [x for x, _ in drawing.all_nodes()]
    ys = [y for _, y in drawing.nodes.values()]
    wide, high = max(max(xs) - min(xs), 1), max(max(ys) - min(ys), 1)
    room, narrower = width - 2 * MARGIN - max(DIAMETER, *drawing.broad.values(), 0), WIDTH / width
    single_scale = min(room / wide, HIGHEST / high, 1.0)
    one_band = stack_bands(drawing, [min(xs), max(xs)], single_scale, width)
    least, enough = WIDE_SCALES if drawing.wide else SCALES
    if single_scale >= enough:
        return one_band
    foldings = []
    for count in range(
        1, round(MOST_BANDS * (narrower if single_scale > TINY else MOST_ASKED)) + 1
    ):
        cuts = cuts_of(drawing, wide / count)
        scale = min(1.0, room / max(1.0, *(right - left for left, right in pairwise(cuts))))
        if scale >= least:
            foldings.append(stack_bands(drawing, cuts, scale, width))
    wished, most = (height * narrower for height in FOLDED)
    low = [folding for folding in foldings if folding.height <= wished]
    if low:
        return max(low, key=lambda folding: folding.scale)
    lowest = min(foldings, key=lambda folding: folding.height, default=one_band)
    # A drawing illegible in one band may be higher: the user requested every operator.
    return (
        lowest
        if lowest.height <= (most if single_scale > TINY else MOST_ASKED * most)
        else one_band
    )


def cuts_of(drawing: Drawing, aim: float) -> list[float]:
    """Return the x at which bands begin and end: between ranks, each band about ``aim`` wide."""
    ranks = sorted({x for x, _ in drawing.all_nodes()})
    cuts = [ranks[0]]
    for before, rank in pairwise(ranks):
        if (before + rank) / 2 - ranks[0] > len(cuts) * aim:
            cuts.append((before + rank) / 2)
    return [*cuts, ranks[-1]]


def stack_bands(drawing: Drawing, cuts: Sequence[float], scale: float, width: float) -> Folding:
    """Stack the bands between the cuts, centred."""
    bands: list[Band] = []
    half = max(6.0, DIAMETER * scale) / 2
    heading = HEADING if drawing.headings else 0
    top = half + 7 + heading
    wide = max(right - left for left, right in pairwise(cuts))
    for left, right in pairwise(cuts):
        ys = [y for x, y in drawing.all_nodes() if left <= x <= right]
        ys += [y for curve in drawing.curves.values() for x, y in curve if left < x < right]
        low, high = min(ys), max(ys)
        axis = top + scale * (high - low) + half + 10  # between forward and backward pass
        x = (width - scale * wide) / 2
        bands.append(Band(left, right, low, high, x, top, axis))
        bottom = 2 * axis - top if drawing.halves == 2 else top + scale * (high - low)
        top = bottom + 2 * half + 16 + heading
    return Folding(tuple(bands), scale, top - half - 9 - heading)


def dot_headings(drawing: Drawing, folding: Folding, sizes: Sequence[Size]) -> Iterator[Heading]:
    """Yield a heading over the nodes of each scope, in every band that it reaches."""
    spans: dict[tuple[str, Band], list[float]] = {}
    for index, name in drawing.headings.items():
        band = folding.band_at(drawing.nodes[index][0])
        x, half = folding.place(drawing.nodes[index], band)[0], sizes[index][0] / 2
        spans.setdefault((name, band), []).extend((x - half, x + half))
    for (name, band), xs in spans.items():
        yield Heading(name, min(xs), max(xs), band.y - sizes[0][1] / 2 - 10)
