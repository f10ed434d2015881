"""Separators of the forward pass by dominator analysis, and evaluation orders for a saved set.

A *separator* (articulation point) is a forward value through which every path from its ancestors to
the loss passes: it post-dominates all its ancestors. It and the sources suffice to recompute
everything after it, whatever was dropped before it. Sources are always resident, so paths begin at
operators, and a parameter that enters late does not destroy a separator.

A *keep set* is a set of forward values to save; ``retaining_order`` turns one into an evaluation
order that recomputes everything else where it is read. An *order* lists operators in the sequence
of their evaluations: one that occurs again is recomputed. ``lowering`` adds where values are freed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tinyckpt.base.deadline import MOST_EVALUATIONS, check_length
from tinyckpt.base.errors import ScheduleError, expect
from tinyckpt.base.tree import leaves
from tinyckpt.base.units import counted
from tinyckpt.core.graph import DataNode, Graph


def separators(graph: Graph) -> list[int]:
    """Find the separators of the forward pass: data ids, each an ancestor of the next.

    Where several chains of separators run in parallel (two towers that join late), the chain with
    the most ancestors is returned. Iterative; linear but for the depth of the dominator tree that
    a join has to climb.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x: tc.sin(tc.tanh(x) + x) + tc.cos(x), tc.Spec((3,)))
    >>> [graph.data[data].name for data in tc.separators(graph)]
    ['tanh_1', 'add_1', 'sin_1', 'add_2']

    Source: post-dominators by intersection, after Cooper, Harvey and Kennedy, "A simple, fast
    dominance algorithm", 2001, in one pass since the graph is acyclic.
    """
    expect(graph, Graph)
    parent, depth, successors = post_dominators(graph)
    entering = edges_from_outside(graph, parent, successors)
    size = summed_over_subtrees(parent, [1] * len(graph.data))
    candidates = [
        node.id
        for node in graph.data
        if node.producer is not None and node.producer < graph.forward_count
        and parent[node.id] is not None and entering[node.id] == 0
    ]  # fmt: skip
    # Candidates' subtrees are nested or disjoint: descend from the largest, keeping each candidate
    # that lies inside the previous one's subtree.
    candidates.sort(key=lambda data: (-size[data], -data))
    line: list[int] = []
    for data in candidates:
        if not line or is_post_dominated_by(data, line[-1], parent, depth):
            line.append(data)
    return line[::-1]


# Post-dominators -----------------------------------------------------------------------------

EXIT = -1  # the virtual root of the post-dominator tree, after the sink
Parents = list[int | None]


def forward_successors(graph: Graph) -> list[list[int]]:
    """Return every value's forward successors: the outputs of the forward operators reading it."""
    successors: list[list[int]] = [[] for _ in graph.data]
    for operator in graph.operators[: graph.forward_count]:
        for data in dict.fromkeys(operator.inputs):
            if not graph.data[data].is_source:
                successors[data].extend(operator.outputs)
    return successors


def post_dominators(graph: Graph) -> tuple[Parents, list[int], list[list[int]]]:
    """Compute immediate post-dominators, depths in their tree, and successors of forward values.

    The parent is EXIT for values that only the exit post-dominates, and None for values that are
    not forward values or from which the sink is not reachable.
    """
    successors = forward_successors(graph)
    sink = forward_sink(graph)
    parent: Parents = [None] * len(graph.data)
    depth = [0] * len(graph.data)
    for operator in reversed(graph.operators[: graph.forward_count]):
        for data in operator.outputs:
            common: int | None = EXIT if data == sink else None
            for successor in successors[data]:
                if parent[successor] is None:
                    continue
                common = (
                    successor if common is None else intersect(common, successor, parent, depth)
                )
            parent[data] = common
            depth[data] = 0 if common in (None, EXIT) else depth[common] + 1
    return parent, depth, successors


def forward_sink(graph: Graph) -> int | None:
    """Return the sink of the forward pass: the loss, or else the last operator's first output.

    Other results are no sinks. They stay resident to the end in any case, so that a path which
    leaves through them requires nothing else to be saved.
    """
    first = next(iter(leaves(graph.results)), None)
    if first is not None:
        producer = graph.data[first].producer
        if producer is not None and producer < graph.forward_count:
            return int(first)
    last = graph.forward_count - 1
    return graph.operators[last].outputs[0] if last >= 0 else None


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


