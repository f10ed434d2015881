"""Separators by post-dominators equal those by removing vertices one at a time."""

from itertools import pairwise
from typing import Any

from hypothesis import given

import tinyckpt as tc
from tests.random_dags import training_graphs
from tinyckpt.core.cuts import forward_sink, forward_successors


def separates(graph: tc.Graph, data: int) -> bool:
    """Whether no ancestor of the value reaches a forward result once the value is removed."""
    readers = forward_successors(graph)
    parents: dict[int, set[int]] = {}
    for source, targets in enumerate(readers):
        for target in targets:
            parents.setdefault(target, set()).add(source)
    ancestors: set[int] = set()
    pending = [data]
    while pending:
        for parent in parents.get(pending.pop(), ()):
            if parent not in ancestors:
                ancestors.add(parent)
                pending.append(parent)
    reached = set(ancestors)
    pending = list(ancestors)
    while pending:
        for reader in readers[pending.pop()]:
            if reader != data and reader not in reached:
                reached.add(reader)
                pending.append(reader)
    return forward_sink(graph) not in reached


def leads_to_a_result(graph: tc.Graph, data: int) -> bool:
    readers, pending, reached = forward_successors(graph), [data], {data}
    while pending:
        for reader in readers[pending.pop()]:
            if reader not in reached:
                reached.add(reader)
                pending.append(reader)
    return forward_sink(graph) in reached


@given(training_graphs())
def test_separators_equal_those_by_vertex_removal(case: Any) -> None:
    graph, _ = case
    found = tc.separators(graph)
    brute = {
        node.id
        for node in graph.data
        if node.producer is not None
        and node.producer < graph.forward_count
        and leads_to_a_result(graph, node.id)
        and separates(graph, node.id)
    }
    assert set(found) <= brute
    assert found == sorted(found)
    # Every value that separates and is computed from all of one found one, and for all of the
    # next, is found as well.
    descends = ancestors_of(graph)
    for earlier, later in pairwise(found):
        assert earlier in descends[later]
        between = {d for d in brute if earlier in descends[d] and d in descends[later]}
        assert not between


def ancestors_of(graph: tc.Graph) -> dict[int, set[int]]:
    result: dict[int, set[int]] = {node.id: set() for node in graph.data}
    for operator in graph.operators[: graph.forward_count]:
        above = set()
        for data in operator.inputs:
            above |= {data} | result[data]
        for data in operator.outputs:
            result[data] = above
    return result


def test_late_parameters_do_not_destroy_separators() -> None:
    def function(params: Any, x: Any) -> Any:
        for w in params:
            x = tc.tanh(x @ (w * 2.0))
        return tc.sum(x)

    graph = tc.build(function, [tc.Spec((3, 3))] * 3, tc.Spec((2, 3)))
    names = [graph.data[data].name for data in tc.separators(graph)]
    assert names == [
        "matmul_1", "tanh_1", "matmul_2", "tanh_2", "matmul_3", "tanh_3", "sum_1",
    ] or names == [
        "multiply_1", "matmul_1", "tanh_1", "matmul_2", "tanh_2", "matmul_3", "tanh_3", "sum_1",
    ]  # fmt: skip


def test_skip_connections_destroy_separators_inside() -> None:
    def function(x: Any) -> Any:
        a = tc.sin(x)
        b = tc.tanh(a)
        c = tc.cos(b)
        return tc.sum(a + c)

    graph = tc.build(function, tc.Spec(3))
    assert [graph.data[data].name for data in tc.separators(graph)] == ["sin_1", "add_1", "sum_1"]
