"""Two-dimensional convolution (cross-correlation) and its adjoints for input and weight.

Values have the layout NCHW: images, channels, rows, columns. A multiply-add is 2 FLOPs, taps in the
padding included, as the papers count. A convolution is bilinear in the image and the weight, so its
two adjoints are again linear in each of their arguments, and the three are each other's
derivatives: with <a, b> the sum of products,

    <conv2d(x, w), g> = <x, conv2d_input_vjp(w, g)> = <w, conv2d_weight_vjp(x, g)>.

Arrays that are not C-contiguous are copied first, by an operator of its own, so that the copy is
planned and counted.

Source: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", arXiv 1603.07285.
"""

from __future__ import annotations

import builtins
import math
from itertools import islice
from typing import Any

from tinyckpt.base.dtypes import wide
from tinyckpt.base.errors import GraphError
from tinyckpt.base.quantities import as_integer
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive
from tinyckpt.core.tracing import Var, apply, as_var
from tinyckpt.ops import kernels_convolution as kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops import sliding_windows as windows
from tinyckpt.ops.eager import eager
from tinyckpt.ops.indexing import contiguous, contiguous_once
from tinyckpt.ops.reduce import sum
from tinyckpt.ops.shape import index
from tinyckpt.ops.sliding_windows import Pair, pair, require_images, window_counts

ALL_BUT_CHANNELS = (0, 2, 3)

# Shape inference ----------------------------------------------------------------------------------


def require_weight(weight: Spec, axes: str) -> None:
    """Raise a GraphError unless the spec is a valid weight."""
    if len(weight.shape) != 4 or 0 in weight.shape:
        raise GraphError(f"weight must have 4 axes ({axes}), none of them empty, got {weight}")


def require_bias(bias: tuple[Spec, ...], channels: int, dtype: Any) -> None:
    """Raise a GraphError unless there is no bias, or one number per channel."""
    wanted = Spec(channels, dtype)
    if bias and bias[0] != wanted:
        raise GraphError(f"bias must be {wanted}, one number per channel, got {bias[0]}")


def require_groups(groups: Any, **counts: int) -> None:
    """Raise a GraphError unless the groups divide the counts."""
    number = as_integer(groups)
    if number is None or number < 1:
        raise GraphError(f"groups={groups!r} must be an integer of at least 1")
    for name, count in counts.items():
        if count % number:
            legal = [str(part) for part in range(1, count + 1) if count % part == 0]
            raise GraphError(
                f"groups={groups} do not divide {count} {name}; expected one of {', '.join(legal)}"
            )


