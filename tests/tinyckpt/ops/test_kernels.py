"""Values of operators, and the rules that hold for every kernel."""

import inspect
import math
import sys
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests import strict
from tests.tinyckpt.ops.cases import (
    CASES,
    graphs_of_all_cases,
    training_graph,
)
from tinyckpt.base.tree import leaves
from tinyckpt.core.execute import execute
from tinyckpt.ops import special_functions as special


@pytest.mark.parametrize(
    ("infix", "expected"),
    [
        (lambda x, y: x > y, [False, False, True]),
        (lambda x, y: x >= y, [False, True, True]),
        (lambda x, y: x < y, [True, False, False]),
        (lambda x, y: x <= y, [True, True, False]),
        (lambda x, y: x == y, [False, True, False]),
        (lambda x, y: x != y, [True, False, True]),
    ],
)
def test_comparisons_match_numpy(infix: Any, expected: list[bool]) -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 2.0])
    value = tc.run(tc.plan(tc.build(infix, x, y)), x, y).value
    assert value.dtype == np.bool_
    assert value.tolist() == expected


@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        (tc.gelu, [-1.0, 0.0, 2.0], [-0.15865525393145707, 0.0, 1.9544997361036416]),
        (tc.sigmoid, [-800.0, 0.0, 800.0], [0.0, 0.5, 1.0]),
        (tc.silu, [0.0, 1.0], [0.0, 0.7310585786300049]),
        (tc.softmax, [1000.0, 1000.0], [0.5, 0.5]),
        (tc.log_softmax, [0.0, 0.0], [-math.log(2), -math.log(2)]),
        (tc.relu, [-1.0, 0.0, 2.0], [0.0, 0.0, 2.0]),
    ],
)
def test_operator_values_equal_expected(
    function: Any, x: list[float], expected: list[float]
) -> None:
    array = np.array(x)
    value = tc.run(tc.plan(tc.build(function, array)), array).value
    np.testing.assert_allclose(value, expected, rtol=1e-14, atol=1e-16)


def test_normal_cdf_is_accurate_to_last_digits() -> None:
    x = np.linspace(-9, 9, 1001)
    expected = [0.5 * math.erfc(-value / math.sqrt(2)) for value in x]
    # At 9 standard deviations exp(-40.5) turns the rounding of its argument into 40 times as much.
    np.testing.assert_allclose(special.normal_cdf(np, x), expected, rtol=2e-14)
    np.testing.assert_allclose(special.normal_cdf(np, x[400:]), expected[400:], rtol=1e-15)


def test_cast_vjp_restores_input_dtype() -> None:
    x = np.array([1.0, 2.0])
    gradient = tc.grad(lambda x: tc.sum(x.astype("float32") ** 2))(x)
    assert gradient.dtype == np.float64
    assert gradient.tolist() == [2.0, 4.0]


def test_tied_maxima_share_cotangent() -> None:
    x = np.array([1.0, 3.0, 3.0])
    assert tc.grad(lambda x: x.max())(x).tolist() == [0.0, 0.5, 0.5]
    y = np.array([1.0, 4.0, 2.0])
    assert tc.grad(lambda x: tc.sum(tc.maximum(x, y)))(x).tolist() == [0.5, 0.0, 1.0]


@pytest.mark.long
def test_kernels_do_not_modify_arguments() -> None:
    for graph, (_, args) in zip(graphs_of_all_cases(), CASES.values(), strict=True):
        sources = dict(zip(leaves(graph.arguments), args, strict=True))
        before = {data: np.array(array) for data, array in sources.items()}
        read_only = {data: array.copy() for data, array in sources.items()}
        for array in read_only.values():
            array.flags.writeable = False
        execute(tc.plan(graph), read_only)
        assert all(np.array_equal(read_only[data], before[data]) for data in before)


@pytest.mark.parametrize("name", CASES)
def test_every_kernel_runs_on_strict_non_numpy_arrays(name: str) -> None:
    function, args = CASES[name]
    graph = training_graph(function, args)
    schedule = tc.plan(graph)
    expected = tc.run(schedule, *args)
    found = tc.run(schedule, *args, backend=strict.BACKEND)
    assert found.trace == expected.trace
    for array, other in zip(
        leaves([found.value, found.gradients]),
        leaves([expected.value, expected.gradients]),
        strict=True,
    ):
        assert array.dtype == other.dtype
        assert np.array_equal(strict.asnumpy(array), other)


def test_kernel_names_are_unique_across_modules() -> None:
    modules = [module for name, module in sys.modules.items()
               if name.startswith("tinyckpt.ops.kernels")]  # fmt: skip
    assert len(modules) > 8
    names = [name for module in modules for name, kernel in vars(module).items()
             if inspect.isfunction(kernel) and kernel.__module__ == module.__name__]  # fmt: skip
    assert len(set(names)) == len(names) > 100
    graph = tc.differentiate(tc.build(lambda x: tc.sum(tc.tanh(tc.tan(x[[0, 0]]))), np.ones(2)))
    source = tc.compile(tc.plan(graph)).source
    assert source.startswith(
        "import numpy as np\n"
        "from tinyckpt.ops.kernels_elementwise import tan_vjp, tanh_vjp\n"
        "from tinyckpt.ops.kernels_indexing import take_vjp\n"
    )
