"""Training graphs of published CNNs at full size: VGG-16, ResNet-50, MobileNet, U-Net.

For planning without arrays: the graph of gigabytes of activations takes milliseconds. They are the
networks of ``vgg``, ``resnet``, ``mobilenet`` and ``unet`` in float32, and run like any other
graph.

Not modelled: in-place activations, dropout, the optimiser, and running statistics, which the
networks have with ``statistics=True``.

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
    """Build the training graph of VGG-16; see ``vgg``.

    >>> len(vgg16().operators)
    115
    """
    return vgg(16, batch, size, batch_normed=batch_normed).graph()


def resnet50(batch: int = 32, size: int = 224) -> TrainingGraph:
    """Build the training graph of ResNet-50; see ``resnet``.

    >>> len(resnet50(batch=32).operators)
    517
    """
    return resnet(50, batch, size).graph()


def mobilenet(batch: int = 32, size: int = 224) -> TrainingGraph:
    """Build the training graph of MobileNet; see ``mobilenet_v1``.

    >>> len(mobilenet().operators)
    257
    """
    return mobilenet_v1(batch, size).graph()


def unet(batch: int = 8, size: int = 256, depth: int = 4, width: int = 64) -> TrainingGraph:
    """Build the training graph of the U-Net; see ``unet_network``.

    >>> len(unet().operators)
    168
    """
    return unet_network(batch, size, depth, width).graph()


SHAPES: dict[str, Callable[..., TrainingGraph]] = {
    "vgg16": vgg16,
    "vgg16_bn": partial(vgg16, batch_normed=True),
    "resnet50": resnet50,
    "mobilenet": mobilenet,
    "unet": unet,
}
