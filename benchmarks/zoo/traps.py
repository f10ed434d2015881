"""Adversarial PyTorch models: each has a feature that breaks planning, capture or checkpointing."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (as all of its users call it)
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils import spectral_norm as hooked_spectral_norm
from torch.utils.checkpoint import checkpoint

from benchmarks.zoo.entry import Entry, Example

VOCABULARY = 100
WIDTH = 32
BATCH, LENGTH = 4, 32


def tokens(length: int = LENGTH) -> tuple[Tensor, Tensor]:
    """Return tokens and labels."""
    drawn = torch.randint(VOCABULARY, (2, BATCH, length))
    return drawn[0], drawn[1]


def vectors(rows: int = 64) -> tuple[Tensor]:
    """Return rows of features."""
    return (torch.randn(rows, WIDTH),)


def images(channels: int = 3, size: int = 16) -> tuple[Tensor]:
    """Return images."""
    return (torch.randn(BATCH, channels, size, size),)


def perceptron(inner: nn.Module | None = None) -> nn.Sequential:
    """Return two layers with a nonlinearity."""
    return nn.Sequential(
        nn.Linear(WIDTH, 4 * WIDTH), inner or nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
    )


class Chain(nn.Module):
    """Blocks in a row, and the mean square of what comes out of them."""

    def __init__(self, *blocks: nn.Module, residual: bool = True) -> None:
        super().__init__()
        self.blocks, self.residual = nn.ModuleList(blocks), residual

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x) if self.residual else block(x)
        return x.square().mean()


def chain(make: Any, count: int = 4, rows: int = 64) -> Example:
    """Return a chain of blocks of one kind, and rows of features for it."""
    return Chain(*(make() for _ in range(count))), vectors(rows)


# Parameters under several names ------------------------------------------------------------------


class Language(nn.Module):
    """A language model: embedding, blocks, head."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, given: Tensor, labels: Tensor) -> Tensor:
        x = self.tokens(given)
        for block in self.blocks:
            x = x + block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def tied() -> Example:
    """The head's weight is the embedding's."""
    model = Language([perceptron() for _ in range(3)])
    model.head.weight = model.tokens.weight
    return model, tokens()


def tied_backwards() -> Example:
    """The embedding's weight is the head's, and the model has it under a name of its own, too."""
    model = Language([perceptron() for _ in range(3)])
    model.tokens.weight = model.head.weight
    model.every = model.head.weight
    return model, tokens()


def tied_blocks() -> Example:
    """Two pairs of weights are tied between blocks, one of them transposed where it is used."""

    class Transposed(nn.Module):
        def __init__(self, weight: nn.Parameter) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(x @ self.weight) @ self.weight.T

    first, second = perceptron(), perceptron()
    second[0].weight, second[2].bias = first[0].weight, first[2].bias
    return Chain(first, Transposed(nn.Parameter(torch.randn(WIDTH, 64) / 8)), second), vectors()


