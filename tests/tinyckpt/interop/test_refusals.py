"""Refusals of untraceable models: one error that says what, where, and the remedy."""

import random
import re
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import require

require("torch")

import numpy as np
import torch
from torch import nn

from tinyckpt.interop import importer_checks as frameworks
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.capture import joint_of_graph
from tinyckpt.interop.torch.versions import check_torch

X = torch.ones(2, 4)


class Model(nn.Module):
    """A linear layer followed by a function."""

    def __init__(self, after: Any) -> None:
        super().__init__()
        self.layer, self.after = nn.Linear(4, 4), after

    def forward(self, x: torch.Tensor) -> Any:
        return self.after(self.layer(x))


def branching(h: torch.Tensor) -> torch.Tensor:
    return h.sum() if h.sum() > 0 else h.mean()


CASES: dict[str, tuple[Any, str]] = {
    "no scalar": (torch.tanh, r"Model: forward returns float32\[2,4\]; expected one scalar"),
    "two losses": (
        lambda h: (h, h.sum(), h.mean()), r"returns float32\[2,4\], float32\[\], .*; expected on",
    ),
    "no gradient": (
        lambda h: h.detach().sum(), r"Model: .*nothing that requires a gradient; expected one",
    ),
    "no float": (lambda h: h.argmax(), r"Model: .*; expected one scalar"),
    "no tensor": (lambda h: 3.0, r"Model: .*expected one scalar"),
    "a branch on numbers": (
        branching, r"Model: PyTorch cannot capture .*\(.*test_refusals.py, line \d+\); expecte",
    ),
    "a branch on a random number": (
        lambda h: h.sum() if torch.rand([]) < 0.5 else h.mean(),
        r"Model: forward decides by a random number \(.*, as LayerDrop does.*; advise takes such",
    ),
    "shapes that depend on numbers": (
        lambda h: h[h > 0].sum(), r"Model: PyTorch cannot capture .*test_refusals.py, line",
    ),
    "values for NumPy": (
        lambda h: h.sum() * h.detach().numpy().max(), r"Model: .* values of a tensor, as for NumPy",
    ),
    "an exception": (lambda h: h @ torch.ones(3, 3), r"Model: .*one graph: .*test_refusals.py"),
    "a higher-order operator": (
        lambda h: torch.cond(h.sum() > 0, torch.sin, torch.cos, (h,)).sum(),
        r"Model: .*(is a higher-order operator; expected operators on|cannot capture)",
    ),
    "a check of a factorisation": (
        lambda h: torch.linalg.cholesky(h.T @ h + torch.eye(4)).sum(),
        r"Model: .*checks a result's values, .*; use .* such as torch\.linalg\.cholesky_ex",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_untraceable_model_is_refused_and_unchanged(case: str) -> None:
    after, says = CASES[case]
    model = Model(after)
    attributes = [list(vars(module)) for module in model.modules()]
    with pytest.raises(tc.GraphError, match=says):
        tct.trace(model, X)
    assert [list(vars(module)) for module in model.modules()] == attributes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.isfinite(model.layer(X)).all()  # no hook, no mode is left behind
    assert tct.trace(Model(torch.sum), X).graph.operators


class Masked(nn.Module):
    """A linear layer and a mask, registered or not, possibly in a list."""

    def __init__(self, registered: bool, listed: bool = False) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        mask = torch.tensor([1.0, 0.0, 1.0, 0.0])
        self.listed = listed
        if registered:
            self.register_buffer("mask", mask)
        else:
            self.mask = [mask] if listed else mask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * (self.mask[0] if self.listed else self.mask)


@pytest.mark.parametrize("listed", [False, True])
def test_unregistered_tensor_is_named_with_its_remedy(listed: bool) -> None:
    model = nn.Sequential(Masked(False, listed), Model(torch.sum))
    with pytest.raises(
        tc.GraphError,
        match=r"^Sequential: its forward reads a tensor that is no parameter, no buffer and no "
        r"argument, such as 0\.mask \(.*test_refusals.py, line \d+\); use "
        r"self\.register_buffer\(\"mask\", \.\.\.\) in __init__",
    ):
        tct.trace(model, X)
    assert tct.trace(nn.Sequential(Masked(True), Model(torch.sum)), X).graph.operators


class Recomputed(torch.autograd.Function):
    """A module, evaluated again in the backward pass, as reversible networks do."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: nn.Module, *_: Any) -> Any:
        ctx.layer = layer
        ctx.save_for_backward(x)
        with torch.no_grad():
            return layer(x)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.layer(x)
        found = torch.autograd.grad(y, [x, *ctx.layer.parameters()], cotangents)
        return found[0], None, *found[1:]


class Reversible(nn.Module):
    """A layer before a function that evaluates another one again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.layer = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        y = Recomputed.apply(self.first(x), self.layer, *self.layer.parameters())
        return y.square().sum()


def test_parameter_read_by_the_backward_of_a_function_is_located() -> None:
    with pytest.raises(tc.GraphError, match=r"backward of an autograd.Function reads .*line \d+\)"):
        tct.trace(Reversible(), X)
    assert tct.estimate(Reversible(), X).peak > 0


def test_tensor_from_outside_the_model_is_refused() -> None:
    mask = torch.ones(4)
    with pytest.raises(tc.GraphError, match=r"no buffer and no argument \(.*\); use .*buffer"):
        tct.trace(Model(lambda h: (h * mask).sum()), X)
    loss, labels = nn.CrossEntropyLoss(weight=torch.ones(4)), torch.zeros(len(X), dtype=torch.long)
    with pytest.raises(tc.GraphError, match=r"to a loss function, as one of targets=$"):
        tct.trace(nn.Linear(X.shape[1], 4), X, loss=loss, targets=labels)


@pytest.mark.parametrize("args", [(), (torch.ones(2, 3),), (X, X), ("x",)])
def test_mismatched_arguments_are_refused(args: tuple[Any, ...]) -> None:
    with pytest.raises(tc.GraphError, match=r"expected arguments that forward accepts"):
        tct.trace(Model(torch.sum), *args)


def test_trace_refuses_objects_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(tc.GraphError, match=r"expected a torch.nn.Module .* got a function"):
        tct.trace(branching, X)
    with pytest.raises(tc.GraphError, match=r"absent.pt2 cannot be read as a program of torch.exp"):
        tct.trace(tmp_path / "absent.pt2")
    with pytest.raises(tc.OptionError, match=r"cost 'flop'; expected .* \(did you mean flops\?\)"):
        tct.trace(Model(torch.sum), X, cost="flop")  # type: ignore[arg-type]


def test_workspace_of_absent_device_is_refused() -> None:
    model, x = Model(torch.sum).to("meta"), X.to("meta")
    with pytest.raises(tc.GraphError, match=r"no device meta here; pass workspace=False"):
        tct.trace(model, x)
    with pytest.raises(tc.GraphError, match=r"no device meta here; pass workspace=False"):
        tct.advise(model, x, budget=1.0)
    assert len(tct.trace(model, x, workspace=False).graph.operators) > 5


def test_backend_refuses_data_dependent_shapes() -> None:
    model = torch.compile(Model(lambda h: h[h > 0].sum()), backend=tct.backend(None))
    with (
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
        pytest.raises(Exception, match=r"depends on the values of tensors; expected stat"),
    ):
        model(torch.ones(3, 4))
    torch.compiler.reset()


def test_trace_refuses_collectives() -> None:
    import torch.distributed._functional_collectives

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.ops._c10d_functional.wait_tensor.default, (x,)),))
    module = torch.fx.GraphModule(nn.Module(), graph)
    with pytest.raises(
        tc.GraphError, match=r"model: wait_tensor_default, .*, communicates with other pro"
    ):
        joint_of_graph(module, 1, "model")


