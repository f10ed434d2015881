"""Eviction-based execution within a memory budget: evict by score, recompute missing inputs.

A simulated run without arrays: a sequence of operators (by default the graph in build order) and a
budget come in, an order of evaluations with recomputations goes out. Before an operator is
evaluated, its evicted inputs are recomputed, and theirs recursively; when a result does not fit,
the resident value with the lowest score is evicted, as in cache replacement. Online policies (DTR)
score by past accesses, offline ones (greedy, Belady) by future uses. The scores are in
``eviction_heuristics``, the search for the lowest in ``eviction_queue``.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import inf

import numpy as np

from tinyckpt.base.deadline import MOST_EVALUATIONS, NO_DEADLINE, Clock
from tinyckpt.base.dtypes import Integers
from tinyckpt.base.errors import BudgetError
from tinyckpt.base.units import memory_text
from tinyckpt.core.cuts import separators
from tinyckpt.core.graph import Graph, producer_of
from tinyckpt.planner.heuristics.eviction_heuristics import Score
from tinyckpt.planner.heuristics.eviction_queue import LazyQueue, LinearScan
from tinyckpt.planner.model.liveness import Problem

NEVER = 1 << 60  # position of the next use of a result of the graph: beyond any sequence
# Evaluations per operator of the sequence, after which a run is taken to be thrashing and given up:
# in total, where a chain of 400 layers in the least memory takes 200; and while a single operator's
# inputs are recomputed, where 1 is usual. Larger: more runs succeed, hopeless ones take longer.
MOST_EVALUATIONS_PER_OPERATOR, LONGEST_FOR_ONE = 200, 50
# Evaluations between two checks of the deadline; larger: fewer checks, a later stop.
CLOCK_EVERY_EVALUATIONS = 64


class Eviction:
    """State of an eviction-based run; ``run`` returns the order of evaluations.

    With ``anchors``, separators that no backward operator reads, such as the residual stream of a
    transformer, count as read when the backward pass reaches the operators after them, so that they
    stay as checkpoints. Without, a value is freed after its last reader in the sequence.

    Attributes:
        order: operators in the order of evaluation so far.
        position: number of the sequence's operators that have been evaluated.
        clock: accumulated cost of all evaluations so far.
        last_access: clock at the last access or the first evaluation of each value; an array.
        next_use: position of the next operator of the sequence that reads each value, NEVER for a
            result of the graph, and -1 if none does.
        resident: for each value, whether it is in memory.
        weighty: for each value, whether it is resident and its storage is not empty.
        computed: for each operator, whether it has been evaluated at least once.
        cost_limit: accumulated cost beyond which the run is given up.
        peak: peak memory of the order that ``run`` returns, as ``Problem.peak`` counts it.
        highest: peak memory so far. With any budget down to this one, the run is the same, or fails
            the same way.

    >>> import tinyckpt as tc
    >>> from tinyckpt.planner.heuristics.eviction_heuristics import by_distance
    >>> graph = tc.networks.chain(4)  # operators 0 to 8: f1 f2 f3 f4 l b4 b3 b2 b1
    >>> problem = Problem(graph, tc.cost.evaluations(graph))
    >>> Eviction(problem, 4 * 512, by_distance(0.5)).run()
    [0, 1, 2, 3, 4, 5, 2, 6, 7, 0, 8]
    """

    def __init__(
        self,
        problem: Problem,
        budget: int,
        score: Score,
        sequence: Sequence[int] | None = None,
        anchors: bool = False,
        deadline: Clock = NO_DEADLINE,
        cost_limit: float = inf,
    ) -> None:
        graph = problem.graph
        self.problem, self.budget, self.score, self.deadline = problem, budget, score, deadline
        self.cost_limit = cost_limit
        self.sequence = list(range(len(graph.operators)) if sequence is None else sequence)
        lists = problem.lists
        self.inputs, self.outputs, self.producer = lists.inputs, lists.outputs, lists.producer
        self.consumers, self.root, self.views = graph.consumers, problem.root, lists.views
        self.cost, self.workspace, self.size = lists.cost, problem.costs.workspace, lists.size
        self.sizes: Integers = lists.sizes
        self.order: list[int] = []
        self.position = 0
        self.clock = 0.0
        self._last_access = array("d", [0.0]) * len(graph.data)
        self.last_access = np.frombuffer(self._last_access)
        self.resident = bytearray(len(graph.data))
        self.computed = bytearray(len(graph.operators))
        self.live = self.highest = self.peak = 0
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
        self._anchored: dict[int, list[int]] = {}  # anchors, by the position of their added use
        if anchors:
            self._anchor()
        self.next_use = [uses[-1] if uses else -1 for uses in self._uses]
        self.pins = PinnedValues(self) if graph.once else None
        self.victims: LazyQueue | LinearScan = (LinearScan if score.falls else LazyQueue)(self)

    def run(self) -> list[int]:
        """Run the sequence; return the order of evaluations.

        Raises:
            BudgetError: if an operator does not fit, the run is thrashing, or its cost exceeds
                ``cost_limit``.
            OutOfTimeError: if the deadline has passed.
        """
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return self._run()

    def _run(self) -> list[int]:
        """Run the sequence, with NumPy's division by zero giving infinity."""
        longest = min(MOST_EVALUATIONS_PER_OPERATOR * len(self.sequence), MOST_EVALUATIONS)
        resident, inputs, order = self.resident, self.inputs, self.order
        for target in self.sequence:
            until = min(longest, len(order) + LONGEST_FOR_ONE * len(self.sequence))
            stack = [target]
            self._lock_inputs(target)
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
                    self._free_unread(operator)
                    if not len(order) % CLOCK_EVERY_EVALUATIONS:
                        self.deadline.check()
                    continue
                stack.append(self.producer[missing])
                self._lock_inputs(stack[-1])
                if len(order) > until or len(stack) > len(self.cost):
                    budget = memory_text(self.budget, self.problem.costs.memory_unit)
                    raise BudgetError(
                        f"thrashing within {budget}: almost all evaluations are recomputations"
                    )
                if self.clock > self.cost_limit:
                    raise BudgetError(
                        f"cost above {self.cost_limit:g} after {len(order)} evaluations"
                    )
        self.peak = self.problem.peak(self.order)
        if self.peak > self.budget:
            # A view may keep an old block alive while its base is recomputed: two blocks for a
            # while.
            raise BudgetError(f"the peak is {self.peak}, and the budget is {self.budget}")
        return self.order

    def _advance(self, target: int) -> None:
        """Advance the sequence past an operator, and update the next use of its inputs."""
        anchors = self._anchored.get(self.position, ())
        self.position += 1
        for data in (*self.inputs[target], *anchors):
            uses = self._uses[data]
            while uses and uses[-1] < self.position:
                uses.pop()
            self.next_use[data] = uses[-1] if uses else -1
            self.victims.renew(data)

    def _anchor(self) -> None:
        """Add a use in the backward pass to each separator that no backward operator reads."""
        first = self.problem.graph.forward_count
        for data, operators in unread_separators(self.problem.graph):
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

    def _lock_inputs(self, operator: int) -> None:
        """Lock an operator's inputs, resident or not, against eviction until it is evaluated."""
        for data in self.inputs[operator]:
            self._last_access[data] = self.clock
            self._locks[self.root[data]] += 1

    def _holds_result(self, root: int) -> bool:
        """Whether a resident value in this storage is a result of the graph."""
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

    def _free_unread(self, operator: int) -> None:
        """Unlock an operator's inputs, and free values that the sequence does not read again."""
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
        """Evict values until ``needed`` more memory is within the budget."""
        for data in () if self.pins is None else self.pins.unwanted():
            self._remove(data)
        while self.live + needed > self.budget:
            best = self.victims.lowest()
            if best < 0:
                unit = self.problem.costs.memory_unit
                raise BudgetError(
                    f"out of memory: {memory_text(self.live + needed, unit)} must be resident at "
                    f"once, and the budget is {memory_text(self.budget, unit)}"
                )
            root = self.root[best]
            for data in (root, *self.views[root]):
                if self.resident[data]:
                    self._remove(data)

    def may_go(self, data: int) -> bool:
        """Whether a value can be evicted: not locked, not pinned, no result shares its storage."""
        root = self.root[data]
        if self._locks[root] or self._holds_result(root):
            return False
        return self.pins is None or self.pins.may_go(root)


