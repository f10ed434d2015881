"""Recomputation safety: checkpointed modules train bitwise as plain ones, or are refused.

Gradients and buffers equal those of plain steps although modules are evaluated twice; a module for
which that fails is refused, with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

import tinyckpt as tc
from tests.conftest import examples, require

require("torch")

import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.torch_evaluated_twice import (
    DEEDS,
    ROWS,
    TRAPS,
    WIDTH,
    Assigned,
    Codebook,
    Drawn,
    InPlace,
    Made,
    Model,
    NormAndMean,
    Spectral,
    rows,
    seeded,
    trap,
)
from tests.torch_models import eager_step
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.advising import RecordedStep, record_steps
from tinyckpt.interop.torch.selective import SAVED, Selective
from tinyckpt.interop.torch.workspace import allocator_peak

QUICK = {
    "spectral norm",
    "mean assigned",
    "batch norm, read",
    "constants",
    "clock",
    "list",
    "counting",
    "written keyword",
}
STEPS = 3


def trained(made: Made) -> tuple[list[list[Tensor | None]], int]:
    """Return loss, gradients and buffers of three steps, and the peak of the first."""
    model, args = made
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seeded(5)
    found, peaks = [], []
    for _ in range(STEPS):
        peak, loss = allocator_peak(eager_step(model, args))
        peaks.append(peak)
        gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        found.append([loss, *gradients, *(buffer.clone() for buffer in model.buffers())])
        optimizer.step()
    return found, peaks[0]


def equal(one: Sequence[Sequence[Tensor | None]], other: Sequence[Sequence[Tensor | None]]) -> bool:
    """Whether two trainings are equal to the bit."""
    return all(
        (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b))
        for left, right in zip(one, other, strict=True)
        for a, b in zip(left, right, strict=True)
    )


def known(make: Callable[[], Made]) -> Made:
    """Return a model whose memory the profiler has seen, so that its frees are counted."""
    return allocator_peak(make)[1]


def advice_of(seen: RecordedStep, chosen: Sequence[str]) -> tct.Advice:
    """Return advice to wrap some modules, with the predicted peak."""
    restored = seen.wrapping.recording.restored
    return tct.Advice(
        "Model", tuple(chosen), seen.wrapping.evaluate(chosen)[0], 1.0, 0, 0, (),
        restored=tuple((name, restored[name]) for name in chosen if name in restored),
    )  # fmt: skip


def check_promise(make: Callable[[], Made]) -> dict[str, str]:
    """Check that advised modules train as in plain steps; return the reasons of refusals."""
    seen = next(record_steps(*make(), None, True))
    blocks = [name for name in seen.choosing.names if name.startswith("blocks")]
    plain, peak = trained(known(make))
    assert seen.wrapping.evaluate(())[0] == peak
    for chosen in (blocks, blocks[:1], blocks[1:]) if blocks else ():
        model, args = known(make)
        advice = advice_of(seen, chosen)
        found, peak = trained((advice.apply(model), args))
        assert equal(found, plain)
        assert peak == advice.peak
    return {name: reason for name, reason in seen.refused if name.startswith("blocks")}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in TRAPS],
)
def test_block_is_refused_or_trains_as_plain(name: str) -> None:
    expected, _ = TRAPS[name]
    refused = check_promise(lambda: trap(name))
    assert all(expected in reason for reason in refused.values())
    assert bool(refused) == bool(expected)


def drawn(blocks: list[list[str]]) -> Made:
    """Return a model whose blocks perform given actions, deterministically."""
    seeded(0)
    return rows(Drawn(blocks))


@pytest.mark.nightly
@given(st.lists(st.lists(st.sampled_from(list(DEEDS)), min_size=1, max_size=5), max_size=3))
@example([["kept", "linear", "kept"]])  # the second evaluation ends before it keeps another one
@example([["dropout", "in place"]])  # a Python number is the most that is there beside dropout
@example([["dropout", "written"]])  # scaled in place, which autograd does not see
@settings(max_examples=examples(25), phases=(Phase.explicit, Phase.generate))
def test_random_blocks_are_refused_or_train_as_plain(blocks: list[list[str]]) -> None:
    seeded(0)
    try:
        eager_step(*drawn(blocks))()
    except RuntimeError:  # a step that PyTorch itself refuses
        return
    check_promise(lambda: drawn(blocks))


def test_requested_module_is_refused_with_reason() -> None:
    model, args = trap("appending")
    reason = r"blocks.1 appends to a list passed to it \(seen\); it cannot be wrapped"
    with pytest.raises(tc.GraphError, match=reason):
        tct.advise(model, *args, budget=1.0, modules=["blocks.0", "first", "blocks.1"][1:])
    with pytest.raises(tc.GraphError, match=r"blocks\.0 appends to a list"):
        tct.selective(model, *args, budget=1.0, modules=["blocks.0"])


def test_advice_lists_refused_modules() -> None:
    model, args = trap("appending")
    advice = tct.advise(model, *args, budget=1.0, workspace=False)
    assert [name for name, _ in advice.refused] == ["blocks.0", "blocks.1", "blocks.2"]
    line = "  blocks.0, blocks.1, blocks.2: appends to a list passed to it (seen)"
    assert line in str(advice).splitlines()
    found = tct.selective(model, *args, budget=1.0, workspace=False)
    assert found.refused == advice.refused
    assert line in str(found).splitlines()


def test_source_comments_on_unhandled_side_effects() -> None:
    model, args = trap("batch norm and mean")
    names = [f"blocks.{index}" for index in range(3)]
    advice = advice_of(seen := next(record_steps(model, args, names, False)), names)
    assert "# once more: blocks.0.mean, blocks.1.mean, blocks.2.mean." in advice.source
    assert "Advice.apply(model)" in advice.source
    found = seen.within(seen.wrapping.evaluate(names)[0])
    assert found.averaging == found.modules
    assert dict(found.restored) == dict.fromkeys(found.modules, ("mean",))
    assert "updated twice a step" in found.source
    exec(found.source, {"model": model})


# Restored buffers --------------------------------------------------------------------------------

RESTORED: dict[str, Callable[[], Model]] = {
    "spectral": lambda: Model(Spectral),
    "in place": lambda: Model(InPlace),
    "assigned": lambda: Model(Assigned),
    "codebook": lambda: Model(Codebook),
    "norm and mean": lambda: Model(NormAndMean),
}


def several_passes(model: nn.Module, batches: list[Tensor]) -> None:
    """Several forward passes, then a single backward pass."""
    torch.stack([model(x) for x in batches]).sum().backward()


def backward_in_other_order(model: nn.Module, batches: list[Tensor]) -> None:
    """Several forward passes; the backward pass of the first one runs first."""
    for loss in [model(x) for x in batches]:
        loss.backward()


def accumulating(model: nn.Module, batches: list[Tensor]) -> None:
    """Gradient accumulation, with a no-grad pass and an evaluation pass in between."""
    for x in batches:
        model(x).backward()
        with torch.no_grad():
            model(x)
        model.eval()
        model(x).backward()
        model.train()


def retained(model: nn.Module, batches: list[Tensor]) -> None:
    """One forward pass, and two backward passes."""
    loss = model(batches[0])
    loss.backward(retain_graph=True)
    loss.backward()


def gradients_of_inputs(model: nn.Module, batches: list[Tensor]) -> None:
    """Gradients for some tensors alone, then for all."""
    x = batches[0].clone().requires_grad_()
    loss = model(x)
    (gradient,) = torch.autograd.grad(loss, x, retain_graph=True)
    loss.backward()
    x.grad.sub_(gradient).square().sum()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", RESTORED)
@pytest.mark.parametrize(
    "way", [several_passes, backward_in_other_order, accumulating, retained, gradients_of_inputs]
)
def test_buffers_are_restored_for_any_order_of_passes(
    name: str, way: Callable[[nn.Module, list[Tensor]], None]
) -> None:
    def made() -> Model:
        seeded(0)
        return RESTORED[name]().train()

    seeded(1)
    batches = [torch.randn(ROWS, WIDTH) for _ in range(3)]
    names = [f"blocks.{index}" for index in range(3)]
    advice = advice_of(next(record_steps(made(), (batches[0],), names, False)), names)
    plain, model = made(), advice.apply(made())
    way(plain, batches)
    way(model, batches)
    for one, other in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    for one, other in zip(plain.buffers(), model.buffers(), strict=True):
        assert torch.equal(one, other)


class Failing(InPlace):
    """A block whose recomputation raises."""

    fails = False

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        if self.fails:
            raise KeyboardInterrupt
        return torch.tanh(y)


def test_buffers_are_restored_when_recomputation_fails() -> None:
    model = Model(Failing).train()
    x = torch.randn(ROWS, WIDTH)
    names = [f"blocks.{index}" for index in range(3)]
    advice_of(next(record_steps(model, (x,), names, False)), names).apply(model)
    loss = model(x)
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    Failing.fails = True
    try:
        with pytest.raises(KeyboardInterrupt):
            loss.backward()
    finally:
        Failing.fails = False
    for buffer, (same, value) in zip(model.buffers(), before, strict=True):
        assert buffer is same
        assert torch.equal(buffer, value)


def test_apply_refuses_model_without_restored_buffer() -> None:
    advice = tct.Advice("M", ("blocks.0",), 0, 1.0, 0, 0, (), restored=(("blocks.0", ("mean",)),))
    model, _ = trap("plain")
    with pytest.raises(tc.GraphError, match=r"blocks.0 has no buffer mean, which is to be res"):
        advice.apply(model)
    assert "forward" not in vars(model.get_submodule("blocks.0"))


def test_wrapped_model_is_correct_at_another_batch_size() -> None:
    model, args = trap("codebook")
    names = ["blocks.0", "blocks.2"]
    advice = advice_of(next(record_steps(model, args, names, False)), names)
    x = torch.randn(5, WIDTH)
    plain, _ = trained((trap("codebook")[0], (x,)))
    found, _ = trained((advice.apply(trap("codebook")[0]), (x,)))
    assert equal(found, plain)


@pytest.mark.parametrize(
    "name",
    ["tied buffers", *(pytest.param(n, marks=pytest.mark.nightly) for n in (
        "spectral norm", "old spectral norm", "mean assigned", "codebook", "batch norm, read",
        "dropout", "keywords", "objects", "frozen", "shared weights", "auxiliary",
        "batch norm and mean",
    ))],
)  # fmt: skip
def test_selective_trains_as_plain(name: str) -> None:
    plain, _ = trained(known(lambda: trap(name)))
    names = tuple(f"blocks.{index}" for index in range(3))
    found = tct.selective(*flat(trap(name)), budget=1.0, modules=names)
    restored = next(record_steps(*trap(name), names, False)).wrapping.recording.restored
    for saved, peak, cost in found.tried:
        model, args = known(lambda: trap(name))
        wrapped = Selective("M", names, saved, peak, cost, 0, (), tuple(restored.items()))
        measured = trained((wrapped.apply(model), args))
        assert equal(measured[0], plain)
        assert measured[1] == peak
    assert [saved for saved, _, _ in found.tried] == list(SAVED)


def flat(made: Made) -> tuple[object, ...]:
    """Return a model and its arguments as functions take them."""
    return (made[0], *made[1])