def tied_parametrized() -> Example:
    """A tied weight is normalised by parametrisations of two modules."""
    first, second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    second.weight = first.weight

    class Doubled(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return weight + weight.tanh()

    for layer in (first, second):
        parametrize.register_parametrization(layer, "weight", Doubled())
    return Chain(nn.Sequential(first, nn.Tanh()), nn.Sequential(second, nn.Tanh())), vectors()


class TwoNames(nn.Module):
    """A module is registered under two names, as ``cpe1`` in timm's CoaT, and called by each."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(perceptron() for _ in range(3))
        for block in self.blocks:
            block.position = self.position
        self.first = self.blocks[0]

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            position = block.position(x)
            x = x + block[2](block[1](block[0](position)))
        return x.square().mean()


# Arguments and attributes that change ------------------------------------------------------------


class Listed(nn.Module):
    """Each block is handed the list of all earlier results, which its caller appends to."""

    def __init__(self) -> None:
        super().__init__()

        class Layer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.part = perceptron()

            def forward(self, found: list[Tensor]) -> Tensor:
                return self.part(torch.stack(found).sum(0)).tanh()

        self.blocks = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for block in self.blocks:
            found.append(block(found))
        return torch.stack(found).square().mean()


class Cached(nn.Module):
    """Each block appends to the list that it is handed, and reads it first."""

    def __init__(self) -> None:
        super().__init__()

        class Layer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.part = perceptron()

            def forward(self, x: Tensor, cache: list[Tensor]) -> Tensor:
                x = x + self.part(torch.stack([x, *cache]).mean(0)).tanh()
                cache.append(x)
                return x

        self.blocks = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        cache: list[Tensor] = []
        for block in self.blocks:
            x = block(x, cache)
        return x.square().mean()


class CrossCached(nn.Module):
    """The first block fills a dict, the others read it, as caches of cross attention do."""

    def __init__(self) -> None:
        super().__init__()

        class Layer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.part, self.key = perceptron(), nn.Linear(WIDTH, WIDTH)

            def forward(self, x: Tensor, cache: dict[str, Tensor]) -> Tensor:
                if "key" not in cache:
                    cache["key"] = self.key(x)
                return x + self.part(x * cache["key"])

        self.blocks = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        cache: dict[str, Tensor] = {}
        for block in self.blocks:
            x = block(x, cache)
        return x.square().mean()


class Attributed(nn.Module):
    """Blocks write to attributes; the model adds up what they left there, with gradients."""

    def __init__(self) -> None:
        super().__init__()

        class Layer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.part, self.penalty, self.seen = perceptron(), None, None

            def forward(self, x: Tensor) -> Tensor:
                y = self.part(x)
                self.penalty, self.seen = y.abs().mean(), y.detach()
                return x + y

        self.blocks = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x.square().mean() + sum(block.penalty for block in self.blocks)


class Counting(nn.Module):
    """A block counts its calls in an attribute, and its scale follows from the count."""

    def __init__(self) -> None:
        super().__init__()

        class Layer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.part, self.calls = perceptron(), 0

            def forward(self, x: Tensor) -> Tensor:
                self.calls += 1
                return x + self.part(x) * (1 + 1 / self.calls)

        self.blocks = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


# Buffers written in forward ----------------------------------------------------------------------


class RunningMean(nn.Module):
    """A norm of one's own: its mean is moved in place, and subtracted."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.part = perceptron()

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.part(x - self.mean)


class Codebook(nn.Module):
    """Rows are replaced by the nearest of a codebook, which follows them, by assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randn(16, WIDTH))
        self.register_buffer("counts", torch.ones(16))
        self.part = perceptron()

    def forward(self, x: Tensor) -> Tensor:
        x = self.part(x)
        with torch.no_grad():
            chosen = torch.cdist(x, self.codes).argmin(1)
            one_hot = F.one_hot(chosen, 16).to(x.dtype)
            self.counts = 0.9 * self.counts + 0.1 * one_hot.sum(0)
            self.codes = 0.9 * self.codes + 0.1 * (one_hot.T @ x) / self.counts[:, None]
        code = self.codes[chosen]
        return x + (code - x).detach() + (code - x).tanh()


class Shared(nn.Module):
    """A buffer that all blocks have in common, and write to."""

    def __init__(self, total: Tensor) -> None:
        super().__init__()
        self.register_buffer("total", total)
        self.part = perceptron()

    def forward(self, x: Tensor) -> Tensor:
        y = self.part(x * (1 + self.total))
        with torch.no_grad():
            self.total += y.abs().mean() / 100
        return y


def shared_buffer() -> Example:
    """One buffer in all blocks."""
    total = torch.zeros(())
    return Chain(*(Shared(total) for _ in range(4))), vectors()


class LazyPositions(nn.Module):
    """A table of cosines is made in the first forward, and kept as a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", None, persistent=False)
        self.part = perceptron()

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None or len(self.table) < len(x):
            places = torch.arange(len(x), dtype=x.dtype, device=x.device)
            self.table = torch.cos(places[:, None] / torch.arange(1, x.shape[1] + 1))
        return self.part(x * self.table[: len(x)])


def normed(momentum: float | None, parametrized: bool = True) -> nn.Module:
    """Return a block of convolutions with batch norm."""
    return nn.Sequential(
        nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8, momentum=momentum), nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, 3, padding=1), nn.InstanceNorm2d(8, affine=True, track_running_stats=True),
    )  # fmt: skip


def spectral(make: Any) -> Example:
    """Return a chain of perceptrons with spectral norms."""
    return chain(lambda: nn.Sequential(make(nn.Linear(WIDTH, 64)), nn.Tanh(), nn.Linear(64, WIDTH)))


