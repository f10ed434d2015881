"""From "what to keep" to an order of evaluations, on any graph; and the policy by that name.

The forward sweep evaluates every forward operator once. Of its values those to be kept stay, and
whatever the operator right behind the sweep reads. Then the backward operators follow in build
order. One that reads a value which is no longer there has it evaluated again, from the nearest
values that are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from tinyckpt.cost import Costs
from tinyckpt.errors import ScheduleError
from tinyckpt.graph import DataNode, Graph
from tinyckpt.policies.lowering import from_order
from tinyckpt.policies.policy import Policy
from tinyckpt.schedule import Schedule

Keep = str | DataNode | int | Iterable[str | DataNode | int] | Callable[[DataNode], bool]


def retaining_order(graph: Graph, keep: Collection[int], reuse: bool) -> list[int]:
    """Return the order of evaluations that keeps some forward values and recomputes the others.

    Args:
        graph: any graph; without backward operators the order is the forward sweep.
        keep: data ids to keep from the forward sweep until their last reader.
        reuse: whether a recomputed value stays for all that will read it, so that nothing is
            evaluated more than twice. If not, it is gone once the operator that asked for it, and
            the very next one, have read it.
    """
    targets = range(graph.forward_count, len(graph.operators))
    order = list(range(graph.forward_count))
    if not targets or not order:
        return [*order, *targets]
    kept = with_bases(graph, keep)
    kept.update(graph.outputs)
    # Sources, kept values and results; and all that backward operators make, since only the
    # forward half is ever recomputed.
    resident = bytearray(
        node.producer is None or node.producer >= graph.forward_count or node.id in kept
        for node in graph.data
    )
    evaluated = graph.forward_count - 1
    for target in targets:
        # What the operator just evaluated has at hand is not thrown away if this one reads it.
        at_hand = {*graph.operators[evaluated].inputs, *graph.operators[evaluated].outputs}
        for operator in missing_producers(graph, target, resident, at_hand):
            order.append(operator)
            if reuse:
                for data in graph.operators[operator].outputs:
                    resident[data] = 1
        order.append(target)
        evaluated = target
    return order


def last_target_of(graph: Graph) -> list[int]:
    """Return for every value the last backward operator that reads it, or -1."""
    return [
        readers[-1] if readers and readers[-1] >= graph.forward_count else -1
        for readers in graph.consumers
    ]


def with_bases(graph: Graph, keep: Collection[int]) -> set[int]:
    """Return the values to keep and what they are views of, whose memory they hold anyway."""
    result: set[int] = set()
    for data in keep:
        current: int | None = data
        while current is not None:
            result.add(current)
            current = graph.data[current].view_of
    return result


def missing_producers(
    graph: Graph, target: int, resident: bytearray, at_hand: Collection[int]
) -> list[int]:
    """Return the operators to evaluate again before ``target`` can be, in order."""
    wanted = [data for data in graph.operators[target].inputs if data not in at_hand]
    producers: set[int] = set()
    while wanted:
        data = wanted.pop()
        if not resident[data]:
            producer = graph.data[data].producer
            assert producer is not None  # sources are resident
            if producer not in producers:
                producers.add(producer)
                wanted.extend(graph.operators[producer].inputs)
    return sorted(producers)


def selected(graph: Graph, keep: Keep) -> list[int]:
    """Return the forward values that ``keep`` names.

    Raises:
        ScheduleError: if a name, id or node is not one of the graph's forward values.
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
        raise ScheduleError(f"retain: keep={keep!r}; give names, labels, ids or a predicate")
    chosen: dict[int, None] = {}
    for item in items:
        key = item.id if isinstance(item, DataNode) else item
        if isinstance(key, bool) or not isinstance(key, str | int) or key not in named:
            raise ScheduleError(
                f"retain: {item!r} is no forward value of {graph.name}; legal are names, labels, "
                f"ids and data nodes such as {some_names(candidates)}"
            )
        chosen.update(dict.fromkeys(named[key]))
    return list(chosen)


def some_names(nodes: Sequence[DataNode]) -> str:
    """Return a few names for an error message."""
    names = list(dict.fromkeys(node.label or node.name for node in nodes))
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


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
