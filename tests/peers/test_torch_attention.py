"""Attention against PyTorch's ``scaled_dot_product_attention``: values and gradients."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.attention_examples import in_blocks, operands
from tests.conftest import examples

torch = pytest.importorskip("torch")
TOLERANCES = {"float64": 1e-10, "float32": 1e-5}


def ours(form: Any, arrays: Any, weights: Any) -> list[Any]:
    """Return the output and the gradients of a weighted sum of it."""

    def loss(*variables: Any) -> Any:
        out = form(*variables)
        return tc.sum(out * weights), out

    (_, out), gradients = tc.value_and_grad(loss, wrt=(0, 1, 2))(*arrays)
    return [out, *gradients]


def theirs(arrays: Any, weights: Any, causal: bool, scale: float | None) -> list[Any]:
    """Return the output and gradients of PyTorch's function."""
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    length, keys = arrays[0].shape[-2], arrays[1].shape[-2]
    # PyTorch aligns is_causal to the first key; here the last query sees the last key.
    mask = torch.ones(length, keys, dtype=torch.bool).tril(keys - length) if causal else None
    out = torch.nn.functional.scaled_dot_product_attention(
        *tensors, attn_mask=mask, scale=scale, enable_gqa=True
    )
    out.backward(torch.tensor(weights))
    return [out.detach().numpy(), *(tensor.grad.numpy() for tensor in tensors)]


@pytest.mark.parametrize("dtype", TOLERANCES)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_attention_values_and_gradients_match_pytorch(dtype: str, data: st.DataObject) -> None:
    draw = data.draw
    causal, length = draw(st.booleans()), draw(st.integers(1, 40))
    keys = draw(st.integers(length, 50)) if causal else draw(st.integers(1, 50))
    shared, kv_heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    d, batch = draw(st.integers(1, 20)), draw(st.integers(1, 3))
    scale = draw(st.none() | st.floats(0.01, 2))
    arrays = operands(shared * kv_heads, shared, length, keys, d, batch)
    arrays = tuple(array.astype(dtype) for array in arrays)
    weights = np.random.default_rng(5).normal(size=arrays[0].shape).astype(dtype)
    block = draw(st.tuples(*[st.integers(1, 3)] * 2, st.integers(1, 41), st.integers(1, 51)))
    factor = d**-0.5 if scale is None else scale

    def blocks(q: Any, k: Any, v: Any) -> Any:
        attrs = {"causal": causal, "scale": factor, "block": block}
        return tc.apply_all(tc.PRIMITIVES["fused_attention"], q, k, v, **attrs)[0]

    expected = theirs(arrays, weights, causal, scale)
    wide = [array.astype("float64") for array in arrays]
    exact = theirs(wide, weights.astype("float64"), causal, scale)
    for form in (
        partial(tc.attention, causal=causal, scale=scale),
        partial(tc.attention, causal=causal, scale=scale, fused=True),
        blocks,
    ):
        found_all = ours(form, arrays, weights)
        for found, other, true in zip(found_all, expected, exact, strict=True):
            assert found.dtype == other.dtype == dtype
            error, allowed = abs(found - other).max(), TOLERANCES[dtype] * max(1, abs(other).max())
            # Where PyTorch itself is less exact, ours may be as far from its result in float64.
            assert error <= allowed or abs(found - true).max() <= 3 * abs(other - true).max()


def test_multi_block_attention_matches_pytorch() -> None:
    arrays = operands(4, 2, 300, 1100, 8, 1)
    weights = np.random.default_rng(5).normal(size=arrays[0].shape)
    graph = tc.build(partial(tc.attention, fused=True), *arrays)
    assert graph.operators[0].attrs["block"][-2:] == (128, 512)
    for causal in (False, True):
        expected = theirs(arrays, weights, causal, None)
        found = ours(partial(tc.attention, causal=causal, fused=True), arrays, weights)
        for array, other in zip(found, expected, strict=True):
            assert abs(array - other).max() <= 1e-10 * max(1.0, abs(other).max())


def test_float16_attention_is_as_accurate_as_pytorch() -> None:
    arrays = operands(2, 1, 256, 256, 32, 2)
    weights = np.random.default_rng(5).normal(size=arrays[0].shape)
    exact = theirs(arrays, weights, True, None)
    half = [array.astype("float16") for array in arrays]
    weights = weights.astype("float16")
    errors = [
        [abs(a.astype("float64") - b).max() for a, b in zip(results, exact, strict=True)]
        for results in (
            ours(lambda *a: in_blocks(*a, True, (1, 2, 64, 64))[0], half, weights),
            theirs(half, weights, True, None),
        )
    ]
    assert all(here <= 2 * there for here, there in zip(*errors, strict=True)), errors
