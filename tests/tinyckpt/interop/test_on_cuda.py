"""PyTorch's plans on a GPU: plain gradients to the bit, allocated as predicted without it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require

require("torch")

import torch
from torch import nn
from torch.nn import functional

from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.cuda_devices import calibrate, device_of

pytestmark = [
    pytest.mark.gpu,
    # The PyTorch that is where the GPU is need not be among those that the other tests ran with.
    pytest.mark.filterwarnings("ignore:PyTorch .* is installed"),
]
WIDTH, HEADS = 256, 4


class Layer(nn.Module):
    """Attention written out, a perceptron and dropout, with residual connections."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.qkv, self.up = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = (*x.shape[:2], 3, HEADS, WIDTH // HEADS)
        q, k, v = self.qkv(self.norm(x)).view(shape).permute(2, 0, 3, 1, 4)
        weights = functional.dropout((q @ k.mT).softmax(-1), 0.1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + functional.dropout(self.down(functional.gelu(self.up(x))), 0.1)


class Layers(nn.Module):
    """Eight such layers, and a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def step_of(change: Callable[[nn.Module, torch.Tensor], Any]) -> tuple[list[bytes], int]:
    """Return the bits of the gradients of a changed model's step, and its allocated peak.

    The peak is that of the third step, above what is allocated before it.
    """
    torch.manual_seed(0)
    model, x = Layers(), torch.randn(8, 256, WIDTH)
    change(model, x)
    model, x = model.cuda(), x.cuda()
    peak = 0
    for _ in range(3):
        model.zero_grad()
        torch.manual_seed(1)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        model(x).backward()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
    gradients = [each.grad for each in model.parameters()]
    return [each.cpu().numpy().tobytes() for each in gradients if each is not None], peak


def test_gradients_are_plain_and_peaks_as_predicted() -> None:
    predicted: dict[str, int] = {}

    def advised(model: nn.Module, x: torch.Tensor) -> None:
        advice = tct.advise(model, x, device="H100-80GB", budget="50 %")
        predicted["plain"], predicted["checkpoint"] = advice.plain_peak, advice.peak
        advice.apply(model)

    def moved(model: nn.Module, x: torch.Tensor) -> None:
        offload = tct.offload(model, x, device="H100-80GB", budget="60 %")
        predicted["offload"] = offload.peak
        offload.apply(model)

    plain, peak = step_of(lambda model, x: None)
    peaks = {"plain": peak}
    for name, change in (("checkpoint", advised), ("offload", moved)):
        found, peaks[name] = step_of(change)
        assert found == plain, name
    # Kernels need some memory that is not predicted: the sum over a bias's rows 4 MiB.
    off = {name: peaks[name] / predicted[name] - 1 for name in predicted}
    assert all(0 <= each <= 0.03 for each in off.values()), off


def test_a_gpu_can_be_calibrated(tmp_path: Path) -> None:
    device = calibrate(str(tmp_path / "here.json"))
    assert device.is_measured
    assert device.name == torch.cuda.get_device_name()
    assert 0 < device.context < 4 * 2**30
    assert device_of(tmp_path / "here.json") == device
