"""Separators: the forward values through which everything computed before them must pass.

A value is a separator if each path from anything it depends on to the graph's forward results
passes through it; in other words, if it post-dominates all its ancestors. Keeping it is then enough
to compute all that comes after it, whatever was dropped before. Sources are always resident, so
paths begin at operators, and a parameter that enters late spoils nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np

from tinyckpt.base.deadline import MOST_EVALUATIONS, check_length
from tinyckpt.base.dtypes import Integers
from tinyckpt.base.errors import PolicyOptionError
from tinyckpt.base.tree import leaves
from tinyckpt.core.graph import DataNode, Graph, producer_of


def separators(graph: Graph) -> list[int]:
    """Return the separators of the forward half as data ids, each an ancestor of the next.

    Where several lines of separators run side by side (two towers that join late), the line with
    the most ancestors is returned. Iterative, and linear but for the depth of the dominator tree
    that a join has to climb.

    Source: post-dominators by intersection, after Cooper, Harvey and Kennedy, "A simple, fast
    dominance algorithm", 2001, in one pass since the graph has no cycles.
    """
    parent, depth, readers = post_dominators(graph)
    broken = breaking_edges(graph, parent, readers)
    size = subtree_sizes(graph, parent)
    candidates = [
        node.id
        for node in graph.data
        if node.producer is not None and node.producer < graph.forward_count
        and parent[node.id] is not None and broken[node.id] == 0
    ]  # fmt: skip
    # Nested subtrees: walk from the largest down, keeping what lies inside the one before.
    candidates.sort(key=lambda data: (-size[data], -data))
    line: list[int] = []
    for data in candidates:
        if not line or is_below(data, line[-1], parent, depth):
            line.append(data)
    return line[::-1]


def anchors_of(graph: Graph) -> list[tuple[int, range]]:
    """Return the separators that no backward operator reads, and the operators up to the next."""
    line = separators(graph)
    if not line:
        return []
    ends = [producer_of(graph, data) + 1 for data in line[1:]] + [graph.forward_count]
    return [
        (data, range(producer_of(graph, data) + 1, end))
        for data, end in zip(line, ends, strict=True)
        if all(reader < graph.forward_count for reader in graph.consumers[data])
        and data not in graph.outputs
    ]


EXIT = -1
Parents = list[int | None]


def forward_readers(graph: Graph) -> list[list[int]]:
    """Return for every forward value the values that forward operators compute from it."""
    readers: list[list[int]] = [[] for _ in graph.data]
    for operator in graph.operators[: graph.forward_count]:
        for data in dict.fromkeys(operator.inputs):
            if not graph.data[data].is_source:
                readers[data].extend(operator.outputs)
    return readers


def post_dominators(graph: Graph) -> tuple[Parents, list[int], list[list[int]]]:
    """Return each forward value's immediate post-dominator, its depth, and its readers.

    The parent is EXIT for what nothing but the end post-dominates, and None for values that are
    not forward values or lead nowhere.
    """
    readers = forward_readers(graph)
    results = forward_results(graph)
    parent: Parents = [None] * len(graph.data)
    depth = [0] * len(graph.data)
    for operator in reversed(graph.operators[: graph.forward_count]):
        for data in operator.outputs:
            meeting: int | None = EXIT if data in results else None
            for reader in readers[data]:
                if parent[reader] is None:
                    continue
                meeting = reader if meeting is None else intersect(meeting, reader, parent, depth)
            parent[data] = meeting
            depth[data] = 0 if meeting in (None, EXIT) else depth[meeting] + 1
    return parent, depth, readers


def forward_results(graph: Graph) -> set[int]:
    """Return where the forward half ends: at the loss, or at what the last operator makes.

    Other results end nothing. They are kept to the end in any case, so that a path which leaves
    through them is no reason to keep anything else.
    """
    first = next(iter(leaves(graph.results)), None)
    if first is not None:
        producer = graph.data[first].producer
        if producer is not None and producer < graph.forward_count:
            return {first}
    last = graph.forward_count - 1
    return {graph.operators[last].outputs[0]} if last >= 0 else set()


def intersect(left: int, right: int, parent: Parents, depth: list[int]) -> int:
    """Return the nearest common post-dominator of two values."""
    while left != right:
        if left == EXIT or right == EXIT:
            return EXIT
        if depth[left] >= depth[right]:
            left = parent[left]  # type: ignore[assignment]  # only values with a parent are joined
        else:
            right = parent[right]  # type: ignore[assignment]
    return left


def breaking_edges(graph: Graph, parent: Parents, readers: list[list[int]]) -> list[int]:
    """Return for every value how many edges enter its subtree of the dominator tree from outside.

    An edge p -> w leaves every subtree that holds w but not p: those from w up to, and without,
    the parent of p. So it counts +1 at w and -1 at the parent of p, summed over subtrees.
    """
    count = [0] * len(graph.data)
    for data, values in enumerate(readers):
        if parent[data] is None:
            continue
        for reader in values:
            if parent[reader] is None:
                continue
            count[reader] += 1
            if parent[data] != EXIT:
                count[parent[data]] -= 1  # type: ignore[index]
    return summed_over_subtrees(graph, parent, count)


def subtree_sizes(graph: Graph, parent: Parents) -> list[int]:
    """Return for every value how many values it post-dominates, itself included."""
    return summed_over_subtrees(graph, parent, [1] * len(graph.data))


def summed_over_subtrees(graph: Graph, parent: Parents, values: list[int]) -> list[int]:
    """Return the sum of ``values`` over each subtree; children have smaller ids than parents."""
    totals = list(values)
    for data, above in enumerate(parent):
        if above is not None and above != EXIT:
            totals[above] += totals[data]
    return totals


def is_below(data: int, ancestor: int, parent: Parents, depth: list[int]) -> bool:
    """Whether ``ancestor`` post-dominates ``data``."""
    current: int | None = data
    while current is not None and current != EXIT and depth[current] > depth[ancestor]:
        current = parent[current]
    return current == ancestor


# ------------------------------------------------------------------------------------------------
# Orders that keep given values, and recompute all others where they are read; how to name some.


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


# ------------------------------------------------------------------------------------------------
# Operators that may not be evaluated twice: what that asks of an order of evaluations.
#
# What such an operator makes is *pinned*: it stays from the one evaluation until its last reader.
# In an order that is seen to by leaving out the later evaluations, since liveness follows from what
# is left. Planners that know of pinned values beforehand make better orders; none makes an illegal
# one.


def pinned_values(graph: Graph) -> list[int]:
    """Return what operators make that may not be evaluated twice."""
    return [data for index in graph.once for data in graph.operators[index].outputs]


def without_repeats(graph: Graph, order: Integers) -> Integers:
    """Return the order without evaluations for the second time that may not be.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x: tc.sin(tc.once(tc.tanh(x))), tc.Spec((3,)))
    >>> without_repeats(graph, np.array([0, 0, 1, 0, 1])).tolist()
    [0, 1, 1]
    """
    if not graph.once:
        return order
    is_once = np.zeros(len(graph.operators), bool)
    is_once[list(graph.once)] = True
    places = np.flatnonzero(is_once[order])
    _, first = np.unique(order[places], return_index=True)
    if len(first) == len(places):
        return order
    stays = np.ones(len(order), bool)
    stays[places] = False
    stays[places[first]] = True
    return order[stays]
