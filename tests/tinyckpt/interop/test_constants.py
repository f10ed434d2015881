"""Purity check of forward: models that differ at the next call are refused, all others traced."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import require

require("torch")

import numpy as np
import torch
from torch import Tensor, nn

from tests.torch_fingerprint import changes, fingerprint
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch import check_purity as constants

WIDTH = 4
X = torch.linspace(-1, 1, 2 * WIDTH).reshape(2, WIDTH)
CALLS = 0


class Inner(nn.Module):
    """A linear layer and a function of its result."""

    of_all = 0

    def __init__(self, made: Callable[[Any, Tensor, Tensor], Any], **own: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("frequencies", torch.arange(float(WIDTH)))
        self.register_buffer("running", torch.zeros(WIDTH))
        self.register_buffer("late", None)
        self.calls, self.made = 0, made
        vars(self).update(own)

    def forward(self, x: Tensor) -> Tensor:
        return self.made(self, x, self.layer(x)).square().mean()


class Outer(nn.Module):
    """A model with an inner one."""

    def __init__(self, *args: Any, **own: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = Inner(*args, **own)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def assign(own: Any, name: str, value: Any) -> Any:
    """Assign to an attribute; return what it was."""
    before = getattr(own, name, None)
    setattr(own, name, value)
    return before


def counted(own: Any, x: Tensor, h: Tensor) -> Tensor:
    own.calls += 1
    return h * own.calls


def warming(own: Any, x: Tensor, h: Tensor) -> Tensor:
    own.warm, before = True, getattr(own, "warm", False)
    return h if before else h * 0.1


def of_the_class(own: Any, x: Tensor, h: Tensor) -> Tensor:
    Inner.of_all += 1
    return h * Inner.of_all


def of_the_module(own: Any, x: Tensor, h: Tensor) -> Tensor:
    global CALLS
    CALLS += 1
    return h * CALLS


def with_variable() -> Callable[[Any, Tensor, Tensor], Tensor]:
    calls = 0

    def made(own: Any, x: Tensor, h: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return h * calls

    return made


def with_dict() -> Callable[[Any, Tensor, Tensor], Tensor]:
    state = {"calls": 0}

    def made(own: Any, x: Tensor, h: Tensor) -> Tensor:
        state["calls"] += 1
        return h * state["calls"]

    return made


def appended(own: Any, x: Tensor, h: Tensor) -> Tensor:
    own.seen.append(1)
    return h * len(own.seen)


def array(own: Any, x: Tensor, h: Tensor) -> Tensor:
    own.array += 1
    return h * float(own.array[0])


def as_constant(own: Any, x: Tensor, h: Tensor) -> Tensor:
    own.calls += 1
    return h * torch.tensor([1.0, 2.0, 3.0, own.calls])


def previous(own: Any, x: Tensor, h: Tensor) -> Tensor:
    before = assign(own, "previous", h.detach())
    return h if before is None else h + before


def first_argument(own: Any, x: Tensor, h: Tensor) -> Tensor:
    if not hasattr(own, "first"):
        own.first = x
    return h - own.first


def first_weight(own: Any, x: Tensor, h: Tensor) -> Tensor:
    if not hasattr(own, "first"):
        own.first = own.layer.weight.detach() * 2
    return h + own.first.sum()


def first_noise(own: Any, x: Tensor, h: Tensor) -> Tensor:
    if own.late is None:
        own.late = torch.rand(WIDTH)
    return h * own.late


def first_average(own: Any, x: Tensor, h: Tensor) -> Tensor:
    own.running = own.running * 0.9 + h.detach().mean(0)
    if not hasattr(own, "first"):
        own.first = own.running * 2
    return h + own.first


def iterated(own: Any, x: Tensor, h: Tensor) -> Tensor:
    return h * next(own.iterator)


REFUSED: dict[str, tuple[Callable[[], Outer], str]] = {
    "a count": (lambda: Outer(counted), r"inner\.calls"),
    "a flag": (lambda: Outer(warming), r"inner\.warm"),
    "a count of the class": (lambda: Outer(of_the_class), r"Inner\.of_all"),
    "a count of the module": (lambda: Outer(of_the_module), r"test_constants\.CALLS"),
    "a variable": (lambda: Outer(with_variable()), r"with_variable\.<locals>\.made\.calls"),
    "a variable's dict": (lambda: Outer(with_dict()), r"with_dict\.<locals>\.made\.state\.calls"),
    "a list": (lambda: Outer(appended, seen=[]), r"inner\.seen"),
    "a deque": (lambda: Outer(appended, seen=deque()), r"inner\.seen"),
    "an object": (
        lambda: Outer(lambda own, x, h: counted(own.state, x, h), state=SimpleNamespace(calls=1)),
        r"inner\.state\.calls",
    ),
    "an array": (lambda: Outer(array, array=np.zeros(1)), r"inner\.array"),
    "a count in a tensor": (lambda: Outer(as_constant), r"inner\.calls"),
    "the step before": (lambda: Outer(previous), r"inner\.previous"),
    "the first argument": (lambda: Outer(first_argument), r"inner\.first"),
    "the first weight": (lambda: Outer(first_weight), r"inner\.first"),
    "the first noise": (lambda: Outer(first_noise), r"inner\.late"),
    "the first average": (lambda: Outer(first_average), r"inner\.first"),
    "an iterator": (lambda: Outer(iterated, iterator=count(1)), r"inner\.iterator"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", REFUSED)
def test_trace_refuses_forward_that_differs_at_next_call(name: str) -> None:
    make, what = REFUSED[name]
    model = make()
    before = fingerprint(model, X)
    with pytest.raises(
        tc.GraphError, match=rf"Outer: its forward changes [^;]*{what}\b.* something else when"
    ):
        tct.trace(model, X, workspace=False)
    if name != "an iterator":
        assert changes(before, fingerprint(model, X)) == []


def only_counted(own: Any, x: Tensor, h: Tensor) -> Tensor:
    own.calls += 1
    own.latest = h
    return h


def cosines(own: Any, x: Tensor, h: Tensor) -> Tensor:
    own.calls += 1
    if not hasattr(own, "cosines"):
        own.cosines = torch.cos(torch.arange(h.shape[1]) * own.frequencies)
    return h * own.cosines


def mask(own: Any, x: Tensor, h: Tensor) -> Tensor:
    if own.late is None:
        own.late = torch.ones_like(x).triu() + x.new_zeros(WIDTH)
    return nn.functional.dropout(h * own.late, 0.5)


def averaged(own: Any, x: Tensor, h: Tensor) -> Tensor:
    own.calls += 1
    own.running.mul_(0.9).add_(h.detach().mean(0))
    own.frequencies = own.frequencies + 1
    return h + own.running * own.frequencies


@lru_cache
def powers(width: int) -> Tensor:
    return torch.arange(float(width)) ** 2


KEPT: dict[str, Callable[[], Outer]] = {
    "counted": lambda: Outer(only_counted),
    "cosines": lambda: Outer(cosines),
    "mask": lambda: Outer(mask),
    "averaged": lambda: Outer(averaged),
    "powers": lambda: Outer(lambda own, x, h: h * powers(WIDTH)),
}


@pytest.mark.parametrize("name", KEPT)
def test_stateful_forward_that_computes_the_same_steps_as_plain_pytorch(name: str) -> None:
    model, plain = KEPT[name](), KEPT[name]()
    traced = tct.trace(model, X, workspace=False)
    step = tct.step(tc.plan(traced.graph), traced)
    powers.cache_clear()
    for number in range(3):
        x = X * (1 + number)
        torch.manual_seed(number)
        loss, gradients = step(x)
        torch.manual_seed(number)
        expected = plain(x)
        if name != "mask":  # on a CPU dropout draws other numbers
            assert torch.equal(loss, expected)
        plain.zero_grad()
        expected.backward()
        assert gradients.keys() == {name for name, _ in model.named_parameters()}
        with torch.no_grad():
            for key, value in plain.named_parameters():
                if name != "mask":
                    assert torch.equal(gradients[key], value.grad)
                value -= value.grad
            model.load_state_dict(
                {
                    key: value
                    for key, value in plain.state_dict().items()
                    if key in model.state_dict()
                }
            )


def test_lazily_initialised_forward_is_traced_after_one_call() -> None:
    model = Outer(warming)
    model(X)
    assert tct.trace(model, X, workspace=False).graph.gradients


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    seen: list[Any] = []
    monkeypatch.setattr(
        constants, "exported", lambda *args, take=constants.exported: seen.append(0) or take(*args)
    )
    return seen


def test_pure_forward_is_captured_once(captures: list[Any]) -> None:
    tct.trace(Outer(lambda own, x, h: own.running.add_(h.detach().mean(0)) + h), X, workspace=False)
    assert len(captures) == 1
    tct.trace(Outer(only_counted), X, workspace=False)
    assert len(captures) == 3


def test_trace_refuses_random_generators_in_any_container() -> None:
    generator, rows = Random(3), [np.random.default_rng(3)]
    for draw in (lambda: generator.random() * 0, lambda: rows[0].random() * 0):
        with pytest.raises(tc.GraphError, match=r"draws random numbers from .*(generator|rows)"):
            tct.trace(Outer(lambda own, x, h, draw=draw: h + draw()), X, workspace=False)
