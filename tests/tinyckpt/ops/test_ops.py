"""Every primitive: derivatives, shapes, workspace, and that CuPy has what the kernels call."""

import ast
import inspect
import math
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests import attention_examples, strict
from tests.conftest import require
from tests.numpy_examples import EXAMPLES
from tests.tinyckpt.ops import (
    test_approximate,
    test_convolution,
    test_embedding,
    test_memory_sharing,
    test_normalization,
    test_pooling,
    test_rotary,
    test_transposed_convolution,
)
from tinyckpt.building.check import check_graph
from tinyckpt.execute import execute
from tinyckpt.ops import PRIMITIVES, kernels, special, updating
from tinyckpt.ops.expressions import KERNELS
from tinyckpt.ops.random import drawing_key
from tinyckpt.tree import leaves

R = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return R.normal(size=shape)


def positive(*shape: int) -> Any:
    return R.uniform(0.5, 2.0, size=shape)


def apart(*shape: int) -> Any:
    """Return values at least 0.1 apart and 0.05 from 0, so that no kink is stepped over."""
    values = (np.arange(math.prod(shape)) - math.prod(shape) // 2) * 0.1 + 0.05
    return R.permutation(values).reshape(shape)


LABELS = np.array([2, 0, 1])
# name -> (function, arguments): together they reach every primitive, by themselves or their vjps.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "add": (lambda x, y: x + y, (normal(3, 2), normal(2))),
    "add constant": (lambda x: 2 + x, (normal(3),)),
    "subtract": (lambda x, y: x - y, (normal(3, 1), normal(1, 2))),
    "subtract from": (lambda x: 1 - x, (normal(3),)),
    "multiply": (lambda x, y: x * y, (normal(3, 2), normal(3, 1))),
    "divide": (lambda x, y: x / y, (normal(2, 3), positive(3))),
    "divide by itself": (lambda x: x / (x * x), (positive(3),)),
    "negative": (lambda x: -x, (normal(3),)),
    "power": (lambda x: x**3, (normal(4),)),
    "power 1": (lambda x: x**1, (normal(4),)),
    "power 2": (lambda x: x**2, (normal(4),)),
    "power half": (lambda x: x**0.5, (positive(4),)),
    "power of array": (lambda x, y: x**y, (positive(3), normal(3))),
    "power base": (lambda x: 2.0**x, (normal(3),)),
    "exp": (tc.exp, (normal(3),)),
    "log": (tc.log, (positive(3),)),
    "sqrt": (tc.sqrt, (positive(3),)),
    "sin": (tc.sin, (normal(3),)),
    "cos": (tc.cos, (normal(3),)),
    "absolute": (abs, (apart(6),)),
    "tanh": (tc.tanh, (normal(3, 2),)),
    "tanh 0-d": (tc.tanh, (np.array(0.3),)),
    "sigmoid": (tc.sigmoid, (normal(3),)),
    "log_sigmoid": (tc.log_sigmoid, (normal(3),)),
    "relu": (tc.relu, (apart(8),)),
    "silu": (tc.silu, (normal(5),)),
    "gelu": (tc.gelu, (normal(5),)),
    "gelu 0-d": (tc.gelu, (np.array(-0.7),)),
    "gelu tanh": (lambda x: tc.gelu(x, approximate=True), (normal(5),)),
    "maximum": (tc.maximum, (apart(6), np.zeros(1) + 0.01)),
    "minimum": (tc.minimum, (apart(2, 3), np.zeros(3) + 0.01)),
    "where": (lambda x, y: tc.where(x > 0, x * x, y), (apart(2, 3), normal(3))),
    "matmul": (lambda x, y: x @ y, (normal(2, 3), normal(3, 4))),
    "matmul transposed left": (lambda x, y: x.T @ y, (normal(3, 2), normal(3, 4))),
    "matmul transposed right": (lambda x, y: x @ y.T, (normal(2, 3), normal(4, 3))),
    "matmul batched": (lambda x, y: x @ y, (normal(2, 2, 3), normal(2, 3, 2))),
    "matmul batch broadcast": (lambda x, y: x @ y, (normal(2, 1, 2, 3), normal(3, 3, 2))),
    "matmul batch and matrix": (lambda x, y: x @ y, (normal(2, 2, 3), normal(3, 2))),
    "matmul vectors": (lambda x, y: x @ y, (normal(3), normal(3))),
    "matmul vector left": (lambda x, y: x @ y, (normal(3), normal(3, 2))),
    "matmul vector right": (lambda x, y: x @ y, (normal(2, 3), normal(3))),
    "sum": (lambda x: x.sum() ** 2, (normal(2, 3),)),
    "sum axis": (lambda x: x.sum(axis=0), (normal(2, 3),)),
    "sum keepdims": (lambda x: x * x.sum(axis=(0, 2), keepdims=True), (normal(2, 3, 2),)),
    "mean": (lambda x: x.mean(axis=-1), (normal(2, 3),)),
    "max": (lambda x: x.max(), (apart(2, 3),)),
    "max axis": (lambda x: x.max(axis=1) ** 2, (apart(2, 3),)),
    "max keepdims": (lambda x: x * x.max(axis=0, keepdims=True), (apart(2, 3),)),
    "reshape": (lambda x: x.reshape(3, -1) ** 2, (normal(2, 6),)),
    "reshape of transposed": (lambda x: x.T.reshape(6) ** 2, (normal(2, 3),)),
    "transpose": (lambda x: x.transpose(1, 2, 0) ** 2, (normal(2, 3, 2),)),
    "broadcast_to": (lambda x: tc.broadcast_to(x, (2, 3)) ** 2, (normal(3),)),
    "index": (lambda x: x[1:, ::2] ** 2, (normal(3, 4),)),
    "index integer": (lambda x: x[1, -1] * x[0], (normal(2, 3),)),
    "index none": (lambda x: x[:, None] * x, (normal(3),)),
    "concatenate": (lambda x, y: tc.concatenate([x, y, x], 1) ** 2, (normal(2, 1), normal(2, 3))),
    "stack": (lambda x, y: tc.stack([x, y], 1) ** 2, (normal(3), normal(3))),
    "split": (lambda x: tc.split(x, 2)[0] * tc.split(x, 2)[1], (normal(4, 2),)),
    "split, one part read": (lambda x: tc.split(x, [1], axis=1)[1] ** 2, (normal(2, 3),)),
    "softmax": (tc.softmax, (normal(2, 3),)),
    "softmax axis 0": (lambda x: tc.softmax(x, 0) ** 2, (normal(2, 3),)),
    "log_softmax": (tc.log_softmax, (normal(2, 3),)),
    "cross_entropy": (lambda x: tc.cross_entropy(x, LABELS), (normal(3, 4),)),
    "cross_entropy and logsumexp": (
        lambda x: tc.apply_all(PRIMITIVES["cross_entropy"], x, LABELS)[1] ** 2, (normal(3, 4),),
    ),
    "cross_entropy both": (
        lambda x: sum(tc.apply_all(PRIMITIVES["cross_entropy"], x, LABELS)), (normal(3, 4),),
    ),
    "one_hot": (lambda x: x * tc.one_hot(LABELS, 4), (normal(3, 4),)),
    "half_squared_norm": (lambda x: tc.half_squared_norm(x) ** 2, (normal(3),)),
    "dropout": (lambda x: tc.dropout(x, 0.4, seed=3) ** 2, (normal(20),)),
    "dropout by data": (lambda x: tc.dropout(x, 0.4, seed=np.array(3)) ** 2, (normal(20),)),
    "softplus": (tc.softplus, (normal(5),)),
    "leaky_relu": (lambda x: tc.leaky_relu(x, 0.2), (apart(6),)),
    "elu": (lambda x: tc.elu(x, 1.5), (apart(6),)),
    "logsumexp": (tc.logsumexp, (normal(2, 3),)),
    "logsumexp axis": (lambda x: tc.logsumexp(x, (0, 2)) ** 2, (normal(2, 3, 2),)),
    "logsumexp keepdims": (lambda x: x - tc.logsumexp(x, 1, keepdims=True), (normal(2, 3),)),
    "power of negatives": (lambda x: tc.power(x, np.array([2.0, 3.0, 0.0])), (normal(2, 3),)),
    "prod with a zero": (tc.prod, (np.array([2.0, 0.0, -1.5, 3.0, 0.5]),)),
    "prod with two zeros": (tc.prod, (np.array([2.0, 0.0, -1.5, 0.0, 0.5]),)),
    "prod with three zeros": (tc.prod, (np.array([0.0, 0.0, -1.5, 0.0, 0.5]),)),
    "cumprod with zeros": (tc.cumprod, (np.array([2.0, 0.0, -1.5, 0.0, 0.5]),)),
    "cumsum flattened": (lambda x: tc.cumsum(x) ** 2, (normal(2, 3),)),
    "norm": (tc.linalg.norm, (normal(2, 3),)),
    "norm 1": (lambda x: tc.linalg.norm(x, 1, axis=0), (apart(2, 3) + 0.02,)),
    "norm inf": (lambda x: tc.linalg.norm(x, np.inf), (apart(2, 3) + 0.02,)),
    "norm 3": (lambda x: tc.linalg.norm(x, 3, axis=-1, keepdims=True), (positive(2, 3),)),
    "norm of matrices": (lambda x: tc.linalg.norm(x, 1, axis=(2, 0)), (apart(2, 3, 2) + 0.02,)),
    "constants": (lambda x: x * tc.arange(3) + tc.eye(3) - tc.linspace(0, 1, 3), (normal(3),)),
    "filled": (lambda x: x * tc.ones(3) + tc.zeros((2, 1)) * tc.tri(2, 3), (normal(2, 3),)),
    "pad edge": (lambda x: tc.pad(x, 2, mode="edge") ** 2, (normal(2, 3),)),
    "pad reflect": (lambda x: tc.pad(x, ((0, 0), (1, 2)), mode="reflect") ** 2, (normal(2, 3),)),
    "index rows": (lambda x: x[[2, 0, 2]] ** 2, (normal(3, 2),)),
    "index columns": (lambda x: x[:, [1, 1, 0]] ** 2, (normal(3, 2),)),
    "index rows and columns": (lambda x: x[[0, 2, 0], [1, -1, 1]] ** 2, (normal(3, 2),)),
    "index pairs apart": (lambda x: x[[0, 1], :, [1, 0]] ** 2, (normal(2, 2, 3),)),
    "index with integer apart": (lambda x: x[0, :, [1, 0, 1]] ** 2, (normal(2, 2, 3),)),
    "index with slice and none": (lambda x: x[1:, None, [0, 0]] ** 2, (normal(3, 2),)),
    "index matrix": (lambda x: x[[[0, 1], [1, 1]]] ** 2, (normal(3, 2),)),
    "index of transposed": (lambda x: x.T[[1, 0, 1]] ** 2, (normal(3, 2),)),
    "index by nothing": (lambda x: x.sum() + tc.sum(x[[]]), (normal(3, 2),)),
    "take along a broadcast axis": (
        lambda x: tc.take_along_axis(x, [[0], [2], [0]], 1) ** 2, (normal(3, 3),)
    ),
    "repeat unevenly": (lambda x: tc.repeat(x, [2, 0, 1], axis=0) ** 2, (normal(3, 2),)),
    "einsum diagonal": (lambda x: tc.einsum("ii->i", x) ** 2, (normal(3, 3),)),
    "einsum trace": (lambda x: tc.einsum("ii", x) ** 2, (normal(3, 3),)),
    "einsum sums": (lambda x, y: tc.einsum("ij,kl->k", x, y), (normal(2, 3), normal(3, 2))),
    "einsum ellipsis": (
        lambda x, y: tc.einsum("...ij,...kj->...ik", x, y), (normal(2, 1, 2, 3), normal(2, 2, 3))
    ),
    "einsum several": (
        lambda x, y: tc.einsum("aibj,jcbk->bcaik", x, y), (normal(2, 2, 2, 3), normal(3, 2, 2, 2))
    ),
    "einsum no sums": (lambda x, y: tc.einsum("i,j->ji", x, y), (normal(2), normal(3))),
    "value used often": (lambda x: x * x + x * tc.exp(x) - x, (normal(3),)),
}  # fmt: skip
CASES.update(attention_examples.CASES)


