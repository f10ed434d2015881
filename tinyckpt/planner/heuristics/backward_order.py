"""Greedy list scheduling of the backward pass: among ready operators, least memory growth first.

All backward operators must run, but not in the order in which ``differentiate`` wrote them.
Computing the gradient of a weight before the cotangent moves on can decide whether a plan fits at
all. A problem comes in; a topological order of its operators, or the problem in that order, goes
out. A reordered graph is a graph like any other: plan on it, and map the order of evaluations back
(``to_original_order``). Several planners do so; sequence and problem are memoised per problem.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from tinyckpt.base.deadline import NO_DEADLINE, Clock
from tinyckpt.core.graph import Graph
from tinyckpt.planner.model.liveness import Problem

_sequences: WeakKeyDictionary[Problem, list[int]] = WeakKeyDictionary()
_problems: WeakKeyDictionary[Problem, Problem] = WeakKeyDictionary()


def least_growth_order(problem: Problem, deadline: Clock = NO_DEADLINE) -> list[int]:
    """Order the operators: the forward pass as built, the backward pass by least memory growth.

    The next backward operator is the ready one with the least memory of its outputs minus that of
    the inputs of which it is the last reader. Results of the graph do not count, since they become
    resident in every order. Build order, if the problem fixes that. Memoised.

    Raises:
        OutOfTimeError: if the deadline has passed.
    """
    if problem.in_order:
        return list(range(len(problem.graph.operators)))
    if problem not in _sequences:
        _sequences[problem] = least_growth(problem, deadline)
    return _sequences[problem].copy()


def least_growth_problem(problem: Problem, deadline: Clock = NO_DEADLINE) -> Problem:
    """Return the problem with its operators in the order of ``least_growth_order``. Memoised.

    Raises:
        OutOfTimeError: if the deadline has passed.
    """
    if problem not in _problems:
        costs, sequence = problem.costs, least_growth_order(problem, deadline)
        _problems[problem] = Problem(
            renumber_operators(problem.graph, sequence, deadline),
            replace(
                costs,
                operators=tuple(costs.operators[index] for index in sequence),
                workspace=tuple(costs.workspace[index] for index in sequence),
            ),
        )
    return _problems[problem]


def least_growth(problem: Problem, deadline: Clock) -> list[int]:
    """List scheduling with a priority queue whose stale entries are skipped; see above."""
    graph, size = problem.graph, problem.size.tolist()
    outputs = set(graph.outputs)
    first = graph.forward_count
    readers = [sum(reader >= first for reader in each) for each in graph.consumers]
    awaited = [0] * len(graph.operators)
    for operator in graph.operators[first:]:
        producers = {graph.data[data].producer for data in operator.inputs}
        awaited[operator.id] = sum(p is not None and p >= first for p in producers)
    updates_after = {} if problem.flat.updates is None else problem.flat.updates.updates_after
    for reader, updates in updates_after.items():
        for update in updates if reader >= first else ():
            awaited[update] += 1
    sequence = list(range(first))
    ready = {operator.id for operator in graph.operators[first:] if not awaited[operator.id]}
    inputs = [set(operator.inputs) - outputs for operator in graph.operators]

    def growth(index: int) -> tuple[int, int]:
        made = sum(size[d] for d in graph.operators[index].outputs if d not in outputs)
        return made - sum(size[d] for d in inputs[index] if readers[d] == 1), index

    deadline.check()
    queue = [growth(index) for index in ready]
    heapq.heapify(queue)
    while queue:
        deadline.check()
        grown, index = heapq.heappop(queue)
        if index not in ready or growth(index)[0] != grown:
            continue  # stale: evaluated already, or queued again with its current growth
        ready.discard(index)
        sequence.append(index)
        operator = graph.operators[index]
        touched: set[int] = set()
        for data in set(operator.inputs):
            readers[data] -= 1
            if readers[data] == 1:
                touched.update(reader for reader in graph.consumers[data] if reader in ready)
        readers_of_results = {r for data in operator.outputs for r in graph.consumers[data]}
        for reader in (*readers_of_results, *updates_after.get(index, ())):
            awaited[reader] -= 1
            if not awaited[reader]:
                ready.add(reader)
                touched.add(reader)
        for reader in touched:
            heapq.heappush(queue, growth(reader))
    return sequence


def renumber_operators(
    graph: Graph, sequence: Sequence[int], deadline: Clock = NO_DEADLINE
) -> Graph:
    """Renumber the operators of a graph in another order; data nodes keep their ids.

    Args:
        graph: any graph.
        sequence: all operator ids in a topological order, the forward ones first.
        deadline: of the search.

    Raises:
        OutOfTimeError: if the deadline has passed.
    """
    new_id: dict[int | None, int] = {old: new for new, old in enumerate(sequence)}
    data = list(graph.data)
    for node in graph.data:
        if node.producer != (producer := new_id.get(node.producer)):
            deadline.check()
            data[node.id] = replace(node, producer=producer)
    operators = []
    for new, old in enumerate(sequence):
        operator = graph.operators[old]
        adjoint_of = new_id.get(operator.adjoint_of)
        if (operator.id, operator.adjoint_of) != (new, adjoint_of):
            deadline.check()
            operator = replace(operator, id=new, adjoint_of=adjoint_of)
        operators.append(operator)
    return replace(graph, data=tuple(data), operators=tuple(operators))


def to_original_order(order: Iterable[int], sequence: Sequence[int]) -> list[int]:
    """Map an order of a reordered graph back to operator ids of the original graph.

    >>> to_original_order([0, 1, 0, 2], [0, 2, 1])
    [0, 2, 0, 1]
    """
    return [sequence[index] for index in order]
