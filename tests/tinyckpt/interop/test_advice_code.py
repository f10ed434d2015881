"""Advice as code: what is written wraps what ``apply`` wraps, and trains to the same bits."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import require

require("torch")

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy

from tests.torch_models import GPT, eager_step, tokens_for
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.selective import SAVED, Selective
from tinyckpt.interop.torch.workspace import allocator_peak

# Runs code in a process that has not imported tinyckpt; prints what it wrapped, then measures.
FRESH = """
import torch
from tests.torch_models import GPT, eager_step, tokens_for
torch.manual_seed(0)
model, args = tokens_for(GPT(4, 32, 2, 64, rate=0.1), 4, 64)
exec({code!r})
print([name for name, module in model.named_modules() if "forward" in vars(module)])
import sys
assert "tinyckpt" not in sys.modules
from tinyckpt.interop.torch.workspace import allocator_peak
torch.manual_seed(1)
print(allocator_peak(eager_step(model, args))[0])
torch.save([p.grad for p in model.parameters()], {path!r})
"""


def made(rate: float = 0.1) -> tuple[GPT, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return tokens_for(GPT(4, 32, 2, 64, rate=rate), 4, 64)


def stepped(model: nn.Module, args: Any) -> tuple[int, list[Any]]:
    """Return the measured peak of a step, and gradients."""
    torch.manual_seed(1)
    peak, _ = allocator_peak(eager_step(model, args))
    return peak, [parameter.grad for parameter in model.parameters()]


def check_same_step(one: tuple[int, list[Any]], other: tuple[int, list[Any]]) -> None:
    assert one[0] == other[0]
    assert all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))


@pytest.mark.nightly
def test_code_for_pytorch_runs_in_a_fresh_process(tmp_path: Any) -> None:
    model, args = made()
    advice = tct.advise(model, *args, budget="70 %")
    assert 0 < len(advice.modules) < len(advice.candidates)
    path = str(tmp_path / "gradients.pt")
    done = subprocess.run(
        [sys.executable, "-c", FRESH.format(code=advice.code(), path=path)],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wrapped, peak = done.stdout.splitlines()
    assert wrapped == str(list(advice.modules))
    applied = stepped(advice.apply(made()[0]), args)
    check_same_step((int(peak), torch.load(path)), applied)
    assert applied[0] == advice.peak
    for gradient, own in zip(stepped(model, args)[1], applied[1], strict=True):
        assert torch.equal(gradient, own)


@pytest.mark.parametrize("saved", SAVED)
def test_code_of_selective_advice_saves_the_same_operators(saved: str) -> None:
    names = ("blocks.0", "blocks.2")
    advice = Selective("GPT", names, saved, 0, 1.0, 0, ())
    applied, args = made()
    advice.apply(applied)
    written, _ = made()
    assert advice.code() == advice.code("selective")
    exec(advice.code(), {"model": written})
    check_same_step(stepped(written, args), stepped(applied, args))


LLAMA = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "vocab_size": 96,
    "num_attention_heads": 4, "use_cache": False,
}  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize(
    ("numbers", "lines"), [((0, 2), 1), ((0, 1, 2, 3), 1), ((0,), 1), ((1, 2), 10)]
)
def test_transformers_code_checkpoints_the_advised_layers(
    numbers: tuple[int, ...], lines: int
) -> None:
    for each in ("torchvision", "transformers"):
        require(each)
    importlib.import_module("benchmarks.zoo.operators")  # where torchvision lacks its library
    from transformers import LlamaConfig, LlamaForCausalLM

    def llama() -> Any:
        torch.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(**LLAMA)).train()

    words = torch.randint(0, 96, (4, 32))
    batch = {"input_ids": words, "labels": words}
    found = tct.advise(llama(), **batch, budget=1.0, workspace=False)
    assert found.layers == tuple(f"model.layers.{number}" for number in range(4))
    advice = replace(found, modules=tuple(found.layers[number] for number in numbers))
    model = llama()
    exec(advice.code("transformers"), {"model": model})
    assert len(advice.code("transformers").splitlines()) == lines
    assert advice.modules == tuple(
        name for name, part in model.named_modules()
        if name in found.layers and part.gradient_checkpointing
    )  # fmt: skip

    def step(model: Any) -> Callable[[], None]:
        return lambda: model(**batch).loss.backward()

    peaks = []
    for each in (model, advice.apply(llama())):
        peaks.append(allocator_peak(step(each))[0])
    assert peaks[0] == peaks[1]
    plain = llama()
    step(plain)()
    for own, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(own.grad, other.grad)
    with pytest.raises(tc.OptionError, match="lm_head is not one of its GradientCheckpointing"):
        replace(found, modules=("lm_head",)).code("transformers")


def advised(*names: str, **other: Any) -> tct.Advice:
    return tct.Advice("GPT", names, 0, 1.0, 0, 0, names, **other)


def test_torch_remat_code_trains_to_the_same_bits() -> None:
    pytest.importorskip("torch_remat")
    written, args = made(rate=0.0)
    exec(advised("blocks.1", "blocks.2").code("torch_remat"), {"model": written})
    own, plain = stepped(written, args), stepped(made(rate=0.0)[0], args)
    assert own[0] < plain[0]
    check_same_step((0, own[1]), (0, plain[1]))


def stand_in(monkeypatch: pytest.MonkeyPatch, path: str, **names: Any) -> None:
    """Put a module in place of one that is not installed, with what is declared there."""
    parts = path.split(".")
    for count in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:count]), ModuleType(parts[count - 1]))
    for name, value in names.items():
        setattr(sys.modules[path], name, value)


def test_torchtitan_code_wraps_the_advised_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    class FullAC:
        @dataclass(kw_only=True, slots=True)
        class Config:
            debug: bool = False

        def __init__(self, config: Any) -> None:
            self.config = config

        def _wrap_block(self, module: str, *, base_fqn: str | None = None) -> str:
            return f"wrapped {module}"

    stand_in(monkeypatch, "torchtitan.distributed.activation_checkpoint", FullAC=FullAC)
    names: dict[str, Any] = {}
    exec(advised("layers.1", "layers.3").code("torchtitan"), names)
    policy = names["AdvisedAC"](names["activation_checkpoint"])
    wrapped = [policy._wrap_block("block", base_fqn=f"layers.{i}") for i in range(5)]
    assert [each != "block" for each in wrapped] == [False, True, False, True, False]


def test_torchtitan_memory_policy_tags_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    registry: dict[str, Any] = {}

    def register_memory_policy(key: str) -> Any:
        return lambda function: registry.setdefault(key, function)

    def tag_sac_policy(gm: Any, policy_fn: Any) -> None:
        for node in gm.graph.nodes:
            node.meta["recompute"] = policy_fn(node)

    path = "torchtitan.experiments.graph_trainer"
    stand_in(monkeypatch, f"{path}.memory_policy", tag_sac_policy=tag_sac_policy)
    package = sys.modules[path]
    stand_in(monkeypatch, f"{path}.registry", register_memory_policy=register_memory_policy)
    monkeypatch.setitem(sys.modules, path, package)
    exec(Selective("GPT", ("layers.0",), "matrix products", 0, 1.0, 0, ()).code("torchtitan"), {})
    targets = [torch.ops.aten.mm.default, torch.ops.aten.gelu.default, len]
    nodes = [SimpleNamespace(target=target, meta={}) for target in targets]
    gm = SimpleNamespace(graph=SimpleNamespace(nodes=nodes))
    assert registry["advised"](gm, config=None) is gm
    assert [node.meta["recompute"] is CheckpointPolicy.MUST_SAVE for node in nodes] == [
        True, False, False
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("advice", "form", "why"),
    [
        (advised("a"), "torchtitn", "did you mean torchtitan"),
        (advised("a"), "jax", "JAX has names of values, not of modules"),
        (advised("a"), "selective", "tct.selective chooses operators to save"),
        (advised("layers.0", "head"), "torchtitan", "no modules but those in layers, and not head"),
        (advised("layers.0"), "transformers", "layers.0 is not one of its Gradient"),
        (advised("a", averaging=("a",)), "torch", "a writes to buffers, twice a step"),
        (advised("a", restored=(("a", ("mean",)),)), "torch_remat", "a writes to buffers"),
        (Selective("GPT", ("a",), "attention", 0, 1.0, 0, ()), "jax", "no policies of operators"),
        (Selective("GPT", ("a",), "attention", 0, 1.0, 0, ()), "torche", "did you mean torch"),
    ],
)
def test_form_that_cannot_express_advice_is_refused(advice: Any, form: str, why: str) -> None:
    with pytest.raises(tc.OptionError, match=why):
        advice.code(form)


def test_nothing_to_wrap_is_a_comment() -> None:
    assert advised().code().startswith("# The model fits as it is")
    assert Selective("GPT", (), "nothing", 0, 1.0, 0, ()).code().startswith("# The model fits")
