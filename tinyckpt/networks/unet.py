"""U-Net: encoder-decoder CNN with skip connections; Ronneberger et al. 2015, arXiv 1505.04597."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tinyckpt.base.spec import Spec
from tinyckpt.core.tracing import scope
from tinyckpt.networks.layers import check_image_size, conv_relu, conv_specs, loss_of_logits
from tinyckpt.networks.network import Network, check_sizes
from tinyckpt.ops.convolution import conv2d
from tinyckpt.ops.pooling import max_pool2d
from tinyckpt.ops.shape import concatenate, transpose
from tinyckpt.ops.transposed_convolution import conv_transpose2d

CLASSES = 2  # of a pixel: inside a cell or not


def unet_logits(params: Any, images: Any) -> Any:
    """Return the logits of every pixel, of shape ``(batch, height, width, 2)``.

    >>> import tinyckpt as tc
    >>> params, images, labels = unet_network(1, 8, depth=2, width=4).arrays()
    >>> tc.jit(unet_logits)(params, images).shape
    (1, 8, 8, 2)
    """
    h, skips = images, []
    depth = len(params["up"])
    for index, layers in enumerate(params["down"], start=1):
        with scope(f"down{index}" if index <= depth else "bottom"):
            if index > 1:
                h = max_pool2d(h, 2)
            for layer in layers:
                h = conv_relu(h, layer, 1)
            skips.append(h)
    h = skips.pop()
    # Levels are numbered as in the encoder: down1 and up1 are at full size.
    for index, level in reversed(list(enumerate(params["up"], start=1))):
        with scope(f"up{index}"):
            h = conv_transpose2d(h, level["w"], level["b"], stride=2)
            h = concatenate([skips.pop(), h], axis=1)
            for layer in level["layers"]:
                h = conv_relu(h, layer, 1)
    with scope("output"):
        scores = conv2d(h, params["last"]["w"], params["last"]["b"])
        return transpose(scores, (0, 2, 3, 1))


def unet_network(
    batch: int = 8, size: int = 256, depth: int = 4, width: int = 64, *, dtype: str = "float32"
) -> Network:
    """Build the U-Net: ``depth`` levels down, as many up, with skip connections; 31.0M parameters.

    Its arguments are ``(params, images, labels)``: floats of shape ``(batch, 1, size, size)`` and
    integers of shape ``(batch, size, size)``, a class per pixel.

    Args:
        batch: images, of one channel.
        size: height and width in pixels, a multiple of 2 to the power of ``depth``.
        depth: number of halvings of the image.
        width: channels at full size; they double with every level.
        dtype: of everything but the labels.

    Raises:
        GraphError: if a parameter is less than 1, or the size does not halve ``depth`` times.

    >>> unet_network().parameter_count
    31030658

    Source: Ronneberger, Fischer and Brox, "U-Net: convolutional networks for biomedical image
    segmentation", arXiv 1505.04597, figure 1; convolutions are padded here, so that nothing is
    cropped, and the loss, over two classes, does not weight pixels.
    """
    check_sizes("unet", depth=depth, width=width)
    check_image_size("unet", size, 2**depth, batch=batch)
    widths = [width << level for level in range(depth + 1)]

    def pair(inputs: int, outputs: int) -> list[dict[str, Spec]]:
        return [conv_specs(inputs, outputs, 3, dtype), conv_specs(outputs, outputs, 3, dtype)]

    def loss(params: Any, images: Any, labels: Any) -> Any:
        return loss_of_logits(unet_logits(params, images), labels)

    params = {
        "down": [pair(a, b) for a, b in pairwise([1, *widths])],
        "up": [
            # The weight of the convolution whose adjoint this is: (Cin, Cout, 2, 2).
            {"w": Spec((2 * c, c, 2, 2), dtype), "b": Spec(c, dtype), "layers": pair(2 * c, c)}
            for c in widths[:-1]
        ],
        "last": conv_specs(width, CLASSES, 1, dtype),
    }
    data = Spec((batch, 1, size, size), dtype), Spec((batch, size, size), "int64")
    return Network("unet", loss, (params, *data))
