"""What cannot be made again, while a run evicts values: it stays as long as anything may want it.

That is what an operator made that may not be evaluated twice; and, once that has been dropped, what
was computed from it, as far as making it anew would lead back there. So dropping a value moves what
is pinned on to its readers. A value is wanted if the sequence reads it again, or if one that was
evicted can only be made again from it.
"""

from __future__ import annotations

from typing import Any, Protocol

from tinyckpt.planner.model.liveness import Problem


class Run(Protocol):
    """What has to be known of the run; see ``Eviction``."""

    problem: Problem
    inputs: list[list[int]]
    outputs: list[tuple[int, ...]]
    consumers: tuple[tuple[int, ...], ...]
    producer: list[int]
    views: list[list[int]]
    resident: bytearray
    next_use: Any


class Pins:
    """What cannot be made again in a run, of which it is a part.

    Attributes:
        idle: values that the sequence reads no more, and that were wanted all the same.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.idle: list[int] = []
        self._is_once = bytearray(operator.once for operator in run.problem.graph.operators)
        self._below = bytearray(len(self._is_once))  # operators that depend on what was dropped

    def may_go(self, root: int) -> bool:
        """Whether all that is resident in the memory of a value can be made again."""
        run = self.run
        return all(
            self.can_be_made(data) for data in (root, *run.views[root]) if run.resident[data]
        )

    def can_be_made(self, data: int) -> bool:
        """Whether a value can be made again from what is resident besides it."""
        run = self.run
        operators = {run.producer[data]}
        todo = list(operators)
        while todo:
            operator = todo.pop()
            if self._is_once[operator]:
                return False
            if not self._below[operator]:
                continue
            for value in run.inputs[operator]:
                if not run.resident[value] and run.producer[value] not in operators:
                    operators.add(run.producer[value])
                    todo.append(run.producer[value])
        return True

    def may_drop(self, data: int) -> bool:
        """Whether a value that the sequence reads no more is not wanted either; else it is idle."""
        if self.can_be_made(data):
            return True
        if self.is_wanted(data):
            self.idle.append(data)
            return False
        self._drop(data)
        return True

    def is_wanted(self, data: int) -> bool:
        """Whether a value that was evicted, and is read again, may have to be made from this."""
        run = self.run
        seen = {data}
        todo = [data]
        while todo:
            for reader in run.consumers[todo.pop()]:
                for value in run.outputs[reader]:
                    if run.resident[value] or value in seen:
                        continue
                    if run.next_use[value] >= 0:
                        return True
                    seen.add(value)
                    todo.append(value)
        return False

    def unwanted(self) -> list[int]:
        """Return what was idle and is not wanted any more: it is dropped."""
        resident = [data for data in self.idle if self.run.resident[data]]
        found = [data for data in resident if not self.is_wanted(data)]
        self.idle = sorted({*resident}.difference(found))
        for data in found:
            self._drop(data)
        return found

    def _drop(self, data: int) -> None:
        """Take note that what depends on a value can be made from its readers' results alone."""
        todo = [data]
        while todo:
            for reader in self.run.consumers[todo.pop()]:
                if not self._below[reader]:
                    self._below[reader] = 1
                    todo.extend(self.run.outputs[reader])
