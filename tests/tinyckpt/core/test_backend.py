"""Backends other than NumPy: equal traces, equal results to rounding, bitwise across policies.

Each test runs on the strict stand-in for CuPy (``tests.strict``), and on CuPy where a GPU is.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tinyckpt as tc
from tests import strict
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.core.backend import Backend, get_backend

POLICIES = ("store_all", "recompute_all", "sqrt_n")


@pytest.fixture(params=[pytest.param("cupy", marks=pytest.mark.gpu), "strict"], scope="module")
def library(request: pytest.FixtureRequest) -> Backend:
    return strict.BACKEND if request.param == "strict" else get_backend(request.param)


def on_host(library: Backend, tree: Any) -> Any:
    """Return a nesting of the library's arrays as NumPy's; that they were its is asserted."""

    def moved(array: Any) -> Any:
        assert type(array) is library.xp.ndarray
        return library.to_host(array)

    return map_leaves(moved, tree)


def assert_equal(library: Backend, found: Any, expected: Any) -> None:
    """Assert that two nestings of the library's arrays are the same to the bit."""
    for array, other in zip(
        leaves(on_host(library, found)), leaves(on_host(library, expected)), strict=True
    ):
        assert array.dtype == other.dtype
        assert np.array_equal(array, other)


@pytest.mark.long
@settings(max_examples=examples(50))
@given(training_graphs())
def test_traces_agree_and_gradients_are_bitwise_equal(library: Backend, case: Any) -> None:
    graph, args = case
    expected = tc.run(tc.plan(graph), *args)
    reference = None
    for policy in POLICIES:
        schedule = tc.plan(graph, policy)
        result = tc.run(schedule, *args, backend=library, timed=True)
        assert result.trace == tc.replay(schedule)
        found = [result.value, result.gradients]
        reference = reference or found
        assert_equal(library, found, reference)
        assert_equal(library, list(tc.compile(schedule, library)(*args)), reference)
    for array, other in zip(
        leaves(on_host(library, reference)),
        leaves([expected.value, expected.gradients]),
        strict=True,
    ):
        np.testing.assert_allclose(array, other, rtol=1e-9, atol=1e-9)


def test_compiled_program_accepts_arrays_of_library_and_numpy(library: Backend) -> None:
    network = tc.networks.mlp(3, 16)
    arrays = network.arrays()
    schedule = tc.plan(network.graph(), "sqrt_n")
    expected = tc.run(schedule, *arrays, backend=library)
    step = tc.value_and_grad(network.loss, "sqrt_n", backend=library)
    moved = map_leaves(library.to_device, arrays)
    for args in (arrays, moved):
        for runner in (tc.compile(schedule, library), step):
            assert_equal(library, list(runner(*args)), [expected.value, expected.gradients])


def test_offloaded_values_leave_the_device(library: Backend) -> None:
    graph = tc.networks.chain(4)
    steps = list(tc.plan(graph).steps)
    used = max(i for i, step in enumerate(steps) if step == tc.Compute(8))
    moved = [*steps[:2], tc.Offload(1), *steps[2:used], tc.Fetch(1), *steps[used:]]
    schedule = tc.Schedule(graph, tuple(moved), "offloading")
    result = tc.run(schedule, np.ones((8, 8)), backend=library)
    assert result.trace == tc.replay(schedule)
    compiled = tc.compile(schedule, library)
    assert_equal(library, compiled(library.xp.ones((8, 8)))[1], result.gradients)


def test_dropout_mask_equals_numpys(library: Backend) -> None:
    x, seed = np.ones(1000), np.array(5)
    graph = tc.build(lambda x, y: (tc.dropout(x, 0.3, seed=5), tc.dropout(x, 0.3, y)), x, seed)
    (expected, _) = tc.run(tc.plan(graph), x, seed).value
    for mask in tc.run(tc.plan(graph), x, seed, backend=library).value:
        assert np.array_equal(on_host(library, mask), expected)


