"""Schedules run in PyTorch: the predicted peak, and gradients equal to plain PyTorch's."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import PROFILE, require

require("torch")

import torch

from tests.torch_models import EXAMPLES, eager_step, example
from tinyckpt.interop import torch as tct

# From the smallest peak that is found in SECONDS, up to store-all's.
BUDGETS = 10 if PROFILE == "deep" else 3
SECONDS = 4 if PROFILE == "deep" else 1
STORED_MISS, PLAN_MISS = 0.002, 0.005  # of the peak


def equal(found: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether tensors have the same names and the same bits."""
    assert found.keys() == expected.keys()
    return all(torch.equal(found[name], expected[name]) for name in found)


def schedules(graph: tc.TrainingGraph) -> Iterator[tc.Schedule]:
    """Return schedules for budgets between the smallest peak that is found and store-all's."""
    frontier = tc.frontier(graph, time_limit=SECONDS)
    smallest, largest = frontier.points[0].peak, tc.replay(tc.plan(graph)).peak_bytes
    for k in range(BUDGETS):
        budget = smallest + (largest - smallest) * k // (BUDGETS - 1)
        schedule = frontier.schedule(budget, certified=False)
        assert tc.replay(schedule).peak_bytes <= budget
        yield schedule


class Step:
    """A training step of a model, always from the same buffers and random state."""

    def __init__(self, name: str) -> None:
        self.model, self.args = example(name)
        self.buffers = {name: value.clone() for name, value in self.model.named_buffers()}

    def taken(self, step: Any) -> tuple[int, Any, dict[str, Any]]:
        """Take a step; return its peak, what it returns, and the buffers after it."""
        for name, value in self.model.named_buffers():
            value.copy_(self.buffers[name])
        torch.manual_seed(1)
        peak, result = tct.allocator_peak(step)
        return peak, result, {name: x.clone() for name, x in self.model.named_buffers()}

    def eager(self) -> tuple[int, Any, dict[str, Any], dict[str, Any]]:
        """Take a step of plain PyTorch; return gradients besides."""
        peak, loss, buffers = self.taken(eager_step(self.model, self.args))
        return peak, loss, buffers, {n: p.grad for n, p in self.model.named_parameters()}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", EXAMPLES)
def test_step_has_predicted_peak_and_results_of_plain_pytorch(name: str) -> None:
    own = Step(name)
    traced = tct.trace(own.model, *own.args)
    eager_peak, loss, buffers, gradients = own.eager()
    stored = tc.plan(traced.graph)
    predicted = tc.replay(stored).peak_bytes
    run = tct.step(stored, traced)
    peak, (own_loss, own_gradients), own_buffers = own.taken(lambda: run(*own.args))
    assert abs(peak / predicted - 1) <= STORED_MISS
    if name in ("GPT", "Llama", "ResNet"):  # dropout of eager mode is made of other operators
        assert abs(eager_peak / predicted - 1) <= STORED_MISS
        assert torch.equal(own_loss, loss)
        assert equal(own_gradients, gradients)
        assert equal(own_buffers, buffers)
    for schedule in schedules(traced.graph):
        run = tct.step(schedule, traced)
        peak, (loss, gradients), buffers = own.taken(lambda run=run: run(*own.args))
        assert peak <= (1 + PLAN_MISS) * tc.replay(schedule).peak_bytes
        assert torch.equal(loss, own_loss)
        assert equal(gradients, own_gradients)
        assert equal(buffers, own_buffers)


@pytest.mark.nightly
def test_recomputation_redraws_dropout_and_updates_buffers_once() -> None:
    for name in ("GPT with dropout", "ResNet"):
        own = Step(name)
        traced = tct.trace(own.model, *own.args, workspace=False)
        results = []
        for policy in ("store_all", "sqrt_n"):
            schedule = tc.plan(traced.graph, policy)
            assert (tc.replay(schedule).recomputations > 0) == (policy == "sqrt_n")
            run = tct.step(schedule, traced)
            args = own.args
            results.append(own.taken(lambda run=run, args=args: run(*args))[1:])
        ((loss, gradients), buffers), ((other_loss, others), other_buffers) = results
        assert torch.equal(loss, other_loss)
        assert equal(gradients, others)
        assert equal(buffers, other_buffers)


def test_generator_states_of_recomputed_operators_are_charged() -> None:
    # Of so small a network the generator's states are a quarter of all that is held.
    torch.manual_seed(0)
    layers = [
        torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.5), torch.nn.Tanh())
        for _ in range(6)
    ]
    model, x = torch.nn.Sequential(*layers, Mean()), torch.ones(32, 16)
    traced = tct.trace(model, x)
    graph = traced.graph
    states = [operator for operator in graph.operators if operator.kind == "generator_state"]
    assert [operator.once for operator in states] == [True] * 6
    (size,) = {graph.data[state.outputs[0]].nbytes for state in states}
    assert size == len(torch.get_rng_state())
    peaks = []
    for policy in ("store_all", "recompute_all", "sqrt_n"):
        schedule = tc.plan(graph, policy)
        run = tct.step(schedule, traced)
        torch.manual_seed(1)
        peak, (loss, _) = tct.allocator_peak(lambda run=run: run(x))
        peaks.append((tc.replay(schedule).peak_bytes - peak, float(loss)))
    # Where nothing is drawn again, two states at most are predicted that are not there.
    assert all(-64 <= spare <= 2 * size for spare, _ in peaks), peaks
    assert len({loss for _, loss in peaks}) == 1


def test_step_reads_parameters_at_call_time() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0), Mean())
    traced = tct.trace(model, torch.ones(2, 3))
    step = tct.step(tc.plan(traced.graph), traced)
    first, gradients = step(torch.ones(2, 3))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter -= gradients[name]
    assert step(torch.ones(2, 3))[0] == model(torch.ones(2, 3)).detach() != first


