"""Ownership of results: the caller's own memory, and all of it counted (tracemalloc)."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.base.tree import leaves

SMALL = 128 * 1024  # a run's own records, and Python's objects
POLICIES = ["store_all", "sqrt_n", "recompute_all", "greedy", "rotor", "revolve"]


def drawn(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape)


def squares(x: Any) -> Any:
    return tc.sum(tc.tanh(x) ** 2)


def through(params: list[Any], view: Callable[[Any], Any]) -> Any:
    """Return the loss of layers whose gradients are most of what is held."""
    h = drawn(4, 256)
    for weight in params:
        h = tc.tanh(h @ view(weight))
    return squares(h)


MATRIX, ROWS = drawn(256, 512), drawn(512, 128)
PAIR = {"a": drawn(256, 256), "b": drawn(256, 256) + 2}
LOSSES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "reshaped": (lambda p: squares(p.reshape(-1)), MATRIX),
    "many reshaped": (lambda p: through(p, lambda w: w.reshape(256, 256)), [drawn(256 * 256)] * 6),
    "many transposed": (lambda p: through(p, lambda w: w.T), [drawn(256, 256)] * 6),
    "many views of views": (
        lambda p: through(p, lambda w: w[::-1].T.reshape(256, 256)), [drawn(128, 512)] * 6,
    ),
    "many of one array": (
        lambda p: through(p, lambda w: w[:256].reshape(256, 256)), [drawn(288, 256)] * 6,
    ),
    "all joined": (
        lambda p: squares(tc.concatenate([w.reshape(-1) for w in p])), [drawn(128, 256)] * 6,
    ),
    "transposed": (lambda p: squares(p.T), MATRIX),
    "view of views": (lambda p: squares(p.reshape(64, -1).T[::-1]), MATRIX),
    "flipped": (lambda p: squares(tc.flip(p)), MATRIX),
    "broadcast gradient": (lambda p: tc.sum(p), MATRIX),
    "means of columns": (lambda p: tc.sum(tc.mean(p, 0) ** 2), MATRIX),
    "slice": (lambda p: squares(p[10:200]), MATRIX),
    "joined": (lambda p: squares(tc.concatenate([p["a"], p["b"]])), PAIR),
    "joined, one of two": (lambda p: squares(tc.concatenate([p, np.ones((64, 512))])), MATRIX),
    "stacked": (lambda p: squares(tc.stack([p["a"], p["b"], p["a"]], 1)), PAIR),
    "one gradient for two": (lambda p: squares(p["a"] + p["b"]), PAIR),
    "split": (lambda p: sum(squares(part) for part in tc.split(p, 4)), MATRIX),
    "constant": (lambda p: tc.sum(p * MATRIX), MATRIX),
    "argument": (lambda p: tc.sum(p["a"] * p["b"]), PAIR),
    "results beside it": (lambda p: (squares(p), p.T, tc.tanh(p)[:, :5], p), MATRIX),
    "views of one value": (
        lambda p: (lambda h: (tc.sum(h), h.T, h.reshape(-1), h))(tc.tanh(p)), MATRIX,
    ),
    "16 bits": (
        lambda p: tc.sum(tc.astype(tc.tanh(p[::-1].T) * 0.5, "float32")), MATRIX.astype("f2"),
    ),
    "tied": (lambda p: squares(tc.tanh(ROWS @ p["w"].T) @ p["w"]), {"w": drawn(128, 128)}),
    "layers": (
        lambda p: squares(tc.tanh(tc.tanh(ROWS @ p[0].T) @ p[1].reshape(128, 128)) @ p[2]),
        [drawn(128, 128), drawn(128 * 128), drawn(128, 128)],
    ),
}  # fmt: skip


def measured(function: Callable[[], Any]) -> int:
    """Return the most bytes that a call allocates."""
    function()  # builds, plans and compiles
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        function()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def check_own(results: Any, *foreign: Any) -> None:
    """Check that results can be written to, and that each is nobody else's."""
    arrays = [array for array in leaves(results) if array is not None]
    for place, array in enumerate(arrays):
        assert array.flags.writeable
        for other in (*arrays[:place], *foreign):
            assert not np.shares_memory(array, other)
        before = [np.array(other) for other in (*arrays[:place], *foreign)]
        array += 1
        for other, copy in zip((*arrays[:place], *foreign), before, strict=True):
            np.testing.assert_array_equal(other, copy)


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", LOSSES)
def test_result_memory_is_counted_in_trace(name: str) -> None:
    function, params = LOSSES[name]
    graph = tc.differentiate(tc.build(function, params))
    for policy in POLICIES if name in ("reshaped", "joined", "layers") else POLICIES[:2]:
        schedule = tc.plan(graph, policy)
        trace, program = tc.replay(schedule), tc.compile(schedule)
        assert tc.run(schedule, params).trace == trace
        both, slope = tc.value_and_grad(function, policy), tc.grad(function, policy)
        calls: list[Callable[[], Any]] = [
            lambda schedule=schedule: tc.run(schedule, params),
            lambda both=both: both(params),
            lambda slope=slope: slope(params),
            lambda program=program: program(params),
        ]
        for call in calls:
            assert measured(call) <= trace.peak_bytes + SMALL


