"""Pooling against a naive definition, at any size; NaN, ties, workspace, and errors."""

import math
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.measured import check_workspace
from tests.tinyckpt.ops.test_convolution import both
from tinyckpt.ops import sliding_windows as windows

R = np.random.default_rng(23)


def normal(*shape: int) -> Any:
    return R.normal(size=shape)


def apart(*shape: int) -> Any:
    """Return values 0.1 apart, so that no finite difference crosses a tie."""
    return R.permutation(np.arange(math.prod(shape)) * 0.1).reshape(shape)


# name -> (function, arguments): collected in cases.py, for the checks of every primitive.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "max_pool2d": (lambda x: tc.max_pool2d(x, 2) ** 2, (apart(2, 2, 4, 5),)),
    "max_pool2d of overlapping windows": (
        lambda x: tc.max_pool2d(x, (3, 2), stride=(1, 2), padding=1) ** 2, (apart(1, 2, 4, 4),)
    ),
    "max_pool2d of a view": (
        lambda x: tc.max_pool2d(x.transpose(0, 3, 1, 2), 2, stride=1), (apart(1, 3, 3, 2),)
    ),
    "avg_pool2d": (lambda x: tc.avg_pool2d(x, 2) ** 2, (normal(2, 2, 4, 5),)),
    "avg_pool2d with padding": (
        lambda x: tc.avg_pool2d(x, (3, 2), stride=(1, 2), padding=1) ** 2, (normal(1, 2, 4, 4),)
    ),
    "avg_pool2d without padding": (
        lambda x: tc.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False) ** 2,
        (normal(1, 2, 4, 4),),
    ),
    "global_avg_pool2d": (lambda x: tc.global_avg_pool2d(x) ** 2, (normal(2, 3, 2, 2),)),
}  # fmt: skip


@st.composite
def poolings(
    draw: Any, dtypes: tuple[str, ...] = ("float64",), pixels: Any = None
) -> tuple[Any, Any, dict[str, Any]]:
    """Draw (x, kernel, options)."""
    kernel = draw(st.integers(1, 5) | st.tuples(st.integers(1, 5), st.integers(1, 5)))
    stride = draw(st.none() | st.integers(1, 4) | st.tuples(st.integers(1, 4), st.integers(1, 4)))
    padding = tuple(draw(st.integers(0, size // 2)) for size in both(kernel))
    extents = [
        draw(st.integers(least, least + 6))
        for size, pad in zip(both(kernel), padding, strict=True)
        for least in [max(1, size - 2 * pad)]
    ]
    shape = draw(st.integers(1, 3)), draw(st.integers(1, 3)), *extents
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    values = generator.normal(size=shape) if pixels is None else generator.choice(pixels, shape)
    options = {"stride": stride, "padding": padding}
    return values.astype(draw(st.sampled_from(dtypes))), kernel, options


def seen_windows(x: Any, kernel: Any, options: dict[str, Any], fill: float) -> Any:
    """Return the pixels of every window, as an array (images, channels, rows, columns, pixels)."""
    (kh, kw), (ph, pw) = both(kernel), both(options["padding"])
    sh, sw = both(kernel if options["stride"] is None else options["stride"])
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)), constant_values=fill)
    rows = range(0, padded.shape[2] - kh + 1, sh)
    columns = range(0, padded.shape[3] - kw + 1, sw)
    lines = [
        [padded[..., r : r + kh, c : c + kw].reshape(*x.shape[:2], -1) for c in columns]
        for r in rows
    ]
    return np.stack([np.stack(line, 2) for line in lines], 2)


LIMITS = st.integers(1, 2000)
PIXELS = [-np.inf, -1.0, 0.0, 1.0, np.inf, np.nan]


@settings(max_examples=examples(60))
@given(case=poolings(("float16", "float32", "float64"), PIXELS), limit=LIMITS)
def test_max_pool_matches_definition_with_ties_nans_and_infinities(case: Any, limit: int) -> None:
    x, kernel, options = case
    with mock.patch.object(windows, "BLOCK_BYTES", limit):
        found = tc.jit(lambda x: tc.max_pool2d(x, kernel, **options))(x)
        gradient = tc.grad(lambda x: tc.sum(tc.max_pool2d(x, kernel, **options)))(
            np.nan_to_num(x, nan=2.0, posinf=1.0, neginf=-1.0)
        )
    seen = seen_windows(x, kernel, options, -np.inf)
    np.testing.assert_array_equal(found, seen.max(-1))
    assert found.dtype == x.dtype
    # Each window gives 1, to one of its pixels.
    assert gradient.sum() == found.size


