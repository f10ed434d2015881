"""Layers of every kind, traced, advised and stepped: peaks and gradients equal eager PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import require

require("torch")

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (as all of its users call it)

import tinyckpt as tc
from tests.torch_models import eager_step
from tinyckpt.interop import torch as tct

# Of PyTorch's own, once in a process: which kernels it chooses.
pytestmark = [
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported"),
    pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight"),
]
SEQUENCE, IMAGES, MATRIX = (5, 3, 4), (2, 3, 8, 8), (4, 8)
BYTES = 256  # eager puts some small values aside for a moment, such as an LSTM's empty state


class Loss(nn.Module):
    """A layer, under autocast if there is a type for it, and a loss of its first result."""

    def __init__(self, layer: nn.Module, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.layer, self.dtype = layer, dtype

    def forward(self, *args: Tensor) -> Tensor:
        with torch.autocast("cpu", self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            made = self.layer(*args)
        return (made[0] if isinstance(made, tuple) else made).float().square().mean()


class Unpooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.pool = nn.Conv2d(3, 4, 3), nn.MaxPool2d(2, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.unpool(*self.pool(self.layer(x)))
        return made


class Sampled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        grid = self.layer(x).permute(0, 2, 3, 1).tanh()
        return F.grid_sample(x, grid, align_corners=False)


class Quantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(self.layer(x), 0.1, 0, 0, 255)


class Aligned(nn.Module):
    """CTC on lengths that are numbers; its results' shapes depend on the targets."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 9)

    def forward(self, x: Tensor) -> Tensor:
        targets = torch.ones(3, 2, dtype=torch.long)
        return F.ctc_loss(self.layer(x).log_softmax(-1), targets, (5, 5, 5), (2, 2, 1))


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 4, 2]))
        made: Tensor = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0])[0]
        return made


def convolved(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), layer)


def projected(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), layer)


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2)


