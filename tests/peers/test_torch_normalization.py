"""Normalisation, embedding and logsumexp against PyTorch: values and gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples

torch = pytest.importorskip("torch")
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
DTYPES = st.sampled_from(sorted(TOLERANCE))
SEEDS = st.integers(0, 2**16)
EPSILONS = st.sampled_from([1e-5, 1e-3, 0.1])


def agree(
    ours: Callable[..., Any], theirs: Callable[..., Any], dtype: str, *arrays: Any, fixed: Any = ()
) -> None:
    """Compare values and gradients, relative to the largest element of each.

    Or relative to 1 where all are smaller: a derivative of what is normalised is a difference of
    terms about as large, which may cancel. Where PyTorch itself is less exact, because a row hardly
    varies, ours may be at most three times as far from its result in float64.
    """
    args = [array.astype(dtype) for array in arrays]
    shape = theirs(*map(torch.tensor, args), *map(torch.tensor, fixed)).shape
    weights = np.random.default_rng(1).normal(size=shape).astype(dtype)

    def of_torch(kind: str) -> list[Any]:
        tensors = [torch.tensor(array.astype(kind), requires_grad=True) for array in args]
        constants = [each.astype(kind) if each.dtype.kind == "f" else each for each in fixed]
        y = theirs(*tensors, *map(torch.tensor, constants))
        (y * torch.tensor(weights.astype(kind))).sum().backward()
        return [y.detach().numpy(), *(tensor.grad.numpy() for tensor in tensors)]

    def loss(*variables: Any) -> Any:
        y = ours(*variables, *fixed)
        return tc.sum(y * weights), y

    graph = tc.differentiate(tc.build(loss, *args), tuple(range(len(args))))
    result = tc.run(tc.plan(graph), *args)
    ours_all = [result.value[1], *result.gradients]
    for found, number, exact in zip(ours_all, of_torch(dtype), of_torch("float64"), strict=True):
        assert found.dtype == number.dtype
        assert found.shape == number.shape
        error, allowed = abs(found - number).max(), TOLERANCE[dtype] * max(abs(number).max(), 1)
        assert error <= allowed or abs(found - exact).max() <= 3 * abs(number - exact).max()


@settings(max_examples=examples(60))
@given(
    shape=st.lists(st.integers(3, 6), min_size=1, max_size=4),
    count=st.integers(1, 3),
    parameters=st.integers(0, 2),
    epsilon=EPSILONS,
    dtype=DTYPES,
    seed=SEEDS,
)
def test_layer_norm_matches_pytorch(
    shape: list[int], count: int, parameters: int, epsilon: float, dtype: str, seed: int
) -> None:
    r = np.random.default_rng(seed)
    count = min(count, len(shape))
    inner = tuple(shape[-count:])
    arrays = [r.normal(1, 2, shape), *(r.normal(size=inner) for _ in range(parameters))]
    axes = tuple(range(-count, 0))
    agree(
        lambda *a: tc.layer_norm(*a, axes=axes, epsilon=epsilon),
        lambda x, *a: torch.nn.functional.layer_norm(x, inner, *a, eps=epsilon),
        dtype, *arrays,
    )  # fmt: skip


@settings(max_examples=examples(30))
@given(
    shape=st.lists(st.integers(2, 6), min_size=2, max_size=4),
    scaled=st.booleans(),
    epsilon=EPSILONS,
    dtype=DTYPES,
    seed=SEEDS,
)
def test_rms_norm_matches_pytorch(
    shape: list[int], scaled: bool, epsilon: float, dtype: str, seed: int
) -> None:
    r = np.random.default_rng(seed)
    arrays = [r.normal(1, 2, shape), *([r.normal(size=shape[-1:])] if scaled else [])]
    agree(
        lambda *a: tc.rms_norm(*a, epsilon=epsilon),
        lambda x, *a: torch.nn.functional.rms_norm(x, x.shape[-1:], *a, eps=epsilon),
        dtype, *arrays,
    )  # fmt: skip


@settings(max_examples=examples(40))
@given(
    shape=st.tuples(st.integers(1, 3), st.lists(st.integers(2, 4), min_size=1, max_size=3)),
    groups=st.integers(1, 3),
    depth=st.integers(1, 3),
    parameters=st.booleans(),
    dtype=DTYPES,
    seed=SEEDS,
)
def test_group_norm_matches_pytorch(
    shape: tuple[int, list[int]],
    groups: int,
    depth: int,
    parameters: bool,
    dtype: str,
    seed: int,
) -> None:
    r = np.random.default_rng(seed)
    (batch, rest), channels = shape, groups * depth
    arrays = [r.normal(1, 2, (batch, channels, 2, *rest))]
    arrays += [r.normal(size=channels) for _ in range(2 * parameters)]
    agree(
        lambda x, *a: tc.group_norm(x, groups, *a, epsilon=0.01),
        lambda x, *a: torch.nn.functional.group_norm(x, groups, *a, eps=0.01),
        dtype, *arrays,
    )  # fmt: skip


@settings(max_examples=examples(40))
@given(
    shape=st.tuples(st.integers(3, 6), st.integers(1, 4)),
    image=st.sampled_from([(), (2, 3), (1, 1), (4,), (2, 2, 2)]),
    epsilon=EPSILONS,
    momentum=st.sampled_from([0.1, 0.01, 0.0, 1.0]),
    dtype=DTYPES,
    seed=SEEDS,
)
def test_batch_norm_and_running_statistics_match_pytorch(
    shape: tuple[int, int],
    image: tuple[int, ...],
    epsilon: float,
    momentum: float,
    dtype: str,
    seed: int,
) -> None:
    r = np.random.default_rng(seed)
    x, channels = r.normal(1, 2, (*shape, *image)), shape[1]
    scale, shift, mean = (r.normal(size=channels) for _ in range(3))
    var = r.uniform(0.5, 2, channels)
    theirs = torch.nn.functional.batch_norm
    agree(
        lambda *a: tc.batch_norm(*a, epsilon=epsilon)[0],
        lambda x, s, b: theirs(x, None, None, s, b, training=True, eps=epsilon),
        dtype, x, scale, shift,
    )  # fmt: skip
    args = [array.astype(dtype) for array in (x, scale, shift, mean, var)]
    agree(
        lambda *a: tc.batch_norm_inference(*a, epsilon=epsilon),
        lambda x, s, b, m, v: theirs(x, m, v, s, b, eps=epsilon),
        dtype, x, scale, shift, fixed=args[3:],
    )  # fmt: skip
    expected = [torch.tensor(array) for array in args[3:]]
    theirs(torch.tensor(args[0]), *expected, training=True, momentum=momentum, eps=epsilon)

    def moved(x: Any, scale: Any, shift: Any, *running: Any) -> Any:
        _, *statistics = tc.batch_norm(x, scale, shift, epsilon=epsilon)
        return tc.moved_statistics(*running, *statistics, x.size // channels, momentum)

    for found, tensor in zip(tc.jit(moved)(*args), expected, strict=True):
        np.testing.assert_allclose(found, tensor.numpy(), rtol=TOLERANCE[dtype], atol=1e-6)
        assert found.dtype == dtype


def test_batch_norm_gradients_through_mean_and_variance_match_pytorch() -> None:
    r = np.random.default_rng(0)
    x, scale, shift = r.normal(1, 2, (4, 3, 2)), r.normal(size=3), r.normal(size=3)

    def theirs(x: Any, scale: Any, shift: Any) -> Any:
        y = torch.nn.functional.batch_norm(x, None, None, scale, shift, training=True)
        mean, var = x.mean((0, 2)), x.var((0, 2), correction=0)
        return torch.cat([y.reshape(-1), mean**2, torch.sin(var)])

    def ours(x: Any, scale: Any, shift: Any) -> Any:
        y, mean, var = tc.batch_norm(x, scale, shift)
        return tc.concatenate([y.reshape(-1), mean**2, tc.sin(var)])

    agree(ours, theirs, "float64", x, scale, shift)


@settings(max_examples=examples(30))
@given(
    rows=st.integers(1, 8),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    dtype=DTYPES,
    seed=SEEDS,
)
def test_embedding_matches_pytorch(rows: int, shape: list[int], dtype: str, seed: int) -> None:
    r = np.random.default_rng(seed)
    ids = r.integers(0, rows, shape)
    agree(
        tc.embedding, lambda table, ids: torch.nn.functional.embedding(ids, table),
        dtype, r.normal(size=(rows, 3)), fixed=(ids,),
    )  # fmt: skip


@settings(max_examples=examples(30))
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    keepdims=st.booleans(),
    scale=st.sampled_from([1.0, 1e3]),
    dtype=DTYPES,
    seed=SEEDS,
)
def test_logsumexp_matches_pytorch(
    shape: list[int], keepdims: bool, scale: float, dtype: str, seed: int
) -> None:
    r = np.random.default_rng(seed)
    axis = int(r.integers(-len(shape), len(shape)))
    agree(
        lambda x: tc.logsumexp(x, axis, keepdims), lambda x: torch.logsumexp(x, axis, keepdims),
        dtype, scale * r.normal(size=shape),
    )  # fmt: skip
