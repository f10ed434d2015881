"""A 100-layer CNN with nearly all its activation memory in the first five layers.

A memory saving that was reported for checkpointing it was spurious: from the sixth layer on images
are 2x2 pixels, and there is little left to recompute.
"""

from __future__ import annotations

from typing import Any

from tinyckpt.core.tracing import scope
from tinyckpt.networks.layers import (
    Norm,
    affine_logits,
    batch_norm_training,
    check_image_size,
    conv_relu,
    conv_specs,
    image_classifier,
)
from tinyckpt.networks.network import Network, affine_specs
from tinyckpt.ops.convolution import conv2d
from tinyckpt.ops.pooling import max_pool2d

PADDING = 2  # so that a 3x3 convolution grows an image by 2 pixels; pooling halves it


def cnn100_logits(params: Any, images: Any, norm: Norm = batch_norm_training) -> Any:
    """Return the logits, of shape ``(batch, classes)``; ``norm`` is not used.

    >>> import tinyckpt as tc
    >>> params, images, labels = cnn100(batch=2, layers=3, width=4).arrays()
    >>> tc.jit(cnn100_logits)(params, images).shape
    (2, 10)
    """
    with scope("first"):
        h = conv2d(images, params["first"]["w"], params["first"]["b"], padding=PADDING)
    for index, layer in enumerate(params["layers"], start=1):
        with scope(f"layer{index}"):
            h = max_pool2d(conv_relu(h, layer, PADDING), 2)
    return affine_logits(h, params["affine"], lambda h: h)


def cnn100(
    batch: int = 64, size: int = 28, *,
    layers: int = 100, width: int = 320, classes: int = 10, dtype: str = "float32",
) -> Network:  # fmt: skip
    """Build a convolution, 100 layers of convolution, relu and pooling, and two affine layers.

    It has 92,208,120 parameters, 320 channels, and for each image of 28x28 pixels PyTorch saves
    7,974,976 bytes up to the first affine layer: the image, the outputs of the first convolution,
    of every relu and of every pooling, and an index of 8 bytes for each maximum. All but 2 % of
    these bytes are outputs of the first five layers: from there on images are 2x2 pixels. Here, an
    index takes one byte where a window is small, and the image is the caller's.

    Args:
        batch: images, of one channel.
        size: height and width in pixels.
        layers: convolutions with relu and pooling.
        width: channels.
        classes: of images, and hidden units.
        dtype: of everything but the labels.

    Raises:
        GraphError: if a size is less than 1.

    >>> cnn100().parameter_count
    92208120
    """
    check_image_size("cnn100", size, 1, batch=batch, layers=layers, width=width, classes=classes)
    pixels = size + 2
    for _ in range(layers):
        pixels = (pixels + 2) // 2
    layer = conv_specs(width, width, 3, dtype)
    params = {
        "first": conv_specs(1, width, 3, dtype),
        "layers": [layer] * layers,
        "affine": [
            affine_specs(width * pixels**2, classes, dtype),
            affine_specs(classes, classes, dtype),
        ],
    }
    name = "cnn100" if layers == 100 else f"cnn{layers}"
    return image_classifier(name, cnn100_logits, params, (batch, 1, size, size), dtype)
