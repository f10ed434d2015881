"""The peak of a recorded step is the allocator's to the byte: sums of gradients, random steps."""

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.conftest import require

require("torch")

import torch
from torch import Tensor, nn

from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch import eager, infer_shapes, isolated_worker
from tinyckpt.interop.torch.capture import FakeMode

ONE = 8  # bytes: the number 1 with which backward begins


def misses(model: nn.Module, *args: Tensor) -> int:
    """Return by how many bytes the predicted peak is above the measured one."""
    predicted = tct.estimate(model.train(), *args).peak
    measured, _ = tct.allocator_peak(lambda: model(*args).backward())
    return predicted - measured


class Step(nn.Module):
    """A function of a value that is read several times, so that its gradients are summed."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x * 1.0)


# The gradient that comes first is that of what is evaluated last.
SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "in place": lambda h: (h * 2).exp().sum() + (h * 3).exp().sum(),
    "of three": lambda h: h.cos().sum() + h.sin().sum() + h.exp().sum(),
    "of slices": lambda h: sum((h[:, i] * i).square().sum() for i in range(10)),
    "of an expanded one": lambda h: h.cos().sum() + (h * h.mean(0)).cos().sum(),
    "with itself": lambda h: (h + h + h * h).square().sum(),
    "view first": lambda h: h.cos().sum() + (h.view(1, 4, 100, 10) * 3).cos().sum(),
    "view last": lambda h: (h.view(1, 4, 100, 10) * 3).cos().sum() + h.cos().sum(),
    "reshaped": lambda h: h.cos().sum() + (h.reshape(400, 10) * 3).cos().sum(),
    "transposed": lambda h: h.cos().sum() + (h.transpose(0, 1) * 3).cos().sum(),
    "mean of a view": lambda h: h.cos().sum() + (h.view(1, 4, 100, 10).mean(1) * 2).cos().sum(),
    "still needed": lambda h: (h * 2).exp().mul(h).exp().sum() + (h + h.detach()).exp().sum(),
}


@pytest.mark.parametrize("function", SUMS.values(), ids=SUMS)
def test_sum_of_gradients_is_counted_as_the_engine_makes_it(
    function: Callable[[Tensor], Tensor],
) -> None:
    x = torch.randn(4, 100, 10, requires_grad=True)
    assert abs(misses(Step(function), x)) <= ONE


# What a value is read by, of which no gradient is asked.
DROPPED: dict[str, Callable[[Tensor], Tensor]] = {
    "result saved": lambda h: h.softmax(-1).argmax(-1),
    "both saved": lambda h: torch.cdist(h, h.detach()).argmin(-1),
    "detached": lambda h: (h * h).sqrt().sum(-1).detach(),
}


@pytest.mark.parametrize("function", DROPPED.values(), ids=DROPPED)
def test_saved_values_of_dropped_graph_are_freed_with_it(
    function: Callable[[Tensor], Tensor],
) -> None:
    x = torch.randn(4, 100, 10, requires_grad=True)
    step = Step(lambda h: (function(h).unsqueeze(-1) + (h * 2).tanh()).exp().sum())
    assert abs(misses(step, x)) <= ONE


# Autograd keeps the factor, eight bytes, until the gradient of the view has been scaled.
WRITES: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda h: h[:2].mul_(2),
    "row, then all": lambda h: h[0].div_(3) if h.mul_(2) is h else h,
    "flat": lambda h: h.view(-1).mul_(0.5),
    "transposed": lambda h: h.transpose(0, 1).div_(3),
    "view of a view": lambda h: h.view(-1)[::2].mul_(2),
    "added to": lambda h: h[1].add_(1),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_view_that_is_written_to_is_never_predicted_below(
    write: Callable[[Tensor], Tensor],
) -> None:
    def scaled(h: Tensor) -> Tensor:
        h = h.sin()
        write(h)
        return h

    x = torch.randn(4, 100, 10, requires_grad=True)
    model = Step(lambda h: (scaled(h).exp() * 2).square().sum() + scaled(scaled(h)).sum())
    assert 0 <= misses(model, x) <= ONE


FACTORS, TABLE = torch.rand(10), torch.rand(400, 10)
ROWS, PLACES = torch.randint(0, 400, (900,)), torch.randint(0, 10, (400, 10))
# Their derivatives put gradients into zeros, in place; sum what they have made themselves; or are
# other programs on tensors of a subclass, as FakeTensors are.
DERIVATIVES: dict[str, Callable[[Tensor], Tensor]] = {
    "index_select": lambda h: h.index_select(0, ROWS),
    "index": lambda h: h[ROWS],
    "gather": lambda h: h.gather(1, PLACES),
    "take_along_dim": lambda h: h.take_along_dim(PLACES, 1),
    "max": lambda h: h.max(1).values,
    "topk": lambda h: h.topk(4, 1).values,
    "cummax": lambda h: h.cummax(0).values,
    "scatter_add": lambda h: h.scatter_add(1, PLACES, h),
    "var_mean": lambda h: sum(torch.var_mean(h, 1)),
    "std_mean, summed": lambda h: sum(torch.std_mean(h, 1)) * h.cos().sum(1),
    "embedding": lambda h: nn.functional.embedding(ROWS, h),
    "max of all": lambda h: h.max(),
    "min of all": lambda h: h / h.min(),
    "median of all": lambda h: h.median(),
    "prod": lambda h: h.prod(1),
    "prod of all": lambda h: h.prod(),
    "cumprod": lambda h: h.cumprod(1),
    "householder_product": lambda h: torch.linalg.householder_product(h, h[0]),
    "trace": lambda h: (h @ h.T).trace(),
    "ormqr": lambda h: torch.ormqr(h, h[0], h),
    "clamp by tensors": lambda h: h.clamp(-h.exp(), h.exp()),
    "masked_fill by a tensor": lambda h: h.masked_fill(PLACES > 4, h.mean()),
    "cross entropy of probabilities": lambda h: (
        -nn.functional.binary_cross_entropy(h.sigmoid(), h.exp().tanh(), reduction="none")
    ),
    "cross entropy of targets with gradients": lambda h: (
        -nn.functional.binary_cross_entropy_with_logits(h, h.exp(), reduction="none")
    ),
    "cross entropy of two classes": lambda h: (
        -nn.functional.binary_cross_entropy_with_logits(h, h.detach(), reduction="none")
    ),
    "cross entropy, weighted": lambda h: (
        -nn.functional.binary_cross_entropy_with_logits(
            h, h.detach(), weight=FACTORS, pos_weight=FACTORS, reduction="none"
        )
    ),
}


@pytest.mark.parametrize("function", DERIVATIVES.values(), ids=DERIVATIVES)
def test_derivative_allocates_what_it_does_on_tensors_with_data(
    function: Callable[[Tensor], Tensor],
) -> None:
    x = torch.randn(400, 10, requires_grad=True)
    assert abs(misses(Step(lambda h: function(h.sin()).sin().square().mean()), x)) <= ONE


def test_derivative_that_reads_zeros_says_that_it_may_take_more() -> None:
    x = torch.randn(400, 10, requires_grad=True)
    step = Step(lambda h: h.relu().prod(1).sum() + h.cumprod(1).sum())
    assert misses(step, x) < 0
    found = tct.estimate(step, x), tct.advise(step, x, budget="1 MiB")
    said = "The derivative of cumprod and prod takes more where a factor is 0."
    assert [each.caveat for each in found] == [said, said]
    assert tct.estimate(Step(lambda h: h.exp().sum()), x).caveat == ""


@pytest.fixture
def threads() -> Iterator[None]:
    """Let PyTorch use two threads, whatever the processor has."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_derivative_of_a_mask_is_predicted_as_if_it_selected_all(share: float) -> None:
    # From 32,768 elements on, and on several threads, what is selected takes more.
    mask = torch.rand(1260, 46) < share
    x = torch.randn(1260, 46, requires_grad=True)
    model = Step(lambda h: h.masked_fill(mask, h.mean()).sin().square().sum())
    if share == 1.0:
        assert misses(model, x) == 0
    else:
        assert misses(model, x) > 0


