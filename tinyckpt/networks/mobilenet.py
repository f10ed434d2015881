"""MobileNet v1: depthwise separable convolutions; Howard et al. 2017, arXiv 1704.04861."""

from __future__ import annotations

from typing import Any

from tinyckpt.core.tracing import scope
from tinyckpt.networks.layers import (
    Norm,
    batch_norm_training,
    check_image_size,
    classifier_head,
    conv_norm,
    conv_norm_specs,
    image_classifier,
)
from tinyckpt.networks.network import Network, affine_specs
from tinyckpt.ops.activation import relu

# Per block: output channels, in multiples of the first layer's width, and depthwise stride. The
# table in the paper has stride 2 in the last block too, whose input and output are both 7x7: a
# misprint.
BLOCKS = (
    (2, 1), (4, 2), (4, 1), (8, 2), (8, 1), (16, 2), *[(16, 1)] * 5, (32, 2), (32, 1),
)  # fmt: skip


def mobilenet_logits(params: Any, images: Any, norm: Norm = batch_norm_training) -> Any:
    """Return the logits, of shape ``(batch, classes)``.

    >>> import tinyckpt as tc
    >>> params, images, labels = mobilenet_v1(2, 32, width=4, classes=10).arrays()
    >>> tc.jit(mobilenet_logits)(params, images).shape
    (2, 10)
    """
    with scope("block0"):
        h = relu(conv_norm(images, params["first"], norm, stride=2, padding=1))
    for index, (block, (_, stride)) in enumerate(
        zip(params["blocks"], BLOCKS, strict=True), start=1
    ):
        with scope(f"block{index}"):
            depthwise, channels = block["depthwise"], h.shape[1]
            h = conv_norm(h, depthwise, norm, stride=stride, padding=1, groups=channels)
            h = relu(conv_norm(relu(h), block["pointwise"], norm))
    return classifier_head(h, params["affine"])


def mobilenet_v1(
    batch: int = 32, size: int = 224, *,
    width: int = 32, classes: int = 1000, statistics: bool = False, dtype: str = "float32",
) -> Network:  # fmt: skip
    """Build MobileNet (v1, width 1.0): 13 depthwise separable blocks, 4,231,976 parameters.

    The forward pass takes 0.57 GMAC per image, at 224 pixels.

    Args:
        batch: images.
        size: height and width in pixels, a multiple of 32.
        width: channels of the first layer.
        classes: of images.
        statistics: whether running statistics are an argument and a result; see ``layers``.
        dtype: of everything but the labels.

    Raises:
        GraphError: if the size is no multiple of 32.

    >>> mobilenet_v1().parameter_count
    4231976

    Source: Howard et al., "MobileNets: efficient convolutional neural networks for mobile vision
    applications", arXiv 1704.04861, table 1.
    """
    check_image_size("mobilenet", size, 32, batch=batch, width=width, classes=classes)
    blocks = []
    inputs = width
    for factor, _ in BLOCKS:
        outputs = factor * width
        depthwise = conv_norm_specs(inputs, inputs, 3, dtype, groups=inputs)
        blocks.append(
            {"depthwise": depthwise, "pointwise": conv_norm_specs(inputs, outputs, 1, dtype)}
        )
        inputs = outputs
    params = {
        "first": conv_norm_specs(3, width, 3, dtype),
        "blocks": blocks,
        "affine": affine_specs(inputs, classes, dtype),
    }
    return image_classifier(
        "mobilenet", mobilenet_logits, params, (batch, 3, size, size), dtype, statistics=statistics
    )
