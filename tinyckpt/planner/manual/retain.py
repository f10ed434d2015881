"""Selective activation checkpointing by an explicit keep set: save its values, recompute the rest.

The forward pass evaluates every forward operator once. Values of the keep set stay resident, and so
do the inputs of the first backward operator. Then the backward operators follow in build order; a
freed value that one of them reads is recomputed from the nearest resident ancestors, and stays
until its last reader. On any graph; the order is ``core.cuts.retaining_order``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase

from tinyckpt.base.errors import PolicyOptionError
from tinyckpt.core.costs import Costs
from tinyckpt.core.cuts import retaining_order, some_names
from tinyckpt.core.graph import DataNode, Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.policies import Policy
from tinyckpt.core.schedule import Schedule

# How users name the values to save: names, labels, glob patterns, ids, data nodes, predicates.
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


def plan_retain(graph: Graph, costs: Costs, *, keep: Keep = ()) -> Schedule:
    """Save the keep set; recompute the rest once, when the backward pass first reads it.

    Args:
        graph: the training graph.
        costs: not used; the caller decides.
        keep: names or labels, or patterns of them such as ``"matmul_*"``; data nodes or ids; or a
            predicate over data nodes.

    Raises:
        PolicyOptionError: if an entry of ``keep`` is no forward value.

    >>> import tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(9), "retain", keep=["f3", "f6"])
    >>> tc.replay(schedule).recomputations
    6
    """
    kept = resolve_keep(graph, keep, "retain")
    order = retaining_order(graph, kept, reuse=True)
    nodes = [graph.data[data] for data in kept]
    note = f"kept {len(kept)} values: {some_names(nodes)}" if kept else "kept nothing"
    return from_order(graph, order, "retain", {"keep": [n.name for n in nodes]}, note, kept)


RETAIN = Policy(
    "retain",
    plan_retain,
    "keep what you pick by name, label or predicate; recompute the rest once",
    "as good as what is picked",
    "O(V + E)",
    "what torch.utils.checkpoint and jax.checkpoint let a user choose",
)
