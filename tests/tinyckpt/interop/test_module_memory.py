"""Memory per module: totals are those of ``estimate``, rows those of a step that runs."""

import random
from collections import Counter
from functools import partial
from typing import Any

import pytest

from tests.conftest import require

require("torch")

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from tests.torch_models import EXAMPLES, eager_step, example
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.workspace import allocator_peak

# Some of each kind, small.
ZOO = (
    "tied", "tied and parametrised", "module under two names", "list that grows",
    "spectral norm, parametrised", "batch and instance norm", "LSTM and GRU", "dropouts",
    "custom function", "in place", "frozen layers", "one block, many calls", "checkpoint inside",
    "autocast", "transformer of PyTorch", "ShuffleNetV2", "GPT-2", "Llama", "BERT", "Mixtral",
)  # fmt: skip


class Residual(nn.Module):
    """A sum of what goes through a module and what does not."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


def random_net(seed: int) -> tuple[nn.Module, torch.Tensor]:
    """Return a network of nested sequences, residual, shared and frozen modules, and an input."""
    drawn, width = random.Random(seed), 8
    shared = nn.Linear(width, width)

    def module(depth: int) -> nn.Module:
        kind = drawn.randrange(7 if depth else 5)
        if kind == 0:
            return nn.Sequential(nn.Linear(width, 3 * width), nn.Linear(3 * width, width))
        if kind == 1:
            return drawn.choice([nn.Tanh, nn.GELU, nn.Identity, partial(nn.Dropout, 0.5)])()
        if kind == 2:
            return nn.LayerNorm(width)
        if kind == 3:
            return shared
        if kind == 4:
            return nn.Linear(width, width).requires_grad_(drawn.random() < 0.5)
        inner = nn.Sequential(*(module(depth - 1) for _ in range(drawn.randrange(1, 4))))
        return inner if kind == 5 else Residual(inner)

    torch.manual_seed(seed)
    parts = [nn.Linear(width, width), *(module(2) for _ in range(drawn.randrange(2, 6)))]
    return nn.Sequential(*parts), torch.randn(drawn.randrange(1, 33), width)


def check_totals(model: nn.Module, *args: Any, **options: Any) -> tct.MemoryByModule:
    """Return the table of a model, after its totals were compared with its estimate."""
    estimate = tct.estimate(model, *args, **options)
    found = tct.memory_by_module(model, *args, **options)
    assert found.peak == estimate.peak
    assert found.rows[0].flops == estimate.flops
    assert found.source_bytes == estimate.source_bytes
    assert [row.name for row in found.rows] == [name for name, _ in model.named_modules()]
    for row in found.rows[1:]:
        assert row.forward_peak <= found.rows[0].forward_peak
        assert row.backward_peak <= found.rows[0].backward_peak
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("name", EXAMPLES)
def test_totals_are_those_of_the_estimate(name: str) -> None:
    model, args = example(name)
    check_totals(model, *args, workspace=name == "GPT")


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("name", ZOO)
def test_totals_of_zoo_models_are_those_of_the_estimate(name: str) -> None:
    for each in ("torchvision", "transformers"):
        require(each)
    from benchmarks.zoo import MODELS

    model, args = MODELS[name].made()
    found = check_totals(model, *args, workspace=False)
    eager_step(model, args)()
    assert found.rows[0].gradients == sum(
        p.grad.nbytes for p in model.parameters() if p.grad is not None
    )


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(12))
def test_rows_of_random_networks_are_what_a_step_saves(seed: int) -> None:
    model, x = random_net(seed)
    found = check_totals(model, x, loss=torch.mean, workspace=False)
    saved, gradients = saved_in_a_step(model, x)
    for row in found.rows:
        assert (row.saved, row.gradients) == (saved[row.name], gradients[row.name]), row.name


def saved_in_a_step(model: nn.Module, x: torch.Tensor) -> tuple[Counter[str], Counter[str]]:
    """Run a step; return the bytes that autograd saves and the gradients' bytes, per module."""
    running, saved, gradients = [""], Counter[str](), Counter[str]()
    sources = {value.untyped_storage().data_ptr() for value in (x, *model.parameters())}
    kept = []

    def pack(value: torch.Tensor) -> torch.Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in sources:
            sources.add(storage.data_ptr())
            kept.append(value)  # so that no other storage gets its address
            add(saved, running[-1], storage.nbytes())
        return value

    handles = []
    for name, module in model.named_modules():
        push = partial(lambda name, *_: running.append(name), name)
        handles += [
            module.register_forward_pre_hook(push),
            module.register_forward_hook(lambda *_: running.__delitem__(-1)),
        ]
    with saved_tensors_hooks(pack, lambda value: value):
        model(x).mean().backward()
    for handle in handles:
        handle.remove()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            add(gradients, name.rpartition(".")[0], parameter.grad.nbytes)
    return saved, gradients


def add(totals: Counter[str], name: str, size: int) -> None:
    """Add bytes to a module and those that it lies in."""
    while name:
        totals[name] += size
        name = name.rpartition(".")[0]
    totals[""] += size


def test_forward_peak_is_what_the_allocator_gives_out() -> None:
    model, args = example("GPT")
    peak, _ = allocator_peak(lambda: model(*args))
    assert tct.memory_by_module(model, *args).rows[0].forward_peak == peak


def two_layers() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), torch.ones(16, 4)


def test_rows_of_two_layers_by_hand() -> None:
    model, x = two_layers()
    found = tct.memory_by_module(model, x, loss=torch.mean, workspace=False)
    hidden, out, scalar = 16 * 8 * 4, 16 * 4, 4
    weights, others = 4 * (4 * 8 + 8), 4 * (8 + 1)
    model_row, first, tanh, second = found.rows
    # The result of tanh is saved by it, and by the layer after it, where it counts no more.
    assert [row.saved for row in found.rows] == [hidden, 0, hidden, 0]
    assert [row.gradients for row in found.rows] == [weights + others, weights, 0, others]
    # The first layer's result lives until tanh has read it.
    assert (first.forward_peak, tanh.forward_peak) == (hidden, 2 * hidden)
    assert second.forward_peak == hidden + out
    assert model_row.forward_peak == 2 * hidden
    # In the backward pass of tanh: its result, the gradients of both sides, the second layer's,
    # the loss and the number 1 with which the pass begins.
    assert tanh.backward_peak == 3 * hidden + others + 2 * scalar
    assert first.flops == 2 * 2 * 16 * 4 * 8  # the input needs no gradient
    assert second.flops == 3 * 2 * 16 * 8 * 1


def test_recomputation_counts_in_the_module_that_is_recomputed() -> None:
    layers, x = two_layers()
    model = nn.Sequential(layers)
    plain = tct.memory_by_module(model, x, loss=torch.mean, workspace=False)
    model[0].forward = partial(checkpoint, model[0].forward, use_reentrant=False)
    found = check_totals(model, x, loss=torch.mean, workspace=False)
    again = [row.flops - before.flops for row, before in zip(found.rows, plain.rows, strict=True)]
    assert again == [2 * 16 * 4 * 8] * 3 + [0, 0]  # it ends when all that was saved is back


def test_table_has_a_row_per_module_down_to_a_depth() -> None:
    model, args = example("GPT")
    found = tct.memory_by_module(model, *args, workspace=False)
    assert str(found) == found.table(3)
    lines = found.table(1).splitlines()
    assert [line.split()[0] for line in lines] == [
        "module", "GPT", *(name for name, _ in model.named_children())
    ]  # fmt: skip
    assert len(found.table(2).splitlines()) > len(lines)
    assert found._repr_html_().count("<tr>") == len(str(found).splitlines())
