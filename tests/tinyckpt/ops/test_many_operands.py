"""Operators with many operands or outputs: building and differentiating take linear time."""

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
    """Count Python function calls and generator resumptions."""
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


@pytest.mark.long
@pytest.mark.parametrize("name", JOINS)
def test_work_is_linear_in_number_of_operands(name: str) -> None:
    few, many = (calls(lambda n=n: training_graph(JOINS[name], n)) for n in (50, 200))
    assert many < 5 * few


def test_unstack_adjoint_writes_each_element_once() -> None:
    graph = training_graph(JOINS["unstack"], 100)
    adjoints = [node.spec.size for node in graph.data if node.role == "cotangent"]
    assert sum(adjoints) < 20 * 100


def test_unread_slices_get_no_cotangent() -> None:
    x = np.arange(6.0).reshape(3, 2)
    parts = tc.grad(lambda x: tc.sum(tc.unstack(x, 1)[1] ** 2))(x)
    assert parts.tolist() == [[0, 2], [0, 6], [0, 10]]
    joined = tc.grad(lambda x: tc.sum(tc.concatenate([np.ones(2), x[1], np.ones(3), x[2]]) ** 3))(x)
    assert joined.tolist() == [[0, 0], [12, 27], [48, 75]]


@pytest.mark.nightly
@pytest.mark.parametrize("name", JOINS)
def test_time_is_linear_up_to_fifty_thousand_operands(name: str) -> None:
    seconds = []
    for n in (5_000, 50_000):
        begin = perf_counter()
        graph = training_graph(JOINS[name], n)
        tc.run(tc.plan(graph, "store_all"), np.ones(1))
        seconds.append(perf_counter() - begin)
    assert seconds[1] < 30 * max(seconds[0], 0.1)
