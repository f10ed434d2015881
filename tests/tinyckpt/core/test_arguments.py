"""Argument binding: numbers, weak dtypes, other libraries' arrays, cyclic and deep pytrees."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests import strict
from tinyckpt.base.tree import check_depth, leaves


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_python_float_argument_takes_dtype_of_other_arguments(dtype: str) -> None:
    def loss(w: Any, rate: Any) -> Any:
        assert rate.dtype == w.dtype
        return tc.sum(w * rate + rate / 2)

    w = np.ones(3, dtype)
    value, gradient = tc.value_and_grad(loss)(w, 0.5)
    assert value.dtype == gradient.dtype == dtype
    schedule = tc.plan(tc.differentiate(tc.build(loss, w, 0.5)))
    for rate in (0.5, np.asarray(0.5, dtype)):
        assert tc.run(schedule, w, rate).value == value
        assert tc.compile(schedule)(w, rate)[0] == value


def test_numpy_scalar_and_python_integer_arguments_keep_their_dtype() -> None:
    dtypes = []

    def loss(w: Any, rate: Any, seed: Any) -> Any:
        dtypes.append((rate.dtype.name, seed.dtype.name))
        return tc.sum(w * rate)

    tc.value_and_grad(loss)(np.ones(2, "float32"), np.float64(0.5), 7)
    assert dtypes == [("float64", "int64")]
    alone = tc.build(lambda x: x * 2.0, 1.5)
    assert alone.data[0].spec == tc.Spec((), "float64")
    assert float(tc.run(tc.plan(alone), 2).value) == 4.0


class Foreign:
    """Another library's array: no NumPy array, but willing to become one."""

    def __init__(self, array: Any, willing: bool = True) -> None:
        self.array, self.willing = array, willing
        self.shape, self.dtype = array.shape, array.dtype

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if not self.willing:
            raise TypeError("call detach() first")
        return self.array


def runners() -> dict[str, Callable[..., Any]]:
    graph = tc.differentiate(tc.build(lambda x: tc.sum(x * x), tc.Spec(3)))
    schedule = tc.plan(graph)
    return {
        "run": lambda x: tc.run(schedule, x).gradients,
        "compile": lambda x: tc.compile(schedule)(x)[1],
        "grad": tc.grad(lambda x: tc.sum(x * x)),
    }


@pytest.mark.parametrize("name", runners())
def test_foreign_arrays_are_converted_or_refused(name: str) -> None:
    runner = runners()[name]
    gradient = runner(Foreign(np.ones(3)))
    assert type(gradient) is np.ndarray
    assert gradient.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(
        tc.GraphError, match=r"Foreign.* cannot be converted to an array of numpy: call det"
    ):
        runner(Foreign(np.ones(3), willing=False))
    if name != "grad":
        with pytest.raises(
            tc.GraphError, match="cannot be converted to an array of numpy: a host copy"
        ):
            runner(strict.ones(3))
    for hostile in ("x", object(), {1, 2}, lambda: 0, 1j, np.array(["a"]), np.array([None] * 3)):
        with pytest.raises(tc.GraphError):
            runner(hostile)


def test_threads_share_schedule_and_step_concurrently() -> None:
    network = tc.networks.mlp(3, 16)
    arrays = network.arrays()
    schedule = tc.plan(network.graph(), "sqrt_n")
    compiled, step = tc.compile(schedule), tc.value_and_grad(network.loss, "sqrt_n")
    expected = tc.run(schedule, *arrays)

    def once(number: int) -> bool:
        value, _ = (compiled, step)[number % 2](*arrays)
        traced = tc.build(lambda x: tc.sum(tc.tanh(x) * float(number)), tc.Spec(number + 1))
        result = tc.run(schedule, *arrays)
        return bool(
            value == expected.value == result.value
            and result.trace == expected.trace
            and traced.data[0].spec.shape == (number + 1,)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(once, range(64)))


def nested(depth: int) -> Any:
    tree: Any = np.ones(2)
    for _ in range(depth):
        tree = [tree]
    return tree


def innermost(tree: Any) -> Any:
    while isinstance(tree, list):
        tree = tree[0]
    return tc.sum(tree * tree)