class GpuNorm(nn.BatchNorm1d):
    """A norm by a GPU vendor's operator, which updates running averages undeclared."""

    def __init__(self, operator: Any) -> None:
        super().__init__(4)
        self.operator = operator

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        averages = (self.running_mean, self.running_var)
        result = self.operator(h, self.weight, self.bias, *averages, self.training, 0.5, 1e-5)
        return result[0].tanh().sum()


def test_norm_that_updates_averages_undeclared_is_refused() -> None:
    expected = r"Model: miopen_batch_norm, .* in after, writes to an argument, .*; use "
    refused, kinds = "", []
    try:
        graph = tct.trace(Model(GpuNorm(torch.miopen_batch_norm)), X, workspace=False).graph
        kinds = [operator.kind for operator in graph.operators]
    except tc.GraphError as error:
        refused = str(error)
    # Once Inductor has been imported, PyTorch puts one in its place that does not write.
    assert re.match(expected, refused) or "_native_batch_norm_legit_functional" in kinds
    evaluated = Model(GpuNorm(torch.miopen_batch_norm)).eval()
    assert len(tct.trace(evaluated, X, workspace=False).graph.operators) > 5


def test_cudnn_norm_averages_are_results_updated_once() -> None:
    model, x = Model(GpuNorm(torch.cudnn_batch_norm)), torch.arange(8.0).view(2, 4)
    traced = tct.trace(model, x)
    tct.step(tc.plan(traced.graph, "recompute_all"), traced)(x)
    expected = nn.BatchNorm1d(4, momentum=0.5)
    expected(model.layer(x))
    assert torch.equal(model.after.running_mean, expected.running_mean)
    assert torch.equal(model.after.running_var, expected.running_var)


