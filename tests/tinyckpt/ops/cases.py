"""Test cases that cover every primitive, directly or through its vjps: functions with arguments."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import tinyckpt as tc
from tests import attention_examples
from tests.numpy_examples import EXAMPLES
from tests.tinyckpt.ops import test_approximate_activations as test_approximate
from tests.tinyckpt.ops import (
    test_convolution,
    test_embedding,
    test_normalization,
    test_pooling,
    test_rotary,
    test_transposed_convolution,
)
from tests.tinyckpt.ops import test_memory_sharing_norms as test_memory_sharing
from tinyckpt.ops import PRIMITIVES

R = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return R.normal(size=shape)


def positive(*shape: int) -> Any:
    return R.uniform(0.5, 2.0, size=shape)


def apart(*shape: int) -> Any:
    """Return values at least 0.1 apart and 0.05 from 0, so that differences cross no kink."""
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
    # Where the derivative is 0 in any case, so that finite differences find none either.
    "stop gradient": (lambda x: tc.stop_gradient(tc.sign(x)) * x, (apart(2, 3),)),
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
# Families with a test file of their own.
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
