"""Updates come last: the order in which no source is updated before its last reader.

Policies choose when operators are evaluated by what they read and make. That an update takes the
old value away from whoever reads it later, recomputations included, is no edge of the graph; it is
seen to here, once an order is there. In most orders nothing has to move.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyckpt.core.graph import Graph, old_source

Integers = np.ndarray[Any, np.dtype[np.int64]]


class Updates:
    """Which operators update which source, and who reads what it was before.

    Attributes:
        graph: a graph with updates.
        source: for each update the source, by operator id.
        reads: for each operator the sources that it reads as they were, of those with an update.
        behind: for each such operator the updates that must come after it.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.source = {update: graph.operators[update].inputs[0] for update in graph.updates}
        updated = set(self.source.values())
        self.reads: dict[int, set[int]] = {}
        for node in graph.data:
            source = old_source(graph, node.id)
            if source in updated:
                for reader in graph.consumers[node.id]:
                    if self.source.get(reader) != source:
                        self.reads.setdefault(reader, set()).add(source)
        update_of = {source: update for update, source in self.source.items()}
        self.behind = {
            reader: sorted(update_of[source] for source in sources)
            for reader, sources in self.reads.items()
        }

    def last(self, order: Integers) -> Integers:
        """Return the order with each update after the last evaluation that reads the old value.

        What reads the result of an update that has to wait, waits with it.
        """
        if not self.is_early(order):
            return order
        awaited = dict.fromkeys(self.source.values(), 0)
        for index in order.tolist():
            for source in self.reads.get(index, ()):
                awaited[source] += 1
        line = PendingUpdates(self, awaited)
        for index in order.tolist():
            line.take(index)
        return np.array([*line.done, *line.waiting], np.int64)

    def is_early(self, order: Integers) -> bool:
        """Whether an update comes before a reader of the old value."""
        last = np.full(len(self.graph.operators), -1)
        last[order] = np.arange(len(order))  # of several positions, the last one is written
        ends = dict.fromkeys(self.source.values(), -1)
        for reader, sources in self.reads.items():
            for source in sources:
                ends[source] = max(ends[source], int(last[reader]))
        return any(last[update] < ends[source] for update, source in self.source.items())


class PendingUpdates:
    """Evaluations that are done, in order, and those that wait for a reader of an old value."""

    def __init__(self, updates: Updates, awaited: dict[int, int]) -> None:
        self.updates, self.awaited = updates, awaited
        self.done: list[int] = []
        self.waiting: list[int] = []

    def take(self, index: int) -> None:
        """Do an evaluation now or let it wait, and do what it sets free."""
        self.waiting.append(index)
        is_freed = self.settle(len(self.waiting) - 1)
        while is_freed:
            is_freed = self.settle(0)

    def settle(self, first: int) -> bool:
        """Do what no longer has to wait; return whether an old value was read for the last time."""
        graph, source = self.updates.graph, self.updates.source
        still = self.waiting[:first]
        withheld: set[Any] = {d for index in still for d in graph.operators[index].outputs}
        is_freed = False
        for index in self.waiting[first:]:
            operator = graph.operators[index]
            if withheld.intersection(operator.inputs) or self.awaited.get(source.get(index, -1)):
                still.append(index)
                withheld.update(operator.outputs)
                continue
            self.done.append(index)
            for read in self.updates.reads.get(index, ()):
                self.awaited[read] -= 1
                is_freed = is_freed or not self.awaited[read]
        self.waiting = still
        return is_freed