class Attended(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(8, 2)

    def forward(self, x: Tensor) -> Any:
        return self.layer(x, x, x)


Shape = tuple[int, ...]
LAYERS: dict[str, tuple[Callable[[], nn.Module], Shape]] = {
    "LSTM": (lambda: nn.LSTM(4, 8), SEQUENCE),
    "LSTM, two layers, both ways": (lambda: nn.LSTM(4, 8, 2, bidirectional=True), SEQUENCE),
    "LSTM without bias, batch first": (lambda: nn.LSTM(4, 8, 1, False, True), SEQUENCE),
    "LSTM with projections": (lambda: nn.LSTM(4, 8, proj_size=3), SEQUENCE),
    "GRU": (lambda: nn.GRU(4, 8), SEQUENCE),
    "GRU, two layers, both ways": (lambda: nn.GRU(4, 8, 2, bidirectional=True), SEQUENCE),
    "RNN": (lambda: nn.RNN(4, 8), SEQUENCE),
    "RNN with ReLU": (lambda: nn.RNN(4, 8, nonlinearity="relu"), SEQUENCE),
    "LSTM's cell": (lambda: nn.LSTMCell(8, 8), MATRIX),
    "attention": (Attended, (5, 3, 8)),
    "encoder": (encoder, (5, 3, 8)),
    "encoder for inference": (lambda: encoder().eval(), (5, 3, 8)),
    "unpooling": (Unpooled, IMAGES),
    "grid": (Sampled, IMAGES),
    "mean of parts": (lambda: convolved(nn.AdaptiveAvgPool2d(3)), IMAGES),
    "maximum of parts": (lambda: convolved(nn.AdaptiveMaxPool2d(3)), IMAGES),
    "bilinear": (lambda: convolved(nn.Upsample(scale_factor=2, mode="bilinear")), IMAGES),
    "bicubic": (lambda: convolved(nn.Upsample(scale_factor=2, mode="bicubic")), IMAGES),
    "quantised": (Quantized, MATRIX),
}
NORMS: dict[str, tuple[Callable[[], nn.Module], Shape]] = {
    "LayerNorm": (lambda: projected(nn.LayerNorm(8)), MATRIX),
    "RMSNorm": (lambda: projected(nn.RMSNorm(8)), MATRIX),
    "GroupNorm": (lambda: convolved(nn.GroupNorm(2, 4)), IMAGES),
    "BatchNorm": (lambda: convolved(nn.BatchNorm2d(4)), IMAGES),
    "BatchNorm for inference": (lambda: convolved(nn.BatchNorm2d(4).eval()), IMAGES),
    "InstanceNorm": (lambda: convolved(nn.InstanceNorm2d(4, affine=True)), IMAGES),
    "LocalResponseNorm": (lambda: convolved(nn.LocalResponseNorm(2)), IMAGES),
    "encoder": (encoder, (5, 3, 8)),
}
QUICK = ("LSTM", "GRU", "LayerNorm")
AVX512 = "AVX512" in torch.backends.cpu.get_cpu_capability()


def marked(names: dict[str, Any]) -> list[Any]:
    return [pytest.param(n, marks=[] if n in QUICK else pytest.mark.long) for n in names]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", marked(LAYERS))
def test_layer_peaks_and_gradients_equal_plain_training(name: str) -> None:
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    # A GRU's gradients are made by other products, which without AVX-512 round otherwise.
    decomposed = "bi" in name or ("GRU" in name and not AVX512)
    check(Loss(make()), (torch.randn(shape),), decomposed)


@pytest.mark.nightly
@pytest.mark.parametrize("name", marked(NORMS))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norm_under_autocast_equals_plain_training(name: str, dtype: torch.dtype) -> None:
    make, shape = NORMS[name]
    torch.manual_seed(0)
    check(Loss(make(), dtype), (torch.randn(shape),))


@pytest.mark.long
@pytest.mark.parametrize("mode", ["mean", "sum"])
def test_embedding_bag_equals_plain_training(mode: str) -> None:
    args = torch.randint(10, (7,)), torch.tensor([0, 3])
    check(Loss(nn.EmbeddingBag(10, 4, mode=mode)), args)


@pytest.mark.parametrize("layer", [Packed, Aligned])
def test_trace_refuses_data_dependent_shapes(layer: type[nn.Module]) -> None:
    model = Loss(layer())
    with pytest.raises(tc.GraphError, match="does not depend on the values of its t") as caught:
        tct.trace(model, torch.randn(SEQUENCE))
    assert ("pass sequences padded to one, not packed" in str(caught.value)) == (layer is Packed)
    if layer is Packed:  # of the other, advice knows the lengths
        with pytest.raises(tc.GraphError, match="does not depend on the values of its tensors"):
            tct.advise(model, torch.randn(SEQUENCE), budget=1.0)


def check(model: nn.Module, args: tuple[Tensor, ...], decomposed: bool = False) -> None:
    """Hold peaks to those that are measured, and gradients to eager's.

    Args:
        model: makes its own loss.
        args: what it takes.
        decomposed: whether AOTAutograd makes other operators of it, with other rounding.
    """
    traced = tct.trace(model, *args)
    schedule = tc.plan(traced.graph)
    step = tct.step(schedule, traced)
    step(*args)
    measured, (loss, gradients) = tct.allocator_peak(lambda: step(*args))
    assert abs(tc.replay(schedule).peak_bytes - measured) <= 4
    eager = eager_step(model, args)
    eager()
    model.zero_grad()
    measured, wanted = tct.allocator_peak(eager)
    advice = tct.advise(model, *args, budget=1.0, modules=())
    assert abs(advice.peak - measured) <= BYTES
    assert torch.allclose(loss, wanted)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and decomposed:
            torch.testing.assert_close(gradients[name], parameter.grad)
        elif parameter.grad is not None:
            assert torch.equal(gradients[name], parameter.grad), name
