"""Control flow that reads integers: the recorded step takes the course of the real one."""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import require

require("torch")

import torch
from torch import Tensor, nn

from tests.torch_fingerprint import changes, fingerprint
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch import known_values
from tinyckpt.interop.torch.known_values import KnownValues


class Reader(nn.Module):
    """A model that does more if what it computes of its mask is true."""

    def __init__(self, decide: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.decide = decide
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.first(x).relu()
        if self.decide(mask):
            x = self.second(x).relu()
        return x.square().sum()


def assigned(mask: Tensor) -> Tensor:
    """Write to a part of the mask through a view of it."""
    mask = mask.clone()
    mask[:, :2] = 1
    mask.view(-1)[2:6] *= 0
    return mask.sum() == 3


DECIDING: dict[str, Callable[[Tensor], Any]] = {
    "all": lambda mask: mask.all(),
    "sum of positions": lambda mask: (torch.arange(4) * mask[0]).sum() > 3,
    "item": lambda mask: mask.max().item() - mask.min().item(),
    "list": lambda mask: 0 in mask.tolist()[1],
    "a float": lambda mask: float(mask.float().mean()) > 0.5,
    "written to": assigned,
    "equal": lambda mask: torch.equal(mask, torch.ones(2, 4, dtype=torch.int64)),
    "in place": lambda mask: bool(torch.zeros(2, 4, dtype=torch.int64).add_(mask).cumsum(1)[1, -1]),
}


@pytest.mark.parametrize("decide", DECIDING.values(), ids=DECIDING)
@pytest.mark.parametrize("row", [[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], ids=str)
def test_recorded_step_takes_course_of_real_one(
    decide: Callable[[Tensor], Any], row: list[int]
) -> None:
    model, x, mask = Reader(decide), torch.randn(64, 16), torch.tensor([[1, 1, 1, 1], row])
    before = fingerprint(model, x, mask)
    predicted = tct.estimate(model, x, mask).peak
    assert not changes(before, fingerprint(model, x, mask))
    measured, _ = tct.allocator_peak(lambda: model(x, mask).backward())
    assert abs(predicted - measured) <= 8  # the number 1 with which backward begins


def test_both_courses_differ() -> None:
    """The tests above would see the wrong course."""
    model, x = Reader(DECIDING["all"]), torch.randn(64, 16)
    ones = torch.ones(2, 4, dtype=torch.int64)
    peaks = [tct.estimate(model, x, mask).peak for mask in (ones, 0 * ones)]
    assert peaks[0] == peaks[1] + 64 * 16 * 4


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "random": lambda mask: torch.randint(2, (3,)).all(),
    "random of its shape": lambda mask: torch.randint_like(mask, 2).all(),
    "random in place": lambda mask: torch.zeros(3).bernoulli_().all(),
    "uninitialised": lambda mask: torch.empty_like(mask).all(),
    "random numbers of a constant": lambda mask: torch.ones(4).uniform_().gt(0.5).all(),
    "an unknown written to it": lambda mask: mask.clone().copy_(torch.randint(2, (2, 4))).all(),
    "an unknown written to a view": lambda mask: written_behind(mask.clone()).all(),
    "large": lambda mask: torch.ones(known_values.MOST_ELEMENTS + 1).all(),
    "an index out of range": lambda mask: torch.arange(3)[mask + 5].all(),
}


def written_behind(mask: Tensor) -> Tensor:
    """Write random numbers to a view, and return the tensor that it is a view of."""
    mask[0].copy_(torch.randint(2, (4,)))
    return mask


@pytest.mark.parametrize("decide", REFUSED.values(), ids=REFUSED)
def test_what_is_not_known_is_refused(decide: Callable[[Tensor], Any]) -> None:
    model, x, mask = Reader(decide), torch.randn(64, 16), torch.ones(2, 4, dtype=torch.int64)
    with pytest.raises(tc.GraphError, match=r"test_known_values.py, line \d+\); expected"):
        tct.estimate(model, x, mask, workspace=False)


def test_plan_reads_constants_but_no_arguments() -> None:
    """It is executed with other arguments than those it was traced with."""
    x, mask = torch.randn(64, 16), torch.ones(2, 4, dtype=torch.int64)
    traced = tct.trace(Reader(lambda mask: torch.arange(4).sum() == 6), x, mask, workspace=False)
    assert len(traced.graph.operators) > 8
    with pytest.raises(tc.GraphError, match=r"does not depend on the values"):
        tct.trace(Reader(DECIDING["all"]), x, mask, workspace=False)


class Selecting(nn.Module):
    """A model whose loss is of what a mask selects."""

    def __init__(self, select: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.select = nn.Linear(16, 32), select

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.select(self.layer(x).sin(), mask).exp().sin().square().mean()


def overwritten(values: Tensor, mask: Tensor) -> Tensor:
    """Write what one mask selects to where another one selects as much, and select it."""
    values = values * 2
    values[mask] = values[mask.flip(0)].exp()
    return values[mask]


SELECTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rows": lambda values, mask: values[mask],
    "elements": lambda values, mask: values[mask[:, None] & (torch.arange(32) > 3)],
    "rows of a column": lambda values, mask: values[~mask, 3],
    "masked_select": lambda values, mask: values.masked_select(mask[:, None]),
    "constant": lambda values, mask: (values @ values.T)[~torch.eye(200, dtype=torch.bool)],
    "written to": overwritten,
}


@pytest.mark.parametrize("select", SELECTIONS.values(), ids=SELECTIONS)
@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_selection_by_a_known_mask_has_its_size(select: Any, share: float) -> None:
    model, x, mask = Selecting(select), torch.randn(200, 16), torch.rand(200) < share
    before = fingerprint(model, x, mask)
    predicted = tct.estimate(model, x, mask).peak
    assert not changes(before, fingerprint(model, x, mask))
    measured, _ = tct.allocator_peak(lambda: model(x, mask).backward())
    assert abs(predicted - measured) <= 8


@pytest.mark.parametrize("select", [SELECTIONS["rows"], SELECTIONS["masked_select"]])
def test_selection_by_an_unknown_mask_is_refused(select: Any) -> None:
    model = Selecting(lambda values, mask: select(values, values[:, 0] > 0))
    with pytest.raises(tc.GraphError, match="a shape that depends on the values of a tensor"):
        tct.estimate(model, torch.randn(200, 16), torch.rand(200) < 0.3, workspace=False)


class Counting(nn.Module):
    """A block that initializes itself in its first call, and skips every second one."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("is_set", torch.tensor(False))
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_set:
            self.mean.copy_(x.detach().mean(0))
            self.is_set.fill_(True)
        self.calls += 1
        return x + self.inner(x - self.mean) if int(self.calls) % 2 else x


def test_counters_among_buffers_are_read_as_they_are() -> None:
    def steps(model: nn.Module) -> list[Any]:
        found: list[Any] = []
        for _ in range(3):
            peak, _ = tct.allocator_peak(lambda: model(x).square().sum().backward())
            found.append([peak, *(p.grad for p in model.parameters()), *model.buffers()])
            found[-1] = [y if y is None or isinstance(y, int) else y.clone() for y in found[-1]]
            model.zero_grad()
        return found

    def blocks() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(*(Counting() for _ in range(4)), nn.Linear(16, 16))

    x = torch.randn(64, 16)
    model = blocks()
    before = fingerprint(model, x)
    advice = tct.advise(model, x, loss=lambda y: y.square().sum(), budget="60 %")
    assert not changes(before, fingerprint(model, x))
    assert advice.modules
    plain, advised = steps(model), steps(advice.apply(blocks()))
    assert abs(plain[0][0] - advice.plain_peak) <= 8
    assert abs(advised[0][0] - advice.peak) <= 8
    for one, other in zip(plain, advised, strict=True):
        assert all(a is b or torch.equal(a, b) for a, b in zip(one[1:], other[1:], strict=True))


class Logging(nn.Module):
    """A model that notes what it computes, as in a progress bar, and may read what it noted."""

    def __init__(self, read: Callable[[Any], Any] = repr) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 64), nn.Tanh()) for _ in range(3))
        self.read, self.seen, self.average = read, [], 0.0

    def forward(self, x: Tensor) -> dict[str, Any]:
        values = [layer(x) for layer in self.layers]
        loss = torch.cat(values).square().mean()
        self.seen.append(loss.item())
        self.average = 0.9 * self.average + 0.1 * loss.item()
        self.read((values[0] > 0).sum().item())
        return {"loss": loss, "text": f"{loss.item():.3f}", "share": self.seen[-1] / len(x)}


def test_numbers_that_forward_logs_are_no_obstacle() -> None:
    model, x = Logging(), torch.randn(64, 16)
    before = fingerprint(model, x)
    predicted = tct.estimate(model, x).peak
    advice = tct.advise(model, x, budget="90 %", workspace=False)
    assert not changes(before, fingerprint(model, x))
    assert advice.modules
    measured, _ = tct.allocator_peak(lambda: model(x)["loss"].backward())
    assert abs(predicted - measured) <= 8
    with pytest.raises(tc.GraphError, match="the value of a tensor"):
        tct.trace(model, x, workspace=False)


DECIDED: dict[str, Callable[[Any], Any]] = {
    "if": lambda n: 1 if n else 0,
    "less": lambda n: n < 3,
    "equal": lambda n: n == 0,
    "combined": lambda n: 2 * n + 1 > 3,
    "greatest": lambda n: max(n, 0.0),
    "rounded": round,
    "int": int,
    "float": float,
    "loop": range,
    "size": torch.zeros,
    "size among others": lambda n: torch.zeros(n, 8),
    "copies": lambda n: torch.ones(4).repeat(n, 1),
    "rows": lambda n: torch.ones(4).narrow(0, 0, n),
    "parts": lambda n: torch.ones(4).split([n, n]),
    "slice": lambda n: torch.ones(4)[:n],
    "element": lambda n: torch.ones(4)[n],
    "index": [0, 1].__getitem__,
}


@pytest.mark.parametrize("read", DECIDED.values(), ids=DECIDED)
def test_number_that_forward_decides_by_is_refused(read: Callable[[Any], Any]) -> None:
    with pytest.raises(
        tc.GraphError,
        match=r"value of a tensor, as for .*_values.py, line \d+\)",
    ):
        tct.estimate(Logging(read), torch.randn(64, 16), workspace=False)


class Policy(nn.Module):
    """A loss of distributions, which check their parameters and samples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x: Tensor, actions: Tensor) -> Tensor:
        chosen = torch.distributions.Categorical(logits=self.layer(x), validate_args=True)
        drawn = torch.distributions.Normal(self.layer(x), chosen.probs + 0.1, True)
        return (drawn.log_prob(drawn.rsample()).sum(-1) - chosen.log_prob(actions)).mean()


