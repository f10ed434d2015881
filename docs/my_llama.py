"""A small Llama whose forward returns the loss, for the page of known issues."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (the usual name)

VOCABULARY, LENGTH, BATCH = 256, 256, 2


class Layer(nn.Module):
    """Attention and a gated MLP, each after an RMS norm and with a residual connection."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        y = self.first(x)
        parts = (
            part(y).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """A language model. Its forward returns the loss."""

    def __init__(self, layers: int = 4, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        hidden = 8 * width // 3
        self.layers = nn.ModuleList(Layer(width, heads, hidden) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Return the loss."""
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


def make() -> tuple[nn.Module, tuple[Any, ...]]:
    """Return the model in training mode, and the arguments of a step."""
    torch.manual_seed(0)
    tokens, labels = torch.randint(VOCABULARY, (2, BATCH, LENGTH))
    return Llama(), (tokens, labels)