def test_derivative_that_cannot_be_measured_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = isolated_worker.evaluate_requests

    def failing(requests: Sequence[Any], wanted: Any) -> list[Any]:
        replies = evaluate(requests, wanted)
        return [
            "RuntimeError: none" if request["by"] else reply
            for request, reply in zip(requests, replies, strict=True)
        ]

    monkeypatch.setattr(isolated_worker, "evaluate_requests", failing)
    x = torch.randn(401, 11, requires_grad=True)  # of no other test: measurements are cached
    said = r"derivatives of these operators count as .* data.*: prod \(RuntimeError: none\)"
    with pytest.warns(UserWarning, match=said):
        tct.estimate(Step(lambda h: h.prod(1).sum()), x)


# Tensors that are no argument and not the model's.
OUTSIDE: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda h: h * TABLE,
    "a view": lambda h: h.view(10, 400) * TABLE.view(10, 400),
    "a transposed view": lambda h: h.T * TABLE.T.view_as(TABLE.T),
    "a part": lambda h: torch.cat([h[:200] * TABLE[200:], h[200:]]),
}


@pytest.mark.parametrize("function", OUTSIDE.values(), ids=OUTSIDE)
def test_tensor_from_outside_the_model_is_not_allocated_by_a_step(
    function: Callable[[Tensor], Tensor],
) -> None:
    x = torch.randn(400, 10, requires_grad=True)
    assert abs(misses(Step(lambda h: function(h.sin()).sin().square().mean()), x)) <= ONE


def test_tensor_that_forward_makes_of_numbers_is_allocated() -> None:
    x = torch.randn(40, 10, requires_grad=True)
    numbers = list(range(10)) * 50
    assert misses(Step(lambda h: h[:, torch.tensor(numbers)].sin().mean()), x) == 0


