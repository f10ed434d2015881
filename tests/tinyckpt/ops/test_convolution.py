"""Convolutions against a naive definition, at any size; workspace, FLOPs, and errors."""

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
from tests.measured import BUFFERS, check_workspace, evaluated
from tinyckpt.ops import sliding_windows as windows

R = np.random.default_rng(19)


def normal(*shape: int) -> Any:
    return R.normal(size=shape)


# name -> (function, arguments): collected in cases.py, for the checks of every primitive.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "conv2d": (tc.conv2d, (normal(2, 2, 4, 3), normal(3, 2, 2, 2), normal(3))),
    "conv2d with all options": (
        lambda x, w: tc.conv2d(x, w, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        (normal(2, 4, 4, 3), normal(2, 2, 3, 2)),
    ),
    "conv2d of single pixels": (
        lambda x, w, b: tc.conv2d(x, w, b, groups=2) ** 2,
        (normal(2, 4, 2, 3), normal(2, 2, 1, 1), normal(2)),
    ),
    "conv2d of views": (
        lambda x, w: tc.conv2d(x.transpose(0, 3, 1, 2), w.T, padding=1),
        (normal(1, 3, 3, 2), normal(2, 3, 2, 3)),
    ),
}


def attributes(draw: Any, most: int) -> dict[str, Any]:
    """Draw the options that any convolution has."""
    sizes = st.integers(1, most) | st.tuples(st.integers(1, most), st.integers(1, most))
    paddings = st.integers(0, most) | st.tuples(st.integers(0, most), st.integers(0, most))
    return {
        "stride": draw(sizes),
        "padding": draw(paddings),
        "dilation": draw(sizes),
        "groups": draw(st.integers(1, 3)),
    }


def both(value: Any) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


@st.composite
def convolutions(draw: Any, dtypes: tuple[str, ...] = ("float64",)) -> tuple[Any, ...]:
    """Draw (x, weight, bias or None, options)."""
    options = attributes(draw, 3)
    kernel = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    extents = []
    for axis in (0, 1):
        reach = both(options["dilation"])[axis] * (kernel[axis] - 1) + 1
        least = max(1, reach - 2 * both(options["padding"])[axis])
        extents.append(draw(st.integers(least, least + 5)))
    depth, filters = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    groups, images = options["groups"], draw(st.integers(1, 3))
    dtype = draw(st.sampled_from(dtypes))
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    x = generator.normal(size=(images, depth * groups, *extents)).astype(dtype)
    weight = generator.normal(size=(filters * groups, depth, *kernel)).astype(dtype)
    bias = generator.normal(size=filters * groups).astype(dtype) if draw(st.booleans()) else None
    return x, weight, bias, options


def defined(x: Any, weight: Any, bias: Any, options: dict[str, Any]) -> Any:
    """Return a convolution by its definition, in nested loops, in float64."""
    (sh, sw), (ph, pw), (dh, dw) = (
        both(options[name]) for name in ("stride", "padding", "dilation")
    )
    filters, depth, height, width = weight.shape
    padded = np.pad(x.astype("float64"), ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    rows = (padded.shape[2] - dh * (height - 1) - 1) // sh + 1
    columns = (padded.shape[3] - dw * (width - 1) - 1) // sw + 1
    y = np.zeros((x.shape[0], filters, rows, columns))
    for n, f, r, c in np.ndindex(*y.shape):
        first = f // (filters // options["groups"]) * depth
        seen = padded[n, first : first + depth, r * sh :, c * sw :][:, ::dh, ::dw]
        y[n, f, r, c] = (seen[:, :height, :width] * weight[f]).sum()
    return y if bias is None else y + bias.reshape(-1, 1, 1)


@settings(max_examples=examples(60))
@given(
    case=convolutions(("float16", "float32", "float64")),
    limit=st.integers(1, 4000),
    wide=st.sampled_from([1, 12, 128]),
)
def test_conv2d_equals_definition_for_any_block_size(case: Any, limit: int, wide: int) -> None:
    x, weight, bias, options = case
    with mock.patch.multiple(windows, BLOCK_BYTES=limit, WIDE=wide):
        found = tc.jit(lambda *args: tc.conv2d(*args, **options))(
            x, weight, *([] if bias is None else [bias])
        )
    expected = defined(*case)
    rounding = 64 * np.finfo(x.dtype).eps * max(1.0, abs(expected).max())
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=rounding)


