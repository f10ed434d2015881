"""Chunked functions: equal to the whole, or refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import ACTIONS, COLUMNS, ROWS
from tinyckpt.base.tree import leaves

X, W = tc.Spec((6, 4)), tc.Spec((4, 4))
CUBE = tc.Spec((2, 6, 4))


def both(function: Any, chunks: int, axis: int, *args: Any) -> tuple[Any, Any]:
    """Return value and gradients of a sum over a function, whole and in pieces."""

    def total(run: Any) -> Any:
        return lambda *given: sum(tc.sum(tc.sin(result)) for result in leaves(run(*given)))

    wrt = tuple(range(len(args)))
    runs = [
        tc.value_and_grad(total(run), wrt=wrt)(*args)
        for run in (function, tc.chunked(function, chunks, axis))
    ]
    return runs[0], runs[1]


BLOCKS: dict[str, Any] = {
    "linear": lambda x, w: tc.gelu(x @ w) + x,
    "norm": lambda x, w: tc.layer_norm(x) * 2.0 - tc.mean(x, axis=-1, keepdims=True),
    "norms that share": lambda x, w: tc.ms_layer_norm(x) @ w + tc.ms_rms_norm(x),
    "softmax": lambda x, w: tc.softmax(x @ w) * tc.logsumexp(x, axis=-1, keepdims=True),
    "several": lambda x, w: {"a": tc.tanh(x), "b": [tc.max(x @ w, axis=-1)]},
    "parts": lambda x, w: tc.concatenate(tc.split(x @ w, 2, axis=-1)[::-1], axis=-1),
    "flipped": lambda x, w: tc.transpose(w @ tc.transpose(x, (0, 2, 1)), (0, 2, 1)),
    "folded": lambda x, w: tc.tanh(x.reshape(x.shape[0], x.shape[1], 2, 2)).reshape(x.shape) @ w,
    "per row": lambda x, w: tc.causal_softmax(x.reshape(*x.shape[:2], 2, 2) * 1.5),
}


@settings(max_examples=examples(60))
@given(
    st.lists(st.sampled_from(sorted(BLOCKS)), min_size=1, max_size=3), st.integers(0, 1), st.data()
)
def test_chunked_equals_the_whole(names: list[str], axis: int, data: Any) -> None:
    chunks = data.draw(st.integers(1, (5, 6)[axis]))

    def function(x: Any, w: Any) -> Any:
        for name in names[:-1]:
            x = x + leaves(BLOCKS[name](x, w))[0].reshape(x.shape)
        return BLOCKS[names[-1]](x, w)

    generator = np.random.default_rng(len(names))
    x, w = generator.normal(size=(5, 6, 4)), generator.normal(size=(4, 4))
    whole, pieces = both(function, chunks, axis, x, w)
    for before, after in zip(leaves(whole), leaves(pieces), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-12)


@pytest.mark.long
@settings(max_examples=examples(300))
@given(st.data(), st.integers(0, 1), st.integers(2, 3))
def test_random_function_is_refused_or_equal(data: Any, axis: int, chunks: int) -> None:
    count = data.draw(st.integers(1, 4))
    names = [data.draw(st.sampled_from(sorted(ACTIONS))) for _ in range(count)]
    choices = [data.draw(st.lists(st.integers(0, 9), min_size=3, max_size=3)) for _ in names]

    def function(x: Any, y: Any, w: Any) -> Any:
        pool = [x, y, w]
        for number, (action, picks) in enumerate(zip(names, choices, strict=True)):
            queue = list(picks)
            pool.extend(ACTIONS[action](lambda q=queue: pool[-1 - q.pop() % len(pool)], number))
        return pool[-1]

    generator = np.random.default_rng(count)
    args = [generator.normal(size=(ROWS, COLUMNS)) for _ in range(3)]
    try:
        pieces = tc.jit(tc.chunked(function, chunks, axis, arguments=(0, 1)))(*args)
    except tc.GraphError:
        return
    np.testing.assert_allclose(pieces, tc.jit(function)(*args), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x, w: tc.sum(x, axis=0), "sum_1: sum looks across the chunked axis"),
        (lambda x, w: tc.mean(x), "sum_1: sum looks across"),
        (lambda x, w: tc.softmax(x, axis=0), "softmax_1: softmax looks across"),
        (lambda x, w: tc.layer_norm(x.T), "layer_norm looks across"),
        (lambda x, w: tc.cumsum(x, axis=0), "cumsum looks across"),
        (lambda x, w: x.T @ x, "matmul sums over the chunked axis"),
        (lambda x, w: x @ x.T, "matmul_1: each operand has the chunked axis"),
        (lambda x, w: tc.softmax(x @ x.T) @ x, "each operand has the chunked axis"),
        (lambda x, w: tc.causal_softmax(x.T), "causal_softmax looks across"),
        (lambda x, w: x + tc.reshape(x, (4, 6)).T, "splits the chunked axis, 6 along"),
        (lambda x, w: x[::-1], "it does not take all of the chunked axis, in its order"),
        (lambda x, w: x[1:], "it does not take all of the chunked axis"),
        (lambda x, w: x[..., 1:, :], r"expected : for axis 0 of \(6, 4\)"),
        (
            lambda x, w: x.reshape(6, 2, 2),
            "for a chunk of length 3 along axis 0: reshape: .* use the sha",
        ),
        (
            lambda x, w: x.reshape(2, 3, 4),
            r"from \(6, 4\) to \(2, 3, 4\) splits .*, 6 along",
        ),
        (lambda x, w: x.T.reshape(-1), "is part of axis 0, and not the first"),
        (lambda x, w: tc.dropout(x, 0.5, seed=1), "dropout is not known"),
        (lambda x, w: tc.sort(x, axis=0), "is not known to keep chunks separate"),
        (lambda x, w: x * x.shape[0], "a constant that differs for a chunk"),
        (lambda x, w: x * np.arange(6.0)[:, None], "is whole along the chunked axis"),
        (lambda x, w: tc.tanh(x) if x.shape[0] > 3 else tc.sin(x), "a different operator"),
        (lambda x, w: tc.sin(tc.sin(x)) if x.shape[0] > 3 else x, "something else for a chunk"),
        (lambda x, w: tc.tanh(w), r"its result tanh_1, of shape \(4, 4\), does not have"),
        (lambda x, w: tc.concatenate([x, x]), "concatenate looks"),
    ],
)
def test_function_across_chunks_is_refused(function: Any, match: str) -> None:
    with pytest.raises(tc.GraphError, match=match):
        tc.build(tc.chunked(function, 2), X, W)


def test_attention_is_chunked_over_batch_but_not_over_sequence() -> None:
    def attend(x: Any) -> Any:
        return tc.softmax(x @ tc.transpose(x, (0, 2, 1))) @ x

    with pytest.raises(tc.GraphError, match=r"chunked: matmul_1: .*at different places"):
        tc.build(tc.chunked(attend, 2, axis=1), CUBE)
    x = np.random.default_rng(0).normal(size=(4, 6, 4))
    whole, pieces = both(attend, 2, 0, x)
    for before, after in zip(leaves(whole), leaves(pieces), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-12)


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.sampled_from(
            [None, ..., slice(None), slice(0, 9), slice(1, 3), slice(None, None, -1), 0, -1]
        ),
        max_size=5,
    ),
    st.integers(0, 2),
)
def test_chunked_index_is_refused_or_equal(key: list[Any], axis: int) -> None:
    x = np.random.default_rng(len(key)).normal(size=(4, 3, 5))
    function = lambda x: tc.tanh(x[tuple(key)])  # noqa: E731
    try:
        expected = tc.jit(function)(x)
    except (tc.GraphError, IndexError):
        return
    try:
        pieces = tc.jit(tc.chunked(function, 2, axis))(x)
    except tc.GraphError:
        return
    assert np.array_equal(pieces, expected)


def test_convolutions_are_chunked_over_the_batch() -> None:
    generator = np.random.default_rng(3)
    x, w = generator.normal(size=(4, 2, 8, 8)), generator.normal(size=(3, 2, 3, 3))

    def block(x: Any, w: Any) -> Any:
        pooled = tc.max_pool2d(tc.relu(tc.conv2d(x, w, padding=1)), 2)
        return tc.avg_pool2d(tc.conv_transpose2d(pooled, w), 2)

    whole, pieces = both(block, 2, 0, x, w)
    for before, after in zip(leaves(whole), leaves(pieces), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-12)
    with pytest.raises(tc.GraphError, match="conv2d looks across the chunked axis"):
        tc.build(tc.chunked(block, 2, 1), x, w)


def test_fused_attention_is_chunked_over_the_batch() -> None:
    generator = np.random.default_rng(4)
    q = generator.normal(size=(4, 2, 6, 4))

    def attend(q: Any) -> Any:
        turned = tc.rotary(q)
        return tc.attention(turned, turned, q, causal=True, fused=True)

    whole, pieces = both(attend, 2, 0, q)
    for before, after in zip(leaves(whole), leaves(pieces), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-12)
    for axis, kind in ((2, "rotary"), (1, "fused_attention")):
        with pytest.raises(tc.GraphError, match=f"{kind} looks across the chunked axis"):
            tc.build(tc.chunked(attend, 2, axis), q)
    rows = np.arange(24).reshape(4, 1, 6)
    with pytest.raises(tc.GraphError, match="its positions are not the same for all chunks"):
        tc.build(tc.chunked(lambda q: tc.rotary(q, rows), 2), q)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        *(({"chunks": n}, "chunks=.*; it must be an integer of 1 or more")
          for n in (0, -1, True, 2.0, None, "2", [2])),
        ({"chunks": 7}, "7 chunks of an axis of 6; take 1 to 6"),
        *(({"chunks": 2, "axis": n}, "axis=.*; it must be an integer of 0 or more")
          for n in (-1, True, np.True_, 1.0, None, "0", (0,))),
        ({"chunks": 2, "axis": 2}, r"axis=2; argument 0 has shape \(6, 4\), and so no such axis"),
        *(({"chunks": 2, "arguments": n}, "arguments=.*; it must be a position")
          for n in (None, 1.0, True, "0", (), [0.0], [True], -1, {-1, 0})),
        ({"chunks": 2, "arguments": 5}, r"arguments=\[5\]; there are 2"),
        ({"chunks": 2, "arguments": (0, 1)}, "along axis 0: argument 0 has 6, argument 1 has 4"),
    ],
)  # fmt: skip
def test_illegal_options_are_refused(options: Any, match: str) -> None:
    with pytest.raises(tc.GraphError, match=match):
        tc.build(tc.chunked(lambda x, w: tc.tanh(x), **options), X, W)


def test_numpy_integer_options_are_accepted() -> None:
    run = tc.chunked(lambda x, w: x @ w, np.int64(2), np.uint8(0), np.array([0]))
    kinds = [operator.kind for operator in tc.build(run, X, W).operators]
    assert kinds == ["index", "matmul", "index", "matmul", "concatenate"]
    with pytest.raises(tc.GraphError, match="3 is not a function"):
        tc.chunked(3, 2)  # type: ignore[arg-type]
    with pytest.raises(tc.GraphError, match=r"arguments=\[0\]; there is no array in them"):
        tc.build(lambda x: tc.chunked(lambda nothing, x: x, 2)([], x), X)


@pytest.mark.parametrize("chunks", [1, 3, 4, 10])
def test_chunked_cross_entropy_equals_cross_entropy(chunks: int) -> None:
    generator = np.random.default_rng(chunks)
    hidden, weight = generator.normal(size=(2, 5, 4)), generator.normal(size=(4, 7))
    labels = generator.integers(0, 7, size=(2, 5))
    whole = tc.value_and_grad(lambda h, w, y: tc.cross_entropy(h @ w, y), wrt=(0, 1))
    pieces = tc.value_and_grad(
        lambda h, w, y: tc.chunked_cross_entropy(h, w, y, chunks), wrt=(0, 1), policy="regions"
    )
    for before, after in zip(
        leaves(whole(hidden, weight, labels)), leaves(pieces(hidden, weight, labels)), strict=True
    ):
        np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-14)


def test_gpt2_peak_is_below_whole_logits() -> None:
    # A batch of 8 texts of 1,024 tokens: logits of 1.53 GiB, and as much again for their cotangent.
    rows, width, classes, chunks = 8 * 1024, 768, 50_257, 64
    specs = [
        tc.Spec((rows, width), "float32"), tc.Spec((width, classes), "float32"),
        tc.Spec((rows,), "int64"),
    ]  # fmt: skip

    def peak(loss: Any, policy: str, wrt: Any) -> int:
        graph = tc.differentiate(tc.build(loss, *specs), wrt)
        return tc.replay(tc.plan(graph, policy)).peak_bytes

    def whole(hidden: Any, weight: Any, labels: Any) -> Any:
        return tc.cross_entropy(hidden @ weight, labels)

    def pieces(hidden: Any, weight: Any, labels: Any) -> Any:
        return tc.chunked_cross_entropy(hidden, weight, labels, chunks)

    logits, gradient, row = 4 * rows * classes, 4 * width * classes, 4 * rows * width
    assert peak(whole, "store_all", (0, 1)) > 2 * logits
    # Two pieces of logits, pieces of what is chunked, and the gradient of what is.
    assert peak(pieces, "regions", 0) < 2 * logits / chunks + 3 * row
    # The weight's gradient is added up: the sum so far, that of a piece, and the new sum.
    assert peak(pieces, "regions", (0, 1)) < 3 * gradient + 2 * logits / chunks + 3 * row
    assert 5 * peak(pieces, "regions", (0, 1)) < peak(whole, "store_all", (0, 1))


def test_mismatched_shapes_are_refused() -> None:
    specs = tc.Spec((6, 4)), tc.Spec((4, 9)), tc.Spec((5,), "int64")
    with pytest.raises(tc.GraphError, match=r"labels must have \(6,\); they have \(5,\)"):
        tc.build(lambda h, w, y: tc.chunked_cross_entropy(h, w, y, 2), *specs)
    specs = tc.Spec(()), tc.Spec((4, 9)), tc.Spec((), "int64")
    with pytest.raises(tc.GraphError, match=r"hidden is a scalar, float64\[\]; it must have"):
        tc.build(lambda h, w, y: tc.chunked_cross_entropy(h, w, y, 2), *specs)


def test_too_many_chunks_are_refused_at_once() -> None:
    with pytest.raises(tc.GraphError, match="10000000000000 chunks of an axis of 6"):
        tc.build(tc.chunked(tc.tanh, 10**13), X)
    with pytest.raises(tc.GraphError, match=r"chunks of 2 operators .* take 500000 chunks at most"):
        tc.build(tc.chunked(lambda x: tc.tanh(tc.sin(x)), 10**9), tc.Spec(10**12))
