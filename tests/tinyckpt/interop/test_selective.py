"""Selective checkpointing: the predicted peak is the allocator's, gradients are plain."""

from copy import deepcopy
from functools import partial

import pytest

import tinyckpt as tc
from tests.conftest import require

require("torch")

import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from tests.torch_models import GPT, eager_step, example, tokens_for
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.selective import SAVED, Selective
from tinyckpt.interop.torch.workspace import allocator_peak

MISS = 0.001  # of the peak


def made() -> tuple[GPT, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return tokens_for(GPT(3, 32, 2, 64, rate=0.1), 8, 64)


def test_allocator_confirms_every_candidate_and_cheapest_within_budget_is_taken() -> None:
    model, args = made()
    names = tuple(f"blocks.{index}" for index in range(3))
    torch.manual_seed(1)
    plain, _ = allocator_peak(eager_step(model, args))
    expected = [parameter.grad for parameter in model.parameters()]
    fits = tct.selective(model, *args, budget=1.0, modules=names)
    assert (fits.modules, fits.cost) == ((), 1.0)
    assert abs(fits.peak - plain) <= MISS * plain
    assert [saved for saved, _, _ in fits.tried] == list(SAVED)
    peaks = {saved: peak for saved, peak, _ in fits.tried}
    assert peaks["nothing"] < peaks["attention"] < peaks["matrix products"]
    cheaper = tct.selective(model, *args, budget=peaks["attention"], modules=names)
    assert (cheaper.saved, cheaper.peak) == ("attention", peaks["attention"])
    for saved, peak, cost in fits.tried:
        own, _ = made()
        Selective("GPT", names, saved, peak, cost, plain, ()).apply(own)
        torch.manual_seed(1)
        measured, _ = allocator_peak(eager_step(own, args))
        assert abs(peak - measured) <= MISS * measured, saved
        for parameter, gradient in zip(own.parameters(), expected, strict=True):
            assert torch.equal(parameter.grad, gradient), saved


@pytest.mark.nightly
def test_selective_takes_cheapest_candidate_within_budget() -> None:
    model, args = made()
    every = tct.selective(model, *args, budget=1.0).tried
    peaks = {saved: peak for saved, peak, _ in every}
    costs = {saved: cost for saved, _, cost in every}
    assert costs["matrix products and attention"] < costs["attention"] < costs["nothing"]
    for budget in peaks.values():
        found = tct.selective(model, *args, budget=budget)
        assert found.peak <= budget
        assert found.cost == min(costs[saved] for saved in peaks if peaks[saved] <= budget)
    with pytest.raises(tc.BudgetError, match="the smallest peak of 4 choices of what to save") as e:
        tct.selective(model, *args, budget=min(peaks.values()) - 1)
    assert e.value.smallest == min(peaks.values())


def test_advice_is_compiled() -> None:
    model, args = tokens_for(GPT(3, 32, 2, 64, rate=0.0), 8, 64)
    loss = model(*args)
    loss.backward()
    found = tct.selective(model, *args, budget="60 %", workspace=False)
    assert found.modules
    torch.compiler.reset()
    compiled = torch.compile(found.apply(deepcopy(model)), backend="aot_eager")
    compiled.zero_grad()
    again = compiled(*args)
    again.backward()
    torch.testing.assert_close(again, loss)
    for one, other in zip(compiled.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    torch.compiler.reset()


def test_selective_policy_is_accepted_by_pytorch() -> None:
    model, args = made()
    advice = Selective("GPT", ("blocks.0",), "attention", 0, 1.0, 0, ())
    contexts = partial(create_selective_checkpoint_contexts, advice.policy)
    block = model.blocks[0]
    block.forward = partial(checkpoint, block.forward, use_reentrant=False, context_fn=contexts)
    by_hand, _ = allocator_peak(eager_step(model, args))
    other, _ = made()
    applied, _ = allocator_peak(eager_step(advice.apply(other), args))
    assert by_hand == applied


def test_running_averages_are_updated_once_per_step() -> None:
    model, args = example("ResNet")
    names = ("body.0", "body.1")
    Selective("ResNet", names, "matrix products", 0, 1.0, 0, ()).apply(model)
    eager_step(model, args)()
    plain, _ = example("ResNet")
    eager_step(plain, args)()
    for name, value in plain.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name


class InPlace(torch.nn.Module):
    """A layer whose results are written in place, so that they cannot be saved."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for first, second in zip(self.layers[::2], self.layers[1::2], strict=True):
            x = second(torch.nn.functional.relu(first(x), inplace=True))
        return x


class Loss(torch.nn.Module):
    """Two such layers, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(InPlace(), InPlace())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


def test_results_written_in_place_are_not_saved() -> None:
    model, x = Loss(), torch.randn(32, 64)
    names = ("layers.0", "layers.1")
    advice = tct.selective(model, x, budget=1.0, modules=names)
    assert [saved for saved, _, _ in advice.tried] == ["nothing", "attention"]
    assert [what for what, _ in advice.refused] == [
        "results of matrix products", "results of matrix products and attention"
    ]  # fmt: skip
    assert "has been mutated" in str(advice)
