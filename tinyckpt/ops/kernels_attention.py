"""Kernels of causal softmax, of FlashAttention and its vjp, and of rotary position embedding.

The fused kernels loop over blocks (tiles): some entries of the batch axes, some queries, some keys.
Their workspace is the buffers of one block, whatever the extents. Heads
that share keys are rows of one product: in a block the queries are ``(..., kv_heads, group *
queries, d)``, where ``group`` counts the heads that share. ``last`` is the index of the last key
visible to a block's first query, relative to the block's first key; every further query sees one
more.

The rules for all kernels are in ``kernels``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import math
from itertools import product
from typing import Any

from tinyckpt.base.dtypes import wide


def causal_softmax(xp, x):
    *_, length, keys = x.shape
    out = xp.where(causal_mask(xp, length, keys, keys - length), -math.inf, x)
    out -= xp.max(out, axis=-1, keepdims=True)
    xp.exp(out, out=out)
    out /= xp.sum(out, axis=-1, keepdims=True, dtype=wide(x.dtype))
    return out


def causal_mask(xp, queries, keys, last):
    """Causal mask: whether a key comes after the last one visible to its query."""
    return xp.greater(xp.arange(keys), xp.arange(last, last + queries)[:, None])


# Blocks -------------------------------------------------------------------------------------------


def with_group_axis(array, heads):
    """The view (..., heads, group, a, b) of (..., heads * group, a, b)."""
    *before, all_heads, rows, columns = array.shape
    return array.reshape((*before, heads, all_heads // heads, rows, columns))


def block_spans(stop: int, size: int) -> list[tuple[int, int]]:
    """The (start, stop) of the blocks that tile an extent."""
    return [(start, min(start + size, stop)) for start in range(0, stop, size)]


def batch_blocks(key, block):
    """The blocks that tile the batch axes of the keys, up to their heads, as slices."""
    spans = [block_spans(extent, size) for extent, size in zip(key[:-2], block[:-2], strict=True)]
    return [tuple([slice(*span) for span in place]) for place in product(*spans)]


def block_extents(query, key, block):
    """(problems, rows, keys, d) of the largest block, from shapes.

    A problem is one head of the keys; its rows are the queries of all heads that share it.
    """
    *_, heads, length, d = query
    problems = math.prod(map(min, key[:-2], block[:-2]))
    return problems, heads // key[-3] * min(block[-2], length), min(block[-1], key[-2]), d


def forward_buffers(query, key, block, casts):
    """Sizes, in elements, of the forward kernel's buffers, from shapes.

    ``casts`` says whether blocks of keys and values are cast to the dtype of the sums.
    """
    problems, rows, keys, d = block_extents(query, key, block)
    return {
        "queries": problems * rows * d,
        "scores": problems * rows * keys,
        "mixed": problems * rows * d,
        "more": problems * rows * d if keys < key[-2] else 0,  # of a further key block
        "largest": problems * rows,
        "before": problems * rows,
        "total": problems * rows,
        "part": problems * rows,
        "key": problems * keys * d if casts else 0,
        "value": problems * keys * d if casts else 0,
    }


def backward_buffers(query, key, block, casts):
    """Sizes, in elements, of the backward kernel's buffers, as in ``forward_buffers``."""
    problems, rows, keys, d = block_extents(query, key, block)
    return {
        "queries": problems * rows * d,
        "g_queries": problems * rows * d,
        "g": problems * rows * d,
        "scores": problems * rows * keys,
        "slopes": problems * rows * keys,
        "more": problems * max(rows, keys) * d,
        "normaliser": problems * rows,
        "mean": problems * rows,
        "key": problems * keys * d if casts else 0,
        "value": problems * keys * d if casts else 0,
    }


def mask_bytes(query: Any, key: Any, block: Any, causal: bool) -> int:
    """Bytes of one block's mask: a boolean per score, and the positions that are compared."""
    queries, keys = min(block[-2], query[-2]), min(block[-1], key[-2])
    return int(queries * keys + 8 * (queries + keys)) if causal else 0


def buffer_view(buffer, shape):
    """The beginning of a buffer, as a view of a shape."""
    return buffer[: math.prod(shape)].reshape(shape)


