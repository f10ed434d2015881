"""Declared workspace against tracemalloc, for random dtypes and shapes (Hypothesis)."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tinyckpt.base.tree import leaves

SIZE = 2**18  # 2 MiB in float64: NumPy's buffers of 8,192 elements an operand do not show
BUFFERS = 3 * 2**16
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
    graph = tc.differentiate(tc.build(loss, *args), (0, 1))
    values: dict[int, Any] = {**dict(zip(leaves(graph.arguments), args, strict=True))}
    values.update(graph.constants)
    for operator in graph.operators:
        inputs = [values[data] for data in operator.inputs]
        assert operator.primitive is not None
        results: Any = None
        with np.errstate(over="ignore", invalid="ignore"):  # sums of float16
            tracemalloc.start()
            results = operator.primitive.forward(np, *inputs, **operator.attrs)
            held, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        outputs = sum(graph.data[data].nbytes for data in operator.outputs)
        assert held == pytest.approx(outputs, abs=BUFFERS), operator
        assert peak == pytest.approx(outputs + operator.workspace, abs=BUFFERS), operator
        results = results if isinstance(results, tuple) else (results,)
        values.update(zip(operator.outputs, results, strict=True))