def test_numbers_and_seeds_are_moved_to_the_device(library: Backend) -> None:
    def function(x: Any, seed: Any, scale: Any) -> Any:
        return tc.sum(tc.dropout(x, 0.5, 2 * seed + 1) * scale)

    expected = tc.value_and_grad(function)(np.ones(9), 3, 0.5)
    found = tc.value_and_grad(function, backend=library)(np.ones(9), 3, 0.5)
    assert_equal(library, list(found), map_leaves(library.to_device, list(expected)))
    assert_equal(
        library, tc.jit(function, backend=library)(np.ones(9), seed=3, scale=0.5), found[0]
    )


def test_nan_and_out_of_range_labels_are_detected(library: Backend) -> None:
    graph = tc.build(lambda x: tc.sum(tc.log(x)), tc.Spec(2))
    with pytest.raises(tc.BackendError, match="NaN, first from step 0: log_1"):
        tc.run(tc.plan(graph), np.array([1.0, -1.0]), backend=library)
    labels = np.array([0, 3])
    graph = tc.build(tc.cross_entropy, tc.Spec((2, 3)), labels)
    with pytest.raises(tc.BackendError, match="labels must be 0 to 2, got 0 to 3"):
        tc.run(tc.plan(graph), np.zeros((2, 3)), labels, backend=library)


# Kernels that run on NumPy and must not run here: what each does that CuPy would refuse, or would
# pay for with a copy to the host.
HOST = np.ones(3)
WRONG: dict[str, Callable[..., Any]] = {
    "numpy's function": lambda xp, x: np.sin(x),
    "numpy's function of several": lambda xp, x: np.concatenate([x, x])[:3],
    "conversion": lambda xp, x: xp.asarray(np.asarray(x)),
    "a NumPy array beside it": lambda xp, x: x + HOST,
    "a NumPy array before it": lambda xp, x: HOST + x,
    "a NumPy array without axes": lambda xp, x: x * np.array(2.0),
    "a NumPy array as an argument": lambda xp, x: xp.where(x > 0, x, HOST),
    "a NumPy array in a list": lambda xp, x: xp.concatenate([x, HOST])[:3],
    "a NumPy array as a result": lambda xp, x: xp.add(x, x, out=HOST.copy()),
    "a NumPy array added in place": lambda xp, x: x.copy().__iadd__(HOST),
    "a Python float": lambda xp, x: x * float(x.sum()),
    "a Python bool": lambda xp, x: x if x.sum() > 0 else -x,
}
STRICTER = {  # CuPy does these, by a copy between host and device that nobody asked for
    "numpy's function", "numpy's function of several", "a Python float", "a Python bool",
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_kernel_that_leaves_the_library_fails(library: Backend, name: str) -> None:
    wrong = tc.Primitive("wrong", WRONG[name], lambda x: (x,))
    schedule = tc.plan(tc.build(lambda x: tc.apply(wrong, x), tc.Spec(3)))
    expected = tc.run(schedule, np.ones(3)).value
    if library is not strict.BACKEND and name in STRICTER:
        found = tc.run(schedule, np.ones(3), backend=library).value
        assert np.allclose(library.to_host(found), expected)
        return
    with pytest.raises(tc.BackendError, match="wrong_1"):
        tc.run(schedule, np.ones(3), backend=library)


def test_strict_arrays_refuse_foreign_operands() -> None:
    x = strict.asarray(np.arange(3.0))
    for refused in (
        lambda: x[np.array([0, 1])],
        lambda: x.__setitem__(0, np.array(1.0)),
        lambda: np.asarray(x),
        lambda: int(x[0]),
        lambda: [1, 2][x.astype("int64")[0]],
        lambda: strict.add([1.0, 2.0, 3.0], x),
        lambda: x * [1.0, 2.0, 3.0],
        lambda: 1.0 in x,
    ):
        with pytest.raises(TypeError):
            refused()
    # What is computed is an array, whatever its shape, and knows whose memory it shows.
    for made in (x.sum(), -x[0], x @ x, strict.sum(x), 2.0 * x, np.float64(2.0) * x):
        assert type(made) is strict.ndarray
        assert made.base is None
    assert x[1:].reshape(2, 1).base is x
    assert x.sum().item() == 3.0
    assert strict.asnumpy(x[::-1]).tolist() == x[::-1].tolist() == [2.0, 1.0, 0.0]
    host = np.zeros(2)
    device = strict.asarray(host)
    device += 1.0
    assert host.tolist() == [0.0, 0.0]
