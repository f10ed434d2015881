"""Models as they are: keyword arguments, a batch as one dict, the loss within the output."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import require

require("torch")

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import tinyckpt as tc
from tinyckpt.interop import torch as tct

WIDTH, ROWS = 16, 32
BUDGET = "80 %"


class Blocks(nn.Module):
    """Blocks that are worth checkpointing; returns what ``form`` makes of loss and output."""

    def __init__(self, form: Any) -> None:
        super().__init__()
        self.form = form
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(4)
        )

    def forward(self, x: Tensor, labels: Tensor | None = None, *, scale: float = 1.0) -> Any:
        for block in self.blocks:
            x = x + scale * block(x)
        return self.form(None if labels is None else F.cross_entropy(x, labels), x)


def only_loss(loss: Any, x: Any) -> Any:
    return x if loss is None else loss


FORMS = {
    "loss": only_loss,
    "tuple": lambda loss, x: (loss, x),
    "loss last": lambda loss, x: (x, loss),
    "dict": lambda loss, x: {"logits": x, "loss": loss},
    "attribute": lambda loss, x: SimpleNamespace(logits=x, loss=loss),
}


def batch() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {"x": torch.randn(ROWS, WIDTH), "labels": torch.randint(0, WIDTH, (ROWS,))}


def blocks(form: str = "loss") -> Blocks:
    torch.manual_seed(1)
    return Blocks(FORMS[form])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMS)
def test_loss_is_found_in_whatever_form_it_is_returned(form: str) -> None:
    expected = tct.advise(blocks(), *batch().values(), budget=BUDGET, workspace=False)
    assert 0 < len(expected.modules) < 4
    model = blocks(form)
    for args, named in (((), batch()), ((batch(),), {}), (tuple(batch().values()), {})):
        found = tct.advise(model, *args, budget=BUDGET, workspace=False, **named)
        assert (found.modules, found.peak, found.cost) == (
            expected.modules, expected.peak, expected.cost,
        )  # fmt: skip
    assert "forward" not in vars(model)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMS)
def test_planned_step_takes_keyword_arguments_and_equals_eager(form: str) -> None:
    model, given = blocks(form), batch()
    traced = tct.trace(model, **given, scale=0.5, workspace=False)
    step = tct.step(tc.plan(traced.graph, "greedy", budget="90 %"), traced)
    loss, gradients = step(**given, scale=0.5)
    other = blocks()
    expected = other(**given, scale=0.5)
    expected.backward()
    assert torch.equal(loss, expected)
    assert all(torch.equal(gradients[name], p.grad) for name, p in other.named_parameters())
    with pytest.raises(tc.GraphError, match=r"1\.0; it was traced as 0\.5, a constant"):
        step(**given, scale=1.0)
    with pytest.raises(tc.GraphError, match="it was traced with"):
        step(given["x"])


def test_estimate_is_of_the_plain_step() -> None:
    advice = tct.advise(blocks(), *batch().values(), budget="100 %", workspace=False)
    found = tct.estimate(blocks("dict"), batch(), workspace=False)
    assert (found.peak, found.source_bytes) == (advice.plain_peak, advice.source_bytes)
    # Of a block: two products of WIDTH x 4 WIDTH; in the backward pass each has two, but for the
    # gradient of x.
    products = 2 * ROWS * 4 * WIDTH**2 * 2 * 4
    assert found.flops == 3 * products - products // 8
    assert str(found).startswith("Blocks: ")
    assert found.total == found.peak + found.source_bytes


def test_loss_function_takes_output_and_targets() -> None:
    model, (x, labels) = blocks(), batch().values()
    expected = tct.advise(model, x, labels, budget=BUDGET, workspace=False)
    own: dict[str, Any] = {"loss": F.cross_entropy, "workspace": False}
    for targets in (labels, (labels,), [labels]):
        found = tct.advise(model, x, targets=targets, budget=BUDGET, **own)
        assert (found.modules, found.peak) == (expected.modules, expected.peak)
    traced = tct.trace(model, x, targets=labels, **own)
    loss, _ = tct.step(tc.plan(traced.graph), traced)(x, targets=labels)
    assert torch.equal(loss, model(x, labels))
    bare = tct.trace(model, x, loss=lambda output: output.square().mean(), workspace=False)
    loss, _ = tct.step(tc.plan(bare.graph), bare)(x)
    assert torch.equal(loss, model(x).square().mean())


@pytest.mark.nightly
class Perceptual(nn.Module):
    """The distance of what a frozen network makes of output and target."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()).requires_grad_(False)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(self.network(output), self.network(target))


