"""What each node of a picture stands for and says; and the graph as DOT.

A picture shows *cells*: one for every forward operator, or for a part of the forward half, and one
for its adjoint, which may be several backward operators. So every forward node has at most one
counterpart, in pictures of any graph.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from viz.layout.parts import DASH, Part

if TYPE_CHECKING:
    from tinyckpt.graph import Graph, Operator

# What a node says where the operator's own name is too long.
SYMBOLS = {
    "absolute": "abs",
    "add": "+",
    "batch_norm": "bn",
    "broadcast_to": "bc",
    "cast": "cast",
    "concatenate": "cat",
    "contiguous": "copy",
    "conv2d": "conv",
    "conv_transpose2d": "up",
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
    "seeded_dropout": "drop",
    "gelu_tanh": "gelu",
    "half_squared_norm": "½x²",
    "index": "[ ]",
    "log_softmax": "lsm",
    "matmul": "@",
    "max_pool": "pool",
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
LONGEST_LABEL = 9  # of a group


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
        group: whether it stands for a group of operators, or mirrors one.
        title: the full name of the group; empty for an operator.
        within: what a heading over a group and its neighbours says, such as ``stage3``.
    """

    id: int
    label: str
    backward: bool
    operators: tuple[int, ...]
    data: tuple[int, ...]
    mirror: int | None = None
    group: bool = False
    title: str = ""
    within: str = ""


def cells_of(graph: Graph) -> list[Cell]:
    """Return one cell an operator: the forward ones in build order, then the backward ones."""
    parts = [Part(operator, operator + 1) for operator in range(graph.forward_count)]
    return cells_of_parts(graph, parts, range(graph.forward_count, len(graph.operators)))


def cells_of_parts(
    graph: Graph, parts: Sequence[Part], backward: Iterable[int], most_alone: int | None = None
) -> list[Cell]:
    """Return a cell for each part of the forward half, then the cells of backward operators.

    Args:
        graph: the graph.
        parts: the forward cells, in build order.
        backward: ids of the backward operators that are shown, ascending.
        most_alone: the most cells for those that are no adjoint of what is shown; more of them
            share cells. Any number if it is None.
    """
    cells = [forward_cell(graph, place, part) for place, part in enumerate(parts)]
    home = {operator: cell.id for cell in cells for operator in cell.operators}
    rows: dict[int, list[int]] = {}
    for index in backward:
        adjoint_of = graph.operators[index].adjoint_of
        mirror = None if adjoint_of is None else home.get(adjoint_of)
        rows.setdefault(-1 - index if mirror is None else mirror, []).append(index)
    alone = [key for key in rows if key < 0]
    if most_alone is not None and len(alone) > most_alone:
        size = -(-len(alone) // most_alone)
        for place in range(0, len(alone), size):
            for key in alone[place + 1 : place + size]:
                rows[alone[place]] += rows.pop(key)
    for key, operators in rows.items():
        above = cells[key] if key >= 0 else None
        cells.append(backward_cell(graph, len(cells), operators, above))
    return cells


def forward_cell(graph: Graph, place: int, part: Part) -> Cell:
    """Return the cell of a part of the forward half."""
    operators = graph.operators[part.start : part.stop]
    group = len(operators) > 1
    return Cell(
        place,
        shortened(printable(part.label)) if group else label_of(operators[0]),
        False,
        tuple(range(part.start, part.stop)),
        tuple(data for operator in operators for data in operator.outputs),
        None,
        group,
        printable(part.title),
        printable(part.within),
    )


def backward_cell(graph: Graph, place: int, operators: Sequence[int], above: Cell | None) -> Cell:
    """Return the cell of backward operators: adjoints of what is above, or of nothing shown."""
    first = graph.operators[operators[0]]
    group = above.group if above is not None else len(operators) > 1
    if above is not None and (group or len(first.name) > LONGEST_NAME):
        label = above.label
    elif group:
        label = f"{len(operators)} ops"
    else:
        label = label_of(first)
    return Cell(
        place,
        label,
        True,
        tuple(operators),
        tuple(data for index in operators for data in graph.operators[index].outputs),
        None if above is None else above.id,
        group,
        (above.title if above is not None else label) if group else "",
    )


def told_apart(cells: Sequence[Cell]) -> list[Cell]:
    """Return cells whose groups say more where they would say the same: ``s3/block1``.

    For pictures in which no heading says what neighbours have in common.
    """
    forward = [cell for cell in cells if cell.group and not cell.backward]
    counts = Counter(cell.label for cell in forward)
    longer = {
        cell.id: shortened(f"{initials(cell.within)}/{cell.label}")
        for cell in forward
        if cell.within and counts[cell.label] > 1
    }
    return [
        replace(cell, label=longer.get(cell.id if cell.mirror is None else cell.mirror, cell.label))
        for cell in cells
    ]


def initials(scope: str) -> str:
    """Return the first letter of each name in a scope, and its number.

    >>> initials("encoder/stage12")
    'e/s12'
    """
    names = scope.split("/")
    return "/".join(name[:1] + name[len(name.rstrip("0123456789")) :] for name in names)


def shortened(label: str) -> str:
    """Return a group's label, cut to what a node has room for.

    >>> shortened("layer13\u201316"), shortened("f12501\u201315625"), shortened("self_attention")
    ('13\u201316', '12501\u2026', 'self_att\u2026')
    """
    if len(label) > LONGEST_LABEL and DASH in label:
        label = label.lstrip("abcdefghijklmnopqrstuvwxyz_")
        if len(label) > LONGEST_LABEL:
            # Where a range is too long to be read, its beginning says where the reader is.
            return f"{label.partition(DASH)[0][: LONGEST_LABEL - 1]}\u2026"
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}\u2026"


def label_of(operator: Operator) -> str:
    """Return a few letters for an operator: its name if that is short, else its kind's symbol.

    Of somebody's own model, whose kinds nobody knows, they are what tells its operators apart: the
    last word's first letter and the last number, such as ``a12`` for ``layers.12.attention``.
    """
    if len(operator.name) <= LONGEST_NAME:
        return printable(operator.name)
    kind = operator.kind.removesuffix("_vjp")
    if kind in SYMBOLS or operator.primitive is not None or len(kind) <= LONGEST_NAME:
        return SYMBOLS.get(kind, printable(kind[:LONGEST_NAME]))
    words: list[str] = re.findall(r"[^\W\d_]+", operator.name)
    numbers: list[str] = re.findall(r"\d+", operator.name)
    if words and numbers and len(numbers[-1]) < LONGEST_NAME:
        return words[-1][0] + numbers[-1]
    return printable(kind[:LONGEST_NAME])


def reads_of(graph: Graph, cells: Sequence[Cell]) -> list[tuple[int, int]]:
    """Return the pairs of cells of which the second reads a value that the first makes."""
    home = {data: cell.id for cell in cells for data in cell.data}
    reads: dict[tuple[int, int], None] = {}
    for cell in cells:
        for operator in cell.operators:
            for data in graph.operators[operator].inputs:
                source = home.get(data)
                if source is not None and source != cell.id:
                    reads[source, cell.id] = None
    return list(reads)


def links_of(graph: Graph, cells: Sequence[Cell]) -> list[tuple[int, int]]:
    """Return the reads within the forward half, and those within the backward half."""
    return [(a, b) for a, b in reads_of(graph, cells) if cells[a].backward == cells[b].backward]


def printable(text: str) -> str:
    """Return text on one line, with everything unprintable as spaces.

    Fonts cannot measure anything else: a line break in a name would end the drawing.
    """
    return "".join(character if character.isprintable() else " " for character in text)
