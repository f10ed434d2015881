"""Rotary position embedding: both conventions, relative positions, adjoint, and errors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples

R = np.random.default_rng(31)

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "rotary": (lambda x: tc.rotary(x) ** 2, (R.normal(size=(2, 3, 4)),)),
    "rotary interleaved": (
        lambda x: tc.rotary(x, np.array([5, 0, 2]), interleaved=True) ** 2,
        (R.normal(size=(2, 3, 4)),),
    ),
    "rotary of transposed": (lambda x: tc.rotary(x.T, base=10) ** 2, (R.normal(size=(4, 3)),)),
}
LARGE_CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    f"rotary {dtype}": (
        lambda x: [
            0.01 * tc.rotary(x), 0.01 * tc.rotary(x.reshape(8, 64, -1)),
            0.01 * tc.rotary(x, np.arange(512), interleaved=True),
            0.01 * tc.rotary(x.reshape(-1, 2)), 0.01 * tc.rotary(x.reshape(2, 256, -1),
                                                                np.arange(512).reshape(2, -1)),
        ],
        (R.normal(size=(512, 1024)).astype(dtype),),
    )
    for dtype in ("float16", "float32", "float64")
}  # fmt: skip


def by_matrices(x: Any, positions: Any, base: float, interleaved: bool) -> Any:
    """Rotate every pair by a 2 by 2 matrix."""
    features = x.shape[-1]
    out = np.empty_like(x)
    for row in np.ndindex(x.shape[:-1]):
        for i in range(features // 2):
            pair = [2 * i, 2 * i + 1] if interleaved else [i, i + features // 2]
            angle = positions[row] * base ** (-2 * i / features)
            c, s = np.cos(angle), np.sin(angle)
            out[row][pair] = np.array([[c, -s], [s, c]]) @ x[row][pair]
    return out


def computed(x: Any, *args: Any, **options: Any) -> Any:
    return tc.jit(lambda x, *args: tc.rotary(x, *args, **options))(x, *args)


@settings(max_examples=examples(30))
@given(
    outer=st.lists(st.integers(1, 3), max_size=2),
    length=st.integers(1, 5),
    half=st.integers(1, 4),
    base=st.sampled_from([10000.0, 500000.0, 3]),
    interleaved=st.booleans(),
    given_positions=st.sampled_from(["none", "line", "rows", "all"]),
    seed=st.integers(0, 99),
)
def test_rotary_rotates_every_pair_by_its_angle(
    outer: list[int],
    length: int,
    half: int,
    base: float,
    interleaved: bool,
    given_positions: str,
    seed: int,
) -> None:
    r = np.random.default_rng(seed)
    x = r.normal(size=(*outer, length, 2 * half))
    shape = {"line": (length,), "rows": (*outer[:1], *[1] * len(outer[1:]), length)}
    own = r.integers(0, 10**5, shape.get(given_positions, x.shape[:-1]))
    args = [] if given_positions == "none" else [own]
    positions = np.broadcast_to(np.arange(length) if not args else own, x.shape[:-1])
    found = computed(x, *args, base=base, interleaved=interleaved)
    expected = by_matrices(x, positions, base, interleaved)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    # The adjoint is the inverse rotation: it restores the input.
    back = tc.grad(
        lambda x, g, *p: tc.sum(tc.rotary(x, *p, base=base, interleaved=interleaved) * g)
    )(x, found, *args)
    np.testing.assert_allclose(back, x, rtol=1e-12, atol=1e-12)


def test_rotary_products_depend_only_on_relative_position() -> None:
    query, key = R.normal(size=(1, 8)), R.normal(size=(1, 8))
    products = [
        computed(query, np.array([m])) @ computed(key, np.array([m + 3])).T for m in (0, 7, 1000)
    ]
    np.testing.assert_allclose(products, np.full((3, 1, 1), products[0]), rtol=1e-11)


def test_float16_rotary_computes_in_float32_at_any_position() -> None:
    x, positions = R.normal(size=(3, 64)).astype("float16"), np.array([0, 4095, 131071])
    found = computed(x, positions)
    assert found.dtype == np.float16
    exact = by_matrices(x.astype(float), positions, 10000.0, False)
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-3)


def test_rotary_saves_only_positions() -> None:
    graph = tc.differentiate(tc.build(lambda x: tc.sum(tc.rotary(x) * x), tc.Spec((4, 6))))
    backward = [op for op in graph.operators if op.kind == "rotary" and op.phase == "backward"]
    assert [op.attrs["sign"] for op in backward] == [-1.0]
    assert len(backward[0].inputs) == 1


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (
            lambda x: tc.rotary(x[:, :3]),
            r"float64\[2,3\] must be \(\.\.\., length, features\), fea",
        ),
        (lambda x: tc.rotary(x[0]), r"float64\[4\] must be"),
        (lambda x: tc.rotary(x, np.arange(3)), "shapes .* do not broadcast"),
        (lambda x: tc.rotary(x, np.zeros((5, 2), int)), r"they must broadcast to \(2,\)"),
        (lambda x: tc.rotary(x, np.array([0.5, 1])), "needs integers"),
        (lambda x: tc.rotary(x, base=0), "base=0; it must be a number above 0"),
        (lambda x: tc.rotary(x, interleaved=1), "interleaved=1; it must be True or False"),
        (lambda x: tc.rotary(x > 0), "needs floating-point arrays"),
    ],
)
def test_invalid_rotary_arguments_raise(function: Any, match: str) -> None:
    with pytest.raises(tc.GraphError, match=match):
        tc.build(function, np.ones((2, 4)))
