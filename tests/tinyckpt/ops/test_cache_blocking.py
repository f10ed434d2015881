"""Cache blocking: kernels over parts of arrays give the same bits as over whole arrays."""

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests import strict
from tests.conftest import examples
from tinyckpt.ops import cache_blocking as parts


@settings(max_examples=examples(20))
@given(part=st.integers(1, 47), dtype=st.sampled_from(["float16", "float32", "float64"]))
def test_results_are_bitwise_equal_for_any_part_size(part: int, dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=(6, 8)).astype(dtype)
    step = tc.value_and_grad(lambda x: tc.half_squared_norm(tc.gelu(x.T, approximate=True)))
    value, gradient = step(x)
    with mock.patch.object(parts, "PART", part):
        assert len(parts.parts(np, x.shape)) > 1
        again = step(x)
    assert again[0] == value
    assert np.array_equal(again[1], gradient)


@settings(max_examples=examples(60))
@given(
    shape=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    most=st.integers(1, 50),
)
def test_parts_partition_array_within_size_limit(shape: tuple[int, ...], most: int) -> None:
    seen = np.zeros(shape, int)
    with mock.patch.object(parts, "PART", most):
        for part in parts.parts(np, shape):
            seen[part] += 1
            assert seen[part].size <= max(most, np.prod(shape[1:], dtype=int))
    assert (seen == 1).all()


def test_non_numpy_backend_gets_one_part() -> None:
    assert parts.parts(strict, (2**12, 2**12)) == [...]
