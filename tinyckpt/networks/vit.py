"""Vision transformer (ViT): an encoder over image patches; Dosovitskiy et al. 2020."""

from __future__ import annotations

from functools import partial
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.tracing import scope
from tinyckpt.networks.layers import affine, conv_specs, loss_of_logits, norm_specs
from tinyckpt.networks.network import Network, affine_specs
from tinyckpt.networks.transformer_blocks import (
    Dropped,
    apply_layer_norm,
    block_specs,
    blocks,
    head_count,
    make_dropout,
    mlp_sublayer,
    self_attention,
    with_seed,
)
from tinyckpt.ops.convolution import conv2d
from tinyckpt.ops.shape import broadcast_to, concatenate, reshape, transpose

EPSILON = 1e-6  # added to a variance


def vit_logits(
    params: Any, images: Any, *, heads: int, fused: bool = False, dropped: Dropped = lambda x: x
) -> Any:
    """Return the logits, of shape ``(batch, classes)``.

    Args:
        params: as in ``vit(...).specs[0]``.
        images: shape ``(batch, 3, size, size)``.
        heads: attention heads.
        fused: whether attention is one operator.
        dropped: dropout, in training.

    >>> import tinyckpt as tc
    >>> params, images, labels = vit(1, 8, heads=2, size=8, batch=2, patch=4, classes=10).arrays()
    >>> tc.jit(lambda p, images: vit_logits(p, images, heads=2))(params, images).shape
    (2, 10)
    """
    batch = images.shape[0]
    first = params["patches"]
    width, _, patch, _ = first["w"].shape
    with scope("embedding"):
        patches = conv2d(images, first["w"], first["b"], stride=patch)
        patches = transpose(reshape(patches, (batch, width, -1)), (0, 2, 1))
        class_token = broadcast_to(params["class"], (batch, 1, width))
        h = concatenate([class_token, patches], axis=1) + params["positions"]
        h = dropped(reshape(h, (-1, width)))
    h = blocks(
        h, params["layers"], dropped=dropped,
        norm=partial(apply_layer_norm, epsilon=EPSILON),
        attention=partial(self_attention, batch=batch, heads=heads, causal=False, fused=fused),
        mlp=partial(mlp_sublayer, approximate=False),
    )  # fmt: skip
    with scope("output"):
        # Layer norm works row by row, and only the class token's row is read.
        h = reshape(h, (batch, -1, width))[:, 0]
        return affine(apply_layer_norm(h, params["norm"], EPSILON), params["head"])


def vit(
    layers: int = 12, width: int = 768, heads: int | None = None, size: int = 224,
    batch: int = 1, patch: int = 16, *,
    classes: int = 1000, fused: bool = False, dropout: float = 0.0, dtype: str = "float32",
) -> Network:  # fmt: skip
    """Build the vision transformer; the defaults are ViT-B/16, with 86,567,656 parameters.

    Its arguments are ``(params, images, labels)``: floats of shape ``(batch, 3, size, size)``, and
    integers of shape ``(batch,)``; with dropout also a seed, to be changed in each step.

    Args:
        layers: blocks, each of attention and a multilayer perceptron.
        width: of the residual stream; a multiple of ``heads``.
        heads: attention heads; one for every 64 of the width if not given.
        size: height and width in pixels, a multiple of ``patch``.
        batch: images.
        patch: height and width of a patch in pixels.
        classes: of images.
        fused: whether attention is one operator, which does not store the attention weights.
        dropout: rate of the dropout on embeddings and on the residual branches.
        dtype: of parameters and activations; the loss of float16 is computed in float32.

    Raises:
        GraphError: if a size is less than 1, ``heads`` does not divide the width, or ``patch`` the
            size.

    >>> vit().parameter_count
    86567656

    Source: Dosovitskiy et al., "An image is worth 16x16 words: transformers for image recognition
    at scale", arXiv 2010.11929, table 1.
    """
    title = f"vit:{layers}x{width}"
    heads = head_count(
        title, width, heads, layers=layers, size=size, batch=batch, patch=patch, classes=classes
    )
    if size % patch:
        raise GraphError(f"{title}: size={size} must be a multiple of patch={patch}")

    def loss(params: Any, images: Any, labels: Any, seed: Any = 0) -> Any:
        dropped = make_dropout(dropout, seed, 2 * layers + 1)
        return loss_of_logits(
            vit_logits(params, images, heads=heads, fused=fused, dropped=dropped), labels
        )

    params = {
        "patches": conv_specs(3, width, patch, dtype),
        "class": Spec((1, 1, width), dtype),
        "positions": Spec(((size // patch) ** 2 + 1, width), dtype),
        "layers": [block_specs(width, 4 * width, dtype)] * layers,
        "norm": norm_specs(width, dtype),
        "head": affine_specs(width, classes, dtype),
    }
    specs = params, Spec((batch, 3, size, size), dtype), Spec(batch, "int64")
    return Network(title, loss, with_seed(specs, dropout))