def edges_from_outside(graph: Graph, parent: Parents, successors: list[list[int]]) -> list[int]:
    """Count, for every value, the edges into its subtree of the dominator tree from outside.

    An edge p -> w enters every subtree that contains w but not p: those rooted at w and its
    ancestors, up to but excluding the parent of p, which is w or an ancestor of w since every path
    from p passes it. So it counts +1 at w and -1 at the parent of p, summed over subtrees. If the
    count is 0, all that the value depends on is in its subtree: it separates.
    """
    count = [0] * len(graph.data)
    for data, values in enumerate(successors):
        if parent[data] is None:
            continue
        for successor in values:
            if parent[successor] is None:
                continue
            count[successor] += 1
            if parent[data] != EXIT:
                count[parent[data]] -= 1  # type: ignore[index]
    return summed_over_subtrees(parent, count)


def summed_over_subtrees(parent: Parents, values: list[int]) -> list[int]:
    """Sum ``values`` over each subtree, in one pass: children have smaller ids than parents."""
    totals = list(values)
    for data, above in enumerate(parent):
        if above is not None and above != EXIT:
            totals[above] += totals[data]
    return totals


def is_post_dominated_by(data: int, ancestor: int, parent: Parents, depth: list[int]) -> bool:
    """Whether ``ancestor`` post-dominates ``data``."""
    current: int | None = data
    while current is not None and current != EXIT and depth[current] > depth[ancestor]:
        current = parent[current]
    return current == ancestor


# ------------------------------------------------------------------------------------------------
# Keep sets: orders that save given values and recompute all others.


SAMPLED = 32  # backward operators from which the length of an order is estimated
GOLDEN = (5**0.5 - 1) / 2  # its multiples mod 1 are equidistributed: no resonance with layers


def retaining_order(graph: Graph, keep: Collection[int], reuse: bool) -> list[int]:
    """Build the order that saves a keep set and recomputes all other values where they are read.

    Args:
        graph: any graph; without backward operators the order is the forward sweep.
        keep: data ids to save from the forward sweep until their last reader, or until another
            output of their operator is recomputed: an evaluation replaces all its outputs. Outputs
            of non-recomputable operators are saved as well.
        reuse: whether a recomputed value stays resident for all its remaining readers, so that
            nothing is evaluated more than twice. If not, it serves the backward operator that it
            was recomputed for and those directly after it, as long as each reads it.

    Raises:
        ScheduleError: if the order would be too long, as is possible without reuse.
    """
    targets = range(graph.forward_count, len(graph.operators))
    order = list(range(graph.forward_count))
    if not targets or not order:
        return [*order, *targets]
    kept = close_over_views(graph, [*keep, *pinned_values(graph)])
    kept.update(graph.outputs)
    # Never recomputed: sources, the keep set and results; and outputs of backward operators, since
    # only the forward pass is ever recomputed.
    resident = bytearray(
        node.producer is None or node.producer >= graph.forward_count or node.id in kept
        for node in graph.data
    )
    if not reuse and graph.forward_count * len(targets) > MOST_EVALUATIONS:
        what = f"a schedule of {graph.name} that recomputes all for each backward operator"
        check_length(expected_length(graph, resident), what)
    for target in targets:
        # What the operator before it read and wrote is still resident: not recomputed. To look
        # back further would be to save values across operators that do not read them.
        before = graph.operators[order[-1]]
        at_hand = {*before.inputs, *before.outputs}
        wanted = [data for data in graph.operators[target].inputs if data not in at_hand]
        for operator in recompute_closure(graph, wanted, resident):
            order.append(operator)
            if reuse:
                for data in graph.operators[operator].outputs:
                    resident[data] = 1
        order.append(target)
    return order


def expected_length(graph: Graph, resident: bytearray | None = None) -> float:
    """Estimate the length of an order without reuse, by sampling backward operators.

    Args:
        graph: any graph.
        resident: marks the values that need no recomputation; sources and backward values, if not
            given.
    """
    targets = range(graph.forward_count, len(graph.operators))
    if resident is None:
        resident = bytearray(
            node.producer is None or node.producer >= graph.forward_count for node in graph.data
        )
    # Equally spaced samples could resonate with identical layers, hitting only cheap operators.
    sample: Sequence[int] = targets
    if len(targets) > SAMPLED:
        sample = [targets[int(i * GOLDEN % 1 * len(targets))] for i in range(SAMPLED)]
    inputs = [graph.operators[target].inputs for target in sample]
    needed = sum(len(recompute_closure(graph, wanted, resident)) for wanted in inputs)
    return graph.forward_count + len(targets) * (1 + needed / max(len(sample), 1))


def last_backward_readers(graph: Graph) -> list[int]:
    """Return every value's last backward reader, or -1."""
    return [
        readers[-1] if readers and readers[-1] >= graph.forward_count else -1
        for readers in graph.consumers
    ]


def pinned_values(graph: Graph) -> list[int]:
    """Return the outputs of the non-recomputable operators: they stay until their last reader."""
    return [data for index in graph.once for data in graph.operators[index].outputs]


