"""Nodes of a drawn graph (cells): operators or groups, each forward one paired with its backward.

A graph (and a partition of its forward operators) comes in, a list of cells and the reads between
them go out. A picture has one cell per forward operator, or per part of the forward pass, and one
for its backward operators (its adjoint), of which there may be several. So every forward cell has
at most one mirror, in pictures of any graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from tinyckpt.base.display import spoken
from tinyckpt.planner.model.value_fates import loss_label

from .check_label_options import Labels, requested_label
from .partition import Part

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph, Operator

# Labels of operator kinds whose own name is too long for a node.
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
    "stop_gradient": "stop",
    "unbroadcast": "Σ",
    "where": "if",
    "dropout": "drop",
    "seeded_dropout": "drop",
    "gelu_tanh": "gelu",
    "half_squared_norm": "½x²",
    "index": "[ ]",
    "log_sigmoid": "lnσ",  # noqa: RUF001
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
    "arccos": "acos",
    "arccosh": "ach",
    "arcsin": "asin",
    "arcsinh": "ash",
    "arctan": "atan",
    "arctan2": "at2",
    "arctanh": "ath",
    "argmax": "arg",
    "argmin": "arg",
    "argsort": "srt",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "cumsum": "cΣ",
    "expm1": "em1",
    "flat_index": "flat",
    "floor": "flr",
    "floor_divide": "//",
    "hypot": "hyp",
    "invert": "~",
    "isfinite": "fin?",
    "isinf": "inf?",
    "isnan": "nan?",
    "left_shift": "<<",
    "log10": "lg",
    "log1p": "l1p",
    "logaddexp": "lae",
    "logarithm": "log",
    "logical_and": "and",
    "logical_not": "not",
    "logical_or": "or",
    "logical_xor": "xor",
    "logsumexp": "lse",
    "powers": "x^y",
    "remainder": "%",
    "right_shift": ">>",
    "round": "rnd",
    "signbit": "neg?",
    "softplus": "spl",
    "trunc": "trc",
    "compressed": "zip",
    "decode": "dec",
    "encode": "enc",
    "ms_layer_norm": "LN",
    "ms_norm": "MS",
    "ms_rms_norm": "RMS",
    "regelu2": "gel2",
    "resilu2": "sil2",
    "adam_step": "adam",
    "avg_pool": "avg",
    "batch_norm_input": "bn",
    "batch_norm_scale": "bn",
    "causal_softmax": "smax",
    "conv2d_input": "conv",
    "conv2d_weight": "conv",
    "descend": "step",
    "embedding": "emb",
    "fused_attention": "attn",
    "group_norm": "GN",
    "group_norm_input": "GN",
    "group_norm_scale": "GN",
    "layer_norm": "LN",
    "layer_norm_input": "LN",
    "layer_norm_scale": "LN",
    "max_pool_take": "pool",
    "moving_average": "avg",
    "moving_square": "avg²",
    "moving_sum": "mom",
    "rms_norm": "RMS",
    "rms_norm_input": "RMS",
    "rms_norm_scale": "RMS",
    "rotary": "rot",
    "update": "set",
}
LONGEST_NAME = 4  # letters: an operator's own name up to this length is preferred to a symbol


@dataclass(frozen=True, slots=True)
class Cell:
    """One node of a picture.

    Attributes:
        id: position in the list of cells.
        label: the full label; a picture may have room for less.
        backward: whether it stands in the backward row.
        operators: ids of its operators.
        data: the outputs of these.
        mirror: for a backward cell, the forward cell above it, if there is one.
        group: whether it stands for a group of operators, or mirrors one.
        title: the full name of the group; empty for an operator.
        within: the heading over it and its neighbours, such as ``stage3``.
        named: whether the label is a name, unique in the picture; else it is a symbol.
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
    named: bool = True


def cells_of(graph: Graph, labels: Labels = None) -> list[Cell]:
    """Return one cell per operator: forward ones in build order, then backward ones."""
    parts = [Part(operator, operator + 1) for operator in range(graph.forward_count)]
    backward = range(graph.forward_count, len(graph.operators))
    return cells_of_parts(graph, parts, backward, labels=labels)