class Taught(Blocks):
    """Has a teacher in a list, so that it is no submodule."""

    def __init__(self) -> None:
        super().__init__(only_loss)
        self.teacher = [Perceptual()]

    def forward(self, x: Tensor, labels: Tensor | None = None, *, scale: float = 1.0) -> Any:
        return self.teacher[0](super().forward(x), x)


@pytest.mark.parametrize("is_inside", [False, True], ids=["loss", "teacher"])
def test_modules_that_are_no_submodules_have_parameters_too(is_inside: bool) -> None:
    x = batch()["x"]
    model, loss = (Taught(), None) if is_inside else (blocks(), Perceptual())
    options: dict[str, Any] = {} if loss is None else {"loss": loss, "targets": x}

    def step() -> None:
        (model(x) if loss is None else loss(model(x), x)).backward()

    measured, _ = tct.allocator_peak(step)
    assert tct.estimate(model, x, **options).peak == measured
    plain = [p.grad for p in model.parameters()]
    advice = tct.advise(model, x, budget=BUDGET, **options)
    assert advice.modules
    model.zero_grad()
    advice.apply(model)
    measured, _ = tct.allocator_peak(step)
    assert measured == advice.peak
    assert all(map(torch.equal, plain, [p.grad for p in model.parameters()]))  # type: ignore[arg-type]


def test_selective_and_compare_take_the_model_as_it_is() -> None:
    model, given = blocks("dict"), batch()
    found = tct.selective(model, given, budget="100 %", workspace=False)
    assert found.peak == tct.selective(blocks(), **given, budget="100 %", workspace=False).peak
    compared = tct.compare(model, **given, budgets=(1.0,), time_limit=1)
    assert not compared.rows[0].failed
    assert "forward" not in vars(model)


def test_forward_of_a_wrapped_model_is_put_back() -> None:
    model = blocks("dict")
    own = model.forward = lambda *args, **named: {"loss": type(model).forward(model, *args)["loss"]}
    before = dict(vars(model))
    advice = tct.advise(model, *batch().values(), budget=BUDGET, workspace=False)
    assert vars(model) == before
    assert model.forward is own
    assert advice.modules


class Targeted(Blocks):
    """As nanoGPT's model: its forward takes targets, and returns logits and loss."""

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Any:  # type: ignore[override]
        return super().forward(x, targets)


def test_targets_that_forward_takes_are_its_argument() -> None:
    x, labels = batch().values()
    torch.manual_seed(1)
    model = Targeted(FORMS["loss last"])
    expected = tct.advise(blocks(), x, labels, budget=BUDGET, workspace=False)
    for args, named in (((x,), {"targets": labels}), ((x, labels), {})):
        found = tct.advise(model, *args, budget=BUDGET, workspace=False, **named)
        assert (found.modules, found.peak) == (expected.modules, expected.peak)
    traced = tct.trace(model, x, targets=labels, workspace=False)
    loss, _ = tct.step(tc.plan(traced.graph), traced)(x, targets=labels)
    assert torch.equal(loss, model(x, labels)[1])


class OneDict(Blocks):
    """Takes a batch as one argument, as its keys are no names of arguments."""

    def forward(self, batch: dict[str, Tensor]) -> Any:  # type: ignore[override]
        return super().forward(**batch)


