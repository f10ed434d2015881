"""Where the nodes of a picture stand.

A chain is laid out here, in rows that fold. Any other graph's forward half is laid out by
Graphviz's ``dot``, in this process; the backward half is its mirror image below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tinyckpt.errors import BackendError
from viz.dot import Cell, cells_of, dot, links_of

if TYPE_CHECKING:
    from tinyckpt.graph import Graph

WIDTH = 800
MARGIN = 26
BAND = 32  # the most layers in a row, where a chain folds
HIGHEST = 300  # pixels between the uppermost and the lowest node of a half
Point = tuple[float, float]
Move = Callable[[Point], Point]


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions in pixels at scale 1, from the top left of the panel's graph area.

    Attributes:
        cells: what stands there.
        centres: the centre of every cell.
        diameter: of every cell.
        arrows: polylines, each ending in an arrowhead.
        dots: where a cotangent passes through a forward cell's mirror unchanged, as below an
            ``add``: no backward operator stands there.
        height: of the graph area.
        labelled: whether cells are large enough for text.
    """

    cells: tuple[Cell, ...]
    centres: tuple[Point, ...]
    diameter: float
    arrows: tuple[tuple[Point, ...], ...]
    dots: tuple[Point, ...]
    height: float
    labelled: bool


def layout(graph: Graph) -> Layout:
    """Return where the cells of a graph stand.

    An arrow between two mirrors says that a cotangent goes from one adjoint to the other: computed
    there, or passed on unchanged.

    Raises:
        BackendError: if the graph is no chain and pygraphviz is not installed.
    """
    cells = cells_of(graph)
    every = links_of(graph, cells)
    links = [(a, b) for a, b in every if not cells[b].backward]
    if is_chain(cells, links):
        return chain_layout(cells, links, [(a, b) for a, b in every if cells[b].backward])
    return dot_layout(graph, cells, links)


def is_chain(cells: Sequence[Cell], links: Sequence[tuple[int, int]]) -> bool:
    """Whether every forward cell feeds the next one and no other."""
    forward = sum(not cell.backward for cell in cells)
    return set(links) == {(i, i + 1) for i in range(forward - 1)}


def passed_through(cells: Sequence[Cell], links: Sequence[tuple[int, int]]) -> set[int]:
    """Return the forward cells without a mirror that lie between cells with one."""
    mirrored = {cell.mirror for cell in cells if cell.mirror is not None}
    before, after = set(mirrored), set(mirrored)
    for source, target in sorted(links, key=lambda link: link[1]):
        if source in before:
            before.add(target)
    for source, target in sorted(links, reverse=True):
        if target in after:
            after.add(source)
    return (before & after) - mirrored