def close_over_views(graph: Graph, keep: Collection[int]) -> set[int]:
    """Close a keep set under ``view_of``: a view keeps the memory of its base alive anyway."""
    result: set[int] = set()
    for data in keep:
        current: int | None = data
        while current is not None:
            result.add(current)
            current = graph.data[current].view_of
    return result


def recompute_closure(graph: Graph, wanted: Iterable[int], resident: bytearray) -> list[int]:
    """Return the operators that compute the wanted values from resident ones, in order."""
    needed: set[int] = set()
    todo = list(wanted)
    while todo:
        data = todo.pop()
        producer = graph.data[data].producer
        if producer is not None and not resident[data] and producer not in needed:
            needed.add(producer)
            todo.extend(graph.operators[producer].inputs)
    return sorted(needed)


def some_names(nodes: Sequence[DataNode]) -> str:
    """List a few names for an error message."""
    names = list(dict.fromkeys(node.label or node.name for node in nodes))
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


# ------------------------------------------------------------------------------------------------
# Segments: keep the values that cross the cuts, recompute all but the last segment once.
#
# Source: Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost", 2016,
# arXiv 1604.06174. A segment is the forward operators between two cuts; Chen's policies differ in
# where they cut. The values of the last segment are saved as well, since the backward pass begins
# there: recomputing them would save no memory.

MAX_CROSSINGS = 10_000_000  # pairs of a value and a cut that it crosses


@dataclass(frozen=True, slots=True)
class Cut:
    """A boundary between two segments: after an operator, with the values to keep there."""

    after: int
    kept: tuple[int, ...]
    at_separator: bool


def segmented_order(graph: Graph, cuts: Sequence[Cut]) -> list[int]:
    """Return the order of evaluations that keeps the values crossing the cuts."""
    last_target = last_backward_readers(graph)
    last_cut = cuts[-1].after if cuts else -1
    kept = set(values_kept_at_cuts(cuts)).union(
        node.id
        for node in graph.data
        if node.producer is not None
        and last_cut < node.producer < graph.forward_count
        and last_target[node.id] >= 0
    )
    return retaining_order(graph, kept, reuse=True)


def values_kept_at_cuts(cuts: Sequence[Cut]) -> list[int]:
    """Return the values kept at any of the cuts."""
    return sorted({data for cut in cuts for data in cut.kept})


def residual_operators(graph: Graph) -> list[int]:
    """Return the stages: the forward operators whose results the backward pass reads."""
    last_target = last_backward_readers(graph)
    return [
        operator.id
        for operator in graph.operators[: graph.forward_count]
        if any(last_target[data] >= 0 for data in operator.outputs)
    ]


def segments_note(graph: Graph, stages: int, segments: int, cuts: Sequence[Cut]) -> str:
    """Return the note of a segmented schedule: stages, segments, separators, kept values."""
    note = f"{counted(stages, 'stage')} in {counted(segments, 'segment')}"
    several = sum(not cut.at_separator for cut in cuts)
    if several:
        note += f"; no separator near {several} of {counted(len(cuts), 'cut')}"
    if cuts:
        note += f"; kept {some_names([graph.data[data] for data in values_kept_at_cuts(cuts)])}"
    return note


def crossing_values(graph: Graph, ends: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the values that cross the cut after each of some forward operators, ascending.

    Args:
        graph: any graph.
        ends: operators of the forward pass, ascending.

    Raises:
        ScheduleError: if values cross cuts in too many places.
    """
    if not ends:
        return []
    spans = []  # of each value: the cuts from its producer on, up to its last forward reader
    for operator in graph.operators[: graph.forward_count]:
        for data in operator.outputs:
            readers = [reader for reader in graph.consumers[data] if reader < graph.forward_count]
            last = readers[-1] if readers else operator.id
            if operator.id == graph.forward_count - 1 and data not in graph.outputs:
                last = graph.forward_count  # passed on to the backward pass
            spans.append((bisect_left(ends, operator.id), bisect_left(ends, last), data))
    if (pairs := sum(stop - start for start, stop, _ in spans)) > MAX_CROSSINGS:
        raise ScheduleError(
            f"{graph.name}: values cross {len(ends):,} cuts in {pairs:,} places; the limit is "
            f"{MAX_CROSSINGS:,}"
        )
    crossing: list[list[int]] = [[] for _ in ends]
    for start, stop, data in spans:
        for place in range(start, stop):
            crossing[place].append(data)
    return [tuple(sorted(values)) for values in crossing]


def nothing_to_reverse(graph: Graph) -> bool:
    """Whether a forward or backward pass is missing, so that every operator is evaluated once."""
    return graph.forward_count in (0, len(graph.operators))