def test_cyclic_argument_error_names_its_path() -> None:
    inner: dict[str, Any] = {"w": np.ones(2)}
    inner["up"] = [inner]
    whole: list[Any] = [np.ones(2)]
    whole.append((whole,))
    shared = [np.ones(2)]
    for tree, message in [
        (
            {"a": [inner]},
            r"tree: contains itself: \['a'\]\[0\]\['up'\]\[0\] is \['a'\]\[0\] again;",
        ),
        (whole, r"tree: contains itself: \[1\]\[0\] is the whole again;"),
        ([shared, nested(190)], r"tree: nested more than 190 deep, at \[1\]\[0\]\[0\]"),
    ]:
        with pytest.raises(tc.GraphError, match=message):
            check_depth("tree", tree)
    tree: Any = shared
    for _ in range(150):  # 2 ** 150 ways down it
        tree = [tree, tree]
    check_depth("tree", tree)


def test_deeply_nested_parameters_work_or_raise_graph_error() -> None:
    gradient = tc.grad(innermost)(nested(189))
    assert leaves(gradient)[0].tolist() == [2.0, 2.0]
    cyclic: list[Any] = [np.ones(2)]
    cyclic.append(cyclic)
    twice: dict[str, Any] = {"w": np.ones(2)}
    twice.update(a=twice, b=twice)
    schedule = tc.plan(tc.build(innermost, nested(1)))
    step = tc.train_step(innermost, tc.sgd(0.1))
    state = step.init(nested(1))
    for tree in (nested(191), nested(300), nested(900), nested(10_000), cyclic, twice):
        deep = tree is not cyclic and tree is not twice
        message = (
            "nested more than 190 deep, at .*0" if deep else "contains itself: .* again; dicts"
        )
        for runner in (
            tc.grad(innermost),
            tc.value_and_grad(innermost),
            tc.jit(innermost),
            step.init,
            lambda tree: step({**state, "parameters": tree}),
            lambda tree: step(state, tree),
            lambda tree: tc.train_step(innermost, tc.sgd(0.1), carry=True).init(nested(1), tree),
            lambda tree: tc.build(innermost, tree),
            lambda tree: tc.build(lambda x: tree, nested(1)),
            lambda tree: tc.rewrite(innermost, tree),
            lambda tree: tc.check_gradient(innermost, tree),
        ):
            with pytest.raises(tc.GraphError, match=message):
                runner(tree)
        for runner in (
            lambda tree: tc.run(schedule, tree),
            tc.compile(schedule),
            lambda tree: tc.build(lambda x: tc.gradients(innermost(x), tree), nested(1)),
        ):
            with pytest.raises(tc.GraphError):
                runner(tree)


@pytest.mark.parametrize("axis", [1.0, object(), np.array(2.0), True, "a", [0, 0], [1.0], [[0]]])
def test_invalid_axis_is_refused(axis: Any) -> None:
    for reduction in (tc.sum, tc.mean, tc.max):
        with pytest.raises(tc.GraphError, match=r"ax[ie]s"):
            tc.build(lambda x, r=reduction: r(x, axis), np.ones((3, 2)))
    for same in (np.int64(1), np.array(1), [1], np.array([1])):
        assert tc.build(lambda x, a=same: tc.sum(x, a), np.ones((3, 2))).data[-1].spec.shape == (3,)


def test_failing_kernel_in_compiled_program_is_named() -> None:
    logits, labels = np.zeros((2, 3)), np.array([0, 3])
    schedule = tc.plan(tc.build(tc.cross_entropy, logits, labels))
    for runner in (tc.value_and_grad(tc.cross_entropy), tc.jit(tc.cross_entropy),
                   tc.compile(schedule), lambda *args: tc.run(schedule, *args)):  # fmt: skip
        with pytest.raises(
            tc.BackendError,
            match=r"step 0: cross_entropy_1 of .* labels must be 0 to 2, got 0 to 3; .* is 3, el",
        ):
            runner(logits, labels)


def test_masked_arrays_are_refused_and_not_unmasked() -> None:
    masked, plain = np.ma.masked_array([1.0, 2.0], mask=[False, True]), np.ones(2)

    def loss(x: Any) -> Any:
        return tc.sum(tc.tanh(x) * x)

    schedule = tc.plan(tc.differentiate(tc.build(loss, plain)))
    step = tc.train_step(lambda w, x: tc.sum(w * x), tc.sgd(0.1))
    for call in (
        lambda: tc.build(loss, masked),
        lambda: tc.grad(loss)(masked),
        lambda: tc.grad(lambda x: loss(x * masked))(plain),
        lambda: tc.run(schedule, masked),
        lambda: tc.compile(schedule)(masked),
        lambda: tc.compile(schedule, arena=True)(masked),
        lambda: step(step.init(plain), masked),
        lambda: tc.tanh(masked),
        lambda: tc.sum(masked),
    ):
        with pytest.raises(tc.GraphError, match=r"a masked array.*pass x\.filled\(value\)"):
            call()
