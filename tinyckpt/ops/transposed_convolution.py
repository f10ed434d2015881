"""Transposed convolution (deconvolution): a convolution's input adjoint as a forward operator.

Its own adjoint is the convolution. Rules and layout are those of ``convolution``.
"""

from __future__ import annotations

from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive
from tinyckpt.core.tracing import Var, apply, as_var
from tinyckpt.ops import kernels_convolution as kernels
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.convolution import (
    bias_flops,
    contiguous_conv2d,
    conv_flops,
    crop_windows_like,
    input_vjp_bytes,
    require_bias,
    require_groups,
    require_weight,
    vjp_bias,
    weight_cotangent,
)
from tinyckpt.ops.eager import eager
from tinyckpt.ops.indexing import contiguous, contiguous_once
from tinyckpt.ops.sliding_windows import Pair, pair, require_images, transposed_counts


def infer_conv_transpose2d(
    x: Spec,
    weight: Spec,
    *bias: Spec,
    stride: Pair,
    padding: Pair,
    output_padding: Pair,
    dilation: Pair,
    groups: int,
) -> tuple[Spec, ...]:
    infer.require_float(x, weight, *bias)
    infer.require_same_dtype(x, weight, *bias)
    require_images(x, "x")
    require_weight(weight, "channels, filters / groups, height, width")
    channels, share, height, width = weight.shape
    require_groups(groups, channels=channels)
    if x.shape[1] != channels:
        raise GraphError(f"x {x} has {x.shape[1]} channels, but weight {weight} takes {channels}")
    require_bias(bias, share * groups, x.dtype)
    extents = transposed_counts(
        x.shape[2:], (height, width), stride, padding, output_padding, dilation
    )
    return (Spec((x.shape[0], share * groups, *extents), x.dtype),)


CONV_TRANSPOSE2D = Primitive(
    "conv_transpose2d",  # (x, weight[, bias]) -> y
    kernels.conv_transpose2d, infer_conv_transpose2d, contiguous=True,
    vjp=(
        lambda ct, ins, outs, output_padding, **attrs: crop_windows_like(
            contiguous_conv2d(contiguous_once(ct[0]), ins[1], attrs), ins[0]
        ),
        lambda ct, ins, outs, output_padding, **attrs: weight_cotangent(
            contiguous_once(ct[0]), ins[0], ins[1].shape, attrs
        ),
        vjp_bias,
    ),
    flops=lambda inputs, outputs, **attrs: (
        conv_flops(inputs[0], inputs[1]) + bias_flops(inputs, outputs)
    ),
    workspace=lambda inputs, outputs, output_padding, **attrs: input_vjp_bytes(
        outputs[0], inputs[1], inputs[0], **attrs
    ),
)  # fmt: skip


@eager
def conv_transpose2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: int | Pair = 1,
    padding: int | Pair = 0,
    output_padding: int | Pair = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> Var:
    """Transposed convolution (deconvolution): the adjoint of ``conv2d`` with this weight.

    Each element of ``x``, times the weight, is added to the result at the position of its window.

    >>> import numpy as np, tinyckpt as tc
    >>> x, weight = np.array([[[[1.0, 2.0]]]]), np.array([[[[1.0, 10.0]]]])
    >>> tc.jit(tc.conv_transpose2d)(x, weight)
    array([[[[ 1., 12., 20.]]]])

    Args:
        x: shape (N, Cin, H, W).
        weight: shape (Cin, Cout / groups, kh, kw).
        bias: None, or one number per channel of the result: shape (Cout,).
        stride: distance from one window to the next, in the result; one number, or (height, width),
            as the next.
        padding: pixels cropped from the result on each side.
        output_padding: pixels added to its end, less than the stride or the dilation: it selects
            among the image sizes that a convolution maps to the same size.
        dilation, groups: as in ``conv2d``.

    Returns:
        Shape (N, Cout, H', W') with
        H' = (H - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1.

    Raises:
        GraphError: if shapes or dtypes do not fit each other, or a size is out of range.
    """
    sizes = {
        "stride": stride,
        "padding": padding,
        "output_padding": output_padding,
        "dilation": dilation,
    }
    attrs = {name: pair(size, name, "conv_transpose2d") for name, size in sizes.items()}
    operands = [contiguous(as_var(operand)) for operand in (x, weight, bias) if operand is not None]
    return apply(CONV_TRANSPOSE2D, *operands, **attrs, groups=groups)