class Mean(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean()


def test_argument_that_requires_gradient_gets_one() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    traced = tct.trace(Mean(), x)
    _, gradients = tct.step(tc.plan(traced.graph), traced)(x)
    assert list(gradients) == ["args[0]"]
    assert torch.equal(gradients["args[0]"], torch.full((2, 3), 1 / 6))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "0 arguments in the nesting"),
        ((torch.ones(3, 3),), r"args\[0\] is float32\[3,3\] on cpu .* traced as float32\[2,3\]"),
        ((torch.ones(2, 3, dtype=torch.float64),), r"args\[0\] is float64\[2,3\]"),
        ((torch.ones(3, 2).T,), r"with strides \(1, 2\); it was traced as"),
        ((1.0,), r"args\[0\] is a float"),
    ],
)
def test_mismatched_arguments_are_refused(args: tuple[Any, ...], says: str) -> None:
    traced = tct.trace(torch.nn.Sequential(torch.nn.Linear(3, 1), Mean()), torch.ones(2, 3))
    with pytest.raises(tc.GraphError, match=says):
        tct.step(tc.plan(traced.graph), traced)(*args)


def test_step_refuses_schedules_that_cannot_run() -> None:
    traced = tct.trace(torch.nn.Sequential(torch.nn.Linear(3, 1), Mean()), torch.ones(2, 3))
    graph = traced.graph
    with pytest.raises(tc.ScheduleError, match="of another graph than the traced one, Sequential"):
        tct.step(tc.plan(tc.networks.chain(3)), traced)
    with pytest.raises(tc.ScheduleError, match="the schedule ends without"):
        tct.step(tc.Schedule(graph, (tc.Compute(0),), "mine"), traced)
    for given in (3, "abc", traced):
        with pytest.raises(tc.ScheduleError, match="expected a schedule of Sequential, such as"):
            tct.step(given, traced)  # type: ignore[arg-type]
        with pytest.raises(tc.ScheduleError, match="expected the result of trace, got a"):
            tct.step(tc.plan(graph), graph)  # type: ignore[arg-type]
    steps = list(tc.plan(graph).steps)
    value = graph.operators[1].outputs[0]
    at = steps.index(tc.Compute(1)) + 1
    moved = tc.Schedule(graph, (*steps[:at], tc.Offload(value), tc.Fetch(value), *steps[at:]), "m")
    with pytest.raises(tc.ScheduleError, match=r"offload .*; programs of PyTorch only compute"):
        tct.step(moved, traced)


class FirstTokenOnly(torch.nn.Module):
    """Layers with dropout, after the last of which one token is used; some draws nobody reads."""

    def __init__(self, width: int, unread: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(5))
        self.unread = unread

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dropout = torch.nn.functional.dropout
        for place, layer in enumerate(self.layers):
            made = dropout(layer(x).tanh(), 0.3)
            aside = dropout(layer(x + 1).relu(), 0.1)
            x = made if place in self.unread else made + aside
        return dropout(x, 0.2).square().mean()


@pytest.mark.parametrize("unread", [(0,), (2, 3), (4,), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("policy", ["revolve", "rotor", "sqrt_n", "recompute_all", "optimal"])
def test_policies_leave_out_no_draw_that_nobody_reads(policy: str, unread: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(32, 16)
    traced = tct.trace(FirstTokenOnly(16, unread), x)
    options = {"time_limit": 2} if policy == "optimal" else {}
    results = []
    for schedule in (tc.plan(traced.graph, policy, **options), tc.plan(traced.graph)):
        torch.manual_seed(1)
        step = tct.step(schedule, traced)
        results.append([*(step(x) for _ in range(2)), torch.rand(1)])
    (loss, gradients), (second, later), drawn = results[0]
    (stored, expected), (stored_second, expected_later), stored_drawn = results[1]
    assert torch.equal(torch.stack([loss, second]), torch.stack([stored, stored_second]))
    assert equal(gradients, expected)
    assert equal(later, expected_later)
    assert torch.equal(drawn, stored_drawn)


class DrawsInBackward(torch.autograd.Function):
    """The identity; its backward draws numbers that nothing reads."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        torch.rand_like(gradient)
        return gradient.clone()


def test_schedule_without_a_draw_is_refused() -> None:
    class Drawing(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return DrawsInBackward.apply(super().forward(x)).square().mean()

    traced = tct.trace(Drawing(4, 4), torch.ones(2, 4))
    graph = traced.graph
    markers = [operator for operator in graph.operators if operator.kind == "drawn"]
    assert [marker.phase for marker in markers] == ["backward"]
    left = {markers[0].id, *(graph.data[value].producer for value in markers[0].inputs)}
    kept = [operator.id for operator in graph.operators if operator.id not in left]
    with pytest.raises(tc.ScheduleError, match=r"leaves out rand_like, which draws random"):
        tct.step(tc.from_order(graph, kept), traced)
    tct.step(tc.plan(graph), traced)


def test_random_operators_first_draw_in_traced_order() -> None:
    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            dropout = torch.nn.functional.dropout
            return (dropout(x * 2) + dropout(x * 3)).mean()

    traced = tct.trace(Two(), torch.ones(4, requires_grad=True))
    names = [operator.name for operator in traced.graph.operators]
    first, second = names.index("native_dropout"), names.index("native_dropout_1")
    order = list(range(len(names)))
    order.remove(first)
    order.insert(order.index(second) + 1, first)
    with pytest.raises(
        tc.ScheduleError, match=r"native_dropout, which draws random .* of the trace"
    ):
        tct.step(tc.from_order(traced.graph, order), traced)
