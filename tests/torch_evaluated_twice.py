"""PyTorch blocks with every hazard of recomputation under ``torch.utils.checkpoint``.

Each model is three blocks of one kind in sequence, and returns a loss. ``TRAPS`` gives for each
kind the expected reason of refusal, "" if the blocks may be wrapped.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (as all of its users call it)
from torch.nn.utils import spectral_norm
from torch.nn.utils.parametrizations import spectral_norm as parametrized_spectral_norm
from torch.utils.checkpoint import checkpoint

ROWS, WIDTH = 64, 16


class Block(nn.Module):
    """A block without hazard; the base of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def body(self, x: Tensor) -> Tensor:
        return self.narrow(F.gelu(self.wide(x)))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Model(nn.Module):
    """Blocks in sequence, and a loss."""

    def __init__(self, kind: Callable[[], nn.Module], count: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(kind() for _ in range(count))

    def run(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self.first(x)).square().mean()


# Buffers -----------------------------------------------------------------------------------------


class Spectral(Block):
    """Power iterations on a vector that is a buffer."""

    def __init__(self, norm: Callable[[nn.Module], nn.Module] = parametrized_spectral_norm) -> None:
        super().__init__()
        self.wide, self.narrow = norm(self.wide), norm(self.narrow)


class InPlace(Block):
    """A running mean of its own, written in place, and saved for the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return x + self.body(x * (1 + self.mean))


class Assigned(InPlace):
    """A running mean that is assigned anew."""

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
        return x + self.body(x * (1 + self.mean))


class After(InPlace):
    """A buffer that is read first, and written at the end, after the last saved value."""

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.body(x * (1 + self.mean.clone()))
        with torch.no_grad():
            self.mean.copy_(0.9 * self.mean + 0.1 * y.mean(0))
        return y


class Foreach(Block):
    """Two buffers written to by one operator on lists."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("one", torch.ones(WIDTH))
        self.register_buffer("two", torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        torch._foreach_mul_([self.one, self.two], 0.9)
        return x + self.body(x * self.one.clone() * self.two.clone())


class Tied(Block):
    """One buffer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("one", torch.ones(WIDTH))
        self.register_buffer("two", self.one)

    def forward(self, x: Tensor) -> Tensor:
        self.one.mul_(0.9)
        return x + self.body(x * self.two.clone())


class Codebook(Block):
    """Vector quantisation whose codes track the nearest inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randn(8, WIDTH))
        self.register_buffer("counts", torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        with torch.no_grad():
            nearest = F.one_hot(torch.cdist(y, self.codes).argmin(1), 8).to(y.dtype)
            self.counts.mul_(0.9).add_(nearest.sum(0), alpha=0.1)
            means = (nearest.T @ y) / nearest.sum(0).clamp(min=1)[:, None]
            self.codes.mul_(0.9).add_(means, alpha=0.1)
            quantized = nearest @ self.codes
        return x + y + (quantized - y).detach() + self.narrow(F.gelu(self.wide(y)))


class Normed(Block):
    """Batch norm, whose running averages need no copies."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH, **options)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(self.norm(x))


class ReadNorm(Normed):
    """Batch norm whose averages are also read by the block."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1 + self.norm.running_var.mean())


class NormAndMean(InPlace):
    """Batch norm beside a running mean of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(x))


class InstanceNormed(Block):
    """Instance norm, whose averages are not bitwise stable when nothing is added to them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(WIDTH // 2, track_running_stats=True)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(self.norm(x.view(-1, WIDTH // 2, 2)).reshape(x.shape))


class FixedMomentum(nn.BatchNorm1d):
    """A batch norm that ignores its own momentum."""

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, True, 0.3, self.eps
        )


class OwnNorm(Normed):
    def __init__(self) -> None:
        super().__init__()
        self.norm = FixedMomentum(WIDTH)


class Recursive(InPlace):
    """A custom batch norm, by its operator."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("var", torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(F.batch_norm(x, self.mean, self.var, training=True))


class Lists(nn.Module):
    """DenseNet style: blocks are passed a list that their caller appends to."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Joining(index + 1) for index in range(3))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for block in self.blocks:
            features.append(block(features))
        return torch.cat(features, 1).square().mean()


class Joining(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH * count, WIDTH)

    def forward(self, features: list[Tensor]) -> Tensor:
        return F.gelu(self.layer(torch.cat(features, 1)))


class LastOnly(Lists):
    """The same, but shapes agree for every length of the list."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Latest() for _ in range(3))


class Latest(Block):
    def forward(self, features: list[Tensor]) -> Tensor:
        return features[-1] + self.body(features[-1])


class Cache:
    """T5 style: a cache filled by the block it is passed to."""

    def __init__(self) -> None:
        self.values: dict[int, Tensor] = {}


class Filling(Block):
    """Fills a cache, and reads from it what is there already."""

    def __init__(self, place: int = 0) -> None:
        super().__init__()
        self.place = place

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        assert cache is not None
        if self.place not in cache.values:
            cache.values[self.place] = self.body(x)
        return torch.tanh(cache.values[self.place]) + x


class Cached(Model):
    def __init__(self) -> None:
        super().__init__(Filling)
        for place, block in enumerate(self.blocks):
            block.place = place

    def run(self, x: Tensor) -> Tensor:
        cache = Cache()
        for block in self.blocks:
            x = block(x, cache=cache)
        return x


class Appending(Block):
    """Appends to a list argument."""

    def forward(self, x: Tensor, seen: list[Tensor]) -> Tensor:
        seen.append(x)
        return x + self.body(torch.stack(seen).mean(0))


class Appended(Model):
    def __init__(self) -> None:
        super().__init__(Appending)

    def run(self, x: Tensor) -> Tensor:
        seen: list[Tensor] = []
        for block in self.blocks:
            x = block(x, seen)
        return x


# Tensors written in place ------------------------------------------------------------------------


class Shifted(Block):
    """Reads its argument, and does not save it."""

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x + 1)


class WrittenArgument(Model):
    """What a block was given is written to afterwards."""

    def __init__(self) -> None:
        super().__init__(Shifted)

    def run(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + 0  # of its own
            y = block(x)
            with torch.no_grad():
                x.relu_()
            x = y
        return x


class Keyword(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, *, scale: Tensor) -> Tensor:
        return self.inner(x * scale)


class WrittenKeyword(Model):
    """A keyword argument is written to, which PyTorch does not notice."""

    def __init__(self) -> None:
        super().__init__(lambda: Keyword(Block()))

    def run(self, x: Tensor) -> Tensor:
        scale = torch.ones(WIDTH)
        for block in self.blocks:
            x = block(x, scale=scale)
            scale.data.mul_(1.5)
        return x


class WrittenBuffer(Model):
    """A buffer of the model, which blocks read, is written to in between."""

    def __init__(self) -> None:
        super().__init__(lambda: Keyword(Block()))
        self.register_buffer("scale", torch.ones(WIDTH))

    def run(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.scale.mul_(1.1)
        for block in self.blocks:
            x = block(x, scale=self.scale.clone())
        return x


class ReadsParent(Block):
    """Reads a tensor that belongs to another module."""

    def __init__(self) -> None:
        super().__init__()
        self.parent: list[nn.Module] = []

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x * self.parent[0].scale.clone())


class ParentWrites(Model):
    """Writes to a buffer that its blocks read, before they do: wrong with two passes."""

    def __init__(self) -> None:
        super().__init__(ReadsParent)
        self.register_buffer("scale", torch.ones(WIDTH))
        for block in self.blocks:
            block.parent.append(self)

    def run(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.scale.mul_(1.1)
        return super().run(x)


class WrittenWeight(Block):
    """Updates its own parameter in forward."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.wide.weight.mul_(0.99)
        return super().forward(x)


class MaxNorm(nn.Module):
    """An embedding with max_norm, which renormalises its rows when they are read."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH, max_norm=1.0)
        self.inner = Block()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x + self.table(torch.arange(ROWS)))


# Constants ---------------------------------------------------------------------------------------


class Constants(Block):
    """Makes tensors of a number, as DeBERTa's attention does, and of lists."""

    def forward(self, x: Tensor) -> Tensor:
        scaled = x / torch.sqrt(torch.tensor(x.size(-1), dtype=torch.float))
        ramp = torch.tensor([float(i) for i in range(WIDTH)])
        return x + self.body(scaled[:, list(range(WIDTH))] * ramp)


class Clock(Block):
    """Makes a tensor of another number each time."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x * torch.tensor(time.perf_counter()))


# Python ------------------------------------------------------------------------------------------


class Counting(Block):
    """Counts its evaluations, and reads the count now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return x + self.body(x if self.count % 100 else torch.tanh(x))


class CountingAtTheEnd(Counting):
    """Counts after the last saved value."""

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.body(x if self.count % 100 != 7 else torch.tanh(x))
        self.count += 1
        return y


class Scaled(Counting):
    """Its scale grows with the count."""

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return x + self.body(x) * min(1.0, self.count / 10)


class Drawing(Block):
    """Draws from Python's random numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) * random.random()


class DrawingOutside(Model):
    """Draws where no block does."""

    def run(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x) * (1 + random.random()) * float(np.random.rand())
        return x


class DrawingNumPy(Block):
    """Draws from NumPy's."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) * float(np.random.rand())


class DrawingDefault(Block):
    """Draws from a NumPy generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(0)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) * float(self.generator.random())


class DrawingTorch(Block):
    """Draws from a torch.Generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) * torch.rand(x.shape, generator=self.generator)


class Filled(Block):
    """Computes a mask at the first call, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.mask: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.mask is None:
            self.mask = torch.arange(float(WIDTH)).cos()
        return x + self.body(x * self.mask)


class Previous(Block):
    """Reads a value kept from the previous step."""

    def __init__(self) -> None:
        super().__init__()
        self.previous = torch.zeros(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.body(x + self.previous)
        self.previous = y.mean(0).detach()
        return y


CALLS = 0
SEEN: list[float] = []


class Global(Block):
    """Counts in a global."""

    def forward(self, x: Tensor) -> Tensor:
        global CALLS
        CALLS += 1
        return x + self.body(x if CALLS % 100 else torch.tanh(x))


class GlobalList(Block):
    """Appends to a global list."""

    def forward(self, x: Tensor) -> Tensor:
        SEEN.append(1.0)
        return x + self.body(x)


class OfClass(Block):
    """Counts in its class."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        type(self).calls += 1
        return x + self.body(x)


def closing() -> nn.Module:
    """Return a block that counts in a closure."""
    calls = 0

    class Closing(Block):
        def forward(self, x: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return x + self.body(x if calls % 100 else torch.tanh(x))

    return Closing()


class Stepping(Model):
    """Its blocks branch on a count that it increases at the end."""

    def __init__(self) -> None:
        super().__init__(Branching)
        self.state = {"step": 0}
        for block in self.blocks:
            block.state = self.state

    def run(self, x: Tensor) -> Tensor:
        x = super().run(x)
        self.state["step"] += 1
        return x


class Branching(Block):
    state: dict[str, int]

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x if self.state["step"] != 2 else torch.tanh(x))


class Flagging(Block):
    """Sets a flag, and takes it back only if it gets to the end."""

    def __init__(self) -> None:
        super().__init__()
        self.active = False

    def forward(self, x: Tensor) -> Tensor:
        self.active = not self.active
        y = x + self.body(x if self.active else torch.tanh(x))
        self.active = False
        return y


# What is right as it is --------------------------------------------------------------------------


class Keeping(Block):
    """Keeps its result in an attribute."""

    def forward(self, x: Tensor) -> Tensor:
        self.hidden = self.body(x)
        return x + self.hidden


class Auxiliary(Model):
    """Adds to its loss what the blocks keep in attributes."""

    def __init__(self) -> None:
        super().__init__(Keeping)

    def forward(self, x: Tensor) -> Tensor:
        loss = super().forward(x)
        return loss + sum(block.hidden.mean() for block in self.blocks)


def hooked() -> nn.Module:
    """Return a block with hooks, outside and inside, that change inputs and results."""
    block = Block()
    block.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    block.register_forward_hook(lambda module, args, result: torch.tanh(result) * result)
    block.wide.register_forward_hook(lambda module, args, result: result * 0.5)
    return block


class Dropping(Block):
    def forward(self, x: Tensor) -> Tensor:
        return x + F.dropout(self.body(F.dropout(x, 0.2)), 0.1)


@dataclass
class Pair:
    one: Tensor
    other: Tensor | None


class Passing(Block):
    """Takes and returns objects, tuples and None."""

    def forward(self, pair: Pair, unused: None, *rest: Any) -> tuple[Pair, None]:
        return Pair(pair.one + self.body(pair.one), None), None


class Objects(Model):
    def __init__(self) -> None:
        super().__init__(Passing)

    def run(self, x: Tensor) -> Tensor:
        pair = Pair(x, None)
        for block in self.blocks:
            pair, _ = block(pair, None, 3, {"a": [x]})
        return pair.one


class Keywords(Model):
    def __init__(self) -> None:
        super().__init__(lambda: Keyword(Block()))
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def run(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x=x, scale=self.scale * 2)
        return x


def frozen() -> nn.Module:
    """Return a block in which only one layer's bias is trained."""
    block = Block()
    for parameter in (*block.wide.parameters(), block.narrow.weight):
        parameter.requires_grad_(False)
    return block


class Checkpointing(Block):
    """Checkpoints a part of itself."""

    def forward(self, x: Tensor) -> Tensor:
        return x + checkpoint(self.body, x, use_reentrant=False) * 2


class SharedWeights(Model):
    """The first layer's weight is in all blocks."""

    def __init__(self) -> None:
        super().__init__(Block)
        for block in self.blocks[1:]:
            block.wide.weight = self.blocks[0].wide.weight


class Casting(Model):
    """Casts what its blocks compute."""

    def run(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().run(x).float()


class NoGrad(Model):
    """One of its blocks is evaluated without gradients."""

    def run(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.blocks[0](x)
        for block in self.blocks[1:]:
            x = block(x)
        return x


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * gradient


class Twice(Square):
    """Reads what it saved twice."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return ctx.saved_tensors[0] * gradient + ctx.saved_tensors[0] * gradient


class ReadTwice(Block):
    def forward(self, x: Tensor) -> Tensor:
        return x + Twice.apply(self.body(x))


class KeepingAll(Keeping):
    """Computes further after the kept value, which is recomputed, therefore."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(super().forward(x))


class KeepingDetached(Block):
    """Keeps its result detached."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        self.hidden = hidden.detach()
        return torch.tanh(x + hidden)


class Custom(Block):
    def forward(self, x: Tensor) -> Tensor:
        return x + Square.apply(self.body(x))


class InPlaceInside(Block):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(self.wide(x).relu_()).mul_(2)


class Returning(Block):
    """Returns a view of its argument and its own result."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, : WIDTH // 2], self.body(x)[:, WIDTH // 2 :]], 1)


# What is drawn: a block does some of these in turn. ``self`` is a ``Doing``.


def mean_in_place(self: Doing, x: Tensor) -> Tensor:
    with torch.no_grad():
        self.mean.mul_(0.9).add_(0.1 * x.mean(0))
    return x * (1 + self.mean.clone())


def mean_assigned(self: Doing, x: Tensor) -> Tensor:
    self.other = 0.9 * self.other + 0.1 * x.mean(0).detach()
    return x + self.other


def mean_of_parent(self: Doing, x: Tensor) -> Tensor:
    return x * self.parent[0].scale.clone()


def scale_of_parent(self: Doing, x: Tensor) -> Tensor:
    with torch.no_grad():
        self.parent[0].scale.mul_(1.01)
    return x


def averages_read(self: Doing, x: Tensor) -> Tensor:
    return x + self.norm.running_mean


def counted(self: Doing, x: Tensor) -> Tensor:
    self.count += 1
    return x + 0.01 * self.count


def kept(self: Doing, x: Tensor) -> Tensor:
    self.hidden = x.detach().tanh()
    return x


def appended(self: Doing, x: Tensor) -> Tensor:
    self.parent[0].seen.append(x.detach())
    return x + torch.stack(list(self.parent[0].seen)).mean(0)


def written(self: Doing, x: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(0.5)
    return x


DEEDS: dict[str, Callable[[Doing, Tensor], Tensor]] = {
    "linear": lambda self, x: self.narrow(F.gelu(self.wide(x))),
    "tanh": lambda self, x: torch.tanh(x),
    "own": lambda self, x: x + 0,
    "dropout": lambda self, x: F.dropout(x, 0.1),
    "in place": lambda self, x: (x * 2).relu_(),
    "batch norm": lambda self, x: self.norm(x),
    "spectral": lambda self, x: self.spectral(x),
    "old spectral": lambda self, x: self.old(x),
    "python": lambda self, x: x * (1 + random.random()),
    **{
        deed.__name__: deed
        for deed in (
            mean_in_place, mean_assigned, mean_of_parent, scale_of_parent, averages_read, counted,
            kept, appended, written,
        )
    },
}  # fmt: skip


class Doing(Block):
    """Performs some actions in turn."""

    mean: Tensor
    other: Tensor

    def __init__(self, deeds: Sequence[str]) -> None:
        super().__init__()
        self.deeds, self.count = deeds, 0
        self.parent: list[Any] = []
        self.norm = nn.BatchNorm1d(WIDTH)
        self.spectral = parametrized_spectral_norm(nn.Linear(WIDTH, WIDTH))
        self.old = spectral_norm(nn.Linear(WIDTH, WIDTH))
        for name in ("mean", "other"):
            self.register_buffer(name, torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        for deed in self.deeds:
            x = DEEDS[deed](self, x)
        return x


class Drawn(Model):
    """Blocks that perform randomly chosen actions; their shared state is here."""

    scale: Tensor

    def __init__(self, blocks: Sequence[Sequence[str]]) -> None:
        left = list(blocks)
        super().__init__(lambda: Doing(left.pop(0)), len(left))
        self.register_buffer("scale", torch.ones(WIDTH))
        self.seen: list[Tensor] = []
        for block in self.blocks:
            block.parent.append(self)

    def run(self, x: Tensor) -> Tensor:
        self.seen.clear()
        for block in self.blocks:
            x = torch.tanh(block(x + 0)) + x
        return x


Made = tuple[nn.Module, tuple[Any, ...]]


def rows(model: nn.Module) -> Made:
    """Return a model with rows to train it on."""
    return model.train(), (torch.randn(ROWS, WIDTH),)


# What is said of the blocks, "" if they may be wrapped; and how such a model is made.
TRAPS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "plain": ("", lambda: Model(Block)),
    "spectral norm": ("", lambda: Model(Spectral)),
    "old spectral norm": ("", lambda: Model(lambda: Spectral(spectral_norm))),
    "mean in place": ("", lambda: Model(InPlace)),
    "mean assigned": ("", lambda: Model(Assigned)),
    "written at the end": ("", lambda: Model(After)),
    "foreach": ("", lambda: Model(Foreach)),
    "tied buffers": ("", lambda: Model(Tied)),
    "codebook": ("", lambda: Model(Codebook)),
    "batch norm": ("", lambda: Model(Normed)),
    "batch norm, read": ("", lambda: Model(ReadNorm)),
    "batch norm and mean": ("", lambda: Model(NormAndMean)),
    "instance norm": ("", lambda: Model(InstanceNormed)),
    "own momentum": ("", lambda: Model(OwnNorm)),
    "own batch norm": ("", lambda: Model(Recursive)),
    "list": ("is passed a list (features) that its caller appends to afterwards", Lists),
    "list, last": ("is passed a list (features) that its caller appends to afterwards", LastOnly),
    "cache": ("adds to a dict passed to it (cache.values)", Cached),
    "appending": ("appends to a list passed to it (seen)", Appended),
    "written argument": ("which is written to", WrittenArgument),
    "written keyword": ("which is written to", WrittenKeyword),
    "cloned buffer": ("", WrittenBuffer),
    "parent writes": ("reads the buffer scale, which is written to", ParentWrites),
    "written weight": ("writes to the parameter", lambda: Model(WrittenWeight)),
    "max norm": ("writes to the parameter", lambda: Model(MaxNorm)),
    "constants": ("", lambda: Model(Constants)),
    "clock": ("passes other operands to aten.lift_fresh.default", lambda: Model(Clock)),
    "counting": ("changes count", lambda: Model(Counting)),
    "counting at the end": (
        "reads count, which changes in a step",
        lambda: Model(CountingAtTheEnd),
    ),
    "scaled": ("changes count", lambda: Model(Scaled)),
    "random": ("draws from Python's random numbers", lambda: Model(Drawing)),
    "numpy.random": ("draws from NumPy's random numbers", lambda: Model(DrawingNumPy)),
    "drawing outside": ("", lambda: DrawingOutside(Block)),
    "numpy's generator": ("draws from generator", lambda: Model(DrawingDefault)),
    "torch.Generator": ("draws from a torch.Generator", lambda: Model(DrawingTorch)),
    "filled": ("mask has changed by then", lambda: Model(Filled)),
    "previous": ("previous has changed by then", lambda: Model(Previous)),
    "global": ("changes global CALLS", lambda: Model(Global)),
    "global list": ("changes global SEEN", lambda: Model(GlobalList)),
    "of class": ("changes OfClass.calls", lambda: Model(OfClass)),
    "closure": ("changes calls", lambda: Model(closing)),
    "stepping": ("reads state['step'], which changes in a step (0, then 1)", Stepping),
    "flagging": ("changes active", lambda: Model(Flagging)),
    "keeping": ("", lambda: Model(Keeping)),
    "keeping and going on": ("", lambda: Model(KeepingAll)),
    "keeping detached": ("", lambda: Model(KeepingDetached)),
    "read twice": ("reads a saved tensor more than once", lambda: Model(ReadTwice)),
    "auxiliary": ("", Auxiliary),
    "hooks": ("", lambda: Model(hooked)),
    "dropout": ("", lambda: Model(Dropping)),
    "objects": ("", Objects),
    "keywords": ("", Keywords),
    "frozen": ("", lambda: Model(frozen)),
    "checkpoint inside": ("", lambda: Model(Checkpointing)),
    "shared weights": ("", SharedWeights),
    "autocast": ("", lambda: Casting(Block)),
    "no grad": ("", lambda: NoGrad(Block)),
    "custom function": ("", lambda: Model(Custom)),
    "in place inside": ("", lambda: Model(InPlaceInside)),
    "returning": ("", lambda: Model(Returning)),
}


def trap(name: str) -> Made:
    """Return a model with inputs, deterministically."""
    global CALLS
    CALLS = 0
    SEEN.clear()
    OfClass.calls = 0
    seeded(0)
    return rows(TRAPS[name][1]())


def seeded(seed: int) -> None:
    """Seed all random generators."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
