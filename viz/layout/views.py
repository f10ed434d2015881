"""Views of a graph: all of it with a node a group, and each group opened up.

A small graph has one view. A large one has a view of groups, and every group of it that is not too
deep below has a view of its own, of groups again or of its operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .cells import Cell, cells_of_parts
from .geometry import WIDTH
from .grouping import asked_parts
from .naming import PLAIN, Naming
from .parts import Anatomy, Part, anatomy, parts_of
from .place import Layout, layout_of

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph

MOST_CELLS = 12_000  # in all views of a graph; the levels below that are left out
MOST_ALONE = 12  # cells of backward operators that are no adjoint, in a view of groups


@dataclass(frozen=True, slots=True)
class GroupView:
    """A picture of a graph or of one group of it.

    Attributes:
        title: empty for the whole graph, else the group's name, such as ``layer3``.
        parent: index of the view that it is opened from; None for the whole graph.
        layout: positions; ``layout.cells`` says what stands there.
        opens: by the id of a cell, forward or backward, the index of the view that it opens into.
            Groups without an entry are too many to be opened.
    """

    title: str
    parent: int | None
    layout: Layout
    opens: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sketch:
    """A view before it is laid out: its parts and cells."""

    title: str
    parent: int | None
    parts: tuple[Part, ...]
    cells: tuple[Cell, ...]


def overview(graph: Graph, width: float = WIDTH, naming: Naming = PLAIN) -> Layout:
    """Return the layout of the whole graph: what ``views_of(graph)[0]`` shows.

    Raises:
        OptionError: if the graph cannot be grouped as it is asked for.
        BackendError: if the picture is no chain and pygraphviz is not installed.
    """
    return layout_of(graph, whole(anatomy(graph), naming).cells, width)


def views_of(graph: Graph, naming: Naming = PLAIN) -> tuple[GroupView, ...]:
    """Return the views of a graph, the whole first, level by level.

    A level is there if all views down to it have at most MOST_CELLS cells: a picture that is opened
    in a browser has to hold them all.

    Raises:
        BackendError: if a picture is no chain and pygraphviz is not installed.
    """
    known = anatomy(graph)
    sketches = [whole(known, naming)]
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
            sketches.append(opened(known, index, title, parts, naming))
            opens.append({})
    for sketch, some in zip(sketches, opens, strict=True):
        above = {cell.id: cell.mirror for cell in sketch.cells if cell.mirror in some}
        some.update({index: some[mirror] for index, mirror in above.items() if mirror is not None})
    return tuple(
        GroupView(sketch.title, sketch.parent, layout_of(graph, sketch.cells), some)
        for sketch, some in zip(sketches, opens, strict=True)
    )


def whole(known: Anatomy, naming: Naming) -> Sketch:
    """Return the view of the whole graph."""
    graph = known.graph
    parts = asked_parts(known, naming.group)
    backward = range(graph.forward_count, len(graph.operators))
    grouped = any(part.stop - part.start > 1 for part in parts)
    cells = cells_of_parts(graph, parts, backward, MOST_ALONE if grouped else None, naming.labels)
    return Sketch("", None, tuple(parts), tuple(cells))


def opened(
    known: Anatomy, parent: int, title: str, parts: Sequence[Part], naming: Naming
) -> Sketch:
    """Return the view of a group: the forward operators in it, and their adjoints."""
    backward = known.adjoints_of(parts[0].start, parts[-1].stop)
    cells = cells_of_parts(known.graph, parts, backward, labels=naming.labels)
    return Sketch(title, parent, tuple(parts), tuple(cells))


def cell_count(known: Anatomy, parts: Sequence[Part]) -> int:
    """Return how many cells the view of a group has: one a part, and one for its adjoints."""
    return sum(1 + (known.before[part.stop] > known.before[part.start]) for part in parts)
