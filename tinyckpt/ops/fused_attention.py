"""FlashAttention as one operator: tiled online softmax, without materialising the score matrix.

It saves its inputs, its output and the logsumexp of each row; its adjoint recomputes the weights
block by block. Second derivatives are composed of primitives, with all scores in memory. With
float16, blocks are computed in float32; each block's contribution to the cotangents of keys and
values is rounded to float16.

Source: Dao et al., "FlashAttention", arXiv 2205.14135 (the saved set, and the backward pass of
section 3.1 and appendix B); Dao, "FlashAttention-2", arXiv 2307.08691 (the outer loop over queries,
one division at the end, causal blocks that are skipped).
"""

from __future__ import annotations

import builtins
import math
from typing import Any

from tinyckpt.base.dtypes import wide
from tinyckpt.base.errors import GraphError
from tinyckpt.base.spec import Spec
from tinyckpt.core.primitive import Primitive, zero
from tinyckpt.core.tracing import Var, apply
from tinyckpt.ops import kernels_attention
from tinyckpt.ops import shape_inference as infer
from tinyckpt.ops.causal_softmax import attention_weights
from tinyckpt.ops.elementwise import multiply
from tinyckpt.ops.linalg import product
from tinyckpt.ops.nn import SOFTMAX_VJP
from tinyckpt.ops.reduce import sum
from tinyckpt.ops.shape import full, index, reshape
from tinyckpt.ops.shared_adjoints import apply_shared

# Extents of a block: along the keys' axes up to their heads, then queries, then keys.
Block = tuple[int, ...]

# Shapes, bytes, FLOPs -----------------------------------------------------------------------------


def check_attention(query: Spec, key: Spec, value: Spec, causal: bool) -> None:
    """Raise a GraphError unless the shapes and dtypes of query, key and value are compatible."""
    infer.require_float(query, key, value)
    infer.require_same_dtype(query, key, value)
    shown = f"query {query}, key {key}, value {value}"
    if len(query.shape) < 3 or len(key.shape) != len(query.shape) or key.shape != value.shape:
        raise GraphError(
            f"{shown}: expected (..., heads, length, d) for the query, (..., kv_heads, keys, d) "
            "for key and value"
        )
    if 0 in query.shape or 0 in key.shape:
        raise GraphError(f"{shown}: no extent may be 0")
    if query.shape[:-3] != key.shape[:-3] or query.shape[-1] != key.shape[-1]:
        raise GraphError(
            f"{shown}: the batch axes must agree, and so must the last axis, d: it is "
            f"{query.shape[-1]} for the query and {key.shape[-1]} for the key"
        )
    if query.shape[-3] % key.shape[-3]:
        raise GraphError(
            f"{shown}: {query.shape[-3]} heads of the query must be a multiple of "
            f"{key.shape[-3]} of the key"
        )
    if causal and query.shape[-2] > key.shape[-2]:
        raise GraphError(
            f"{shown}: causal, with {query.shape[-2]} queries and {key.shape[-2]} keys, would let "
            "the first queries see no key; give as many keys as queries, or more"
        )


def infer_fused(
    query: Spec, key: Spec, value: Spec, causal: bool, scale: float, block: Block
) -> tuple[Spec, ...]:
    check_attention(query, key, value, causal)
    if len(block) != len(key.shape) or min(block) < 1:
        raise GraphError(f"block {block}: give (..., kv_heads, queries, keys), each 1 or more")
    statistics = wide(query.dtype)
    return (query, Spec(query.shape[:-1], statistics))


def infer_fused_vjp(
    query: Spec, key: Spec, value: Spec, out: Spec, logsumexp: Spec, g: Spec, **attrs: Any
) -> tuple[Spec, ...]:
    return (query, key, value)


def fused_workspace(buffers: Any) -> Any:
    """Return the workspace rule of a fused kernel: the buffers of one block, and its mask."""

    def workspace(inputs: Any, outputs: Any, causal: bool, scale: float, block: Block) -> int:
        query, key = inputs[:2]
        exact = wide(query.dtype)
        sizes = buffers(query.shape, key.shape, block, exact != query.dtype)
        mask = kernels_attention.mask_bytes(query.shape, key.shape, block, causal)
        return int(builtins.sum(sizes.values()) * exact.itemsize) + mask

    return workspace


def scores_computed(query: Spec, key: Spec, causal: bool, block: Block) -> int:
    """Count the scores that the kernels compute: fully masked causal blocks are skipped."""
    *heads, length, _ = query.shape
    keys = key.shape[-2]
    if not causal:
        return math.prod(heads) * length * keys
    total = 0
    for row, stop in kernels_attention.block_spans(length, block[-2]):
        total += (stop - row) * (stop + keys - length)
    return math.prod(heads) * total


