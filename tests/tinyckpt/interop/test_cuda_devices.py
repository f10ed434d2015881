"""A CUDA device that is not here: the allocator's rules, and a step as on CUDA."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import require

require("torch")

import torch
from torch import nn
from torch.nn import functional

from tinyckpt.codegen.caching_allocator import (
    MIB,
    Block,
    CachingAllocator,
    Interval,
    replay_steps,
)
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.checkpoint_memory import Wrapping
from tinyckpt.interop.torch.cuda_devices import (
    CUBLAS_HOPPER,
    DEVICES,
    calibrate,
    device_of,
    memory_on,
)
from tinyckpt.interop.torch.cuda_functions import attention_of_cuda
from tinyckpt.interop.torch.eager import record


@pytest.mark.parametrize(
    ("nbytes", "segments", "reserved"),
    [
        (512, 1, 2 * MIB),
        (MIB, 2, 4 * MIB),
        (MIB + 512, 1, 20 * MIB),
        (10 * MIB - 512, 2, 40 * MIB),
        (10 * MIB + 512, 3, 36 * MIB),
    ],
)
def test_segments_are_those_that_pytorch_tests_for(
    nbytes: int, segments: int, reserved: int
) -> None:
    # What test_graph_memory_stats_and_use_result_after_destroy_graph of PyTorch's test_cuda.py does
    # in a pool of its own: a clone, and five times a clone of it plus 1. Expected are its numbers.
    memory = CachingAllocator()
    kept = memory.allocate(nbytes)
    for _ in range(5):
        clone = memory.allocate(nbytes)
        total = memory.allocate(nbytes)
        memory.free(clone)
        memory.free(kept)
        kept = total
    assert memory.reserved == reserved
    assert reserved % segments == 0


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 64 * MIB), st.integers(0, 99)), max_size=80)
)
def test_blocks_never_overlap_and_segments_are_covered(
    requests: list[tuple[bool, int, int]],
) -> None:
    memory = CachingAllocator()
    live: list[Block] = []
    for frees, nbytes, which in requests:
        if frees and live:
            memory.free(live.pop(which % len(live)))
        else:
            live.append(memory.allocate(nbytes))
            assert live[-1].size >= nbytes
        assert memory.allocated == sum(block.size for block in live)
        spans = sorted((block.address, block.size) for block in live)
        ends = [address + size for address, size in spans]
        assert all(end <= begin for end, (begin, _) in zip(ends, spans[1:], strict=False))
    for block in live:
        memory.free(block)
    assert memory.reserved == memory.most_reserved
    memory.release()
    assert memory.reserved == memory.allocated == 0


def test_gaps_are_reserved_beyond_what_is_allocated() -> None:
    memory = CachingAllocator()
    # Six of 3 MiB fill 18 of 20; without every second one, 6 MiB fit nowhere.
    step = [Interval(k, 9 if k % 2 else None, 3 * MIB) for k in range(6)] + [
        Interval(9, None, 6 * MIB)
    ]
    replay_steps(memory, [], step, steps=1)
    assert memory.most_allocated == 18 * MIB
    assert memory.most_reserved == 40 * MIB


def test_free_segments_are_given_back_before_memory_is_out() -> None:
    memory = CachingAllocator(capacity=40 * MIB)
    memory.free(memory.allocate(30 * MIB))
    memory.allocate(32 * MIB)
    assert memory.reserved == 32 * MIB
    assert not memory.is_over
    memory.allocate(12 * MIB)
    assert memory.is_over


class Block3(nn.Module):
    """Attention, a perceptron and dropout, with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.up, self.down = nn.Linear(32, 96), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4)
        read = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
        x = x + read.transpose(1, 2).flatten(2)
        return x + functional.dropout(self.down(functional.gelu(self.up(x))), 0.1)


