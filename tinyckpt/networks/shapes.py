"""Well-known convolutional networks as training graphs, for planning at real size.

No arrays are made, and a graph of gigabytes is a matter of milliseconds. They are the networks of
``vgg``, ``resnet``, ``mobilenet`` and ``unet`` in float32, and run like any other graph.

Not modelled: activations in place, dropout, the optimiser; and running statistics, which ``resnet``
and its like have where they are asked for.

They ship as JSON documents in ``tinyckpt/data/graphs``; ``tinyckpt graph resnet50 -o FILE.json``
writes one, and ``make graphs`` all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tinyckpt.core.graph import TrainingGraph
from tinyckpt.networks.mobilenet import mobilenet_v1
from tinyckpt.networks.resnet import resnet
from tinyckpt.networks.unet import unet_network
from tinyckpt.networks.vgg import vgg


def vgg16(batch: int = 32, size: int = 224, batch_normed: bool = False) -> TrainingGraph:
    """Return the training graph of VGG-16; see ``vgg``."""
    return vgg(16, batch, size, batch_normed=batch_normed).graph()


def resnet50(batch: int = 32, size: int = 224) -> TrainingGraph:
    """Return the training graph of ResNet-50; see ``resnet``."""
    return resnet(50, batch, size).graph()


def mobilenet(batch: int = 32, size: int = 224) -> TrainingGraph:
    """Return the training graph of MobileNet; see ``mobilenet_v1``."""
    return mobilenet_v1(batch, size).graph()


def unet(batch: int = 8, size: int = 256, depth: int = 4, width: int = 64) -> TrainingGraph:
    """Return the training graph of the U-Net; see ``unet_network``."""
    return unet_network(batch, size, depth, width).graph()


SHAPES: dict[str, Callable[..., TrainingGraph]] = {
    "vgg16": vgg16,
    "vgg16_bn": partial(vgg16, batch_normed=True),
    "resnet50": resnet50,
    "mobilenet": mobilenet,
    "unet": unet,
}
