"""Anti-dependences of in-place updates (write after read): an update follows every reader.

An in-place update of a source, such as an optimizer's, destroys the old value for all later
readers, recomputations included. This constraint is no edge of the graph, so policies ignore it; it
is restored here, on a finished order of evaluations, by delaying updates and the operators that
depend on them. In most orders nothing has to move.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyckpt.base.dtypes import Integers
from tinyckpt.core.graph import Graph, old_source


class UpdateOrder:
    """Update operators of a graph, and the readers of the old values that they overwrite.

    Attributes:
        graph: a graph with updates.
        source: the source that each update overwrites, by operator id.
        reads: for each operator, the updated sources whose old value it reads.
        behind: for each such operator, the updates that must come after it.
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
        """Delay each update until after the last evaluation that reads the old value.

        Readers of the result of a delayed update are delayed with it.
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
        """Whether any update precedes a reader of the old value."""
        last = np.full(len(self.graph.operators), -1)
        last[order] = np.arange(len(order))  # NumPy keeps the last assignment of an index
        ends = dict.fromkeys(self.source.values(), -1)
        for reader, sources in self.reads.items():
            for source in sources:
                ends[source] = max(ends[source], int(last[reader]))
        return any(last[update] < ends[source] for update, source in self.source.items())


class PendingUpdates:
    """List scheduler: evaluations emitted in order, and those delayed for readers of old values.

    Attributes:
        awaited: for each source, the readers of the old value that are still to come.
        done: emitted evaluations.
        waiting: delayed evaluations.
    """

    def __init__(self, updates: UpdateOrder, awaited: dict[int, int]) -> None:
        self.updates, self.awaited = updates, awaited
        self.done: list[int] = []
        self.waiting: list[int] = []

    def take(self, index: int) -> None:
        """Emit an evaluation or delay it; then emit the delayed evaluations that it releases."""
        self.waiting.append(index)
        is_freed = self.settle(len(self.waiting) - 1)
        while is_freed:
            is_freed = self.settle(0)

    def settle(self, first: int) -> bool:
        """Emit the ready evaluations from position ``first`` of the delayed ones.

        Returns whether an old value was read for the last time, which may release updates.
        """
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
