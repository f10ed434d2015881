"""Max pooling and average pooling over windows of images.

Values have the layout NCHW: images, channels, rows, columns. Max pooling has a second output, the
position of the maximum within its window, in one byte: all that its derivative reads. (PyTorch's
are positions within the image, as int64: 8 bytes for every 4 of y.) Where several elements attain
the maximum, the first gets the cotangent.
"""

from __future__ import annotations

import math
from typing import Any

from tinyckpt.base.dtypes import wide
from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive, zero
from tinyckpt.core.tracing import Var, apply, apply_all, as_var
from tinyckpt.ops import kernels_pooling as kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.eager import eager
from tinyckpt.ops.reduce import mean
from tinyckpt.ops.sliding_windows import Pair, pair, pool_blocks, require_images, window_counts

MAX_WINDOW_POSITIONS = 256  # positions that an index of one byte distinguishes

# Shape inference ----------------------------------------------------------------------------------


def pooled(x: Spec, kernel: Pair, stride: Pair, padding: Pair) -> Spec:
    """Return the spec of a pooling's result, or raise a GraphError."""
    infer.require_float(x)
    require_images(x, "x")
    counts = window_counts(x.shape[2:], kernel, stride, padding)
    if 2 * padding[0] > kernel[0] or 2 * padding[1] > kernel[1]:
        raise GraphError(
            f"padding={padding} is more than half of the kernel {kernel}, so that a window could "
            f"lie entirely in the padding; expected at most {(kernel[0] // 2, kernel[1] // 2)}"
        )
    return Spec((*x.shape[:2], *counts), x.dtype)


def infer_max_pool(x: Spec, kernel: Pair, stride: Pair, padding: Pair) -> tuple[Spec, ...]:
    y = pooled(x, kernel, stride, padding)
    if math.prod(kernel) > MAX_WINDOW_POSITIONS:
        raise GraphError(
            f"kernel={kernel} has {math.prod(kernel)} positions; at most "
            f"{MAX_WINDOW_POSITIONS}, for an index to fit a byte"
        )
    return y, Spec(y.shape, "uint8")


def infer_max_pool_vjp(
    indices: Spec, g: Spec, shape: tuple[int, ...], **attrs: Any
) -> tuple[Spec, ...]:
    x = Spec(shape, g.dtype)
    require_like((g, indices), infer_max_pool(x, **attrs))
    return (x,)


def infer_max_pool_take(indices: Spec, x: Spec, **attrs: Any) -> tuple[Spec, ...]:
    y, expected = infer_max_pool(x, **attrs)
    require_like((indices,), (expected,))
    return (y,)


def infer_avg_pool_vjp(
    g: Spec, shape: tuple[int, ...], count_include_pad: bool, **attrs: Any
) -> tuple[Spec, ...]:
    x = Spec(shape, g.dtype)
    require_like((g,), (pooled(x, **attrs),))
    return (x,)


def require_like(found: tuple[Spec, ...], wanted: tuple[Spec, ...]) -> None:
    """Raise a GraphError unless the specs are those of a pooling's results."""
    if found != wanted:
        raise GraphError(
            f"expected the specs of the pooling's results, {infer.format_specs(wanted)}, got "
            f"{infer.format_specs(found)}"
        )


# Workspace ----------------------------------------------------------------------------------------


def block_size(x_shape: tuple[int, ...], y: Spec) -> int:
    """Count the windows of the largest block, over all channels."""
    return math.prod(next(pool_blocks(x_shape, y.shape, y.dtype.itemsize))[2])


def mean_bytes(x_shape: tuple[int, ...], y: Spec, count_include_pad: bool) -> int:
    """Return the bytes of a block's sums, and of the window sizes where these differ."""
    *_, rows, columns = next(pool_blocks(x_shape, y.shape, y.dtype.itemsize))[2]
    sizes = 0 if count_include_pad else rows * columns
    return wide(y.dtype).itemsize * (block_size(x_shape, y) + sizes)


# The primitives -----------------------------------------------------------------------------------