def test_distributions_are_recorded_and_traced_with_their_checks() -> None:
    model, x, actions = Policy(), torch.randn(64, 16), torch.randint(8, (64,))
    predicted = tct.estimate(model, x, actions).peak
    measured, _ = tct.allocator_peak(lambda: model(x, actions).backward())
    assert abs(predicted - measured) <= 8
    traced = tct.trace(model, x, actions, workspace=False)
    torch.manual_seed(0)
    loss, gradients = tct.step(tc.plan(traced.graph, "recompute_all"), traced)(x, actions)
    torch.manual_seed(0)
    model.zero_grad()
    expected = model(x, actions)
    expected.backward()
    assert torch.equal(loss, expected)
    assert all(torch.equal(gradients[name], p.grad) for name, p in model.named_parameters())


def test_failing_check_of_a_distribution_is_refused() -> None:
    # Explicitly: the first compilation of a process turns the checks off.
    model = Reader(lambda mask: torch.distributions.Bernoulli(mask * 2.0, validate_args=True))
    x = torch.randn(64, 16)
    with pytest.raises(tc.GraphError, match="to satisfy the constraint"):
        tct.estimate(model, x, torch.ones(2, 4, dtype=torch.int64), workspace=False)


# Functions of PyTorch that read values of their arguments, in Python or in C++, to check them.
CHECKED: dict[str, Callable[[Tensor], Tensor]] = {
    "any": lambda h: nn.functional.gaussian_nll_loss(h, h.sin(), h.exp()),
    "all": lambda h: (
        -torch.distributions.MultivariateNormal(h[0], h.T @ h, validate_args=True).log_prob(h).sum()
    ),
    "in C++": lambda h: torch.cov(h.T).sum(),
    "of a window": lambda h: torch.istft(
        torch.stft(h.flatten(), 32, window=WINDOW, return_complex=True), 32, window=WINDOW
    ).sum(),
}
WINDOW = torch.hann_window(32)


