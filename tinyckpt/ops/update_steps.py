"""In-place updates as steps of a schedule: verifier, anti-dependences, replay and execution.

An in-place update of a source, such as an optimizer's, destroys the old value for all later
readers, recomputations included (write after read). This constraint is no edge of the graph, so
policies ignore it; it is restored here, on a finished order of evaluations, by delaying updates and
the operators that depend on them. In most orders nothing has to move. ``replay`` and ``execute``
refuse a schedule that violates it, each by its own rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tinyckpt.base.dtypes import Integers
from tinyckpt.base.errors import GraphError, ScheduleError
from tinyckpt.core import execute, lowering, replay
from tinyckpt.core.graph import UPDATE, Graph, Operator, producer_of
from tinyckpt.core.schedule import Compute, Evaluation, Update, step_text
from tinyckpt.ops.non_recomputable import refuse


def updated_sources(graph: Graph) -> set[int]:
    """Return the sources that an update overwrites."""
    return {graph.operators[update].inputs[0] for update in graph.updates}


def old_source(graph: Graph, data: int) -> int | None:
    """Return the source whose pre-update contents a value aliases, or None.

    A source aliases itself, and so does any view of it. An update's output (and any view of that)
    does not: it shares the memory, but shows the new contents.
    """
    while (base := graph.data[data].view_of) is not None:
        if graph.operators[producer_of(graph, data)].is_update:
            return None
        data = base
    return data if graph.data[data].is_source else None


# The verifier of a graph with updates -------------------------------------------------------------


def check_update(graph: Graph, operator: Operator, at: str) -> None:
    """Verify an update operator: a source that the caller supplies, overwritten at most once.

    Raises:
        GraphError: says which requirement is violated.
    """
    nodes = [graph.data[data] for data in (*operator.inputs, *operator.outputs)]
    if len(operator.inputs) != 2 or len(operator.outputs) != 1:
        raise GraphError(f"{at}: an update reads a source and a value, and returns one")
    source, value, result = nodes
    if not source.is_source or source.role == "constant" or result.view_of != source.id:
        raise GraphError(f"{at}: {source.name} is not a source that can be updated")
    if not source.spec == value.spec == result.spec:
        raise GraphError(f"{at}: {source} cannot take {value}")
    if sum(graph.operators[reader].is_update for reader in graph.consumers[source.id]) > 1:
        raise GraphError(f"{at}: {source.name} is updated twice")


# Anti-dependences ---------------------------------------------------------------------------------


class UpdateOrder:
    """Update operators of a graph, and the readers of the old values that they overwrite.

    Attributes:
        graph: a graph with updates.
        source: the source that each update overwrites, by operator id.
        reads: for each operator, the updated sources whose old value it reads.
        updates_after: for each such operator, the updates that must come after it.
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
        self.updates_after = {
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


# Replay -------------------------------------------------------------------------------------------


def replay_update(machine: replay.ReplayState, position: int, step: Update) -> int:
    """Evaluate an update; from here on, its source has new contents."""
    operator = machine.graph.operators[step.operator]
    if not operator.is_update:
        machine.fail(position, f"update {operator.name}; compute it")
    workspace = machine.compute(position, step)
    updated_at(machine)[operator.inputs[0]] = position
    return workspace


def updated_at(machine: replay.ReplayState) -> dict[int, int]:
    """Return the step at which each source was updated, so far."""
    found: dict[int, int] = machine.scratch.setdefault(UPDATE, {})
    return found


def replay_checks(graph: Graph) -> Mapping[int, replay.Check]:
    """Return the checks of a graph's updates, and of the readers of what they overwrite."""
    updated = updated_sources(graph)
    checks: dict[int, replay.Check] = {}
    for node in graph.data if updated else ():
        if old_source(graph, node.id) in updated:
            checks.update(dict.fromkeys(graph.consumers[node.id], check_old_value))
    return checks


def check_old_value(machine: replay.ReplayState, position: int, step: Evaluation) -> None:
    """Fail if an update is computed like others, or reads a source that has been updated since."""
    graph, operator = machine.graph, machine.graph.operators[step.operator]
    if operator.is_update and type(step) is Compute:
        machine.fail(position, f"compute {operator.name}; update it")
    updated = updated_at(machine)
    for data in operator.inputs:
        source = old_source(graph, data)
        if source in updated:
            verb, name = step_text(graph, step)
            shows = "" if source == data else f", a view of {machine.name(source)}"
            machine.fail(
                position,
                f"{verb} {name} needs {machine.name(data)}{shows} as it was before its update "
                f"at step {updated[source]}",
            )


def check_results(machine: replay.ReplayState) -> None:
    """Fail if a result of the graph shows a source that has been updated."""
    updated = updated_at(machine)
    for data in machine.graph.outputs if updated else ():
        if old_source(machine.graph, data) in updated:
            raise ScheduleError(
                f"{machine.schedule.policy}: the result {machine.name(data)} shows a source that "
                "is updated; return what it is updated to, or a copy"
            )


# Execution ----------------------------------------------------------------------------------------


def execute_update(
    memory: execute.Allocations, position: int, step: Update, bound: execute.DispatchTable
) -> None:
    """Overwrite a source; from here on, kernels that read its old contents are refused."""
    memory.row[execute.EVALUATIONS] += 1
    graph, operator = memory.graph, memory.graph.operators[step.operator]
    if not operator.is_update:
        raise ScheduleError(f"step {position}: {operator.name} is not an update; compute it")
    source, value = operator.inputs
    if source in memory.overwritten:
        raise ScheduleError(f"step {position}: {operator.name} would update its source again")
    if value in memory.overwritten:
        raise ScheduleError(
            f"step {position}: {operator.name} needs {graph.data[value].name} as it was "
            "before its update"
        )
    if memory.values[value] is None:
        raise execute.missing_input(graph, position, step.operator, memory.values)
    memory.settle()
    kernel = operator.primitive.forward  # type: ignore[union-attr]
    array = kernel(memory.backend.xp, memory.values[source], memory.values[value])
    memory.hold(position, operator.outputs[0], array, (source,), {})
    # Values by the source that they alias: for all sources at once, since it takes a pass.
    if (showing := memory.scratch.get(UPDATE)) is None:
        showing = memory.scratch[UPDATE] = {}
        for node in graph.data:
            showing.setdefault(old_source(graph, node.id), []).append(node.id)
    for data in showing[source]:
        memory.overwritten.add(data)
        why = f"{graph.data[data].name} was updated at step {position}"
        for reader in graph.consumers[data]:
            bound[reader] = (partial(refuse, why), *bound[reader][1:])


def kernel_guards(graph: Graph) -> Mapping[int, Callable[[Any], Any]]:
    """Return what refuses a ``Compute`` step of an update, by operator."""
    return {index: partial(refuse_compute, graph.operators[index].name) for index in graph.updates}


def refuse_compute(name: str, kernel: Any) -> Any:
    """Return the kernel that stands for an update in a ``Compute`` step: it raises."""
    return partial(refuse, f"{name} is an update; use an Update step")


def legal_order(graph: Graph, order: list[int]) -> list[int]:
    """Return an order in which each update follows all readers of the old value."""
    if not graph.updates:
        return order
    found: list[int] = UpdateOrder(graph).last(np.asarray(order, np.int64)).tolist()
    return found


def install() -> None:
    """Fill the tables of the engine."""
    lowering.LEGALISERS.append(legal_order)
    replay.STEP_RULES[Update] = replay_update
    replay.OPERATOR_CHECKS.append(replay_checks)
    replay.RESULT_CHECKS.append(check_results)
    execute.STEP_RULES[Update] = execute_update
    execute.KERNEL_GUARDS.append(kernel_guards)
