"""In which order the backward half runs: build order, or the one that lets memory grow least.

All backward operators must run, but not in the order in which ``differentiate`` wrote them. To take
the gradient of a weight before the cotangent moves on can be the difference between a plan that
fits and none. A reordered graph is a graph like any other: plan on it, and translate the order of
evaluations back.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tinyckpt.analysis.liveness import Problem
from tinyckpt.graph import Graph


def frugal_sequence(problem: Problem) -> list[int]:
    """Return the operators: the forward half as built, the backward half by least growth.

    Of the backward operators that are ready, the next is the one whose results weigh least beyond
    what it reads last. Results of the graph do not count: they have to be held some day anyway.
    """
    graph, size = problem.graph, problem.size.tolist()
    outputs = set(graph.outputs)
    first = graph.forward_count
    readers = [sum(reader >= first for reader in each) for each in graph.consumers]
    awaited = [0] * len(graph.operators)
    for operator in graph.operators[first:]:
        producers = {graph.data[data].producer for data in operator.inputs}
        awaited[operator.id] = sum(p is not None and p >= first for p in producers)
    behind = {} if problem.flat.updates is None else problem.flat.updates.behind
    for reader, updates in behind.items():
        for update in updates if reader >= first else ():
            awaited[update] += 1
    sequence = list(range(first))
    ready = {operator.id for operator in graph.operators[first:] if not awaited[operator.id]}
    inputs = [set(operator.inputs) - outputs for operator in graph.operators]

    def growth(index: int) -> tuple[int, int]:
        made = sum(size[d] for d in graph.operators[index].outputs if d not in outputs)
        return made - sum(size[d] for d in inputs[index] if readers[d] == 1), index

    queue = [growth(index) for index in ready]
    heapq.heapify(queue)
    while queue:
        grown, index = heapq.heappop(queue)
        if index not in ready or growth(index)[0] != grown:
            continue  # done already, or queued again with what it is worth now
        ready.discard(index)
        sequence.append(index)
        operator = graph.operators[index]
        touched: set[int] = set()
        for data in set(operator.inputs):
            readers[data] -= 1
            if readers[data] == 1:
                touched.update(reader for reader in graph.consumers[data] if reader in ready)
        readers_of_results = {r for data in operator.outputs for r in graph.consumers[data]}
        for reader in (*readers_of_results, *behind.get(index, ())):
            awaited[reader] -= 1
            if not awaited[reader]:
                ready.add(reader)
                touched.add(reader)
        for reader in touched:
            heapq.heappush(queue, growth(reader))
    return sequence


def reordered(graph: Graph, sequence: Sequence[int]) -> Graph:
    """Return the graph with its operators in another order; data nodes keep their ids.

    Args:
        graph: any graph.
        sequence: all operator ids in a legal order, the forward ones first.
    """
    new_id = {old: new for new, old in enumerate(sequence)}
    data = tuple(
        node if node.producer is None else replace(node, producer=new_id[node.producer])
        for node in graph.data
    )
    operators = tuple(
        replace(
            graph.operators[old],
            id=new,
            adjoint_of=new_id.get(graph.operators[old].adjoint_of),  # type: ignore[arg-type]
        )
        for new, old in enumerate(sequence)
    )
    return replace(graph, data=data, operators=operators)


def translated(order: Iterable[int], sequence: Sequence[int]) -> list[int]:
    """Return an order of a reordered graph as one of the graph it came from."""
    return [sequence[index] for index in order]
