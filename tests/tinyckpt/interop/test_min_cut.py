"""PyTorch's min-cut partitioner as schedules: legal, of the same cost, seeds of plans."""

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings

import tinyckpt as tc
from tests.conftest import examples, require

require("torch")

import torch
from torch import nn

from tests.torch_drawn_modules import made, modules
from tests.torch_models import GPT, Example, UNet, example, maps_for, tokens_for
from tinyckpt.base import deadline as limits
from tinyckpt.base.deadline import NO_DEADLINE, Clock
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch import min_cut
from tinyckpt.interop.torch.comparing import flops_in, min_cut_backend
from tinyckpt.planner.model.cost_models import cost_of
from tinyckpt.planner.model.cost_models import given as given_costs

SETTINGS = (1.0, 0.5, 0.2, 0.0)


def traced(model: nn.Module, args: tuple[Any, ...]) -> tct.Traced:
    return tct.trace(model, *args, workspace=False)


@cache
def traced_gpt() -> tct.Traced:
    """Return a traced model, which the tests that share it leave as it is."""
    return traced(*example("GPT"))


def cost(schedule: tc.Schedule) -> float:
    return cost_of(schedule, given_costs(schedule.graph))


@given(modules(most=8))
@settings(max_examples=examples(12))
def test_plan_never_costs_more_than_pytorch_min_cut(drawn: Example) -> None:
    step = traced(*drawn)
    for theirs in tct.min_cut_schedules(step, SETTINGS):
        plan = tc.plan(
            step.graph, budget=tc.replay(theirs).peak_bytes, time_limit=0, seeds=[theirs]
        )
        assert cost(plan) <= cost(theirs)
        tct.step(plan, step)  # it can run


@given(modules(most=8))
@settings(max_examples=examples(8))
def test_min_cut_schedule_costs_what_pytorch_graphs_do(drawn: Example) -> None:
    imported = traced(*drawn).imported
    calls = [(str(n.target), str(n.args), str(n.kwargs)) for n in imported.calls if n is not None]
    if len(set(calls)) < len(calls):
        return  # PyTorch evaluates equal calls once
    for setting in SETTINGS:
        halves = min_cut.partition_at(imported.joint, setting, min_cut.resident_of(imported.joint))
        schedule = min_cut.schedule_at(setting, halves, imported)
        assert cost(schedule) == sum(map(flops_in, halves))