def fused_flops(products: int) -> Any:
    """Return the FLOPs rule of a fused kernel with this number of matrix products per score.

    2 d per product and score (a multiplication and an addition), and 4 for the elementwise work on
    a score: the maximum, the difference, exp, the sum; or the difference, exp, and then the
    difference and the product of its cotangent. A causal score is counted if it is computed: fewer
    than all scores, more than the visible ones. Work per row, such as the scale, is not counted: it
    is of the order of 1 / keys.
    """

    def flops(inputs: Any, outputs: Any, causal: bool, scale: float, block: Block) -> int:
        query, key = inputs[:2]
        each = 2 * products * query.shape[-1] + 4
        return scores_computed(query, key, causal, block) * int(each)

    return flops


# The vjp rules ------------------------------------------------------------------------------------


def vjp_fused(position: int) -> Any:
    """Return the vjp rule of the query, the key or the value: one output of a shared operator."""

    def rule(ct: Any, ins: Any, outs: Any, **attrs: Any) -> Var:
        if ct[1] is not None:
            raise GraphError(
                "fused_attention: its second output, logsumexp, has no derivative of its own; take "
                "tc.logsumexp of the scores"
            )
        return apply_shared(FUSED_ATTENTION_VJP, *ins, *outs, ct[0], **attrs)[position]

    return rule


def vjp_fused_vjp(position: int) -> Any:
    """Return the rule of one input of ``fused_attention_vjp``, composed of primitives.

    It has all scores in memory. The output and logsumexp among its inputs are functions of query,
    key and value. Their rules give zero, since the rules of query, key and value already include
    the paths through them.
    """
    if position in (3, 4):
        return zero

    def rule(ct: Any, ins: Any, outs: Any, causal: bool, scale: float, block: Block) -> Var:
        # Cotangents of query, key, value and g; g is input 5, after out and logsumexp (3, 4).
        return second_derivatives(ct, ins, causal, scale)[min(position, 3)]

    return rule


def second_derivatives(ct: Any, ins: Any, causal: bool, scale: float) -> tuple[Var, ...]:
    """Return the cotangents of query, key, value and g, given those of the three gradients.

    With weights p = softmax(s), s = scale q k^T, the differentiated gradients are g_v = p^T g,
    g_q = scale t k and g_k = scale t^T q, where t = p (g_p - mean) is softmax's vjp of
    g_p = g v^T. Below, ``to_x`` is the cotangent of x.
    """
    query, key, value, g = ins[0], ins[1], ins[2], ins[5]
    group = (*key.shape[:-2], query.shape[-3] // key.shape[-3], *query.shape[-2:])
    q, g = reshape(query, group), reshape(g, group)
    k, v = broadcast_group_axis(key), broadcast_group_axis(value)
    to_gq, to_gk, to_gv = (
        full(like.shape, 0.0, like.dtype) if cotangent is None else cotangent
        for cotangent, like in zip(ct, ins, strict=False)
    )
    to_gq, to_gk, to_gv = (
        reshape(to_gq, group),
        broadcast_group_axis(to_gk),
        broadcast_group_axis(to_gv),
    )
    axis = q.ndim - 1
    p = attention_weights(multiply(product(q, k, False, True), scale), causal)
    g_p = product(g, v, False, True)
    t = apply(SOFTMAX_VJP, p, g_p, axis=axis)
    to_t = multiply(product(to_gq, k, False, True) + product(q, to_gk, False, True), scale)
    to_g_p = apply(SOFTMAX_VJP, p, to_t, axis=axis)  # softmax_vjp is its own transpose
    inner = sum(p * g_p, axis, keepdims=True)
    to_p = product(g, to_gv, False, True) + to_t * (g_p - inner)
    to_p = to_p - g_p * sum(p * to_t, axis, keepdims=True)
    to_s = apply(SOFTMAX_VJP, p, to_p, axis=axis)
    to_q = multiply(product(to_s, k, False, False) + product(t, to_gk, False, False), scale)
    to_k = multiply(product(to_s, q, True, False) + product(t, to_gq, True, False), scale)
    to_v = product(to_g_p, g, True, False)
    to_g = product(p, to_gv, False, False) + product(to_g_p, v, False, False)
    shared = axis - 2
    return (
        reshape(to_q, query.shape),
        sum(to_k, shared),
        sum(to_v, shared),
        reshape(to_g, query.shape),
    )


def broadcast_group_axis(x: Var) -> Var:
    """Return the view of keys or values with an axis for the heads that share them."""
    return index(x, (Ellipsis, None, slice(None), slice(None)))


# The primitives -----------------------------------------------------------------------------------

FUSED_ATTENTION_VJP = Primitive(
    # (query, key, value, out, logsumexp, g) -> the cotangents of query, key and value
    "fused_attention_vjp", kernels_attention.fused_attention_vjp, infer_fused_vjp,
    vjp=vjp_fused_vjp,
    flops=fused_flops(products=5),
    workspace=fused_workspace(kernels_attention.backward_buffers),
    contiguous=True,
)  # fmt: skip
FUSED_ATTENTION = Primitive(
    # (query, key, value) -> (out, logsumexp of each row of the scores)
    "fused_attention", kernels_attention.fused_attention, infer_fused,
    vjp=(vjp_fused(0), vjp_fused(1), vjp_fused(2)),
    flops=fused_flops(products=2),
    workspace=fused_workspace(kernels_attention.forward_buffers),
    contiguous=True,
)  # fmt: skip
