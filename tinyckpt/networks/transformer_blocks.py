"""Transformer blocks as plain functions: layer norm, multi-head attention, MLP, dropout.

Inside a network, tokens are the rows of one matrix, ``(batch * length, width)``: affine layers are
plain matrix products, without reshapes around them.

Values are labelled for selective checkpointing, one of each label per layer: ``attention_scores``
(the attention weights after softmax, unless attention is fused), ``attention_out`` and ``mlp_out``
(the residual branches), ``mlp_hidden`` (the activation's input), ``residual`` (a layer's output:
save that alone to recompute layer by layer).

Not here: dropout of the attention weights, and padding: every sequence has the same length.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.tracing import name, scope
from tinyckpt.networks.layers import affine, norm_specs
from tinyckpt.networks.network import affine_specs, check_sizes
from tinyckpt.ops.activation import gelu
from tinyckpt.ops.attention import attention
from tinyckpt.ops.normalization import layer_norm
from tinyckpt.ops.random import check_rate, dropout
from tinyckpt.ops.shape import reshape, split, transpose

Dropped = Callable[[Any], Any]  # dropout: x -> x with some elements 0, or x itself
Sublayer = Callable[[Any, Any], Any]  # (x, parameters) -> y, of x's shape


def head_count(
    title: str, width: int, heads: int | None, *, per_head: int = 64, **sizes: int
) -> int:
    """Return the number of heads; if not given, there is one for every ``per_head`` of the width.

    Raises:
        GraphError: if a size is less than 1, or the heads do not divide the width.
    """
    check_sizes(title, width=width, **sizes)
    heads = max(width // per_head, 1) if heads is None else heads
    check_sizes(title, heads=heads)
    if width % heads:
        raise GraphError(f"{title}: width={width} must be a multiple of heads={heads}")
    return heads


def make_dropout(rate: float, seed: Any, masks: int) -> Dropped:
    """Return a dropout function that draws a new mask at each call.

    Args:
        rate: probability of dropping; at 0 the function is the identity.
        seed: an integer; a new one in each training step.
        masks: calls per training step: mask seeds are ``seed * masks + call``, so that no two
            steps share a mask.
    """
    indices = count()
    return lambda x: dropout(x, rate, seed * masks + next(indices)) if rate else x


def apply_layer_norm(x: Any, layer: Any, epsilon: float) -> Any:
    """Apply layer norm: every row with mean 0 and variance 1, scaled and shifted."""
    return layer_norm(x, layer["scale"], layer["shift"], epsilon=epsilon)


def block_specs(width: int, hidden: int, dtype: str) -> dict[str, Any]:
    """Return the parameter specs of one transformer block: attention and MLP, each with a norm."""
    return {
        "attention_norm": norm_specs(width, dtype),
        "attention": {
            "joint": affine_specs(width, 3 * width, dtype),
            "out": affine_specs(width, width, dtype),
        },
        "mlp_norm": norm_specs(width, dtype),
        "mlp": {
            "hidden": affine_specs(width, hidden, dtype),
            "out": affine_specs(hidden, width, dtype),
        },
    }


def self_attention(x: Any, layer: Any, batch: int, heads: int, *, causal: bool, fused: bool) -> Any:
    """Apply multi-head self-attention.

    Args:
        x: shape ``(batch * length, width)``.
        layer: ``joint``, the joint projection to queries, keys and values, and ``out``.
        batch: sequences.
        heads: attention heads.
        causal: whether later tokens are masked.
        fused: whether attention is one operator, which does not store the attention weights.
    """
    rows, width = x.shape
    joint = reshape(affine(x, layer["joint"]), (batch, rows // batch, 3, heads, width // heads))
    # The parts keep a leading axis of 1: split is one operator whose outputs are views; removing
    # the axis would copy them.
    query, key, value = split(transpose(joint, (2, 0, 3, 1, 4)), 3)
    mixed = attention(query, key, value, causal=causal, fused=fused)
    return affine(reshape(transpose(mixed, (0, 1, 3, 2, 4)), x.shape), layer["out"])


def mlp_sublayer(x: Any, layer: Any, approximate: bool) -> Any:
    """Apply the MLP of a block: an affine layer to the hidden width, gelu, and one back."""
    hidden = name(affine(x, layer["hidden"]), "mlp_hidden")
    return affine(gelu(hidden, approximate), layer["out"])


def blocks(
    h: Any, layers: Any, *,
    norm: Sublayer, attention: Sublayer, mlp: Sublayer,
    norm_first: bool = True, dropped: Dropped = lambda x: x,
) -> Any:  # fmt: skip
    """Apply a stack of transformer blocks: attention and MLP, each with a norm and a residual.

    Args:
        h: shape ``(batch * length, width)``.
        layers: the parameters of every block.
        norm, attention, mlp: their parts.
        norm_first: whether blocks are pre-norm (norms of the inputs of attention and MLP, as in
            GPT-2) or post-norm (norms after the residual additions, as in BERT).
        dropped: dropout of the residual branches.
    """
    for index, layer in enumerate(layers, start=1):
        with scope(f"layer{index}"):
            for part, sublayer in (("attention", attention), ("mlp", mlp)):
                with scope(part):
                    read = norm(h, layer[f"{part}_norm"]) if norm_first else h
                    h = h + dropped(name(sublayer(read, layer[part]), f"{part}_out"))
                    h = h if norm_first else norm(h, layer[f"{part}_norm"])
        h = name(h, "residual")
    return h


def with_seed(specs: tuple[Any, ...], dropout: float) -> tuple[Any, ...]:
    """Append the spec of a seed to a network's arguments, if it has dropout."""
    check_rate(dropout)
    return (*specs, Spec((), "int64")) if dropout else specs
