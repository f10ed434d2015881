"""Vision models of torchvision, small, with random weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.detection import RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.efficientnet import MBConvConfig
from torchvision.models.regnet import BlockParams

from benchmarks.zoo.entry import Entry, Example, Scored

CLASSES = 10


def classifier(model: nn.Module, size: int = 32, batch: int = 4) -> Example:
    """Return a model of images, with images."""
    return Scored(model), (torch.randn(batch, 3, size, size),)


def densenet(memory_efficient: bool) -> Example:
    """DenseNet of four blocks; each layer is handed the list of what came before."""
    return classifier(
        models.DenseNet(
            8, (3, 3, 3, 3), 16, num_classes=CLASSES, drop_rate=0.0,
            memory_efficient=memory_efficient,
        )
    )  # fmt: skip


def efficientnet() -> Example:
    """EfficientNet of four stages, with stochastic depth."""
    stages = [
        MBConvConfig(1, 3, 1, 16, 8, 1), MBConvConfig(4, 3, 2, 8, 16, 2),
        MBConvConfig(4, 5, 2, 16, 24, 2), MBConvConfig(4, 3, 1, 24, 32, 1),
    ]  # fmt: skip
    return classifier(models.EfficientNet(stages, 0.2, num_classes=CLASSES, last_channel=64))


def regnet() -> Example:
    """RegNet of three stages, with squeeze and excitation."""
    widths = BlockParams([1, 2, 1], [16, 24, 32], [8, 8, 8], [1.0, 1.0, 1.0], [2, 2, 2], 0.25)
    return classifier(models.RegNet(widths, CLASSES, stem_width=16), 64)


def convnext() -> Example:
    """ConvNeXt of three stages, with stochastic depth."""
    stages = [CNBlockConfig(16, 32, 2), CNBlockConfig(32, 64, 2), CNBlockConfig(64, None, 1)]
    return classifier(models.ConvNeXt(stages, 0.1, num_classes=CLASSES), 64)


def swin(attention_dropout: float = 0.0) -> Example:
    """Swin transformer of two stages, with shifted windows and stochastic depth."""
    return classifier(
        models.SwinTransformer(
            [4, 4], 16, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.1, num_classes=CLASSES
        ),
        64,
    )


def vit(dropout: float = 0.0) -> Example:
    """Vision transformer."""
    return classifier(
        models.VisionTransformer(32, 8, 4, 4, 64, 128, dropout=dropout, num_classes=CLASSES)
    )


class Boxed(nn.Module):
    """A detector, on images with boxes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, boxes: Tensor, labels: Tensor) -> Tensor:
        targets = [
            {"boxes": box, "labels": label} for box, label in zip(boxes, labels, strict=True)
        ]
        losses: dict[str, Tensor] = self.model(list(images), targets)
        return torch.stack(list(losses.values())).sum()


def detector() -> Example:
    """RetinaNet over two convolutions."""
    backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 4, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1))
    backbone.out_channels = 16
    anchors = AnchorGenerator(((8, 16),), ((0.5, 1.0, 2.0),))
    model = RetinaNet(backbone, 5, min_size=64, max_size=64, anchor_generator=anchors)
    corners = torch.rand(2, 3, 2) * 32
    boxes = torch.cat([corners, corners + 8 + torch.rand(2, 3, 2) * 16], 2)
    return Boxed(model), (torch.rand(2, 3, 64, 64), boxes, torch.randint(1, 5, (2, 3)))


def segmentation(name: str, **options: Any) -> Example:
    """A model of maps, over a backbone of random weights."""
    make = getattr(models.segmentation, name)
    model = make(weights=None, weights_backbone=None, num_classes=5, **options)
    return classifier(model, 64, 2)


TORCHVISION: dict[str, Entry] = {
    "ResNet-18": Entry(lambda: classifier(models.resnet18(num_classes=CLASSES), 64)),
    "DenseNet": Entry(partial(densenet, False)),
    "DenseNet, memory_efficient": Entry(
        partial(densenet, True),
        apart=0.5,
        reason="its own checkpoints update running averages twice a step, a plan once",
    ),
    "MobileNetV3": Entry(
        lambda: classifier(models.mobilenet_v3_small(num_classes=CLASSES, width_mult=0.5), 64)
    ),
    "EfficientNet": Entry(efficientnet),
    "RegNet": Entry(regnet),
    "ShuffleNetV2": Entry(
        lambda: classifier(models.shufflenet_v2_x0_5(num_classes=CLASSES), 64), large=True
    ),
    "GoogLeNet": Entry(
        lambda: classifier(models.GoogLeNet(CLASSES, init_weights=False), 64), large=True
    ),
    "ConvNeXt": Entry(convnext),
    "ViT": Entry(vit),
    "Swin": Entry(swin),
    "LR-ASPP": Entry(
        partial(segmentation, "lraspp_mobilenet_v3_large"),
        apart=1e-4,
        reason="a plan has another order of sums for interpolation",
    ),
    "RetinaNet": Entry(
        detector,
        traced="_local_scalar_dense",
        advised="_local_scalar_dense",
        reason="its course depends on the numbers in tensors",
    ),
}
