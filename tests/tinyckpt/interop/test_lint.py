"""The linter: what it says of each wrap is what steps with and without it measure."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.conftest import require

require("torch")

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from tests.torch_models import GPT, eager_step, tokens_for
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.selective import Selective
from tinyckpt.interop.torch.workspace import allocator_peak

Made = tuple[nn.Module, tuple[Any, ...]]
WIDTH = 64


def wrap(module: nn.Module, **options: Any) -> None:
    module.forward = partial(checkpoint, module.forward, use_reentrant=False, **options)


class Perceptron(nn.Module):
    """Layers whose inner parts are wrapped, some to no effect."""

    def __init__(self, wrapped: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.wrapped = wrapped
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.act, self.drop = nn.Tanh(), nn.Dropout(0.1)

    def part(self, name: str, function: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
        return checkpoint(function, x, use_reentrant=False) if name in self.wrapped else function(x)

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.part("act", self.act, self.part("up", self.up, self.norm(x)))
        return self.drop(self.down(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.part("inner", self.inner, x)


class Chain(nn.Module):
    """Perceptrons, and a loss."""

    def __init__(self, *wrapped: tuple[str, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Perceptron(names) for names in wrapped)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def chain(*wrapped: tuple[str, ...]) -> Made:
    torch.manual_seed(0)
    return Chain(*wrapped), (torch.randn(128, WIDTH, requires_grad=True),)


def measured(made: Made) -> int:
    return allocator_peak(eager_step(*made))[0]


def check_peak(found: tct.Lint, made: Made) -> None:
    assert abs(found.peak - measured(made)) <= 8


def test_every_wrap_saves_what_a_step_without_it_measures() -> None:
    wrapped = [("inner",), ("act",), ("up",), ("inner",)]
    found = tct.lint(*chain(*wrapped)[:1], *chain(*wrapped)[1])
    check_peak(found, chain(*wrapped))
    assert abs(found.plain_peak - measured(chain((), (), (), ()))) <= 8
    names = ["layers.0.inner", "layers.1.act", "layers.2.up", "layers.3.inner"]
    assert [wrap.name for wrap in found.wraps] == names
    for number, each in enumerate(found.wraps):
        without = [() if n == number else parts for n, parts in enumerate(wrapped)]
        assert abs(found.peak + each.saves - measured(chain(*without))) <= 8, each.name
    assert found.wraps[0].frees > 0
    assert found.wraps[1].findings[0] == (
        "saves nothing, because what autograd saves in it is kept by layers.1.down anyway"
    )
    assert found.wraps[2].findings[0] == (
        "saves nothing, because autograd saves no more in it than its input, which stays"
    )
    assert found.wraps[0].findings == ()
    assert "kept by layers.1.down anyway" in str(found)


def test_enough_wraps_keep_the_peak() -> None:
    wrapped = [("inner",)] * 4
    found = tct.lint(*chain(*wrapped)[:1], *chain(*wrapped)[1], workspace=False)
    assert found.enough is not None
    assert len(found.enough) <= 4
    kept = [("inner",) if f"layers.{n}.inner" in found.enough else () for n in range(4)]
    fewer = tct.lint(*chain(*kept)[:1], *chain(*kept)[1], workspace=False)
    assert fewer.peak <= found.peak
    assert fewer.cost == found.enough_cost <= found.cost


def test_nested_wrap_is_found_and_measured() -> None:
    wrapped = [("inner", "act"), ("inner",)]
    found = tct.lint(*chain(*wrapped)[:1], *chain(*wrapped)[1])
    outer, inner, _ = found.wraps
    assert (outer.name, inner.name) == ("layers.0.inner", "layers.0.act")
    assert inner.findings[0] == "lies inside another wrap, layers.0.inner, which recomputes it"
    assert found.enough is None
    check_peak(found, chain(*wrapped))
    without = measured(chain(("inner",), ("inner",)))
    assert abs(found.peak + inner.saves - without) <= 8
    assert abs(found.peak + outer.saves - measured(chain(("act",), ("inner",)))) <= 8


def gpt(rate: float = 0.0) -> Made:
    torch.manual_seed(0)
    return tokens_for(GPT(3, 32, 2, 64, rate=rate), 8, 64)


def matching(operator: Any) -> Any:
    """Return the contexts of a policy that saves one operator's results."""

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        save = op == operator
        return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE

    return partial(create_selective_checkpoint_contexts, policy)


