"""Advice on processes that train together: DistributedDataParallel, and FSDP2, over gloo."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require

require("torch")

import torch
from torch import Tensor, distributed, nn
from torch.multiprocessing import spawn

import tinyckpt as tc
from tinyckpt.interop import torch as tct

WIDTH, ROWS = 128, 512
BUDGET = "85 %"
ROUNDING = 64  # bytes: the numbers with which backward begins, and that scale gradients


class Net(nn.Module):
    """Residual blocks and a loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.Tanh(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(3)
        )
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(x).square().mean()


def data_parallel(x: Tensor) -> dict[str, Any]:
    """Train a model in DistributedDataParallel; return predicted and measured bytes."""
    net = Net()
    allocated, model = replicated(net)
    own = tct.advise(net, x, budget=BUDGET, workspace=False)
    advice = tct.advise(model, x, budget=BUDGET, workspace=False)
    assert advice.modules == tuple(f"module.{name}" for name in own.modules)
    assert (advice.peak, advice.plain_peak) == (own.peak, own.plain_peak)
    found = {
        "allocated": allocated,
        "buckets": dict(advice.resident)["gradient buckets"],
        "predicted": [advice.plain_peak, advice.peak],
    }
    found["plain"], found["gradients"] = steps(model, x)
    advice.apply(net)
    found["advised"], found["own gradients"] = steps(model, x)
    found["views"], _ = steps(replicated(Net(), gradient_as_bucket_view=True)[1], x)
    return found


def replicated(net: nn.Module, **options: Any) -> tuple[int, nn.Module]:
    """Return the bytes that DistributedDataParallel allocates, under the meter, and the model.

    The second step replaces its buckets, and PyTorch's profiler sees that the old ones are freed
    only if it saw them allocated. The parameters are the same everywhere: they are not sent, since
    gloo's thread frees the copies when it comes to it.
    """
    options |= {"init_sync": False}
    return tct.allocator_peak(lambda: nn.parallel.DistributedDataParallel(net, **options))


def steps(model: nn.Module, x: Tensor) -> tuple[list[int], list[float]]:
    """Return the peaks of three steps, and a number of each gradient of the last one."""
    peaks = []
    for _ in range(3):
        model.zero_grad()
        peaks.append(tct.allocator_peak(lambda: model(x).backward())[0])
    return peaks, [float(p.grad.double().sum()) for p in model.parameters()]


def sharded(x: Tensor) -> dict[str, Any]:
    """Train a model under fully_shard, with and without advice; return what was said of it."""
    from torch.distributed.fsdp import fully_shard

    advice = tct.advise(Net(), x, budget=BUDGET, workspace=False)
    found = {}
    for name in ("plain", "advised"):
        net = Net()
        for block in net.blocks:
            fully_shard(block)
        fully_shard(net)
        if name == "advised":
            advice.apply(net)
        for _ in range(2):
            net.zero_grad()
            net(x).backward()
        found[name] = [float(p.grad.to_local().double().sum()) for p in net.parameters()]
    try:
        tct.advise(net, x, budget=BUDGET, workspace=False)
    except tc.GraphError as error:
        found["refusal"] = str(error)
    return found


def process(rank: int, count: int, name: str, folder: str) -> None:
    """Join the others, do one of the functions above, and write what it returns."""
    torch.set_num_threads(1)
    file = f"file://{folder}/meet"
    distributed.init_process_group("gloo", init_method=file, rank=rank, world_size=count)
    x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(rank))
    found = globals()[name](x)
    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    distributed.barrier()
    distributed.destroy_process_group()


def together(count: int, name: str, folder: Path) -> list[dict[str, Any]]:
    """Run a function on processes that can communicate; return what each of them found."""
    spawn(process, (count, name, str(folder)), nprocs=count)
    return [json.loads((folder / f"{rank}.json").read_text("utf-8")) for rank in range(count)]


@pytest.mark.nightly
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_buckets_of_data_parallel_training_are_counted(count: int, tmp_path: Path) -> None:
    every = together(count, "data_parallel", tmp_path)
    for found in every:
        assert found["allocated"] == found["buckets"] == sum(p.nbytes for p in Net().parameters())
        plain, advised = found["predicted"]
        assert advised < 0.9 * plain
        for name, predicted in (
            ("plain", plain),
            ("advised", advised),
        ):  # the first, and later ones
            assert all(abs(peak - predicted) <= ROUNDING for peak in found[name])
        # Gradients that are views of the buckets are allocated with these, or move there.
        assert all(peak <= plain + ROUNDING for peak in found["views"])
        assert found["gradients"] == found["own gradients"] == every[0]["gradients"]


@pytest.mark.long
def test_advice_applies_to_a_sharded_model_and_is_found_before(tmp_path: Path) -> None:
    for found in together(2, "sharded", tmp_path):
        assert found["plain"] == found["advised"]
        assert (
            "blocks.0.0.weight is sharded (a DTensor); expected the model before fully_sh"
            in (found["refusal"])
        )
