"""Published networks at test size: gradients under every policy, and the loss."""

import numpy as np
import pytest

import tinyckpt as tc
from tests.tinyckpt.networks.small import SMALL, arguments, equal, small
from tinyckpt.base.tree import leaves, map_leaves


@pytest.mark.sampled(6)
@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_gradients_are_bitwise_equal_under_policies_and_match_differences(name: str) -> None:
    network = small(name)
    graph, (params, *data) = network.graph(), arguments(name, network)
    schedule = tc.plan(graph, "store_all")
    expected = tc.run(schedule, params, *data)
    for policy in ("sqrt_n", "recompute_all"):
        planned = tc.plan(graph, policy)
        result = tc.run(planned, params, *data)
        assert result.trace == tc.replay(planned)
        assert result.value == expected.value
        assert equal(result.gradients, expected.gradients)
    assert all(np.isfinite(gradient).all() for gradient in leaves(expected.gradients))
    generator = np.random.default_rng(3)
    direction = map_leaves(lambda array: generator.normal(size=array.shape), params)

    def value_at(step: float) -> float:
        moves = iter(leaves(direction))
        moved = map_leaves(lambda array: array + step * next(moves), params)
        return float(tc.run(schedule, moved, *data).value)

    # Small enough to cross no kink of relu or of a maximum.
    difference = (value_at(1e-7) - value_at(-1e-7)) / 2e-7
    pairs = zip(leaves(expected.gradients), leaves(direction), strict=True)
    projected = sum(float((a * b).sum()) for a, b in pairs)
    assert difference == pytest.approx(projected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_has_nonzero_gradient(name: str) -> None:
    network = small(name)
    result = tc.run(tc.plan(network.graph()), *arguments(name, network))
    assert [g.any() for g in leaves(result.gradients)].count(False) == 0


@pytest.mark.parametrize("name", ["vit", "bert", "gpt2", "llama", "resnet18", "lenet5"])
def test_float16_networks_have_a_float32_loss(name: str) -> None:
    network = small(name, dtype="float16")
    result = tc.run(tc.plan(network.graph()), *arguments(name, network))
    assert result.value.dtype == "float32"
    assert np.isfinite(result.value)
    assert {gradient.dtype.name for gradient in leaves(result.gradients)} == {"float16"}
