"""Running a program in too little memory: when there is no room, evict; what is missing, recompute.

The program is the graph in build order. Before an operator is evaluated, its missing inputs are
computed again, and theirs; when a result does not fit, the resident value with the lowest score
goes. Online policies (DTR) score by what has happened, offline ones (greedy) by what will.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinyckpt.analysis.liveness import Problem
from tinyckpt.analysis.separators import separators
from tinyckpt.errors import BudgetError
from tinyckpt.graph import producer_of
from tinyckpt.units import memory_text

NEVER = 1 << 60
LONGEST = 200  # evaluations per operator, after which a program is taken to be thrashing


class Eviction:
    """The state of such a run; ``order`` is what comes of it.

    With ``anchors``, separators that no backward operator reads, such as the residual stream of a
    transformer, are taken to be read when the sweep comes back to what follows them: from there the
    rest can be recomputed. Without, a value goes once the program does not read it any more.

    Attributes:
        order: operators in the order of their evaluation so far.
        position: number of the program's operators that are done.
        clock: cost of all evaluations so far.
        last_access: when each value was last asked for or first computed, by the clock.
        resident: whether each value is there.
        computed: whether each operator has been evaluated at least once.
    """

    def __init__(
        self,
        problem: Problem,
        budget: int,
        score: Callable[[Eviction, int], float],
        program: Sequence[int] | None = None,
        anchors: bool = False,
    ) -> None:
        graph = problem.graph
        self.problem, self.budget, self.score = problem, budget, score
        self.program = list(range(len(graph.operators)) if program is None else program)
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
        self.order: list[int] = []
        self.position = 0
        self.clock = 0.0
        self.last_access = [0.0] * len(graph.data)
        self.resident = bytearray(len(graph.data))
        self.computed = bytearray(len(graph.operators))
        self.live = 0
        self._weighty: set[int] = set()  # resident values that hold memory
        self._holders = [0] * len(graph.data)  # resident values of each storage, by its root
        self._locks = [0] * len(graph.data)
        self._uses: list[list[int]] = [[] for _ in graph.data]  # positions, the next use last
        self._is_result = bytearray(len(graph.data))
        for data in graph.outputs:
            self._is_result[data] = 1
            self._uses[data].append(NEVER)
        for position in range(len(self.program) - 1, -1, -1):
            for data in self.inputs[self.program[position]]:
                self._uses[data].append(position)
        if anchors:
            self._anchor()

    def run(self) -> list[int]:
        """Run the program; return the order of evaluations.

        Raises:
            BudgetError: if an operator does not fit, or nearly all is recomputation.
        """
        longest = LONGEST * len(self.program)
        for target in self.program:
            stack = [target]
            self._ask_for(target)
            while stack:
                operator = stack[-1]
                missing = next((d for d in self.inputs[operator] if not self.resident[d]), None)
                if missing is not None:
                    stack.append(self.producer[missing])
                    self._ask_for(stack[-1])
                    if len(self.order) > longest or len(stack) > len(self.cost):
                        unit = self.problem.costs.memory_unit
                        budget = memory_text(self.budget, unit)
                        raise BudgetError(f"within {budget} almost all is recomputation")
                    continue
                self._evaluate(operator)
                stack.pop()
                if not stack:
                    self.position += 1
                self._let_go(operator)
        if (peak := self.problem.peak(self.order)) > self.budget:
            # A view may hold memory whose value is computed anew: twice the memory for a while.
            raise BudgetError(f"the peak is {peak}, and the budget is {self.budget}")
        return self.order

    def next_use(self, data: int) -> int:
        """Return the position of the next operator of the program that reads a value.

        A result of the graph is used at the end, NEVER; what is not read any more, at -1.
        """
        uses = self._uses[data]
        while uses and uses[-1] < self.position:
            uses.pop()
        return uses[-1] if uses else -1

    def _anchor(self) -> None:
        """Give each separator that the backward half does not read a use on the way back."""
        first = self.problem.graph.forward_count
        for data, operators in anchors_of(self.problem):
            later = [
                position
                for operator in operators
                for value in self.outputs[operator]
                for position in self._uses[value]
                if first <= position < NEVER
            ]
            if later:
                self._uses[data].insert(0, max(later))

    def recompute_cost(self, data: int) -> float:
        """Return what it takes to compute a value again from what is resident."""
        operators = {self.producer[data]}
        todo = list(operators)
        total = 0.0
        while todo:
            operator = todo.pop()
            total += self.cost[operator]
            for value in self.inputs[operator]:
                if not self.resident[value] and self.producer[value] not in operators:
                    operators.add(self.producer[value])
                    todo.append(self.producer[value])
        return total

    def _ask_for(self, operator: int) -> None:
        """Lock what an operator reads, resident or not, until it has been evaluated."""
        for data in self.inputs[operator]:
            self.last_access[data] = self.clock
            self._locks[self.root[data]] += 1

    def _holds_result(self, root: int) -> bool:
        """Whether a resident value in this memory is a result of the graph."""
        return any(
            self.resident[data] and self._is_result[data] for data in (root, *self.views[root])
        )

    def _evaluate(self, operator: int) -> None:
        outputs = self.outputs[operator]
        for data in outputs:
            if self.resident[data]:
                self._remove(data)
        fresh = sum(self.size[data] for data in outputs if self.root[data] == data)
        self._make_room(fresh + self.workspace[operator])
        self.order.append(operator)
        self.clock += self.cost[operator]
        for data in outputs:
            self.resident[data] = 1
            root = self.root[data]
            if self.size[root]:
                self._weighty.add(data)
            self._holders[root] += 1
            if self._holders[root] == 1:
                self.live += self.size[root]
            if not self.computed[operator]:
                self.last_access[data] = self.clock
        self.computed[operator] = 1

    def _let_go(self, operator: int) -> None:
        """Unlock what an operator has read, and drop what nothing in the program reads any more."""
        for data in self.inputs[operator]:
            self._locks[self.root[data]] -= 1
        for data in (*self.inputs[operator], *self.outputs[operator]):
            locked = self._locks[self.root[data]]
            if self.resident[data] and not locked and self.next_use(data) < 0:
                self._remove(data)

    def _remove(self, data: int) -> None:
        self.resident[data] = 0
        self._weighty.discard(data)
        root = self.root[data]
        self._holders[root] -= 1
        if not self._holders[root]:
            self.live -= self.size[root]

    def _make_room(self, needed: int) -> None:
        """Evict until so much memory is free."""
        while self.live + needed > self.budget:
            best, lowest = -1, float("inf")
            for data in self._weighty:
                if self._locks[self.root[data]] or self._holds_result(self.root[data]):
                    continue  # needed now, or a result or a view that is one, which must stay
                score = self.score(self, data)
                if score < lowest or (score == lowest and data > best):  # of equals the latest
                    best, lowest = data, score
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


def anchors_of(problem: Problem) -> list[tuple[int, range]]:
    """Return the separators that no backward operator reads, and the operators up to the next."""
    graph = problem.graph
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


def views_of(problem: Problem) -> list[list[int]]:
    """Return the views in the memory of each value."""
    views: list[list[int]] = [[] for _ in problem.root]
    for data, root in enumerate(problem.root):
        if root != data:
            views[root].append(data)
    return views
