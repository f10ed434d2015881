"""Tied parameters: one gradient each, and training bitwise equal to plain PyTorch's."""

from collections.abc import Callable

import pytest

import tinyckpt as tc
from tests.conftest import require

require("torch")

import torch
from torch import Tensor, nn

from tests.torch_models import GPT, eager_step, tokens_for
from tests.torch_traps import WIDTH, Trap, trap
from tinyckpt.interop import torch as tct

TIED = ["Named", "NamedTwice", "Tied", "TiedParametrized", "TiedHooked", "Copied"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("policy", ["store_all", "recompute_all"])
@pytest.mark.parametrize("name", TIED)
def test_tied_parameter_has_one_gradient_under_its_first_name(name: str, policy: str) -> None:
    plain, x = trap(name)
    expected = eager_step(plain, (x,))()
    gradients = {n: p.grad for n, p in plain.named_parameters() if p.grad is not None}
    model, x = trap(name)  # the same numbers again
    traced = tct.trace(model, x, workspace=False)
    loss, own = tct.step(tc.plan(traced.graph, policy), traced)(x)
    assert torch.equal(loss, expected)
    assert own.keys() == gradients.keys() == traced.graph.gradients.keys()
    assert all(torch.equal(own[each], gradients[each]) for each in own)
    assert all(map(torch.equal, model.buffers(), plain.buffers()))


def tied_gpt(first: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a GPT whose head is its embedding, whichever of them made the parameter."""
    torch.manual_seed(0)
    model = GPT(2, 16, 2, 8)
    if first == "tokens":
        model.head.weight = model.tokens.weight
    else:
        model.tokens.weight = model.head.weight
    return tokens_for(model, 2, 8)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", ["tokens", "head"])
def test_tied_gpt_trains_bitwise_as_plain_pytorch(first: str) -> None:
    plain, args = tied_gpt(first)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    losses = []
    for _ in range(5):
        losses.append(eager_step(plain, args)())
        optimizer.step()
    model, args = tied_gpt(first)
    traced = tct.trace(model, *args, workspace=False)
    step = tct.step(tc.plan(traced.graph, "sqrt_n"), traced)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    own = []
    for _ in range(5):
        loss, gradients = step(*args)
        own.append(loss)
        for name, parameter in model.named_parameters():
            parameter.grad = gradients.get(name)
        optimizer.step()
    assert losses[-1] < losses[0]
    assert [x.item() for x in own] == [x.item() for x in losses]
    assert all(map(torch.equal, model.state_dict().values(), plain.state_dict().values()))


def test_predicted_peak_includes_gradient_sum_of_tied_parameter() -> None:
    model, args = tied_gpt("tokens")
    traced = tct.trace(model, *args)
    for policy in ("store_all", "sqrt_n"):
        schedule = tc.plan(traced.graph, policy)
        step = tct.step(schedule, traced)
        peak, _ = tct.allocator_peak(lambda step=step: step(*args))
        assert peak == pytest.approx(tc.replay(schedule).peak_bytes, rel=0.002)


def untie(model: Trap) -> None:
    model.layers[1].weight = nn.Parameter(torch.zeros(WIDTH, WIDTH))


def tie(model: Trap) -> None:
    model.layers[0].weight = model.layers[1].weight


def remove(model: Trap) -> None:
    del model.layers[0].bias


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            untie,
            r"Tied: .* is a tensor of its own; when .* same tensor as layers\.1\.weight",
        ),
        (tie, r"Tied: .* is the same tensor as layers\.0\.weight; when .* trace it again"),
        (remove, r"layers\.0\.bias is not there; when the model was traced it was a tensor of its"),
    ],
)
def test_step_refuses_model_tied_differently_than_traced(
    change: Callable[[Trap], None], says: str
) -> None:
    model, x = trap("Tied")
    traced = tct.trace(model, x, workspace=False)
    step = tct.step(tc.plan(traced.graph), traced)
    change(model)
    with pytest.raises(tc.GraphError, match=says):
        step(x)


class Assigning(Trap):
    """Assigns a value to a buffer or a parameter."""

    def __init__(self, name: str, value: Callable[[Tensor], Tensor | None]) -> None:
        super().__init__()
        self.name, self.value = name, value
        self.register_buffer("running", torch.zeros(WIDTH))
        self.register_buffer("alias", self.running)

    def write(self, x: Tensor) -> None:
        setattr(self, self.name, self.value(x))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("running", lambda x: x.detach().mean(0)),  # and not its other name
        ("running", lambda x: None),
        ("running", lambda x: x.detach()),
        ("layers", lambda x: nn.ModuleList([nn.Identity(), nn.Linear(WIDTH, WIDTH)])),
    ],
)
def test_trace_refuses_illegal_assignment_in_forward(
    name: str, value: Callable[[Tensor], Tensor | None]
) -> None:
    model, x = Assigning(name, value), torch.randn(6, WIDTH)
    with pytest.raises(tc.GraphError, match=r"Assigning: forward assigns .*; expected"):
        tct.trace(model, x, workspace=False)


def test_step_updates_buffers_that_forward_assigns() -> None:
    plain, x = trap("BuffersAnew")
    for _ in range(3):
        plain(x)
    model, x = trap("BuffersAnew")
    traced = tct.trace(model, x, workspace=False)
    step = tct.step(tc.plan(traced.graph), traced)
    for _ in range(3):
        step(x)
    assert torch.equal(model.running, plain.running)
    assert model.twin is model.running


def test_trace_refuses_parameter_that_is_argument_or_written() -> None:
    model, x = trap("Frozen")
    with pytest.raises(tc.GraphError, match=r"args\[1\] is its own parameter layers\.1\.weight"):
        tct.trace(model, x, model.layers[1].weight, workspace=False)
    embedding = nn.Sequential(nn.Embedding(WIDTH, WIDTH, max_norm=0.1), trap("Frozen")[0])
    with pytest.raises(tc.GraphError, match=r"forward writes to its parameter 0\.weight; write"):
        tct.trace(embedding, torch.arange(WIDTH), workspace=False)


def test_step_calls_gradient_hooks_of_parameters() -> None:
    gradients = []
    for hooked in (False, True):
        model, x = trap("Tied")
        weight = model.layers[1].weight
        if hooked:
            weight.register_hook(lambda gradient: gradient * 2)
            weight.register_hook(lambda gradient: None)
        traced = tct.trace(model, x, workspace=False)
        _, own = tct.step(tc.plan(traced.graph), traced)(x)
        eager_step(model, (x,))()
        assert torch.equal(own["layers.1.weight"], weight.grad)
        gradients.append(weight.grad)
    assert torch.equal(2 * gradients[0], gradients[1])
