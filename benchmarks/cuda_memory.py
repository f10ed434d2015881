"""Benchmark: memory of PyTorch training steps predicted without a GPU, against one that measures.

    python benchmarks/cuda_memory.py predict PLANS.json --device H200-141GB  # no GPU is needed
    python benchmarks/cuda_memory.py measure PLANS.json SEEN.json  # where the GPU is
    python benchmarks/cuda_memory.py table PLANS.json SEEN.json    # anywhere

``--device`` names the GPU that is predicted. The rules of prediction were corrected on ``FITTED``;
``HELD_OUT`` are others. Each model is trained by AdamW for four steps, plain,
under the advice for 60 % of the plain step's peak, and with the saved tensors of some modules in
host memory (``tct.offload``). Predicted is what ``tct.advise(..., device=...)`` says; measured are
``torch.cuda.max_memory_allocated`` and ``max_memory_reserved`` over all steps, of a process per
model. A step takes the median of seven.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

import table
import torch
from torch import nn

OPTIMIZER, BUDGET = "AdamW", "60 %"
STEPS, TIMED, SEED = 4, 7, 0
MIB = 2**20
WORKERS = 6  # processes that start while one is on the GPU
PLANS = ("plain", "checkpoint", "offload")
Case = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


class Scored(nn.Module):
    """A classifier with its cross entropy."""

    def __init__(self, model: nn.Module, result: str | None = None) -> None:
        super().__init__()
        self.model, self.result = model, result

    def forward(self, x: Any, target: Any) -> Any:
        found = self.model(x)
        return nn.functional.cross_entropy(found[self.result] if self.result else found, target)


def image(name: str, batch: int, size: int = 224, **options: Any) -> Callable[[], Case]:
    """Return what makes a model of torchvision with images and labels."""

    def make() -> Case:
        import torchvision

        x, target = torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,))
        return Scored(torchvision.models.get_model(name, **options)), (x, target), {}

    return make


def segmentation() -> Case:
    """Return a fully convolutional network with pixels and their classes."""
    import torchvision

    model = torchvision.models.get_model("fcn_resnet50", weights_backbone=None)
    x, target = torch.randn(8, 3, 256, 256), torch.randint(0, 10, (8, 256, 256))
    return Scored(model, "out"), (x, target), {}


def words(kind: str, batch: int, length: int, half: bool = False, **options: Any) -> Any:
    """Return what makes a language model of transformers with tokens, in bfloat16 if ``half``."""

    def make() -> Case:
        import transformers

        model_class = getattr(transformers, kind)
        model = model_class(model_class.config_class(**options))
        model.config.use_cache = False
        tokens = torch.randint(3, 1000, (batch, length))
        named = {"input_ids": tokens, "labels": tokens}
        return (model.to(torch.bfloat16) if half else model), (), named

    return make


class Recurrent(nn.Module):
    """Two layers of LSTM upon an embedding, and the loss of the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(1000, 512), nn.Linear(512, 1000)
        self.lstm = nn.LSTM(512, 512, 2, batch_first=True)

    def forward(self, tokens: Any) -> Any:
        found = self.head(self.lstm(self.embedding(tokens))[0][:, :-1])
        return nn.functional.cross_entropy(found.flatten(0, 1), tokens[:, 1:].flatten())


def recurrent() -> Case:
    """Return a recurrent network with tokens."""
    return Recurrent(), (torch.randint(3, 1000, (64, 256)),), {}