class Small(nn.Module):
    """Three blocks, the first of which is evaluated twice."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block3() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in (self.blocks[0], *self.blocks):
            x = block(x)
        return x.square().mean()


NAMES = ("blocks.0", "blocks.1", "blocks.2")


def wrapping_of(length: int = 40) -> Wrapping:
    """Return the memory model of a step as on CUDA."""
    model = Small()
    watched = {name: model.get_submodule(name) for name in NAMES}
    return Wrapping(record(model, (torch.randn(2, length, 32),), watched, cuda=True))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "chosen", [c for n in range(4) for c in combinations(NAMES, n)], ids="-".join
)
def test_intervals_have_the_peak_of_the_memory_model(chosen: tuple[str, ...]) -> None:
    wrapping = wrapping_of()
    changes: dict[float, int] = {}
    for each in wrapping.intervals(chosen):
        assert each.nbytes % 512 == 0
        changes[each.begin] = changes.get(each.begin, 0) + each.nbytes
        if each.end is not None:
            changes[each.end] = changes.get(each.end, 0) - each.nbytes
    live = peak = 0
    for moment in sorted(changes):
        live += changes[moment]
        peak = max(peak, live)
    assert peak == wrapping.evaluate(chosen)[0]


def test_attention_with_dropout_saves_nothing_quadratic_as_on_cuda() -> None:
    peaks = [wrapping_of(length).evaluate(())[0] for length in (256, 512)]
    assert peaks[1] < 2.05 * peaks[0]


def test_what_only_the_device_knows_is_refused() -> None:
    model, x = Small(), torch.randn(2, 64, 32)
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(tc.GraphError, match="autocast of a CUDA device casts other operators"):
            tct.advise(model, x, device="H100-80GB")
        # The first block is called twice, and only its first call casts the weights.
        assert "blocks.0" not in tct.advise(model, x, budget="90 %", workspace=False).modules

    class Inside(Small):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return super().forward(x)

    with pytest.raises(tc.GraphError, match="autocast of a CUDA device casts other operators"):
        tct.advise(Inside(), x, device="H100-80GB")

    class Recurrent(nn.LSTM):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return super().forward(x)[0].square().mean()

    with pytest.raises(tc.GraphError, match="Recurrent runs in cuDNN"):
        tct.advise(Recurrent(8, 8), torch.randn(4, 2, 8), device="H100-80GB")


def saved_beyond(model: nn.Module, x: torch.Tensor, nbytes: int) -> list[int]:
    """Return the sizes of saved tensors that take more than some bytes."""
    recording = record(model, (x,), {}, cuda=True)
    own = {each.storage for each in recording.saved if each.storage >= 0}
    sizes = [recording.storages[number].nbytes for number in own]
    return sorted(size for size in sizes if size > nbytes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_keeps_scores_where_no_kernel_of_cuda_is_fused(dtype: torch.dtype) -> None:
    length, heads, width = 128, 4, 16
    scores = 2 * heads * length * length * dtype.itemsize

    class Attention(nn.Module):
        def __init__(self, groups: int, is_biased: bool) -> None:
            super().__init__()
            self.kv = nn.Linear(width * heads, 2 * groups * width, dtype=dtype)
            self.groups = groups
            self.bias = nn.Parameter(torch.zeros(1, heads, length, length, dtype=dtype))
            self.is_biased = is_biased

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = x.view(2, length, heads, width).transpose(1, 2)
            k, v = self.kv(x).view(2, length, 2, self.groups, width).permute(2, 0, 3, 1, 4)
            mask = self.bias if self.is_biased else None
            y = functional.scaled_dot_product_attention(
                q, k, v, mask, 0.1, enable_gqa=self.groups < heads
            )
            return y.square().mean()

    x = torch.randn(2, length, width * heads, dtype=dtype)
    found = {
        (groups, is_biased): saved_beyond(Attention(groups, is_biased), x, scores // 2)
        for groups in (heads, 2)
        for is_biased in (False, True)
    }
    is_half = dtype is torch.bfloat16
    assert not found[heads, False]
    assert found[2, False] == ([] if is_half else [scores, scores])  # softmax, and after dropout
    assert found[heads, True] == [scores, scores]


def test_dropout_saves_a_byte_for_each_number_as_on_cuda() -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.5), nn.Flatten(0))
    model.forward = lambda x: nn.Sequential.forward(model, x).mean()  # type: ignore[method-assign]
    recordings = [record(model, (torch.randn(64, 32),), {}, False, cuda) for cuda in (False, True)]
    saved = [{(s.storage, r.storages[s.storage].nbytes) for s in r.saved if s.storage >= 0}
             for r in recordings]  # fmt: skip
    assert 64 * 32 * 4 in [nbytes for _, nbytes in saved[0]]
    assert [nbytes for _, nbytes in saved[1]] == [64 * 32]


def test_ledger_adds_up() -> None:
    wrapping = wrapping_of()
    device = DEVICES["H100-80GB"]
    found = memory_on(device, wrapping, NAMES[:1], [4096] * 7)
    assert found.fits
    assert found.state == 7 * 4096
    assert found.step == wrapping.evaluate(NAMES[:1])[0]
    assert found.total == found.reserved + device.context
    assert found.reserved >= found.sources + found.state + found.step + 2 * CUBLAS_HOPPER
    assert found.reserved % (2 * MIB) == 0  # whole segments
    assert str(found).splitlines()[-1].endswith("of 79.1 GiB")


def test_unknown_device_is_refused_with_the_known_ones() -> None:
    with pytest.raises(tc.GraphError, match=r"device 'H100-80G' \(did you mean H100-80GB\?\)"):
        device_of("H100-80G")


DEVICE = {
    "schema": "tinyckpt.device", "version": 2, "name": "X", "capacity": 2**34, "context": 2**29,
    "cublas": 2**23,
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[1]", json.dumps({**DEVICE, "capacity": -1}),
        json.dumps({**DEVICE, "capacity": "9"}), json.dumps({**DEVICE, "capacity": True}),
        json.dumps({**DEVICE, "cublas": 1e9}), json.dumps({**DEVICE, "context": 2**63}),
        json.dumps({**DEVICE, "name": 5}), json.dumps({**DEVICE, "version": 3}),
    ],
)  # fmt: skip
def test_damaged_calibration_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    path.write_text(text)
    with pytest.raises(tc.FormatError, match=r"device\.json"):
        device_of(path)


@pytest.mark.parametrize("name", [5, ["H100-80GB"], "", None, torch.device("cpu")])
def test_device_of_another_type_is_refused(name: object) -> None:
    with pytest.raises(tc.GraphError, match="known are T4-16GB"):
        device_of(name)  # type: ignore[arg-type]


class StandIn:
    """What a calibration asks of a GPU, with numbers of an H100."""

    def __init__(self) -> None:
        self.allocated = iter([16_384, 16_384 + CUBLAS_HOPPER])

    def __getattr__(self, name: str) -> object:
        answers = {
            "is_available": True, "empty_cache": None, "synchronize": None,
            "mem_get_info": (2**36, 2**36 + 2**30), "memory_reserved": 36 * MIB,
            "get_device_name": "NVIDIA H100",
        }  # fmt: skip
        return lambda: next(self.allocated) if name == "memory_allocated" else answers[name]


def test_calibration_of_a_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *size, device: ones(*size))
    monkeypatch.setattr(torch, "cuda", StandIn())
    device = calibrate(str(tmp_path / "h100.json"))
    assert (device.name, device.cublas) == ("NVIDIA H100", CUBLAS_HOPPER)
    assert device.context == 2**30 - 36 * MIB
    assert device_of(tmp_path / "h100.json") == device
    for wrong in (tmp_path / "nowhere" / "h100.json", tmp_path / "h100.txt"):
        monkeypatch.setattr(torch, "cuda", StandIn())
        with pytest.raises(tc.FormatError):
            calibrate(str(wrong))
    assert [each.name for each in tmp_path.iterdir()] == ["h100.json"]


def test_calibration_is_read_as_it_was_written(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(tc.BackendError, match="a calibration needs a CUDA device"):
            calibrate(str(tmp_path / "device.json"))
    (tmp_path / "device.json").write_text(json.dumps(DEVICE))
    device = device_of(str(tmp_path / "device.json"))
    assert (device.capacity, device.context, device.is_measured) == (2**34, 2**29, True)
    assert "measured" in str(memory_on(device, wrapping_of(), (), []))


class Wide(nn.Module):
    """Six blocks, whose activations take segments of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(6)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x.square().mean()


