"""Quantisation of saved activations: unbiased stochastic rounding, error bounds, random streams."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn

from tests.conftest import examples
from tinyckpt.ops.activation_compression import longest_span
from tinyckpt.ops.kernels_compression import decode, encode
from tinyckpt.ops.random import stream_key
from tinyckpt.ops.special_functions import GOLDEN, key_words, random_bits, random_key

R = np.random.default_rng(41)
FLOATS = ("float16", "float32", "float64")


def normal(*shape: int) -> Any:
    return R.normal(size=shape)


def round_trip(x: Any, bits: int = 8, group: int = 256, seed: int = 0) -> Any:
    """Encode and decode an array, by the kernels alone."""
    code = encode(np, x.reshape(-1), bits=bits, group=group, key=stream_key(seed), number=0)
    return decode(np, *code, bits=bits, group=group, shape=x.shape, dtype=x.dtype.name)


def steps_of(x: Any, bits: int, group: int) -> Any:
    """Return the step of every element's group."""
    flat = x.reshape(-1).astype(np.float64)
    found = [
        np.full(len(part), (part.max() - part.min()) / (2**bits - 1))
        for part in (flat[i : i + group] for i in range(0, flat.size, group))
    ]
    return np.concatenate([*found, np.zeros(0)]).reshape(x.shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bits", [8, 4, 2])
def test_stochastic_rounding_is_unbiased_with_bounded_variance(bits: int, dtype: str) -> None:
    count, group = 10**6, 1000
    for where in (0.0, 0.1, 0.5, 0.999, 1.0):  # between the first two steps
        step = 2.0**-3
        x = np.full((count // group, group), 1 + where * step, dtype)
        x[:, 0], x[:, 1] = 1, 1 + step * (2**bits - 1)  # all of which floats hold exactly
        draws = round_trip(x, bits, group, seed=7)[:, 2:].astype(np.float64)
        error = draws - x[0, 2]
        deviation = step * np.sqrt(where * (1 - where))
        rounding = 1e-6 if dtype == "float32" else 1e-12
        assert abs(error.mean()) <= 4 * deviation / np.sqrt(error.size) + rounding
        assert (error**2).mean() <= step**2 / 4 * (1 + 4 / np.sqrt(error.size))
        assert (error**2).mean() == pytest.approx(deviation**2, rel=0.05, abs=rounding)


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_quantisation_error_of_a_million_numbers_has_expected_moments(bits: int) -> None:
    x = normal(2**20)
    error = round_trip(x, bits) - x
    steps = steps_of(x, bits, 256)
    assert (np.abs(error) <= steps * (1 + 1e-12)).all()
    ratio = error[steps > 0] / steps[steps > 0]
    assert abs(ratio.mean()) <= 4 * ratio.std() / np.sqrt(ratio.size)
    assert (ratio**2).mean() <= 0.25
    # For a uniform fraction f, the mean of f (1 - f) is a sixth; at the ends of a group it is 0.
    assert (ratio**2).mean() == pytest.approx(1 / 6, rel=0.05)


@settings(max_examples=examples(150))
@given(
    x=drawn.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        st.integers(0, 40),
        elements=st.floats(-60000, 60000, width=16),
    ),
    bits=st.sampled_from([8, 4, 2]),
    group=st.sampled_from([4, 8, 12, 256]),
    seed=st.integers(0, 2**64 - 1),
)
def test_decoded_random_arrays_are_within_one_step_and_exact_at_group_ends(
    x: Any, bits: int, group: int, seed: int
) -> None:
    codes, low, high = encode(np, x, bits=bits, group=group, key=stream_key(seed), number=0)
    assert (codes.dtype, codes.size) == (np.uint8, -(-x.size * bits // 8))
    assert low.size == high.size == -(-x.size // group)
    found = decode(np, codes, low, high, bits=bits, group=group, shape=x.shape, dtype=x.dtype.name)
    assert found.dtype == x.dtype
    exact = x.astype(np.float64)
    slack = 2 * np.finfo(x.dtype).eps * np.abs(exact).max(initial=0)
    assert (np.abs(found - exact) <= steps_of(x, bits, group) * (1 + 1e-3) + slack).all()
    for start in range(0, x.size, group):
        part, back = x[start : start + group], found[start : start + group]
        assert (back[part == part.min()] == part.min()).all()
        assert (back[part == part.max()] == part.max()).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bits", [8, 4, 2])
def test_constant_extreme_and_nonfinite_groups_decode_as_documented(bits: int, dtype: str) -> None:
    most, least = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
    groups = np.array(
        [
            [3, 3, 3, 3], [0, 0, -0.0, 0], [most, -most, most, -most], [most] * 4,
            [least, 0, least, 0], [1, 2, np.nan, 3], [np.inf, 1, 2, 3], [-np.inf, np.inf, 0, 1],
            [np.inf] * 4, [1, 1, 1, 2],
        ],
        dtype,
    )  # fmt: skip
    found = round_trip(groups, bits, 4)
    lost = [5, 6, 7, 8]
    assert np.isnan(found[lost]).all()
    kept = [0, 1, 2, 3, 9]
    assert np.array_equal(found[kept], groups[kept])
    assert (np.abs(found[4]) <= 2 * least).all()


def test_code_is_clamped_to_last_step() -> None:
    # 255 and nearly 1 more make 256 in float32, which overflows a byte to 0.
    x = np.tile(np.array([0, 1, 1, 1], "float32"), 2**20)
    assert np.array_equal(round_trip(x, 8, 4, seed=3), x)


def test_codes_depend_on_seed_and_not_on_spans() -> None:
    size, group = 2**18 + 300, 12
    assert longest_span(size, group) < size
    x = normal(size).astype("float32")
    one, again, other = (round_trip(x, 4, group, seed) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    # The same random bits, wherever the span begins.
    first = round_trip(x[:1200], 4, group, 1)
    assert np.array_equal(one[:1200], first)
    assert (np.abs(one - x) <= steps_of(x, 4, group) * (1 + 1e-5)).all()


WORDS = st.integers(0, 2**64 - 1)


def shifted_back(mixed: int, shift: int) -> int:
    """Return z of ``z ^ (z >> shift)``."""
    z = mixed
    for _ in range(64 // shift):
        z = mixed ^ (z >> shift)
    return z


@settings(max_examples=examples(300))
@given(seed=WORDS, number=st.integers(0, 2**62))
@example(seed=2**61, number=7)
@example(seed=2**64 - 1, number=2**62)
def test_seed_and_number_are_recoverable_from_generator_words(seed: int, number: int) -> None:
    # So no two pairs of them have the same.
    words = key_words(np, stream_key(seed, number), number)
    as_data = key_words(np, random_key(np, np.array(seed, "uint64"), number), number)
    assert [int(word) for word in words] == [int(word[0]) for word in as_data]
    multiplier, added = map(int, words)
    assert multiplier % 2 == 1
    key = (multiplier & ~1) | (added & 1)
    twice = (added - key) * pow(GOLDEN, -1, 2**64) % 2**64
    z = shifted_back(key, 31) * pow(0x94D049BB133111EB, -1, 2**64) % 2**64
    z = shifted_back(z, 27) * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64
    z = shifted_back(z, 30)
    assert twice == 2 * number
    assert (z - (number + 1) * GOLDEN) % 2**64 == seed


def test_streams_sharing_seed_or_multiplier_are_independent() -> None:
    count = 2**17
    pairs = [(5, number) for number in range(6)]
    # splitmix64's next output for a seed is its output for the seed plus GOLDEN.
    pairs += [((5 + steps * GOLDEN) % 2**64, 0) for steps in range(1, 6)]
    rows = [random_bits(np, count, key_words(np, stream_key(*p), p[1])) for p in pairs]
    halves = np.array(rows).astype(np.float64) / 2**32 - 0.5
    assert (np.abs(halves.mean(axis=1)) < 5 * np.sqrt(1 / 12 / count)).all()
    correlated = np.corrcoef(halves) - np.eye(len(pairs))
    assert np.abs(correlated).max() < 5 / np.sqrt(count)
    for one in range(len(pairs)):
        for other in range(one):
            flipped = np.unpackbits((rows[one] ^ rows[other]).astype("uint32").view("uint8"))
            assert abs(flipped.mean() - 0.5) < 5 * 0.5 / np.sqrt(32 * count)


def test_encode_and_decode_do_not_modify_inputs() -> None:
    x = normal(33)
    x.flags.writeable = False
    code = encode(np, x, bits=2, group=8, key=3, number=0)
    for array in code:
        array.flags.writeable = False
    decode(np, *code, bits=2, group=8, shape=(33,), dtype="float64")
