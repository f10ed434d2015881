"""Declared workspace against tracemalloc, operator by operator: large arrays, random dtypes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests import attention_examples
from tests.conftest import examples
from tests.measured import evaluated
from tests.tinyckpt.ops import (
    test_embedding,
    test_normalization,
    test_rotary,
)
from tests.tinyckpt.ops.cases import normal

# NumPy's buffers of 8,192 elements an operand, and reductions' small results.
BUFFERS = 3 * 2**16
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


def check_workspace(graph: tc.TrainingGraph, args: tuple[Any, ...]) -> None:
    """Compare what each operator allocates with its declared outputs and workspace."""
    for operator, held, peak in evaluated(graph, *args):
        outputs = sum(graph.data[data].nbytes for data in operator.outputs)
        assert held == pytest.approx(outputs, abs=BUFFERS), operator
        assert peak == pytest.approx(outputs + operator.workspace, abs=BUFFERS), operator


@pytest.mark.sampled(4)
@pytest.mark.long
@pytest.mark.parametrize("name", LARGE_CASES)
def test_declared_workspace_equals_traced_allocations_of_operator(name: str) -> None:
    function, args = LARGE_CASES[name]

    def loss(*variables: Any) -> Any:
        return sum(tc.half_squared_norm(y) if y.ndim else y for y in function(*variables))

    check_workspace(tc.differentiate(tc.build(loss, *args), tuple(range(len(args)))), args)


# Operands of random dtypes ------------------------------------------------------------------------

SIZE = 2**18  # 2 MiB in float64: NumPy's buffers of 8,192 elements an operand do not show
FLOATS = ("float16", "float32", "float64")


def losses(x: Any, labels: Any) -> Any:
    return tc.apply_all(tc.PRIMITIVES["cross_entropy"], x, labels)


# Functions of two arrays of one shape, and of labels for the rows of the first.
FAMILIES: dict[str, Callable[[Any, Any, Any], list[Any]]] = {
    "functions": lambda x, y, labels: [
        tc.tanh(x), tc.sigmoid(x), tc.log_sigmoid(x), tc.relu(x), tc.silu(x), tc.gelu(x),
        tc.gelu(x, approximate=True), tc.sin(x), tc.cos(x), tc.exp(x), tc.log(x), tc.sqrt(x),
        abs(x), -x, x**3, x**0.5, tc.dropout(x, 0.3, seed=1),
    ],
    "arithmetic": lambda x, y, labels: [
        x + y, x - y, x * y, x / y, tc.maximum(x, y), tc.minimum(x, y), tc.where(x > y, x, y),
        x.astype("float16") + y,
    ],
    "broadcasting": lambda x, y, labels: [
        x + y[:1], x * y[:, :1], x / y[:1], tc.maximum(x, y[:, :1]), tc.where(x > 0, y[:1], x),
        tc.broadcast_to(x[:, :1], x.shape) * y,
    ],
    "reductions": lambda x, y, labels: [
        x.sum(axis=0), x.sum(axis=1), x.mean(axis=1), x.mean(), x.max(axis=0), x.max(),
        x.max(axis=1, keepdims=True),
    ],
    "shapes": lambda x, y, labels: [
        x.reshape(-1), x.T * 2.0, tc.concatenate([x, y.astype(x.dtype)]), x[::2], x[:, ::2] * 1.0,
        tc.split(x, 2)[0], x.T.reshape(-1),
    ],
    "softmax": lambda x, y, labels: [
        tc.softmax(x), tc.softmax(x, 0), tc.log_softmax(x), tc.log_softmax(x, 0),
        tc.half_squared_norm(x), x * tc.one_hot(labels, x.shape[1]),
    ],
    "cross entropy": lambda x, y, labels: [
        *losses(x, labels), *losses(x.T, tc.broadcast_to(labels[:1], x.shape[1:])),
    ],
    "normalisation": lambda x, y, labels: [
        0.001 * result
        for z, line in ((x, y.astype(x.dtype)[0]), (x.T, y.astype(x.dtype)[:, 0]))
        for result in (
            tc.layer_norm(z), tc.layer_norm(z, line, line), tc.layer_norm(z, axes=0),
            tc.rms_norm(z, line), tc.rms_norm(z), tc.batch_norm(z, line, line)[0],
            tc.batch_norm(z.reshape(1, *z.shape), 0 * z[:, 0], z[:, 0])[0],
            tc.group_norm(z, 2, line, line), tc.group_norm(z, 1),
        )
    ],
    "rows by id": lambda x, y, labels: [
        0.001 * tc.rotary(x), 0.001 * tc.rotary(x, labels, interleaved=True),
        0.001 * tc.embedding(x, np.arange(x.shape[0])[::-1]),
    ],
    "products": lambda x, y, labels: [small @ large for small, large in products(x, y)],
}  # fmt: skip


def products(x: Any, y: Any) -> list[tuple[Any, Any]]:
    """Return pairs with a small product."""
    return [(x, y.T)] if x.shape[0] <= x.shape[1] else [(x.T, y)]


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=examples(4))
@given(
    rows=st.sampled_from([2, 512, SIZE // 2]),
    dtypes=st.tuples(st.sampled_from(FLOATS), st.sampled_from(FLOATS)),
    labels=st.sampled_from(["int8", "int32", "int64"]),
)
def test_declared_workspace_equals_traced_allocations_for_random_operands(
    family: str, rows: int, dtypes: tuple[str, str], labels: str
) -> None:
    generator = np.random.default_rng(0)
    x, y = (generator.uniform(0.5, 2, (rows, SIZE // rows)).astype(dtype) for dtype in dtypes)

    def loss(x: Any, y: Any, labels: Any) -> Any:
        results = FAMILIES[family](x, y, labels)
        return sum(tc.half_squared_norm(z) if z.ndim else z for z in results)

    args = (x, y, np.zeros(rows, labels))
    with np.errstate(over="ignore", invalid="ignore"):  # sums of float16
        check_workspace(tc.differentiate(tc.build(loss, *args), (0, 1)), args)