# Operators ---------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """LSTM and GRU, in two directions, between perceptrons."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.memory = nn.LSTM(
            WIDTH, WIDTH, num_layers=2, batch_first=True, bidirectional=True, dropout=dropout
        )
        self.gated = nn.GRU(2 * WIDTH, WIDTH, batch_first=True)
        self.part = perceptron()
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, given: Tensor, labels: Tensor) -> Tensor:
        x, _ = self.memory(self.tokens(given))
        x, _ = self.gated(x)
        return F.cross_entropy(self.head(self.part(x)).flatten(0, 1), labels.flatten())


class Dropouts(nn.Module):
    """Everything that drops, in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(perceptron(), part)
            for part in (
                nn.Dropout(0.2), nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2), nn.RReLU(),
                nn.Dropout(0.1, inplace=True),
            )
        )  # fmt: skip
        self.attention = nn.MultiheadAttention(WIDTH, 4, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = x + part(x)
        y = x.view(4, -1, x.shape[1])
        x = y + self.attention(y, y, y, need_weights=False)[0]
        x = x + torch.randn_like(x) * x.std() + F.gumbel_softmax(x, hard=True)
        return F.dropout1d(x, 0.1).square().mean()


class Cube(torch.autograd.Function):
    """A cube of what is clipped, and that saves what it was given and what it made."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.clamp(-2, 2) ** 3
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        return given * (3 * x**2).clamp(max=1) * (y.abs() < 4)


class Custom(nn.Module):
    """A custom autograd function between layers."""

    def forward(self, x: Tensor) -> Tensor:
        return Cube.apply(x)


class InPlace(nn.Module):
    """Everything that can be is written in place: sums, activations, slices."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = F.leaky_relu_(self.first(x), 0.1)
        z = self.second(y).relu_() * 1.0
        z[:, ::2] *= 2
        z[z < 0.5] = 0.25
        return z.clone().add_(x)


class Lists(nn.Module):
    """Parameters in lists and dicts, one of them never used, one of no dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(WIDTH, WIDTH) / 6 for _ in range(4))
        self.biases = nn.ParameterDict({"a": torch.zeros(WIDTH), "never": torch.zeros(3)})
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = x + torch.tanh(x @ weight + self.biases["a"]) * self.scale
        return x.square().mean()


def frozen() -> Example:
    """The first and the third of five blocks do not learn; a bias here and there does not."""
    model, args = chain(perceptron, 5)
    for index in (0, 2):
        model.blocks[index].requires_grad_(False)
    model.blocks[3][0].bias.requires_grad_(False)
    return model, args


class Nested(nn.Module):
    """A block that calls itself, and in that one that is called several times."""

    def __init__(self) -> None:
        super().__init__()
        self.part = perceptron()

    def forward(self, x: Tensor, depth: int = 2) -> Tensor:
        x = self.part(x).tanh()
        return self(x, depth - 1) if depth else x


class Albert(nn.Module):
    """One block, called four times, beside one that is called once."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.nested = perceptron(), perceptron(), Nested()

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for _ in range(4):
            x = x + self.again(x)
        return self.nested(x).square().mean()


class Experts(nn.Module):
    """A mixture of experts: all are evaluated, and the router's two best are weighed."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4, bias=False)
        self.experts = nn.ModuleList(perceptron() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2)
        shares = torch.zeros(len(x), 4).scatter(1, chosen, weights)
        return sum(
            expert(x) * share[:, None]
            for expert, share in zip(self.experts, shares.unbind(1), strict=True)
        )


class RoutedExperts(Experts):
    """A mixture of experts of which each sees the rows that are sent to it."""

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.router(x).argmax(-1)
        y = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows = (chosen == index).nonzero()[:, 0]
            y = y.index_add(0, rows, expert(x[rows]))
        return y + self.router(x).square().mean()


class Checkpointed(nn.Module):
    """A block that is under a checkpoint of its own already; it drops."""

    def __init__(self, reentrant: bool = False) -> None:
        super().__init__()
        self.part = perceptron(nn.Dropout(0.2))
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.part, x, use_reentrant=self.reentrant)


