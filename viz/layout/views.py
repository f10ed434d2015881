"""Hierarchical views of a graph: an overview with a node per group, and every group expanded.

A small graph has one view. A large one has a view of groups, and every group of it that is not too
deep has a view of its own, of groups again or of its operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .check_label_options import PLAIN, Naming
from .drawn_nodes import Cell, cells_of_parts
from .geometry import WIDTH
from .grouping import requested_parts
from .node_placement import Layout, layout_of
from .partition import Anatomy, Part, anatomy_of, parts_of

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph

MOST_CELLS = 12_000  # in all views of a graph; deeper levels are left out
MOST_ALONE = 12  # cells of backward operators without a forward one, in a view of groups


@dataclass(frozen=True, slots=True)
class GroupView:
    """Layout of a graph or of one expanded group.

    Attributes:
        title: empty for the whole graph, else the group's name, such as ``layer3``.
        parent: index of the view that it is expanded from; None for the whole graph.
        layout: positions; ``layout.drawn_nodes`` are its nodes.
        opens: by the id of a cell, forward or backward, the index of the view that it expands into.
            Groups without an entry are too many to be expanded.
    """

    title: str
    parent: int | None
    layout: Layout
    opens: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sketch:
    """A view before layout: its parts and cells."""

    title: str
    parent: int | None
    parts: tuple[Part, ...]
    cells: tuple[Cell, ...]


def overview(graph: Graph, width: float = WIDTH, naming: Naming = PLAIN) -> Layout:
    """Lay out the whole graph: equal to ``views_of(graph)[0].layout``.

    Raises:
        OptionError: if the graph cannot be grouped as requested.
        BackendError: if the picture is no chain and pygraphviz is not installed.
    """
    return layout_of(graph, overview_sketch(anatomy_of(graph), naming).cells, width)


def views_of(graph: Graph, naming: Naming = PLAIN) -> tuple[GroupView, ...]:
    """Return the views of a graph in breadth-first order, the whole graph first.

    A level exists if all views down to it have at most MOST_CELLS cells: a picture in a browser
    holds them all.

    Raises:
        BackendError: if a picture is no chain and pygraphviz is not installed.
    """
    known = anatomy_of(graph)
    sketches = [overview_sketch(known, naming)]
    opens: list[dict[int, int]] = [{}]
    level = range(1)
    count = len(sketches[0].cells)
    while level:
        below = [
            (index, place, parts_of(known, part.start, part.stop))
            for index in level
            for place, part in enumerate(sketches[index].parts)
            if part.stop - part.start > 1
        ]
        count += sum(cell_count(known, parts) for _, _, parts in below)
        if count > MOST_CELLS:
            break
        level = range(len(sketches), len(sketches) + len(below))
        for index, place, parts in below:
            opens[index][place] = len(sketches)
            title = sketches[index].parts[place].title
            sketches.append(group_sketch(known, index, title, parts, naming))
            opens.append({})
    for sketch, some in zip(sketches, opens, strict=True):
        above = {cell.id: cell.mirror for cell in sketch.cells if cell.mirror in some}
        some.update({index: some[mirror] for index, mirror in above.items() if mirror is not None})
    return tuple(
        GroupView(sketch.title, sketch.parent, layout_of(graph, sketch.cells), some)
        for sketch, some in zip(sketches, opens, strict=True)
    )


def overview_sketch(known: Anatomy, naming: Naming) -> Sketch:
    """Return the view of the whole graph."""
    graph = known.graph
    parts = requested_parts(known, naming.group)
    backward = range(graph.forward_count, len(graph.operators))
    grouped = any(part.stop - part.start > 1 for part in parts)
    cells = cells_of_parts(graph, parts, backward, MOST_ALONE if grouped else None, naming.labels)
    return Sketch("", None, tuple(parts), tuple(cells))


def group_sketch(
    known: Anatomy, parent: int, title: str, parts: Sequence[Part], naming: Naming
) -> Sketch:
    """Return the view of a group: its forward operators, and their backward operators."""
    backward = known.adjoints_of(parts[0].start, parts[-1].stop)
    cells = cells_of_parts(known.graph, parts, backward, labels=naming.labels)
    return Sketch(title, parent, tuple(parts), tuple(cells))


def cell_count(known: Anatomy, parts: Sequence[Part]) -> int:
    """Return the number of cells of a group's view: one per part, and one for its mirror."""
    return sum(1 + (known.before[part.stop] > known.before[part.start]) for part in parts)
