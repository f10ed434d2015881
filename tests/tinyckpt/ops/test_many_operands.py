"""Operators that join or cut many values: the work of building and of adjoints is linear."""

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc

JOINS: dict[str, Callable[[Any, int], Any]] = {
    "concatenate": lambda x, n: tc.concatenate([x] * n),
    "stack": lambda x, n: tc.stack([x] * n, -1),
    "hstack": lambda x, n: tc.hstack([x] * n),
    "vstack": lambda x, n: tc.vstack([x] * n),
    "dstack": lambda x, n: tc.dstack([x] * n),
    "column_stack": lambda x, n: tc.column_stack([x] * n),
    "split": lambda x, n: tc.concatenate(tc.split(tc.tile(x, n), n)),
    "array_split": lambda x, n: tc.concatenate(tc.array_split(tc.tile(x, n), n)),
    "unstack": lambda x, n: tc.stack(tc.unstack(tc.tile(x, n))),
    "split of slices": lambda x, n: tc.split(tc.tile(x, n), n)[n // 2],
    "broadcast_arrays": lambda x, n: tc.concatenate(tc.broadcast_arrays(*[x] * n)),
    "repeat": lambda x, n: tc.repeat(tc.tile(x, n), [2] * n),
}


def training_graph(join: Callable[[Any, int], Any], n: int) -> Any:
    return tc.differentiate(tc.build(lambda x: tc.sum(join(x, n) ** 2), tc.Spec(1)))


def calls(function: Callable[[], Any]) -> int:
    """Return how many Python functions were called, or went on as generators."""
    count = 0

    def watch(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", JOINS)
def test_four_times_as_many_operands_are_four_times_the_work(name: str) -> None:
    few, many = (calls(lambda n=n: training_graph(JOINS[name], n)) for n in (50, 200))
    assert many < 5 * few


def test_the_adjoint_of_unstack_writes_each_element_once() -> None:
    graph = training_graph(JOINS["unstack"], 100)
    adjoints = [node.spec.size for node in graph.data if node.role == "cotangent"]
    assert sum(adjoints) < 20 * 100


def test_slices_that_nothing_reads_get_no_cotangent() -> None:
    x = np.arange(6.0).reshape(3, 2)
    parts = tc.grad(lambda x: tc.sum(tc.unstack(x, 1)[1] ** 2))(x)
    assert parts.tolist() == [[0, 2], [0, 6], [0, 10]]
    joined = tc.grad(lambda x: tc.sum(tc.concatenate([np.ones(2), x[1], np.ones(3), x[2]]) ** 3))(x)
    assert joined.tolist() == [[0, 0], [12, 27], [48, 75]]


@pytest.mark.nightly
@pytest.mark.parametrize("name", JOINS)
def test_fifty_thousand_operands_take_about_ten_times_as_long_as_five(name: str) -> None:
    seconds = []
    for n in (5_000, 50_000):
        begin = perf_counter()
        graph = training_graph(JOINS[name], n)
        tc.run(tc.plan(graph, "store_all"), np.ones(1))
        seconds.append(perf_counter() - begin)
    assert seconds[1] < 30 * max(seconds[0], 0.1)