GROUPED = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000,
}  # fmt: skip
FITTED: dict[str, Callable[[], Case]] = {
    "ResNet-50": image("resnet50", 64),
    "ConvNeXt-T": image("convnext_tiny", 32),
    "ViT-B/16": image("vit_b_16", 32),
    "Swin-T": image("swin_t", 32),
    "MobileNet-V3-L": image("mobilenet_v3_large", 64),
    "FCN-ResNet-50": segmentation,
    "GPT-2": words("GPT2LMHeadModel", 8, 512),
    "GPT-2, autocast": words("GPT2LMHeadModel", 8, 512),
    "BERT-base": words("BertForMaskedLM", 16, 256),
    "T5-small": words("T5ForConditionalGeneration", 16, 256, decoder_start_token_id=0),
    "Llama, bfloat16": words("LlamaForCausalLM", 4, 1024, True, **GROUPED),
    "Qwen3": words("Qwen3ForCausalLM", 4, 512, **GROUPED),
    "LSTM": recurrent,
}
HELD_OUT: dict[str, Callable[[], Case]] = {
    "VGG-16": image("vgg16", 32),
    "DenseNet-121": image("densenet121", 32),
    "RegNetY-3.2GF": image("regnet_y_3_2gf", 32),
    "EfficientNet-B2": image("efficientnet_b2", 32),
    "MaxViT-T": image("maxvit_t", 16),
    "RoBERTa-base": words("RobertaForMaskedLM", 16, 256),
    "OPT-125M": words("OPTForCausalLM", 8, 512),
    "Pythia-160M": words("GPTNeoXForCausalLM", 8, 512, hidden_size=768, intermediate_size=3072,
                         num_hidden_layers=12, num_attention_heads=12),
    "BART-base": words("BartForConditionalGeneration", 8, 256, d_model=768, encoder_layers=6,
                       decoder_layers=6, encoder_ffn_dim=3072, decoder_ffn_dim=3072,
                       encoder_attention_heads=12, decoder_attention_heads=12),
    "Mistral, bfloat16": words("MistralForCausalLM", 4, 1024, True, sliding_window=256, **GROUPED),
    "Phi, bfloat16": words("PhiForCausalLM", 4, 1024, True, hidden_size=1024, vocab_size=32000,
                           intermediate_size=4096, num_hidden_layers=12, num_attention_heads=16),
    "Gemma 3, bfloat16": words("Gemma3ForCausalLM", 4, 1024, True, **GROUPED),
}  # fmt: skip
MODELS = {**FITTED, **HELD_OUT}


def context(name: str, device: str) -> Any:
    """Return the context in which a model's forward pass runs."""
    within = "autocast" in name
    return torch.autocast(device, torch.bfloat16) if within else nullcontext()


def predicted(name: str, device: str) -> dict[str, Any]:
    """Return what is predicted of a model's plans on a device."""
    from tinyckpt.base.errors import TinyckptError
    from tinyckpt.interop import torch as tct

    # Autocast is that of a device, and "meta" has none; RegNetY reads numbers when it is made.
    with torch.device("cpu" if "autocast" in name or "RegNet" in name else "meta"):
        model, args, named = MODELS[name]()
    found: dict[str, Any] = {}
    begin = perf_counter()
    with context(name, "cpu"):
        for plan, budget in (("plain", None), ("checkpoint", BUDGET)):
            try:
                advice = tct.advise(
                    model, *args, device=device, optimizer=OPTIMIZER, budget=budget, **named
                )
            except TinyckptError as error:
                found[plan] = {"refused": str(error)}
                continue
            memory = advice.device
            assert memory is not None
            found[plan] = {
                "modules": advice.modules, "cost": advice.cost,
                "step": memory.step, "cublas": memory.device.workspaces,
                "resident": memory.sources + memory.state, "reserved": memory.reserved,
            }  # fmt: skip
            found[plan]["seconds"] = perf_counter() - begin
        try:
            moved = tct.offload(model, *args, budget=BUDGET, device=device, **named)
            found["offload"] = {"modules": moved.modules, "moved": moved.moved, "cost": 1.0,
                                "step": moved.peak, "at_least": moved.at_least}  # fmt: skip
        except TinyckptError as error:
            found["offload"] = {"refused": str(error)}
    return found


