"""Reference implementations of the transformers in PyTorch, on the same parameters."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.peers.torch_networks import Tensor, affine, cross_entropy

torch: Any = pytest.importorskip("torch")
F: Any = torch.nn.functional


def layer_norm(x: Tensor, layer: Any, epsilon: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], layer["scale"], layer["shift"], epsilon)


def attention(x: Tensor, layer: Any, heads: int, causal: bool) -> Tensor:
    batch, length, width = x.shape
    parts = affine(x, layer["joint"]).split(width, -1)
    query, key, value = (p.view(batch, length, heads, -1).transpose(1, 2) for p in parts)
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
    return affine(mixed.transpose(1, 2).reshape(x.shape), layer["out"])


def perceptron(x: Tensor, layer: Any, approximate: str) -> Tensor:
    return affine(F.gelu(affine(x, layer["hidden"]), approximate=approximate), layer["out"])


def pre_norm(h: Tensor, layers: Any, heads: int, causal: bool, gelu: str, epsilon: float) -> Tensor:
    for layer in layers:
        h = h + attention(
            layer_norm(h, layer["attention_norm"], epsilon), layer["attention"], heads, causal
        )
        h = h + perceptron(layer_norm(h, layer["mlp_norm"], epsilon), layer["mlp"], gelu)
    return h


def gpt2(params: Any, tokens: Tensor, labels: Tensor) -> Tensor:
    h = F.embedding(tokens, params["tokens"]) + params["positions"][: tokens.shape[1]]
    h = pre_norm(h, params["layers"], 2, True, "tanh", 1e-5)
    return cross_entropy(layer_norm(h, params["norm"], 1e-5) @ params["tokens"].T, labels)


def vit(params: Any, images: Tensor, labels: Tensor) -> Tensor:
    first = params["patches"]
    patches = F.conv2d(images, first["w"], first["b"], stride=first["w"].shape[-1])
    begin = params["class"].expand(len(images), -1, -1)
    h = torch.cat([begin, patches.flatten(2).transpose(1, 2)], 1) + params["positions"]
    h = pre_norm(h, params["layers"], 2, False, "none", 1e-6)
    return cross_entropy(affine(layer_norm(h, params["norm"], 1e-6)[:, 0], params["head"]), labels)


def bert(params: Any, tokens: Tensor, types: Tensor, labels: Tensor, offset: int = 0) -> Tensor:
    length = tokens.shape[1]
    h = F.embedding(tokens, params["tokens"]) + F.embedding(types, params["types"])
    h = layer_norm(h + params["positions"][offset : offset + length], params["norm"], 1e-12)
    for layer in params["layers"]:
        h = h + attention(h, layer["attention"], 2, False)
        h = layer_norm(h, layer["attention_norm"], 1e-12)
        h = layer_norm(h + perceptron(h, layer["mlp"], "none"), layer["mlp_norm"], 1e-12)
    pooled = torch.tanh(affine(h[:, 0], params["pooler"]))
    if "classifier" in params:
        return cross_entropy(affine(pooled, params["classifier"]), labels)
    vectors = torch.cat([pooled[:, None], h[:, 1:]], 1)
    return cross_entropy(vectors @ params["tokens"].T, labels)


def rms_norm(x: Tensor, layer: Any) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], layer["scale"], 1e-6)


def rotated(x: Tensor) -> Tensor:
    """Rotate queries or keys by their positions; halves are turned, as in published code."""
    length, width = x.shape[-2:]
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, dtype=x.dtype) / width)
    angles = torch.arange(length, dtype=x.dtype)[:, None] * frequencies
    cosine, sine = (part.repeat(1, 2) for part in (angles.cos(), angles.sin()))
    left, right = x.chunk(2, -1)
    return x * cosine + torch.cat([-right, left], -1) * sine


def llama(params: Any, tokens: Tensor, labels: Tensor, heads: int, kv_heads: int) -> Tensor:
    h = F.embedding(tokens, params["tokens"])
    batch, length, _ = h.shape
    for layer in params["layers"]:
        x, weights = rms_norm(h, layer["attention_norm"]), layer["attention"]
        query, key, value = (
            (x @ weights[name]["w"]).view(batch, length, number, -1).transpose(1, 2)
            for name, number in (("query", heads), ("key", kv_heads), ("value", kv_heads))
        )
        key, value = (part.repeat_interleave(heads // kv_heads, 1) for part in (key, value))
        mixed = F.scaled_dot_product_attention(rotated(query), rotated(key), value, is_causal=True)
        h = h + mixed.transpose(1, 2).reshape(h.shape) @ weights["out"]["w"]
        x, weights = rms_norm(h, layer["mlp_norm"]), layer["mlp"]
        gate = F.silu(x @ weights["gate"]["w"])
        h = h + (gate * (x @ weights["hidden"]["w"])) @ weights["out"]["w"]
    return cross_entropy(rms_norm(h, params["norm"]) @ params["output"]["w"], labels)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "vit": vit,
    "bert": bert,
    "bert_classes": bert,
    "roberta": lambda *args: bert(*args, offset=2),
    "gpt2": gpt2,
    "llama": lambda *args: llama(*args, 2, 2),
    "llama_grouped": lambda *args: llama(*args, 4, 2),
}
