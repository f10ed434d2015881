"""Example calls of attention for tests of every primitive, small and large."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import tinyckpt as tc

R = np.random.default_rng(13)


def operands(heads: int, shared: int, length: int, keys: int, d: int, *before: int) -> Any:
    """Return a query, and a key and a value with ``shared`` times fewer heads."""
    generator = np.random.default_rng([heads, shared, length, keys, d, *before])
    query = generator.normal(size=(*before, heads, length, d))
    key, value = generator.normal(size=(2, *before, heads // shared, keys, d))
    return query, key, value


def in_blocks(
    query: Any, key: Any, value: Any, causal: bool, block: tuple[int, ...]
) -> tuple[Any, ...]:
    """Return the outputs of the fused operator with blocks of one's own choice."""
    scale = float(query.shape[-1] ** -0.5)
    attrs = {"causal": causal, "scale": scale, "block": block}
    return tc.apply_all(tc.PRIMITIVES["fused_attention"], query, key, value, **attrs)


def first(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the first of another's results."""
    return lambda *args: function(*args)[0]


def training_graph(form: Any, arrays: Any) -> tc.TrainingGraph:
    """Return the graph of a sum over attention, and of the gradients of all three operands."""
    built = tc.build(lambda *operands: tc.sum(form(*operands) ** 2), *arrays)
    return tc.differentiate(built, (0, 1, 2))


fused = partial(tc.attention, fused=True)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "causal_softmax": (tc.causal_softmax, (R.normal(size=(2, 3, 4)),)),
    "attention": (tc.attention, operands(2, 1, 3, 4, 2)),
    "attention, causal": (partial(tc.attention, causal=True), operands(2, 1, 3, 3, 2, 2)),
    "attention, shared keys": (partial(tc.attention, scale=0.7), operands(4, 2, 2, 3, 2, 2)),
    "fused attention": (fused, operands(2, 1, 3, 4, 2, 2)),
    "fused attention, causal": (partial(fused, causal=True), operands(2, 1, 3, 3, 2)),
    "fused attention, shared keys": (partial(fused, scale=0.7), operands(4, 2, 2, 3, 2, 2)),
    "fused attention, in blocks": (
        first(partial(in_blocks, causal=False, block=(2, 1, 2, 3))), operands(4, 2, 5, 7, 2, 3),
    ),
    "fused attention, in causal blocks": (
        first(partial(in_blocks, causal=True, block=(2, 2, 2, 1))), operands(4, 2, 5, 6, 2, 3),
    ),
    "fused attention of one array": (
        lambda x: fused(x, x, x, causal=True), operands(2, 1, 3, 3, 2)[:1],
    ),
    "fused attention, one gradient": (
        lambda x: fused(x, *CONSTANTS), (R.normal(size=(2, 3, 2)),),
    ),
}  # fmt: skip
CONSTANTS = operands(2, 1, 3, 4, 2)[1:]

LARGE = operands(8, 2, 700, 1100, 32, 2)
LARGE_CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "attention": (
        lambda q, k, v: [
            tc.attention(q, k, v), tc.attention(q, k, v, causal=True), fused(q, k, v),
            fused(q, k, v, causal=True),
        ],
        LARGE,
    ),
    "attention in float32": (
        lambda q, k, v: [tc.attention(q, k, v, causal=True), fused(q, k, v, causal=True)],
        tuple(operand.astype("float32") for operand in LARGE),
    ),
}  # fmt: skip