@settings(max_examples=examples(40))
@given(case=poolings(pixels=PIXELS), limit=LIMITS)
def test_max_pool_index_is_first_maximum_or_first_nan(case: Any, limit: int) -> None:
    x, kernel, options = case
    stride = both(kernel if options["stride"] is None else options["stride"])
    attrs = {"kernel": both(kernel), "stride": stride, "padding": options["padding"]}
    with mock.patch.object(windows, "BLOCK_BYTES", limit):
        _, indices = tc.PRIMITIVES["max_pool"].forward(np, x, **attrs)
        taken = tc.PRIMITIVES["max_pool_take"].forward(np, indices, x, **attrs)
    seen = seen_windows(x, kernel, options, -np.inf)
    inside = seen_windows(np.ones(x.shape), kernel, options, 0) > 0
    largest = seen.max(-1, keepdims=True)
    attained = np.where(np.isnan(largest), np.isnan(seen), seen == largest) & inside
    assert indices.dtype == np.uint8
    np.testing.assert_array_equal(indices, attained.argmax(-1))
    np.testing.assert_array_equal(taken, largest[..., 0])


@settings(max_examples=examples(60))
@given(case=poolings(("float16", "float32", "float64")), padded=st.booleans(), limit=LIMITS)
def test_avg_pool_equals_definition(case: Any, padded: bool, limit: int) -> None:
    x, kernel, options = case
    with mock.patch.object(windows, "BLOCK_BYTES", limit):
        found = tc.jit(lambda x: tc.avg_pool2d(x, kernel, **options, count_include_pad=padded))(x)
    fill = 0.0 if padded else np.nan
    expected = np.nanmean(seen_windows(x.astype("float64"), kernel, options, fill), -1)
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=8 * np.finfo(x.dtype).eps)


@settings(max_examples=examples(40))
@given(case=poolings(), padded=st.booleans(), limit=LIMITS)
def test_avg_pool_gradient_equals_adjoint_of_definition(
    case: Any, padded: bool, limit: int
) -> None:
    x, kernel, options = case
    fill = 0.0 if padded else np.nan
    y = np.nanmean(seen_windows(x, kernel, options, fill), -1)
    g = R.normal(size=y.shape)
    with mock.patch.object(windows, "BLOCK_BYTES", limit):
        gradient = tc.grad(
            lambda x: tc.sum(g * tc.avg_pool2d(x, kernel, **options, count_include_pad=padded))
        )(x)
    assert (gradient * x).sum() == pytest.approx((g * y).sum(), abs=1e-11)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nonfinite_cotangent_affects_only_its_pixel(dtype: str) -> None:
    x = np.arange(9).reshape(1, 1, 3, 3).astype(dtype)
    g = np.array([np.inf, -np.inf, -2.0, np.nan]).reshape(1, 1, 2, 2).astype(dtype)
    with np.errstate(invalid="ignore"):  # the loss
        gradient = tc.grad(lambda x, g: tc.sum(tc.max_pool2d(x, 2, stride=1) * g))(x, g)
    expected = [[0, 0, 0], [0, np.inf, -np.inf], [0, -2.0, np.nan]]
    assert gradient.dtype == dtype
    np.testing.assert_array_equal(gradient[0, 0], expected)


def test_max_pool_accepts_kernel_of_256_positions() -> None:
    x = np.zeros((1, 1, 16, 16))
    x[0, 0, 15, 15] = 1
    assert (tc.grad(lambda x: tc.sum(tc.max_pool2d(x, 16)))(x) == x).all()


