"""Choice of the graph layout algorithm: folded rows for a chain, layered drawing otherwise.

A chain is laid out in folded rows (``chain_rows``) without Graphviz. The forward pass of any other
graph is laid out by Graphviz's ``dot`` (``layered``), in this process; the backward pass is its
mirror image below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .chain_rows import chain_layout
from .drawn_nodes import Cell, cells_of, reads_of
from .geometry import MARGIN, WIDTH, Heading, Layout, Line, Point
from .label_fitting import with_labels
from .layered import dot_layout

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph

__all__ = ["MARGIN", "WIDTH", "Heading", "Layout", "Line", "Point", "layout", "layout_of"]


def layout(graph: Graph) -> Layout:
    """Lay out a graph with one cell per operator.

    Raises:
        BackendError: if the graph is no chain and pygraphviz is not installed.
    """
    return layout_of(graph, cells_of(graph))


def layout_of(graph: Graph, cells: Sequence[Cell], width: float = WIDTH) -> Layout:
    """Lay out cells in a panel of a given width, and fit their labels.

    Every arrow is a read. A backward cell stands below the forward cell that it belongs to.

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
    """Return the forward cells without a mirror between cells with one: cotangents pass them."""
    mirrored = {cell.mirror for cell in cells if cell.mirror is not None}
    before, after = set(mirrored), set(mirrored)
    for source, target in sorted(links, key=lambda link: link[1]):
        if source in before:
            before.add(target)
    for source, target in sorted(links, reverse=True):
        if target in after:
            after.add(source)
    return (before & after) - mirrored