MAX_POOL = Primitive(
    "max_pool",  # x -> (y, indices); indices are what the vjp reads
    kernels.max_pool, infer_max_pool, contiguous=True,
    vjp=(
        lambda ct, ins, outs, **attrs: apply(
            MAX_POOL_VJP, outs[1], ct[0], shape=ins[0].shape, **attrs
        ),
    ),
    flops=lambda inputs, outputs, kernel, **attrs: (math.prod(kernel) - 1) * outputs[0].size,
    # Two booleans per window: whether its maximum changes, and whether to NaN.
    workspace=lambda inputs, outputs, **attrs: 2 * block_size(inputs[0].shape, outputs[0]),
)  # fmt: skip
MAX_POOL_VJP: Primitive = Primitive(
    "max_pool_vjp",  # (indices, g) -> g at the positions of the maxima, 0 elsewhere
    kernels.max_pool_vjp, infer_max_pool_vjp, contiguous=True,
    vjp=(
        zero,
        lambda ct, ins, outs, shape, **attrs: apply(MAX_POOL_TAKE, ins[0], ct[0], **attrs),
    ),
    flops=lambda inputs, outputs, **attrs: inputs[1].size,
    # Per window a boolean and its contribution to a pixel.
    workspace=lambda inputs, outputs, shape, **attrs: (
        (1 + inputs[1].dtype.itemsize) * block_size(shape, inputs[1])
    ),
)  # fmt: skip
MAX_POOL_TAKE: Primitive = Primitive(
    "max_pool_take",  # (indices, x) -> the elements of x at the positions of the maxima
    kernels.max_pool_take, infer_max_pool_take, contiguous=True,
    vjp=(
        zero,
        lambda ct, ins, outs, **attrs: apply(
            MAX_POOL_VJP, ins[0], ct[0], shape=ins[1].shape, **attrs
        ),
    ),
    workspace=lambda inputs, outputs, **attrs: block_size(inputs[1].shape, outputs[0]),
)  # fmt: skip
AVG_POOL: Primitive = Primitive(
    "avg_pool",  # x -> y
    kernels.avg_pool, lambda x, count_include_pad, **attrs: (pooled(x, **attrs),), contiguous=True,
    vjp=(
        lambda ct, ins, outs, **attrs: apply(AVG_POOL_VJP, ct[0], shape=ins[0].shape, **attrs),
    ),
    # One addition per tap of the window but the first, and one division.
    flops=lambda inputs, outputs, kernel, **attrs: math.prod(kernel) * outputs[0].size,
    workspace=lambda inputs, outputs, count_include_pad, **attrs: mean_bytes(
        inputs[0].shape, outputs[0], count_include_pad
    ),
)  # fmt: skip
AVG_POOL_VJP: Primitive = Primitive(
    "avg_pool_vjp",  # g -> the cotangent of x
    kernels.avg_pool_vjp, infer_avg_pool_vjp, contiguous=True,
    vjp=(lambda ct, ins, outs, shape, **attrs: apply(AVG_POOL, ct[0], **attrs),),
    # One division per window, and one addition per tap.
    flops=lambda inputs, outputs, kernel, **attrs: (math.prod(kernel) + 1) * inputs[0].size,
    workspace=lambda inputs, outputs, shape, count_include_pad, **attrs: mean_bytes(
        shape, inputs[0], count_include_pad
    ),
)  # fmt: skip

# The functions ------------------------------------------------------------------------------------


def pool_attrs(what: str, kernel: Any, stride: Any, padding: Any) -> dict[str, Pair]:
    """Return the sizes of a pooling as pairs; without a stride, windows do not overlap."""
    return {
        "kernel": pair(kernel, "kernel", what),
        "stride": pair(kernel if stride is None else stride, "stride", what),
        "padding": pair(padding, "padding", what),
    }


@eager
def max_pool2d(
    x: Any, kernel: int | Pair, *, stride: int | Pair | None = None, padding: int | Pair = 0
) -> Var:
    """Two-dimensional max pooling: the maximum of every window.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.max_pool2d(x, 2))(np.arange(16.0).reshape(1, 1, 4, 4))
    array([[[[ 5.,  7.],
             [13., 15.]]]])

    Args:
        x: shape (N, C, H, W).
        kernel: the window's size; one number, or (height, width), as the next. At most 256 pixels.
        stride: pixels from one window to the next; the window's own size by default.
        padding: pixels on each side that count as minus infinity; at most half of the kernel.

    Returns:
        Shape (N, C, H', W') with H' = (H + 2 padding - kernel) // stride + 1. NaN where a window
        has one. The first maximum of a window gets its cotangent.

    Raises:
        GraphError: if the window does not fit, or a size is out of range.
    """
    return apply_all(MAX_POOL, x, **pool_attrs("max_pool2d", kernel, stride, padding))[0]


@eager
def avg_pool2d(
    x: Any,
    kernel: int | Pair,
    *,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    count_include_pad: bool = True,
) -> Var:
    """Two-dimensional average pooling: the mean of every window.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(lambda x: tc.avg_pool2d(x, 2))(np.arange(16.0).reshape(1, 1, 4, 4))
    array([[[[ 2.5,  4.5],
             [10.5, 12.5]]]])

    Args:
        x: shape (N, C, H, W).
        kernel, stride: as in ``max_pool2d``; the kernel may have any size.
        padding: zeros on each side; at most half of the kernel.
        count_include_pad: whether the mean is over these zeros too, or over pixels alone.

    Returns:
        Shape (N, C, H', W') with H' = (H + 2 padding - kernel) // stride + 1.

    Raises:
        GraphError: if the window does not fit, or a size is out of range.
    """
    attrs = pool_attrs("avg_pool2d", kernel, stride, padding)
    return apply(AVG_POOL, x, **attrs, count_include_pad=bool(count_include_pad))


@eager
def global_avg_pool2d(x: Any) -> Var:
    """Global average pooling: the mean of every channel, shape (N, C) from (N, C, H, W).

    >>> import numpy as np, tinyckpt as tc
    >>> tc.jit(tc.global_avg_pool2d)(np.arange(8.0).reshape(1, 2, 2, 2))
    array([[1.5, 5.5]])

    Raises:
        GraphError: if ``x`` does not have 4 axes, or has no pixels.
    """
    x = as_var(x)
    try:
        require_images(x.spec, "x")
    except GraphError as error:
        raise GraphError(f"global_avg_pool2d: {error}") from None
    return mean(x, (2, 3))