@pytest.mark.parametrize("function", CHECKED.values(), ids=CHECKED)
def test_checks_of_arguments_by_pytorch_pass(function: Callable[[Tensor], Tensor]) -> None:
    class Checking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 8))

        def forward(self, x: Tensor) -> Tensor:
            return function(self.layers(x))

    model, x = Checking(), torch.randn(64, 16)
    found = tct.advise(model, x, budget=1.0)
    measured, _ = tct.allocator_peak(lambda: model(x).backward())
    assert found.plain_peak == measured


def test_forward_that_decides_by_all_or_any_of_unknown_values_is_refused() -> None:
    is_causal = nn.modules.transformer._detect_is_causal_mask
    all_or_any = (
        lambda mask: (mask > 0).all(),
        lambda mask: torch.any(mask < 0),
        lambda mask: 2 in mask,
        lambda mask: is_causal(mask.T @ mask),
    )
    for asks in all_or_any:
        with pytest.raises(tc.GraphError, match="does not depend on the values of its tensors"):
            tct.estimate(Reader(asks), torch.randn(64, 16), torch.ones(2, 4), workspace=False)


def random_program(draw: random.Random, length: int) -> list[tuple[Any, ...]]:
    """Return random calls on a list of integer tensors: name, operands, where the result goes."""
    names = (
        "add",
        "mul",
        "sub",
        "eq",
        "cumsum",
        "flip",
        "view",
        "add_",
        "masked_fill_",
        "where",
        "set",
    )
    return [
        (draw.choice(names), draw.randrange(4), draw.randrange(4), draw.randrange(4))
        for _ in range(length)
    ]


