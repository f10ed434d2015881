"""Separators: the forward values through which everything computed before them must pass.

A value is a separator if each path from anything it depends on to the graph's forward results
passes through it; in other words, if it post-dominates all its ancestors. Keeping it is then enough
to compute all that comes after it, whatever was dropped before. Sources are always resident, so
paths begin at operators, and a parameter that enters late spoils nothing.
"""

from __future__ import annotations

from tinyckpt.base.tree import leaves
from tinyckpt.core.graph import Graph, producer_of


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
