"""Where the nodes of a picture stand.

A chain is laid out in rows that fold, without any help. Any other graph's forward half is laid out
by Graphviz's ``dot``, in this process; the backward half is its mirror image below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .cells import Cell, cells_of, reads_of
from .fitting import with_labels
from .geometry import MARGIN, WIDTH, Heading, Layout, Line, Point
from .layered import dot_layout
from .rows import chain_layout

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph

__all__ = ["MARGIN", "WIDTH", "Heading", "Layout", "Line", "Point", "layout", "layout_of"]


def layout(graph: Graph) -> Layout:
    """Return where the cells of a graph stand, one an operator.

    Raises:
        BackendError: if the graph is no chain and pygraphviz is not installed.
    """
    return layout_of(graph, cells_of(graph))


def layout_of(graph: Graph, cells: Sequence[Cell], width: float = WIDTH) -> Layout:
    """Return where these cells stand in a panel of a width, and what they say.

    Every arrow is a read. That a backward cell is the adjoint of a forward one is said by its
    place: below it.

    Raises:
        BackendError: if they are no chain and pygraphviz is not installed.
    """
    reads = reads_of(graph, cells)
    links = [(a, b) for a, b in reads if not cells[b].backward]
    passing = passed_through(cells, links)
    if is_chain(cells, links):
        plan = chain_layout(cells, passing, reads, width)
        return with_labels(plan, {cell.id: cell.within for cell in cells if cell.within})
    return with_labels(*dot_layout(graph, cells, reads, passing, width))


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
