"""How users name the values to save: names, labels, glob patterns, ids, data nodes, predicates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase

from tinyckpt.base.errors import PolicyOptionError
from tinyckpt.core.cuts import some_names
from tinyckpt.core.graph import DataNode, Graph

Keep = str | DataNode | int | Iterable[str | DataNode | int] | Callable[[DataNode], bool]


def resolve_keep(graph: Graph, keep: Keep, policy: str) -> list[int]:
    """Resolve a user's ``keep`` option to forward values.

    Args:
        graph: any graph.
        keep: names, labels or glob patterns of them (``*``, ``?``), ids, data nodes; one or
            several; or a predicate over data nodes.
        policy: the policy whose option it is, for the error.

    Raises:
        PolicyOptionError: if a name, pattern, id or node matches no forward value of the graph.
    """
    candidates = [
        node
        for node in graph.data
        if node.producer is not None and node.producer < graph.forward_count
    ]
    if callable(keep):
        return [node.id for node in candidates if keep(node)]
    named: dict[str | int, list[int]] = {}
    for node in candidates:
        for key in dict.fromkeys((node.id, node.name, node.label)):
            if key is not None:
                named.setdefault(key, []).append(node.id)
    items = (keep,) if isinstance(keep, str | DataNode | int) else keep
    if not isinstance(items, Iterable) or isinstance(items, bytes):
        raise PolicyOptionError(f"{policy}: keep={keep!r}; give names, labels, ids or a predicate")
    chosen: dict[int, None] = {}
    for item in items:
        key = item.id if isinstance(item, DataNode) else item
        found = (
            []
            if isinstance(key, bool) or not isinstance(key, str | int)
            else values_named(key, named)
        )
        if not found:
            raise PolicyOptionError(
                f"{policy}: {item!r} is not a forward value of {graph.name}; expected names, "
                f"labels, ids or data nodes such as {some_names(candidates)}"
            )
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def values_named(key: str | int, named: Mapping[str | int, list[int]]) -> list[int]:
    """Return the values with a name, or with any name that matches a glob pattern."""
    if key in named or isinstance(key, int) or not {"*", "?"}.intersection(key):
        return named.get(key, [])
    pattern = key.replace("[", "[[]")  # brackets are literal, as in params[0]
    return [
        data
        for name, values in named.items()
        if isinstance(name, str) and fnmatchcase(name, pattern)
        for data in values
    ]