def chain_layout(
    cells: Sequence[Cell],
    links: Sequence[tuple[int, int]],
    backward_links: Sequence[tuple[int, int]],
) -> Layout:
    """Return a row of forward cells above their mirrors, folded into bands if it is long."""
    forward = [cell for cell in cells if not cell.backward]
    alone = [cell for cell in cells if cell.backward and cell.mirror is None]
    # Cells without a counterpart above, such as the seed of the backward half, stand at the end.
    bands = max(1, -(-len(forward) // BAND))
    band = -(-len(forward) // bands)  # equally long, so that the last is not a lone node
    columns = band + len(alone)
    pitch = (WIDTH - 2 * MARGIN) / max(columns, 8)
    left = (WIDTH - pitch * columns) / 2
    diameter = min(30.0, round(0.7 * pitch))
    labelled = diameter >= 20
    apart = diameter + 22 if labelled else diameter + 14
    band_height = 2 * apart - 4 if labelled else diameter + apart + 18
    margin = diameter / 2 + 7
    centres: dict[int, Point] = {}

    def column(place: float) -> float:
        return left + pitch * (place + 0.5)

    for position, cell in enumerate(forward):
        centres[cell.id] = (column(position % band), margin + (position // band) * band_height)
    for cell in cells:
        if cell.mirror is not None:
            x, y = centres[cell.mirror]
            centres[cell.id] = (x, y + apart)
    last = (len(forward) - 1) % band + 1 if forward else 0
    for offset, cell in enumerate(alone):
        y = margin + (bands - 1) * band_height + apart
        centres[cell.id] = (column(last + offset), y)
    passing = passed_through(cells, links)
    dots = {index: (centres[index][0], centres[index][1] + apart) for index in passing}
    return Layout(
        tuple(cells),
        tuple(centres[cell.id] for cell in cells),
        diameter,
        tuple(chain_arrows(cells, centres, dots, diameter, pitch, backward_links)),
        tuple(dots.values()),
        margin + (bands - 1) * band_height + apart + margin,
        labelled,
    )


def chain_arrows(
    cells: Sequence[Cell],
    centres: dict[int, Point],
    dots: dict[int, Point],
    diameter: float,
    pitch: float,
    backward_links: Sequence[tuple[int, int]],
) -> list[tuple[Point, ...]]:
    """Return short arrows in the gaps: along each row, down to the mirrors, stubs at folds."""
    mirrors = {cell.mirror: centres[cell.id] for cell in cells if cell.mirror is not None}
    below = {**mirrors, **dots}
    forward = [cell.id for cell in cells if not cell.backward]
    alone = {cell.id for cell in cells if cell.backward and cell.mirror is None}
    arrows: list[tuple[Point, ...]] = []
    small = set(dots.values())

    def gap(point: Point) -> float:
        return 4.0 if point in small else diameter / 2 + max(2.0, 0.09 * diameter)

    def between(start: Point, end: Point) -> None:
        (x0, y0), (x1, y1) = start, end
        if y0 == y1 or x0 == x1:
            along = ((x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0))
            begin, stop = gap(start), gap(end)
            arrows.append(
                (
                    (x0 + along[0] * begin, y0 + along[1] * begin),
                    (x1 - along[0] * stop, y1 - along[1] * stop),
                )
            )
        else:
            # The row folds here: a stub leaves at one end and another enters at the other.
            sign = 1.0 if x0 > x1 else -1.0
            near, far = diameter / 2 + 2, pitch / 2 + 3
            arrows.append(((x0 + sign * near, y0), (x0 + sign * far, y0)))
            arrows.append(((x1 - sign * far, y1), (x1 - sign * near, y1)))

    for source, target in pairwise(forward):
        between(centres[source], centres[target])
        if source in below and target in below:
            between(below[target], below[source])
    for above, point in mirrors.items():
        between(centres[above], point)
    for begin, end in backward_links:
        if begin in alone or end in alone:
            between(centres[begin], centres[end])
    return arrows


def dot_layout(graph: Graph, cells: Sequence[Cell], links: Sequence[tuple[int, int]]) -> Layout:
    """Return dot's positions for the forward cells and their mirror image for the backward ones."""
    placed = run_dot(dot(graph, forward_only=True).source)
    forward = [cell.id for cell in cells if not cell.backward]
    alone = [cell.id for cell in cells if cell.backward and cell.mirror is None]
    raw = {index: point_of(placed.get_node(str(index)).attr["pos"]) for index in forward}
    right = max(x for x, _ in raw.values()) + (40 if alone else 0)
    left, low = min(x for x, _ in raw.values()), min(y for _, y in raw.values())
    high = max(y for _, y in raw.values())
    scale = min((WIDTH - 2 * MARGIN - 30) / max(right - left, 1), HIGHEST / max(high - low, 1), 1.0)
    diameter = max(6.0, min(30.0, 30 * scale))
    margin = diameter / 2 + 7
    axis = margin + scale * (high - low) + diameter / 2 + 10  # between the halves
    slack = (WIDTH - 2 * MARGIN - 30 - scale * (right - left)) / 2

    def place(point: Point) -> Point:
        x, y = point
        return (MARGIN + 15 + slack + scale * (x - left), margin + scale * (high - y))

    def mirrored(point: Point) -> Point:
        return (point[0], 2 * axis - point[1])

    centres = {index: place(point) for index, point in raw.items()}
    for cell in cells:
        if cell.mirror is not None:
            centres[cell.id] = mirrored(centres[cell.mirror])
    for offset, index in enumerate(alone):
        spread = (offset + 1) / (len(alone) + 1)
        centres[index] = place((right, low + spread * (high - low)))
        centres[index] = mirrored(centres[index])
    return Layout(
        tuple(cells),
        tuple(centres[cell.id] for cell in cells),
        diameter,
        tuple(dot_arrows(placed, cells, links, place, mirrored)),
        tuple(mirrored(centres[index]) for index in passed_through(cells, links)),
        2 * axis - margin + diameter / 2 + 7,
        diameter >= 16,
    )


def dot_arrows(
    placed: Any,
    cells: Sequence[Cell],
    links: Sequence[tuple[int, int]],
    place: Move,
    mirrored: Move,
) -> list[tuple[Point, ...]]:
    """Return dot's own curves between forward cells, and each mirrored, the other way round."""
    below = passed_through(cells, links) | {cell.mirror for cell in cells}
    arrows = []
    for source, target in links:
        curve = [place(point) for point in curve_of(placed.get_edge(source, target).attr["pos"])]
        arrows.append(tuple(curve))
        if source in below and target in below:
            arrows.append(tuple(mirrored(point) for point in reversed(curve)))
    return arrows


def run_dot(source: str) -> Any:
    """Return a pygraphviz graph with positions, laid out in this process."""
    try:
        import pygraphviz
    except ImportError as error:
        raise BackendError(
            "drawing a graph that is no chain needs pygraphviz for its layout: "
            "pip install 'tinyckpt[viz]'; where it has no wheel (musl, Windows on ARM), install "
            "Graphviz and build it, or draw a chain"
        ) from error
    placed = pygraphviz.AGraph(string=source)
    # Nodes are of fixed size and their text is drawn elsewhere: without labels Graphviz does not
    # ask the system for fonts, which may be missing or complain.
    placed.node_attr["label"] = ""
    for node in placed.nodes():
        node.attr["label"] = ""
    placed.layout(prog="dot")
    return placed


def point_of(text: str) -> Point:
    """Return the point that Graphviz writes as ``x,y``."""
    x, y = text.split(",")
    return (float(x), float(y))


def curve_of(text: str) -> list[Point]:
    """Return a polyline along the cubic curves that Graphviz writes as ``e,x,y x,y x,y ...``."""
    end: list[Point] = []
    points: list[Point] = []
    for part in text.split():
        if part.startswith("e,"):
            end = [point_of(part[2:])]
        elif not part.startswith("s,"):
            points.append(point_of(part))
    line = points[:1]
    for index in range(0, len(points) - 1, 3):
        a, b, c, d = points[index : index + 4]
        for t in (0.25, 0.5, 0.75, 1.0):
            s = 1 - t
            weights = (s**3, 3 * s * s * t, 3 * s * t * t, t**3)
            line.append(
                (
                    sum(w * p[0] for w, p in zip(weights, (a, b, c, d), strict=True)),
                    sum(w * p[1] for w, p in zip(weights, (a, b, c, d), strict=True)),
                )
            )
    return [*line, *end]
