"""VGG: stages of 3x3 convolutions and pooling; Simonyan and Zisserman 2014, arXiv 1409.1556."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import INTEGERS
from tinyckpt.core.tracing import scope
from tinyckpt.networks.layers import (
    Norm,
    affine_logits,
    batch_norm_training,
    check_image_size,
    conv_norm,
    conv_norm_specs,
    conv_relu,
    conv_specs,
    image_classifier,
)
from tinyckpt.networks.network import Network, affine_specs
from tinyckpt.ops.activation import relu
from tinyckpt.ops.pooling import max_pool2d

# Convolutions per stage, by the number of layers: table 1, columns A, B, D and E.
DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def vgg_logits(params: Any, images: Any, norm: Norm = batch_norm_training) -> Any:
    """Return the logits, of shape ``(batch, classes)``.

    >>> import tinyckpt as tc
    >>> params, images, labels = vgg(11, 2, 32, width=4, hidden=16, classes=10).arrays()
    >>> tc.jit(vgg_logits)(params, images).shape
    (2, 10)
    """
    h = images
    for index, stage in enumerate(params["stages"], start=1):
        with scope(f"stage{index}"):
            for layer in stage:
                if "scale" in layer:
                    h = relu(conv_norm(h, layer, norm, padding=1))
                else:
                    h = conv_relu(h, layer, 1)
            h = max_pool2d(h, 2)
    return affine_logits(h, params["affine"], relu)


def vgg(
    depth: int = 16, batch: int = 32, size: int = 224, *,
    batch_normed: bool = False, width: int = 64, hidden: int = 4096, classes: int = 1000,
    statistics: bool = False, dtype: str = "float32",
) -> Network:  # fmt: skip
    """Build VGG: VGG-16 has 138,357,544 parameters, VGG-19 has 143,667,240.

    The forward pass of VGG-16 takes 15.5 GMAC per image, at 224 pixels. Nearly all its activation
    memory is in the first two layers, so that the smallest peak is about 0.86 of store-all's; not
    so with batch norm.

    Args:
        depth: layers with weights: 11, 13, 16 or 19.
        batch: images.
        size: height and width in pixels, a multiple of 32.
        batch_normed: whether batch norm is between convolution and relu, in place of the
            bias (torchvision's ``vgg16_bn`` has both).
        width: channels of the first stage; at most eight times as many later on.
        hidden: width of the two hidden affine layers.
        classes: of images.
        statistics: whether running statistics are an argument and a result; see ``layers``.
        dtype: of everything but the labels.

    Raises:
        GraphError: if the depth is not one of these, or the size is no multiple of 32.

    >>> vgg(16).parameter_count
    138357544

    Source: Simonyan and Zisserman, "Very deep convolutional networks for large-scale image
    recognition", arXiv 1409.1556, table 1. Its dropout is left out.
    """
    name = f"vgg{depth}_bn" if batch_normed else f"vgg{depth}"
    if not isinstance(depth, INTEGERS) or depth not in DEPTHS:
        raise GraphError(f"vgg: depth={depth!r:.80}; it must be {', '.join(map(str, DEPTHS))}")
    check_image_size(name, size, 32, batch=batch, width=width, hidden=hidden, classes=classes)
    specs = conv_norm_specs if batch_normed else conv_specs
    stages = []
    inputs = 3
    for factor, count in zip((1, 2, 4, 8, 8), DEPTHS[depth], strict=True):
        outputs = factor * width
        widths = [inputs, *[outputs] * count]
        stages.append([specs(a, b, 3, dtype) for a, b in pairwise(widths)])
        inputs = outputs
    pixels = (size // 32) ** 2
    widths = [inputs * pixels, hidden, hidden, classes]
    params = {
        "stages": stages,
        "affine": [affine_specs(a, b, dtype) for a, b in pairwise(widths)],
    }
    return image_classifier(
        name, vgg_logits, params, (batch, 3, size, size), dtype, statistics=statistics
    )
