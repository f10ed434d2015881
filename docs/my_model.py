"""Example of a user's PyTorch model, for ``tinyckpt torch docs/my_model.py:make``."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (the usual name)

VOCABULARY, LENGTH, BATCH = 1000, 256, 8


class Block(nn.Module):
    """Attention and an MLP, each with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        parts = self.joint(self.first(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


class GPT(nn.Module):
    """A small language model. Its forward returns the loss."""

    def __init__(self, layers: int = 6, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Return the loss."""
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


def make() -> tuple[nn.Module, tuple[Any, ...]]:
    """Return the model in training mode, and the arguments of a step."""
    torch.manual_seed(0)
    tokens, labels = torch.randint(VOCABULARY, (2, BATCH, LENGTH))
    return GPT(), (tokens, labels)
