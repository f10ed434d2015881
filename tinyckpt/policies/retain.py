"""From "what to keep" to an order of evaluations, on any graph; and the policy by that name.

The forward sweep evaluates every forward operator once. Of its values those to be kept stay, and
whatever the operator right behind the sweep reads. Then the backward operators follow in build
order. One that reads a value which is no longer there has it evaluated again, from the nearest
values that are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tinyckpt.cost import Costs
from tinyckpt.errors import PolicyOptionError
from tinyckpt.graph import DataNode, Graph
from tinyckpt.orders.lowering import from_order
from tinyckpt.orders.retaining import retaining_order, some_names
from tinyckpt.policies.policy import Policy
from tinyckpt.schedule import Schedule

Keep = str | DataNode | int | Iterable[str | DataNode | int] | Callable[[DataNode], bool]


def selected(graph: Graph, keep: Keep) -> list[int]:
    """Return the forward values that ``keep`` names.

    Raises:
        PolicyOptionError: if a name, id or node is not one of the graph's forward values.
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
        raise PolicyOptionError(f"retain: keep={keep!r}; give names, labels, ids or a predicate")
    chosen: dict[int, None] = {}
    for item in items:
        key = item.id if isinstance(item, DataNode) else item
        if isinstance(key, bool) or not isinstance(key, str | int) or key not in named:
            raise PolicyOptionError(
                f"retain: {item!r} is no forward value of {graph.name}; legal are names, labels, "
                f"ids and data nodes such as {some_names(candidates)}"
            )
        chosen.update(dict.fromkeys(named[key]))
    return list(chosen)


def plan_retain(graph: Graph, costs: Costs, *, keep: Keep = ()) -> Schedule:
    """Keep what the caller picked; evaluate the rest again once, when the backward first needs it.

    Args:
        graph: the training graph.
        costs: not used; the caller decides.
        keep: names or labels, data nodes or ids, or a predicate over data nodes.
    """
    kept = selected(graph, keep)
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