def measured(name: str, plans: dict[str, Any], lock: str) -> dict[str, Any]:
    """Return what a GPU measures of a model's plans."""
    from tinyckpt.interop.torch.offloading import Offload

    torch.manual_seed(SEED)
    model, args, named = MODELS[name]()
    start = {key: value.clone() for key, value in model.state_dict().items()}
    found: dict[str, Any] = {}
    # A process at a time is on the GPU; the kernel opens the lock when the process has ended.
    fcntl.flock(os.open(lock, os.O_RDWR), fcntl.LOCK_EX)
    args = tuple(each.cuda() for each in args)
    named = {key: each.cuda() for key, each in named.items()}
    for plan in PLANS:
        if "refused" in plans[plan]:
            continue
        model, *_ = MODELS[name]()
        model.load_state_dict(start)
        model.cuda()
        if plan == "checkpoint":
            wrap(model, plans[plan]["modules"])
        if plan == "offload":
            each = plans[plan]
            modules = tuple(each["modules"])
            Offload(name, modules, 0, 0, 1.0, 0, at_least=each["at_least"]).apply(model)
        found[plan] = trained(name, model, args, named)
        del model
        gc.collect()  # a wrapped module refers to itself, and would stay on the device
        torch.cuda.empty_cache()
    return found


def wrap(model: nn.Module, modules: list[str]) -> None:
    """Put modules under ``checkpoint``, as the printed code of an advice does."""
    from functools import partial

    from torch.utils.checkpoint import checkpoint

    for each in modules:
        module = model.get_submodule(each)
        module.forward = partial(checkpoint, module.forward, use_reentrant=False)


def trained(name: str, model: nn.Module, args: Any, named: Any) -> dict[str, Any]:
    """Return peaks, losses and seconds of some training steps."""
    optimizer = getattr(torch.optim, OPTIMIZER)(model.parameters(), lr=1e-5)
    torch.manual_seed(SEED)

    def step() -> Any:
        optimizer.zero_grad()
        with context(name, "cuda"):
            loss = model(*args, **named)
            # Nothing else of the output is kept: its logits would live through the backward pass.
            loss = loss if isinstance(loss, torch.Tensor) else loss.loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    torch.cuda.reset_peak_memory_stats()
    losses = [float(step()) for _ in range(STEPS)]
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    free, capacity = torch.cuda.mem_get_info()
    beside = capacity - free - torch.cuda.memory_reserved()
    seconds = []
    for _ in range(TIMED):
        torch.cuda.synchronize()
        begin = perf_counter()
        step()
        torch.cuda.synchronize()
        seconds.append(perf_counter() - begin)
    return {"allocated": allocated, "reserved": reserved, "losses": losses, "beside": beside,
            "seconds": statistics.median(seconds)}  # fmt: skip