def cells_of_parts(
    graph: Graph,
    parts: Sequence[Part],
    backward: Iterable[int],
    most_alone: int | None = None,
    labels: Labels = None,
) -> list[Cell]:
    """Return a cell for each part of the forward pass, then the cells of backward operators.

    Args:
        graph: the graph.
        parts: the forward cells, in build order.
        backward: ids of the backward operators that are shown, ascending.
        most_alone: the most cells of backward operators without a shown forward operator; if there
            are more, these share cells. None for no limit.
        labels: labels of operators, see ``Naming``.
    """
    within = scopes_within(graph, parts)
    cells = [
        forward_cell(graph, place, part, within[place], labels) for place, part in enumerate(parts)
    ]
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
        cells.append(backward_cell(graph, len(cells), operators, above, labels))
    return cells


def scopes_within(graph: Graph, parts: Sequence[Part]) -> list[str]:
    """Return the heading of each part: its scope without the prefix common to all parts.

    Single operators among groups have none: the headings of groups are enough.
    """
    if any(part.stop - part.start > 1 for part in parts):
        return [part.within for part in parts]
    paths = [graph.operators[part.start].scope.split("/") for part in parts]
    is_common = (len(set(names)) == 1 for names in zip(*paths, strict=False))
    common = sum(takewhile(bool, is_common))
    return ["/".join(path[common:]) for path in paths]


def forward_cell(graph: Graph, place: int, part: Part, within: str, labels: Labels) -> Cell:
    """Return the cell of a part of the forward pass."""
    operators = graph.operators[part.start : part.stop]
    group = len(operators) > 1
    own = group or part.label
    label, named = (part.label, True) if own else label_of(graph, operators[0], labels)
    return Cell(
        place,
        one_line(label),
        False,
        tuple(range(part.start, part.stop)),
        tuple(data for operator in operators for data in operator.outputs),
        None,
        group,
        printable(part.title),
        one_line(within),
        named,
    )


def backward_cell(
    graph: Graph, place: int, operators: Sequence[int], above: Cell | None, labels: Labels
) -> Cell:
    """Return the cell of backward operators, mirror of a forward cell or of none."""
    first = graph.operators[operators[0]]
    group = above.group if above is not None else len(operators) > 1
    asked = (requested_label(labels, graph.operators[index]) for index in operators)
    own = None if group else next((text for text in asked if text is not None), None)
    if own is not None:
        label, named = own, True
    elif above is not None and (group or labels == "symbol" or len(first.name) > LONGEST_NAME):
        label, named = above.label, above.named
    elif group:
        label, named = f"{len(operators)} ops", False
    else:
        label, named = label_of(graph, first, labels)
    return Cell(
        place,
        one_line(label),
        True,
        tuple(operators),
        tuple(data for index in operators for data in graph.operators[index].outputs),
        None if above is None else above.id,
        group,
        (above.title if above is not None else label) if group else "",
        "",
        named,
    )


def label_of(graph: Graph, operator: Operator, labels: Labels = None) -> tuple[str, bool]:
    """Return the label of an operator, and whether it is a name and not a symbol.

    In order of precedence: the one that ``labels`` requests; the name that the user gave to an
    output; the operator's own if it is short, or if its kind has no symbol, as in custom models;
    the symbol of its kind.
    """
    asked = requested_label(labels, operator)
    if asked is not None:
        return asked, True
    kind = operator.kind.removesuffix("_vjp")
    symbol = SYMBOLS.get(kind, kind)
    if labels == "symbol":
        return symbol, len(symbol) > LONGEST_NAME
    given = (graph.data[data].label or loss_label(graph, data) for data in operator.outputs)
    name = spoken(operator.name) if operator.phase == "backward" else operator.name
    own = next((label for label in given if label and one_line(label)), name)
    if labels == "name" or own != name or len(own) <= LONGEST_NAME:
        return own, True
    return (symbol, False) if len(symbol) <= LONGEST_NAME else (own, True)


def reads_of(graph: Graph, cells: Sequence[Cell]) -> list[tuple[int, int]]:
    """Return the edges between cells: (a, b) if b reads an output of a."""
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
    """Return the edges within the forward pass, and those within the backward pass."""
    return [(a, b) for a, b in reads_of(graph, cells) if cells[a].backward == cells[b].backward]


def one_line(text: str) -> str:
    """Normalise whitespace to single spaces."""
    return " ".join(printable(text).split())


def printable(text: str) -> str:
    """Replace every unprintable character by a space.

    Fonts cannot measure unprintable characters: a line break in a name would end the drawing.
    """
    return "".join(character if character.isprintable() else " " for character in text)
