"""Declared workspace against tracemalloc on large arrays, operator by operator."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests import attention_examples
from tests.tinyckpt.ops import (
    test_embedding,
    test_normalization,
    test_rotary,
)
from tests.tinyckpt.ops.cases import normal
from tinyckpt.base.tree import leaves

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
def test_declared_workspace_equals_traced_allocations_of_operator(name: str) -> None:
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
