"""Plans under AOTAutograd and Inductor, and programs of torch.export: peaks and gradients."""

import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import lacking, require

require("torch")

import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch import config as functorch
from torch._inductor import config as inductor

from tests.torch_models import GPT, ResNet, eager_step, images_for, tokens_for
from tinyckpt.interop import torch as tct


class Perceptron(nn.Module):
    """A few layers, each with batch norm and dropout."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        parts = (nn.Linear(width, width), nn.BatchNorm1d(width), nn.Tanh(), nn.Dropout(0.1))
        self.layers = nn.Sequential(
            *parts, *(deepcopy(x) for _ in range(layers - 1) for x in parts)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


class MovingTeacher(nn.Module):
    """A student beside a moving average of its own parameters, updated in forward (BYOL)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        parts = (nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU())
        self.student = nn.Sequential(
            *(deepcopy(x) for _ in range(3) for x in (*parts, nn.Linear(4 * width, width)))
        )
        self.teacher = deepcopy(self.student).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for own, moving in zip(
                self.student.parameters(), self.teacher.parameters(), strict=True
            ):
                moving.lerp_(own, 0.01)
            wanted = self.teacher(x.flip(0))
        return nn.functional.mse_loss(self.student(x), wanted)


MODELS: dict[str, Callable[[], Any]] = {
    "dropout": lambda: tokens_for(GPT(2, 32, 2, 32, rate=0.1), 8, 32),
    "batch norm": lambda: images_for(ResNet((1, 1), bottleneck=False, classes=10), 16, 64),
    "perceptron": lambda: (Perceptron(4, 16), (torch.randn(256, 16),)),
}


@pytest.fixture(autouse=True)
def _without_caches() -> Iterator[None]:
    torch._dynamo.reset()
    with functorch.patch(enable_autograd_cache=False), inductor.patch(fx_graph_cache=False):
        yield
    torch._dynamo.reset()


def stepped(name: str, compiled: Callable[[Any], Any]) -> tuple[int, Any, list[Any], list[Any]]:
    """Take a step, not the first; return its peak, loss, gradients and buffers."""
    torch.manual_seed(0)
    model, args = MODELS[name]()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    runs = compiled(model)
    eager_step(runs, args)()
    model.load_state_dict(before)
    model.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    peak, loss = tct.allocator_peak(eager_step(runs, args))
    return peak, loss, [p.grad for p in model.parameters()], list(model.buffers())


def same(found: list[Any], expected: list[Any]) -> bool:
    """Whether tensors are equal to the last bit."""
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["dropout", "batch norm"])
def test_aot_autograd_peak_equals_plan(name: str) -> None:
    results = []
    for budget in (None, 0.9):
        plans: list[tc.Schedule] = []
        options: dict[str, Any] = {"time_limit": 3} if budget else {}
        partition = tct.partitioner(budget, on_plan=plans.append, **options)
        backend = aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=partition)
        result = stepped(name, lambda m, b=backend: torch.compile(m, backend=b, fullgraph=True))
        (schedule,) = plans
        trace = tc.replay(schedule)
        assert (trace.recomputations > 0) == (budget is not None)
        # What the caller writes to between the halves is saved beside its new value.
        buffers = sum(buffer.nbytes for buffer in result[3])
        assert result[0] <= 1.005 * trace.peak_bytes + buffers
        results.append(result)
    stored, planned = results
    assert torch.equal(stored[1], planned[1])
    assert same(stored[2], planned[2])
    assert same(stored[3], planned[3])
    if name == "batch norm":  # eager mode makes dropout of other operators
        _, loss, gradients, buffers = stepped(name, lambda model: model)
        assert torch.equal(loss, planned[1])
        assert same(gradients, planned[2])
        assert same(buffers, planned[3])


def test_backend_peak_equals_plan() -> None:
    plans: list[tc.Schedule] = []
    backend = tct.backend(0.9, on_plan=plans.append, time_limit=1)
    found = stepped("batch norm", lambda m: torch.compile(m, backend=backend, fullgraph=True))
    trace = tc.replay(plans[0])
    assert trace.recomputations > 0
    assert found[0] <= 1.005 * trace.peak_bytes + sum(buffer.nbytes for buffer in found[3])
    _, loss, gradients, buffers = stepped("batch norm", lambda model: model)
    assert torch.equal(loss, found[1])
    assert same(gradients, found[2])
    assert same(buffers, found[3])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("rows", "budget"), [(64, 0.98), (128, 0.9), (1024, 0.75), (1024, 0.6)])