class Autocast(nn.Module):
    """Products in bfloat16, norms as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.norm = perceptron(), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.norm(self.part(x)).to(x.dtype)


class Fourier(nn.Module):
    """A filter in the frequencies, with complex weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH // 2 + 1, dtype=torch.complex64) / 4)
        self.part = perceptron()

    def forward(self, x: Tensor) -> Tensor:
        y = torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=x.shape[-1])
        return self.part(y) + torch.polar(x.abs(), y).real


# Randomness that no generator of PyTorch's own gives back -----------------------------------------


class Depth(nn.Module):
    """Stochastic depth by numbers of PyTorch's, one for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.part = perceptron()

    def forward(self, x: Tensor) -> Tensor:
        kept = torch.empty(len(x), 1).bernoulli_(0.8)
        return self.part(x) * kept / 0.8


class PythonDepth(Depth):
    """Stochastic depth by Python's random numbers: another program in each step."""

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x * (random.random() + 0.5))


class OwnGenerator(Depth):
    """Noise from a generator of the module's own, whose state no checkpoint knows."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x * torch.rand(x.shape, generator=self.generator))


# Gradients within, and such as are not plain tensors ----------------------------------------------


class Penalty(nn.Module):
    """A gradient in the loss: backward goes through it a second time."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = Chain(perceptron(nn.Tanh()), perceptron(nn.Tanh()))

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        score = self.critic(x)
        (slope,) = torch.autograd.grad(score, x, create_graph=True)
        return score + (slope.norm(2, 1) - 1).square().mean()


