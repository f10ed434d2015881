"""Embedding lookup: values, adjoint, workspace, and ids out of range."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests import strict
from tests.conftest import examples

R = np.random.default_rng(29)
IDS = np.array([[2, 0, 2], [1, 2, 2]])

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "embedding": (lambda table: tc.embedding(table, IDS) ** 2, (R.normal(size=(4, 3)),)),
    "embedding of transposed": (
        lambda table: tc.embedding(table.T, IDS[0]) ** 2, (R.normal(size=(2, 3)),)
    ),
    "embedding by one id": (lambda table: tc.embedding(table, 2), (R.normal(size=4),)),
}  # fmt: skip
LARGE_CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    f"embedding {dtype}": (
        lambda table: [
            tc.embedding(table, np.append(0, np.arange(2047))),
            tc.embedding(table, np.arange(2047, -1, -1, dtype="int32").reshape(2, -1)),
        ],
        (R.normal(size=(2048, 1024)).astype(dtype),),
    )
    for dtype in ("float32", "float64")
}  # fmt: skip


@settings(max_examples=examples(60))
@given(
    rows=st.integers(1, 6),
    shape=st.lists(st.integers(0, 4), max_size=3),
    row=st.lists(st.integers(0, 3), max_size=2),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    kind=st.sampled_from(["int8", "uint8", "int16", "int32", "int64"]),
    seed=st.integers(0, 99),
)
def test_embedding_equals_numpy_and_duplicate_ids_accumulate(
    rows: int, shape: list[int], row: list[int], dtype: str, kind: str, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    table = generator.normal(size=(rows, *row)).astype(dtype)
    ids = generator.integers(0, rows, shape).astype(kind)
    weights = generator.integers(-4, 5, (*shape, *row)).astype(dtype)
    expected = np.zeros_like(table)
    np.add.at(expected, ids, weights)  # exact: small integers

    def loss(table: Any, ids: Any) -> Any:
        found = tc.embedding(table, ids)
        return tc.sum(found * weights), found

    graph = tc.differentiate(tc.build(loss, table, ids))
    for backend in ("numpy", strict.BACKEND):
        result = tc.run(tc.plan(graph), table, ids, backend=backend)
        assert result.trace == tc.replay(tc.plan(graph))
        found, gradient = result.value[1], result.gradients
        if backend == strict.BACKEND:
            found, gradient = strict.asnumpy(found), strict.asnumpy(gradient)
        np.testing.assert_array_equal(found, table[ids])
        np.testing.assert_array_equal(gradient, expected)
        assert gradient.dtype == table.dtype


@pytest.mark.parametrize("distinct", [1, 3, 1000, 4096])
def test_embedding_vjp_stays_within_declared_workspace(distinct: int) -> None:
    table, ids = np.zeros((4096, 256)), R.integers(0, distinct, 4096)
    graph = tc.differentiate(tc.build(lambda t, i: tc.sum(tc.embedding(t, i) ** 2), table, ids))
    (operator,) = (operator for operator in graph.operators if operator.kind == "take_vjp")
    assert operator.primitive is not None
    g = np.ones((4096, 256))
    tracemalloc.start()
    gradient = operator.primitive.forward(np, g, ids, **operator.attrs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= gradient.nbytes + operator.workspace + 2**17
    assert (gradient == np.bincount(ids, minlength=4096)[:, None]).all()


@pytest.mark.parametrize("backend", ["numpy", strict.BACKEND])
@pytest.mark.parametrize(
    ("ids", "match"),
    [
        ([0, 1, 3], r"ids must be 0 to 2, got 0 to 3; the first out of range is 3, element \[2\]$"),
        ([[0, 1], [2, -1]], r"got -1 to 2; the first out of range is -1, element \[1, 1\]$"),
        ([[0, 7], [9, -1]], r"got -1 to 9; the first out of range is 7, element \[0, 1\]$"),
    ],
)
def test_id_out_of_range_raises_with_id_position_and_range(
    backend: Any, ids: Any, match: str
) -> None:
    table, ids = np.ones((3, 2)), np.array(ids)
    schedule = tc.plan(tc.build(tc.embedding, table, ids))
    with pytest.raises(tc.BackendError, match=rf"step 0: embedding_1 of .*{match}"):
        tc.run(schedule, table, ids, backend=backend)
    if backend == "numpy":
        with pytest.raises(tc.BackendError, match=match):
            tc.compile(schedule)(table, ids)


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda t: tc.embedding(t, np.array([0.0])), r"needs integers, got float64\[1\]; convert"),
        (lambda t: tc.embedding(t, t[:, 0] > 0), r"needs integers, got bool\[3\]"),
        (lambda t: tc.embedding(t, [0, 1]), "an operand is a list"),
        (
            lambda t: tc.embedding(t[:0], np.array([0])),
            r"the table is float64\[0,2\]; expected at least one row",
        ),
        (lambda t: tc.embedding(t[0, 0], np.array([0])), r"the table is float64\[\]; expected at"),
    ],
)
def test_invalid_table_or_ids_raise(function: Any, match: str) -> None:
    with pytest.raises(tc.GraphError, match=match):
        tc.build(function, np.ones((3, 2)))


def test_label_out_of_range_raises_with_label_and_position() -> None:
    logits, labels = np.zeros((2, 2, 3)), np.array([[0, 1], [5, 2]])
    with pytest.raises(tc.BackendError, match=r"0 to 2, got 0 to 5; .* is 5, element \[1, 0\]$"):
        tc.run(tc.plan(tc.build(tc.cross_entropy, logits, labels)), logits, labels)