def device_file(folder: Path, capacity: int) -> str:
    """Return the calibration of a device of any size."""
    path = folder / "device.json"
    known = {**DEVICE, "name": "Small", "capacity": capacity, "context": 0, "cublas": 2**20}
    path.write_text(json.dumps(known))
    return str(path)


def test_advice_fits_a_device_in_what_its_allocator_reserves(tmp_path: Path) -> None:
    model, x = Wide(), torch.randn(4096, 64)
    plain = tct.advise(model, x, device="H100-80GB", optimizer="AdamW")
    assert plain.modules == ()
    assert plain.device is not None
    largest = plain.device.reserved - plain.device.device.workspaces + 2**21
    costs = []
    for capacity in range(largest - 2**20, largest * 3 // 5, -12 * 2**20):
        advice = tct.advise(model, x, device=device_file(tmp_path, capacity), optimizer="AdamW")
        assert advice.device is not None
        assert advice.device.fits
        assert advice.device.total <= capacity
        costs.append(advice.cost)
    assert costs == sorted(costs)
    assert costs[-1] > costs[0]


def test_model_that_no_wrapping_makes_fit_is_refused_with_what_it_takes(tmp_path: Path) -> None:
    with pytest.raises(tc.BudgetError, match=r"Wide does not fit Small, which has 6.0 MiB: .* of "):
        tct.advise(Wide(), torch.randn(4096, 64), device=device_file(tmp_path, 6 * 2**20))


def test_budget_holds_beside_the_device() -> None:
    model, x = Wide(), torch.randn(4096, 64)
    advice = tct.advise(model, x, device="H100-80GB", budget=0.6)
    assert advice.modules
    assert advice.peak <= 0.6 * advice.plain_peak


def test_fused_optimizer_has_no_temporaries() -> None:
    model, x = Wide(), torch.randn(8, 64)  # its own step is the peak
    peaks = [
        tct.advise(
            model, x, device="H100-80GB", optimizer=lambda p, f=f: torch.optim.AdamW(p, fused=f)
        ).peak
        for f in (None, True)
    ]
    gradients = sum(parameter.nbytes for parameter in model.parameters())
    assert peaks[0] >= 2 * gradients > peaks[1] >= gradients


def test_advice_needs_a_budget_or_a_device() -> None:
    with pytest.raises(tc.GraphError, match="advise needs a budget"):
        tct.advise(Wide(), torch.randn(8, 64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("query", "key", "value", "named"),
    [
        ((2, 4, 8, 16), (2, 4, 5, 16), (2, 4, 5, 8), {}),  # another width of the values
        ((2, 4, 8, 300), (2, 4, 8, 300), (2, 4, 8, 300), {"is_causal": True}),
        ((2, 4, 8, 16), (1, 4, 8, 16), (1, 4, 8, 16), {}),  # one batch for all
        ((2, 4, 8, 16), (2, 2, 8, 16), (2, 2, 8, 16), {"enable_gqa": True}),
        ((4, 8, 16), (4, 8, 16), (4, 8, 16), {"is_causal": True}),
        ((2, 4, 8, 16), (2, 4, 8, 16), (2, 4, 8, 16), {"scale": 0.0}),
        ((0, 4, 8, 16), (0, 4, 8, 16), (0, 4, 8, 16), {}),
    ],
)
def test_attention_has_the_shape_of_pytorchs(
    query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...], named: Any,
    dtype: torch.dtype,
) -> None:  # fmt: skip
    given = [torch.zeros(shape, dtype=dtype, device="meta") for shape in (query, key, value)]
    expected = functional.scaled_dot_product_attention(*given, **named)
    found = attention_of_cuda(*given, **named)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
