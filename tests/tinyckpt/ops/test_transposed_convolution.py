"""Transposed convolutions against a naive definition; workspace, and errors."""

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
from tests.tinyckpt.ops.test_convolution import attributes, both, normal
from tinyckpt.ops import sliding_windows as windows

# name -> (function, arguments): collected in cases.py, for the checks of every primitive.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "conv_transpose2d": (tc.conv_transpose2d, (normal(2, 2, 2, 3), normal(2, 3, 2, 2), normal(3))),
    "conv_transpose2d with all options": (
        lambda x, w: tc.conv_transpose2d(
            x, w, stride=(2, 1), padding=1, output_padding=(1, 0), dilation=(1, 2), groups=2
        ),
        (normal(2, 4, 2, 2), normal(4, 1, 3, 2)),
    ),
    "conv_transpose2d with rows that no window reaches": (
        lambda x, w, b: tc.conv_transpose2d(x, w, b, padding=1, dilation=3, output_padding=2) ** 2,
        (normal(1, 2, 2, 3), normal(2, 1, 2, 1), normal(1)),
    ),
    "conv_transpose2d of single pixels": (
        tc.conv_transpose2d,
        (normal(2, 2, 2, 3), normal(2, 3, 1, 1)),
    ),
}


@st.composite
def transposed_convolutions(draw: Any, dtypes: tuple[str, ...] = ("float64",)) -> tuple[Any, ...]:
    """Draw (x, weight, bias or None, options)."""
    kernel = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    image = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    options = {**attributes(draw, 3), "padding": (0, 0), "output_padding": (0, 0)}
    for axis in (0, 1):
        stride, dilation = both(options["stride"])[axis], both(options["dilation"])[axis]
        extra = draw(st.integers(0, max(stride, dilation) - 1))
        most = ((image[axis] - 1) * stride + dilation * (kernel[axis] - 1) + extra) // 2
        sides = draw(st.integers(0, min(most, 3))), extra
        for name, size in zip(("padding", "output_padding"), sides, strict=True):
            options[name] = (size, options[name][1]) if axis == 0 else (options[name][0], size)
    depth, share, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3)), options["groups"]
    dtype = draw(st.sampled_from(dtypes))
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    shape = draw(st.integers(1, 3)), depth * groups, *image
    x = generator.normal(size=shape).astype(dtype)
    weight = generator.normal(size=(depth * groups, share, *kernel)).astype(dtype)
    bias = generator.normal(size=share * groups).astype(dtype) if draw(st.booleans()) else None
    return x, weight, bias, options


@settings(max_examples=examples(40))
@given(case=transposed_convolutions(("float32", "float64")), limit=st.integers(1, 4000))
def test_conv_transpose2d_equals_definition(case: Any, limit: int) -> None:
    x, weight, bias, options = case
    (sh, sw), (ph, pw), (eh, ew), (dh, dw) = (
        both(options[name]) for name in ("stride", "padding", "output_padding", "dilation")
    )
    channels, share, height, width = weight.shape
    groups = options["groups"]
    rows = (x.shape[2] - 1) * sh + dh * (height - 1) + 1 + eh
    columns = (x.shape[3] - 1) * sw + dw * (width - 1) + 1 + ew
    whole = np.zeros((x.shape[0], share * groups, rows, columns))
    for n, channel, r, c in np.ndindex(*x.shape):
        group = channel // (channels // groups)
        target = whole[n, group * share : (group + 1) * share, r * sh :, c * sw :][:, ::dh, ::dw]
        target[:, :height, :width] += x[n, channel, r, c] * weight[channel]
    expected = whole[:, :, ph : whole.shape[2] - ph, pw : whole.shape[3] - pw]
    with mock.patch.object(windows, "BLOCK_BYTES", limit):
        found = tc.jit(lambda *args: tc.conv_transpose2d(*args, **options))(
            x, weight, *([] if bias is None else [bias])
        )
    expected = expected if bias is None else expected + bias.reshape(-1, 1, 1)
    assert found.dtype == x.dtype
    rounding = 64 * np.finfo(x.dtype).eps * max(1.0, abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=rounding)


@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_conv_transpose2d_workspace_equals_traced_allocations(kernel: int) -> None:
    x, weight = normal(16, 32, 40, 40), normal(32, 16, kernel, kernel)
    stride = 1 if kernel == 1 else 2
    check_workspace(
        lambda *args: tc.conv_transpose2d(*args, stride=stride), x, weight, np.zeros(16)
    )


@pytest.mark.parametrize(
    ("shapes", "options", "match"),
    [
        ([(3, 8, 8), (3, 4, 3, 3)], {}, "x must have 4 axes"),
        ([(0, 3, 8, 8), (3, 4, 3, 3)], {}, "x has no images"),
        ([(2, 3, 8, 8), (4, 3, 3, 3)], {}, "has 3 channels, but weight .* takes 4"),
        ([(2, 3, 8, 8), (3, 4, 3, 3)], {"groups": 2}, "divide 3 channels; expected one of 1, 3"),
        ([(2, 3, 8, 8), (3, 4, 3, 3), (3,)], {}, r"bias must be float64\[4\]"),
        ([(2, 3, 8, 8), (3, 4, 3, 3)], {"stride": 0}, "must be at least 1"),
        ([(2, 3, 1, 8), (3, 4, 3, 3)], {"padding": 2}, "leaves nothing of the 3 pixels .* 0 to 1"),
        (
            [(2, 3, 8, 8), (3, 4, 3, 3)], {"stride": 2, "output_padding": (1, 2)},
            "must be less than the stride .*: expected 0 to 1 on axis 3",
        ),
        ([(2, 3, 8, 8), (3, 4, 3, 3)], {"output_padding": -1}, "expected 0 to 0 on axis 2"),
    ],
)  # fmt: skip
def test_invalid_conv_transpose2d_arguments_raise(shapes: Any, options: Any, match: str) -> None:
    with pytest.raises(tc.GraphError, match=f"conv_transpose2d: .*{match}"):
        tc.build(lambda *args: tc.conv_transpose2d(*args, **options), *map(tc.Spec, shapes))
