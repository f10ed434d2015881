"""Pre-norm decoder-only transformer of unfused, elementary operators; Vaswani et al. 2017.

Nothing is fused: a layer norm is eleven operators, and the attention weights are a value of the
graph, so that pictures show every value that may be saved or recomputed. To plan at GPT-2's size,
to run small. Not here: token and position embeddings (the embedded input is an argument), fused
norms and fused attention; ``gpt2`` has them.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec, checked_dtype
from tinyckpt.core.tracing import name, scope
from tinyckpt.networks.layers import affine, norm_specs
from tinyckpt.networks.network import Network
from tinyckpt.networks.transformer_blocks import block_specs, blocks, head_count, mlp_sublayer
from tinyckpt.ops.elementwise import sqrt
from tinyckpt.ops.linalg import matmul
from tinyckpt.ops.nn import cross_entropy, softmax
from tinyckpt.ops.random import check_rate
from tinyckpt.ops.random import dropout as drop
from tinyckpt.ops.reduce import mean
from tinyckpt.ops.shape import reshape, split, transpose

EPSILON = 1e-5  # added to a variance, as in GPT-2
MOST_TOKENS = 16_384  # whose causal mask takes 1 GiB in float32


def transformer(
    layers: int = 12,
    width: int = 768,
    heads: int | None = None,
    length: int = 256,
    batch: int = 8,
    vocabulary: int = 50257,
    *,
    dropout: float = 0.0,
    dtype: str = "float32",
) -> Network:
    """Build a language model of pre-norm blocks; the defaults are GPT-2 small's, at length 256.

    Its arguments are ``(params, x, labels)``: nested parameters, embedded tokens of shape
    ``(batch, length, width)``, and the next tokens, integers of shape ``(batch, length)``.

    Labels for selective checkpointing, one of each per layer: ``attention_scores`` (after softmax,
    of shape ``(1, batch, heads, length, length)``); ``attention_out`` and ``mlp_out`` (the residual
    branches, ``(batch * length, width)``); ``mlp_hidden`` (before gelu, 4 times as wide);
    ``residual`` (a layer's output: save that alone to recompute layer by layer).

    Args:
        layers: blocks, each of attention and a multilayer perceptron.
        width: of the residual stream; a multiple of ``heads``.
        heads: attention heads; one for every 64 of the width if not given.
        length: tokens per sequence.
        batch: sequences.
        vocabulary: number of tokens; the width of the logits.
        dropout: rate of the dropout on the residual branches; none if 0.
        dtype: of everything but the labels.

    Raises:
        GraphError: if a size is less than 1, or the width is no multiple of the heads, or a
            sequence is longer than 16,384 tokens.

    >>> network = transformer(2, 64, length=16)
    >>> [spec.shape for spec in network.specs[1:]]
    [(8, 16, 64), (8, 16)]

    Source: Vaswani et al., "Attention is all you need", arXiv 1706.03762; norms before the
    sublayers and a last one after them as in Radford et al., "Language models are unsupervised
    multitask learners", 2019 (GPT-2).
    """
    title = f"transformer:{layers}x{width}"
    heads = head_count(
        title, width, heads, layers=layers, length=length, batch=batch, vocabulary=vocabulary
    )
    if length > MOST_TOKENS:
        raise GraphError(
            f"{title}: length={length:,}; at most {MOST_TOKENS:,} are possible, since the causal "
            "mask is a constant of length x length numbers here; gpt2 and llama have none"
        )
    # The causal mask, one constant of the graph for all layers: 0 where a token attends, minus
    # infinity at later tokens.
    check_rate(dropout)
    mask = np.triu(np.full((length, length), -np.inf, checked_dtype(dtype)), k=1)

    def loss(params: Any, x: Any, labels: Any) -> Any:
        # The number of sequences is taken from x, so that a batch can be split.
        sequences, rows = x.shape[0], x.shape[0] * length
        # One row per token: affine layers are plain matrix products, without reshapes around them.
        h = reshape(x, (rows, width))
        seeds = count(2)  # one per mask
        h = blocks(
            h, params["layers"], norm=layer_norm,
            attention=partial(attention, batch=sequences, heads=heads, mask=mask),
            mlp=partial(mlp_sublayer, approximate=False),
            dropped=lambda x: drop(x, dropout, next(seeds)) if dropout else x,
        )  # fmt: skip
        with scope("output"):
            logits = layer_norm(h, params["norm"]) @ params["unembedding"]
            return cross_entropy(logits, reshape(labels, (rows,)))

    unembedding = Spec((width, vocabulary), dtype)
    params = {
        "layers": [block_specs(width, 4 * width, dtype)] * layers,
        "norm": norm_specs(width, dtype),
        "unembedding": unembedding,
    }
    data = Spec((batch, length, width), dtype), Spec((batch, length), "int64")
    return Network(title, loss, (params, *data))


def layer_norm(x: Any, layer: Any) -> Any:
    """Apply layer norm: every row with mean 0 and variance 1, scaled and shifted.

    Source: Ba, Kiros and Hinton, "Layer normalization", arXiv 1607.06450.
    """
    centred = x - mean(x, -1, keepdims=True)
    deviation = sqrt(mean(centred * centred, -1, keepdims=True) + EPSILON)
    return centred / deviation * layer["scale"] + layer["shift"]


def attention(x: Any, layer: Any, batch: int, heads: int, mask: Any) -> Any:
    """Apply causal multi-head self-attention.

    Args:
        x: shape ``(batch * length, width)``.
        layer: ``joint``, the joint projection to queries, keys and values, and ``out``.
        batch: sequences.
        heads: attention heads.
        mask: shape ``(length, length)``, added to the scores.
    """
    rows, width = x.shape
    joint = reshape(affine(x, layer["joint"]), (batch, rows // batch, 3, heads, width // heads))
    # The parts keep a leading axis of 1: split is one operator whose outputs are views; removing
    # the axis would copy them.
    query, key, value = split(transpose(joint, (2, 0, 3, 1, 4)), 3)
    query = query * (width // heads) ** -0.5
    scores = matmul(query, transpose(key, (0, 1, 2, 4, 3))) + mask
    mixed = matmul(name(softmax(scores), "attention_scores"), value)
    return affine(reshape(transpose(mixed, (0, 1, 3, 2, 4)), x.shape), layer["out"])
