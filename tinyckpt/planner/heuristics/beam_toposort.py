"""Beam search for a topological order of low peak memory, without recomputation.

Build order is one of many topological orders. Where a graph has branches, another order may have a
far lower peak, at no cost. Finding the best one is NP-hard (Sethi, "Complete register allocation
problems", 1975, doi:10.1137/0204020). The states of the beam are sets of evaluated operators; after
each step those with the lowest peak so far survive, ties broken by the memory live now. Sets
reached by different orders are merged (as in dynamic programming over subsets).

In an order without recomputations memory is live in blocks: a value and its views, from the
evaluation of the value to the last reader of any of them.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from tinyckpt.base.deadline import NO_DEADLINE, Clock
from tinyckpt.planner.model.liveness import Problem

# Beam widths that are tried, in states: a wider beam finds lower peaks, in proportional time.
BEAM_WIDTHS = (10, 100, 1000)
# Expansions (a state and a ready operator) that a beam may take in total. An expansion takes 0.7 to
# 1.7 microseconds, so these are a minute at most; larger: wider beams for larger graphs.
# COPIED: integers of a state that are copied in the time of one expansion; larger: copies count for
# less in the estimate.
MAX_EXPANSIONS, COPIES_PER_EXPANSION = 35_000_000, 400


class Path(NamedTuple):
    """Order of evaluations as a linked list that states share: the last operator and its prefix."""

    operator: int
    before: Path | None


class PartialOrder(NamedTuple):
    """State of the beam: a set of evaluated operators, with the order of lowest peak found for it.

    Attributes:
        peak, live: peak memory so far, and memory live now.
        key: hash of the set, independent of the order (Zobrist hashing: the exclusive or of a
            random key per operator).
        unread: for each block, the number of readers still to come.
        awaited: for each operator, the number of predecessors still to come.
        ready: operators all of whose predecessors have been evaluated.
        path: the operator evaluated last, and the path before; None at the beginning. Predecessor
            states are not kept: in a graph of 10,000 operators they would take gigabytes.
    """

    peak: int
    live: int
    key: int
    unread: list[int]
    awaited: list[int]
    ready: tuple[int, ...]
    path: Path | None


class BlockDependencies:
    """Dependences of operators, and the storage blocks that they define and use.

    Attributes:
        makes: for each operator, the memory of its outputs, and its workspace.
        reads: for each operator, the blocks that it reads with their sizes, sources excluded; a
            result of the graph has size 0 here, since it is never freed.
        useless: for each operator, the memory of its outputs that have no reader (dead values).
        after: for each operator, its successors: readers, and updates of sources that it reads.
        start: the initial state.
    """

    def __init__(self, problem: Problem) -> None:
        graph, root, size = problem.graph, problem.root, problem.size.tolist()
        count, source = len(graph.operators), [node.is_source for node in graph.data]
        results = {root[data] for data in graph.outputs}
        read = [
            sorted({root[d] for d in operator.inputs if not source[root[d]]})
            for operator in graph.operators
        ]
        unread = [0] * len(graph.data)
        for blocks in read:
            for block in blocks:
                unread[block] += 1
        self.reads = [
            [(block, 0 if block in results else size[block]) for block in blocks] for blocks in read
        ]
        made = [[d for d in operator.outputs if root[d] == d] for operator in graph.operators]
        self.makes = [
            (sum(size[d] for d in values), workspace)
            for values, workspace in zip(made, problem.workspace.tolist(), strict=True)
        ]
        self.useless = [
            sum(size[d] for d in values if not unread[d] and d not in results) for values in made
        ]
        before: list[set[int]] = [
            {p for d in operator.inputs if (p := graph.data[d].producer) is not None}
            for operator in graph.operators
        ]
        if problem.flat.updates is not None:
            for reader, updates in problem.flat.updates.updates_after.items():
                for update in updates:
                    before[update].add(reader)
        self.after: list[list[int]] = [[] for _ in range(count)]
        for operator, others in enumerate(before):
            for other in sorted(others):
                self.after[other].append(operator)
        awaited = [len(others) for others in before]
        ready = tuple(operator for operator in range(count) if not awaited[operator])
        self.start = PartialOrder(0, 0, 0, unread, awaited, ready, None)


def affordable_widths(blocks: BlockDependencies) -> list[int]:
    """Return the beam widths affordable within a minute, ascending; the smallest one always."""
    work = expansions_of(blocks)
    return [
        width for width in BEAM_WIDTHS if width == BEAM_WIDTHS[0] or width * work <= MAX_EXPANSIONS
    ]


def expansions_of(blocks: BlockDependencies) -> int:
    """Estimate the expansions of a beam of width 1 by following build order.

    A state is expanded by each ready operator; copying it counts as further expansions.
    """
    awaited, ready, looked_at = blocks.start.awaited.copy(), len(blocks.start.ready), 0
    for after in blocks.after:
        looked_at += ready
        ready -= 1
        for other in after:
            awaited[other] -= 1
            ready += not awaited[other]
    return (
        looked_at + len(awaited) * (len(blocks.start.unread) + len(awaited)) // COPIES_PER_EXPANSION
    )


def beam_search_order(
    blocks: BlockDependencies, width: int, deadline: Clock = NO_DEADLINE
) -> list[int]:
    """Find an order of low peak memory by beam search.

    Args:
        blocks: the dependences of a problem.
        width: the number of states that survive each step.
        deadline: of the search.

    Raises:
        OutOfTimeError: if the deadline has passed.

    >>> import tinyckpt as tc
    >>> def loss(x):
    ...     a, b = tc.tanh(x), tc.sin(x)  # build order: both large values are live at once
    ...     return tc.sum(a) + tc.sum(b)
    >>> graph = tc.build(loss, tc.Spec(1000))
    >>> problem = Problem(graph, tc.cost.evaluations(graph))
    >>> order = beam_search_order(BlockDependencies(problem), 10)
    >>> problem.peak(range(len(graph.operators))), problem.peak(order)
    (16008, 8016)
    """
    random = Random(0)
    keys = [random.getrandbits(62) for _ in blocks.makes]
    states = [blocks.start]
    for _ in blocks.makes:
        found: dict[int, tuple[int, int, int, PartialOrder, int]] = {}
        for state in states:
            deadline.check()
            for operator in state.ready:
                made, workspace = blocks.makes[operator]
                live = state.live + made
                peak = max(state.peak, live + workspace)
                live -= blocks.useless[operator]
                unread = state.unread
                for block, size in blocks.reads[operator]:
                    if unread[block] == 1:
                        live -= size
                key = state.key ^ keys[operator]
                known = found.get(key)
                if known is None or (peak, live) < known[:2]:
                    found[key] = peak, live, key, state, operator
        best = sorted(found.values(), key=lambda entry: entry[:3])[:width]
        deadline.check()  # copying the survivors takes no longer than selecting them
        states = [successor(blocks, *entry) for entry in best]
    return unrolled_order(min(states, key=lambda state: state.peak))


def successor(
    blocks: BlockDependencies, peak: int, live: int, key: int, state: PartialOrder, operator: int
) -> PartialOrder:
    """Return the successor state after one more operator."""
    unread, awaited = state.unread.copy(), state.awaited.copy()
    for block, _ in blocks.reads[operator]:
        unread[block] -= 1
    ready = [other for other in state.ready if other != operator]
    for other in blocks.after[operator]:
        awaited[other] -= 1
        if not awaited[other]:
            ready.append(other)
    return PartialOrder(peak, live, key, unread, awaited, tuple(ready), Path(operator, state.path))


def unrolled_order(state: PartialOrder) -> list[int]:
    """Unroll the linked list of a state into an order of operators."""
    order = []
    path = state.path
    while path is not None:
        order.append(path.operator)
        path = path.before
    return order[::-1]
