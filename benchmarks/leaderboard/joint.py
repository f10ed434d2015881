"""Joint graphs of PyTorch training steps as instances: forward and backward pass, without weights.

    python -m benchmarks.leaderboard.joint [NAME ...]

writes ``data/NAME.txt.gz``, one text each (``instances.text_of``) with a line that says what was
traced. Operators are PyTorch's own; costs are nanoseconds of the roofline model of an A100, rounded
up. Results are the loss and the gradients of parameters; a gradient of a parameter that an operator
returns with a cotangent is an operator of its own. The new values of buffers are left out, which
batch norm returns with its output. Extra ``zoo``.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from math import ceil
from typing import Any

import torch
from torch import nn

import tinyckpt as tc
from benchmarks.leaderboard.instances import DATA, Instance, merged, needed, text_of
from tests.torch_models import UNet
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.importer import BEGIN

PACKAGES = ("torch", "torchvision", "transformers")
Example = tuple[nn.Module, dict[str, Any]]  # a model, and the arguments of its trace


def classifier(name: str) -> Example:
    """Return a model of torchvision, images and labels."""
    from benchmarks.zoo.operators import torchvision

    images, labels = torch.zeros(64, 3, 224, 224), torch.zeros(64, dtype=torch.long)
    batch = {"x": images, "loss": nn.functional.cross_entropy, "targets": labels}
    return torchvision.models.get_model(name, weights=None), batch


def words(kind: str, batch: int, length: int, dtype: torch.dtype, **sizes: Any) -> Example:
    """Return a language model of transformers, by the name of its class, and tokens."""
    import transformers

    model_class = getattr(transformers, kind)
    model = model_class(model_class.config_class(use_cache=False, **sizes)).to(dtype)
    tokens = torch.zeros(batch, length, dtype=torch.long)
    return model, {"input_ids": tokens, "labels": tokens.clone()}


def unet() -> Example:
    """Return a U-Net, images and targets."""
    images, targets = torch.zeros(8, 3, 256, 256), torch.zeros(8, 1, 256, 256)
    return UNet(64, 5, rate=0.0), {"images": images, "targets": targets}


UNDROPPED = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
LLAMA = {  # of Llama 3.2 1B
    "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "rope_theta": 5e5, "tie_word_embeddings": True,
}  # fmt: skip
MODELS: dict[str, tuple[str, Callable[[], Example]]] = {
    "joint-resnet50": ("ResNet-50, 64 images of 224x224", lambda: classifier("resnet50")),
    "joint-vit": ("ViT-B/16, 64 images of 224x224", lambda: classifier("vit_b_16")),
    "joint-unet": ("U-Net of width 64, 5 levels, 8 images of 256x256", unet),
    "joint-gpt2": (
        "GPT-2 small, 8 x 1024 tokens",
        lambda: words("GPT2LMHeadModel", 8, 1024, torch.float32, **UNDROPPED),
    ),
    "joint-llama": (
        "Llama of 16 layers, width 2048, bfloat16, 1 x 4096 tokens",
        lambda: words("LlamaForCausalLM", 1, 4096, torch.bfloat16, **LLAMA),
    ),
}


def instance_of(graph: tc.Graph) -> Instance:
    """Return a traced training step as an instance: what loss and gradients need."""
    loss = tc.tree.leaves(graph.results)[0]
    # The cotangent of the loss reads the loss alone, and not the new buffers, which are left out.
    operators = tuple(
        replace(operator, inputs=(loss,)) if operator.kind == BEGIN else operator
        for operator in graph.operators
    )
    whole = merged(
        replace(graph, operators=operators, results=loss),
        cost=lambda operator: ceil(1e9 * (operator.cost or 0.0)),
        apart=True,
    )
    return needed(whole)


def main(names: Sequence[str]) -> None:
    """Trace models and write their instances."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    DATA.mkdir(exist_ok=True)
    for name in names or MODELS:
        said, make = MODELS[name]
        with torch.device("meta"):
            model, arguments = make()
        traced = tct.trace(model.train(), workspace=False, cost="roofline", **arguments)
        instance = instance_of(traced.graph)
        text = f"# {said}; {versions}; costs in ns of a roofline model\n{text_of(instance)}"
        path = DATA / f"{name}.txt.gz"
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
        peak = instance.peak / 2**30
        print(f"{path.name}: {len(instance.costs)} operators, {peak:.1f} GiB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
