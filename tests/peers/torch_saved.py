"""Network blocks in tinyckpt and in PyTorch, and the bytes that each saves for backward."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import pytest

import tinyckpt as tc
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.networks.layers import affine, batch_norm_training, conv_relu, conv_specs
from tinyckpt.networks.network import affine_specs
from tinyckpt.networks.resnet import block_specs as residual_specs
from tinyckpt.networks.resnet import residual
from tinyckpt.networks.transformer_blocks import (
    apply_layer_norm,
    block_specs,
    blocks,
    mlp_sublayer,
    self_attention,
)
from tinyckpt.planner.model.saved_values import saved_values

torch: Any = pytest.importorskip("torch")
F: Any = torch.nn.functional
images: Any = import_module("tests.peers.torch_networks")
sequences: Any = import_module("tests.peers.torch_transformers")

BATCH, LENGTH, WIDTH, HEADS, CLASSES = 4, 64, 96, 3, 500
ROWS = BATCH * LENGTH
RATE = 0.1  # of dropout
FLOATS = 4 * ROWS * WIDTH  # bytes of one value of the residual stream, sbh in float32


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a network, in tinyckpt and in PyTorch.

    Attributes:
        ours, theirs: the function of parameters and of what the block reads.
        params: their specs.
        x: what it reads.
        more: bytes that are kept here and not there, or the other way round if less than 0, by why.
        math: whether PyTorch is asked for attention of primitives.
    """

    ours: Callable[[Any, Any], Any]
    theirs: Callable[[Any, Any], Any]
    params: Any
    x: tc.Spec
    more: dict[str, int]
    math: bool = False


def mlp(layers: Any, x: Any) -> Any:
    for layer in layers:
        x = tc.tanh(affine(x, layer))
    return x


def torch_mlp(layers: Any, x: Any) -> Any:
    for layer in layers:
        x = torch.tanh(images.affine(x, layer))
    return x


def torch_residual(block: Any, x: Any) -> Any:
    norm = images.BatchNorm()
    h = F.relu(images.conv_norm(x, block["first"], norm, padding=1))
    return F.relu(images.conv_norm(h, block["second"], norm, padding=1) + x)


def transformer(causal: bool, fused: bool) -> Callable[[Any, Any], Any]:
    """Return a block of norms, attention and a perceptron: GPT's if causal, else ViT's."""

    def block(layer: Any, x: Any) -> Any:
        return blocks(
            x, [layer], norm=partial(apply_layer_norm, epsilon=1e-5),
            attention=partial(self_attention, batch=BATCH, heads=HEADS, causal=causal, fused=fused),
            mlp=partial(mlp_sublayer, approximate=causal),
        )  # fmt: skip

    return block


def torch_transformer(causal: bool) -> Callable[[Any, Any], Any]:
    def block(layer: Any, x: Any) -> Any:
        h = x.view(BATCH, LENGTH, WIDTH)
        return sequences.pre_norm(h, [layer], HEADS, causal, "tanh" if causal else "none", 1e-5)

    return block


def torch_pooled(layer: Any, x: Any) -> Any:
    return F.max_pool2d(F.relu(F.conv2d(x, layer["w"], layer["b"], padding=1)), 2)


SQUARE = affine_specs(WIDTH, WIDTH, "float32")
TOKENS = tc.Spec((ROWS, WIDTH), "float32")
IMAGES = tc.Spec((8, 16, 32, 32), "float32")
PIXELS = 8 * 16 * 32 * 32
BLOCK = block_specs(WIDTH, 4 * WIDTH, "float32")
COPY = {"the heads side by side again, which PyTorch's kernel writes so at once": FLOATS}
QUERY = {"the query as it was, in one array with key and value, beside the scaled one": FLOATS}
LABELS = torch.arange(ROWS) % CLASSES

BLOCKS = {
    "MLP": Block(mlp, torch_mlp, [SQUARE] * 3, TOKENS, {}),
    "ResNet block": Block(
        lambda block, x: residual(x, block, batch_norm_training, 1),
        torch_residual,
        residual_specs(16, 16, 1, False, "float32"),
        IMAGES,
        {},
    ),
    "ViT block, fused attention": Block(
        transformer(False, True), torch_transformer(False), BLOCK, TOKENS, COPY
    ),
    "GPT block, fused attention": Block(
        transformer(True, True), torch_transformer(True), BLOCK, TOKENS, COPY
    ),
    "ViT block, attention of primitives": Block(
        transformer(False, False), torch_transformer(False), BLOCK, TOKENS, QUERY, math=True
    ),
    "GPT block, attention of primitives": Block(
        transformer(True, False), torch_transformer(True), BLOCK, TOKENS, QUERY, math=True
    ),
    "convolution, relu, max pooling": Block(
        lambda layer, x: tc.max_pool2d(conv_relu(x, layer, 1), 2),
        torch_pooled,
        conv_specs(16, 16, 3),
        IMAGES,
        {"places of the maxima, of 1 byte instead of 8": -7 * PIXELS // 4},
    ),
    "affine layer, dropout": Block(
        lambda layer, x: tc.dropout(affine(x, layer), RATE, seed=1),
        lambda layer, x: F.dropout(images.affine(x, layer), RATE),
        SQUARE,
        TOKENS,
        {"the mask, drawn again from its seed": -FLOATS},
    ),
    "affine layer, cross-entropy": Block(
        lambda layer, x: tc.cross_entropy(affine(x, layer), LABELS.numpy()),
        lambda layer, x: F.cross_entropy(images.affine(x, layer), LABELS),
        affine_specs(WIDTH, CLASSES, "float32"),
        TOKENS,
        {"the logarithm of every row's sum; PyTorch keeps logarithms of probabilities": 4 * ROWS},
    ),
}  # fmt: skip


def kept_here(block: Block) -> dict[str, int]:
    """Return the bytes that store-all saves here, by name."""

    def loss(params: Any, x: Any) -> Any:
        return tc.sum(block.ours(params, x))

    graph = tc.differentiate(tc.build(loss, block.params, block.x))
    return {str(node): node.nbytes for node in saved_values(graph)}


def kept_there(block: Block) -> dict[str, int]:
    """Return the bytes that PyTorch's hooks see, by storage; numbers by themselves left out."""
    params = map_leaves(lambda spec: torch.randn(spec.shape, requires_grad=True), block.params)
    x = torch.randn(block.x.shape, requires_grad=True) * 1.0  # an activation, not a leaf
    parameters = {p.untyped_storage().data_ptr() for p in leaves(params)}
    found: dict[int, tuple[str, int]] = {}
    tensors = []

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters and tensor.ndim:
            text = f"{tensor.dtype}{list(tensor.shape)}"
            found.setdefault(storage.data_ptr(), (text, storage.nbytes()))
        tensors.append(tensor)  # so that no other storage takes its place
        return tensor

    kernel = torch.nn.attention.SDPBackend
    kind = kernel.MATH if block.math else kernel.FLASH_ATTENTION
    with (
        torch.nn.attention.sdpa_kernel(kind),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        block.theirs(params, x).sum()
    return {f"{i} {text}": nbytes for i, (text, nbytes) in enumerate(found.values())}
