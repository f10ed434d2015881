"""ResNet: residual networks of basic and bottleneck blocks; He et al. 2015, arXiv 1512.03385."""

from __future__ import annotations

from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import INTEGERS
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
from tinyckpt.ops.pooling import max_pool2d

# Blocks per stage, by the number of layers: table 1. From 50 layers on they are bottlenecks.
DEPTHS = {
    18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3),
}  # fmt: skip
BOTTLENECK = 4  # expansion: output channels of a bottleneck by its inner width


def resnet_logits(params: Any, images: Any, norm: Norm = batch_norm_training) -> Any:
    """Return the logits, of shape ``(batch, classes)``.

    >>> import tinyckpt as tc
    >>> params, images, labels = resnet(18, 2, 32, width=4, classes=10).arrays()
    >>> tc.jit(resnet_logits)(params, images).shape
    (2, 10)
    """
    with scope("stage1"):
        h = relu(conv_norm(images, params["first"], norm, stride=2, padding=3))
        h = max_pool2d(h, 3, stride=2, padding=1)
    for number, stage in enumerate(params["stages"], start=2):
        for index, block in enumerate(stage, start=1):
            with scope(f"stage{number}/block{index}"):
                h = residual(h, block, norm, 2 if index == 1 and number > 2 else 1)
    return classifier_head(h, params["affine"])


def residual(x: Any, block: Any, norm: Norm, stride: int) -> Any:
    """Apply a residual block; the first of a stage has a projection shortcut."""
    if "reduce" in block:
        h = relu(conv_norm(x, block["reduce"], norm))
        h = relu(conv_norm(h, block["middle"], norm, stride=stride, padding=1))
        h = conv_norm(h, block["expand"], norm)
    else:
        h = relu(conv_norm(x, block["first"], norm, stride=stride, padding=1))
        h = conv_norm(h, block["second"], norm, padding=1)
    shortcut = conv_norm(x, block["shortcut"], norm, stride=stride) if "shortcut" in block else x
    return relu(h + shortcut)


def block_specs(inputs: int, width: int, stride: int, bottleneck: bool, dtype: str) -> Any:
    """Return the parameter specs of one block, in the order of their use."""
    outputs = BOTTLENECK * width if bottleneck else width
    if bottleneck:
        block = {
            "reduce": conv_norm_specs(inputs, width, 1, dtype),
            "middle": conv_norm_specs(width, width, 3, dtype),
            "expand": conv_norm_specs(width, outputs, 1, dtype),
        }
    else:
        block = {
            "first": conv_norm_specs(inputs, width, 3, dtype),
            "second": conv_norm_specs(width, width, 3, dtype),
        }
    if stride != 1 or inputs != outputs:
        block["shortcut"] = conv_norm_specs(inputs, outputs, 1, dtype)
    return block


def resnet(
    depth: int = 50, batch: int = 32, size: int = 224, *,
    width: int = 64, classes: int = 1000, statistics: bool = False, dtype: str = "float32",
) -> Network:  # fmt: skip
    """Build ResNet: ResNet-18 has 11,689,512 parameters, 50 has 25,557,032, 152 has 60,192,808.

    The forward pass of ResNet-50 takes 4.1 GMAC per image, at 224 pixels.

    Args:
        depth: layers with weights: 18, 34, 50, 101 or 152.
        batch: images.
        size: height and width in pixels, a multiple of 32.
        width: channels of the first stage.
        classes: of images.
        statistics: whether running statistics are an argument and a result; see ``layers``.
        dtype: of everything but the labels.

    Raises:
        GraphError: if the depth is not one of these, or the size is no multiple of 32.

    >>> resnet(50).parameter_count
    25557032

    Source: He, Zhang, Ren and Sun, "Deep residual learning for image recognition", arXiv
    1512.03385, table 1. A stage's stride is in the 3x3 convolution, as in torchvision ("v1.5"); in
    the first 1x1, as in the paper, ResNet-50 would be 3.9 GMAC.
    """
    name = f"resnet{depth}"
    if not isinstance(depth, INTEGERS) or depth not in DEPTHS:
        raise GraphError(f"resnet: depth={depth!r:.80}; it must be {', '.join(map(str, DEPTHS))}")
    check_image_size(name, size, 32, batch=batch, width=width, classes=classes)
    bottleneck = depth >= 50
    stages: list[list[Any]] = []
    inputs = width
    for level, count in enumerate(DEPTHS[depth]):
        middle = width << level
        stages.append([])
        for index in range(count):
            stride = 2 if index == 0 and level > 0 else 1
            stages[-1].append(block_specs(inputs, middle, stride, bottleneck, dtype))
            inputs = BOTTLENECK * middle if bottleneck else middle
    params = {
        "first": conv_norm_specs(3, width, 7, dtype),
        "stages": stages,
        "affine": affine_specs(inputs, classes, dtype),
    }
    return image_classifier(
        name, resnet_logits, params, (batch, 3, size, size), dtype, statistics=statistics
    )
