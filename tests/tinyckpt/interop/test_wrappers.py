"""Advice found through a wrapper applies to the model in it, to that in other ones, and back."""

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from tests.conftest import require

require("torch")

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import tinyckpt as tc
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.candidate_modules import core_of, is_wrapped

WIDTH = 16


class Net(nn.Module):
    """Blocks of which the second writes to buffers, and a loss."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(self.block(normed=place == 1) for place in range(blocks))
        self.head = nn.Linear(WIDTH, 1)

    def block(self, normed: bool) -> nn.Module:
        first = nn.Linear(WIDTH, 8 * WIDTH)
        first = spectral_norm(first) if normed else first
        return nn.Sequential(first, nn.Tanh(), nn.Linear(8 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(x).square().mean()


class Lit(nn.Module):
    """A module in the attribute ``net`` of another one, which has a metric and a buffer, too."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.metric, self.net = nn.Dropout(0.0), net
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, *args: Tensor) -> Tensor:
        return self.net(*args)


class Alias(Lit):
    """A wrapper that has a part of the module in it by a second name."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__(net)
        self.part = next(net.children())


def compiled(model: nn.Module) -> nn.Module:
    # Compiled twice it would be a function.
    return model if hasattr(model, "_orig_mod") else torch.compile(model, backend="eager")


EAGER: list[Callable[[nn.Module], nn.Module]] = [nn.DataParallel, nn.Sequential, Lit, Alias]
ALL = [*EAGER, compiled]


def test_core_is_the_one_child_with_all_parameters() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert core_of(net) == ""
    assert core_of(nn.DataParallel(Lit(net))) == "module.net"
    assert core_of(compiled(Alias(net))) == "_orig_mod.net"
    holder = Lit(nn.ModuleList([net, net]))  # a list is called by nobody
    assert core_of(holder) == core_of(nn.ReLU()) == ""
    two = Lit(net)
    two.head = nn.Linear(2, 2)
    assert core_of(two) == ""


def test_function_of_a_module_is_refused() -> None:
    net = Net()
    advice = tct.advise(net, torch.randn(64, WIDTH), budget="90 %", workspace=False)
    with pytest.raises(tc.GraphError, match=r"expected a torch\.nn\.Module, got a function"):
        advice.apply(torch.compile(compiled(net), backend="eager"))
    assert wrapped_in(net) == ()


def wrapped_in(net: nn.Module) -> tuple[str, ...]:
    return tuple(name for name, part in net.named_modules() if is_wrapped(part))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(60))
def test_advice_applies_in_other_wrappers_than_it_was_found_in(seed: int) -> None:
    draw = Random(seed)
    torch.manual_seed(seed)
    x = torch.randn(64, WIDTH)
    net, plain = Net(), Net()
    plain.load_state_dict(net.state_dict())
    model: nn.Module = net
    for wrapper in draw.choices(EAGER, k=draw.randrange(4)):
        model = wrapper(model)
    given: dict[str, Any] = {"budget": draw.choice(["95 %", "90 %", "85 %"]), "workspace": False}
    expected, advice = tct.advise(net, x, **given), tct.advise(model, x, **given)
    assert (advice.peak, advice.plain_peak, advice.cost) == (
        expected.peak, expected.plain_peak, expected.cost,
    )  # fmt: skip
    assert expected.modules
    prefix = core_of(model) + "." * bool(core_of(model))
    assert advice.modules == tuple(prefix + name for name in expected.modules)
    for each in (advice, expected):
        inner = target = deepcopy(net)
        for wrapper in draw.choices(ALL, k=draw.randrange(4)):
            target = wrapper(target)
        assert each.apply(target) is target
        assert wrapped_in(inner) == expected.modules
        with pytest.raises(tc.GraphError, match=f"{expected.modules[0]} is wrapped already"):
            each.apply(inner)
    target(x).backward()
    plain(x).backward()
    for (name, value), other in zip(plain.named_parameters(), inner.parameters(), strict=True):
        assert torch.equal(value.grad, other.grad), name
    for (name, value), other in zip(plain.named_buffers(), inner.buffers(), strict=True):
        assert torch.equal(value, other), name


def test_advice_in_a_wrapper_is_refused_by_a_model_without_its_modules() -> None:
    x = torch.randn(64, WIDTH)
    advice = tct.advise(Lit(Net()), x, budget="85 %", workspace=False)
    with pytest.raises(tc.GraphError, match=r"no module 'net\.blocks\.\d'"):
        advice.apply(Net(blocks=0))
    other = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with pytest.raises(tc.GraphError, match=r"no module 'net\.blocks\.\d'"):
        advice.apply(other)
