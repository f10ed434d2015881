"""On a GPU: the same traces to the byte, the same numbers to rounding, bitwise among policies."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.tree import leaves

pytestmark = pytest.mark.gpu
POLICIES = ("store_all", "recompute_all", "sqrt_n")


@settings(max_examples=examples(50))
@given(training_graphs())
def test_traces_agree_and_gradients_are_bitwise_equal(case: Any) -> None:
    import cupy

    graph, args = case
    on_host = tc.run(tc.plan(graph), *args)
    reference = None
    for policy in POLICIES:
        schedule = tc.plan(graph, policy)
        result = tc.run(schedule, *args, backend="cupy")
        assert result.trace == tc.replay(schedule)
        arrays = leaves([result.value, result.gradients])
        reference = reference or arrays
        for array, first in zip(arrays, reference, strict=True):
            assert isinstance(array, cupy.ndarray)
            assert bool((array == first).all())
    for array, expected in zip(
        reference or [], leaves([on_host.value, on_host.gradients]), strict=True
    ):
        np.testing.assert_allclose(cupy.asnumpy(array), expected, rtol=1e-9, atol=1e-9)


def test_compiled_code_runs_on_the_gpu() -> None:
    import cupy

    network = tc.networks.mlp(3, 16)
    params, x, labels = network.arrays()
    schedule = tc.plan(network.graph(), "sqrt_n")
    expected = tc.run(schedule, params, x, labels, backend="cupy")
    moved = [{key: cupy.asarray(value) for key, value in layer.items()} for layer in params]
    value, gradients = tc.compile(schedule, "cupy")(moved, cupy.asarray(x), cupy.asarray(labels))
    assert float(value) == float(expected.value)
    for found, other in zip(leaves(gradients), leaves(expected.gradients), strict=True):
        assert bool((found == other).all())


def test_offloading_leaves_the_gpu() -> None:
    graph = tc.networks.chain(4)
    steps = list(tc.plan(graph).steps)
    used = max(i for i, step in enumerate(steps) if step == tc.Compute(8))
    moved = [*steps[:2], tc.Offload(1), *steps[2:used], tc.Fetch(1), *steps[used:]]
    schedule = tc.Schedule(graph, tuple(moved), "offloading")
    result = tc.run(schedule, np.ones((8, 8)), backend="cupy")
    assert result.trace == tc.replay(schedule)
    compiled = tc.compile(schedule, "cupy")
    import cupy

    assert bool((compiled(cupy.ones((8, 8)))[1] == result.gradients).all())


def test_dropout_draws_the_same_mask_as_on_numpy() -> None:
    x = np.ones(1000)
    graph = tc.build(lambda x: tc.dropout(x, 0.3, seed=5), x)
    on_gpu = tc.run(tc.plan(graph), x, backend="cupy").value
    import cupy

    assert np.array_equal(cupy.asnumpy(on_gpu), tc.run(tc.plan(graph), x).value)
