"""Orders that keep given values, and recompute all others where they are read; how to name some."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from tinyckpt.base.deadline import MOST_EVALUATIONS, check_length
from tinyckpt.base.errors import PolicyOptionError
from tinyckpt.core.graph import DataNode, Graph
from tinyckpt.core.once import pinned_values

Keep = str | DataNode | int | Iterable[str | DataNode | int] | Callable[[DataNode], bool]

SAMPLED = 32  # targets from which the length of an order is estimated
GOLDEN = (5**0.5 - 1) / 2  # the fractions of its multiples keep to no period


def retaining_order(graph: Graph, keep: Collection[int], reuse: bool) -> list[int]:
    """Return the order of evaluations that keeps some forward values and recomputes the others.

    Args:
        graph: any graph; without backward operators the order is the forward sweep.
        keep: data ids to keep from the forward sweep until their last reader, besides what may not
            be evaluated twice.
        reuse: whether a recomputed value stays for all that will read it, so that nothing is
            evaluated more than twice. If not, it is gone once the operator that asked for it, and
            the very next one, have read it.

    Raises:
        ScheduleError: if the order would be too long, as one without reuse may be.
    """
    targets = range(graph.forward_count, len(graph.operators))
    order = list(range(graph.forward_count))
    if not targets or not order:
        return [*order, *targets]
    kept = with_bases(graph, [*keep, *pinned_values(graph)])
    kept.update(graph.outputs)
    # Sources, kept values and results; and all that backward operators make, since only the
    # forward half is ever recomputed.
    resident = bytearray(
        node.producer is None or node.producer >= graph.forward_count or node.id in kept
        for node in graph.data
    )
    if not reuse and graph.forward_count * len(targets) > MOST_EVALUATIONS:
        what = f"a schedule of {graph.name} that recomputes all for each backward operator"
        check_length(expected_length(graph, resident), what)
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


def expected_length(graph: Graph, resident: bytearray | None = None) -> float:
    """Return about how long an order without reuse is, from what some of its targets need.

    Args:
        graph: any graph.
        resident: what need not be recomputed; sources and backward values, if not given.
    """
    targets = range(graph.forward_count, len(graph.operators))
    if resident is None:
        resident = bytearray(
            node.producer is None or node.producer >= graph.forward_count for node in graph.data
        )
    # At equal distances, layers that are alike might all be met where nothing is needed.
    sample: Sequence[int] = targets
    if len(targets) > SAMPLED:
        sample = [targets[int(i * GOLDEN % 1 * len(targets))] for i in range(SAMPLED)]
    needed = sum(len(missing_producers(graph, target, resident, ())) for target in sample)
    return graph.forward_count + len(targets) * (1 + needed / max(len(sample), 1))


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
    return producers_of(graph, wanted, resident)


def producers_of(graph: Graph, wanted: Iterable[int], resident: bytearray) -> list[int]:
    """Return the operators that make some values from what is resident, in order."""
    needed: set[int] = set()
    todo = list(wanted)
    while todo:
        data = todo.pop()
        producer = graph.data[data].producer
        if producer is not None and not resident[data] and producer not in needed:
            needed.add(producer)
            todo.extend(graph.operators[producer].inputs)
    return sorted(needed)


def selected(graph: Graph, keep: Keep, policy: str) -> list[int]:
    """Return the forward values that ``keep`` names.

    Args:
        graph: any graph.
        keep: names, labels or patterns of them with ``*`` or ``?``, ids, data nodes; one or
            several; or a predicate over data nodes.
        policy: whose option it is, for the error.

    Raises:
        PolicyOptionError: if a name, pattern, id or node is not one of the graph's forward values.
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
            [] if isinstance(key, bool) or not isinstance(key, str | int) else matched(key, named)
        )
        if not found:
            raise PolicyOptionError(
                f"{policy}: {item!r} is no forward value of {graph.name}; legal are names, labels, "
                f"ids and data nodes such as {some_names(candidates)}"
            )
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def matched(key: str | int, named: Mapping[str | int, list[int]]) -> list[int]:
    """Return the values of a name; of a pattern, those of all names that it fits."""
    if key in named or isinstance(key, int) or not {"*", "?"}.intersection(key):
        return named.get(key, [])
    pattern = key.replace("[", "[[]")  # names have brackets, as in params[0]
    return [
        data
        for name, values in named.items()
        if isinstance(name, str) and fnmatchcase(name, pattern)
        for data in values
    ]


def some_names(nodes: Sequence[DataNode]) -> str:
    """Return a few names for an error message."""
    names = list(dict.fromkeys(node.label or node.name for node in nodes))
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