@pytest.mark.nightly
def test_policy_that_matches_no_operator_is_found() -> None:
    model, args = gpt()
    wrap(model.blocks[0], context_fn=matching(torch.ops.aten.addmm))
    wrap(model.blocks[1], context_fn=matching(torch.ops.aten.addmm.default))
    wrap(model.blocks[2], context_fn=matching(torch.ops.aten.conv3d.default))
    none, some, other = tct.lint(model, *args, workspace=False).wraps
    assert none.findings == ("its policy matches no operator (did you mean aten.addmm.default?)",)
    assert some.findings == ()
    assert other.findings[0].startswith("its policy matches no operator; it saw aten.")
    assert some.flops < none.flops
    assert some.frees < none.frees


def test_policy_in_the_code_of_a_function_is_read() -> None:
    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> bool:
        return op in (torch.ops.aten.mm, torch.ops.aten.addmm)

    model, args = gpt()
    wrap(model.blocks[0], context_fn=partial(create_selective_checkpoint_contexts, policy))
    (found,) = tct.lint(model, *args, workspace=False).wraps
    assert "did you mean aten.addmm.default?" in found.findings[0]


def test_selective_wraps_are_measured() -> None:
    names = ("blocks.0", "blocks.2")
    model, args = gpt(0.1)
    Selective("GPT", names, "attention", 0, 1.0, 0, ()).apply(model)
    found = tct.lint(model, *args)
    assert [wrap.name for wrap in found.wraps] == list(names)
    for each, other in zip(found.wraps, reversed(names), strict=True):
        own, _ = gpt(0.1)
        Selective("GPT", (other,), "attention", 0, 1.0, 0, ()).apply(own)
        assert abs(found.peak + each.saves - measured((own, args))) <= 8


class Attention(nn.Module):
    """Attention, of which the kernel alone is wrapped, as Megatron's selective recomputation."""

    def __init__(self) -> None:
        super().__init__()
        self.joint, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def core(self, query: Any, key: Any, value: Any) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [p.unflatten(-1, (4, -1)).transpose(1, 2) for p in self.joint(x).chunk(3, dim=-1)]
        mixed = checkpoint(self.core, *parts, use_reentrant=False)
        return self.out(mixed.transpose(1, 2).flatten(2)).square().mean()


def test_wrap_of_fused_attention_is_found() -> None:
    (found,) = tct.lint(Attention(), torch.randn(2, 128, WIDTH), workspace=False).wraps
    assert found.name == "core"
    assert "recomputes attention that keeps no scores (fused)" in found.findings


@pytest.mark.sampled(1)
@pytest.mark.parametrize("reentrant", [False, True])
def test_sequential_and_reentrant_wraps_are_measured(reentrant: bool) -> None:
    class Segments(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*(Perceptron() for _ in range(4)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = checkpoint_sequential(self.layers, 2, x, use_reentrant=reentrant)
            return x.square().mean()

    torch.manual_seed(0)
    model, x = Segments(), torch.randn(128, WIDTH, requires_grad=True)
    found = tct.lint(model, x)
    check_peak(found, (model, (x,)))
    assert len(found.wraps) == 1  # the last segment is not checkpointed
    assert abs(found.plain_peak - (found.peak + found.wraps[0].saves)) <= 8


def test_model_without_checkpoints_has_no_rows() -> None:
    model, args = gpt()
    found = tct.lint(model, *args, workspace=False)
    assert (found.wraps, found.cost, found.peak) == ((), 1.0, found.plain_peak)
    assert str(found) == "GPT: nothing in it calls torch.utils.checkpoint"


def test_checkpoint_is_as_before_afterwards() -> None:
    before = vars(torch.utils.checkpoint).copy()
    model, args = gpt()
    wrap(model.blocks[0])
    tct.lint(model, *args, workspace=False)
    assert vars(torch.utils.checkpoint) == before


@pytest.mark.nightly
def test_layers_that_transformers_checkpoints_have_their_names() -> None:
    for each in ("torchvision", "transformers"):
        require(each)
    importlib.import_module("benchmarks.zoo.operators")  # where torchvision lacks its library
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=4, vocab_size=96,
        num_attention_heads=4, use_cache=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).train()
    model.activation_checkpointing_enable(every_n_layers=2)
    words = torch.zeros(4, 32, dtype=torch.long)
    found = tct.lint(model, input_ids=words, labels=words, workspace=False)
    assert [wrap.name for wrap in found.wraps] == ["model.layers.0", "model.layers.2"]
    assert found.enough is not None
