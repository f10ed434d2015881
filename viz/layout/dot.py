"""The text of a graph in Graphviz' language, for its layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from .cells import Cell, cells_of, printable, reads_of

if TYPE_CHECKING:
    import graphviz

    from tinyckpt.core.graph import Graph

# Characters of a text. Graphviz reads no string of more than 16,384 bytes; each of these may be
# escaped, and take four.
LONGEST_TEXT = 1000


def dot(
    graph: Graph,
    forward_only: bool = False,
    cells: Sequence[Cell] | None = None,
    widths: Mapping[int, float] = MappingProxyType({}),
) -> graphviz.Digraph:
    """Return the graph as DOT; ``.source`` is the text, which needs no Graphviz to be written.

    An edge says that the second node reads a value of the first; it is dotted where a backward
    operator reads a forward value, which has to be held or made again for it. Node ids are numbers
    of cells; names appear in labels and tooltips alone, escaped.

    Args:
        graph: the graph.
        forward_only: whether to leave the backward half out.
        cells: the nodes, if not one an operator.
        widths: of cells that are no discs, in points.
    """
    import graphviz

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
    """Return text that Graphviz shows as it is: no markup or escapes, one line, not too long."""
    import graphviz

    line = printable(text)
    cut = line if len(line) <= LONGEST_TEXT else line[: LONGEST_TEXT - 1] + "…"
    escaped: str = graphviz.escape(graphviz.nohtml(cut))
    return escaped
