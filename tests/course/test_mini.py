"""The engine that the course builds equals the core: counts, memory at each step, gradients."""

import ast
import re
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.course.networks import BATCH, MINI, NETWORKS, WIDTH, loss_of, mini, mini_chain

POLICIES = ("store_all", "recompute_all", "sqrt_n")


def run(graph: Any, policy: str, arrays: Any) -> Any:
    order = getattr(mini, policy)(graph)
    return mini.run(graph, mini.free_after_last_use(graph, order), arrays)


def check_equal(trace: tc.Trace, mine: Any) -> None:
    assert mine.evaluations == trace.evaluations
    assert mine.live_values == list(trace.nodes)
    # The core counts an operator's workspace, too.
    columns = zip(trace.live_bytes, trace.workspace, strict=True)
    assert mine.live_bytes == [nbytes - workspace for nbytes, workspace in columns]


@pytest.mark.parametrize("name", NETWORKS)
def test_mini_equals_core_at_each_step_to_the_last_bit(name: str) -> None:
    _, count = NETWORKS[name]
    random = np.random.default_rng(0)
    weights = [random.normal(size=(WIDTH, WIDTH)) / 2 for _ in range(count)]
    x = random.normal(size=(BATCH, WIDTH))
    graph = tc.differentiate(tc.build(loss_of(name, tc), weights, x))
    mine = mini.differentiate(loss_of(name, mini), count, 1)
    assert len(mine.operators) == len(graph.operators)
    for policy in POLICIES:
        expected = tc.run(tc.plan(graph, policy), weights, x)
        (value, *gradient), trace = run(mine, policy, [*weights, x])
        check_equal(expected.trace, trace)
        # Contributions are added in the same order, so that no bit differs.
        assert value == expected.value
        assert all(map(np.array_equal, gradient, expected.gradients))


@pytest.mark.parametrize("n", [1, 2, 8, 9, 16, 50])
def test_mini_equals_core_on_chains(n: int) -> None:
    chain, mine = tc.networks.chain(n), mini_chain(n)
    x = np.random.default_rng(0).normal(size=(8, 8))
    for policy in POLICIES:
        expected = tc.run(tc.plan(chain, policy), x)
        (gradient,), trace = run(mine, policy, [x])
        check_equal(expected.trace, trace)
        assert np.array_equal(gradient, expected.gradients)


def test_there_are_ten_networks_and_some_recompute() -> None:
    assert len(NETWORKS) == 10
    counts = {}
    for name, (_, count) in NETWORKS.items():
        graph = mini.differentiate(loss_of(name, mini), count, 1)
        counts[name] = [len(getattr(mini, policy)(graph)) for policy in POLICIES]
    assert sum(stored < cut < recomputed for stored, recomputed, cut in counts.values()) == 9


def test_value_and_gradient_are_the_same_under_each_policy() -> None:
    weights = [np.full((3, 3), 0.25), np.eye(3)]
    x = np.arange(6.0).reshape(2, 3)
    loss = loss_of("residual of 6", mini)
    expected = tc.value_and_grad(loss_of("residual of 6", tc))(weights, x)
    for policy in POLICIES:
        value, gradient, trace = mini.value_and_gradient(loss, getattr(mini, policy), weights, x)
        assert value == expected[0]
        assert all(map(np.array_equal, gradient, expected[1]))
        assert trace.evaluations >= 14


def test_mini_has_150_to_200_lines_of_code_and_imports_numpy_alone() -> None:
    imported = {*re.findall(r"^\s*(?:from|import) (\w+)", MINI, re.MULTILINE)}
    assert imported == {"collections", "dataclasses", "numpy"}
    docstrings = {
        number
        for node in ast.walk(ast.parse(MINI))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    code = [
        line
        for number, line in enumerate(MINI.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#") and number not in docstrings
    ]
    assert 150 <= len(code) <= 200
