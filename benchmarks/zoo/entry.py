"""Test case of the model zoo: a constructor of the model, and the expected outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Example = tuple[nn.Module, tuple[Any, ...]]  # a model in training, and arguments for it


@dataclass(frozen=True, slots=True)
class Entry:
    """A model, and expectations of its training step.

    Attributes:
        make: returns the model and its arguments, small, with random weights; nothing is loaded.
        traced: the text of the error with which ``trace`` refuses it, as a regular expression; if
            empty, a plan of it runs.
        advised: the same of ``advise``.
        wraps: whether any of its modules may be wrapped.
        apart: the most by which training by a plan differs from plain PyTorch, as a share of the
            largest number of a tensor; 0 is the same bits.
        peak: the most bytes by which a predicted peak misses that of training as it is, or as
            advised.
        planned: the same of plans.
        reason: why something above is not as one would wish.
        large: whether it takes too long for each run of the tests.
    """

    make: Callable[[], Example]
    traced: str = ""
    advised: str = ""
    wraps: bool = True
    apart: float = 0.0
    peak: int = 0
    planned: int = 0
    reason: str = ""
    large: bool = False

    def made(self, seed: int = 0) -> Example:
        """Return the model in training and its arguments; the same for the same seed."""
        torch.manual_seed(seed)
        model, args = self.make()
        return model.train(), args


class Scored(nn.Module):
    """A model whose forward returns a loss, made of what another one returns.

    It passes positional arguments on by the names that it is given.
    """

    def __init__(self, model: nn.Module, *names: str, **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *args: Any) -> Tensor:
        named = dict(zip(self.names, args, strict=False))
        return loss_of(self.model(*args[len(self.names) :], **named, **self.fixed))


def loss_of(output: Any) -> Tensor:
    """Return the loss that an output has, or the mean square of all that it has."""
    loss = getattr(output, "loss", None)
    if isinstance(loss, Tensor):
        return loss
    parts = [part.square().mean() for part in floating(output)]
    return torch.stack(parts).sum()


def floating(output: Any) -> Iterator[Tensor]:
    """Return the tensors in an output that can be differentiated."""
    if isinstance(output, Tensor):
        if output.requires_grad:
            yield output
    elif isinstance(output, dict):
        for part in output.values():
            yield from floating(part)
    elif isinstance(output, list | tuple):
        for part in output:
            yield from floating(part)
