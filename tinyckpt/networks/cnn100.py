"""The CNN of 100 layers whose reported saving by checkpointing was not one."""

from __future__ import annotations

from typing import Any

from tinyckpt.core.tracing import scope
from tinyckpt.networks.layers import (
    Norm,
    affine,
    check_size,
    conv_relu,
    conv_specs,
    image_classifier,
    of_batch,
)
from tinyckpt.networks.network import Network, layer_specs
from tinyckpt.ops.convolution import conv2d
from tinyckpt.ops.pooling import max_pool2d
from tinyckpt.ops.shape import reshape

PADDING = 2  # each convolution of 3x3 makes an image 2 pixels larger, and pooling halves that


def cnn100_logits(params: Any, images: Any, norm: Norm = of_batch) -> Any:
    """Return the scores of the classes, of shape ``(batch, classes)``; no norm is used."""
    with scope("first"):
        h = conv2d(images, params["first"]["w"], params["first"]["b"], padding=PADDING)
    for index, layer in enumerate(params["layers"], start=1):
        with scope(f"layer{index}"):
            h = max_pool2d(conv_relu(h, layer, PADDING), 2)
    with scope("output"):
        h = reshape(h, (h.shape[0], -1))
        for layer in params["affine"]:
            h = affine(h, layer)
        return h


def cnn100(
    batch: int = 64, size: int = 28, *,
    layers: int = 100, width: int = 320, classes: int = 10, dtype: str = "float32",
) -> Network:  # fmt: skip
    """Return a convolution, 100 layers of convolution, relu and pooling, and two affine layers.

    It has 92,208,120 parameters, 320 channels, and for each image of 28x28 pixels saves 7,974,976
    bytes up to the first affine layer, in PyTorch: the image, what the first convolution, every
    relu and every pooling return, and an index of 8 bytes for each maximum. All but 2 % of it is
    made by the first five layers: from there on images are of 2x2 pixels. Here, an index takes one
    byte where a window is small, and the image belongs to the caller.

    Args:
        batch: images, of one channel.
        size: height and width in pixels.
        layers: convolutions with relu and pooling.
        width: channels.
        classes: of images; there are as many hidden units.
        dtype: of everything but the labels.

    Raises:
        GraphError: if a size is less than 1.
    """
    check_size("cnn100", size, 1, batch=batch, layers=layers, width=width, classes=classes)
    pixels = size + 2
    for _ in range(layers):
        pixels = (pixels + 2) // 2
    layer = conv_specs(width, width, 3, dtype)
    params = {
        "first": conv_specs(1, width, 3, dtype),
        "layers": [layer] * layers,
        "affine": [
            layer_specs(width * pixels**2, classes, dtype),
            layer_specs(classes, classes, dtype),
        ],
    }
    name = "cnn100" if layers == 100 else f"cnn{layers}"
    return image_classifier(name, cnn100_logits, params, (batch, 1, size, size), dtype)
