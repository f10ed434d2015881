"""Hypothesis strategy of random PyTorch modules: norms, dropout, views, masks, dead code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (as all of its users call it)

ROWS, WIDTH = 32, 16

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "batch norm": lambda: nn.BatchNorm1d(WIDTH),
    "dropout": lambda: nn.Dropout(0.25),
}
# Each takes two of the values that there are.
ACTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "tanh": lambda x, y: torch.tanh(x),
    "gelu": lambda x, y: F.gelu(x),
    "in place": lambda x, y: F.relu(x.clone(), inplace=True),
    "add": lambda x, y: x + y,
    "multiply": lambda x, y: x * y,
    "product": lambda x, y: (x @ y.T) @ x * 0.01,
    "views": lambda x, y: x.view(ROWS // 2, 2, WIDTH).transpose(0, 1).reshape(ROWS, WIDTH),
    "masked": lambda x, y: torch.where(y > 0, x, torch.zeros_like(x)),
    "softmax": lambda x, y: F.softmax(x, -1),
    "centred": lambda x, y: x - x.mean(0, keepdim=True),
    "scaled": lambda x, y: x / (x.std(-1, keepdim=True) + 1),
    "halves": lambda x, y: torch.cat([x, y], 1).chunk(2, 1)[0] * 2,
    "sorted": lambda x, y: x.sort(-1)[0] + x,
}


class Drawn(nn.Module):
    """A layer, then actions on the values so far, by (kind, value, other value)."""

    def __init__(self, actions: list[tuple[str, int, int]]) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.actions = actions
        kinds = [kind for kind, _, _ in actions]
        self.layers = nn.ModuleDict(
            {str(place): LAYERS[kind]() for place, kind in enumerate(kinds) if kind in LAYERS}
        )

    def forward(self, x: Tensor) -> Tensor:
        values = [self.first(x)]
        for place, (kind, one, other) in enumerate(self.actions):
            x, y = values[one % len(values)], values[other % len(values)]
            layer: Any = self.layers[str(place)] if kind in LAYERS else None
            values.append(layer(x) if layer else ACTIONS[kind](x, y))
        return (values[-1] + values[len(values) // 2]).square().mean()


def modules(most: int = 16) -> st.SearchStrategy[tuple[nn.Module, tuple[Tensor, ...]]]:
    """Draw modules in training mode, with arguments; actions are unique."""
    kinds = st.sampled_from([*LAYERS, *ACTIONS])
    actions = st.tuples(kinds, st.integers(0, most), st.integers(0, most))
    return st.lists(actions, min_size=3, max_size=most, unique=True).map(made)


def made(actions: list[tuple[str, int, int]]) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a module of these actions with arguments, deterministically."""
    torch.manual_seed(0)
    return Drawn(actions).train(), (torch.randn(ROWS, WIDTH),)