@settings(max_examples=examples(40))
@given(
    case=convolutions(),
    limit=st.integers(1, 4000),
    wide=st.sampled_from([1, 12, 128]),
)
def test_conv2d_gradients_equal_adjoints_of_definition(case: Any, limit: int, wide: int) -> None:
    x, weight, bias, options = case
    bias = np.zeros(len(weight)) if bias is None else bias
    g = R.normal(size=defined(*case).shape)
    with mock.patch.multiple(windows, BLOCK_BYTES=limit, WIDE=wide):
        gradients = tc.grad(
            lambda x, weight, bias: tc.sum(tc.conv2d(x, weight, bias, **options) * g),
            wrt=(0, 1, 2),
        )(x, weight, bias)
    for position, operand in enumerate((x, weight)):
        other: list[Any] = [x, weight]
        other[position] = R.normal(size=operand.shape)
        slope = (defined(*other, None, options) * g).sum()
        assert (gradients[position] * other[position]).sum() == pytest.approx(slope, abs=1e-10)
    np.testing.assert_allclose(gradients[2], g.sum((0, 2, 3)), atol=1e-12)


def test_recomputed_convolution_is_bitwise_equal() -> None:
    x, weight = normal(3, 12, 40, 40), normal(15, 12, 3, 3)

    def loss(x: Any, weight: Any) -> Any:
        return tc.sum(tc.tanh(tc.conv2d(tc.tanh(tc.conv2d(x, weight[:12])), weight)))

    results = [
        tc.value_and_grad(loss, policy, wrt=(0, 1))(x, weight)
        for policy in ("store_all", "recompute_all", "sqrt_n")
    ]
    for value, gradients in results[1:]:
        assert value == results[0][0]
        assert all(map(np.array_equal, gradients, results[0][1]))


# Bytes and FLOPs ----------------------------------------------------------------------------------

# Arrays of more than 1 MB, and columns of more than a block: (images, channels, height, width),
# (filters, kernel height, kernel width), options.
SIZES: dict[str, tuple[tuple[int, ...], tuple[int, int, int], dict[str, Any]]] = {
    "several images a block": ((48, 32, 28, 28), (32, 3, 3), {"padding": 1}),
    "thousands of small images": ((4000, 1, 14, 14), (6, 5, 5), {"padding": 2}),
    "one image a block": ((3, 64, 64, 64), (48, 3, 3), {"padding": 1}),
    "rows of an image": ((1, 16, 200, 200), (24, 5, 3), {"padding": (2, 1)}),
    "a row of an image": ((1, 64, 40, 2200), (8, 4, 4), {}),
    "strides, dilation, groups": (
        (12, 32, 80, 80), (32, 3, 3), {"stride": (2, 1), "dilation": 2, "groups": 4},
    ),
    "single pixels": ((16, 48, 40, 40), (64, 1, 1), {}),
    "single pixels, apart": ((16, 48, 80, 80), (64, 1, 1), {"stride": 2}),
    "depthwise": ((16, 64, 40, 40), (64, 3, 3), {"padding": 1, "groups": 64}),
    "a weight of megabytes": ((64, 320, 4, 4), (320, 3, 3), {"padding": 1}),
    "images of one pixel": ((512, 640, 1, 1), (640, 3, 3), {"padding": 1}),
    "columns beyond the padding": ((256, 96, 40, 1), (128, 3, 5), {"padding": 2}),
    "a dilated row beyond the padding": (
        (64, 64, 2, 40), (64, 5, 3), {"padding": (6, 1), "dilation": (3, 1)},
    ),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SIZES)
