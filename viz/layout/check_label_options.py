"""User options for labels and grouping of nodes: their types and validation.

Both options are functions of operators, so that one value serves every picture of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinyckpt.base.errors import OptionError

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph, Operator

# From an operator to its label; None for the default label. Groups keep their own names.
Labels = str | Mapping[Any, str] | Callable[["Operator"], str | None] | None
# From a forward operator to its group; None for a node of its own.
Grouping = str | Callable[["Operator"], str | None] | None
LABELS = ("name", "symbol")
GROUPINGS = ("scope", "operator")


@dataclass(frozen=True, slots=True)
class Naming:
    """Requested labels and groups.

    Attributes:
        labels: labels of operators. ``name``: their names; ``symbol``: their kinds; a mapping from
            an operator's id or name to a text; or a function of an operator that returns a text, or
            None. By default, and where mapping and function give none: the name that ``tc.name``
            gave to its value, or its own if that is short, or its kind's symbol.
        group: operators that share a node. ``scope``: those of a scope; ``operator``: none; a
            function of an operator that returns its group's name, or None; neighbours of one name
            are a group. The default depends on the size of the graph.
    """

    labels: Labels = None
    group: Grouping = None


PLAIN = Naming()


def check_naming(naming: Naming, graphs: Sequence[Graph]) -> None:
    """Raise OptionError unless labels and groups apply to the operators of these graphs."""
    labels, group = naming.labels, naming.group
    if isinstance(labels, Mapping):
        known = {key for graph in graphs for o in graph.operators for key in (o.id, o.name)}
        for key, text in labels.items():
            if key not in known:
                raise OptionError(f"labels: no operator has the id or name {key!r}")
            checked_text(text, "labels", f"for {key!r}")
    elif not (labels is None or callable(labels) or labels in LABELS):
        raise OptionError(
            f"labels {labels!r}: expected {', '.join(LABELS)}, a mapping from an operator's id or "
            "name to a text, or a function of an operator"
        )
    if not (group is None or callable(group) or group in GROUPINGS):
        raise OptionError(
            f"group {group!r}: expected {', '.join(GROUPINGS)}, or a function of an operator"
        )


def checked_text(text: Any, option: str, where: str) -> str | None:
    """Return a text or None; raise OptionError for anything else."""
    if text is None or isinstance(text, str):
        return text
    raise OptionError(f"{option}: expected a text {where}, got a {type(text).__name__}")


def requested_label(labels: Labels, operator: Operator) -> str | None:
    """Return the label that a mapping or a function gives an operator; None if it gives none."""
    if isinstance(labels, Mapping):
        return labels.get(operator.id, labels.get(operator.name))
    if callable(labels):
        return checked_text(labels(operator), "labels", f"or None for {operator.name}")
    return None
