"""LeNet-5: two convolutions with pooling and three affine layers; LeCun et al. 1998."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.core.tracing import scope
from tinyckpt.networks.layers import (
    Norm,
    affine_logits,
    batch_norm_training,
    check_image_size,
    conv_specs,
    image_classifier,
)
from tinyckpt.networks.network import Network, affine_specs
from tinyckpt.ops.activation import tanh
from tinyckpt.ops.convolution import conv2d
from tinyckpt.ops.pooling import avg_pool2d


def lenet_logits(params: Any, images: Any, norm: Norm = batch_norm_training) -> Any:
    """Return the logits, of shape ``(batch, classes)``; ``norm`` is not used.

    >>> import tinyckpt as tc
    >>> params, images, labels = lenet5(batch=2).arrays()
    >>> tc.jit(lenet_logits)(params, images).shape
    (2, 10)
    """
    h = images
    for index, layer in enumerate(params["convolutions"], start=1):
        with scope(f"stage{index}"):
            h = avg_pool2d(tanh(conv2d(h, layer["w"], layer["b"])), 2)
    return affine_logits(h, params["affine"], tanh)


def lenet5(
    batch: int = 64, size: int = 32, *, width: int = 1, classes: int = 10, dtype: str = "float32"
) -> Network:
    """Build LeNet-5: two 5x5 convolutions with pooling, three affine layers; 61,706 parameters.

    Args:
        batch: images, of one channel.
        size: height and width in pixels; digits of 28x28 are padded by 2 zeros on each side.
        width: a factor of the channels and of the hidden widths.
        classes: of images.
        dtype: of everything but the labels.

    Raises:
        GraphError: if a size is less than 1, or the image is no multiple of 4, or less than 16.

    >>> lenet5().parameter_count
    61706

    Source: LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to document
    recognition", 1998, doi:10.1109/5.726791, figure 2, as it is implemented today: every feature
    map reads all maps of the layer before, pooling has no parameters, and the output is affine,
    under cross-entropy.
    """
    check_image_size("lenet5", size, 4, batch=batch, width=width, classes=classes)
    if size < 16:
        raise GraphError(f"lenet5: size={size}; it must be at least 16")
    pixels = ((size - 4) // 2 - 4) // 2
    widths = [16 * width * pixels**2, 120 * width, 84 * width, classes]
    params = {
        "convolutions": [
            conv_specs(1, 6 * width, 5, dtype),
            conv_specs(6 * width, 16 * width, 5, dtype),
        ],
        "affine": [affine_specs(a, b, dtype) for a, b in pairwise(widths)],
    }
    return image_classifier("lenet5", lenet_logits, params, (batch, 1, size, size), dtype)
