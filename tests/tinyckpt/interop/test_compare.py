"""Plans against PyTorch's activation_memory_budget, at measured peaks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings

from tests.conftest import examples, require

require("torch")

import torch
from torch import nn

from tests.torch_drawn_modules import made, modules
from tests.torch_models import GPT, Example, ResNet, images_for, tokens_for
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch import comparing


@pytest.fixture(scope="module")
def compared() -> tct.Comparison:
    torch.manual_seed(0)
    model, args = tokens_for(GPT(1, 32, 2, 32), 4, 32)
    return tct.compare(model, *args, budgets=(1.0, 0.3, 0.0), time_limit=2)


@pytest.mark.nightly
def test_memory_budget_one_recomputes_no_flops(compared: tct.Comparison) -> None:
    first = compared.rows[0]
    assert (first.budget, first.cost, first.planned) == (1.0, 1.0, 1.0)


def test_plan_never_costs_more_at_same_measured_peak(compared: tct.Comparison) -> None:
    for row in compared.rows:
        assert not row.failed
        assert row.planned is not None
        assert row.planned <= row.cost


@pytest.mark.nightly
@given(modules(most=12))
@settings(max_examples=examples(6))
def test_plans_of_drawn_models_are_never_dearer_than_pytorchs_own_steps(drawn: Example) -> None:
    model, args = drawn
    calls = [node for node in tct.trace(model, *args, workspace=False).imported.calls if node]
    if len({(str(node.target), str(node.args), str(node.kwargs)) for node in calls}) < len(calls):
        return  # PyTorch evaluates equal calls once, which no plan does
    for row in tct.compare(model, *args, budgets=(1.0, 0.4, 0.0), time_limit=0).rows:
        assert row.failed or (row.planned is not None and row.planned <= row.cost)


def test_compare_tolerates_dead_code_and_failing_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Dynamo leaves out what nobody reads, so that its nodes have other names than those of trace.
    dead = [("tanh", 0, 0), ("gelu", 0, 0), ("tanh", 0, 1), ("batch norm", 3, 0), ("tanh", 4, 0)]
    model, args = made(dead)
    cut = comparing.min_cut_partitioner

    @contextmanager
    def failing(budget: float) -> Iterator[Any]:
        if budget == 0.5:
            raise RuntimeError("PyTorch's own")
        with cut(budget) as partition:
            yield partition

    monkeypatch.setattr(comparing, "min_cut_partitioner", failing)
    first, failed, last = tct.compare(model, *args, budgets=(1.0, 0.5, 1.0), time_limit=0).rows
    assert failed.failed == "RuntimeError: PyTorch's own"
    assert first == last
    assert first.planned == first.cost == 1.0


class Dense(nn.Module):
    """A DenseNet-like block: each convolution reads all earlier results."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(4 * i), nn.ReLU(), nn.Conv2d(4 * i, 4, 3, 1, 1))
            for i in (1, 2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [x]
        for part in self.parts:
            made.append(part(torch.cat(made, 1)))
        return torch.cat(made, 1).square().mean()


class Sequence(nn.Module):
    """Layers in sequence."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


NORMED: dict[str, Callable[[], Example]] = {
    "ResNet": lambda: images_for(ResNet((1, 1), bottleneck=False, classes=10), 4, 32),
    "dense": lambda: (Dense(), (torch.randn(4, 4, 8, 8),)),
    "dropout": lambda: (
        Sequence(
            nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Tanh(),
            nn.Linear(16, 16), nn.BatchNorm1d(16, momentum=0.3), nn.Dropout(0.2),
        ),
        (torch.randn(64, 16),),
    ),
    "layer norm": lambda: (
        Sequence(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.BatchNorm1d(16)),
        (torch.randn(64, 16),),
    ),
    "volumes": lambda: (
        Sequence(nn.Conv3d(1, 4, 3), nn.BatchNorm3d(4), nn.ReLU(True), nn.Conv3d(4, 4, 3)),
        (torch.randn(2, 1, 8, 8, 8),),
    ),
    "separable": lambda: (
        Sequence(
            nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU6(True),
            nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.InstanceNorm2d(8, track_running_stats=True),
        ),
        (torch.randn(4, 3, 8, 8),),
    ),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] if n != "dropout" else []) for n in NORMED]
)
def test_compare_measures_models_with_batch_norm(name: str) -> None:
    torch.manual_seed(0)
    model, args = NORMED[name]()
    for row in tct.compare(model, *args, budgets=(0.5, 0.0), time_limit=0).rows:
        assert not row.failed
        assert row.peak > 0
        assert row.planned is not None
        assert 1.0 <= row.planned <= row.cost


def test_comparison_points_have_units_of_frontier(compared: tct.Comparison) -> None:
    first, _, last = compared.points
    assert [name for name, _, _ in compared.points] == ["PyTorch 1", "PyTorch 0.3", "PyTorch 0"]
    assert first[1:] == (compared.rows[0].peak, compared.frontier.points[-1].cost)
    assert last[2] > first[2]


def test_comparison_prints_as_table(compared: tct.Comparison) -> None:
    lines = str(compared).splitlines()
    assert lines[0].split("  ")[0] == "activation_memory_budget"
    assert [line.split()[0] for line in lines[1:]] == ["1", "0.3", "0"]
    assert compared._repr_html_().startswith("<table>")
