"""What is there for certain while an operator is first evaluated, since it cannot be made again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyckpt.core.cuts import pinned_values
from tinyckpt.planner.model.liveness import Problem


class NonRecomputable:
    """Pinned values by the operators beside whose first evaluation they must be there.

    One must be if an operator before made it, and one behind reads it: before and behind whatever
    the schedule, since they depend on each other. A set of values is an integer whose ones are its
    members: in a graph of 10,000 operators hundreds of values may be pinned.

    Args:
        problem: any graph.
        operators: those that are to be evaluated, ascending.
    """

    def __init__(self, problem: Problem, operators: Sequence[int]) -> None:
        self.problem = problem
        self.alone = problem.needs()
        self.certain: dict[int, int] = {}
        self.values = pinned_values(problem.graph)
        self.roots = np.array([problem.root[data] for data in self.values], np.int64)
        if self.values:
            made, read = self._made_before(operators), self._read_behind(operators)
            self.certain = {index: made[index] & read[index] for index in operators}

    def during(self, operator: int) -> list[int]:
        """Return the values in whose memory pinned ones must be while an operator is evaluated."""
        certain = self.certain.get(operator, 0)
        if not certain:
            return []
        packed = np.frombuffer(certain.to_bytes(-(-len(self.values) // 8), "little"), np.uint8)
        is_certain = np.unpackbits(packed, count=len(self.values), bitorder="little").astype(bool)
        found: list[int] = np.unique(self.roots[is_certain]).tolist()
        return found

    def need(self, operator: int) -> int:
        """Return the memory that it takes at least to evaluate an operator for the first time."""
        own = int(self.alone[operator])
        if not (storages := self.during(operator)):
            return own
        touched = self.problem.graph.operators[operator]
        roots = {self.problem.root[data] for data in (*touched.inputs, *touched.outputs)}
        size = self.problem.size
        return own + int(size[storages].sum() - size[list(roots.intersection(storages))].sum())

    def largest_need(self, operators: Sequence[int]) -> int:
        """Return the largest need of any of these operators."""
        alone = int(self.alone[operators].max(initial=0))
        return max([alone, *(self.need(index) for index in self.certain)])

    def _made_before(self, operators: Sequence[int]) -> dict[int, int]:
        """Return for every operator the pinned values that those made which it depends on."""
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

    def _read_behind(self, operators: Sequence[int]) -> dict[int, int]:
        """Return for every operator the pinned values that those read which depend on it."""
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
        """Return for every pinned value the set of it alone."""
        return {data: 1 << place for place, data in enumerate(self.values)}