class Graph(nn.Module):
    """A layer of a graph network: edges from a vertex to itself are left out, by a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 32)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[:, edges[0] != edges[1]]
        sent = self.layer(x).tanh().index_select(0, source)
        return torch.zeros(len(x), 32).index_add(0, target, sent).square().mean()


def test_shapes_that_follow_from_integers_passed_in_are_known() -> None:
    edges = torch.randint(0, 200, (2, 900))
    edges[1, ::3] = edges[0, ::3]
    assert abs(misses(Graph(), torch.randn(200, 16), edges)) <= ONE


def test_step_of_many_operators_says_so_before_it_takes_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eager, "MANY", 20)
    x = torch.randn(4, requires_grad=True)
    loops = [Step(lambda h, n=n: sum((h * i for i in range(n)), h).sum()) for n in (2, 20)]
    with warnings.catch_warnings(action="error"):
        tct.estimate(loops[0], x)
    with pytest.warns(UserWarning, match="Step: forward evaluates 42 operators and saved values"):
        tct.estimate(loops[1], x)


def test_attention_with_weights_returned() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            y, weights = self.attention(x, x, x)
            return (y * x).sum() + weights.sum()

    assert abs(misses(Attention(), torch.randn(8, 50, 32))) <= ONE


def test_lstm_is_counted_to_the_byte_the_first_time_too() -> None:
    """FakeTensorMode gives its biases one gradient, or two if the layouts are in its table."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(8, 64)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)[0].sum()

    model, x = Recurrent(), torch.randn(2, 1, 8)
    infer_shapes.KNOWN.clear()
    FakeMode.cache_clear()
    assert [misses(model, x) for _ in range(2)] == [0, 0]


@pytest.mark.nightly
def test_layer_norm_of_transposed_gradient() -> None:
    """Its kernel returns a contiguous gradient, which the next layer need not copy."""

    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.layer = nn.LayerNorm(32), nn.Linear(32, 32)

        def forward(self, x: Tensor) -> Tensor:
            h = self.norm(self.layer(x).relu() + x)
            return (h.transpose(1, 2).contiguous() ** 2).sum() + h.transpose(1, 2).mean()

    assert abs(misses(Normed(), torch.randn(8, 100, 32))) <= ONE


def test_batch_norm_of_transposed_gradient() -> None:
    """Its kernel returns a gradient in the format of its input, which a convolution need not copy.

    So it is where images become tokens, as in XCiT.
    """

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
            self.second = nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False)
            self.norm, self.layer = nn.BatchNorm2d(32), nn.Linear(32, 1)

        def forward(self, x: Tensor) -> Tensor:
            patches = self.norm(self.second(self.first(x)))
            found: Tensor = self.layer(patches.flatten(2).transpose(1, 2))
            return found.sum()

    assert abs(misses(Tokens(), torch.randn(4, 3, 16, 16))) <= ONE


class RandomStep(nn.Module):
    """A step of random operators on values, each of which may be read several times."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.layers = nn.ModuleList(nn.Linear(24, 24) for _ in range(3))
        self.norm = nn.LayerNorm(24)
        self.program = [
            (draw.randrange(len(self.kinds())), draw.random(), draw.random())
            for _ in range(draw.randrange(4, 14))
        ]

    def kinds(self) -> list[Callable[[Tensor, Tensor], Tensor]]:
        return [
            lambda p, q: self.layers[1](p),
            lambda p, q: p.tanh() * q,
            lambda p, q: p + q,
            lambda p, q: self.norm(p),
            lambda p, q: p.transpose(1, 2).contiguous().transpose(1, 2),
            lambda p, q: p.reshape(-1, 24).relu().view(p.shape),
            lambda p, q: (p @ q.transpose(1, 2)).softmax(-1) @ p,
            lambda p, q: torch.cat([p[:, :5], q[:, 5:]], 1),
            lambda p, q: p.mean(1, keepdim=True).expand(p.shape) * 1.5,
            lambda p, q: p.log_softmax(-1),
            lambda p, q: torch.stack([p, q]).sum(0),
            lambda p, q: p.chunk(2, -1)[0].repeat(1, 1, 2),
            lambda p, q: p.flip(1) - q,
            lambda p, q: self.layers[2](p.transpose(0, 1)).transpose(0, 1),
            lambda p, q: p.clone().mul_(0.5),
            lambda p, q: torch.where(p > 0, p, q * 0.1),
        ]

    def forward(self, x: Tensor) -> Tensor:
        values, kinds = [x, self.layers[0](x)], self.kinds()
        for kind, first, second in self.program:
            p, q = (values[int(share * len(values))] for share in (first, second))
            values.append(kinds[kind](p, q))
        return sum((value.square().mean() for value in values[1:]), torch.zeros(()))


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(60))
def test_random_step_is_predicted_to_the_byte(seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn(4, 20, 24, requires_grad=seed % 2 == 0)
    assert abs(misses(RandomStep(seed), x)) <= ONE
