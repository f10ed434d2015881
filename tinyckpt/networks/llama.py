"""LLaMA: decoder-only transformer, rotary positions, RMS norm, SwiGLU; Touvron et al. 2023.

No biases; grouped-query attention by ``kv_heads``. Source: arXiv 2302.13971.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.tracing import name, scope
from tinyckpt.networks.layers import loss_of_logits
from tinyckpt.networks.network import Network, check_sizes
from tinyckpt.networks.transformer_blocks import blocks, head_count
from tinyckpt.ops.activation import silu
from tinyckpt.ops.attention import attention
from tinyckpt.ops.embedding import embedding
from tinyckpt.ops.normalization import rms_norm
from tinyckpt.ops.rotary import rotary
from tinyckpt.ops.shape import reshape, transpose

EPSILON = 1e-6  # added to a mean square


def llama_logits(
    params: Any, tokens: Any, *, heads: int, kv_heads: int | None = None, fused: bool = False
) -> Any:
    """Return the next-token logits, of shape ``(batch, length, vocabulary)``.

    Args:
        params: as in ``llama(...).specs[0]``.
        tokens: integers of shape ``(batch, length)``.
        heads: attention heads.
        kv_heads: heads of keys and values; ``heads`` if not given.
        fused: whether attention is one operator.

    >>> import tinyckpt as tc
    >>> network = llama(1, 8, heads=2, length=4, vocabulary=10, hidden=16)
    >>> params, tokens, labels = network.arrays()
    >>> tc.jit(lambda p, tokens: llama_logits(p, tokens, heads=2))(params, tokens).shape
    (1, 4, 10)
    """
    batch, length = tokens.shape
    width = params["tokens"].shape[1]
    with scope("embedding"):
        h = reshape(embedding(params["tokens"], tokens), (batch * length, width))
    attention = partial(
        rotary_attention, batch=batch, heads=heads, kv_heads=kv_heads or heads, fused=fused
    )
    h = blocks(h, params["layers"], norm=apply_rms_norm, attention=attention, mlp=gated_mlp)
    with scope("output"):
        logits = apply_rms_norm(h, params["norm"]) @ params["output"]["w"]
        return reshape(logits, (batch, length, logits.shape[1]))


def apply_rms_norm(x: Any, layer: Any) -> Any:
    """Apply RMS norm: every row with mean square 1, scaled."""
    return rms_norm(x, layer["scale"], epsilon=EPSILON)


def rotary_attention(x: Any, layer: Any, batch: int, heads: int, kv_heads: int, fused: bool) -> Any:
    """Apply causal self-attention with rotary position embeddings of queries and keys."""
    rows, width = x.shape

    def by_head(w: Any, count: int) -> Any:
        split = reshape(x @ w, (batch, rows // batch, count, width // heads))
        return transpose(split, (0, 2, 1, 3))

    query = rotary(by_head(layer["query"]["w"], heads))
    key = rotary(by_head(layer["key"]["w"], kv_heads))
    value = by_head(layer["value"]["w"], kv_heads)
    mixed = attention(query, key, value, causal=True, fused=fused)
    return reshape(transpose(mixed, (0, 2, 1, 3)), x.shape) @ layer["out"]["w"]


def gated_mlp(x: Any, layer: Any) -> Any:
    """Apply the gated MLP, SwiGLU: ``(silu(x gate) * (x hidden)) out``.

    Source: Shazeer, "GLU variants improve transformer", arXiv 2002.05202, equation 6.
    """
    gate = silu(name(x @ layer["gate"]["w"], "mlp_gate"))
    return (gate * name(x @ layer["hidden"]["w"], "mlp_hidden")) @ layer["out"]["w"]


def llama(
    layers: int = 32, width: int = 4096, heads: int | None = None, length: int = 2048,
    batch: int = 1, vocabulary: int = 32000, *,
    kv_heads: int | None = None, hidden: int = 11008, fused: bool = False, dtype: str = "float32",
) -> Network:  # fmt: skip
    """Build LLaMA; the defaults are LLaMA-7B, with 6,738,415,616 parameters.

    Its arguments are ``(params, tokens, labels)``, integers of shape ``(batch, length)``, each
    label the next token. The loss is the mean over all tokens. Values are labelled as in
    ``transformer_blocks``, and ``mlp_gate`` too.

    Args:
        layers: blocks, each of attention and a gated MLP.
        width: of the residual stream; a multiple of ``heads``.
        heads: attention heads; one for every 128 of the width if not given.
        length: tokens per sequence.
        batch: sequences.
        vocabulary: number of tokens.
        kv_heads: heads of keys and values, each shared by several query heads (grouped-query
            attention); a divisor of ``heads``, which it is if not given.
        hidden: hidden width of the MLP.
        fused: whether attention is one operator, which does not store the attention weights.
        dtype: of parameters and activations; the loss of float16 is computed in float32.

    Raises:
        GraphError: if a size is less than 1, or the heads do not divide.

    >>> llama().parameter_count
    6738415616

    Source: Touvron et al., "LLaMA: open and efficient foundation language models", arXiv
    2302.13971, table 2.
    """
    title = f"llama:{layers}x{width}"
    heads = head_count(title, width, heads, per_head=128, layers=layers, length=length, batch=batch,
                       vocabulary=vocabulary, hidden=hidden)  # fmt: skip
    kv_heads = heads if kv_heads is None else kv_heads
    check_sizes(title, kv_heads=kv_heads)
    if heads % kv_heads:
        raise GraphError(f"{title}: heads={heads} must be a multiple of kv_heads={kv_heads}")

    def loss(params: Any, tokens: Any, labels: Any) -> Any:
        logits = llama_logits(params, tokens, heads=heads, kv_heads=kv_heads, fused=fused)
        return loss_of_logits(logits, labels)

    def weight(inputs: int, outputs: int) -> dict[str, Spec]:
        return {"w": Spec((inputs, outputs), dtype)}

    norm = {"scale": Spec(width, dtype)}
    narrow = kv_heads * (width // heads)
    layer = {
        "attention_norm": norm,
        "attention": {
            "query": weight(width, width),
            "key": weight(width, narrow),
            "value": weight(width, narrow),
            "out": weight(width, width),
        },
        "mlp_norm": norm,
        "mlp": {
            "gate": weight(width, hidden),
            "hidden": weight(width, hidden),
            "out": weight(hidden, width),
        },
    }
    params = {
        "tokens": Spec((vocabulary, width), dtype),
        "layers": [layer] * layers,
        "norm": norm,
        "output": weight(width, vocabulary),
    }
    data = Spec((batch, length), "int64")
    return Network(title, loss, (params, data, data))