def ran(program: list[tuple[Any, ...]], tensors: list[Tensor]) -> list[Tensor]:
    """Run a random program."""
    for name, first, second, to in program:
        a, b = tensors[first], tensors[second]
        if name in ("add", "mul", "sub", "eq"):
            result = getattr(a, name)(b).long() % 7
        elif name == "where":
            result = torch.where(a > b, a, b)
        elif name == "view":
            result = a.view(4, 3).t().t().view(3, 4)  # shares its memory
        elif name == "set":
            a[b > 3] = 1
            result = a
        elif name == "add_":
            result = a.add_(b).remainder_(7)
        elif name == "masked_fill_":
            result = a.masked_fill_(b > 3, 2)
        else:
            result = getattr(a, name)(1) if name == "cumsum" else a.flip(0)
        tensors[to] = result
    return tensors


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_have_the_values_of_real_tensors(seed: int) -> None:
    draw = random.Random(seed)
    program = random_program(draw, 25)
    torch.manual_seed(seed)
    given = [torch.randint(5, (3, 4)) for _ in range(4)]
    expected = ran(program, [x.clone() for x in given])
    mode = known_values.private_attribute("torch._subclasses:FakeTensorMode")()
    fakes = [mode.from_tensor(x) for x in given]
    with mode, KnownValues(fakes, given):
        results = [x.tolist() for x in ran(program, list(fakes))]
    assert results == [x.tolist() for x in expected]


def test_transformers_is_put_back_after_an_error() -> None:
    require("transformers")
    utils = pytest.importorskip("transformers.utils.import_utils")
    before = utils.is_fake_tensor
    for model in (Reader(REFUSED["random"]), Reader(DECIDING["all"])):
        for call in (tct.estimate, tct.trace):
            with suppress(tc.GraphError):
                call(model, torch.randn(4, 16), torch.ones(2, 4).long(), workspace=False)
            assert utils.is_fake_tensor is before


@pytest.mark.sampled(1)
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("padded", [False, True])
def test_mask_of_transformers(device: str, padded: bool) -> None:
    """A mask of ones is left out, as in a plain step; one without numbers is applied."""
    require("transformers")
    from benchmarks.zoo import operators  # noqa: F401  (before transformers imports torchvision)

    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, use_cache=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).train()
    words, mask = torch.randint(64, (2, 96)), torch.ones(2, 96, dtype=torch.int64)
    mask[1, 90:] = 1 - padded
    batch = {"input_ids": words, "labels": words, "attention_mask": mask}
    measured, _ = tct.allocator_peak(lambda: model(**batch).loss.backward())
    model, batch = model.to(device), {name: x.to(device) for name, x in batch.items()}
    predicted = tct.estimate(model, **batch, workspace=False).peak
    applied = device == "meta" and not padded
    assert predicted > measured if applied else abs(predicted - measured) <= 8


