"""Vectorised liveness analysis of an evaluation order: live ranges, memory over time, peak.

An order of operators, with recomputations, comes in; the live range of every result and the memory
during every evaluation go out. For a fixed order the optimal frees are unique: keep each result
exactly until its last reader before the operator is evaluated again. NumPy computes all of it
without a Python loop over the order, so that planners can score thousands of orders. ``replay``
counts the same memory step by step; tests compare the two. ``Problem`` is the graph with its costs
as flat arrays, the input of every planner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from tinyckpt.base.dtypes import Integers
from tinyckpt.base.errors import ScheduleError
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import checked_id
from tinyckpt.ops.non_recomputable import drop_once_repeats
from tinyckpt.ops.update_steps import UpdateOrder


@dataclass(frozen=True, slots=True, eq=False)
class RaggedArray:
    """Ragged integer array in CSR layout: row i is ``items[first[i] : first[i + 1]]``."""

    items: Integers
    first: Integers

    def take(self, rows: Integers) -> tuple[Integers, Integers]:
        """Gather some rows: their items, and for each item its position in ``rows``."""
        first = self.first[rows]
        lengths = self.first[rows + 1] - first
        position = np.arange(len(rows)).repeat(lengths)
        # Of row i the items from place cumsum(lengths)[i] - lengths[i] on come from first[i] on.
        shift = (first - lengths.cumsum() + lengths).repeat(lengths)
        return self.items[np.arange(len(position)) + shift], position

    def only(self, is_chosen: Any) -> RaggedArray:
        """Drop the items whose mask entry is False from all rows."""
        stays = is_chosen[self.items]
        before = np.concatenate([[0], np.cumsum(stays)])
        return RaggedArray(self.items[stays], before[self.first])


def ragged_array(lists: Sequence[Sequence[int]]) -> RaggedArray:
    """Pack lists into CSR layout."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    items = np.fromiter(chain.from_iterable(lists), np.int64, int(lengths.sum()))
    return RaggedArray(items, np.concatenate([[0], np.cumsum(lengths)]))


@dataclass(frozen=True, slots=True, eq=False)
class LiveRanges:
    """Live ranges: one per evaluation and output value of it.

    Attributes:
        data: data ids, ascending; the ranges of one value follow each other in time.
        begin: position in the order at which the value is computed.
        end: last position at which the value is live; the length of the order for a result of the
            graph, which is never freed.
    """

    data: Integers
    begin: Integers
    end: Integers