def buffer_with(buffer, values, shape):
    """The beginning of a buffer, as a view of a shape, filled with values."""
    out = buffer_view(buffer, values.shape)
    out[...] = values
    return out.reshape(shape)


def block_operand(buffer, array, start, stop):
    """A block of keys or of values: a view, or cast in a buffer."""
    values = array[..., start:stop, :]
    return buffer_with(buffer, values, values.shape) if buffer.size else values


def block_scores(xp, queries, key, buffer, count, last):
    """The scores of a block, minus infinity where the key is masked."""
    *leading, rows, _ = queries.shape
    columns = key.shape[-2]
    scores = buffer_view(buffer, (*leading, rows, columns))
    xp.matmul(queries, key.mT, out=scores)
    if last < columns - 1:
        by_query = scores.reshape((*leading, rows // count, count, columns))
        xp.copyto(by_query, -math.inf, where=causal_mask(xp, count, columns, last))
    return scores


# The forward kernel -------------------------------------------------------------------------------


def fused_attention(xp, query, key, value, causal, scale, block):
    *_, length, _ = query.shape
    *_, heads, keys, _ = key.shape
    exact = wide(query.dtype)
    out = xp.empty(query.shape, query.dtype)
    logsumexp = xp.empty(query.shape[:-1], exact)
    sizes = forward_buffers(query.shape, key.shape, block, exact != query.dtype)
    buffers = {name: xp.empty(sizes[name], exact) for name in sizes}
    by_query = [with_group_axis(a, heads) for a in (query, out, logsumexp[..., None])]
    by_key = (key, value)
    for place in batch_blocks(key.shape, block):
        for row, stop in block_spans(length, block[-2]):
            last = row + keys - length if causal else keys
            queries = [a[(*place, ..., slice(row, stop), slice(None))] for a in by_query]
            online_softmax_block(
                xp, queries, [a[place] for a in by_key], buffers, last, scale, block[-1]
            )
    return out, logsumexp


def online_softmax_block(xp, by_query, by_key, buffers, last, scale, width):
    """Attend from a block of queries to all visible keys, by online softmax."""
    query, out, logsumexp = by_query
    *leading, group, count, d = query.shape
    packed, per_row = (*leading, group * count, d), (*leading, group * count, 1)
    queries = buffer_with(buffers["queries"], query, packed)
    queries *= scale
    mixed = buffer_view(buffers["mixed"], packed)
    largest, before, total, part = (
        buffer_view(buffers[name], per_row) for name in ("largest", "before", "total", "part")
    )
    for start, stop in block_spans(min(last + count, by_key[0].shape[-2]), width):
        key = block_operand(buffers["key"], by_key[0], start, stop)
        value = block_operand(buffers["value"], by_key[1], start, stop)
        scores = block_scores(xp, queries, key, buffers["scores"], count, last - start)
        if start == 0:  # every query sees the first key: from here on the maximum is finite
            xp.max(scores, axis=-1, keepdims=True, out=largest)
            exponentiate_and_sum(xp, scores, largest, total)
            xp.matmul(scores, value, out=mixed)
            continue
        before[...] = largest
        xp.max(scores, axis=-1, keepdims=True, out=part)
        xp.maximum(largest, part, out=largest)
        exponentiate_and_sum(xp, scores, largest, part)
        # Rescale the sums so far to the new maximum.
        before -= largest
        xp.exp(before, out=before)
        total *= before
        total += part
        mixed *= before
        mixed += xp.matmul(scores, value, out=buffer_view(buffers["more"], packed))
    mixed /= total
    out[...] = mixed.reshape(query.shape)
    xp.log(total, out=total)
    total += largest
    logsumexp[...] = total.reshape(logsumexp.shape)


def exponentiate_and_sum(xp, scores, largest, total):
    """Turn scores into exponentials, relative to the running maximum, and sum them."""
    scores -= largest
    xp.exp(scores, out=scores)
    xp.sum(scores, axis=-1, keepdims=True, out=total)


# The backward kernel ------------------------------------------------------------------------------


def fused_attention_vjp(xp, query, key, value, out, logsumexp, g, causal, scale, block):
    *_, length, _ = query.shape
    *_, heads, keys, _ = key.shape
    exact = wide(query.dtype)
    g_query = xp.empty(query.shape, query.dtype)
    g_key, g_value = xp.zeros(key.shape, key.dtype), xp.zeros(value.shape, value.dtype)
    sizes = backward_buffers(query.shape, key.shape, block, exact != query.dtype)
    buffers = {name: xp.empty(sizes[name], exact) for name in sizes}
    by_query = [with_group_axis(a, heads) for a in (query, out, logsumexp[..., None], g, g_query)]
    by_key = (key, value, g_key, g_value)
    for place in batch_blocks(key.shape, block):
        for row, stop in block_spans(length, block[-2]):
            last = row + keys - length if causal else keys
            queries = [a[(*place, ..., slice(row, stop), slice(None))] for a in by_query]
            attend_vjp(xp, queries, [a[place] for a in by_key], buffers, last, scale, block[-1])
    return g_query, g_key, g_value


def attend_vjp(xp, by_query, by_key, buffers, last, scale, width):
    """Compute the cotangents of a block of queries; accumulate those of keys and values."""
    query, out, logsumexp, g, g_query = by_query
    *leading, group, count, d = query.shape
    packed, per_row = (*leading, group * count, d), (*leading, group * count, 1)
    queries = buffer_with(buffers["queries"], query, packed)
    queries *= scale
    g = buffer_with(buffers["g"], g, packed)
    normaliser = buffer_with(buffers["normaliser"], logsumexp, per_row)
    # The mean of the weights' cotangents, weighted by the weights, is the row sum of out times g.
    mean = buffer_view(buffers["mean"], per_row)
    g_queries = buffer_with(buffers["g_queries"], out, packed)
    g_queries *= g
    xp.sum(g_queries, axis=-1, keepdims=True, out=mean)
    g_queries[...] = 0
    for start, stop in block_spans(min(last + count, by_key[0].shape[-2]), width):
        key = block_operand(buffers["key"], by_key[0], start, stop)
        value = block_operand(buffers["value"], by_key[1], start, stop)
        g_key, g_value = (a[..., start:stop, :] for a in by_key[2:])
        scores = block_scores(xp, queries, key, buffers["scores"], count, last - start)
        scores -= normaliser
        xp.exp(scores, out=scores)
        for_keys = buffer_view(buffers["more"], key.shape)
        g_value += xp.matmul(scores.mT, g, out=for_keys)
        slopes = buffer_view(buffers["slopes"], scores.shape)
        xp.matmul(g, value.mT, out=slopes)
        slopes -= mean
        slopes *= scores
        g_key += xp.matmul(slopes.mT, queries, out=for_keys)
        g_queries += xp.matmul(slopes, key, out=buffer_view(buffers["more"], packed))
    g_queries *= scale
    g_query[...] = g_queries.reshape(query.shape)


# Rotary position embedding ------------------------------------------------------------------------


def rotary(xp, x, *positions, base, interleaved, sign):
    # Angles are computed in float64: at position 100,000 float32 has three digits left of a turn.
    exact = wide(x.dtype)
    half = x.shape[-1] // 2
    rows = positions[0] if positions else xp.arange(x.shape[-2])
    angles = xp.multiply(rows[..., None], base ** (xp.arange(half) / -half))
    del rows
    cosine, sine = xp.empty(angles.shape, exact), xp.empty(angles.shape, exact)
    xp.cos(angles, out=cosine)
    xp.sin(angles, out=sine)
    del angles
    sine *= sign
    if interleaved:
        first, second = slice(0, None, 2), slice(1, None, 2)
    else:
        first, second = slice(0, half), slice(half, None)
    out = xp.empty(x.shape, exact)
    xp.multiply(x[..., first], cosine, out=out[..., first])
    spare = xp.multiply(x[..., second], sine, dtype=exact)
    out[..., first] -= spare
    xp.multiply(x[..., second], cosine, out=out[..., second])
    xp.multiply(x[..., first], sine, out=spare)
    out[..., second] += spare
    del spare
    return out.astype(x.dtype, copy=False)
