"""PyTorch models at any size whose forward returns the loss, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (as all of its users call it)

VOCABULARY = 500


class Block(nn.Module):
    """A GPT layer: pre-norm, one product for query, key and value, dropout twice."""

    def __init__(self, width: int, heads: int, rate: float, causal: bool = True) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.rate, self.causal = heads, rate, causal

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.joint(self.norms[0](x)).split(width, dim=2)
        query, key, value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        mixed = self.out(mixed.transpose(1, 2).reshape(x.shape))
        x = x + F.dropout(mixed, self.rate, self.training)
        hidden = self.narrow(F.gelu(self.wide(self.norms[1](x))))
        return x + F.dropout(hidden, self.rate, self.training)


class GPT(nn.Module):
    """A language model of the GPT-2 kind."""

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        length: int,
        rate: float = 0.0,
        vocabulary: int = VOCABULARY,
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, rate) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


class ViT(nn.Module):
    """A vision transformer: image patches as tokens, and a class token."""

    def __init__(
        self, layers: int, width: int, heads: int, size: int, patch: int, classes: int = 1000
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(Block(width, heads, 0.0, causal=False) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(images), -1, -1), patches], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)[:, 0]), labels)


class LlamaBlock(nn.Module):
    """A Llama layer without positions: RMS norms, and a gated perceptron."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        y = self.norms[0](x)
        query, key, value = (
            layer(y).view(batch, length, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """A language model of the Llama kind."""

    def __init__(
        self, layers: int, width: int, heads: int, hidden: int, vocabulary: int = VOCABULARY
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaBlock(width, heads, hidden) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution that keeps or halves the extents, with batch norm."""
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """A block of a ResNet: convolutions of these sizes beside a shortcut; ReLU in place."""

    def __init__(self, inputs: int, widths: list[int], sizes: list[int], stride: int) -> None:
        super().__init__()
        # The stride is that of the first convolution of 3 x 3, as in torchvision.
        ends = [inputs, *widths]
        self.parts = nn.ModuleList(
            convolution(ends[i], ends[i + 1], size, stride if i == sizes.index(3) else 1)
            for i, size in enumerate(sizes)
        )
        same = stride == 1 and inputs == widths[-1]
        self.shortcut = nn.Identity() if same else convolution(inputs, widths[-1], 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for part in self.parts[:-1]:
            h = self.relu(part(h))
        return self.relu(self.parts[-1](h) + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet-50, or with ``bottleneck=False`` the small ones, by the blocks of its four stages."""

    def __init__(
        self, blocks: tuple[int, ...], bottleneck: bool = True, classes: int = 1000
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        body, inputs = [], 64
        for stage, count in enumerate(blocks):
            width = 64 * 2**stage
            widths = [width, width, 4 * width] if bottleneck else [width, width]
            sizes = [1, 3, 1] if bottleneck else [3, 3]
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                body.append(Residual(inputs, widths, sizes, stride))
                inputs = widths[-1]
        self.body, self.head = nn.Sequential(*body), nn.Linear(inputs, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        h = F.adaptive_avg_pool2d(self.body(self.stem(images)), 1)
        return F.cross_entropy(self.head(torch.flatten(h, 1)), labels)


def two_convolutions(inputs: int, outputs: int, rate: float) -> nn.Sequential:
    """Return the double convolution of a U-Net, with group norm and dropout."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, 1, 1), nn.GroupNorm(8, outputs), nn.SiLU(),
            nn.Dropout(rate),
        ]  # fmt: skip
    return nn.Sequential(*layers[:-1])


class UNet(nn.Module):
    """A U-Net: skip connections from each level of the encoder to the decoder."""

    def __init__(self, width: int, depth: int, rate: float = 0.1) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth)]
        steps = list(pairwise(widths))
        self.first = two_convolutions(3, width, rate)
        self.down = nn.ModuleList(two_convolutions(a, b, rate) for a, b in steps)
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in steps)
        self.merge = nn.ModuleList(two_convolutions(2 * a, a, rate) for a, _ in steps)
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        skips = [self.first(images)]
        for part in self.down:
            skips.append(part(F.max_pool2d(skips[-1], 2)))
        h = skips.pop()
        for up, merge in zip(reversed(self.up), reversed(self.merge), strict=True):
            h = merge(torch.cat([up(h), skips.pop()], 1))
        return F.mse_loss(self.last(h), targets)


Example = tuple[nn.Module, tuple[Tensor, ...]]  # a model in training, and arguments for it


def tokens_for(model: nn.Module, batch: int, length: int) -> Example:
    """Return a language model with random tokens and labels."""
    drawn = torch.randint(VOCABULARY, (2, batch, length))
    return model.train(), (drawn[0], drawn[1])


def images_for(model: nn.Module, batch: int, size: int, classes: int = 10) -> Example:
    """Return a classifier with random images and labels."""
    return model.train(), (torch.randn(batch, 3, size, size), torch.randint(classes, (batch,)))


def maps_for(model: nn.Module, batch: int, size: int) -> Example:
    """Return a U-Net with random images and targets."""
    return model.train(), (torch.randn(batch, 3, size, size), torch.randn(batch, 1, size, size))


# Large enough that activations outweigh gradients; seconds on one core.
EXAMPLES: dict[str, Callable[[], Example]] = {
    "GPT": lambda: tokens_for(GPT(4, 64, 4, 128), 8, 128),
    "GPT with dropout": lambda: tokens_for(GPT(4, 64, 4, 128, rate=0.1), 8, 128),
    "Llama": lambda: tokens_for(Llama(4, 64, 4, 172), 4, 128),
    "ResNet": lambda: images_for(ResNet((2, 2, 2), classes=10), 8, 64),
    "U-Net": lambda: maps_for(UNet(16, 3), 4, 48),
}
# What is measured: hundreds of megabytes, and seconds a step on two cores.
LARGE: dict[str, Callable[[], Example]] = {
    "GPT": lambda: tokens_for(GPT(6, 256, 4, 128, vocabulary=1000), 8, 128),
    "GPT with dropout": lambda: tokens_for(GPT(6, 256, 4, 128, 0.1, vocabulary=1000), 8, 128),
    "Llama": lambda: tokens_for(Llama(16, 256, 4, 688, vocabulary=512), 2, 512),
    "ViT": lambda: images_for(ViT(12, 192, 3, 160, 16), 16, 160),
    "ResNet-18": lambda: images_for(ResNet((2, 2, 2, 2), bottleneck=False), 16, 160),
    "ResNet-50": lambda: images_for(ResNet((3, 4, 6, 3)), 16, 128),
    "U-Net": lambda: maps_for(UNet(32, 4, rate=0.0), 4, 96),
    "U-Net with dropout": lambda: maps_for(UNet(32, 4), 4, 96),
}


def example(name: str, seed: int = 0) -> Example:
    """Return a model and arguments by name, deterministic in the seed."""
    torch.manual_seed(seed)
    return EXAMPLES[name]()


def large_example(name: str, seed: int = 0) -> Example:
    """Return a model and arguments as ``example``, in benchmark sizes."""
    torch.manual_seed(seed)
    return LARGE[name]()


def eager_step(model: nn.Module, args: tuple[Any, ...]) -> Callable[[], Tensor]:
    """Return a function that runs a plain PyTorch training step with fresh gradients."""

    def step() -> Tensor:
        model.zero_grad(set_to_none=True)
        loss: Tensor = model(*args)
        loss.backward()
        return loss.detach()

    return step
