"""State and temporaries of optimizers, predicted without data, are what the allocator hands out."""

from typing import Any

import pytest

from tests.conftest import require

require("torch")

import torch
from torch import Tensor, nn

import tinyckpt as tc
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.optimizer_memory import optimizer_bytes

SCALARS = 64  # bytes: Python numbers as tensors


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 64, bias=False), nn.LayerNorm(64))


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    name: (name, {})
    for name in (
        "SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta", "NAdam", "RAdam", "Adamax",
        "ASGD", "Rprop",
    )
} | {
    "momentum": ("SGD", {"momentum": 0.9}),
    "Adam, decay": ("Adam", {"weight_decay": 0.1}),
    "AdamW, foreach": ("AdamW", {"foreach": True}),
    "AdamW, fused": ("AdamW", {"fused": True}),
    "AdamW, amsgrad": ("AdamW", {"amsgrad": True, "maximize": True}),
    "SGD, foreach": ("SGD", {"foreach": True, "momentum": 0.9, "weight_decay": 0.1}),
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES)
def test_state_and_temporaries_are_the_allocators(case: str) -> None:
    name, options = CASES[case]
    model = net()
    model[2].weight.requires_grad_(False)
    made = getattr(torch.optim, name)(model.parameters(), lr=1e-3, **options)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    before = [parameter.clone() for parameter in model.parameters()]
    found = optimizer_bytes(made, model)
    assert all(map(torch.equal, before, model.parameters()))
    made.step()
    state = sum(x.nbytes for each in made.state.values() for x in each.values() if is_tensor(x))
    peak, _ = tct.allocator_peak(made.step)
    assert found[0] == state
    assert abs(found[1] - peak) <= SCALARS
    if not options:
        assert optimizer_bytes(name, model) == found


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def test_budget_counts_the_optimizer() -> None:
    """Of a model with few activations its step is the peak."""
    model, x = net(), torch.randn(2, 64)
    given: dict[str, Any] = {"loss": torch.mean, "workspace": False}
    weights = sum(p.nbytes for p in model.parameters())
    advice = tct.advise(model, x, budget="4 MiB total", optimizer="AdamW", **given)
    state, temporaries = optimizer_bytes("AdamW", model)
    assert dict(advice.resident) == {
        "parameters": weights, "buffers": 0, "arguments": x.nbytes, "gradient buckets": 0,
        "optimizer state": state,
    }  # fmt: skip
    assert advice.peak == advice.plain_peak == weights + temporaries
    plain = tct.advise(model, x, budget="4 MiB total", **given)
    assert plain.peak < advice.peak
    total = advice.peak + weights + x.nbytes + state
    assert tct.advise(model, x, budget=f"{total} bytes total", optimizer="AdamW", **given).peak
    with pytest.raises(tc.BudgetError):
        tct.advise(model, x, budget=f"{total - 1} bytes total", optimizer="AdamW", **given)
    assert advice.ledger == LEDGER


LEDGER = """\
at the peak                              now    advised
parameters                         129.5 KiB  129.5 KiB
arguments                              512 B      512 B
optimizer state                    259.0 KiB  259.0 KiB
activations, gradients, workspace  258.5 KiB  258.5 KiB
total                              647.5 KiB  647.5 KiB"""


def test_unknown_optimizer_is_refused() -> None:
    with pytest.raises(tc.GraphError, match=r"optimizer='Adamw' is no class of torch.optim"):
        optimizer_bytes("Adamw", net())
    with pytest.raises(tc.GraphError, match="takes no step without data: TypeError"):
        optimizer_bytes("LBFGS", net())
    with pytest.raises(tc.GraphError, match="takes no step without data: DataDependent"):
        optimizer_bytes("Adafactor", net())
    with pytest.raises(tc.GraphError, match=r"2 of the 2 parameters of SGD are not the model"):
        optimizer_bytes(torch.optim.SGD(torch.nn.Linear(8, 8).parameters()), net())


def test_step_without_data_counts_lists_of_tensors_as_on_a_gpu() -> None:
    model = nn.Linear(8, 8, device="meta")
    weights = sum(p.nbytes for p in model.parameters())
    assert optimizer_bytes("AdamW", model) == (2 * weights, weights)
