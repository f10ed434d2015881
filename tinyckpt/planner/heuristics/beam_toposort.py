"""In which order operators are evaluated for the first time, so that they take little memory.

Build order is one of many legal ones. Where a graph has branches, another order may hold far less
at its peak, and costs nothing. To find the best one is NP-hard (Sethi, "Complete register
allocation problems", 1975, doi:10.1137/0204020); here a beam goes through the operators, and after
each step keeps the sets of evaluated operators that have held least at their peak, and of those the
ones that hold least now. Sets that were reached in two ways are one.

In an order without recomputations memory is held in blocks: a value and its views, from the
evaluation of the value to the last reader of any of them.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from tinyckpt.base.deadline import ENDLESS, Clock
from tinyckpt.planner.model.liveness import Problem

WIDTHS = (10, 100, 1000)
# To look at one operator that might be next takes 0.7 to 1.7 microseconds, and as long as to copy
# some 400 of the numbers that a set is known by. So these are a minute at most.
BEAM_STEPS, COPIED = 35_000_000, 400


class Path(NamedTuple):
    """Operators in the order of their evaluation: the last one, and those before it."""

    operator: int
    before: Path | None


class PartialOrder(NamedTuple):
    """A set of operators that have been evaluated, in the order that holds least at its peak.

    Attributes:
        peak, live: the most memory so far, and what is held now.
        key: of the set, the same in whatever order.
        unread: for each block how many of its readers are to come.
        awaited: for each operator how many of those it depends on are to come.
        ready: operators of which none is.
        path: the operator evaluated last, and the path before; None at the beginning. States that
            were gone through are not held: in a graph of 10,000 operators they are gigabytes.
    """

    peak: int
    live: int
    key: int
    unread: list[int]
    awaited: list[int]
    ready: tuple[int, ...]
    path: Path | None


class BlockDependencies:
    """What operators make, read and wait for, block by block.

    Attributes:
        makes: for each operator the memory that its results take, and its workspace.
        reads: for each operator the blocks that it reads, with their sizes; sources aside.
        useless: for each operator the memory of those results that nobody reads.
        after: for each operator those that wait for it: its readers, and updates of what it reads.
        start: the state before anything is evaluated.
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
            for reader, updates in problem.flat.updates.behind.items():
                for update in updates:
                    before[update].add(reader)
        self.after: list[list[int]] = [[] for _ in range(count)]
        for operator, others in enumerate(before):
            for other in sorted(others):
                self.after[other].append(operator)
        awaited = [len(others) for others in before]
        ready = tuple(operator for operator in range(count) if not awaited[operator])
        self.start = PartialOrder(0, 0, 0, unread, awaited, ready, None)


def widths_for(blocks: BlockDependencies) -> list[int]:
    """Return the widths of beams that take no more than a minute, ascending; the least anyway."""
    work = work_of(blocks)
    return [width for width in WIDTHS if width == WIDTHS[0] or width * work <= BEAM_STEPS]


def work_of(blocks: BlockDependencies) -> int:
    """Return how many operators are looked at to go through all of them in build order.

    Of each set are looked at those that are ready; what is copied of it counts as so many more.
    """
    awaited, ready, looked_at = blocks.start.awaited.copy(), len(blocks.start.ready), 0
    for after in blocks.after:
        looked_at += ready
        ready -= 1
        for other in after:
            awaited[other] -= 1
            ready += not awaited[other]
    return looked_at + len(awaited) * (len(blocks.start.unread) + len(awaited)) // COPIED


def frugal_order(blocks: BlockDependencies, width: int, deadline: Clock = ENDLESS) -> list[int]:
    """Return the order that a beam of so many sets finds.

    Raises:
        OutOfTimeError: if the deadline has passed.
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
        deadline.check()  # copies take no longer than the choice of them
        states = [evaluated(blocks, *entry) for entry in best]
    return order_of(min(states, key=lambda state: state.peak))


def evaluated(
    blocks: BlockDependencies, peak: int, live: int, key: int, state: PartialOrder, operator: int
) -> PartialOrder:
    """Return the state after one more operator."""
    unread, awaited = state.unread.copy(), state.awaited.copy()
    for block, _ in blocks.reads[operator]:
        unread[block] -= 1
    ready = [other for other in state.ready if other != operator]
    for other in blocks.after[operator]:
        awaited[other] -= 1
        if not awaited[other]:
            ready.append(other)
    return PartialOrder(peak, live, key, unread, awaited, tuple(ready), Path(operator, state.path))


def order_of(state: PartialOrder) -> list[int]:
    """Return the operators in the order that led to a state."""
    order = []
    path = state.path
    while path is not None:
        order.append(path.operator)
        path = path.before
    return order[::-1]