def test_in_place_operators_within_graph_are_refused() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.ops.aten.add_.Tensor, (x, x)),))
    module = torch.fx.GraphModule(nn.Module(), graph)
    with pytest.raises(tc.GraphError, match=r"model: add__tensor, .*, writes to an argument"):
        joint_of_graph(module, 1, "model")


def test_missing_framework_error_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "find_spec", lambda name: None)
    with pytest.raises(tc.BackendError, match=r"pip install 'tinyckpt\[torch\]'"):
        check_torch()
    with pytest.raises(tc.BackendError, match=r"needs JAX, .*: pip install 'tinyckpt\[jax\]'"):
        frameworks.check_installed("jax", "JAX")


def test_loss_without_submodules_is_traced() -> None:
    class Loss(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.mse_loss(x, torch.zeros_like(x))

    assert tct.trace(Loss(), torch.ones(3, requires_grad=True)).graph.gradients


class Drawing(nn.Module):
    """A linear layer, times a number that a function gives, and a count of its calls."""

    def __init__(self, draw: Any, **held: Any) -> None:
        super().__init__()
        self.layer, self.draw, self.calls = nn.Linear(4, 4), draw, 0
        vars(self).update(held)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return (self.layer(x) * self.draw(self)).sum()


@pytest.mark.parametrize(
    ("model", "which"),
    [
        (Drawing(lambda own: random.random()), "random"),
        (Drawing(lambda own: np.random.rand()), r"numpy\.random"),
        (Drawing(lambda own: own.rng.random(), rng=random.Random(3)), "rng"),
        (Drawing(lambda own: own.rng.random(), rng=np.random.default_rng(3)), "rng"),
    ],
)
def test_python_and_numpy_random_numbers_are_refused(model: Drawing, which: str) -> None:
    with pytest.raises(
        tc.GraphError, match=rf"Drawing: its forward draws random numbers from {which}, which"
    ):
        tct.trace(model, X)
    assert model.calls == 0


def test_own_torch_generator_is_refused() -> None:
    generator = torch.Generator().manual_seed(3)
    with pytest.raises(tc.GraphError, match="is a generator of its own; use PyTorch"):
        tct.trace(Model(lambda h: (h * torch.rand(4, generator=generator)).sum()), X)


def seeded(how: str) -> Any:
    """Return a forward that chooses the random numbers of its dropout."""

    def forward(h: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng(enabled=how == "fork_rng"):
            if how == "generator":
                torch.default_generator.manual_seed(3)
            elif how == "manual_seed":
                torch.random.manual_seed(3)
            elif how == "set_rng_state":
                torch.set_rng_state(STATE)
            return nn.functional.dropout(h, 0.5).sum()

    return forward


STATE = torch.random.get_rng_state()


@pytest.mark.parametrize("how", ["fork_rng", "generator", "manual_seed", "set_rng_state"])
def test_forward_that_sets_seed_is_refused(how: str) -> None:
    before = torch.manual_seed, torch.random.set_rng_state
    with pytest.raises(tc.GraphError, match="Model: its forward sets the seed or the state of"):
        tct.trace(Model(seeded(how)), X)
    assert before == (torch.manual_seed, torch.random.set_rng_state)
    tct.trace(Model(seeded("")), X)