@pytest.mark.long
@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", LOSSES)
def test_results_do_not_alias_other_arrays(name: str) -> None:
    function, params = LOSSES[name]
    graph = tc.differentiate(tc.build(function, params))
    expected = tc.run(tc.plan(graph, "store_all"), params)
    bits = [np.asarray(array).tobytes() for array in leaves((expected.value, expected.gradients))]
    for policy in POLICIES[:2]:
        schedule = tc.plan(graph, policy)
        result = tc.run(schedule, params)
        for found in (
            (result.value, result.gradients),
            tc.value_and_grad(function, policy)(params),
            tc.compile(schedule)(params),
        ):
            assert [np.asarray(array).tobytes() for array in leaves(found)] == bits
            check_own(found, *leaves(params), MATRIX, ROWS)


@pytest.mark.parametrize("name", LOSSES)
def test_jit_result_memory_is_counted(name: str) -> None:
    function, params = LOSSES[name]
    schedule, predict = tc.plan(tc.build(function, params)), tc.jit(function)
    assert measured(lambda: predict(params)) <= tc.replay(schedule).peak_bytes + SMALL
    check_own(predict(params), *leaves(params), MATRIX, ROWS)


def test_view_of_whole_memory_is_returned_without_copy() -> None:
    for view in (lambda p: p.reshape(-1), lambda p: p.T, lambda p: tc.flip(p)):
        graph = tc.differentiate(tc.build(lambda p, view=view: squares(view(p)), MATRIX))
        assert not any(operator.name.endswith("_copy") for operator in graph.operators)


def test_training_step_does_not_copy_gradients() -> None:
    step = tc.train_step(LOSSES["joined"][0], tc.sgd(0.1))
    names = [operator.name for operator in step.graph(step.init(PAIR)).operators]
    assert not any(name.endswith("_copy") for name in names)


@settings(max_examples=examples(40))
@given(training_graphs())
def test_results_of_random_graphs_do_not_alias(case: Any) -> None:
    graph, args = case
    for policy in ("store_all", "sqrt_n"):
        result = tc.run(tc.plan(graph, policy), *args, check_nan=False)
        check_own((result.value, result.gradients), *leaves(list(args)))


def test_outputs_of_one_operator_that_share_memory_are_charged_once_by_execute() -> None:
    def twice(xp: Any, x: Any) -> Any:
        fresh = x + 1
        return fresh, fresh[:]

    shared = tc.Primitive("shared", twice, lambda x: (x, x))
    graph = tc.build(lambda x: tc.apply_all(shared, x), tc.Spec(4))
    schedule = tc.plan(graph)
    measured = tc.run(schedule, np.ones(4)).trace
    assert measured.peak_bytes == 32  # what is in memory
    assert tc.replay(schedule).peak_bytes == 64  # what the primitive promises: memory of its own
