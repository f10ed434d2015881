"""The operators of convolutional networks, abstract: sizes, costs and derivatives, no kernels.

They are built and differentiated like any others; then ``abstract`` takes the primitives out of the
graph, which from there on plans, replays and draws, and refuses to execute.

Values have the layout NCHW: batch, channels, height, width. A multiply-add is 2 FLOPs, places in
the padding included, as the papers count. The workspace is 0 bytes: cuDNN's implicit GEMM needs
none, and what its other algorithms take is the caller's choice. Each operator has one backward
operator for every differentiable input, the bias and the shift by a plain ``sum``. There are no
second derivatives, but for those that convolutions have in their own adjoints.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from tinyckpt.errors import BackendError, GraphError
from tinyckpt.graph import Spec, TrainingGraph
from tinyckpt.ops.primitive import Primitive, apply, apply_all, per_element
from tinyckpt.ops.reduce import sum

if TYPE_CHECKING:
    from tinyckpt.var import Var

CHANNELS = (0, 2, 3)  # the axes that a sum for every channel goes over


def no_kernel(xp: Any, *arrays: Any, **attrs: Any) -> NoReturn:
    """Refuse: the forward of every primitive here, until ``abstract`` takes it out of the graph."""
    raise BackendError("it is abstract: it has a size and a cost but no kernel")


def abstract(graph: TrainingGraph) -> TrainingGraph:
    """Return the graph with ``primitive=None`` in operators that have no kernel."""
    operators = tuple(
        replace(operator, primitive=None)
        if operator.primitive is not None and operator.primitive.forward is no_kernel
        else operator
        for operator in graph.operators
    )
    return TrainingGraph(replace(graph, operators=operators))


def windows(extent: int, kernel: int, stride: int, padding: int) -> int:
    """Return at how many places a window fits: the output's height or width."""
    count = (extent + 2 * padding - kernel) // stride + 1
    if count < 1:
        raise GraphError(f"a window of {kernel} does not fit {extent} pixels, padding {padding}")
    return count


def infer_conv2d(
    x: Spec, weight: Spec, *bias: Spec, stride: int, padding: int, groups: int
) -> tuple[Spec, ...]:
    batch, channels, height, width = x.shape
    filters, depth, kernel, _ = weight.shape
    if channels != depth * groups or filters % groups:
        raise GraphError(f"{x} has {channels} channels; {weight} in {groups} groups does not fit")
    extents = (windows(extent, kernel, stride, padding) for extent in (height, width))
    return (Spec((batch, filters, *extents), x.dtype),)


def infer_conv_transpose2d(
    x: Spec, weight: Spec, *bias: Spec, stride: int, padding: int, groups: int
) -> tuple[Spec, ...]:
    batch, channels, height, width = x.shape
    filters, depth, kernel, _ = weight.shape
    if channels != filters:
        raise GraphError(f"{x} has {channels} channels; {weight} takes {filters}")
    extents = ((extent - 1) * stride + kernel - 2 * padding for extent in (height, width))
    return (Spec((batch, depth * groups, *extents), x.dtype),)


def conv_flops(y: Spec, weight: Spec) -> int:
    """Return 2 N H W Cout (Cin / groups) k k, with the H and W of y; the adjoints take as many.

    At each of the N H W places of a convolution's output, every element of the weight is used once.
    """
    return 2 * y.shape[0] * math.prod(y.shape[2:]) * weight.size


def bias_flops(inputs: Any, outputs: Any) -> int:
    """Return one addition an element of the output, if there is a bias."""
    return int(outputs[0].size) if len(inputs) == 3 else 0


