"""Compiled steps of several shapes: a plan per shape, gradients equal to plain PyTorch's."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import require

require("torch")

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (as all of its users call it)

from tinyckpt.interop import torch as tct


class Classifier(nn.Module):
    """Layers with both norms, in two graphs if it ``breaks``."""

    def __init__(self, breaks: bool = False) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Tanh())
        self.second = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32))
        self.breaks = breaks

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.first(x)
        if self.breaks:
            torch._dynamo.graph_break()
        return F.cross_entropy(self.second(x), labels) * x.shape[0]


class Images(nn.Module):
    """A convolution, whose extents are computed from those of the argument."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        x = F.interpolate(F.relu(self.norm(self.first(x)), inplace=True), scale_factor=2)
        return x.view(x.shape[0] * 8, -1).softmax(1).square().sum()


class Scaled(nn.Module):
    """Numbers as arguments, and a gradient of an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor, count: int, factor: float) -> Tensor:
        return (self.layer(x).tanh() * x * count * factor).view(-1, 2, 8).sum()


def rows(count: int) -> tuple[Any, ...]:
    return torch.randn(count, 16), torch.randint(32, (count,))


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[Any, ...]]]] = {
    "rows": (Classifier, rows),
    "images": (Images, lambda n: (torch.randn(n % 5 + 2, 3, n + 2, n % 7 + 6),)),
    "numbers": (Scaled, lambda n: (torch.randn(2 * n, 16, requires_grad=True), n, n / 3)),
}


@pytest.fixture(autouse=True)
def _without_programs() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def gradients(model: nn.Module, run: Any, args: tuple[Any, ...]) -> list[Tensor]:
    """Take a step; return loss, gradients and buffers."""
    own = [x.detach().clone() if isinstance(x, Tensor) else x for x in args]
    for copy, x in zip(own, args, strict=True):
        if isinstance(x, Tensor):
            copy.requires_grad_(x.requires_grad)
    model.zero_grad(set_to_none=True)
    loss = run(*own)
    loss.backward()
    made = [x.grad for x in (*own, *model.parameters()) if isinstance(x, Tensor)]
    return [loss.detach(), *(x for x in made if x is not None), *map(Tensor.clone, model.buffers())]


def check_steps(
    model: nn.Module, shapes: list[tuple[int, bool]], make: Callable[[int], Any], **options: Any
) -> list[tc.Schedule]:
    """Take steps of several shapes, in training or not, compiled and plain; return the plans."""
    plans: list[tc.Schedule] = []
    plain = deepcopy(model)
    backend = tct.backend("100 %", workspace=False, time_limit=0.05, on_plan=plans.append)
    compiled = torch.compile(model, backend=backend, **options)
    for count, training in shapes:
        args = make(count)
        model.train(training)
        plain.train(training)
        found = gradients(model, compiled, args)
        expected = gradients(plain, plain, args)
        assert len(found) == len(expected)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)), count
    return plans


def test_incomplete_batch_is_replanned() -> None:
    shapes = [(16, True), (7, True), (16, True)]
    plans = check_steps(Classifier(), shapes, rows, fullgraph=True)
    assert len(plans) == 2
    first, last = (tc.replay(plan).peak_bytes for plan in plans)
    assert last < first


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize(("name", "dynamic"), [("rows", None), ("images", None), ("numbers", True)])
def test_gradients_of_each_shape_equal_plain_pytorch(name: str, dynamic: bool | None) -> None:
    make, arguments = CASES[name]
    shapes = [(16, True), (7, False), (7, True), (16, True), (24, True), (7, False)]
    plans = check_steps(make(), shapes, arguments, fullgraph=True, dynamic=dynamic)
    assert len(plans) == (3 if name == "numbers" else 4)  # which makes no use of training


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # of Dynamo, about itself
def test_model_with_graph_break_has_plan_per_graph_and_shape() -> None:
    shapes = [(16, True), (7, True), (16, True)]
    assert len(check_steps(Classifier(breaks=True), shapes, rows)) == 4


@pytest.mark.nightly
def test_byte_budget_is_same_for_all_shapes_and_share_is_per_shape() -> None:
    model, peaks = Classifier().train(), []
    backend = tct.backend(
        "100 %", workspace=False, on_plan=lambda p: peaks.append(tc.replay(p).peak_bytes)
    )
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for count in (512, 256):
        compiled(*rows(count))
    assert peaks[1] < 0.6 * peaks[0]
    torch.compiler.reset()
    backend = tct.backend(peaks[1], workspace=False, time_limit=1)
    fixed = torch.compile(model, backend=backend, fullgraph=True, dynamic=False)
    fixed(*rows(64))
    with pytest.raises(Exception, match=r"BudgetError: no schedule of compiled was found within"):
        fixed(*rows(2048))
    fixed(*rows(64)).backward()


def test_recompile_limit_raises_warning() -> None:
    model, plans = Scaled(), []
    backend = tct.backend(None, workspace=False, on_plan=plans.append)
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=2):
        compiled(torch.randn(2, 16), 1, 0.5)
        with pytest.warns(RuntimeWarning, match=r"plan 2 of one code.*recompile_limit = 16 allows"):
            compiled(torch.randn(4, 16), 1, 0.5)
        compiled(torch.randn(4, 16), 1, 0.5)
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
            compiled(torch.randn(6, 16), 1, 0.5)
    compiled(torch.randn(6, 16), 1, 0.5)
    assert len(plans) == 3


def test_gradients_beyond_recompile_limit_equal_plain_pytorch() -> None:
    with torch._dynamo.config.patch(recompile_limit=1), pytest.warns(RuntimeWarning, match="plan"):
        plans = check_steps(Classifier(), [(9, True), (7, True), (5, True)], rows, dynamic=False)
    assert len(plans) == 1
