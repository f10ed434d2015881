"""Convolution and pooling against PyTorch: values, first and second derivatives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.tinyckpt.ops.test_convolution import convolutions
from tests.tinyckpt.ops.test_pooling import poolings
from tests.tinyckpt.ops.test_transposed_convolution import transposed_convolutions

torch = pytest.importorskip("torch")
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


def check_same(ours: Callable[..., Any], theirs: Callable[..., Any], *args: Any) -> None:
    """Compare a function's value and its gradients, projected onto a random direction.

    Relative to the largest number of each array.
    """
    dtype = args[0].dtype.name
    tensors = [torch.tensor(arg, requires_grad=True) for arg in args]
    expected = theirs(*tensors)
    g = np.random.default_rng(5).normal(size=tuple(expected.shape)).astype(dtype)
    wrt = tuple(range(len(args)))
    gradients = tc.grad(lambda *args: tc.sum(ours(*args) * g), wrt=wrt)(*args)
    (expected * torch.tensor(g)).sum().backward()
    pairs = [(tc.jit(ours)(*args), expected.detach().numpy())]
    pairs += [(a, b.grad.numpy()) for a, b in zip(gradients, tensors, strict=True)]
    for found, wanted in pairs:
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype == dtype
        scale = max(1.0, abs(wanted).max())
        np.testing.assert_allclose(found, wanted, rtol=0, atol=scale * TOLERANCE[dtype])


@settings(max_examples=examples(60))
@given(case=convolutions(("float32", "float64")))
def test_conv2d_matches_pytorch(case: Any) -> None:
    x, weight, bias, options = case
    args = (x, weight) if bias is None else (x, weight, bias)
    check_same(
        lambda *args: tc.conv2d(*args, **options),
        lambda *args: torch.nn.functional.conv2d(*args, **options),
        *args,
    )


@settings(max_examples=examples(20))
@given(case=convolutions())
def test_conv2d_second_derivatives_match_pytorch(case: Any) -> None:
    x, weight, _, options = case

    def ours(x: Any, weight: Any) -> Any:
        value = tc.sum(tc.tanh(tc.conv2d(x, weight, **options)))
        return sum(tc.sum(g**2) for g in tc.gradients(value, [x, weight]))

    def theirs(x: Any, weight: Any) -> Any:
        value = torch.tanh(torch.nn.functional.conv2d(x, weight, **options)).sum()
        return sum((g**2).sum() for g in torch.autograd.grad(value, [x, weight], create_graph=True))

    check_same(ours, theirs, x, weight)


@settings(max_examples=examples(60))
@given(case=transposed_convolutions(("float32", "float64")))
def test_conv_transpose2d_matches_pytorch(case: Any) -> None:
    x, weight, bias, options = case
    args = (x, weight) if bias is None else (x, weight, bias)
    check_same(
        lambda *args: tc.conv_transpose2d(*args, **options),
        lambda *args: torch.nn.functional.conv_transpose2d(*args, **options),
        *args,
    )


def test_multi_block_conv2d_matches_pytorch() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(12, 32, 60, 60)).astype("float32")
    weight = generator.normal(size=(48, 32, 3, 3)).astype("float32")
    check_same(
        lambda *args: tc.conv2d(*args, padding=1),
        lambda *args: torch.nn.functional.conv2d(*args, padding=1),
        x, weight,
    )  # fmt: skip


@settings(max_examples=examples(40))
@given(case=poolings(("float32", "float64")))
def test_max_pool2d_matches_pytorch(case: Any) -> None:
    x, kernel, options = case
    check_same(
        lambda x: tc.max_pool2d(x, kernel, **options),
        lambda x: torch.nn.functional.max_pool2d(x, kernel, **options),
        x,
    )


@settings(max_examples=examples(40))
@given(case=poolings(("float32", "float64")), padded=st.booleans())
def test_avg_pool2d_matches_pytorch(case: Any, padded: bool) -> None:
    x, kernel, options = case
    check_same(
        lambda x: tc.avg_pool2d(x, kernel, **options, count_include_pad=padded),
        lambda x: torch.nn.functional.avg_pool2d(x, kernel, **options, count_include_pad=padded),
        x,
    )


def test_global_avg_pool2d_matches_pytorch() -> None:
    check_same(
        tc.global_avg_pool2d,
        lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 1).flatten(1),
        np.random.default_rng(0).normal(size=(3, 4, 5, 6)),
    )
