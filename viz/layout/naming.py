"""What people may ask of a picture's nodes: how they are called, and what shares one.

Both are asked of operators, so that one answer does for every picture of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinyckpt.base.errors import OptionError

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph, Operator

# From an operator to its text; None for what it has otherwise. Groups keep their own names.
Labels = str | Mapping[Any, str] | Callable[["Operator"], str | None] | None
# From a forward operator to its group; None for a node of its own.
Grouping = str | Callable[["Operator"], str | None] | None
LABELS = ("name", "symbol")
GROUPINGS = ("scope", "operator")


@dataclass(frozen=True, slots=True)
class Naming:
    """What people asked of a picture's nodes.

    Attributes:
        labels: what operators are called. ``name``: their names; ``symbol``: their kinds; a
            mapping from an operator's id or name to a text; or a function of an operator that
            returns a text, or None. Without it, and where mapping and function say nothing: the
            name that ``tc.name`` gave to its value, or its own if that is short, or its kind's
            symbol.
        group: what shares a node. ``scope``: each scope; ``operator``: nothing; a function of an
            operator that returns its group's name, or None; neighbours of one name are a group.
            Without it, as the size of the graph asks for.
    """

    labels: Labels = None
    group: Grouping = None


PLAIN = Naming()


def check_naming(naming: Naming, graphs: Sequence[Graph]) -> None:
    """Raise an OptionError unless labels and groups can be asked of these graphs' operators."""
    labels, group = naming.labels, naming.group
    if isinstance(labels, Mapping):
        known = {key for graph in graphs for o in graph.operators for key in (o.id, o.name)}
        for key, text in labels.items():
            if key not in known:
                raise OptionError(f"labels: no operator has the id or name {key!r}")
            checked_text(text, "labels", f"for {key!r}")
    elif not (labels is None or callable(labels) or labels in LABELS):
        raise OptionError(
            f"labels {labels!r}: legal are {', '.join(LABELS)}, a mapping from an operator's id or "
            "name to a text, or a function of an operator"
        )
    if not (group is None or callable(group) or group in GROUPINGS):
        raise OptionError(
            f"group {group!r}: legal are {', '.join(GROUPINGS)}, or a function of an operator"
        )


def checked_text(text: Any, option: str, where: str) -> str | None:
    """Return a text or None, or raise an OptionError about anything else."""
    if text is None or isinstance(text, str):
        return text
    raise OptionError(f"{option}: expected a text {where}, got a {type(text).__name__}")


def asked_label(labels: Labels, operator: Operator) -> str | None:
    """Return what a mapping or a function calls an operator; None where they say nothing."""
    if isinstance(labels, Mapping):
        return labels.get(operator.id, labels.get(operator.name))
    if callable(labels):
        return checked_text(labels(operator), "labels", f"or None for {operator.name}")
    return None
