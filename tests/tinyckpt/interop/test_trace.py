"""Tracing of PyTorch modules: contents of the graph, and no side effects on the model."""

from collections import Counter
from pathlib import Path

import pytest

import tinyckpt as tc
from tests.conftest import require

require("torch")

import torch
from torch import nn

from tests.torch_models import EXAMPLES, GPT, example, tokens_for
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.scopes import SCOPE


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.square().mean()


class Normed(nn.Module):
    """A buffer that is written to, one that is read, and a parameter that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, affine=False), nn.Tanh())
        self.spare = nn.Parameter(torch.ones(3))
        self.register_buffer("shift", torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.body(x) + self.shift).mean()


STEP = """\
Sequential: 14 operators, 16 data nodes
  t = t(0.weight)   float32[4,1]
  mm = mm(args[0], t)   float32[2,1]
  pow_1 = pow(mm)   float32[2,1]
  mean = mean(pow_1)   float32[]
backward:
  tangents_1 = backward_begins(mean)   float32[]
  expand = expand(tangents_1)   float32[2,1]
  div = div(expand)   float32[2,1]
  pow_2 = pow(mm)   float32[2,1]
  mul = mul(pow_2)   float32[2,1]
  mul_1 = mul(div, mul)   float32[2,1]
  t_1 = t(mul_1)   float32[1,2]
  mm_1 = mm(t_1, args[0])   float32[1,4]
  t_2 = t(mm_1)   float32[4,1]
  t_3 = t(t_2)   float32[1,4]"""


def test_traced_graph_prints_every_operator() -> None:
    model = nn.Sequential(nn.Linear(4, 1, bias=False), Mean())
    assert str(tct.trace(model, torch.ones(2, 4)).graph) == STEP


def test_scopes_of_an_interrupted_capture_are_forgotten() -> None:
    def scopes() -> list[str]:
        graph = tct.trace(*flat(tokens_for(GPT(1, 8, 2, 4), 2, 4))).graph
        return [operator.scope for operator in graph.operators]

    expected = scopes()
    assert "" in expected
    with torch.fx.traceback.annotate({SCOPE: "left.over"}):  # as an interrupt may leave it
        assert scopes() == expected


def test_traced_graph_has_scopes_vjps_and_names_of_model() -> None:
    traced = tct.trace(*flat(tokens_for(GPT(2, 8, 2, 4), 2, 4)))
    graph = traced.graph
    (forward,) = (o for o in graph.operators if o.kind == "gelu" and o.scope == "blocks/1")
    (backward,) = (o for o in graph.operators if o.adjoint_of == forward.id)
    assert (backward.kind, backward.scope, backward.phase) == (
        "gelu_backward",
        "blocks/1",
        "backward",
    )
    scopes = Counter(o.scope for o in graph.operators if o.kind == "native_layer_norm")
    assert scopes == dict.fromkeys(
        ["blocks/0/norms/0", "blocks/0/norms/1", "blocks/1/norms/0", "blocks/1/norms/1", "norm"], 1
    )
    names = {name for name, _ in traced.model.named_parameters()}
    assert set(graph.gradients) == names
    assert names == {node.name for node in graph.data if node.role == "parameter"}


def flat(example: tuple[nn.Module, tuple[torch.Tensor, ...]]) -> tuple[object, ...]:
    model, args = example
    return model, *args


def test_buffers_are_results_and_unused_parameters_have_no_gradient() -> None:
    model = Normed()
    graph = tct.trace(model, torch.ones(3, 4)).graph
    loss, buffers = graph.results
    assert graph.data[loss].spec == tc.Spec((), "float32")
    assert list(buffers) == [
        "body.1.running_mean", "body.1.running_var", "body.1.num_batches_tracked",
    ]  # fmt: skip
    assert list(graph.gradients) == ["body.0.weight", "body.0.bias"]
    roles = {node.name: node.role for node in graph.data if node.is_source}
    assert (roles["shift"], roles["args[0]"], roles["spare"]) == ("constant", "input", "parameter")


@pytest.mark.nightly
@pytest.mark.parametrize("name", EXAMPLES)
def test_meta_model_has_graph_of_real_model(name: str) -> None:
    real, args = example(name)
    args = tuple(argument.clone() for argument in args)  # each in memory of its own
    model = example(name)[0].to("meta")
    without = tuple(argument.to("meta") for argument in args)
    before = dict(model.state_dict(keep_vars=True))
    traced = tct.trace(model, *without, workspace=False)
    assert traced.graph == tct.trace(real, *args, workspace=False).graph
    assert all(value is before[key] for key, value in model.state_dict(keep_vars=True).items())
    mixed = tct.trace(model, *args, workspace=False)
    assert mixed.graph == traced.graph
    asked = {"budget": 1.0, "modules": (), "workspace": False}
    assert tct.advise(model, *without, **asked) == tct.advise(real, *args, **asked)


def test_plan_of_meta_model_runs_once_materialised() -> None:
    real, args = example("GPT")
    model = example("GPT")[0].to("meta")
    traced = tct.trace(model, *(argument.to("meta") for argument in args), workspace=False)
    step = tct.step(tc.plan(traced.graph), traced)
    with pytest.raises(tc.GraphError, match=r"tokens.weight is float32\[500,64\] on meta"):
        step(*args)
    model.to_empty(device="cpu").load_state_dict(real.state_dict())
    loss, gradients = step(*args)
    expected = real(*args)
    expected.backward()
    assert torch.equal(loss, expected)
    assert all(torch.equal(gradients[name], p.grad) for name, p in real.named_parameters())


def test_views_take_no_memory_and_keep_base_alive() -> None:
    graph = tct.trace(*flat(tokens_for(GPT(1, 8, 2, 4), 2, 4))).graph
    split = next(o for o in graph.operators if o.kind == "split")
    parts = [graph.data[data] for data in split.outputs]
    assert [(part.nbytes, part.view_of) for part in parts] == [(0, split.inputs[0])] * 3


def test_plan_of_traced_model_is_ordinary_schedule(tmp_path: Path) -> None:
    graph = tct.trace(*flat(tokens_for(GPT(2, 16, 2, 16), 16, 16))).graph
    stored = tc.replay(tc.plan(graph))
    schedule = tc.plan(graph, budget=0.8, time_limit=1)
    assert tc.replay(schedule).peak_bytes <= 0.8 * stored.peak_bytes
    tc.save_graph(graph, tmp_path / "graph.json")
    assert (
        tc.replay(tc.plan(tc.load_graph(tmp_path / "graph.json"))).peak_bytes == stored.peak_bytes
    )
    assert "backward_begins" in str(graph)
    assert str(tc.explain(schedule, time_limit=1))
