"""GPT-2: decoder-only transformer, learned positions, tied embedding; Radford et al. 2019.

Pre-norm blocks (``transformer_blocks``) with causal attention; next-token cross-entropy.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.tracing import scope
from tinyckpt.networks.layers import loss_of_logits, norm_specs
from tinyckpt.networks.network import Network
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
from tinyckpt.ops.embedding import embedding
from tinyckpt.ops.shape import reshape, transpose

EPSILON = 1e-5  # added to a variance


def gpt2_logits(
    params: Any, tokens: Any, *, heads: int, fused: bool = False, dropped: Dropped = lambda x: x
) -> Any:
    """Return the next-token logits, of shape ``(batch, length, vocabulary)``.

    Args:
        params: as in ``gpt2(...).specs[0]``.
        tokens: integers of shape ``(batch, length)``.
        heads: attention heads.
        fused: whether attention is one operator.
        dropped: dropout, in training.

    >>> import tinyckpt as tc
    >>> params, tokens, labels = gpt2(1, 8, heads=2, length=4, vocabulary=10).arrays()
    >>> tc.jit(lambda p, tokens: gpt2_logits(p, tokens, heads=2))(params, tokens).shape
    (1, 4, 10)
    """
    batch, length = tokens.shape
    table = params["tokens"]
    with scope("embedding"):
        h = embedding(table, tokens) + params["positions"][:length]
        h = dropped(reshape(h, (batch * length, table.shape[1])))
    h = blocks(
        h, params["layers"], dropped=dropped,
        norm=partial(apply_layer_norm, epsilon=EPSILON),
        attention=partial(self_attention, batch=batch, heads=heads, causal=True, fused=fused),
        mlp=partial(mlp_sublayer, approximate=True),
    )  # fmt: skip
    with scope("output"):
        logits = apply_layer_norm(h, params["norm"], EPSILON) @ transpose(table)
        return reshape(logits, (batch, length, table.shape[0]))


def gpt2(
    layers: int = 12, width: int = 768, heads: int | None = None, length: int = 1024,
    batch: int = 1, vocabulary: int = 50257, *,
    positions: int = 1024, fused: bool = False, dropout: float = 0.0, dtype: str = "float32",
) -> Network:  # fmt: skip
    """Build GPT-2; the defaults are the smallest, 124,439,808 parameters; 36x1280 has 774,030,080.

    Its arguments are ``(params, tokens, labels)``, integers of shape ``(batch, length)``, each
    label the next token; with dropout also a seed, to be changed in each step. The loss is the mean
    over all tokens.

    Args:
        layers: blocks, each of attention and a multilayer perceptron.
        width: of the residual stream; a multiple of ``heads``.
        heads: attention heads; one for every 64 of the width if not given.
        length: tokens per sequence; at most ``positions``.
        batch: sequences.
        vocabulary: number of tokens.
        positions: rows of the position embedding, the longest sequence.
        fused: whether attention is one operator, which does not store the attention weights.
        dropout: rate of the dropout on embeddings and on the residual branches.
        dtype: of parameters and activations; the loss of float16 is computed in float32.

    Raises:
        GraphError: if a size is less than 1, the width is no multiple of the heads, or a sequence
            longer than the positions.

    >>> gpt2().parameter_count
    124439808

    Source: Radford et al., "Language models are unsupervised multitask learners", 2019.
    """
    title = f"gpt2:{layers}x{width}"
    heads = head_count(title, width, heads, layers=layers, length=length, batch=batch,
                       vocabulary=vocabulary, positions=positions)  # fmt: skip
    if length > positions:
        raise GraphError(f"{title}: length={length}; there are positions for {positions} tokens")

    def loss(params: Any, tokens: Any, labels: Any, seed: Any = 0) -> Any:
        dropped = make_dropout(dropout, seed, 2 * layers + 1)
        logits = gpt2_logits(params, tokens, heads=heads, fused=fused, dropped=dropped)
        return loss_of_logits(logits, labels)

    params = {
        "tokens": Spec((vocabulary, width), dtype),
        "positions": Spec((positions, width), dtype),
        "layers": [block_specs(width, 4 * width, dtype)] * layers,
        "norm": norm_specs(width, dtype),
    }
    data = Spec((batch, length), "int64")
    return Network(title, loss, with_seed((params, data, data), dropout))