def joined(call: Callable[..., Any], module: Any, *args: Any) -> Any:
    """Return the results of a call as one array."""
    result = call(module, *args)
    return tc.concatenate(result, axis=None) if isinstance(result, tuple) else result


# NumPy's names as NumPy's own functions: the same examples as its table has.
CASES.update(
    (f"np.{name}", (partial(joined, example.call, np), example.args))
    for name, example in EXAMPLES.items()
    if example.smooth and (name in np.__all__ or "." in name)
)
# Families with a file of tests of their own.
for family in (
    test_approximate,
    test_convolution,
    test_embedding,
    test_memory_sharing,
    test_normalization,
    test_pooling,
    test_rotary,
    test_transposed_convolution,
):
    CASES.update(family.CASES)


def scalar_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function projected onto fixed random directions: a scalar."""

    def projected(*args: Any) -> Any:
        result = function(*args)
        weights = np.random.default_rng(1).normal(size=result.shape)
        return tc.sum(result * weights)

    return projected


def check_gradient(function: Callable[..., Any], args: tuple[Any, ...], rtol: float) -> None:
    """Compare the gradient with central differences along a random direction."""
    wrt = tuple(range(len(args)))
    _, gradients = tc.value_and_grad(function, wrt=wrt)(*args)
    generator = np.random.default_rng(2)
    directions = [generator.normal(size=np.shape(arg)) for arg in args]
    slope = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
    # Fourth-order central differences: truncation and rounding both near 1e-10 in float64.
    h = 1e-3
    graph = tc.build(function, *args)
    value = tc.compile(tc.plan(graph))
    numeric = 0.0
    for steps, weight in ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12)):
        moved = [arg + steps * h * d for arg, d in zip(args, directions, strict=True)]
        numeric += weight * float(value(*moved)[0]) / h
    assert slope == pytest.approx(numeric, rel=rtol, abs=rtol)


@pytest.mark.parametrize("name", CASES)
def test_first_derivative(name: str) -> None:
    function, args = CASES[name]
    check_gradient(scalar_of(function), args, 1e-6)


@pytest.mark.parametrize("name", CASES)
def test_second_derivative(name: str) -> None:
    function, args = CASES[name]
    projected = scalar_of(function)

    def gradient_norm(*variables: Any) -> Any:
        gradients = tc.gradients(projected(*variables), list(variables))
        generator = np.random.default_rng(3)
        return sum(tc.sum(g * generator.normal(size=g.shape)) for g in gradients)

    check_gradient(gradient_norm, args, 1e-5)


def training_graph(function: Callable[..., Any], args: tuple[Any, ...]) -> tc.TrainingGraph:
    """Return the training graph of a function, with first and second derivatives in it."""
    projected = scalar_of(function)

    def penalised(*variables: Any) -> Any:
        value = projected(*variables)
        return value + sum(tc.sum(g * g) for g in tc.gradients(value, list(variables)))

    return tc.differentiate(tc.build(penalised, *args), tuple(range(len(args))))


def graphs_of_all_cases() -> list[tc.TrainingGraph]:
    """Return the training graphs of all cases."""
    return [training_graph(function, args) for function, args in CASES.values()]


def test_graphs_of_derivatives_of_derivatives_are_well_formed() -> None:
    for graph in graphs_of_all_cases():
        check_graph(graph)


def test_the_cases_reach_every_primitive() -> None:
    reached = {operator.kind for graph in graphs_of_all_cases() for operator in graph.operators}
    for name, example in EXAMPLES.items():
        if name in np.__all__:
            graph = tc.build(partial(example.call, np), *example.args)
            reached |= {operator.kind for operator in graph.operators}
    # What optimisers are made of has no derivatives: test_updating.py.
    optimizers = {primitive.name for primitive in vars(updating).values()
                  if type(primitive) is tc.Primitive}  # fmt: skip
    # Of what derivatives read of a compressed value there are no second ones: test_compression.py.
    assert set(PRIMITIVES) - reached == optimizers | {"encode", "decode", "compressed"}


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
def test_comparisons(infix: Any, expected: list[bool]) -> None:
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
def test_values(function: Any, x: list[float], expected: list[float]) -> None:
    array = np.array(x)
    value = tc.run(tc.plan(tc.build(function, array)), array).value
    np.testing.assert_allclose(value, expected, rtol=1e-14, atol=1e-16)


def test_normal_cdf_is_erfc_to_the_last_digits() -> None:
    x = np.linspace(-9, 9, 1001)
    expected = [0.5 * math.erfc(-value / math.sqrt(2)) for value in x]
    # At 9 standard deviations exp(-40.5) turns the rounding of its argument into 40 times as much.
    np.testing.assert_allclose(special.normal_cdf(np, x), expected, rtol=2e-14)
    np.testing.assert_allclose(special.normal_cdf(np, x[400:]), expected[400:], rtol=1e-15)


def test_dropout_drops_the_share_it_was_asked_to_and_repeats_itself() -> None:
    x = np.ones(100_000)
    one, again, other = (
        kernels.dropout(np, x, rate=0.3, key=drawing_key(seed)) for seed in (1, 1, 2)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert (one == 0).mean() == pytest.approx(0.3, abs=0.01)
    assert one.mean() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "int32"])
def test_a_seed_that_is_data_draws_the_mask_of_that_seed(dtype: str) -> None:
    x = normal(4, 5)
    for seed in (0, 1, 77, 127):
        step = tc.value_and_grad(lambda x, seed: tc.sum(tc.dropout(x, 0.3, seed) ** 2))
        known = tc.value_and_grad(lambda x, seed=seed: tc.sum(tc.dropout(x, 0.3, seed) ** 2))
        for found, expected in zip(step(x, np.array(seed, dtype)), known(x), strict=True):
            assert np.array_equal(found, expected)


def test_every_step_draws_another_mask_from_one_build_under_every_policy() -> None:
    builds = []

    def loss(w: Any, x: Any, step: Any) -> Any:
        builds.append(w)
        for layer in range(4):
            x = tc.dropout(tc.tanh(x @ w), 0.5, 4 * step + layer)
        return tc.mean(x**2)

    policies = ("store_all", "sqrt_n", "recompute_all", "greedy")
    steps = [tc.value_and_grad(loss, policy) for policy in policies]
    w, x, seen = normal(4, 4), normal(6, 4), set()
    for number in range(5):
        results = [step(w, x, number) for step in steps]
        assert len({value.tobytes() + gradient.tobytes() for value, gradient in results}) == 1
        seen.add(float(results[0][0]))
    assert len(seen) == 5
    assert len(builds) == len(policies)


@pytest.mark.parametrize(
    ("seed", "match"),
    [
        (-1, "the seed must be 0 or more, got -1"),
        (np.int64(-7), "the seed must be 0 or more, got -7"),
        (2**64, r"dropout: the seed must be less than 2\*\*64, got one of 65 bits"),
        pytest.param(1 << 20000, "got one of 20,001 bits", id="too many digits to print"),
        pytest.param(-1 << 20000, "0 or more, got one of 20,001 bits", id="and negative"),
        (np.float32(3), "must be an integer"),
        (1.5, "seed 1.5 must be an integer"),
        (True, "seed True must be an integer"),
        (None, "seed None must be an integer"),
        (np.array(1.5), r"the seed must be one integer, got float64\[\]"),
        (np.arange(2), r"the seed must be one integer, got int64\[2\]"),
        (np.array(True), r"the seed must be one integer, got bool\[\]"),
    ],
)
def test_what_is_no_seed_says_so(seed: Any, match: str) -> None:
    with pytest.raises(tc.GraphError, match=match):
        tc.build(lambda x: tc.dropout(x, 0.5, seed), np.ones(3))


def test_a_negative_seed_that_is_data_names_the_operator() -> None:
    graph = tc.build(lambda x, seed: tc.dropout(x, 0.5, seed), np.ones(3), 1)
    with pytest.raises(tc.BackendError, match=r"seeded_dropout_1 of .* must be 0 or more, got -1"):
        tc.run(tc.plan(graph), np.ones(3), -1)


def test_a_cast_takes_the_cotangent_back_to_the_dtype_it_came_from() -> None:
    x = np.array([1.0, 2.0])
    gradient = tc.grad(lambda x: tc.sum(x.astype("float32") ** 2))(x)
    assert gradient.dtype == np.float64
    assert gradient.tolist() == [2.0, 4.0]


def test_equal_maxima_share_the_cotangent() -> None:
    x = np.array([1.0, 3.0, 3.0])
    assert tc.grad(lambda x: x.max())(x).tolist() == [0.0, 0.5, 0.5]
    y = np.array([1.0, 4.0, 2.0])
    assert tc.grad(lambda x: tc.sum(tc.maximum(x, y)))(x).tolist() == [0.5, 0.0, 1.0]


LARGE = (512, 1024)  # 4 MiB in float64: fixed costs of Python do not show
LARGE_CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "elementwise": (
        lambda x: [
            tc.tanh(x), tc.sigmoid(x), tc.log_sigmoid(x), tc.relu(x), tc.silu(x),
            tc.gelu(x), tc.sin(x), tc.cos(x), tc.gelu(x, approximate=True),
            tc.exp(x), abs(x), -x, x**3, tc.sqrt(x * x + 1.0),
            tc.log(x * x + 1.0), x / (x * x + 1.0), tc.maximum(x, 0.1), tc.where(x > 0, x, 0.0),
            tc.minimum(0.2, x), x - x, x.astype("float32").astype("float64"),
        ],
        (normal(*LARGE),),
    ),
    "dropout": (
        lambda x: [tc.dropout(x, 0.5, seed=1), tc.dropout(x, 0.5, np.array(1))], (normal(*LARGE),),
    ),
    "shape": (
        lambda x: [
            x.reshape(-1), x.T, tc.concatenate([x, x]), x[::2], tc.split(x, 2)[0], x.T.reshape(-1),
        ],
        (normal(*LARGE),),
    ),
    "reduce": (
        lambda x: [x.sum(axis=0), x.mean(axis=1), x.max(axis=0), x.max(), x + x.sum(axis=0)],
        (normal(*LARGE),),
    ),
    "nn": (
        lambda x: [
            tc.softmax(x), tc.log_softmax(x), tc.half_squared_norm(x),
            tc.cross_entropy(x, np.arange(LARGE[0])),
            x * tc.one_hot(np.arange(LARGE[0]), LARGE[1]),
        ],
        (normal(*LARGE),),
    ),
    "functions": (
        lambda x: [
            tc.exp2(x), tc.expm1(x), tc.log2(x * x + 1.0), tc.log1p(x * x), tc.softplus(x),
            tc.tan(x), tc.arcsin(tc.sin(x)), tc.arccos(tc.sin(x)), tc.arctan(x), tc.arctan2(x, 2.0),
            tc.hypot(x, 1.0), tc.sinh(x), tc.cosh(x), tc.arcsinh(x), tc.arccosh(x * x + 1.5),
            tc.arctanh(tc.sin(x)), tc.cbrt(x), tc.logaddexp(x, 1.0), tc.leaky_relu(x), tc.elu(x),
            tc.log10(x * x + 1.0), tc.power(x * x + 1.0, x),
        ],
        (normal(*LARGE),),
    ),
    "steps": (
        lambda x: [
            tc.sign(x), tc.floor(x), tc.ceil(x), tc.trunc(x), tc.round(x, 1), x // 0.3, x % 0.3,
            tc.fmod(x, 0.3), tc.copysign(x, -x), tc.clip(x, -1.0, 1.0), tc.fmax(x, 0.1),
            tc.where((x > 0) & ~tc.isnan(x) | tc.isinf(x), x, 0.0), tc.nan_to_num(x),
        ],
        (normal(*LARGE),),
    ),
    "picked": (
        lambda x: [
            x[np.arange(LARGE[0])[::-1]], x[:, np.maximum(np.arange(LARGE[1]) - 1, 0)], tc.sort(x),
            tc.pad(x, 3), tc.roll(x, 5, 0), tc.tile(x, 2), tc.repeat(x, 2), tc.diagonal(x),
            tc.take(x, np.arange(x.size // 2) * 2), x[0, tc.argmax(x, 0)], tc.tril(x), tc.flip(x),
            x.reshape(-1)[tc.argsort(x.reshape(-1))],
        ],
        (normal(*LARGE),),
    ),
    "picked in float32": (
        lambda x: [
            x.reshape(-1)[tc.argsort(x.reshape(-1))], x[np.maximum(np.arange(LARGE[0]) - 1, 0)],
        ],
        (normal(*LARGE).astype("float32"),),
    ),
    "accumulated": (
        lambda x: [
            tc.cumsum(x, 0), tc.cumsum(x, 1), tc.prod(x * 1e-3, 0), tc.logsumexp(x, 0), x.min(1),
            tc.logsumexp(x), tc.var(x, 0), tc.std(x, 1), tc.median(x, 0), tc.linalg.norm(x, axis=1),
            tc.cumprod(x[:, :4], 0), tc.average(x, 0, weights=np.ones(LARGE[0])), tc.diff(x),
        ],
        (normal(*LARGE),),
    ),
    "contracted": (
        lambda x, y: [
            tc.einsum("ij,jk->ki", x, y), tc.tensordot(x, y, 1), tc.vdot(x, y), tc.inner(x, x),
            tc.einsum("ii->", x[:, :512]),
        ],
        (normal(*LARGE), normal(LARGE[1], LARGE[0])),
    ),
    "linalg": (lambda x, y: [x @ y], (normal(*LARGE), normal(LARGE[1], LARGE[0]))),
}  # fmt: skip
for family in (test_embedding, test_normalization, test_rotary):
    LARGE_CASES.update(family.LARGE_CASES)
LARGE_CASES.update(attention_examples.LARGE_CASES)


@pytest.mark.long
@pytest.mark.parametrize("name", LARGE_CASES)
def test_workspace_is_what_numpy_really_holds_during_an_operator(name: str) -> None:
    function, args = LARGE_CASES[name]

    def loss(*variables: Any) -> Any:
        return sum(tc.half_squared_norm(y) if y.ndim else y for y in function(*variables))

    graph = tc.differentiate(tc.build(loss, *args), tuple(range(len(args))))
    sources = dict(zip(leaves(graph.arguments), args, strict=True))
    values: dict[int, Any] = {**sources, **graph.constants}
    for operator in graph.operators:
        inputs = [values[data] for data in operator.inputs]
        results: Any = None
        tracemalloc.start()
        results = operator.primitive.forward(np, *inputs, **operator.attrs)
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        outputs = sum(graph.data[data].nbytes for data in operator.outputs)
        # 192 KiB: NumPy's buffers of 8,192 elements an operand, and reductions' small results.
        assert held == pytest.approx(outputs, abs=3 * 2**16), operator
        assert peak == pytest.approx(outputs + operator.workspace, abs=3 * 2**16), operator
        results = results if isinstance(results, tuple) else (results,)
        values.update(zip(operator.outputs, results, strict=True))


def test_kernels_leave_their_arguments_alone() -> None:
    for graph, (_, args) in zip(graphs_of_all_cases(), CASES.values(), strict=True):
        sources = dict(zip(leaves(graph.arguments), args, strict=True))
        before = {data: np.array(array) for data, array in sources.items()}
        read_only = {data: array.copy() for data, array in sources.items()}
        for array in read_only.values():
            array.flags.writeable = False
        execute(tc.plan(graph), read_only)
        assert all(np.array_equal(read_only[data], before[data]) for data in before)


@pytest.mark.parametrize("name", CASES)
def test_every_kernel_runs_where_numpy_arrays_are_refused(name: str) -> None:
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


def test_no_two_files_have_a_kernel_of_one_name() -> None:
    names = [name for module in KERNELS for name, kernel in vars(module).items()
             if inspect.isfunction(kernel) and kernel.__module__ == module.__name__]  # fmt: skip
    assert len(set(names)) == len(names) > 100
    graph = tc.differentiate(tc.build(lambda x: tc.sum(tc.tanh(tc.tan(x[[0, 0]]))), np.ones(2)))
    source = tc.compile(tc.plan(graph)).source
    assert source.startswith(
        "import numpy as np\n"
        "from tinyckpt.ops.kernels_activation import tanh_vjp\n"
        "from tinyckpt.ops.kernels_functions import tan_vjp\n"
        "from tinyckpt.ops.kernels_indexing import take_vjp\n"
    )


def array_code() -> ast.Module:
    """Return the source of everything that runs on NumPy's arrays or CuPy's."""
    return ast.parse("".join(map(inspect.getsource, (*KERNELS, special))))


def calls_of_xp() -> list[ast.Call]:
    """Return every call ``xp.something(...)`` in the kernels."""
    tree = array_code()
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "xp"
    ]


@pytest.mark.filterwarnings("ignore")  # CuPy warns where it finds no driver
def test_cupy_has_every_function_and_argument_that_the_kernels_use() -> None:
    require("cupy")
    import cupy

    calls = calls_of_xp()
    assert len({call.func.attr for call in calls}) > 20  # type: ignore[attr-defined]
    for call in calls:
        name = call.func.attr  # type: ignore[attr-defined]
        function = getattr(cupy, name)
        keywords = [keyword.arg for keyword in call.keywords if keyword.arg]
        if isinstance(function, cupy.ufunc):
            assert len(call.args) <= function.nin + function.nout, name
            assert set(keywords) <= {"out", "dtype"}, name
        elif name == "uint64":
            assert function is np.uint64
        else:
            arguments = [None] * len(call.args)
            inspect.signature(function).bind(*arguments, **dict.fromkeys(keywords))


@pytest.mark.filterwarnings("ignore")
def test_cupy_arrays_have_every_method_and_attribute_that_the_kernels_use() -> None:
    require("cupy")
    import cupy

    # Everything after a dot that is not xp. or math.; tuple methods do not occur.
    attributes = [node for node in ast.walk(array_code()) if isinstance(node, ast.Attribute)]
    owners = [ast.unparse(node.value) for node in attributes]
    used = set()
    for node, owner in zip(attributes, owners, strict=True):
        function = owner.removeprefix("xp.")
        if function != owner and function.isidentifier():  # its own method, as in xp.add.reduceat
            assert hasattr(getattr(cupy, function), node.attr)
        elif owner not in ("xp", "math"):
            used.add(node.attr)
    assert used >= {"sum", "max", "reshape", "transpose", "astype", "mT", "shape", "dtype"}
    assert [name for name in used if not hasattr(cupy.ndarray, name)] == []
    machine = {"ndarray", "asarray", "array", "asnumpy"}
    assert all(hasattr(cupy, name) for name in machine)
    assert all(hasattr(cupy.ndarray, name) for name in ("base", "nbytes", "flags", "ravel"))
