"""Advanced indexing, einsum and their adjoints on random shapes, against NumPy."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests import strict
from tests.conftest import examples
from tests.numpy_examples import ROWS
from tinyckpt.base.tree import leaves


def computed(function: Any, *args: Any) -> list[Any]:
    """Run a traced function; assert that replay and execution agree on memory."""
    schedule = tc.plan(tc.build(function, *args))
    result = tc.run(schedule, *args)
    assert result.trace == tc.replay(schedule)
    return leaves(result.value)


KEYS: list[Any] = [
    ROWS, [2, 0, 2], (ROWS, [1, 0, 3]), (slice(None), ROWS), (slice(1, None), None, [0, -1]),
    (ROWS, slice(None), [0, 1, 1]), (0, slice(None), [1, 1]), (slice(None), 0, [1, 1]),
    (..., [0, 1]), (ROWS[:, None], [0, 3]), ([0, 1], None, [1, 2]), (None, ROWS), ([], 0),
    (np.int64(1), [0, 1]), np.array(2), (ROWS, np.array([[0], [1]]), [1, 0, 1]), (-1, ..., [0]),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indexing_matches_numpy_and_adjoint_accumulates(key: Any) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4, 2))
    (found,) = computed(lambda x: x[key], x)
    np.testing.assert_array_equal(found, x[key])
    # As data instead of constants, and in the backend that refuses NumPy's arrays.
    parts = key if isinstance(key, tuple) else (key,)
    places = [np.array(p, "int64") for p in parts if isinstance(p, list | np.ndarray)]

    def from_data(x: Any, *arrays: Any) -> Any:
        rest = iter(arrays)
        return x[tuple(next(rest) if isinstance(p, list | np.ndarray) else p for p in parts)]

    (again,) = computed(from_data, x, *places)
    np.testing.assert_array_equal(again, x[key])
    weights = np.random.default_rng(1).normal(size=x[key].shape)
    expected = np.zeros_like(x)
    np.add.at(expected, key, weights)
    gradients = [
        tc.grad(lambda x: tc.sum(x[key] * weights))(x),
        tc.grad(lambda x, *arrays: tc.sum(from_data(x, *arrays) * weights))(x, *places),
        strict.asnumpy(
            tc.grad(
                lambda x, *arrays: tc.sum(from_data(x, *arrays) * weights), backend=strict.BACKEND
            )(*map(strict.asarray, (x, *places)))
        ),
    ]
    for gradient in gradients:
        np.testing.assert_allclose(gradient, expected, rtol=1e-14)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 100])
def test_scatter_add_of_repeated_indices_matches_numpy_for_any_count(count: int) -> None:
    generator = np.random.default_rng(count)
    table, places = generator.normal(size=(5, 2)), generator.integers(-5, 5, count)
    weights = generator.normal(size=(count, 2))
    expected = np.zeros_like(table)
    np.add.at(expected, places, weights)
    known = tc.grad(lambda t: tc.sum(t[places] * weights))(table)
    data = tc.grad(lambda t, i: tc.sum(t[i] * weights))(table, places)
    np.testing.assert_allclose(known, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(data, expected, rtol=1e-12, atol=1e-14)


def test_index_as_data_is_checked_at_run_time() -> None:
    x, rows, columns = np.ones((2, 3)), np.array([0, 1]), np.array([2, 3])
    for function, args in (
        (lambda x, c: x[:, c], (x, columns)),
        (lambda x, r, c: x[r, c], (x, rows, columns)),
    ):
        schedule = tc.plan(tc.build(function, *args))
        with pytest.raises(tc.BackendError, match=r"index 3 is out of bounds.* size 3"):
            tc.run(schedule, *args)


# Random cases -------------------------------------------------------------------------------------


@st.composite
def indexed(draw: st.DrawFn) -> tuple[Any, tuple[int, ...], tuple[Any, ...]]:
    """Draw an array, an order of its axes, and a key of any kind for the view in that order."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    order = tuple(draw(st.permutations(range(len(shape)))))
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    key: list[Any] = []
    for axis in order[: draw(st.integers(1, len(shape)))]:
        extent = shape[axis]
        kind = draw(st.sampled_from(["array", "array", "integer", "slice", "slice", "none"]))
        if kind == "none":
            key.append(None)
            kind = "slice"
        if kind == "array":
            size = draw(st.sampled_from([(3,), (1,), (), (2, 3), (2, 1)]))
            key.append(generator.integers(-extent, extent, size))
        elif kind == "integer":
            key.append(draw(st.integers(-extent, extent - 1)))
        else:
            start, stop = (draw(st.sampled_from([None, 0, 1, -1])) for _ in range(2))
            key.append(slice(start, stop, draw(st.sampled_from([None, 1, 2, -1]))))
    if draw(st.booleans()):
        key.append(Ellipsis)
    return generator.normal(size=shape), order, tuple(key)


