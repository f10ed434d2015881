"""Graphviz DOT export of a computation graph; also the input of the layout by ``dot``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from tinyckpt.base.errors import expect
from tinyckpt.core.graph import Graph

from .drawn_nodes import Cell, cells_of, printable, reads_of

if TYPE_CHECKING:
    import graphviz

# Characters of a text. Graphviz reads strings of at most 16,384 bytes, and a character may take
# four bytes once it is escaped.
LONGEST_TEXT = 1000


def dot(
    graph: Graph,
    forward_only: bool = False,
    cells: Sequence[Cell] | None = None,
    widths: Mapping[int, float] = MappingProxyType({}),
) -> graphviz.Digraph:
    """Return the graph as DOT; ``.source`` is the text, for which Graphviz need not be installed.

    An edge means that the second node reads an output of the first; it is dotted where a backward
    operator reads a forward value, which has to be saved or recomputed for it. Node ids are cell
    ids; names appear in labels and tooltips alone, escaped.

    Args:
        graph: the graph.
        forward_only: whether to leave the backward pass out.
        cells: the nodes, by default one per operator.
        widths: widths of cells that are no discs, in points.

    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> viz.dot(tc.networks.chain(2), forward_only=True).source.splitlines()[-2].strip()
    '0 -> 1'
    """
    import graphviz

    expect(graph, Graph)
    cells = cells_of(graph) if cells is None else cells
    digraph = graphviz.Digraph(
        graphviz_text(graph.name),
        graph_attr={"rankdir": "LR", "nodesep": "0.22", "ranksep": "0.28"},
        node_attr={"shape": "circle", "fixedsize": "true", "width": "0.42", "fontsize": "10"},
    )
    for cell in cells:
        if not (forward_only and cell.backward):
            names = ", ".join(graph.operators[operator].name for operator in cell.operators)
            width = 52.0 if cell.group else widths.get(cell.id)
            shape = {"shape": "box", "width": f"{width / 72:.2f}"} if width else {}
            digraph.node(
                str(cell.id),
                graphviz_text(cell.label),
                tooltip=graphviz_text(cell.title or names),
                **shape,
                style="dashed" if cell.backward else "solid",
            )
    for source, target in reads_of(graph, cells):
        if forward_only and cells[target].backward:
            continue
        across = cells[source].backward != cells[target].backward
        looks = {"style": "dotted", "constraint": "false"} if across else {}
        digraph.edge(str(source), str(target), **looks)
    return digraph


def graphviz_text(text: str) -> str:
    """Escape text for Graphviz: no markup, no escapes, one line, limited length."""
    import graphviz

    line = printable(text)
    cut = line if len(line) <= LONGEST_TEXT else line[: LONGEST_TEXT - 1] + "…"
    escaped: str = graphviz.escape(graphviz.nohtml(cut))
    return escaped