def vjp_conv2d_input(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var:
    return apply(CONV2D_INPUT_VJP, ins[1], ct[0], shape=ins[0].shape, **attrs)


def vjp_conv2d_weight(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var:
    return apply(CONV2D_WEIGHT_VJP, ins[0], ct[0], shape=ins[1].shape, **attrs)


def vjp_conv_transpose2d_input(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var:
    return apply(CONV2D, ct[0], ins[1], **attrs)


def vjp_conv_transpose2d_weight(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var:
    return apply(CONV2D_WEIGHT_VJP, ct[0], ins[0], shape=ins[1].shape, **attrs)


def vjp_bias(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var:
    return sum(ct[0], CHANNELS)


CONV2D = Primitive(
    "conv2d",  # (x, weight[, bias]) -> y
    no_kernel,
    infer_conv2d,
    vjp=(vjp_conv2d_input, vjp_conv2d_weight, vjp_bias),
    flops=lambda inputs, outputs, **attrs: (
        conv_flops(outputs[0], inputs[1]) + bias_flops(inputs, outputs)
    ),
    contiguous=True,
)
CONV2D_INPUT_VJP = Primitive(
    "conv2d_input_vjp",  # (weight, g) -> the cotangent of x
    no_kernel,
    lambda weight, g, shape, **attrs: (Spec(shape, g.dtype),),
    flops=lambda inputs, outputs, **attrs: conv_flops(inputs[1], inputs[0]),
    contiguous=True,
)
CONV2D_WEIGHT_VJP = Primitive(
    "conv2d_weight_vjp",  # (x, g) -> the cotangent of weight
    no_kernel,
    lambda x, g, shape, **attrs: (Spec(shape, g.dtype),),
    flops=lambda inputs, outputs, **attrs: conv_flops(inputs[1], outputs[0]),
    contiguous=True,
)
# The adjoint of a convolution as a forward operator; its own adjoint is the convolution.
CONV_TRANSPOSE2D = Primitive(
    "conv_transpose2d",  # (x, weight[, bias]) -> y
    no_kernel,
    infer_conv_transpose2d,
    vjp=(vjp_conv_transpose2d_input, vjp_conv_transpose2d_weight, vjp_bias),
    flops=lambda inputs, outputs, **attrs: (
        conv_flops(inputs[0], inputs[1]) + bias_flops(inputs, outputs)
    ),
    contiguous=True,
)


def infer_batch_norm(x: Spec, scale: Spec, shift: Spec) -> tuple[Spec, ...]:
    statistic = Spec(x.shape[1], x.dtype)
    if scale != statistic or shift != statistic:
        raise GraphError(f"scale {scale} and shift {shift} must be {statistic}, one a channel")
    return x, statistic, statistic


def vjp_batch_norm_input(ct: Any, ins: Any, outs: Any) -> Var:
    (x, scale, _), (_, mean, rstd) = ins, outs
    return apply(BATCH_NORM_INPUT_VJP, x, scale, mean, rstd, ct[0])


def vjp_batch_norm_scale(ct: Any, ins: Any, outs: Any) -> Var:
    return apply(BATCH_NORM_SCALE_VJP, ins[0], outs[1], outs[2], ct[0])


# FLOPs an element, with n = (x - mean) rstd. Forward 8: 1 for the mean, 3 for the variance, 2 for
# n, 2 for scale and shift. Input 9: sum of g 1, n 2, sum of g n 2, scale rstd (g - a - n b) 4.
BATCH_NORM = Primitive(
    "batch_norm",  # (x, scale, shift) -> (y, mean, rstd); mean and rstd are what the vjps read
    no_kernel,
    infer_batch_norm,
    vjp=(vjp_batch_norm_input, vjp_batch_norm_scale, vjp_bias),
    flops=per_element(8),
    contiguous=True,
)
BATCH_NORM_INPUT_VJP = Primitive(
    "batch_norm_input_vjp",  # (x, scale, mean, rstd, g) -> the cotangent of x
    no_kernel,
    lambda x, scale, mean, rstd, g: (x,),
    flops=per_element(9),
    contiguous=True,
)
BATCH_NORM_SCALE_VJP = Primitive(
    "batch_norm_scale_vjp",  # (x, mean, rstd, g) -> the sum of g n for every channel
    no_kernel,
    lambda x, mean, rstd, g: (mean,),
    flops=lambda inputs, outputs: 4 * inputs[0].size,
    contiguous=True,
)


def infer_max_pool(x: Spec, kernel: int, stride: int, padding: int) -> tuple[Spec, ...]:
    if kernel > 16:
        raise GraphError(f"kernel={kernel}; it may be at most 16, for an index to fit a byte")
    extents = (windows(extent, kernel, stride, padding) for extent in x.shape[2:])
    y = Spec((*x.shape[:2], *extents), x.dtype)
    return y, Spec(y.shape, "uint8")


# An index is the place within the window, 0 to kernel^2 - 1: all that the vjp needs, in one byte.
# (PyTorch's are places within the image, as int64: 8 bytes for every 4 of y.)
MAX_POOL = Primitive(
    "max_pool",  # x -> (y, indices); indices are what the vjp reads
    no_kernel,
    infer_max_pool,
    vjp=(
        lambda ct, ins, outs, **attrs: apply(
            MAX_POOL_VJP, outs[1], ct[0], shape=ins[0].shape, **attrs
        ),
    ),
    flops=lambda inputs, outputs, kernel, **attrs: (kernel**2 - 1) * outputs[0].size,
    contiguous=True,
)
MAX_POOL_VJP: Primitive = Primitive(
    "max_pool_vjp",  # (indices, g) -> g at the places of the maxima, 0 elsewhere
    no_kernel,
    lambda indices, g, shape, **attrs: (Spec(shape, g.dtype),),
    flops=lambda inputs, outputs, **attrs: inputs[1].size,
    contiguous=True,
)

# The functions -----------------------------------------------------------------------------------


def conv2d(x: Var, weight: Var, *bias: Var, stride: int = 1, groups: int = 1) -> Var:
    """Return a convolution padded so that, at stride 1, height and width stay.

    Args:
        x: shape (N, Cin, H, W).
        weight: shape (Cout, Cin / groups, k, k), k odd.
        bias: nothing, or one value of shape (Cout,).
        stride: how far the window moves.
        groups: parts of the channels that do not see each other; Cin of them make it depthwise.
    """
    padding = weight.shape[-1] // 2
    return apply(CONV2D, x, weight, *bias, stride=stride, padding=padding, groups=groups)


def conv_transpose2d(x: Var, weight: Var, *bias: Var, stride: int) -> Var:
    """Return the adjoint of a convolution without padding: ``stride`` times as high and wide.

    Args:
        x: shape (N, Cin, H, W).
        weight: shape (Cin, Cout, stride, stride), so that windows do not overlap.
        bias: nothing, or one value of shape (Cout,).
        stride: how far the window moves.
    """
    return apply(CONV_TRANSPOSE2D, x, weight, *bias, stride=stride, padding=0, groups=1)


def batch_norm(x: Var, scale: Var, shift: Var) -> Var:
    """Return every channel with mean 0 and variance 1 over the batch, scaled and shifted.

    Source: Ioffe and Szegedy, "Batch normalization", arXiv 1502.03167, algorithm 1.
    """
    return apply_all(BATCH_NORM, x, scale, shift)[0]


def max_pool(x: Var, kernel: int, stride: int, padding: int = 0) -> Var:
    """Return the largest of every ``kernel`` by ``kernel`` window."""
    return apply_all(MAX_POOL, x, kernel=kernel, stride=stride, padding=padding)[0]
