"""Non-recomputable values that are live at an operator's first evaluation in every schedule.

Saved values that cannot be recomputed bound peak memory from below. A pinned value (see
``pinned_values``) that an ancestor of an operator computes and a descendant reads is live while the
operator is first evaluated, whatever the schedule. Used by the lower bounds; the eviction of values
in a running schedule is ``heuristics.eviction``'s.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyckpt.core.cuts import pinned_values
from tinyckpt.planner.model.liveness import Problem


class PinnedLiveness:
    """Pinned values that are live at the first evaluation of each operator.

    A value is if an ancestor of the operator computes it and a descendant reads it. Sets of pinned
    values are bit sets, Python integers whose bit i stands for the i-th pinned value: in a graph of
    10,000 operators hundreds of values may be pinned.

    Args:
        problem: any graph.
        operators: ids of the operators to be evaluated, ascending.
    """

    def __init__(self, problem: Problem, operators: Sequence[int]) -> None:
        self.problem = problem
        self.alone = problem.needs()
        self.certain: dict[int, int] = {}
        self.values = pinned_values(problem.graph)
        self.roots = np.array([problem.root[data] for data in self.values], np.int64)
        if self.values:
            made = self._computed_by_ancestors(operators)
            read = self._read_by_descendants(operators)
            self.certain = {index: made[index] & read[index] for index in operators}

    def during(self, operator: int) -> list[int]:
        """Return the storages of the pinned values that are live at an operator's evaluation."""
        certain = self.certain.get(operator, 0)
        if not certain:
            return []
        packed = np.frombuffer(certain.to_bytes(-(-len(self.values) // 8), "little"), np.uint8)
        is_certain = np.unpackbits(packed, count=len(self.values), bitorder="little").astype(bool)
        found: list[int] = np.unique(self.roots[is_certain]).tolist()
        return found

    def need(self, operator: int) -> int:
        """Return the working set of an operator's first evaluation, live pinned values included."""
        own = int(self.alone[operator])
        if not (storages := self.during(operator)):
            return own
        touched = self.problem.graph.operators[operator]
        roots = {self.problem.root[data] for data in (*touched.inputs, *touched.outputs)}
        size = self.problem.size
        return own + int(size[storages].sum() - size[list(roots.intersection(storages))].sum())

    def largest_need(self, operators: Sequence[int]) -> int:
        """Return the largest ``need`` of any of these operators."""
        alone = int(self.alone[operators].max(initial=0))
        return max([alone, *(self.need(index) for index in self.certain)])

    def _computed_by_ancestors(self, operators: Sequence[int]) -> dict[int, int]:
        """Return for each operator the bit set of pinned values that its ancestors compute."""
        graph, number = self.problem.graph, self._numbers()
        made: dict[int, int] = {}
        for index in operators:
            found = 0
            for data in graph.operators[index].inputs:
                producer = graph.data[data].producer
                if producer is not None:
                    found |= made.get(producer, 0)
                    for output in graph.operators[producer].outputs:
                        found |= number.get(output, 0)
            made[index] = found
        return made

    def _read_by_descendants(self, operators: Sequence[int]) -> dict[int, int]:
        """Return for each operator the bit set of pinned values that its descendants read.

        Results of the graph count as read by all.
        """
        graph, number = self.problem.graph, self._numbers()
        results = sum(number.get(data, 0) for data in graph.outputs)
        read: dict[int, int] = {}
        for index in reversed(operators):
            found = results
            for data in graph.operators[index].outputs:
                for reader in graph.consumers[data]:
                    if reader in read:
                        found |= read[reader]
                        for value in graph.operators[reader].inputs:
                            found |= number.get(value, 0)
            read[index] = found
        return read

    def _numbers(self) -> dict[int, int]:
        """Return for each pinned value its one-element bit set."""
        return {data: 1 << place for place, data in enumerate(self.values)}
