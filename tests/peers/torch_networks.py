"""Reference implementations of the image networks in PyTorch, on the same parameters."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
F: Any = torch.nn.functional
Tensor = Any


def affine(x: Tensor, layer: Any) -> Tensor:
    """Return ``x w + b``; PyTorch's own weight is transposed."""
    return F.linear(x, layer["w"].T, layer["b"])


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


class BatchNorm:
    """``F.batch_norm`` with the running statistics of one norm after the other."""

    def __init__(self, statistics: Any = None, training: bool = True) -> None:
        self.statistics, self.training, self.index = statistics, training, count()

    def __call__(self, x: Tensor, layer: Any) -> Tensor:
        own: Any = {"mean": None, "variance": None}
        if self.statistics is not None:
            own = self.statistics[next(self.index)]
        return F.batch_norm(
            x, own["mean"], own["variance"], layer["scale"], layer["shift"], self.training
        )


def conv_norm(x: Tensor, layer: Any, norm: BatchNorm, **options: int) -> Tensor:
    return norm(F.conv2d(x, layer["w"], **options), layer)


def lenet(params: Any, images: Tensor, norm: BatchNorm) -> Tensor:
    h = images
    for layer in params["convolutions"]:
        h = F.avg_pool2d(torch.tanh(F.conv2d(h, layer["w"], layer["b"])), 2)
    *hidden, last = params["affine"]
    h = h.flatten(1)
    for layer in hidden:
        h = torch.tanh(affine(h, layer))
    return affine(h, last)


def cnn(params: Any, images: Tensor, norm: BatchNorm) -> Tensor:
    h = F.conv2d(images, params["first"]["w"], params["first"]["b"], padding=2)
    for layer in params["layers"]:
        h = F.max_pool2d(F.relu(F.conv2d(h, layer["w"], layer["b"], padding=2)), 2)
    h = h.flatten(1)
    for layer in params["affine"]:
        h = affine(h, layer)
    return h


def vgg(params: Any, images: Tensor, norm: BatchNorm) -> Tensor:
    h = images
    for stage in params["stages"]:
        for layer in stage:
            h = F.conv2d(h, layer["w"], layer.get("b"), padding=1)
            h = F.relu(norm(h, layer) if "scale" in layer else h)
        h = F.max_pool2d(h, 2)
    *hidden, last = params["affine"]
    h = h.flatten(1)
    for layer in hidden:
        h = F.relu(affine(h, layer))
    return affine(h, last)


def resnet(params: Any, images: Tensor, norm: BatchNorm) -> Tensor:
    h = F.relu(conv_norm(images, params["first"], norm, stride=2, padding=3))
    h = F.max_pool2d(h, 3, stride=2, padding=1)
    for level, stage in enumerate(params["stages"]):
        for index, block in enumerate(stage):
            stride = 2 if index == 0 and level > 0 else 1
            x = h
            if "middle" in block:
                h = F.relu(conv_norm(x, block["reduce"], norm))
                h = F.relu(conv_norm(h, block["middle"], norm, stride=stride, padding=1))
                h = conv_norm(h, block["expand"], norm)
            else:
                h = F.relu(conv_norm(x, block["first"], norm, stride=stride, padding=1))
                h = conv_norm(h, block["second"], norm, padding=1)
            if "shortcut" in block:
                x = conv_norm(x, block["shortcut"], norm, stride=stride)
            h = F.relu(h + x)
    return affine(h.mean((2, 3)), params["affine"])


def mobilenet(params: Any, images: Tensor, norm: BatchNorm) -> Tensor:
    h = F.relu(conv_norm(images, params["first"], norm, stride=2, padding=1))
    for index, block in enumerate(params["blocks"]):
        stride = 2 if index in (1, 3, 5, 11) else 1
        depthwise = {"stride": stride, "padding": 1, "groups": h.shape[1]}
        h = F.relu(conv_norm(h, block["depthwise"], norm, **depthwise))
        h = F.relu(conv_norm(h, block["pointwise"], norm))
    return affine(h.mean((2, 3)), params["affine"])


def unet(params: Any, images: Tensor, norm: BatchNorm) -> Tensor:
    def pair(x: Tensor, layers: Any) -> Tensor:
        for layer in layers:
            x = F.relu(F.conv2d(x, layer["w"], layer["b"], padding=1))
        return x

    *down, bottom = params["down"]
    across = []
    h = images
    for layers in down:
        across.append(pair(h, layers))
        h = F.max_pool2d(across[-1], 2)
    h = pair(h, bottom)
    for level in reversed(params["up"]):
        h = F.conv_transpose2d(h, level["w"], level["b"], stride=2)
        h = pair(torch.cat([across.pop(), h], 1), level["layers"])
    h = F.conv2d(h, params["last"]["w"], params["last"]["b"])
    return h.permute(0, 2, 3, 1)


LOGITS: dict[str, Callable[..., Tensor]] = {
    "lenet5": lenet,
    "cnn100": cnn,
    "vgg16": vgg,
    "vgg16_bn": vgg,
    "vgg19": vgg,
    "resnet18": resnet,
    "resnet50": resnet,
    "mobilenet": mobilenet,
    "unet": unet,
}


def loss_of(name: str, params: Any, images: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of a network of ``tests.tinyckpt.networks.small``."""
    return cross_entropy(LOGITS[name](params, images, BatchNorm()), labels)
