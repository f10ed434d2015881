"""Fused attention's workspace is bounded, and its declared workspace and FLOPs are exact."""

import math
import tracemalloc
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.attention_examples import fused, operands, training_graph
from tests.conftest import examples
from tinyckpt.core.graph import Operator
from tinyckpt.ops import kernels_attention

BUFFERS = 3 * 2**16  # NumPy's own, of 8,192 elements for an operand that is cast or broadcast


def held(operator: Operator, arrays: list[Any]) -> tuple[int, int]:
    """Return the bytes allocated after an operator, and its peak while it runs."""
    assert operator.primitive is not None
    outputs: Any = None
    tracemalloc.start()
    outputs = operator.primitive.forward(np, *arrays, **operator.attrs)
    bytes_held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert outputs is not None
    return bytes_held, peak


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("causal", [False, True])
def test_workspace_is_exact_and_independent_of_length(dtype: str, causal: bool) -> None:
    workspaces: dict[str, list[int]] = {"fused_attention": [], "fused_attention_vjp": []}
    for length in (1024, 1536, 2304):
        arrays = [array.astype(dtype) for array in operands(8, 2, length, length + 7, 64, 1)]
        graph = training_graph(partial(fused, causal=causal), arrays)
        values: dict[int, Any] = dict(enumerate(arrays))
        for operator in graph.operators:
            if operator.kind not in workspaces:
                continue
            inputs = [
                values.get(data, np.ones(graph.data[data].spec.shape, graph.data[data].spec.dtype))
                for data in operator.inputs
            ]
            at_the_end, peak = held(operator, inputs)
            outputs = sum(graph.data[data].nbytes for data in operator.outputs)
            assert outputs > 2**20
            assert at_the_end == pytest.approx(outputs, abs=2**14), operator
            assert peak == pytest.approx(outputs + operator.workspace, abs=BUFFERS), operator
            workspaces[operator.kind].append(operator.workspace)
    for of_lengths in workspaces.values():
        assert len(set(of_lengths)) == 1
        assert of_lengths[0] < 2**24


@settings(max_examples=examples(60))
@given(
    before=st.lists(st.integers(1, 10**4), max_size=2),
    kv_heads=st.integers(1, 64),
    group=st.integers(1, 8),
    length=st.integers(1, 10**6),
    more=st.integers(0, 10**6),
    d=st.integers(1, 256),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
)
def test_workspace_is_bounded_for_any_extents(
    before: list[int], kv_heads: int, group: int, length: int, more: int, d: int, dtype: str
) -> None:
    query = tc.Spec((*before, kv_heads * group, length, d), dtype)
    key = tc.Spec((*before, kv_heads, length + more, d), dtype)
    graph = tc.build(partial(fused, causal=True), query, key, key)
    (operator,) = graph.operators
    *counts, queries, keys = operator.attrs["block"]
    heads, itemsize = math.prod(counts) * group, max(4, query.dtype.itemsize)
    assert queries <= 128
    assert keys <= 512
    assert math.prod(counts) == 1 or heads * queries * keys * itemsize <= 2**20
    # Per head: the scores, three blocks of queries, two of keys, four numbers per row.
    of_head = queries * keys + 3 * queries * d + 2 * keys * d + 4 * queries
    mask = queries * keys + 8 * (queries + keys)
    assert operator.workspace <= heads * of_head * itemsize + mask


def test_flops_equal_products_computed_by_kernels() -> None:
    arrays = [tc.Spec(np.shape(array)) for array in operands(2, 1, 300, 300, 16, 2)]
    scores = 2 * 2 * 300 * 300
    flops = {operator.kind: operator.flops for operator in training_graph(fused, arrays).operators}
    assert flops["fused_attention"] == scores * (2 * 2 * 16 + 4)
    assert flops["fused_attention_vjp"] == scores * (5 * 2 * 16 + 4)
    causal = {
        operator.kind: operator.flops
        for operator in training_graph(partial(fused, causal=True), arrays).operators
    }
    # Of blocks of 128 queries the first sees 128 keys, the second 256, the last 44 queries all 300.
    seen = 2 * 2 * (128 * 128 + 128 * 256 + 44 * 300)
    assert causal["fused_attention"] == seen * (2 * 2 * 16 + 4)
    assert causal["fused_attention_vjp"] == seen * (5 * 2 * 16 + 4)
    unfused = training_graph(partial(tc.attention, causal=True), arrays)
    products = [o.flops for o in unfused.operators if o.kind == "matmul"]
    assert products == [scores * 2 * 16] * 6


def test_fully_masked_blocks_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[tuple[int, ...]] = []
    original = kernels_attention.block_scores

    def counting(*args: Any) -> Any:
        scores = original(*args)
        met.append(scores.shape[-2:])
        return scores

    monkeypatch.setattr(kernels_attention, "block_scores", counting)
    arrays = operands(1, 1, 4, 6, 2)
    kernels_attention.fused_attention(np, *arrays, causal=True, scale=1.0, block=(1, 2, 2))
    # Two queries see up to 4 keys, in two blocks; the other two all 6.
    assert met == [(2, 2)] * 5
