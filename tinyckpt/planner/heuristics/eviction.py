"""Running a sequence in too little memory: without room, evict; what is missing, recompute.

The sequence is the graph in build order. Before an operator is evaluated, its missing inputs are
computed again, and theirs; when a result does not fit, the resident value with the lowest score
goes. Online policies (DTR) score by what has happened, offline ones (greedy) by what will.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import inf
from typing import Any, Protocol

import numpy as np

from tinyckpt.base.deadline import ENDLESS, MOST_EVALUATIONS, Clock
from tinyckpt.base.dtypes import Integers
from tinyckpt.base.errors import BudgetError
from tinyckpt.base.units import memory_text
from tinyckpt.core.cuts import anchors_of
from tinyckpt.planner.heuristics.eviction_heuristics import Score
from tinyckpt.planner.heuristics.eviction_queue import Queue, Scan
from tinyckpt.planner.model.liveness import Problem, views_of

NEVER = 1 << 60
# Evaluations per operator, after which a run is taken to be thrashing: of the whole sequence, as in
# the least memory for a chain of 400 layers; and for one operator of it, where once is usual.
MOST_EVALUATIONS_PER_OPERATOR, LONGEST_FOR_ONE = 200, 50
CLOCK_EVERY_EVALUATIONS = 64  # evaluations: between two looks at the clock


class Eviction:
    """The state of such a run; ``order`` is what comes of it.

    With ``anchors``, separators that no backward operator reads, such as the residual stream of a
    transformer, are taken to be read when the sweep comes back to what follows them: from there the
    rest can be recomputed. Without, a value goes once the sequence does not read it any more.

    Attributes:
        order: operators in the order of their evaluation so far.
        position: number of the sequence's operators that are done.
        clock: cost of all evaluations so far.
        last_access: when each value was last asked for or first computed, by the clock; an array.
        next_use: position of the next operator of the sequence that reads each value, NEVER for a
            result of the graph, and -1 if none does.
        resident: whether each value is there.
        weighty: whether it is, and holds memory.
        computed: whether each operator has been evaluated at least once.
        dearest: cost of all evaluations beyond which the run is given up.
        highest: the most memory that was found to be within the budget. With any budget down to
            this, the run is the same, or fails the same way.
    """

    def __init__(
        self,
        problem: Problem,
        budget: int,
        score: Score,
        sequence: Sequence[int] | None = None,
        anchors: bool = False,
        deadline: Clock = ENDLESS,
        dearest: float = inf,
    ) -> None:
        graph = problem.graph
        self.problem, self.budget, self.score, self.deadline = problem, budget, score, deadline
        self.dearest = dearest
        self.sequence = list(range(len(graph.operators)) if sequence is None else sequence)
        source = [node.is_source for node in graph.data]
        self.inputs = [
            [data for data in dict.fromkeys(operator.inputs) if not source[data]]
            for operator in graph.operators
        ]
        self.outputs = [operator.outputs for operator in graph.operators]
        self.consumers = graph.consumers
        self.producer = [-1 if node.producer is None else node.producer for node in graph.data]
        self.cost = [float(cost) for cost in problem.costs.operators]
        self.workspace = problem.costs.workspace
        self.root, self.views, self.size = problem.root, views_of(problem), problem.size.tolist()
        self.sizes: Integers = problem.size[problem.root]
        self.order: list[int] = []
        self.position = 0
        self.clock = 0.0
        self._last_access = array("d", [0.0]) * len(graph.data)
        self.last_access = np.frombuffer(self._last_access)
        self.resident = bytearray(len(graph.data))
        self.computed = bytearray(len(graph.operators))
        self.live = self.highest = 0
        self.weighty = bytearray(len(graph.data))
        self._holders = [0] * len(graph.data)  # resident values of each storage, by its root
        self._locks = [0] * len(graph.data)
        self._is_result = bytearray(len(graph.data))
        self._uses: list[list[int]] = [[] for _ in graph.data]  # positions, the next use last
        for data in graph.outputs:
            self._is_result[data] = 1
            self._uses[data].append(NEVER)
        for position in range(len(self.sequence) - 1, -1, -1):
            for data in self.inputs[self.sequence[position]]:
                self._uses[data].append(position)
        self._anchored: dict[int, list[int]] = {}  # anchors, by the last position to hold them for
        if anchors:
            self._anchor()
        self.next_use = [uses[-1] if uses else -1 for uses in self._uses]
        self.pins = Pins(self) if graph.once else None
        self.victims: Queue | Scan = (Scan if score.falls else Queue)(self)

    def run(self) -> list[int]:
        """Run the sequence; return the order of evaluations.

        Raises:
            BudgetError: if an operator does not fit, nearly all is recomputation, or it gets dearer
                than it may.
            OutOfTimeError: if the deadline has passed.
        """
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return self._run()

    def _run(self) -> list[int]:
        """Run the sequence, where what is divided by nothing is infinite."""
        longest = min(MOST_EVALUATIONS_PER_OPERATOR * len(self.sequence), MOST_EVALUATIONS)
        resident, inputs, order = self.resident, self.inputs, self.order
        for target in self.sequence:
            until = min(longest, len(order) + LONGEST_FOR_ONE * len(self.sequence))
            stack = [target]
            self._ask_for(target)
            while stack:
                operator = stack[-1]
                for missing in inputs[operator]:
                    if not resident[missing]:
                        break
                else:
                    self._evaluate(operator)
                    stack.pop()
                    if not stack:
                        self._advance(target)
                    self._let_go(operator)
                    if not len(order) % CLOCK_EVERY_EVALUATIONS:
                        self.deadline.check()
                    continue
                stack.append(self.producer[missing])
                self._ask_for(stack[-1])
                if len(order) > until or len(stack) > len(self.cost):
                    budget = memory_text(self.budget, self.problem.costs.memory_unit)
                    raise BudgetError(f"within {budget} almost all is recomputation")
                if self.clock > self.dearest:
                    raise BudgetError(f"dearer than {self.dearest:g} after {len(order)}")
        if (peak := self.problem.peak(self.order)) > self.budget:
            # A view may hold memory whose value is computed anew: twice the memory for a while.
            raise BudgetError(f"the peak is {peak}, and the budget is {self.budget}")
        return self.order

    def _advance(self, target: int) -> None:
        """Take note that an operator of the sequence is done: what it read has its next use."""
        anchors = self._anchored.get(self.position, ())
        self.position += 1
        for data in (*self.inputs[target], *anchors):
            uses = self._uses[data]
            while uses and uses[-1] < self.position:
                uses.pop()
            self.next_use[data] = uses[-1] if uses else -1
            self.victims.renew(data)

    def _anchor(self) -> None:
        """Give each separator that the backward half does not read a use on the way back."""
        first = self.problem.graph.forward_count
        for data, operators in anchors_of(self.problem.graph):
            later = [
                position
                for operator in operators
                for value in self.outputs[operator]
                for position in self._uses[value]
                if first <= position < NEVER
            ]
            if later:
                self._uses[data].insert(0, max(later))
                self._anchored.setdefault(max(later), []).append(data)

    def _ask_for(self, operator: int) -> None:
        """Lock what an operator reads, resident or not, until it has been evaluated."""
        for data in self.inputs[operator]:
            self._last_access[data] = self.clock
            self._locks[self.root[data]] += 1

    def _holds_result(self, root: int) -> bool:
        """Whether a resident value in this memory is a result of the graph."""
        if self.resident[root] and self._is_result[root]:
            return True
        return any(self.resident[data] and self._is_result[data] for data in self.views[root])

    def _evaluate(self, operator: int) -> None:
        outputs = self.outputs[operator]
        needed = self.workspace[operator]
        for data in outputs:
            if self.resident[data]:
                self._remove(data)
            if self.root[data] == data:
                needed += self.size[data]
        if self.live + needed > self.budget:
            self._make_room(needed)
        self.highest = max(self.highest, self.live + needed)
        self.order.append(operator)
        self.clock += self.cost[operator]
        for data in outputs:
            self.resident[data] = 1
            root = self.root[data]
            if self.size[root]:
                self.weighty[data] = 1
            self._holders[root] += 1
            if self._holders[root] == 1:
                self.live += self.size[root]
            if not self.computed[operator]:
                self._last_access[data] = self.clock
        self.computed[operator] = 1
        self.victims.made(operator)

    def _let_go(self, operator: int) -> None:
        """Unlock what an operator has read, and drop what the sequence reads no more."""
        for data in self.inputs[operator]:
            self._locks[self.root[data]] -= 1
        for data in (*self.inputs[operator], *self.outputs[operator]):
            if self._locks[self.root[data]]:
                continue
            unread = self.resident[data] and self.next_use[data] < 0
            if unread and (self.pins is None or self.pins.may_drop(data)):
                self._remove(data)
            self.victims.wake(self.root[data])

    def _remove(self, data: int) -> None:
        self.resident[data] = 0
        self.weighty[data] = 0
        root = self.root[data]
        self._holders[root] -= 1
        if not self._holders[root]:
            self.live -= self.size[root]
        self.victims.gone(data)
        if self._is_result[data]:
            self.victims.wake(root)

    def _make_room(self, needed: int) -> None:
        """Evict until so much memory is free."""
        for data in () if self.pins is None else self.pins.unwanted():
            self._remove(data)
        while self.live + needed > self.budget:
            best = self.victims.lowest()
            if best < 0:
                unit = self.problem.costs.memory_unit
                raise BudgetError(
                    f"no room: {memory_text(self.live + needed, unit)} are needed at once, and the "
                    f"budget is {memory_text(self.budget, unit)}"
                )
            root = self.root[best]
            for data in (root, *self.views[root]):
                if self.resident[data]:
                    self._remove(data)

    def may_go(self, data: int) -> bool:
        """Whether nothing needs a value now, and it is no result nor in the memory of one."""
        root = self.root[data]
        if self._locks[root] or self._holds_result(root):
            return False
        return self.pins is None or self.pins.may_go(root)


# ------------------------------------------------------------------------------------------------
# What cannot be made again, while a run evicts values: it stays as long as anything may want it.
#
# That is what an operator made that may not be evaluated twice; and, once that has been dropped,
# what was computed from it, as far as making it anew would lead back there. So dropping a value
# moves what is pinned on to its readers. A value is wanted if the sequence reads it again, or if
# one that was evicted can only be made again from it.


class EvictionFacts(Protocol):
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

    def __init__(self, run: EvictionFacts) -> None:
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
