"""bfloat16 storage: casts, data movement, norms computed in 32 bits; an error elsewhere."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.conftest import require
from tinyckpt.base.tree import leaves

R = np.random.default_rng(37)


@pytest.fixture
def bfloat16() -> Any:
    require("ml_dtypes")
    return tc.Spec((), "bfloat16").dtype


def integers(*shape: int) -> Any:
    """Return small integers, which bfloat16 represents exactly."""
    return R.integers(-9, 10, shape).astype("float32")


def accounts(graph: Any, *args: Any) -> Any:
    """Return value and gradients; assert that run, replay and compile agree."""
    schedule = tc.plan(graph, "sqrt_n")
    result = tc.run(schedule, *args)
    assert result.trace == tc.replay(schedule)
    found = [result.value, result.gradients]
    compiled = tc.compile(schedule)(*args)
    for one, other in zip(leaves(found), leaves(list(compiled)), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one.astype(float), other.astype(float))
    return found


def test_bfloat16_without_ml_dtypes_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(tc.GraphError, match=r"bfloat16 needs ml_dtypes: pip install 'tinyckpt\[b"):
        tc.Spec(3, "bfloat16")


def test_bfloat16_casts_round_values_and_cotangents(bfloat16: Any) -> None:
    x, weights = R.normal(size=(2, 100)).astype("float32")
    for dtype in ("float16", "float32", "float64", "int32"):
        found = tc.jit(lambda x, dtype=dtype: x.astype("bfloat16").astype(dtype))(x * 10)
        np.testing.assert_array_equal(found, (x * 10).astype(bfloat16).astype(dtype))
    graph = tc.differentiate(
        tc.build(lambda x: tc.sum(x.astype("bfloat16").astype("float32") * weights), x)
    )
    _, gradient = accounts(graph, x)
    assert gradient.dtype == np.float32
    np.testing.assert_array_equal(gradient, weights.astype(bfloat16).astype("float32"))
    stored = next(node for node in graph.data if node.spec.dtype == bfloat16)
    assert stored.nbytes == 200
    cotangents = [n for n in graph.data if n.role == "cotangent" and n.spec.dtype == bfloat16]
    assert len(cotangents) == 1


IDS = np.array([2, 0, 2])
MOVES: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: x.reshape(2, -1),
    "transpose": lambda x: x.T.reshape(-1),
    "index": lambda x: x[1:, ::2],
    "concatenate": lambda x: tc.concatenate([x, x], 1),
    "split": lambda x: tc.split(x, 2, axis=1)[1],
    "take": lambda x: x[IDS],
    "embedding": lambda x: tc.embedding(x, IDS),
    "twice": lambda x: tc.stack([x, x[::-1]]),
}


@pytest.mark.parametrize("name", MOVES)
def test_data_movement_operators_accept_bfloat16(name: str, bfloat16: Any) -> None:
    x = integers(4, 6)
    move = MOVES[name]

    def loss(x: Any) -> Any:
        y = move(x).astype("float32")
        return tc.sum(y * y), y

    narrow = accounts(tc.differentiate(tc.build(loss, x.astype(bfloat16))), x.astype(bfloat16))
    wide = accounts(tc.differentiate(tc.build(loss, x)), x)
    assert narrow[1].dtype == bfloat16
    for found, expected in zip(leaves(narrow), leaves(wide), strict=True):
        np.testing.assert_array_equal(found.astype("float32"), expected)


def test_bfloat16_cotangents_accumulate_in_float32(bfloat16: Any) -> None:
    # In 8 bits of mantissa, 256 + 1 is 256.
    table = np.ones((2, 1), bfloat16)
    ids, weights = np.zeros(257, int), np.ones((257, 1), "float32")

    def loss(table: Any) -> Any:
        return tc.sum(tc.embedding(table, ids).astype("float32") * weights)

    gradient = tc.grad(loss)(table)
    assert gradient.astype(float).tolist() == [[256.0], [0.0]]  # 257, rounded once
    parts = tc.grad(lambda x: 256 * x.astype("float32") + 2 * x.astype("float32"))
    assert parts(np.asarray(1, bfloat16)).astype(float) == 258


NORMS: dict[str, Callable[..., Any]] = {
    "layer_norm": tc.layer_norm,
    "layer_norm shift": lambda x, scale, shift: tc.layer_norm(x, None, shift),
    "rms_norm": lambda x, scale, shift: tc.rms_norm(x, scale),
    "batch_norm": lambda *args: tc.batch_norm(*args)[0],
    "batch_norm mean": lambda *args: tc.batch_norm(*args)[0].astype("float32")
    + tc.batch_norm(*args)[1],
    "group_norm": lambda x, scale, shift: tc.group_norm(x, 2, scale, shift),
    "rotary": lambda x, scale, shift: tc.rotary(x),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("parameters", ["bfloat16", "float32"])
def test_bfloat16_norms_and_rotary_compute_in_float32(
    name: str, parameters: str, bfloat16: Any
) -> None:
    args = [R.normal(size=shape).astype(bfloat16) for shape in ((6, 8), 8, 8)]
    args[1:] = [array.astype(parameters) for array in args[1:]]
    weights = R.normal(size=(6, 8)).astype("float32")

    def loss(*args: Any) -> Any:
        value = tc.sum(NORMS[name](*args).astype("float32") * weights)
        gradients = tc.gradients(value, list(args))
        squares = [tc.sum(g.astype("float32") ** 2) for g in gradients]
        return value + sum(squares)

    found = accounts(tc.differentiate(tc.build(loss, *args), (0, 1, 2)), *args)
    wide = [array.astype("float32") for array in args]
    expected = accounts(tc.differentiate(tc.build(loss, *wide), (0, 1, 2)), *wide)
    assert [g.dtype for g in found[1]] == [array.dtype for array in args]
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        scale = max(abs(other).max(), 1)
        assert abs(one.astype("float32") - other).max() <= 0.05 * scale


REFUSED: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + x, "number": lambda x: x + 1.0, "negative": lambda x: -x,
    "multiply": lambda x: x * x.astype("float32"), "divide": lambda x: x / 2.0,
    "power": lambda x: x**2, "absolute": abs, "exp": tc.exp, "tanh": tc.tanh,
    "matmul": lambda x: x @ x.T,
    "sum": tc.sum, "mean": tc.mean, "max": tc.max, "min": tc.min, "var": tc.var, "prod": tc.prod,
    "cumsum": tc.cumsum, "cumprod": tc.cumprod, "median": tc.median, "sort": tc.sort,
    "argmax": tc.argmax, "greater": lambda x: x > x, "equal": lambda x: x == 0.0,
    "where": lambda x: tc.where(np.ones((2, 4), bool), x, x), "softmax": tc.softmax,
    "logsumexp": tc.logsumexp, "maximum": lambda x: tc.maximum(x, 0.0), "relu": tc.relu,
    "dropout": lambda x: tc.dropout(x, 0.5, seed=1), "pad": lambda x: tc.pad(x, 1),
    "broadcast": lambda x: tc.broadcast_to(x, (3, 2, 4)), "isnan": tc.isnan, "any": tc.any,
    "cross_entropy": lambda x: tc.cross_entropy(x, np.array([0, 1])), "round": tc.round,
    "floor": tc.floor, "norm": tc.linalg.norm, "gelu": tc.gelu, "log1p": tc.log1p,
    "clip": lambda x: tc.clip(x, 0.0, 1.0), "remainder": lambda x: x % 2.0,
    "einsum": lambda x: tc.einsum("ij,kj->ik", x, x),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_bfloat16_arithmetic_raises_and_suggests_cast(name: str, bfloat16: Any) -> None:
    with pytest.raises(tc.GraphError, match=r"bfloat16 is for storage; convert .*'float32'"):
        tc.build(REFUSED[name], tc.Spec((2, 4), "bfloat16"))


def test_bfloat16_loss_raises(bfloat16: Any) -> None:
    graph = tc.build(lambda x: x[0, 0], tc.Spec((2, 4), "bfloat16"))
    with pytest.raises(tc.GraphError, match=r"loss index_1 is bfloat16\[\]; only a floating-point"):
        tc.differentiate(graph)


def test_documents_and_compiled_programs_support_bfloat16(bfloat16: Any, tmp_path: Path) -> None:
    x = integers(3).astype(bfloat16)
    graph = tc.build(lambda x: x.astype("float32") * 2.0, x)
    tc.save_graph(graph, tmp_path / "graph.json")
    assert tc.load_graph(tmp_path / "graph.json").data[0].spec == tc.Spec(3, "bfloat16")
    source = tc.compile(tc.plan(tc.build(lambda x: x.astype("bfloat16"), x.astype("f")))).source
    assert source.startswith("import numpy as np\nimport ml_dtypes  # for bfloat16\n")