def infer_conv2d(
    x: Spec, weight: Spec, *bias: Spec, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> tuple[Spec, ...]:
    infer.require_float(x, weight, *bias)
    infer.require_same_dtype(x, weight, *bias)
    require_images(x, "x")
    require_weight(weight, "filters, channels / groups, height, width")
    filters, depth, height, width = weight.shape
    require_groups(groups, channels=x.shape[1], filters=filters)
    if x.shape[1] != depth * groups:
        raise GraphError(
            f"x {x} has {x.shape[1]} channels, but weight {weight} in {groups} groups takes "
            f"{depth * groups}"
        )
    require_bias(bias, filters, x.dtype)
    counts = window_counts(x.shape[2:], (height, width), stride, padding, dilation)
    return (Spec((x.shape[0], filters, *counts), x.dtype),)


def infer_conv2d_input_vjp(weight: Spec, g: Spec, shape: Any, **attrs: Any) -> tuple[Spec, ...]:
    infer.require_same_dtype(weight, g)
    x = Spec(shape, g.dtype)
    require_conv_cotangent(g, infer_conv2d(x, weight, **attrs)[0])
    return (x,)


def infer_conv2d_weight_vjp(x: Spec, g: Spec, shape: Any, **attrs: Any) -> tuple[Spec, ...]:
    weight = Spec(shape, x.dtype)
    require_conv_cotangent(g, infer_conv2d(x, weight, **attrs)[0])
    return (weight,)


def require_conv_cotangent(g: Spec, y: Spec) -> None:
    """Raise a GraphError unless g matches the convolution's result, or its first windows."""
    same = g.dtype == y.dtype and len(g.shape) == 4 and g.shape[:2] == y.shape[:2]
    if not same or not (1 <= g.shape[2] <= y.shape[2] and 1 <= g.shape[3] <= y.shape[3]):
        raise GraphError(
            f"the cotangent must match the convolution's result, {y}, or its first rows and "
            f"columns, got {g}"
        )


# FLOPs and workspace ------------------------------------------------------------------------------


def conv_flops(y: Spec, weight: Spec) -> int:
    """Count 2 N H W Cout (Cin / groups) kh kw FLOPs, with y's H and W; the adjoints take as many.

    At each of the N H W positions of a convolution's result, every element of the weight is used
    once.
    """
    return 2 * y.shape[0] * math.prod(y.shape[2:]) * weight.size


def bias_flops(inputs: Any, outputs: Any) -> int:
    """Count one addition per element of the output, if there is a bias."""
    return int(outputs[0].size) if len(inputs) == 3 else 0


def block_bytes(y: Spec, weight: Spec, groups: int, count: int = 1, apart: int = 0) -> int:
    """Return the bytes of a block's columns, and of its sums if they have a buffer."""
    plan = windows.convolution_blocks(y.shape, weight.shape, groups, y.dtype, count, apart)
    _, _, _, *shapes = next(plan)
    return wide(y.dtype).itemsize * builtins.sum(math.prod(shape) for shape in shapes)


def trimmed_weight(
    weight: Spec, x: Spec, y: Spec, stride: Pair, padding: Pair, dilation: Pair
) -> tuple[Spec, Pair]:
    """Trim a weight to the taps that meet pixels; return its spec, and the padding of that part."""
    kernel = weight.shape[2], weight.shape[3]
    counts, image = (y.shape[2], y.shape[3]), (x.shape[2], x.shape[3])
    _, extents, margin = windows.trim_kernel(kernel, counts, image, stride, padding, dilation)
    return Spec((*weight.shape[:2], *extents), weight.dtype), margin


def sums_bytes(
    y: Spec, weight: Spec, groups: int, stride: Pair, dilation: Pair, copied: bool
) -> int:
    """Return the workspace of a convolution by blocks, in bytes.

    A block; a product, if several are summed; and the weight, if it is rearranged or of another
    dtype than the sums.
    """
    count, apart = windows.row_products(y.shape, weight.shape, stride, dilation, y.dtype)
    rows = next(windows.convolution_blocks(y.shape, weight.shape, groups, y.dtype, count, apart))[1]
    further = y.shape[1] * (rows.stop - rows.start) * y.shape[3] if count > 1 else 0
    return (
        block_bytes(y, weight, groups, count, apart)
        + wide(y.dtype).itemsize * further
        + matrix_bytes(weight, copied or count > 1)
    )


def convolution_bytes(
    x: Spec, weight: Spec, y: Spec, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> int:
    """Return the workspace of a convolution, in bytes."""
    part, margin = trimmed_weight(weight, x, y, stride, padding, dilation)
    copied = part != weight
    if windows.is_pointwise(x.shape, part.shape[2:], y.shape, stride, margin, y.dtype):
        return matrix_bytes(part, copied)
    return sums_bytes(y, part, groups, stride, dilation, copied)


def input_vjp_bytes(
    x: Spec, weight: Spec, y: Spec, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> int:
    """Return the workspace of a convolution's adjoint with respect to the image, in bytes.

    If that is computed as a convolution, its weight is the flipped one, which is always a copy.
    """
    part, margin = trimmed_weight(weight, x, y, stride, padding, dilation)
    copied = part != weight
    if windows.is_pointwise(x.shape, part.shape[2:], y.shape, stride, margin, y.dtype):
        return matrix_bytes(part, copied)
    if windows.is_gathered(y.shape, part.shape, stride, groups):
        filters, depth, *kernel = part.shape
        turned = Spec((groups * depth, filters // groups, *kernel), weight.dtype)
        return sums_bytes(x, turned, groups, stride, dilation, True)
    return block_bytes(y, part, groups) + matrix_bytes(part, copied)


def weight_vjp_bytes(
    x: Spec, weight: Spec, y: Spec, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> int:
    """Return the workspace of a convolution's adjoint with respect to the weight, in bytes.

    A block; a block's contribution to a matrix, if there are several blocks; and all matrices, if
    the weight is another arrangement or dtype of them.
    """
    part, _ = trimmed_weight(weight, x, y, stride, padding, dilation)
    count, apart = windows.row_products(y.shape, part.shape, stride, dilation, y.dtype)
    plan = windows.convolution_blocks(y.shape, part.shape, groups, y.dtype, count, apart)
    several = len(list(islice(plan, 2))) > 1
    return (
        block_bytes(y, part, groups, count, apart)
        + (working_bytes(part) // count if several else 0)
        + matrix_bytes(part, count > 1 or part != weight)
    )


def working_bytes(weight: Spec) -> int:
    """Return the bytes of a weight in the dtype of the sums."""
    return wide(weight.dtype).itemsize * weight.size


def matrix_bytes(weight: Spec, copied: bool) -> int:
    """Return the bytes of a weight in the dtype of the sums: 0 if it is neither copied nor cast."""
    return working_bytes(weight) if copied or working_bytes(weight) > weight.nbytes else 0


# The primitives -----------------------------------------------------------------------------------


def vjp_input(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var:
    return input_cotangent(ins[1], contiguous_once(ct[0]), ins[0].shape, attrs)


def vjp_weight(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var:
    return weight_cotangent(ins[0], contiguous_once(ct[0]), ins[1].shape, attrs)


def vjp_bias(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var:
    return sum(ct[0], ALL_BUT_CHANNELS)


CONV2D = Primitive(
    "conv2d",  # (x, weight[, bias]) -> y
    kernels.conv2d, infer_conv2d, contiguous=True,
    vjp=(vjp_input, vjp_weight, vjp_bias),
    flops=lambda inputs, outputs, **attrs: (
        conv_flops(outputs[0], inputs[1]) + bias_flops(inputs, outputs)
    ),
    workspace=lambda inputs, outputs, **attrs: convolution_bytes(
        inputs[0], inputs[1], outputs[0], **attrs
    ),
)  # fmt: skip
CONV2D_INPUT_VJP = Primitive(
    "conv2d_input_vjp",  # (weight, g) -> the cotangent of x
    kernels.conv2d_input_vjp, infer_conv2d_input_vjp, contiguous=True,
    vjp=(
        lambda ct, ins, outs, shape, **attrs: weight_cotangent(ct[0], ins[1], ins[0].shape, attrs),
        lambda ct, ins, outs, shape, **attrs: crop_windows_like(
            contiguous_conv2d(ct[0], ins[0], attrs), ins[1]
        ),
    ),
    flops=lambda inputs, outputs, **attrs: conv_flops(inputs[1], inputs[0]),
    workspace=lambda inputs, outputs, shape, **attrs: input_vjp_bytes(
        outputs[0], inputs[0], inputs[1], **attrs
    ),
)  # fmt: skip
CONV2D_WEIGHT_VJP = Primitive(
    "conv2d_weight_vjp",  # (x, g) -> the cotangent of weight
    kernels.conv2d_weight_vjp, infer_conv2d_weight_vjp, contiguous=True,
    vjp=(
        lambda ct, ins, outs, shape, **attrs: input_cotangent(ct[0], ins[1], ins[0].shape, attrs),
        lambda ct, ins, outs, shape, **attrs: crop_windows_like(
            contiguous_conv2d(ins[0], ct[0], attrs), ins[1]
        ),
    ),
    flops=lambda inputs, outputs, **attrs: conv_flops(inputs[1], outputs[0]),
    workspace=lambda inputs, outputs, shape, **attrs: weight_vjp_bytes(
        inputs[0], outputs[0], inputs[1], **attrs
    ),
)  # fmt: skip


def contiguous_conv2d(x: Var, weight: Var, attrs: Any, *bias: Var) -> Var:
    """Convolve arrays, after copying those that are not C-contiguous."""
    return apply(CONV2D, *map(contiguous, (x, weight, *bias)), **attrs)


def crop_windows_like(y: Var, like: Var) -> Var:
    """Return the leading rows and columns of windows, as many as another value has.

    They are all of them, except for a transposed convolution with more output padding than a
    stride: a convolution of its result has windows at the end that it did not have.
    """
    if y.shape == like.shape:
        return y
    return index(y, (..., slice(0, like.shape[2]), slice(0, like.shape[3])))


def input_cotangent(weight: Var, g: Var, shape: tuple[int, ...], attrs: Any) -> Var:
    """Return the cotangent of a convolution's image."""
    return apply(CONV2D_INPUT_VJP, contiguous(weight), contiguous(g), shape=shape, **attrs)


def weight_cotangent(x: Var, g: Var, shape: tuple[int, ...], attrs: Any) -> Var:
    """Return the cotangent of a convolution's weight."""
    return apply(CONV2D_WEIGHT_VJP, contiguous(x), contiguous(g), shape=shape, **attrs)


# The functions ------------------------------------------------------------------------------------


@eager
def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: int | Pair = 1,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> Var:
    """Two-dimensional convolution of images with a weight: the cross-correlation, as in PyTorch.

    >>> import numpy as np, tinyckpt as tc
    >>> image, edges = np.arange(9.0).reshape(1, 1, 3, 3), np.array([[[[-1.0, 1.0]]]])
    >>> tc.jit(tc.conv2d)(image, edges)
    array([[[[1., 1.],
             [1., 1.],
             [1., 1.]]]])

    Args:
        x: shape (N, Cin, H, W).
        weight: shape (Cout, Cin / groups, kh, kw).
        bias: None, or one number per channel of the result: shape (Cout,).
        stride: pixels from one window to the next; one number, or (height, width), as the next.
        padding: zeros on each side.
        dilation: pixels from one tap of the kernel to the next.
        groups: independent parts of the channels; with Cin of them the convolution is depthwise.

    Returns:
        Shape (N, Cout, H', W') with H' = (H + 2 padding - dilation (kh - 1) - 1) // stride + 1.

    Raises:
        GraphError: if shapes or dtypes do not fit each other, or a size is out of range.
    """
    sizes = {"stride": stride, "padding": padding, "dilation": dilation}
    attrs = {name: pair(size, name, "conv2d") for name, size in sizes.items()}
    operands = [as_var(operand) for operand in (x, weight, bias) if operand is not None]
    return contiguous_conv2d(operands[0], operands[1], {**attrs, "groups": groups}, *operands[2:])