class FlatGraph:
    """A graph as flat arrays: operands and results of its operators, sources excluded.

    Attributes:
        graph: the graph.
        producer: for each value, the operator that computes it; -1 for a source.
        reads: for each operator, its input values; a value read twice occurs twice.
        writes: for each operator, its output values.
        is_output: for each value, whether it is a result of the graph.
        updates: the update operators and their ordering constraints; None if there are none.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        producers = [-1 if node.producer is None else node.producer for node in graph.data]
        self.producer = np.array(producers, np.int64)
        self.reads = ragged_array([operator.inputs for operator in graph.operators]).only(
            self.producer >= 0
        )
        self.writes = ragged_array([operator.outputs for operator in graph.operators])
        self.is_output = np.zeros(len(graph.data), bool)
        self.is_output[list(graph.outputs)] = True
        self.is_output &= self.producer >= 0
        self.updates = UpdateOrder(graph) if graph.updates else None

    def settled(self, order: Integers) -> Integers:
        """Legalise an order: drop repeated non-recomputable operators, move updates last."""
        if self.graph.once:
            self.check_ids(order)
        return self.updates_last(drop_once_repeats(self.graph, order))

    def updates_last(self, order: Integers) -> Integers:
        """Move each update of a source after the last reader of the old value."""
        if self.updates is None:
            return order
        self.check_ids(order)
        return self.updates.last(order)

    def spans(self, order: Integers) -> LiveRanges:
        """Compute the live ranges of an order.

        Raises:
            ScheduleError: if an operator reads a value before it is computed, or the order omits a
                result of the graph.
        """
        self.check_ids(order)
        written, written_at = self.writes.take(order)
        read, read_at = self.reads.take(order)
        # Events as packed keys, value * scale + time, sorted by value and then by time. A read at
        # position p has time 2p, a write 2p + 1, since an evaluation reads before it writes.
        scale = 2 * len(order) + 2
        keys = np.concatenate([written * scale + 2 * written_at + 1, read * scale + 2 * read_at])
        keys.sort()
        data, time = np.divmod(keys, scale)
        is_write = (time & 1).astype(bool)
        is_first = np.ones(len(data), bool)
        np.not_equal(data[1:], data[:-1], out=is_first[1:])
        self.check_readers(order, data, time, is_first & ~is_write)
        # A value's events from one write to the next belong to one live range.
        (begins,) = is_write.nonzero()
        last, is_last_span = np.full(len(begins), len(keys) - 1), np.full(len(begins), True)
        last[:-1] = begins[1:] - 1
        is_last_span[:-1] = is_first[begins[1:]]
        end = time[last] >> 1
        end[is_last_span & self.is_output[data[begins]]] = len(order)
        spans = LiveRanges(data[begins], time[begins] >> 1, end)
        self.check_outputs(spans)
        return spans

    def check_ids(self, order: Integers) -> None:
        """Raise a ScheduleError unless all entries of the order are operator ids."""
        count = len(self.graph.operators)
        if len(order) and (order.min() < 0 or order.max() >= count):
            wrong = np.flatnonzero((order < 0) | (order >= count))[0]
            checked_id(f"order[{wrong}]", "operator", int(order[wrong]), self.graph)

    def check_readers(self, order: Integers, data: Integers, time: Integers, is_early: Any) -> None:
        """Raise a ScheduleError if a value is read before it is computed."""
        if is_early.any():
            early = np.flatnonzero(is_early)
            at = early[np.argmin(time[early])]
            position = int(time[at]) >> 1
            raise ScheduleError(
                f"order[{position}] evaluates {self.graph.operators[order[position]].name}, which "
                f"reads {self.graph.data[data[at]].name} before anything has computed it"
            )

    def check_outputs(self, spans: LiveRanges) -> None:
        """Raise a ScheduleError unless all results of the graph are computed."""
        missing = self.is_output.copy()
        missing[spans.data] = False
        if missing.any():
            names = ", ".join(self.graph.data[data].name for data in np.flatnonzero(missing))
            raise ScheduleError(f"the order never computes {names}")


class Problem:
    """The rematerialization problem: a graph with its costs and sizes as flat arrays.

    Attributes:
        graph, costs, flat: the same facts in three forms.
        cost: cost of one evaluation of each operator.
        size: memory of each value; 0 for a source, and for a view unless memory is counted in
            nodes.
        workspace: memory that each operator uses in addition to inputs and outputs.
        root: for each value, the value that owns its storage: itself if it is no view.
        in_order: whether first evaluations have to come in build order.
        free: the problem in which they do not have to, if this one was made from it.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(2)  # operators 0 to 4: f1 f2 l b2 b1
    >>> problem = Problem(graph, tc.cost.evaluations(graph))
    >>> problem.live(range(5)).tolist()
    [512, 1024, 1536, 2048, 1536]
    >>> problem.peak([0, 1, 2, 3, 0, 4]), problem.cost_of([0, 1, 2, 3, 0, 4])
    (1536, 6.0)
    """

    def __init__(self, graph: Graph, costs: Costs) -> None:
        self.graph, self.costs, self.flat = graph, costs, FlatGraph(graph)
        self.in_order = False
        self.free: Problem | None = None
        self.cost = np.array(costs.operators, np.float64)
        self.size = np.array(costs.data, np.int64)
        self.workspace = np.array(costs.workspace, np.int64)
        source = np.array([node.is_source for node in graph.data], bool)
        self.size[source] = 0
        self.base, self.view_levels = view_levels(graph, costs)
        self.root = list(range(len(graph.data)))
        for node in graph.data:
            base = int(self.base[node.id])
            if base != node.id:
                self.root[node.id] = self.root[base]

    @cached_property
    def lists(self) -> ProblemLists:
        """The same facts as lists, which are read faster one by one."""
        return ProblemLists(self)

    def in_build_order(self) -> Problem:
        """Return this problem, of the same arrays, with first evaluations in build order."""
        fixed = copy(self)
        fixed.in_order, fixed.free = True, self
        return fixed

    def cost_of(self, order: Iterable[int]) -> float:
        """Return the cost of all evaluations."""
        return float(self.cost[drop_once_repeats(self.graph, as_integers(order))].sum())

    def live(self, order: Iterable[int]) -> Integers:
        """Return the live memory during each evaluation, as ``replay`` counts it.

        Raises:
            ScheduleError: if an operator reads a value before it is computed, or the order omits a
                result of the graph.
        """
        positions = self.flat.settled(as_integers(order))
        spans = self.flat.spans(positions)
        end = self.block_ends(spans, len(positions)) if self.view_levels else spans.end
        size = self.size[spans.data]
        change = np.zeros(len(positions) + 2, np.int64)
        np.add.at(change, spans.begin, size)
        np.subtract.at(change, end + 1, size)
        live: Integers = np.cumsum(change)[: len(positions)] + self.workspace[positions]
        return live

    def peak(self, order: Iterable[int]) -> int:
        """Return the peak: the most live memory during any evaluation."""
        return int(self.live(order).max(initial=0))

    def needs(self) -> Integers:
        """Return the working set of each operator: the memory of inputs, outputs and workspace."""
        operators, root = np.arange(len(self.graph.operators)), np.asarray(self.root, np.int64)
        touched = [rows.take(operators) for rows in (self.flat.reads, self.flat.writes)]
        # Storages as packed keys, operator * values + root: unique counts a value and its views
        # once per operator.
        blocks = np.unique(np.concatenate([at * len(root) + root[data] for data, at in touched]))
        found = self.workspace.copy()
        np.add.at(found, blocks // len(root), self.size[blocks % len(root)])
        return found

    def block_ends(self, spans: LiveRanges, length: int) -> Integers:
        """Extend each live range to the last use of its storage, by the value or a view of it."""
        end = spans.end.copy()
        keys = spans.data * (length + 1) + spans.begin
        for is_view in self.view_levels:
            views = np.flatnonzero(is_view[spans.data])
            # The base as of the view's evaluation: its latest live range that began before.
            base = self.base[spans.data[views]]
            parent = np.searchsorted(keys, base * (length + 1) + spans.begin[views]) - 1
            np.maximum.at(end, parent, end[views])
        return end


class ProblemLists:
    """A problem as lists, for runs over single operators; nobody changes them.

    Attributes:
        inputs: for each operator, the values that it reads, without sources, each once.
        outputs: for each operator, the values that it computes.
        producer: for each value, the operator that computes it; -1 for a source.
        cost, size: as of the problem.
        views: for each value, the views that share its storage.
        sizes: for each value, the memory of its storage; an array.
    """

    def __init__(self, problem: Problem) -> None:
        graph = problem.graph
        source = [node.is_source for node in graph.data]
        self.inputs = [
            [data for data in dict.fromkeys(operator.inputs) if not source[data]]
            for operator in graph.operators
        ]
        self.outputs = [operator.outputs for operator in graph.operators]
        self.producer: list[int] = problem.flat.producer.tolist()
        self.cost: list[float] = problem.cost.tolist()
        self.size: list[int] = problem.size.tolist()
        self.views = views_of(problem)
        self.sizes: Integers = problem.size[problem.root]


def as_integers(order: Iterable[int]) -> Integers:
    """Convert an order to an integer array."""
    return np.asarray(order if isinstance(order, np.ndarray | list | tuple) else list(order), int)


def views_of(problem: Problem) -> list[list[int]]:
    """Return for each value the views that share its storage."""
    views: list[list[int]] = [[] for _ in problem.root]
    for data, root in enumerate(problem.root):
        if root != data:
            views[root].append(data)
    return views


def view_levels(graph: Graph, costs: Costs) -> tuple[Integers, list[Any]]:
    """Return the base of each view, and masks of views by depth, the deepest views first."""
    base = np.arange(len(graph.data))
    depth = np.zeros(len(graph.data), np.int64)
    if costs.memory_unit == "bytes":
        for node in graph.data:
            if node.view_of is not None and not graph.data[node.view_of].is_source:
                base[node.id], depth[node.id] = node.view_of, depth[node.view_of] + 1
    return base, [depth == level for level in range(int(depth.max(initial=0)), 0, -1)]


# A Problem by the identity of its graph, the costs and whether the order is fixed, while somebody
# holds it: the request of a call, or a search. It holds its graph, so that no other graph can take
# the same id meanwhile.
_problems: WeakValueDictionary[tuple[int, Costs, bool], Problem] = WeakValueDictionary()


def problem_of(graph: Graph, costs: Costs, in_order: bool = False) -> Problem:
    """Return the Problem of a graph and its costs: the one in use, if there is one.

    So a policy, whose arguments are a graph and costs, shares the arrays of the ``plan`` that calls
    it. Without a lock, so that a forked process never waits: two threads may at worst build two.
    """
    key = id(graph), costs, in_order
    found = _problems.get(key)
    if found is None:
        found = problem_of(graph, costs).in_build_order() if in_order else Problem(graph, costs)
        found = _problems.setdefault(key, found)
    return found
