"""Offloaded saved tensors: gradients to the bit, peaks to the byte, bytes by arithmetic."""

import copy
import gc
import pickle
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

import tinyckpt as tc
from tests.conftest import require, with_fixtures

require("torch")

import torch
from torch import Tensor, nn

from tests.tinyckpt.interop.test_second_evaluations import equal, known, trained
from tests.torch_drawn_modules import modules
from tests.torch_evaluated_twice import TRAPS, trap
from tests.torch_models import EXAMPLES, eager_step, example
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch import candidate_modules
from tinyckpt.interop.torch.offloading import HostHooks, wrap, wrap_all

WIDE, ROWS = 64, 128


class Layers(nn.Module):
    """Layers in sequence, whose saved bytes are known: tanh's output, and the linear's input."""

    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDE, WIDE), nn.Tanh()) for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x.square().mean()


def layers(count: int = 4) -> tuple[Layers, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    return Layers(count), (torch.randn(ROWS, WIDE),)


def least(model: nn.Module, *args: Any, **options: Any) -> tct.Offload:
    """Return what has the smallest peak."""
    options = {"at_least": 0} | options
    with pytest.raises(tc.BudgetError) as stopped:
        tct.offload(model, *args, budget=1, **options)
    found = tct.offload(model, *args, budget=stopped.value.smallest or 0, **options)
    assert found.peak == stopped.value.smallest
    return found


def offload_all(model: Layers) -> HostHooks:
    hooks = HostHooks(0)
    for part in model.parts:
        wrap(part, hooks, recompute=False)
    return hooks


def check(make: Callable[[], tuple[nn.Module, tuple[Any, ...]]], recompute: bool) -> None:
    """Assert that a model trains as a plain one, with the peak that was predicted."""
    found = least(*chained(make()), recompute=recompute)
    model, args = known(make)
    found.apply(model)
    offloaded, peak = trained((model, args))
    plain, _ = trained(make())
    assert equal(offloaded, plain)
    assert peak == found.peak


def chained(made: tuple[nn.Module, tuple[Any, ...]]) -> tuple[Any, ...]:
    return made[0], *made[1]


@pytest.mark.nightly
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", EXAMPLES)
def test_peak_is_the_allocators_and_gradients_are_plain(name: str, recompute: bool) -> None:
    model, args = example(name)
    plain = tct.estimate(model, *args)
    for budget in (0.9, None):
        options = {"recompute": recompute, "at_least": 0}
        found = least(model, *args, **options) if budget is None else tct.offload(
            model, *args, budget=budget, **options
        )  # fmt: skip
        assert 0 < found.peak < plain.peak == found.plain_peak
        other, given = example(name)
        torch.manual_seed(1)
        peak, loss = tct.allocator_peak(eager_step(found.apply(other), given))
        assert peak == found.peak
        torch.manual_seed(1)
        twin, given = example(name)
        torch.manual_seed(1)
        assert torch.equal(loss, eager_step(twin, given)())
        for one, two in zip(other.parameters(), twin.parameters(), strict=True):
            assert (one.grad is None) == (two.grad is None)
            assert one.grad is None or torch.equal(one.grad, two.grad)


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, (reason, _) in TRAPS.items() if not reason])
def test_unusual_blocks_train_as_plain(name: str) -> None:
    for recompute in (False, True):
        check(lambda: trap(name), recompute)


@pytest.mark.long
@given(modules())
@with_fixtures(10)
def test_drawn_modules_train_as_plain(drawn: tuple[nn.Module, tuple[Tensor, ...]]) -> None:
    model, args = drawn
    twin = copy.deepcopy(model)
    wrap(model, HostHooks(0), recompute=False)
    for each in (model, twin):
        torch.manual_seed(3)
        eager_step(each, args)()
    for one, two in zip(model.parameters(), twin.parameters(), strict=True):
        assert (one.grad is None) == (two.grad is None)
        assert one.grad is None or torch.equal(one.grad, two.grad)


def test_write_that_autograd_does_not_notice_is_refused() -> None:
    model, args = trap("written keyword")
    with pytest.raises(tc.GraphError, match=r"is written to afterwards \(aten\.mul_\.Tensor\)"):
        tct.offload(model, *args, budget="80 %", at_least=0)


def test_saved_storages_are_moved_once_and_parameters_stay() -> None:
    model, args = layers()
    hooks = offload_all(model)
    eager_step(model, args)()
    # The input; each tanh's output, which the next linear saves, too.
    assert hooks.moved == 4 * ROWS * WIDE * (1 + 4)


def test_tensors_below_the_limit_stay() -> None:
    nbytes = 4 * ROWS * WIDE
    model, args = layers()
    assert tct.offload(model, *args, budget="90 %", at_least=nbytes).moved > 0
    with pytest.raises(tc.BudgetError, match="the smallest peak with the first of 4 modules off"):
        tct.offload(model, *args, budget="90 %", at_least=nbytes + 1)