class Filling(nn.Module):
    """A model that decides by what it makes of the layout of an activation."""

    def __init__(self, decide: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.decide, self.first, self.second = decide, nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return (self.second(x) if self.decide(x) else x).square().sum()


def written_to(x: Tensor) -> Tensor:
    """Make zeros, and write what is not known to them."""
    made = torch.zeros_like(x)
    made += x
    return made.sum() > 0


@pytest.mark.parametrize(
    "decide",
    [
        lambda x: torch.ones_like(x, dtype=torch.long).sum() == x.numel(),
        lambda x: x.new_zeros(3).any() or x.new_full((2,), 5).max() > 4,
        lambda x: torch.full_like(x, 2)[0, :3].tolist() == [2, 2, 2],
    ],
    ids=["ones_like", "new_zeros and new_full", "full_like"],
)
def test_constants_of_an_activations_layout_are_known(decide: Callable[[Tensor], Any]) -> None:
    model, x = Filling(decide), torch.randn(16, 8)
    measured, _ = tct.allocator_peak(lambda: model(x).backward())
    assert tct.estimate(model, x).peak == measured


@pytest.mark.parametrize(
    "decide",
    [written_to, lambda x: torch.empty_like(x).sum() > 0, lambda x: torch.rand_like(x).max() > 0],
    ids=["written to", "empty_like", "rand_like"],
)
def test_constants_that_are_written_to_are_not_known(decide: Callable[[Tensor], Any]) -> None:
    with pytest.raises(tc.GraphError, match=r"value of a tensor.*test_known_values\.py, line"):
        tct.estimate(Filling(decide), torch.randn(16, 8))


class Speech(nn.Module):
    """A model with the loss of connectionist temporal classification."""

    def __init__(self, reduction: str, zero_infinity: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Linear(24, 9))
        self.loss = nn.CTCLoss(reduction=reduction, zero_infinity=zero_infinity)

    def forward(self, x: Tensor, targets: Tensor, frames: Any, letters: Any) -> Tensor:
        scores = self.layers(x).log_softmax(-1)
        return self.loss(scores, targets, frames, letters).sum()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    ("shape", "targets", "letters"),
    [((40, 3), (3, 12), [12, 4, 9]), ((40, 3), (25,), [12, 4, 9]), ((40,), (12,), [12])],
    ids=["padded", "concatenated", "one alone"],
)
@pytest.mark.parametrize("listed", [True, False], ids=["lists", "tensors"])
def test_memory_of_ctc_loss_follows_from_its_lengths(
    shape: tuple[int, ...], targets: tuple[int, ...], letters: list[int], listed: bool,
    reduction: str,
) -> None:  # fmt: skip
    torch.manual_seed(0)
    frames = [40, 30, 40][: len(letters)]
    lengths = [tuple(frames), tuple(letters)] if listed else map(torch.tensor, (frames, letters))
    args = torch.randn(*shape, 6), torch.randint(1, 9, targets), *lengths
    model = Speech(reduction, zero_infinity=listed)
    measured, _ = tct.allocator_peak(lambda: model(*args).backward())
    assert tct.estimate(model, *args).peak == measured
    advice = tct.advise(model, *args, budget=measured)
    assert advice.peak == measured


def test_unknown_lengths_of_ctc_loss_are_refused_with_the_line() -> None:
    class Guessing(Speech):
        def forward(self, x: Tensor, targets: Tensor, frames: Any, letters: Any) -> Tensor:
            found = (x.sum((0, 2)) > 0).long() + 20
            return super().forward(x, targets, found, letters)

    args = torch.randn(40, 3, 6), torch.randint(1, 9, (3, 12)), None, torch.tensor([12, 4, 9])
    with pytest.raises(tc.GraphError, match=r"the value of a tensor.*test_known_values\.py, line"):
        tct.estimate(Guessing("mean", zero_infinity=False), *args)