def test_declared_workspace_equals_traced_allocations(name: str, dtype: str) -> None:
    shape, (filters, *kernel), options = SIZES[name]
    depth = shape[1] // options.get("groups", 1)
    x, weight = R.normal(size=shape).astype(dtype), normal(filters, depth, *kernel).astype(dtype)
    bias = np.zeros(filters, dtype)
    operators = check_workspace(lambda *args: tc.conv2d(*args, **options), x, weight, bias)
    (forward,) = (operator for operator in operators if operator.kind == "conv2d")
    assert (forward.workspace == 0) == (name == "single pixels")
    if name != "a row of an image":  # of which the columns take more than a block
        assert forward.workspace <= windows.BLOCK_BYTES + weight.nbytes


def test_taps_that_see_only_padding_are_skipped() -> None:
    assert windows.trim_kernel((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1)) == (
        (slice(1, 2), slice(1, 2)), (1, 1), (0, 0),
    )  # fmt: skip
    assert windows.trim_kernel((3, 5), (4, 1), (4, 2), (1, 2), (1, 2), (1, 1)) == (
        (slice(0, 3), slice(2, 4)), (3, 2), (1, 0),
    )  # fmt: skip
    assert windows.trim_kernel((2, 1), (1, 1), (1, 1), (3, 3), (4, 0), (5, 1))[0][0] == slice(0, 1)
    x, weight = normal(4, 6, 1, 1), normal(5, 6, 3, 3)
    graph = tc.differentiate(tc.build(lambda *args: tc.sum(tc.conv2d(*args, padding=1)), x, weight))
    run = tc.run(tc.plan(graph), x, weight)
    weight[:, :, 0] = weight[:, :, 2] = np.nan
    again = tc.run(tc.plan(graph), x, weight)
    assert again.value == run.value
    assert np.array_equal(again.gradients, run.gradients)


@pytest.mark.long
def test_float16_workspace_counts_float32_sums() -> None:
    x, weight = 0.01 * normal(40, 16, 28, 28), normal(256, 64, 3, 3)
    x, weight = np.tile(x, (1, 4, 1, 1)).astype("float16"), weight.astype("float16")
    graph = tc.differentiate(
        tc.build(lambda *args: tc.sum(tc.conv2d(*args, padding=1)) * 0.0, x, weight), (0, 1)
    )
    for operator, held, peak in evaluated(graph, x, weight):
        if operator.kind.startswith("conv2d"):
            assert peak == pytest.approx(held + operator.workspace, abs=BUFFERS)


@settings(max_examples=examples(100))
@given(
    images=st.integers(1, 40),
    rows=st.integers(1, 40),
    row_bytes=st.integers(1, 100),
    most=st.integers(1, 40),
    limit=st.integers(1, 3000),
    besides=st.integers(0, 200),
)
def test_blocks_partition_images_and_rows_within_byte_limit(
    images: int, rows: int, row_bytes: int, most: int, limit: int, besides: int
) -> None:
    seen = np.zeros((images, rows), int)
    with mock.patch.object(windows, "BLOCK_BYTES", limit):
        parts = list(windows.blocks(images, rows, row_bytes, most, besides))
    for part, band, counts in parts:
        assert seen[part, band].shape == counts
        assert math.prod(counts) <= math.prod(parts[0][2])
        seen[part, band] += 1
    assert (seen == 1).all()
    assert math.prod(parts[0][2]) * row_bytes <= max(limit - besides, row_bytes)
    assert parts[0][2][0] <= most