RUNNING: dict[str, Callable[[], Example]] = {
    "dropout": lambda: tokens_for(GPT(2, 32, 2, 32, rate=0.1), 4, 32),
    "batch norm": lambda: example("ResNet"),
    "U-Net": lambda: maps_for(UNet(8, 2), 2, 16),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", RUNNING)
def test_min_cut_schedules_run_with_gradients_of_store_all(name: str) -> None:
    model, args = RUNNING[name]()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    step = tct.trace(model, *args)
    results = []
    for schedule in (tc.plan(step.graph), *tct.min_cut_schedules(step, (0.5, 0.0))):
        model.load_state_dict(before)
        torch.manual_seed(1)
        results.append(tct.step(schedule, step)(*args))
    assert len(results) == 3
    loss, gradients = results[0]
    for other, others in results[1:]:
        assert torch.equal(loss, other)
        assert all(torch.equal(gradients[key], others[key]) for key in gradients)


@pytest.mark.nightly
def test_min_cut_leaves_model_graph_and_generator_unchanged() -> None:
    model, args = example("GPT with dropout")
    step = traced(model, args)
    module = step.imported.joint.module
    nodes = list(module.graph.nodes)
    before = [(node.name, set(node.meta), set(vars(node))) for node in nodes]
    code, state, drawn = module.code, dict(model.state_dict()), torch.get_rng_state()
    assert tct.min_cut_schedules(step, (1.0, 0.3))
    assert list(module.graph.nodes) == nodes
    assert [(node.name, set(node.meta), set(vars(node))) for node in nodes] == before
    assert module.code == code
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.nightly
def test_min_cut_schedule_records_origin_and_checkpoints() -> None:
    model, args = example("GPT")
    step = traced(model, args)
    most, least = tct.min_cut_schedules(step, (1, 0))
    assert (most.policy, dict(least.options)) == ("min_cut", {"activation_memory_budget": 0})
    assert len(most.checkpoints) > 20
    assert least.checkpoints == ()  # inputs alone, which are there anyway
    assert tc.replay(most).recomputations < tc.replay(least).recomputations
    assert len(tct.min_cut_schedules(step, (0.0, 0.0))) == 1


class Product(nn.Module):
    """A model of which every partition saves the input and the parameter only."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight * x).sum()


def test_min_cut_that_saves_nothing_gives_one_schedule_without_checkpoints() -> None:
    step = traced(Product(), (torch.ones(8),))
    (theirs,) = tct.min_cut_schedules(step)
    assert theirs.checkpoints == ()
    assert tc.replay(theirs).recomputations == 0


def test_failing_setting_is_skipped_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    step = traced(*example("GPT"))
    node = next(node for node in step.imported.calls if node is not None)
    node.meta["memory_budget"] = 2.0  # where PyTorch looks for a setting of the model's own
    with pytest.raises(RuntimeError, match="valid ranges for memory budget"):
        min_cut.partition_at(step.imported.joint, 0.5, ())
    with caplog.at_level("WARNING", logger=min_cut.__name__):
        assert tct.min_cut_schedules(step, [0.5]) == []
    (said,) = (record.getMessage() for record in caplog.records if record.name == min_cut.__name__)
    assert "fails at activation_memory_budget 0.5, which is left out: RuntimeError: " in said
    assert "valid ranges for memory budget" in said


def test_min_cut_refuses_settings_out_of_range() -> None:
    step = traced(Product(), (torch.ones(8),))
    for setting in (1.5, -0.1, float("nan"), "0.5"):
        with pytest.raises(tc.OptionError, match="expected a number from 0 to 1"):
            tct.min_cut_schedules(step, [setting])  # type: ignore[list-item]
    with pytest.raises(tc.ScheduleError, match="expected the result of trace, got a Product"):
        tct.min_cut_schedules(Product())  # type: ignore[arg-type]


# As seeds of compiled steps ----------------------------------------------------------------------


def refuses(*_: Any) -> Any:
    raise RuntimeError("no partition")


def test_setting_that_exceeds_time_limit_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = traced_gpt().imported
    begun: list[float] = []
    monkeypatch.setattr(min_cut, "partition_at", lambda _, setting, __: begun.append(setting))
    assert min_cut.schedules_at(imported, SETTINGS, Clock(0), ()) == []
    assert begun == []
    monkeypatch.setattr(min_cut, "SECONDS", 0.0)
    monkeypatch.setattr(min_cut, "schedule_at", lambda *_: tc.plan(imported.graph))
    assert len(min_cut.schedules_at(imported, SETTINGS, NO_DEADLINE, ())) == 1
    assert begun == list(SETTINGS)


@pytest.mark.nightly
def test_settings_nearest_to_budget_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = traced_gpt().imported
    begun: list[float] = []
    monkeypatch.setattr(min_cut, "SECONDS", 0.0)
    monkeypatch.setattr(min_cut, "partition_at", lambda _, at, __: begun.append(at) or refuses())
    min_cut.with_min_cut_seeds(imported, 0.42, {"time_limit": 1e6}, ())
    assert begun == [0.4, 0.5, 0.3, 0.2, 0.1, 0.75, 0.0, 1.0]
    monkeypatch.setattr(min_cut, "partition_at", lambda _, at, __: begun.append(at))
    for order, policy in (
        ([0.4, 0.3, 0.2, 0.1, 0.0, 0.5, 0.75, 1.0], "store_all"),  # holds too much
        ([0.4, 0.5, 0.75, 1.0, 0.3, 0.2, 0.1, 0.0], "greedy"),
    ):
        options = {} if policy == "store_all" else {"budget": 0.42}
        schedule = tc.plan(imported.graph, policy, **options)
        monkeypatch.setattr(min_cut, "schedule_at", lambda *_, made=schedule: made)
        begun.clear()
        min_cut.with_min_cut_seeds(imported, 0.42, {"time_limit": 1e6}, ())
        assert begun == order


@pytest.mark.nightly
def test_user_seeds_are_kept() -> None:
    imported = traced_gpt().imported
    own = [node.id for node in imported.graph.data if node.producer == 5]
    options = {"seeds": iter([own]), "time_limit": 30}
    found = min_cut.with_min_cut_seeds(imported, 0.5, options, ())
    assert found["seeds"][0] == frozenset(own)
    assert {seed.policy for seed in found["seeds"][1:]} == {"min_cut"}
    assert 0 < found["time_limit"] < 30
    # All fits: there is nothing to look for.
    assert min_cut.with_min_cut_seeds(imported, 1.0, {"seeds": [own]}, ())["seeds"] == (
        frozenset(own),
    )
    assert min_cut.with_min_cut_seeds(imported, 0.5, {"policy": "greedy"}, ()) == {
        "policy": "greedy"
    }
    assert min_cut.with_min_cut_seeds(imported, None, {}, ()) == {}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seconds", [6.0, 0.5])
def test_imports_and_slow_setting_leave_search_its_time(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = traced_gpt().imported
    now, begun = [0.0], list[float]()

    def takes_long(*_: Any) -> None:
        now[0] += 100.0

    monkeypatch.setattr(limits, "perf_counter", lambda: now[0])
    monkeypatch.setattr(min_cut, "load_min_cut", takes_long)
    monkeypatch.setattr(min_cut, "SECONDS", 0.0)
    monkeypatch.setattr(min_cut, "partition_at", lambda _, at, __: begun.append(at) or refuses())
    options = {"time_limit": seconds}
    assert min_cut.with_min_cut_seeds(imported, 0.5, options, ())["time_limit"] == seconds
    assert len(begun) == len(min_cut.BUDGETS)
    begun.clear()
    monkeypatch.setattr(min_cut, "perf_counter", lambda: now[0])
    monkeypatch.setattr(
        min_cut, "partition_at", lambda _, at, __: begun.append(at) or takes_long() or refuses()
    )
    left = min_cut.with_min_cut_seeds(imported, 0.5, options, ())["time_limit"]
    assert (len(begun), left) == (1, (1 - min_cut.SHARE) * seconds)


FIRST_CALL = """
import sys, torch
from tests.torch_models import GPT, tokens_for
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.min_cut import load_min_cut, partition_at
model, args = tokens_for(GPT(1, 16, 2, 16), 2, 8)
joint = tct.trace(model, *args, workspace=False).imported.joint
load_min_cut()
before = set(sys.modules)
for setting in (0.5, 1.0, 0.0):
    partition_at(joint, setting, ())
assert len(set(sys.modules) - before) < 10, sorted(set(sys.modules) - before)
"""


@pytest.mark.nightly
def test_first_partition_imports_nothing_after_load() -> None:
    command = [sys.executable, "-c", FIRST_CALL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


# Within the memory of PyTorch's plan the search alone finds none that is as cheap.
HARD = [
    ("product", 0, 0), ("masked", 1, 0), ("dropout", 2, 0), ("tanh", 3, 0), ("product", 4, 1),
    ("views", 5, 0), ("linear", 6, 0), ("product", 7, 3), ("batch norm", 8, 0), ("add", 9, 7),
]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("raising", [False, True])
def test_compiled_steps_are_seeded_by_min_cut(
    raising: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if raising:
        monkeypatch.setattr(min_cut, "partition_at", refuses)
    model, args = made(HARD)
    plans: list[tc.Schedule] = []
    backend = tct.backend(0.8, on_plan=plans.append, time_limit=5)
    torch.compiler.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    compiled(*args).backward()
    torch.compiler.reset()
    assert all(parameter.grad is not None for parameter in model.parameters())
    (plan,) = plans
    if not raising:
        # The step that was compiled is the traced one: the same operators, so the same costs.
        step = tct.trace(model, *args)
        theirs = [(tc.replay(s).peak_bytes, cost(s)) for s in tct.min_cut_schedules(step)]
        limit = int(0.8 * tc.replay(tc.plan(step.graph)).peak_bytes)
        assert all(cost(plan) <= each for peak, each in theirs if peak <= limit)


class Annotated(nn.Module):
    """A model with an annotation that PyTorch's partitioner refuses."""

    def __init__(self) -> None:
        super().__init__()
        parts = (nn.Linear(16, 16), nn.Tanh())
        self.first, self.last = nn.Sequential(*parts), nn.Sequential(*parts, *parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.region_activation_memory_budget(0.5):
            h = self.first(x)
        return self.last(h).sum()


def test_model_that_min_cut_refuses_is_planned() -> None:
    plans: list[tc.Schedule] = []
    model, x = Annotated(), torch.ones(64, 16)
    torch.compiler.reset()
    refused = pytest.raises(Exception, match="must cover the entire forward")
    with min_cut_backend(1.0, lambda *_: None) as pytorchs, refused:
        torch.compile(model, backend=pytorchs, fullgraph=True)(x)
    torch.compiler.reset()
    backend = tct.backend(0.9, on_plan=plans.append, time_limit=1)
    torch.compile(model, backend=backend, fullgraph=True)(x).backward()
    torch.compiler.reset()
    assert len(plans) == 1
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.nightly
def test_options_are_validated_before_min_cut_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model, args = made(HARD)
    monkeypatch.setattr(min_cut, "partition_at", refuses)
    for options, says in (
        ({"time_limit": -1}, "time_limit = -1"),
        ({"seeds": "h1"}, "expected sets"),
        ({"seeds": [["nope"]]}, "'nope' is not a forward value"),
    ):
        torch.compiler.reset()
        with pytest.raises(Exception, match=says):
            torch.compile(model, backend=tct.backend(0.5, **options), fullgraph=True)(*args)
    torch.compiler.reset()
