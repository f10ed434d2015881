"""PyTorch models whose forward has side effects on all reachable state, and tied models."""

from __future__ import annotations

import copy
import random
import warnings
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

WIDTH, ROWS = 4, 6
SEEN: list[Any] = []
LATEST: Any = None
CALLS = count()  # of forwards, which nobody can take back
INTERRUPTED: set[int] = set()  # at which of them to raise


class Interrupt(nn.Module):
    """The identity, which raises when told to."""

    error: type[BaseException] = KeyboardInterrupt

    def forward(self, x: Tensor) -> Tensor:
        if next(CALLS) in INTERRUPTED:
            raise self.error("interrupted")
        return x


class Trap(nn.Module):
    """Two layers, and ``write``, a side effect on the model, in between."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])
        self.interrupt = Interrupt()
        self.prepare()

    def prepare(self) -> None:
        """Add what there is to write to."""

    def write(self, x: Tensor) -> Tensor | None:
        """Write to the model; return what to go on with, if it is something else."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.layers[0](x))
        made = self.write(x)
        x = self.interrupt(x if made is None else made)
        return torch.tanh(self.layers[1](x)).square().mean()


class Attribute(Trap):
    def prepare(self) -> None:
        self.latest: Tensor | None = None

    def write(self, x: Tensor) -> None:
        self.latest, self.new = x, x * 2


class Deleted(Trap):
    def prepare(self) -> None:
        self.scratch = "here"

    def write(self, x: Tensor) -> None:
        if hasattr(self, "scratch"):
            del self.scratch


class Lists(Trap):
    def prepare(self) -> None:
        self.history: list[Any] = [[], ([],)]
        self.recent: deque[Any] = deque([1, 2], maxlen=2)

    def write(self, x: Tensor) -> None:
        self.history.append(x)
        self.history[0].insert(0, x)
        self.history[1][0].append(self.history)
        self.recent.append(x)


class Dicts(Trap):
    def prepare(self) -> None:
        self.cache: dict[str, Any] = {"a": {"b": [0]}, "c": 1}
        self.ordered = OrderedDict(a=1, b=2)
        self.counts, self.members = Counter(a=1), {"a"}

    def write(self, x: Tensor) -> None:
        self.cache["a"]["b"][0] = x
        self.cache["d"] = self.cache.pop("c")
        self.ordered.move_to_end("a")
        self.counts.update("ab")
        self.members.add("b")
        self.members.discard("a")


class CachedOnce(Trap):
    def prepare(self) -> None:
        self.cosines: Tensor | None = None
        self.calls = 0

    def write(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.cosines is None:
            self.cosines = torch.cos(torch.arange(WIDTH, dtype=x.dtype))
        return x * self.cosines


class Plain:
    """A plain object (no module), with slots as well."""

    shared: list[Any] = []  # noqa: RUF012  (the trap)
    total = 0

    def __init__(self) -> None:
        self.entries: list[Any] = []


class Slots:
    """An object without a dict."""

    __slots__ = ("later", "value")

    def __init__(self) -> None:
        self.value: Any = None


class Objects(Trap):
    def prepare(self) -> None:
        self.plain, self.slots = Plain(), Slots()

    def write(self, x: Tensor) -> None:
        self.plain.entries.append(x)
        self.plain.new = x  # type: ignore[attr-defined]
        self.plain.shared.append(x)
        Plain.total += 1
        self.slots.value = self.slots.later = x  # type: ignore[attr-defined]


class OfTheClass(Trap):
    calls = 0
    cache: dict[str, Any] = {}  # noqa: RUF012  (the trap)

    def write(self, x: Tensor) -> None:
        type(self).calls += 1
        type(self).latest = x  # type: ignore[attr-defined]
        self.cache["x"] = x


class Globals(Trap):
    def write(self, x: Tensor) -> None:
        global LATEST
        LATEST = x
        SEEN.append(x)


@lru_cache(maxsize=4)
def sines(length: int) -> Tensor:
    return torch.sin(torch.arange(length, dtype=torch.float32))


class CachedFunction(Trap):
    @lru_cache(maxsize=4)  # noqa: B019  (the trap)
    def cosines(self, length: int) -> Tensor:
        return torch.cos(torch.arange(length, dtype=torch.float32))

    def write(self, x: Tensor) -> Tensor:
        return x * sines(WIDTH) + self.cosines(WIDTH)


class Hooks(Trap):
    def prepare(self) -> None:
        kept: dict[str, Any] = {}
        latest = None

        def keep(module: nn.Module, args: Any, result: Any) -> None:
            nonlocal latest
            latest = kept["result"] = result

        self.layers[0].register_forward_hook(keep)
        self.layers[1].register_forward_pre_hook(partial(self.note, []))

    def note(self, noted: list[Any], module: nn.Module, args: Any) -> None:
        noted.append(args)

    def write(self, x: Tensor) -> None:
        self.layers[1].register_forward_hook(lambda module, args, result: result * 2)


class Arrays(Trap):
    def prepare(self) -> None:
        self.counts = np.zeros(3)

    def write(self, x: Tensor) -> None:
        self.counts[1:] += 1


class Drawing(Trap):
    def prepare(self) -> None:
        self.own = random.Random(0), np.random.default_rng(0), torch.Generator()

    def write(self, x: Tensor) -> Tensor:
        drawn = random.random() + np.random.rand() + self.own[0].random() + self.own[1].random()
        return nn.functional.dropout(x, 0.5) * (2 if drawn > 2 else 1)


class Dropping(Trap):
    def write(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5)


class Flags(Trap):
    def write(self, x: Tensor) -> None:
        self.layers[0].eval()
        self.training = False
        self.layers[0].weight.grad = None
        self.marked = True


class Modes(Trap):
    def write(self, x: Tensor) -> None:
        torch.set_default_dtype(torch.float64)


class NewParts(Trap):
    def write(self, x: Tensor) -> None:
        self.extra = nn.Identity()
        self.register_buffer("late", x.detach())
        self.layers.append(self.extra)


class Buffers(Trap):
    def prepare(self) -> None:
        self.register_buffer("running", torch.zeros(WIDTH))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64), persistent=False)

    def write(self, x: Tensor) -> None:
        self.running.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        self.steps += 1