def test_conv2d_flops_are_two_per_multiply_add() -> None:
    def loss(x: Any, weight: Any, bias: Any) -> Any:
        return tc.sum(tc.conv2d(x, weight, bias, stride=2, padding=1, groups=2))

    args = tc.Spec((2, 4, 9, 7)), tc.Spec((6, 2, 3, 3)), tc.Spec(6)
    graph = tc.differentiate(tc.build(loss, *args), (0, 1, 2))
    multiply_adds = 2 * 6 * 5 * 4 * 2 * 3 * 3  # images, filters, rows, columns; then the weight's
    found = {operator.kind: operator.flops for operator in graph.operators}
    assert found["conv2d"] == 2 * multiply_adds + 2 * 6 * 5 * 4
    assert found["conv2d_input_vjp"] == found["conv2d_weight_vjp"] == 2 * multiply_adds


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shapes", "options", "match"),
    [
        ([(3, 8, 8), (4, 3, 3, 3)], {}, r"x must have 4 axes .* got float64\[3,8,8\]"),
        ([(0, 3, 8, 8), (4, 3, 3, 3)], {}, r"x has no images: it is float64\[0,3,8,8\]; expected"),
        ([(2, 3, 8, 0), (4, 3, 3, 3)], {"padding": 4}, "x has no columns"),
        ([(2, 3, 8, 8), (4, 3, 3)], {}, "weight must have 4 axes"),
        ([(2, 3, 8, 8), (4, 3, 0, 3)], {}, "weight must have 4 axes .* none of them empty"),
        ([(2, 3, 8, 8), (4, 2, 3, 3)], {}, "has 3 channels, but weight .* in 1 groups takes 2"),
        ([(2, 4, 8, 8), (4, 1, 3, 3)], {"groups": 3}, "divide 4 channels; expected one of 1, 2, 4"),
        ([(2, 4, 8, 8), (3, 1, 3, 3)], {"groups": 4}, "divide 3 filters; expected one of 1, 3"),
        ([(2, 4, 8, 8), (3, 1, 3, 3)], {"groups": 0}, "groups=0 must be an integer of at least 1"),
        ([(2, 4, 8, 8), (3, 1, 3, 3)], {"groups": 1.0}, "groups=1.0 must be an integer"),
        ([(2, 3, 2, 8), (4, 3, 3, 3)], {}, "a kernel of 3 by 3 .* at most 2 by 8"),
        ([(2, 3, 8, 8), (4, 3, 3, 3)], {"dilation": (1, 4)}, "reaches over 3 by 9 pixels"),
        ([(2, 3, 8, 8), (4, 3, 3, 3)], {"stride": 0}, r"stride=\(0, 0\) must be at least 1"),
        ([(2, 3, 8, 8), (4, 3, 3, 3)], {"dilation": (1, 0)}, r"dilation=\(1, 0\) must be at least"),
        ([(2, 3, 8, 8), (4, 3, 3, 3)], {"padding": -1}, r"padding=\(-1, -1\) must be at least 0"),
        ([(2, 3, 8, 8), (4, 3, 3, 3)], {"padding": "same"}, "padding='same': give an integer, or"),
        ([(2, 3, 8, 8), (4, 3, 3, 3)], {"stride": (1, 2, 3)}, "give an integer, or a pair"),
        ([(2, 3, 8, 8), (4, 3, 3, 3)], {"stride": True}, "stride=True: give an integer"),
        ([(2, 3, 8, 8), (4, 3, 3, 3), (3,)], {}, r"bias must be float64\[4\], one number per"),
    ],
)
def test_invalid_shapes_and_options_raise(shapes: Any, options: Any, match: str) -> None:
    with pytest.raises(tc.GraphError, match=f"conv2d: .*{match}"):
        tc.build(lambda *args: tc.conv2d(*args, **options), *map(tc.Spec, shapes))


def test_mixed_dtypes_raise() -> None:
    x, weight = tc.Spec((1, 1, 3, 3), "float32"), tc.Spec((1, 1, 2, 2))
    with pytest.raises(tc.GraphError, match=r"conv2d: needs one dtype, got float32.*float64"):
        tc.build(tc.conv2d, x, weight)
    with pytest.raises(tc.GraphError, match="conv2d: needs floating-point arrays"):
        tc.build(tc.conv2d, tc.Spec((1, 1, 3, 3), "int64"), weight)