@pytest.mark.long
@settings(max_examples=examples(200))
@given(indexed())
def test_random_indices_and_their_adjoints_match_numpy(case: Any) -> None:
    x, order, key = case
    try:
        expected = x.transpose(order)[key]
    except IndexError:  # arrays that do not broadcast
        with pytest.raises(tc.GraphError, match="broadcast"):
            tc.build(lambda x: x.transpose(order)[key], x)
        return
    arrays = [part for part in key if isinstance(part, np.ndarray)]

    def picked(x: Any, *places: Any) -> Any:
        rest = iter(places)
        parts = [next(rest) if isinstance(part, np.ndarray) else part for part in key]
        return x.transpose(order)[tuple(parts)]

    weights = np.cos(np.arange(expected.size)).reshape(expected.shape)
    slope = np.zeros([x.shape[axis] for axis in order])
    np.add.at(slope, key, weights)
    for places in (), arrays:  # known, and as data
        function = picked if places else lambda x: picked(x, *arrays)
        np.testing.assert_array_equal(computed(function, x, *places)[0], expected)
        gradient = tc.grad(lambda x, *p, f=function: tc.sum(f(x, *p) * weights))(x, *places)
        np.testing.assert_allclose(gradient, slope.transpose(np.argsort(order)), atol=1e-12)


@st.composite
def contraction(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """Draw subscripts of one operand or two, with repeated labels and ellipses, and operands."""
    extents = {label: draw(st.integers(1, 3)) for label in "abcd"}
    hidden = draw(st.lists(st.integers(1, 2), max_size=2))
    dots = "..." if draw(st.booleans()) else ""
    terms, operands = [], []
    for position in range(draw(st.integers(1, 2))):
        labels = draw(st.text("abcd", max_size=4 - position))
        cut = draw(st.integers(0, len(labels)))
        before, after = labels[:cut], labels[cut:]
        terms.append(f"{before}{dots}{after}")
        own = hidden if dots else []
        own = own[draw(st.integers(0, len(own))) :] if position else own
        shape = [*(extents[a] for a in before), *own, *(extents[a] for a in after)]
        operands.append(np.random.default_rng(len(shape)).normal(size=shape))
    subscripts = ",".join(terms)
    if draw(st.booleans()):
        known = sorted({*subscripts} & {*extents})
        chosen = draw(st.permutations(known))[: draw(st.integers(0, len(known)))]
        subscripts += f"->{dots}{''.join(chosen)}"
    return subscripts, operands


@settings(max_examples=examples(200))
@given(contraction())
def test_random_einsum_contractions_match_numpy(case: Any) -> None:
    subscripts, operands = case
    expected = np.einsum(subscripts, *operands)
    (found,) = computed(lambda *variables: tc.einsum(subscripts, *variables), *operands)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shares", [1, 2, 7, 600])
def test_take_vjp_stays_within_declared_workspace(axis: int, shares: int) -> None:
    places = np.random.default_rng(0).integers(0, 600 // shares, 600)
    g = np.moveaxis(np.ones((600, 2000)), 0, axis).copy()
    graph = tc.differentiate(
        tc.build(
            lambda x, i, g: tc.sum(tc.take(x, i, axis) * g),
            np.moveaxis(np.ones((600, 2000)), 0, axis), places, g,
        )
    )  # fmt: skip
    (operator,) = (operator for operator in graph.operators if operator.kind == "take_vjp")
    tracemalloc.start()
    result = operator.primitive.forward(np, g, places, **operator.attrs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= result.nbytes + operator.workspace + 2**17
    counts = np.bincount(places, minlength=600)
    assert (np.moveaxis(result, axis, 0) == counts[:, None]).all()