def test_backend_recomputes_nothing_from_overwritten_parameters(rows: int, budget: float) -> None:
    """A copy of them would be as large as what is recomputed, and no part of the plan."""
    torch.manual_seed(0)
    model, x, plans = MovingTeacher(64), torch.randn(rows, 64), list[tc.Schedule]()
    eager = deepcopy(model)
    backend = tct.backend(budget, on_plan=plans.append, time_limit=2)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    compiled(x).backward()
    loss = eager(x)
    loss.backward()
    pairs = list(zip(model.parameters(), eager.parameters(), strict=True))
    assert all(torch.equal(one, other) for one, other in pairs)
    assert all(one.grad is other.grad or torch.equal(one.grad, other.grad) for one, other in pairs)
    model.zero_grad()
    peak, _ = tct.allocator_peak(lambda: compiled(x).backward())
    assert peak <= tc.replay(plans[0]).peak_bytes


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch, about itself
def test_inductor_runs_planned_partition() -> None:
    if shutil.which("g++") is None:
        lacking("a C++ compiler")
    results, recomputations = [], []
    for budget in (None, 0.8):
        torch._dynamo.reset()  # else the first program is taken for the second model, too
        plans: list[tc.Schedule] = []
        planned = tct.inductor_partitioner(budget, on_plan=plans.append)
        with inductor.patch(custom_partitioner_fn=planned):
            compiled = stepped("perceptron", lambda m: torch.compile(m, fullgraph=True))
        results.append(compiled[1:])
        recomputations.append(tc.replay(plans[0]).recomputations)
    torch.testing.assert_close(*results)
    assert recomputations[0] == 0 < recomputations[1]


@pytest.mark.nightly
@pytest.mark.parametrize("name", MODELS)
def test_fused_partition_is_bitwise_equal(name: str) -> None:
    results, counts = [], []
    for fuses, budget in ((False, None), (True, None), (True, 0.8)):
        plans: list[tc.Schedule] = []
        partition = tct.partitioner(budget, workspace=False, fuses=fuses, on_plan=plans.append)
        backend = aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=partition)
        compiled = stepped(name, lambda m, b=backend: torch.compile(m, backend=b, fullgraph=True))
        results.append(compiled[1:])
        counts.append(len(plans[0].graph.operators))
        assert (tc.replay(plans[0]).recomputations > 0) == (budget is not None)
    assert counts[2] == counts[1] < counts[0]
    (loss, gradients, buffers), *others = results
    for own_loss, own_gradients, own_buffers in others:
        assert torch.equal(loss, own_loss)
        assert same(gradients, own_gradients)
        assert same(buffers, own_buffers)


@pytest.mark.nightly
def test_infeasible_budget_raises_before_anything_runs() -> None:
    model, args = MODELS["dropout"]()
    with pytest.raises(Exception, match=r"no schedule of compiled was found within 1.0 KiB"):
        torch.compile(model, backend=tct.backend("1 KiB", time_limit=0.5))(*args)


@pytest.mark.nightly
def test_exported_program_is_traced_from_file(tmp_path: Path) -> None:
    model, args = images_for(ResNet((1, 1), bottleneck=False, classes=10), 8, 32)
    program = torch.export.export(model, args)
    torch.export.save(program, tmp_path / "model.pt2")
    graph = tct.trace(model, *args).graph
    for traced in (tct.trace(tmp_path / "model.pt2"), tct.trace(program, *args)):
        assert tc.replay(tc.plan(traced.graph)).peak_bytes == tc.replay(tc.plan(graph)).peak_bytes
        loss, gradients = tct.step(tc.plan(traced.graph), traced)(*args)
        assert gradients.keys() == {name for name, _ in model.named_parameters()}
        torch.testing.assert_close(loss, model(*args).detach())