def test_dict_that_forward_takes_is_passed_as_it_is() -> None:
    torch.manual_seed(1)
    advice = tct.advise(OneDict(only_loss), batch(), budget=BUDGET, workspace=False)
    assert advice.modules == tct.advise(
        blocks(), batch(), budget=BUDGET, workspace=False
    ).modules  # fmt: skip


@pytest.mark.parametrize(
    ("args", "named", "error"),
    [
        ((), {"x": "x"}, r"forward returns float32\[32,16\]; expected one scalar .* loss="),
        ((), {"targets": "labels", "x": "x"}, "targets are given without loss="),
        (("batch",), {"x": "x"}, "x is given twice"),
        ((), {"x": "x", "loss": 3}, "loss=3; expected a function"),
        ((), {"x": "x", "bias": "x"}, "unexpected keyword argument 'bias'"),
    ],
)
def test_what_gives_no_loss_is_refused_and_nothing_is_left(
    args: tuple[str, ...], named: dict[str, Any], error: str
) -> None:
    known = {**batch(), "batch": batch()}
    model = blocks()
    own = {name: known.get(value, value) for name, value in named.items()}
    given = [known[name] for name in args]
    for call in (tct.trace, lambda *a, **k: tct.advise(*a, budget=BUDGET, **k)):
        with pytest.raises(tc.GraphError, match=error):
            call(model, *given, workspace=False, **own)
    assert "forward" not in vars(model)


def test_class_is_refused() -> None:
    with pytest.raises(tc.GraphError, match="the class Blocks"):
        tct.advise(Blocks, **batch(), budget=BUDGET)  # type: ignore[arg-type]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["Llama", "GPT2", "Bert"])
def test_model_of_transformers_is_advised_on_as_it_is(kind: str) -> None:
    require("transformers")
    from benchmarks.zoo import operators  # noqa: F401  (before transformers imports torchvision)

    tf = pytest.importorskip("transformers")
    sizes: dict[str, Any] = {
        "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
        "num_attention_heads": 4,
    }  # fmt: skip
    if kind == "GPT2":
        sizes = {"vocab_size": 100, "n_embd": 32, "n_layer": 3, "n_head": 4}
    name = "BertForMaskedLM" if kind == "Bert" else f"{kind}ForCausalLM"
    name = "GPT2LMHeadModel" if kind == "GPT2" else name

    def made() -> Any:
        torch.manual_seed(0)
        return getattr(tf, name)(getattr(tf, f"{kind}Config")(**sizes)).train()

    tokens = torch.randint(3, 100, (2, 48))
    given = {"input_ids": tokens, "labels": tokens}
    model, kept = made(), kind == "Bert"  # with its cache no layer of a decoder can be wrapped
    with pytest.raises(tc.BudgetError, match=r"past_key_values.*: pass use_cache=False|^BertFor"):
        tct.advise(model, **given, use_cache=True, budget=1, workspace=False)
    advice = tct.advise(model, **given, budget="85 %", workspace=False)
    assert advice.modules
    assert model.config.use_cache
    line = "model.config.use_cache = False\n"
    assert [line in advice.source, line in advice.code("transformers")] == [not kept] * 2
    some = tct.selective(made(), **given, budget="85 %", workspace=False)
    assert (line in some.code()) is not kept
    moved = tct.offload(made(), **given, budget="85 %", recompute=True, at_least=0, workspace=False)
    fitting = tct.advise(made(), **given, budget=advice.plain_peak, workspace=False)
    assert "nothing to wrap" in str(fitting)
    assert (line.strip() in str(fitting)) is not kept
    results = []
    for tried in (made(), *(each.apply(made()) for each in (advice, some, moved, fitting))):
        assert tried.config.use_cache is (kept or not results)
        torch.manual_seed(7)  # of dropout
        loss = tried(**given).loss
        loss.backward()
        results.append([loss, *(p.grad for p in tried.parameters())])
    assert all(all(map(torch.equal, results[0], other)) for other in results[1:])
