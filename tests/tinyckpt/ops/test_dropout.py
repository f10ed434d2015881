"""Dropout: the dropped share, and seeds as numbers or as data."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.tinyckpt.ops.cases import normal
from tinyckpt.ops import kernels
from tinyckpt.ops.random import stream_key


def test_dropout_drops_requested_rate_and_is_deterministic() -> None:
    x = np.ones(100_000)
    one, again, other = (
        kernels.dropout(np, x, rate=0.3, key=stream_key(seed)) for seed in (1, 1, 2)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert (one == 0).mean() == pytest.approx(0.3, abs=0.01)
    assert one.mean() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "int32"])
def test_seed_as_data_gives_same_mask_as_seed_as_number(dtype: str) -> None:
    x = normal(4, 5)
    for seed in (0, 1, 77, 127):
        step = tc.value_and_grad(lambda x, seed: tc.sum(tc.dropout(x, 0.3, seed) ** 2))
        known = tc.value_and_grad(lambda x, seed=seed: tc.sum(tc.dropout(x, 0.3, seed) ** 2))
        for found, expected in zip(step(x, np.array(seed, dtype)), known(x), strict=True):
            assert np.array_equal(found, expected)


def test_each_step_gets_new_mask_from_one_graph_under_every_policy() -> None:
    builds = []

    def loss(w: Any, x: Any, step: Any) -> Any:
        builds.append(w)
        for layer in range(4):
            x = tc.dropout(tc.tanh(x @ w), 0.5, 4 * step + layer)
        return tc.mean(x**2)

    policies = ("store_all", "sqrt_n", "recompute_all", "greedy")
    steps = [tc.value_and_grad(loss, policy) for policy in policies]
    w, x, seen = normal(4, 4), normal(6, 4), set()
    for number in range(5):
        results = [step(w, x, number) for step in steps]
        assert len({value.tobytes() + gradient.tobytes() for value, gradient in results}) == 1
        seen.add(float(results[0][0]))
    assert len(seen) == 5
    assert len(builds) == len(policies)


@pytest.mark.parametrize(
    ("seed", "match"),
    [
        (-1, "the seed must be 0 or more, got -1"),
        (np.int64(-7), "the seed must be 0 or more, got -7"),
        (2**64, r"dropout: the seed must be less than 2\*\*64, got one of 65 bits"),
        pytest.param(1 << 20000, "got one of 20,001 bits", id="too many digits to print"),
        pytest.param(-1 << 20000, "0 or more, got one of 20,001 bits", id="and negative"),
        (np.float32(3), "must be an integer"),
        (1.5, "seed 1.5 must be an integer"),
        (True, "seed True must be an integer"),
        (None, "seed None must be an integer"),
        (np.array(1.5), r"the seed must be one integer, got float64\[\]"),
        (np.arange(2), r"the seed must be one integer, got int64\[2\]"),
        (np.array(True), r"the seed must be one integer, got bool\[\]"),
    ],
)
def test_invalid_seed_raises(seed: Any, match: str) -> None:
    with pytest.raises(tc.GraphError, match=match):
        tc.build(lambda x: tc.dropout(x, 0.5, seed), np.ones(3))


def test_negative_seed_as_data_raises_naming_operator() -> None:
    graph = tc.build(lambda x, seed: tc.dropout(x, 0.5, seed), np.ones(3), 1)
    with pytest.raises(tc.BackendError, match=r"seeded_dropout_1 of .* must be 0 or more, got -1"):
        tc.run(tc.plan(graph), np.ones(3), -1)