class Teacher(nn.Module):
    """A student, and a teacher that is its moving average, moved in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.student = Chain(perceptron(), perceptron()).blocks
        self.teacher = Chain(perceptron(), perceptron()).blocks
        self.teacher.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            pairs = zip(self.teacher.parameters(), self.student.parameters(), strict=True)
            for old, new in pairs:
                old.lerp_(new, 0.1)
            goal = x
            for block in self.teacher:
                goal = goal + block(goal)
        for block in self.student:
            x = x + block(x)
        return F.mse_loss(x, goal)


class Hooked(nn.Module):
    """Hooks of all kinds: before and after forward, on gradients, on a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(perceptron() for _ in range(3))
        self.blocks[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        self.blocks[1].register_forward_hook(lambda module, args, result: result + 1)
        self.blocks[2][0].register_full_backward_hook(lambda module, into, out: (into[0] * 2,))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x.square().mean()


def sparse() -> Example:
    """An embedding with a sparse gradient."""
    model = Language([perceptron() for _ in range(2)])
    model.tokens = nn.Embedding(VOCABULARY, WIDTH, sparse=True)
    return model, tokens()


def renormed() -> Example:
    """An embedding that shortens its rows in place when they are read."""
    model = Language([perceptron() for _ in range(2)])
    model.tokens = nn.Embedding(VOCABULARY, WIDTH, max_norm=1.0, padding_idx=0)
    return model, tokens()


def encoder() -> Example:
    """PyTorch's own transformer, with dropout."""

    class Encoded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.1, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.encoder(x).square().mean()

    return Encoded(), (torch.randn(BATCH, LENGTH, WIDTH),)


def hidden_tensor() -> Example:
    """A tensor that is no buffer is read in forward."""

    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part, self.scale = perceptron(), torch.ones(WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            return self.part(x * self.scale)

    return chain(Hidden)


def convolutions(make: Any) -> Example:
    """Return a chain of blocks of convolutions, and images for it."""
    return Chain(*(make() for _ in range(4))), images(8)


# An entry a model; what is expected of it beside it.
TRAPS: dict[str, Entry] = {
    "tied": Entry(tied),
    "tied backwards, three names": Entry(tied_backwards),
    "tied blocks": Entry(tied_blocks),
    "tied and parametrised": Entry(tied_parametrized),
    "module under two names": Entry(
        lambda: (TwoNames(), vectors()), wraps=False, reason="all blocks have a module in common"
    ),
    "list that grows": Entry(
        lambda: (Listed(), vectors()), wraps=False, reason="the caller appends to the list"
    ),
    "cache that blocks fill": Entry(
        lambda: (Cached(), vectors()), wraps=False, reason="all blocks append to the list"
    ),
    "cache that the first block fills": Entry(lambda: (CrossCached(), vectors())),
    "attributes written": Entry(lambda: (Attributed(), vectors())),
    "attributes that count": Entry(
        lambda: (Counting(), vectors()), wraps=False, traced="computes something else when",
        reason="a plan would go on with the count that was traced",
    ),
    "spectral norm, by hook": Entry(lambda: spectral(hooked_spectral_norm)),
    "spectral norm, parametrised": Entry(lambda: spectral(parametrizations.spectral_norm)),
    "weight norm, parametrised": Entry(lambda: spectral(parametrizations.weight_norm)),
    "buffer moved in place": Entry(lambda: chain(RunningMean)),
    "codebook by assignment": Entry(
        lambda: chain(Codebook), peak=8448,
        reason="the old buffers are freed, which the profiler does not see of the first step",
    ),
    "buffer in all blocks": Entry(
        shared_buffer, wraps=False, reason="other blocks write to the buffer in between"
    ),
    "buffer made in the first forward": Entry(
        lambda: chain(LazyPositions), wraps=False, apart=math.inf,
        reason="a plan's step leaves it to forward to make the buffer",
    ),
    "batch norm without momentum": Entry(
        lambda: convolutions(lambda: normed(None)), traced="_local_scalar_dense",
        reason="PyTorch reads the number of batches",
    ),
    "batch and instance norm": Entry(lambda: convolutions(lambda: normed(0.3))),
    "LSTM and GRU": Entry(
        lambda: (Recurrent(), tokens(6)), apart=1e-6,
        reason="a plan evaluates cell by cell, plain PyTorch all in one kernel",
    ),
    "dropouts": Entry(
        lambda: (Dropouts(), vectors()), planned=1404, reason="store-all's peak: not found out"
    ),
    "custom function": Entry(lambda: chain(lambda: perceptron(Custom()))),
    "in place": Entry(
        lambda: chain(InPlace), wraps=False, peak=32,
        reason="numbers written to slices and masks are tensors that are made anew",
    ),
    "parameters in lists": Entry(
        lambda: (Lists(), vectors()), wraps=False, reason="there are no modules in it"
    ),
    "frozen layers": Entry(frozen),
    "one block, many calls": Entry(lambda: (Albert(), vectors())),
    "experts, all evaluated": Entry(lambda: chain(Experts)),
    "experts by route": Entry(
        lambda: chain(RoutedExperts), traced="DynamicOutputShapeException: aten.nonzero",
        advised="DynamicOutputShapeException: aten.nonzero",
        reason="shapes depend on the numbers in tensors",
    ),
    "checkpoint inside": Entry(
        lambda: chain(Checkpointed), wraps=False, reason="the blocks are checkpointed already"
    ),
    "reentrant checkpoint inside": Entry(
        lambda: chain(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), Checkpointed(True))),
        wraps=False, traced="use_reentrant=True", reason="the blocks are checkpointed already",
    ),
    "autocast": Entry(lambda: chain(Autocast)),
    "complex": Entry(lambda: chain(Fourier)),
    "stochastic depth": Entry(lambda: chain(Depth)),
    "Python's random numbers": Entry(
        lambda: chain(PythonDepth), wraps=False, traced="draws random numbers from random, which",
        reason="neither a plan nor a checkpoint would draw them again",
    ),
    "generator of its own": Entry(
        lambda: chain(OwnGenerator), wraps=False, traced="is a generator of its own",
        reason="neither a plan nor a checkpoint would draw from it again",
    ),
    "gradient in the loss": Entry(
        lambda: (Penalty(), vectors()), advised="forward differentiates by itself",
        reason="advice needs the step to be the only one that differentiates",
    ),
    "moving teacher": Entry(
        lambda: (Teacher(), vectors()), planned=512, reason="the peak of a plan: not found out"
    ),
    "hooks": Entry(lambda: (Hooked(), vectors())),
    "sparse gradient": Entry(
        sparse, traced="layout torch.sparse_coo", advised="layout torch.sparse_coo",
        reason="its bytes depend on the numbers in tensors",
    ),
    "embedding with max_norm": Entry(
        renormed, traced="forward writes to its parameter tokens.weight",
        reason="the parameter is written to within the step",
    ),
    "transformer of PyTorch": Entry(encoder),
    "tensor that is no buffer": Entry(
        hidden_tensor, traced="no parameter, no buffer and no argument, such as blocks.0.scale",
        reason="a capture does not know of it",
    ),
}  # fmt: skip