class PinnedValues:
    """Pinning of non-recomputable values during a run: they stay as long as they may be needed.

    Pinned are the outputs of non-recomputable operators; and, once such an output has been freed,
    the values computed from it whose recomputation would need it again. So freeing a value passes
    the pin on to its readers' outputs. A value is needed if the sequence reads it again, or if an
    evicted value can be recomputed from it only.

    Attributes:
        idle: values that the sequence does not read again, kept because an evicted value may have
            to be recomputed from them.
    """

    def __init__(self, run: Eviction) -> None:
        self.run = run
        self.idle: list[int] = []
        self._is_once = bytearray(operator.once for operator in run.problem.graph.operators)
        self._below = bytearray(len(self._is_once))  # operators that depend on a freed pinned value

    def may_go(self, root: int) -> bool:
        """Whether all resident values in a storage can be recomputed."""
        run = self.run
        return all(
            self.can_be_made(data) for data in (root, *run.views[root]) if run.resident[data]
        )

    def can_be_made(self, data: int) -> bool:
        """Whether a value can be recomputed from the other resident values."""
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
        """Whether a value that the sequence does not read again can be freed; else it is idle."""
        if self.can_be_made(data):
            return True
        if self.is_wanted(data):
            self.idle.append(data)
            return False
        self._drop(data)
        return True

    def is_wanted(self, data: int) -> bool:
        """Whether an evicted value that is read again may have to be recomputed from this one."""
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
        """Return the idle values that are no longer needed, and pass their pins on."""
        resident = [data for data in self.idle if self.run.resident[data]]
        found = [data for data in resident if not self.is_wanted(data)]
        self.idle = sorted({*resident}.difference(found))
        for data in found:
            self._drop(data)
        return found

    def _drop(self, data: int) -> None:
        """Pass the pin of a freed value on to the operators that depend on it."""
        todo = [data]
        while todo:
            for reader in self.run.consumers[todo.pop()]:
                if not self._below[reader]:
                    self._below[reader] = 1
                    todo.extend(self.run.outputs[reader])


def unread_separators(graph: Graph) -> list[tuple[int, range]]:
    """Return the separators that no backward operator reads, with the operators up to the next."""
    line = separators(graph)
    if not line:
        return []
    ends = [producer_of(graph, data) + 1 for data in line[1:]] + [graph.forward_count]
    return [
        (data, range(producer_of(graph, data) + 1, end))
        for data, end in zip(line, ends, strict=True)
        if all(reader < graph.forward_count for reader in graph.consumers[data])
        and data not in graph.outputs
    ]