def in_process(task: str, name: str, *more: str) -> dict[str, Any]:
    """Return what a process of its own says of a model."""
    command = [sys.executable, "-W", "ignore", __file__, task, name, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        print(f"{name}: {last}", file=sys.stderr, flush=True)
        return {"failed": " ".join(last)}
    print(f"{name}: done", file=sys.stderr, flush=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def body(outcomes: dict[str, Any]) -> list[list[object]]:
    """Return the rows of the table."""
    rows: list[list[object]] = []
    for name, (plans, found) in outcomes.items():
        for plan in PLANS:
            if plan not in found:
                continue
            each, seen = plans[plan], found[plan]
            base = plans["plain"]
            resident = each.get("resident", base["resident"]) + each.get("cublas", base["cublas"])
            step = each["step"] + resident
            same = seen["losses"] == found["plain"]["losses"]
            reserved = each.get("reserved")
            rows.append([
                name, plan, f"{step / MIB:,.0f}", f"{seen['allocated'] / MIB:,.0f}",
                f"{100 * (step / seen['allocated'] - 1):+.2f} %",
                f"{reserved / MIB:,.0f}" if reserved else "",
                f"{seen['reserved'] / MIB:,.0f}",
                f"{100 * (reserved / seen['reserved'] - 1):+.1f} %" if reserved else "",
                f"{1000 * seen['seconds']:.1f}",
                f"{seen['seconds'] / found['plain']['seconds']:.2f}", f"{each['cost']:.2f}",
                "equal" if same else f"{max_difference(seen, found['plain']):.0e}",
            ])  # fmt: skip
    return rows


def max_difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the largest relative difference of losses."""
    return max(abs(a - b) / abs(b) for a, b in zip(one["losses"], other["losses"], strict=True))


def refusals(plans: dict[str, Any]) -> dict[str, list[str]]:
    """Return the plans of a model that are refused, by the reason."""
    reasons: dict[str, list[str]] = {}
    for plan, each in plans.items():
        if isinstance(each, dict) and "refused" in each:
            reason = re.sub(r"[^\s(]*/site-packages/", "", each["refused"])
            reasons.setdefault(reason, []).append(plan)
    return reasons


HEADER = (
    "model", "plan", "allocated, MiB: predicted", "measured", "off", "reserved, MiB: predicted",
    "measured", "off", "ms a step", "over plain", "FLOPs over plain", "losses of four steps",
)  # fmt: skip


def measure(plans: dict[str, Any], path: Path) -> None:
    """Write what the GPU measures of each model; processes start while another is on it."""
    lock = tempfile.mkstemp()[1]
    packages = ("torch", "torchvision", "transformers")
    where = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    seen: dict[str, Any] = {"where": f"{where}, {table.versions(packages)}", "models": {}}
    names = [name for name in MODELS if "plain" in plans.get(name, {})]
    with ThreadPoolExecutor(WORKERS) as pool:
        found = [
            pool.submit(in_process, "measured", name, json.dumps(plans[name]), lock)
            for name in names
        ]
        for name, each in zip(names, found, strict=True):
            seen["models"][name] = each.result()
            path.write_text(json.dumps(seen, indent=1), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("predict", "measure", "table"))
    parser.add_argument("plans", type=Path, metavar="PLANS.json")
    parser.add_argument("seen", type=Path, nargs="?", metavar="SEEN.json")
    parser.add_argument("--device", default="H100-80GB", help="the GPU that is predicted")
    options = parser.parse_args()
    if options.task == "predict":
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            each = pool.map(lambda name: in_process("predicted", name, options.device), MODELS)
            predictions = {"device": options.device, "models": dict(zip(MODELS, each, strict=True))}
        options.plans.write_text(json.dumps(predictions, indent=1), encoding="utf-8")
        return
    predictions = json.loads(options.plans.read_text(encoding="utf-8"))
    plans = predictions["models"]
    if options.task == "measure":
        measure(plans, options.seen)
        return
    seen = json.loads(options.seen.read_text(encoding="utf-8"))
    models = seen["models"]
    beside = [each["beside"] / MIB for model in models.values() for each in model.values()
              if isinstance(each, dict)]  # fmt: skip
    notes = [
        f"{name}, {', '.join(refused)}: {reason}"
        for name, plans_of in plans.items()
        for reason, refused in refusals(plans_of).items()
    ]
    notes += [f"{name}: {each['failed']}" for found in (plans, models)
              for name, each in found.items() if "failed" in each]  # fmt: skip
    outcomes = {
        name: (plans[name], model)
        for name, model in models.items()
        if "failed" not in model and "refused" not in plans[name]["plain"]
    }

    def rows_of(names: Collection[str]) -> str:
        return table.rows(
            HEADER, body({name: outcomes[name] for name in names if name in outcomes})
        )

    table.write(
        "cuda_memory", "Training steps of PyTorch on a GPU: predicted without it, and measured",
        [f"Predicted for {predictions['device']}; measured on {seen['where']}; AdamW. Beside "
         f"PyTorch's allocator a process takes {min(beside):,.0f} to {max(beside):,.0f} MiB of the "
         "GPU.",
         "## Models that the rules were corrected on", rows_of(FITTED),
         "## Other models, for which no rule was changed", rows_of(HELD_OUT),
         "Refused:", *notes, *seen.get("remarks", ())],
        ["torch", "torchvision", "transformers"],
    )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["predicted"]:
        warnings.simplefilter("ignore")
        print(json.dumps(predicted(*sys.argv[2:])))
    elif sys.argv[1:2] == ["measured"]:
        print(json.dumps(measured(sys.argv[2], json.loads(sys.argv[3]), sys.argv[4])))
    else:
        main()
