"""Scaled dot-product attention: a composition of primitives, or one fused FlashAttention operator.

The composition saves the attention weights for the backward pass, an array of ``heads * length *
keys``. The fused operator saves its inputs, its output and the logsumexp of each row of scores, and
recomputes the weights block by block in its own backward pass.

Source: Vaswani et al., "Attention is all you need", arXiv 1706.03762. Dao et al.,
"FlashAttention", arXiv 2205.14135, and Dao, "FlashAttention-2", arXiv 2307.08691, whose saved set
and tiling the fused kernels have: online softmax, causal blocks that are skipped. Heads that share
keys (grouped-query attention): Ainslie et al., "GQA", arXiv 2305.13245. Not here: dropout of the
weights, masks other than the causal one, values of another width than the keys.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.tracing import Var, active_builder, apply_all, as_var
from tinyckpt.ops.causal_softmax import attention_weights
from tinyckpt.ops.eager import eager
from tinyckpt.ops.elementwise import multiply
from tinyckpt.ops.fused_attention import (
    FUSED_ATTENTION,
    Block,
    broadcast_group_axis,
    check_attention,
)
from tinyckpt.ops.linalg import product
from tinyckpt.ops.shape import reshape

# Queries and keys per block: enough for full speed in matrix products, and few enough queries that
# little of a causal block is computed in vain. Heads, then entries of the batch axes, are added as
# long as the scores, over which the kernels pass several times, take half of a second-level cache
# of 2 MiB; their cotangents take the other half. Heads that share one key head stay together,
# however many they are.
QUERIES, KEYS, SCORE_BYTES = 128, 512, 2**20


def choose_block(query: Spec, key: Spec) -> Block:
    """Choose the block (tile) of the fused kernels: batch entries of the key, queries, keys."""
    queries, keys = min(QUERIES, query.shape[-2]), min(KEYS, key.shape[-2])
    group = query.shape[-3] // key.shape[-3]
    capacity = SCORE_BYTES // (group * queries * keys * max(query.dtype.itemsize, 4))
    counts: list[int] = []
    for extent in reversed(key.shape[:-2]):
        counts.append(min(extent, max(capacity, 1)))
        capacity //= extent
    return (*reversed(counts), queries, keys)


def finite_scale(scale: Any) -> float:
    """Return a scale as a float; GraphError unless it is finite."""
    try:
        number = isinstance(scale, int | float | np.integer | np.floating)
        value = float(scale) if number and not isinstance(scale, bool) else math.nan
    except OverflowError:  # an integer beyond the range of floats
        value = math.inf
    if not math.isfinite(value):
        raise GraphError(f"attention: scale {scale!r:.40} must be a finite number")
    return value


@eager
def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    fused: bool = False,
) -> Var:
    """Scaled dot-product attention, ``softmax(scale * query key^T) value``, for every head.

    The two forms compute the same and save different values. By default, this is a scope
    ``attention`` of primitives, whose softmax has the label ``attention_scores``: the backward pass
    reads the scaled query, key, value and the weights, ``heads * length * keys`` numbers. With
    ``fused`` it is one operator: the backward pass reads query, key, value, the output and one
    number per row, and recomputes the weights. The scope saves no mask: the causal softmax
    recreates it, one boolean per query and key, whatever the batch and the heads.

    Args:
        query: floats of shape ``(..., heads, length, d)``.
        key, value: of shape ``(..., kv_heads, keys, d)``, where ``kv_heads`` divides ``heads``:
            as many neighbouring heads of the query share one of the keys.
        causal: whether query i sees only the keys 0 to ``i + keys - length``. The last query sees
            them all, as when keys of earlier tokens precede the queries' own.
        scale: a number; ``d ** -0.5`` by default.
        fused: whether it is one operator, with no array of all scores.

    Returns:
        Of the query's shape. Sums, and the fused operator's scores, are in float32 at least.

    Raises:
        GraphError: if the shapes or dtypes do not fit, an extent is 0, or a causal query would see
            no key.

    >>> import numpy as np, tinyckpt as tc
    >>> q, k, v = np.random.default_rng(0).normal(size=(3, 2, 4, 8))
    >>> forms = [tc.jit(lambda *a, fused=fused: tc.attention(*a, fused=fused)) for fused in (0, 1)]
    >>> bool(np.allclose(forms[0](q, k, v), forms[1](q, k, v)))
    True
    """
    query, key, value = as_var(query), as_var(key), as_var(value)
    try:
        check_attention(query.spec, key.spec, value.spec, causal)
    except GraphError as error:
        raise GraphError(f"attention: {error}") from None
    factor = finite_scale(query.shape[-1] ** -0.5 if scale is None else scale)
    if fused:
        block = choose_block(query.spec, key.spec)
        return apply_all(
            FUSED_ATTENTION, query, key, value, causal=bool(causal), scale=factor,
            block=block,
        )[0]  # fmt: skip
    with active_builder("attention").scoped("attention"):
        return composed_attention(query, key, value, bool(causal), factor)


def composed_attention(query: Var, key: Var, value: Var, causal: bool, scale: float) -> Var:
    """Compose attention from primitives.

    Shared keys are broadcast over an axis of their own, not copied.
    """
    shape, kv_heads = query.shape, key.shape[-3]
    query = multiply(query, scale)
    if kv_heads < shape[-3]:
        query = reshape(query, (*key.shape[:-2], shape[-3] // kv_heads, *shape[-2:]))
        key, value = broadcast_group_axis(key), broadcast_group_axis(value)
    p = attention_weights(product(query, key, False, True), causal)
    p = active_builder("attention").relabel(p, "attention_scores")
    return reshape(product(p, value, False, False), shape)