def test_inputs_of_checkpointed_layers_free_what_arithmetic_says() -> None:
    """Layers x rows x width x bytes; no gradients of parameters, so that the peak stays there."""
    nbytes, freed = 4 * ROWS * WIDE, {}
    for count in (4, 9):
        peaks = []
        for offloaded in (False, True):
            model, (x,) = layers(count)
            model.requires_grad_(False)
            hooks = HostHooks(0)
            for part in model.parts:
                if offloaded:
                    wrap(part, hooks, recompute=True)
                else:
                    candidate_modules.wrap(part)
            peaks.append(tct.allocator_peak(eager_step(model, (x.requires_grad_(),)))[0])
        assert hooks.moved == nbytes * count
        freed[count] = peaks[0] - peaks[1]
    assert freed[9] - freed[4] == nbytes * (9 - 4)
    assert freed[9] > nbytes * (9 - 2)


def test_copies_and_pickles_have_hooks_of_their_own() -> None:
    model, args = layers()
    least(model, *args).apply(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        for each in (model, other):
            each.zero_grad()
            eager_step(each, args)()
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(one.grad, two.grad)
        hooks = [each.parts[0].forward.args[1] for each in (model, other)]
        assert hooks[0] is not hooks[1]


def test_graph_may_be_differentiated_twice_and_forward_alone_moves_nothing() -> None:
    model, args = layers()
    least(model, *args).apply(model)
    hooks = model.parts[0].forward.args[1]
    with torch.no_grad():
        model(*args)
    assert hooks.moved == 0
    loss = model(*args)
    moved = hooks.moved
    loss.backward(retain_graph=True)
    once = [p.grad.clone() for p in model.parameters()]
    loss.backward()
    assert all(torch.equal(p.grad, 2 * g) for p, g in zip(model.parameters(), once, strict=True))
    assert hooks.moved == moved > 0


def test_write_after_saving_is_refused_but_where_the_tensor_has_left() -> None:
    class Writing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.tanh(x)
            z = y * 2
            with torch.no_grad():
                y.zero_()
            return z

    # It stays; it has left, as always on a CPU; it is on its way.
    for at_least, on_gpu, fails in ((2**20, False, True), (0, False, False), (0, True, True)):
        model = nn.Sequential(nn.Linear(4, 4), Writing())
        wrap(model[1], HostHooks(at_least, on_gpu), recompute=False)
        loss = model(torch.ones(4, 4)).sum()
        if fails:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        else:
            loss.backward()


def test_host_memory_is_given_back() -> None:
    model, args = layers(8)
    offload_all(model)
    step = eager_step(model, args)
    step()
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(3):
            step()
            gc.collect()
        left, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most > 8 * 4 * ROWS * WIDE
    assert left < 4 * ROWS * WIDE


def test_advice_is_refused_on_what_is_offloaded_and_the_other_way_round() -> None:
    model, args = layers()
    found = least(model, *args)
    found.apply(model)
    with pytest.raises(tc.GraphError, match=r"parts\.0 is wrapped already"):
        found.apply(model)
    with pytest.raises(tc.GraphError, match=r"parts\.1 is wrapped already"):
        tct.advise(model, *args, budget="90 %", modules=["parts.1"])
    with pytest.raises(tc.GraphError, match=r"at_least=-1; expected a number of bytes"):
        tct.offload(*chained(layers()), budget="90 %", at_least=-1)


def test_step_that_fits_is_left_alone() -> None:
    model, args = layers()
    found = tct.offload(model, *args, budget="100 %")
    assert (found.modules, found.moved, found.cost) == ((), 0, 1.0)
    assert str(found).endswith("at the peak as it is; nothing to move")
    assert found.apply(model) is model


@pytest.mark.parametrize("count", [2, 4, 7])
def test_what_is_on_its_way_to_the_host_is_counted_on_a_device(count: int) -> None:
    model, args = layers(count)
    for part in model.parts:
        part[0].register_parameter("bias", None)  # all other sizes are multiples of 512 bytes
    found = least(model, *args, device="H100-80GB")
    assert found.plain_peak == tct.advise(model, *args, device="H100-80GB").plain_peak
    assert found.peak > least(model, *args, workspace=False).peak
    # Tensors of a CPU, kept as those of a GPU would be.
    hooks = HostHooks(0, on_gpu=True)
    wrap_all([(model.get_submodule(each), ()) for each in found.modules], hooks, recompute=False)
    peak, _ = tct.allocator_peak(eager_step(model, args))
    assert not hooks.leaving
    # At the peak, the loss and its gradient take 512 bytes each there, and 4 here.
    assert peak + 2 * (512 - 4) == found.peak


def test_unknown_devices_are_refused() -> None:
    model, args = layers()
    with pytest.raises(tc.GraphError, match=r"device 'H100' \(did you mean"):
        tct.offload(model, *args, budget="90 %", device="H100")


def test_error_in_forward_leaves_nothing_on_its_way() -> None:
    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.tanh(torch.tanh(x))
            raise MemoryError(str(y.shape))

    hooks = HostHooks(0, on_gpu=True)
    model = nn.Sequential(nn.Linear(4, 4), Failing())
    wrap(model[1], hooks, recompute=False)
    with pytest.raises(MemoryError):
        model(torch.ones(4, 4))
    assert hooks.moved > 0
    assert not hooks.leaving
