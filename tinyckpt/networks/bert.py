"""BERT and RoBERTa: bidirectional transformer encoders; Devlin et al. 2018, Liu et al. 2019.

Post-norm blocks, learned positions, token types and a pooler. Two losses: cross-entropy over every
token, by the tied embedding, or classification of the sequence. Not modelled: the masked-LM head's
extra layer, and padding. Sources: arXiv 1810.04805 and 1907.11692.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.quantities import as_integer
from tinyckpt.base.spec import Spec
from tinyckpt.core.tracing import scope
from tinyckpt.networks.layers import affine, loss_of_logits, norm_specs
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
from tinyckpt.ops.activation import tanh
from tinyckpt.ops.embedding import embedding
from tinyckpt.ops.shape import concatenate, expand_dims, reshape, transpose

EPSILON = 1e-12  # added to a variance; below the smallest float16, where it rounds to 0


def bert_encoded(
    params: Any, tokens: Any, types: Any, *,
    heads: int, offset: int = 0, fused: bool = False, dropped: Dropped = lambda x: x,
) -> tuple[Any, Any]:  # fmt: skip
    """Apply BERT's encoder and pooler.

    Args:
        params: as in ``bert(...).specs[0]``.
        tokens: integers of shape ``(batch, length)``.
        types: token types (segment ids), of the same shape.
        heads: attention heads.
        offset: the first token's position.
        fused: whether attention is one operator.
        dropped: dropout, in training.

    Returns:
        The last layer's hidden states, shape ``(batch, length, width)``, and the pooled vector,
        tanh of an affine layer of the first token's, shape ``(batch, width)``.

    >>> import tinyckpt as tc
    >>> network = bert(1, 8, heads=2, length=4, batch=3, vocabulary=10)
    >>> params, tokens, types, labels = network.arrays()
    >>> encode = tc.jit(lambda p, tokens, types: bert_encoded(p, tokens, types, heads=2))
    >>> [array.shape for array in encode(params, tokens, types)]
    [(3, 4, 8), (3, 8)]
    """
    batch, length = tokens.shape
    width = params["tokens"].shape[1]
    with scope("embedding"):
        h = embedding(params["tokens"], tokens) + embedding(params["types"], types)
        h = h + params["positions"][offset : offset + length]
        h = dropped(apply_layer_norm(reshape(h, (batch * length, width)), params["norm"], EPSILON))
    h = blocks(
        h, params["layers"], norm_first=False, dropped=dropped,
        norm=partial(apply_layer_norm, epsilon=EPSILON),
        attention=partial(self_attention, batch=batch, heads=heads, causal=False, fused=fused),
        mlp=partial(mlp_sublayer, approximate=False),
    )  # fmt: skip
    with scope("pooler"):
        h = reshape(h, (batch, length, width))
        return h, tanh(affine(h[:, 0], params["pooler"]))


def bert(
    layers: int = 12, width: int = 768, heads: int | None = None, length: int = 512,
    batch: int = 1, vocabulary: int = 30522, *,
    positions: int = 512, offset: int = 0, types: int = 2, classes: int | None = None,
    fused: bool = False, dropout: float = 0.0, dtype: str = "float32", title: str = "bert",
) -> Network:  # fmt: skip
    """Build BERT; the defaults are BERT-base, encoder and pooler: 109,482,240 parameters.

    Its arguments are ``(params, tokens, types, labels)``, integers of shape ``(batch, length)``;
    with dropout also a seed, to be changed in each step. Labels are the tokens before masking: the
    loss is the mean cross-entropy over all positions, with logits by the tied embedding (the paper
    has one more layer, and averages over the masked positions alone); the first position's hidden
    state is the pooled vector, so that the pooler is trained too. With ``classes``, labels are of
    shape ``(batch,)`` and an affine layer classifies the pooled vector: its parameters are extra.

    Args:
        layers: blocks, each of attention and a multilayer perceptron.
        width: of the residual stream; a multiple of ``heads``.
        heads: attention heads; one for every 64 of the width if not given.
        length: tokens per sequence; at most ``positions`` minus ``offset``.
        batch: sequences.
        vocabulary: number of tokens.
        positions: rows of the position embedding.
        offset: the first token's position.
        types: number of token types (segments).
        classes: number of classes of sequences; if not given, tokens are predicted.
        fused: whether attention is one operator, which does not store the attention weights.
        dropout: rate of the dropout on embeddings and on the residual branches.
        dtype: of parameters and activations; the loss of float16 is computed in float32.
        title: the network's name in pictures.

    Raises:
        GraphError: if a size is less than 1, the offset no integer, the width no multiple of the
            heads, or a sequence longer than the positions.

    >>> bert().parameter_count
    109482240

    Source: Devlin, Chang, Lee and Toutanova, "BERT: pre-training of deep bidirectional transformers
    for language understanding", arXiv 1810.04805.
    """
    title = f"{title}:{layers}x{width}"
    heads = head_count(title, width, heads, layers=layers, length=length, batch=batch, types=types,
                       vocabulary=vocabulary, positions=positions,
                       classes=1 if classes is None else classes)  # fmt: skip
    if as_integer(offset) is None:
        raise GraphError(f"{title}: offset={offset!r:.80}; it must be an integer")
    if not 0 <= offset <= positions - length:
        raise GraphError(
            f"{title}: length={length}; there are positions for {positions - offset} tokens"
        )

    def loss(params: Any, tokens: Any, types: Any, labels: Any, seed: Any = 0) -> Any:
        dropped = make_dropout(dropout, seed, 2 * layers + 1)
        h, pooled = bert_encoded(
            params, tokens, types, heads=heads, offset=offset, fused=fused, dropped=dropped
        )
        with scope("output"):
            if classes is not None:
                return loss_of_logits(affine(pooled, params["classifier"]), labels)
            vectors = concatenate([expand_dims(pooled, 1), h[:, 1:]], axis=1)
            return loss_of_logits(vectors @ transpose(params["tokens"]), labels)

    params = {
        "tokens": Spec((vocabulary, width), dtype),
        "positions": Spec((positions, width), dtype),
        "types": Spec((types, width), dtype),
        "norm": norm_specs(width, dtype),
        "layers": [block_specs(width, 4 * width, dtype)] * layers,
        "pooler": affine_specs(width, width, dtype),
    }
    if classes is not None:
        params["classifier"] = affine_specs(width, classes, dtype)
    data = Spec((batch, length), "int64")
    labels = data if classes is None else Spec(batch, "int64")
    return Network(title, loss, with_seed((params, data, data, labels), dropout))


def roberta(length: int = 512, batch: int = 1, **options: Any) -> Network:
    """Build RoBERTa-base, encoder and pooler: 124,645,632 parameters.

    BERT with a larger vocabulary, one token type, and positions that begin at 2: the two rows
    before are for padding. Other options are those of ``bert``.

    >>> roberta().parameter_count
    124645632

    Source: Liu et al., "RoBERTa: a robustly optimized BERT pretraining approach", arXiv 1907.11692;
    sizes of the published weights.
    """
    published = {"vocabulary": 50265, "positions": 514, "offset": 2, "types": 1, "title": "roberta"}
    return bert(length=length, batch=batch, **{**published, **options})
