"""Unusual models and surrounding modes: gradients of plain PyTorch, or one clear refusal."""

import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from threading import Thread
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.conftest import lacking, require

require("torch")

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.advising import record_steps


class Net(nn.Module):
    """Layers, and a function of them and the arguments."""

    def __init__(self, *layers: nn.Module, made: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.layers, self.made = nn.ModuleList(layers), made

    def forward(self, x: Tensor) -> Any:
        if self.made is not None:
            return self.made(self, x)
        return through(self, x).square().sum()


def through(net: Net, x: Tensor) -> Tensor:
    for layer in net.layers:
        x = layer(x)
    return x


def rows(dtype: torch.dtype = torch.float32, **options: Any) -> Tensor:
    return torch.randn(6, 8, dtype=dtype, **options)


def two(dtype: torch.dtype = torch.float32, **options: Any) -> Net:
    return Net(nn.Linear(8, 8, dtype=dtype), nn.Tanh(), nn.Linear(8, 4, dtype=dtype), **options)


def with_inner_gradient(net: Net, x: Tensor) -> Tensor:
    y = through(net, x).square().sum()
    found = torch.autograd.grad(y, list(net.parameters()), create_graph=True)
    return y + sum((each.square().sum() for each in found), torch.zeros(()))


def with_hook(net: Net, x: Tensor) -> Tensor:
    hidden = net.layers[0](x)
    hidden.register_hook(lambda gradient: gradient * 3)
    return hidden.square().sum()


class Signed(torch.autograd.Function):
    """The identity, with another gradient."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return -gradient * context.saved_tensors[0].sign()


def hooked() -> Net:
    net = two()
    net.layers[0].weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    net.layers[0].weight.register_hook(lambda gradient: gradient * 2)
    net.layers[0].bias.register_hook(lambda gradient: None)
    return net


def frozen() -> Net:
    net = two()
    net.layers[2].requires_grad_(False)
    return net


MODELS: dict[str, Callable[[], tuple[Net, Tensor]]] = {
    "float64": lambda: (two(torch.float64), rows(torch.float64)),
    "bfloat16": lambda: (two(torch.bfloat16), rows(torch.bfloat16)),
    "float16": lambda: (two(torch.float16), rows(torch.float16)),
    "complex": lambda: (
        Net(nn.Linear(8, 8, dtype=torch.complex64), made=lambda n, x: through(n, x).abs().sum()),
        rows(torch.complex64),
    ),
    "no parameters": lambda: (Net(nn.Tanh()), rows(requires_grad=True)),
    "frozen": lambda: (frozen(), rows()),
    "an empty batch": lambda: (two(), torch.randn(0, 8)),
    "a dict": lambda: (two(made=lambda n, x: {"loss": through(n, x).sum()}), rows()),
    "a gradient in forward": lambda: (two(made=with_inner_gradient), rows()),
    "a hook on a value": lambda: (two(made=with_hook), rows()),
    "hooks on parameters": lambda: (hooked(), rows()),
    "a function with a gradient of its own": lambda: (
        two(made=lambda n, x: Signed.apply(through(n, x)).sum()), rows()
    ),
    "strides": lambda: (two(), torch.randn(8, 6).T),
    "an argument twice in memory": lambda: (two(), torch.randn(1, 8).expand(6, 8)),
}  # fmt: skip


def made(name: str) -> tuple[Net, Tensor]:
    torch.manual_seed(0)
    return MODELS[name]()


def check_step(model: Net, x: Tensor) -> None:
    """Check loss and gradients of a step that recomputes all it can."""
    traced = tct.trace(model, x, workspace=False)
    loss, gradients = tct.step(tc.plan(traced.graph, "recompute_all"), traced)(x)
    check_gradients(model, x, loss, gradients)


def check_gradients(model: Net, x: Tensor, loss: Tensor, gradients: dict[str, Tensor]) -> None:
    with torch.enable_grad():
        found = model(x)
        expected = found["loss"] if isinstance(found, dict) else found
        expected.backward()
    assert torch.equal(loss, expected)
    named = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    if x.grad is not None:
        named["args[0]"] = x.grad
    assert gradients.keys() == named.keys()
    assert all(torch.equal(gradients[name], named[name]) for name in named)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", MODELS)
def test_gradients_equal_plain_pytorch(name: str) -> None:
    check_step(*made(name))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "a gradient in forward"])
def test_advise_accepts_unusual_models(name: str) -> None:
    model, x = made(name)
    assert tct.advise(model, x, budget="1 GiB", workspace=False).plain_peak > 0


REFUSED: dict[str, tuple[Callable[[], tuple[nn.Module, Tensor]], str]] = {
    "sparse": (
        lambda: (Net(nn.Embedding(9, 4, sparse=True)), torch.arange(6)),
        r"layout torch.sparse_coo, .*sparse=False",
    ),
    "complex": (
        lambda: (
            Net(nn.Linear(8, 8, dtype=torch.complex64), made=lambda n, x: through(n, x).sum()),
            rows(torch.complex64),
        ),
        r"Net: forward returns complex64\[\]; expected a real loss",
    ),
    "TorchScript": (
        lambda: (torch.jit.script(nn.Linear(8, 1)), rows()),
        r"expected a torch.nn.Module, got a program of TorchScript$",
    ),
    "TorchScript inside": (
        lambda: (Net(torch.jit.script(nn.Linear(8, 1))), rows()),
        r"expected a torch.nn.Module, got a program of TorchScript as layers.0 of Net$",
    ),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("advised", [False, True])
def test_refusal_names_the_remedy(name: str, advised: bool) -> None:
    make, says = REFUSED[name]
    model, x = make()
    with pytest.raises(tc.GraphError, match=says):
        tct.advise(model, x, budget=0.5) if advised else tct.trace(model, x)


def ctc(net: Net, x: Tensor) -> Tensor:
    chances, labels = net.layers[0](x).view(3, 2, 8).log_softmax(-1), torch.randint(1, 8, (2, 2))
    return nn.functional.ctc_loss(chances, labels, torch.tensor([3, 3]), torch.tensor([2, 2]))


@pytest.mark.parametrize("name", ["ctc", "nested"])
def test_backend_refuses_data_dependent_extents(name: str) -> None:
    x = rows()
    model = Net(nn.Linear(8, 8), made=ctc if name == "ctc" else lambda n, x: through(n, x).sum())
    if name == "nested":
        x = torch.nested.nested_tensor([torch.ones(2, 8), torch.ones(3, 8)], layout=torch.jagged)
    with pytest.raises(Exception, match=r"GraphError: .*depends on the values of tensors; expect"):
        torch.compile(model, backend=tct.backend(None))(x)
    torch.compiler.reset()


def test_trace_names_module_that_is_already_compiled() -> None:
    inner = torch.compile(nn.Linear(8, 8), backend="eager")
    with pytest.raises(tc.GraphError, match=r"Net: layers.1 is compiled already"):
        tct.trace(Net(nn.Tanh(), inner), rows())
    model = two()
    with pytest.raises(tc.GraphError, match=r"OptimizedModule: it is compiled already"):
        tct.trace(torch.compile(model, backend="eager"), rows())
    model.compile(backend="eager")
    with pytest.raises(tc.GraphError, match=r"Net: it is compiled already"):
        tct.trace(model, rows())


def with_functional_gradient(net: Net, x: Tensor) -> Tensor:
    found: Tensor = torch.func.grad(lambda x: through(net, x).square().sum())(x)
    return found.square().sum()


@pytest.mark.parametrize("made", [with_inner_gradient, with_functional_gradient])
def test_advise_refuses_forward_that_differentiates_with_its_line(made: Any) -> None:
    first = made.__code__.co_firstlineno
    said = (
        rf"^Net: forward differentiates by itself \({re.escape(__file__)}, line "
        rf"({first + 1}|{first + 2})\), which advice does not support; trace takes such models$"
    )
    with pytest.raises(tc.GraphError, match=said):
        tct.advise(two(made=made), rows(), budget=0.5, workspace=False)


def test_step_refuses_post_accumulate_grad_hooks() -> None:
    model, x = two(), rows()
    traced = tct.trace(model, x, workspace=False)
    step = tct.step(tc.plan(traced.graph), traced)
    handle = model.layers[0].weight.register_post_accumulate_grad_hook(lambda p: None)
    with pytest.raises(tc.GraphError, match=r"layers.0.weight has a hook on its .grad"):
        step(x)
    handle.remove()
    check_gradients(model, x, *step(x))


def test_step_interrupted_by_hook_writes_no_buffer() -> None:
    def interrupt(gradient: Tensor) -> None:
        raise KeyboardInterrupt

    model, x = Net(nn.Linear(8, 4), nn.BatchNorm1d(4)), rows()
    traced = tct.trace(model, x, workspace=False)
    step = tct.step(tc.plan(traced.graph), traced)
    handle = next(model.parameters()).register_hook(interrupt)
    before = [buffer.clone() for buffer in model.buffers()]
    with pytest.raises(KeyboardInterrupt):
        step(x)
    assert before
    assert all(map(torch.equal, before, model.buffers()))
    handle.remove()
    step(x)
    assert not any(map(torch.equal, before, model.buffers()))


@pytest.fixture(params=["no_grad", "inference_mode", "detect_anomaly"])
def surrounded(request: pytest.FixtureRequest) -> Iterator[None]:
    context: Any = {
        "no_grad": torch.no_grad,
        "inference_mode": torch.inference_mode,
        "detect_anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    }[request.param]
    with context():
        yield


@pytest.mark.usefixtures("surrounded")
def test_trace_ignores_surrounding_modes() -> None:
    with torch.inference_mode(False):
        model, x = two(), rows()
    traced = tct.trace(model, x, workspace=False)
    loss, gradients = tct.step(tc.plan(traced.graph, "recompute_all"), traced)(x)
    assert tct.advise(model, x, budget="1 GiB", workspace=False).plain_peak > 0
    with torch.inference_mode(False), torch.autograd.set_detect_anomaly(False):
        loss, gradients = loss.clone(), {name: each.clone() for name, each in gradients.items()}
        check_gradients(model, x, loss, gradients)


def test_step_uses_autocast_of_trace() -> None:
    model, x = two(), rows()
    for traced_in in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=traced_in):
            traced = tct.trace(model, x, workspace=False)
        step = tct.step(tc.plan(traced.graph, "recompute_all"), traced)
        with torch.autocast("cpu", torch.bfloat16, enabled=not traced_in):
            loss, gradients = step(x)
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=traced_in):
            expected = model(x)
        expected.backward()
        assert torch.equal(loss, expected)
        assert all(torch.equal(gradients[n], p.grad) for n, p in model.named_parameters())


def test_products_outside_autocast_have_their_size_in_plan_traced_under_it() -> None:
    def in_float(net: Net, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return through(net, x).square().sum()

    model, x = two(made=in_float), rows()
    with torch.autocast("cpu", torch.bfloat16):
        traced = tct.trace(model, x, workspace=False)
    schedule = tc.plan(traced.graph)
    step = tct.step(schedule, traced)
    peak, _ = tct.allocator_peak(lambda: step(x))
    assert 0 <= peak - tc.replay(schedule).peak_bytes <= 8


def test_threads_can_trace_one_model() -> None:
    model, x = two(), rows()
    before = dict(model.named_parameters())
    found: list[Any] = []

    def call() -> None:
        traced = tct.trace(model, x, workspace=False)
        advice = tct.advise(model, x, budget="1 GiB", workspace=False)
        found.append((len(traced.graph.operators), advice.plain_peak))

    threads = [Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert all(before[name] is p for name, p in model.named_parameters())


def test_backend_and_compare_validate_arguments_eagerly() -> None:
    with pytest.raises(tc.OptionError, match=r"cost 'flop'; .*did you mean flops"):
        tct.backend("1 GiB", cost="flop")  # type: ignore[arg-type]
    with pytest.raises(tc.OptionError, match=r"on_plan=3; expected a function"):
        tct.partitioner("1 GiB", on_plan=3)  # type: ignore[arg-type]
    for budgets in ((2.0,), "x"):
        with pytest.raises(tc.OptionError, match=r"activation_memory_budget .*; expected a number"):
            tct.compare(two(), rows(), budgets=budgets)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("drawn", "whose"),
    [(random.random, "Python's"), (np.random.rand, "NumPy's"), (lambda: 1.0, "")],
)
def test_peak_of_a_forward_that_draws_its_layers_is_said_to_be_of_one_draw(
    drawn: Callable[[], float], whose: str
) -> None:
    def dropping(net: Net, x: Tensor) -> Tensor:
        for layer in net.layers:
            x = layer(x) if drawn() > 0.5 else x
        return net.layers[0](x).square().sum()

    model, x = Net(nn.Linear(8, 8), nn.Tanh(), made=dropping), rows()
    before = random.getstate()
    found = tct.estimate(model, x), tct.advise(model, x, budget="1 GiB", workspace=False)
    assert random.getstate() == before
    said = f"Forward draws {whose} random numbers; steps that draw others may take more."
    for each in found:
        assert each.caveat == (said if whose else "")
        assert str(each).count(said) == bool(whose)


@pytest.mark.parametrize(
    "drawn", [lambda: torch.rand([]), lambda: torch.rand(1).item()], ids=["tensor", "number"]
)
def test_layerdrop_is_recorded_with_no_layer_dropped(drawn: Callable[[], Any]) -> None:
    class Dropping(nn.Module):
        def __init__(self, rate: float) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.rate = rate
            self.layers = nn.ModuleList(
                nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)) for _ in range(4)
            )

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = x if drawn() < self.rate else layer(x)
            return self.layers[0](x).square().sum()

    model, x = Dropping(0.5), torch.randn(64, 8)
    state = torch.get_rng_state()
    found = tct.advise(model, x, budget=0.9)
    assert torch.equal(torch.get_rng_state(), state)
    assert "PyTorch's random numbers to decide by, here just below 1; steps" in found.caveat
    assert tct.estimate(Dropping(0.0), x).caveat == found.caveat
    plain, advised, whole = Dropping(0.5), Dropping(0.5), Dropping(0.0)
    peak, _ = tct.allocator_peak(lambda: whole(x).backward())
    assert tct.estimate(plain, x).peak == peak
    found.apply(advised)
    for seed in range(4):
        for model in (plain, advised):
            torch.manual_seed(seed)
            model(x).backward()
    gradients = [[p.grad for p in model.parameters()] for model in (plain, advised)]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_random_numbers_that_decide_nothing_have_no_caveat() -> None:
    def scaled(net: Net, x: Tensor) -> Tensor:
        return (net.layers[0](x) * torch.rand(1)).square().sum()

    assert tct.estimate(Net(nn.Linear(8, 8), made=scaled), rows()).caveat == ""


class Experts(nn.Module):
    """A product by groups in float32, for which PyTorch's own rule of shapes asks for bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 16, 32))
        self.register_buffer("ends", torch.tensor([8, 20, 32], dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        return torch._grouped_mm(x.tanh(), self.weight, offs=self.ends).square().sum()


def test_products_by_groups_are_predicted_and_run() -> None:
    if not hasattr(torch, "_grouped_mm"):
        lacking("a PyTorch with products by groups")
    model, x = Experts(), torch.randn(32, 16)
    loss = model(x)
    loss.backward()
    expected = model.weight.grad
    model.weight.grad = None
    peak, _ = tct.allocator_peak(lambda: model(x).backward())
    assert tct.estimate(model, x).peak == peak
    model.weight.grad = None
    traced = tct.trace(model, x)
    value, gradients = tct.step(tc.plan(traced.graph, "store_all"), traced)(x)
    assert torch.equal(value, loss)
    assert torch.equal(gradients["weight"], expected)


@pytest.mark.parametrize("kind", ["estimate", "advise", "selective", "offload", "lint"])
@pytest.mark.parametrize("how", ["whole", "in place", "a part"])
def test_compiled_models_stay_compiled(kind: str, how: str) -> None:
    runs: list[int] = []

    def backend(graph: Any, given: Any) -> Any:
        def run(*args: Any) -> Any:
            runs.append(1)
            return graph(*args)

        return run

    torch.compiler.reset()
    model, x = two(), rows()
    if how == "whole":
        model = torch.compile(model, backend=backend)
    elif how == "in place":
        model.compile(backend=backend)
    else:
        model.compile(backend=backend)
        model = Net(model, made=lambda net, x: net.layers[0](x) * 2)

    def graphs_run() -> int:
        runs.clear()
        model(x).backward()
        return len(runs)

    before = graphs_run()
    options = {} if kind in ("estimate", "lint") else {"budget": "1 GiB"}
    getattr(tct, kind)(model, x, **options)
    assert graphs_run() == before > 0
    torch.compiler.reset()


@pytest.mark.parametrize("wrapped", [0, 2, 4])
def test_backward_outside_of_autocast_is_predicted(wrapped: int) -> None:
    def made() -> nn.Sequential:
        torch.manual_seed(0)
        blocks = [
            nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4)
        ]
        return nn.Sequential(*blocks, Net())

    x = torch.randn(256, 64)

    def step(model: nn.Module) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x)
        loss.backward()

    model = made()
    names = tuple(map(str, range(wrapped)))
    with torch.autocast("cpu", torch.bfloat16):
        seen = next(record_steps(model, (x,), None, workspace=True))
        predicted, _ = seen.wrapping.evaluate(names)
    for name in names:
        module = model.get_submodule(name)
        module.forward = partial(checkpoint, module.forward, use_reentrant=False)
    with torch.autocast("cpu", torch.bfloat16):
        assert abs(tct.estimate(model, x).peak - predicted) <= 8
        assert torch.is_autocast_enabled("cpu")
    step(model)
    model.zero_grad()
    measured, _ = tct.allocator_peak(lambda: step(model))
    assert abs(predicted - measured) <= 8


class Spectral(nn.Module):
    """Products of complex matrices, whose kernels copy an operand that is conjugated lazily."""

    def __init__(self) -> None:
        super().__init__()
        weights = (torch.randn(8, 32, 32, dtype=torch.cfloat) / 32 for _ in range(3))
        self.weights = nn.ParameterList(weights)

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = torch.bmm(x, weight)
        return x.abs().sum()


def test_copies_of_conjugated_operands_are_counted() -> None:
    model, x = Spectral(), torch.randn(8, 4, 32, dtype=torch.cfloat)
    model(x).backward()
    model.zero_grad()
    measured, _ = tct.allocator_peak(lambda: model(x).backward())
    assert abs(tct.estimate(model, x).peak - measured) <= 8