class BuffersAnew(Trap):
    def prepare(self) -> None:
        self.register_buffer("running", torch.zeros(WIDTH))
        self.register_buffer("twin", self.running)

    def write(self, x: Tensor) -> None:
        self.running = self.twin = 0.9 * self.running + 0.1 * x.detach().mean(0)


class Normed(Trap):
    def prepare(self) -> None:
        self.norm = nn.BatchNorm1d(WIDTH)

    def write(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Checkpointed(Trap):
    def prepare(self) -> None:
        self.block = nn.Sequential(nn.LayerNorm(WIDTH), nn.Dropout(0.5))

    def write(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, x, use_reentrant=False)


class Recurrent(Trap):
    def prepare(self) -> None:
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.memory = torch.zeros(ROWS, WIDTH)

    def write(self, x: Tensor) -> Tensor:
        self.memory = self.cell(x, torch.zeros_like(x))
        return self.memory


class Named(Trap):
    """One module under two names, used by both."""

    def prepare(self) -> None:
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = self.first

    def write(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


class NamedTwice(Trap):
    """A whole sequence under several names, and its elements under more."""

    def prepare(self) -> None:
        block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
        self.blocks = nn.ModuleList([block, block, nn.Sequential(block, block[0])])
        self.alias = block[1]

    def write(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.alias(x)


class Tied(Trap):
    """The name that ``named_parameters`` gives is not the one that was assigned first."""

    def prepare(self) -> None:
        self.embedding = nn.Embedding(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.embedding.weight = self.head.weight
        self.layers[1].weight = self.head.weight
        self.everything = list(self.parameters())

    def write(self, x: Tensor) -> Tensor:
        return self.head(x) + self.embedding(torch.arange(ROWS) % WIDTH)


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight * 2


class TiedParametrized(Trap):
    def prepare(self) -> None:
        self.head = nn.Linear(WIDTH, WIDTH)
        parametrize.register_parametrization(self.head, "weight", Doubled())
        self.layers[1].weight = self.head.parametrizations.weight.original
        nn.utils.parametrizations.weight_norm(self.layers[0])
        self.layers[0].parametrizations.weight.original1 = self.layers[1].weight

    def write(self, x: Tensor) -> Tensor:
        return self.head(x)


class TiedHooked(Trap):
    """Norms of weights as hooks, which leave what they compute in attributes."""

    def prepare(self) -> None:
        self.head = nn.Linear(WIDTH, WIDTH)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nn.utils.weight_norm(self.head)
            nn.utils.spectral_norm(self.layers[0])
        self.layers[1].weight = self.head.weight_v

    def write(self, x: Tensor) -> Tensor:
        return self.head(x)


class Copied(Trap):
    """Two modules with the dicts of one."""

    def prepare(self) -> None:
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = copy.copy(self.first)

    def write(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


class Frozen(Trap):
    def prepare(self) -> None:
        self.layers[0].requires_grad_(False)
        self.layers[1].weight.grad = torch.ones(WIDTH, WIDTH)


TRAPS: dict[str, Callable[[], Trap]] = {
    kind.__name__: kind
    for kind in (
        Attribute, Deleted, Lists, Dicts, CachedOnce, Objects, OfTheClass, Globals, CachedFunction,
        Hooks, Arrays, Drawing, Dropping, Flags, Modes, NewParts, Buffers, BuffersAnew, Normed,
        Checkpointed, Recurrent, Named, NamedTwice, Tied, TiedParametrized, TiedHooked, Copied,
        Frozen,
    )
}  # fmt: skip


def trap(name: str, seed: int = 0) -> tuple[Trap, Tensor]:
    """Return a model by name, and an argument for it."""
    sines.cache_clear()
    torch.manual_seed(seed)
    return TRAPS[name](), torch.randn(ROWS, WIDTH)
