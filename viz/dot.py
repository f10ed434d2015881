"""What each node of a picture stands for and says; and the graph as DOT.

A picture shows *cells*: one for every forward operator, and one for its adjoint, which may be
several backward operators. So every forward node has at most one counterpart, in pictures of any
graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import graphviz

    from tinyckpt.graph import Graph, Operator

# What a node says where the operator's own name is too long.
SYMBOLS = {
    "absolute": "abs",
    "add": "+",
    "broadcast_to": "bc",
    "cast": "cast",
    "concatenate": "cat",
    "contiguous": "copy",
    "cross_entropy": "CE",
    "divide": "÷",
    "equal": "=",
    "greater": ">",
    "greater_equal": "≥",
    "larger": "max",
    "less": "<",
    "less_equal": "≤",
    "not_equal": "≠",
    "split": "cut",
    "unbroadcast": "Σ",
    "where": "if",
    "dropout": "drop",
    "gelu_tanh": "gelu",
    "half_squared_norm": "½x²",
    "index": "[ ]",
    "log_softmax": "lsm",
    "matmul": "@",
    "maximum": "max",
    "minimum": "min",
    "multiply": "×",  # noqa: RUF001  # the sign of multiplication
    "negative": "−",  # noqa: RUF001  # the minus sign, as a formula is set
    "one_hot": "1hot",
    "power": "xⁿ",
    "reshape": "view",
    "sigmoid": "σ",  # noqa: RUF001  # the usual name of the function
    "softmax": "smax",
    "sqrt": "√",
    "subtract": "−",  # noqa: RUF001
    "sum": "Σ",
    "transpose": "T",
}
LONGEST_NAME = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """One node of a picture.

    Attributes:
        id: position in the list of cells.
        label: what it says, a few letters.
        backward: whether it stands in the backward row.
        operators: the operators that it stands for.
        data: the values that they make.
        mirror: for a backward cell, the forward cell above it, if there is one.
    """

    id: int
    label: str
    backward: bool
    operators: tuple[int, ...]
    data: tuple[int, ...]
    mirror: int | None = None


def cells_of(graph: Graph) -> list[Cell]:
    """Return the cells of a graph: the forward ones in build order, then the backward ones."""
    forward = graph.operators[: graph.forward_count]
    cells = [
        Cell(operator.id, label_of(operator), False, (operator.id,), operator.outputs)
        for operator in forward
    ]
    groups: dict[int, list[Operator]] = {}
    for operator in graph.operators[graph.forward_count :]:
        mirror = operator.adjoint_of
        key = mirror if mirror is not None and mirror < len(forward) else -1 - operator.id
        groups.setdefault(key, []).append(operator)
    for key, operators in groups.items():
        above = key if key >= 0 else None
        own = label_of(operators[0])
        short = len(operators[0].name) <= LONGEST_NAME
        cells.append(
            Cell(
                len(cells),
                own if above is None or short else cells[above].label,
                True,
                tuple(operator.id for operator in operators),
                tuple(data for operator in operators for data in operator.outputs),
                above,
            )
        )
    return cells


def label_of(operator: Operator) -> str:
    """Return a few letters for an operator: its name if that is short, else its kind's symbol."""
    if len(operator.name) <= LONGEST_NAME:
        return operator.name
    kind = operator.kind.removesuffix("_vjp")
    return SYMBOLS.get(kind, kind[:LONGEST_NAME])


def links_of(graph: Graph, cells: list[Cell]) -> list[tuple[int, int]]:
    """Return the pairs of cells between which values flow within the forward or backward half."""
    home = {data: cell.id for cell in cells for data in cell.data}
    links: dict[tuple[int, int], None] = {}
    for cell in cells:
        for operator in cell.operators:
            for data in graph.operators[operator].inputs:
                source = home.get(data)
                if source is None or source == cell.id:
                    continue
                if cells[source].backward == cell.backward:
                    links[source, cell.id] = None
    return list(links)


def dot(graph: Graph, forward_only: bool = False) -> graphviz.Digraph:
    """Return the graph as DOT; ``.source`` is the text, which needs no Graphviz to be written.

    Node ids are numbers of cells; names appear in labels and tooltips alone, escaped.
    """
    import graphviz

    cells = cells_of(graph)
    digraph = graphviz.Digraph(
        graphviz_text(graph.name),
        graph_attr={"rankdir": "LR", "nodesep": "0.22", "ranksep": "0.28"},
        node_attr={"shape": "circle", "fixedsize": "true", "width": "0.42", "fontsize": "10"},
    )
    for cell in cells:
        if not (forward_only and cell.backward):
            names = ", ".join(graph.operators[operator].name for operator in cell.operators)
            digraph.node(
                str(cell.id),
                graphviz_text(cell.label),
                tooltip=graphviz_text(names),
                style="dashed" if cell.backward else "solid",
            )
    for source, target in links_of(graph, cells):
        if not (forward_only and cells[target].backward):
            digraph.edge(str(source), str(target))
    if not forward_only:
        for cell in cells:
            if cell.mirror is not None:
                digraph.edge(str(cell.mirror), str(cell.id), style="dotted", constraint="false")
    return digraph


def graphviz_text(text: str) -> str:
    """Return text that Graphviz shows as it is: no markup, no escapes, one line."""
    import graphviz

    printable = "".join(character if character.isprintable() else " " for character in text)
    escaped: str = graphviz.escape(graphviz.nohtml(printable))
    return escaped