SIZES: dict[str, tuple[tuple[int, ...], Any, dict[str, Any]]] = {
    "several images a block": ((32, 32, 40, 40), 2, {}),
    "overlapping": ((8, 64, 112, 112), 3, {"stride": 2, "padding": 1}),
    "rows of an image": ((1, 64, 301, 299), 3, {"stride": 1, "padding": 1}),
}


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SIZES)
def test_declared_workspace_equals_traced_allocations(name: str, dtype: str) -> None:
    shape, kernel, options = SIZES[name]
    x = R.normal(size=shape).astype(dtype)
    for function in (
        lambda x: tc.max_pool2d(x, kernel, **options),
        lambda x: tc.avg_pool2d(x, kernel, **options),
        lambda x: tc.avg_pool2d(x, kernel, **options, count_include_pad=False),
    ):
        operators = check_workspace(function, x)
        for operator in operators:
            if "pool" in operator.kind:
                assert 2**16 < operator.workspace < windows.BLOCK_BYTES


def test_pooling_flops_and_output_bytes() -> None:
    args = (tc.Spec((2, 3, 8, 8), "float32"),)
    graph = tc.differentiate(tc.build(lambda x: tc.sum(tc.max_pool2d(x, 3, stride=2)), *args))
    found = {operator.kind: operator for operator in graph.operators}
    assert found["max_pool"].flops == 8 * 2 * 3 * 3 * 3
    assert found["max_pool_vjp"].flops == 2 * 3 * 3 * 3
    y, indices = (graph.data[data].nbytes for data in found["max_pool"].outputs)
    assert (y, indices) == (4 * 2 * 3 * 3 * 3, 2 * 3 * 3 * 3)
    graph = tc.differentiate(tc.build(lambda x: tc.sum(tc.avg_pool2d(x, 3, stride=2)), *args))
    found = {operator.kind: operator for operator in graph.operators}
    assert found["avg_pool"].flops == 9 * 2 * 3 * 3 * 3
    assert found["avg_pool_vjp"].flops == 10 * 2 * 3 * 3 * 3


@pytest.mark.parametrize("function", [tc.max_pool2d, tc.avg_pool2d])
@pytest.mark.parametrize(
    ("shape", "kernel", "options", "match"),
    [
        ((3, 8, 8), 2, {}, "x must have 4 axes"),
        ((0, 3, 8, 8), 2, {}, r"x has no images: it is float64\[0,3,8,8\]"),
        ((2, 3, 8, 8), 9, {}, "a kernel of 9 by 9 .* at most 8 by 8"),
        ((2, 3, 8, 8), 0, {}, r"kernel=\(0, 0\) must be at least 1"),
        ((2, 3, 8, 8), 2, {"stride": 0}, r"stride=\(0, 0\) must be at least 1"),
        ((2, 3, 8, 8), 2, {"padding": -1}, r"padding=\(-1, -1\) must be at least 0"),
        ((2, 3, 8, 8), (2, 3), {"padding": (1, 2)}, r"more than half .* expected .* \(1, 1\)"),
        ((2, 3, 8, 8), 2.0, {}, "kernel=2.0: give an integer, or a pair"),
    ],
)
def test_invalid_shapes_and_options_raise(
    function: Any, shape: Any, kernel: Any, options: Any, match: str
) -> None:
    with pytest.raises(tc.GraphError, match=f"pool.*: .*{match}"):
        tc.build(lambda x: function(x, kernel, **options), tc.Spec(shape))


def test_other_invalid_arguments_raise() -> None:
    with pytest.raises(tc.GraphError, match="has 272 positions; at most 256"):
        tc.build(lambda x: tc.max_pool2d(x, (17, 16)), tc.Spec((1, 1, 20, 20)))
    for function in (lambda x: tc.max_pool2d(x, 2), lambda x: tc.avg_pool2d(x, 2)):
        with pytest.raises(tc.GraphError, match="needs floating-point arrays"):
            tc.build(function, tc.Spec((1, 1, 4, 4), "int64"))
    with pytest.raises(tc.GraphError, match="global_avg_pool2d: x must have 4 axes"):
        tc.build(tc.global_avg_pool2d, tc.Spec((3, 4)))
    with pytest.raises(tc.GraphError, match="global_avg_pool2d: x has no rows"):
        tc.build(tc.global_avg_pool2d, tc.Spec((3, 4, 0, 1)))
