"""A hundred random networks, random cuts and random pipelines with replicas: replayed and run.

Each has two inputs, one of integers, residuals over any number of stages, weights that several of
them read, and norms over the samples of a micro-batch.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.tinyckpt.pipeline.one_device import on_one_device
from tinyckpt.base.tree import leaves
from tinyckpt.pipeline import (
    PIPELINES,
    Pipeline,
    data_parallel,
    partition,
    pipeline_costs,
    plan_stages,
    replay_pipeline,
    run_pipeline,
    stages_of,
)

SAMPLES, WIDTH, ROWS = 5, 6, 7
FOLDED = ("interleaved", "v-min", "v-half")
# Of two earlier values, a weight, the mask and the layer's number.
LAYERS: list[Callable[..., Any]] = [
    lambda a, b, w, mask, n: tc.tanh(a @ w),
    lambda a, b, w, mask, n: a + b,
    lambda a, b, w, mask, n: tc.gelu(b @ w) + a,
    lambda a, b, w, mask, n: a * mask,
    lambda a, b, w, mask, n: tc.softmax(a @ tc.transpose(w)),
    lambda a, b, w, mask, n: tc.where(mask > 0, a, b),
    lambda a, b, w, mask, n: a - a.mean(axis=0, keepdims=True),
    lambda a, b, w, mask, n: tc.dropout(b, 0.3, seed=n),
    lambda a, b, w, mask, n: tc.concatenate(tc.split(a, 2, axis=1)[::-1], axis=1) @ w,
]


def drawn_loss(draw: np.random.Generator) -> Callable[..., Any]:
    count = int(draw.integers(4, 14))
    kinds, picks = draw.integers(0, len(LAYERS), count), draw.integers(0, 99, (count, 3))

    def loss(params: Any, ids: Any, x: Any, mask: Any, y: Any) -> Any:
        pool = [tc.take(params["table"], ids, axis=0), x]
        for number, (kind, (first, second, weight)) in enumerate(zip(kinds, picks, strict=True)):
            a, b = pool[-1 - first % len(pool)], pool[-1 - second % min(3, len(pool))]
            own = params["w"][weight % len(params["w"])]
            pool.append(LAYERS[kind](a, b, own, mask, number))
        return tc.mean((pool[-1] - y) ** 2)

    return loss


def drawn_batches(draw: np.random.Generator) -> Callable[[], Any]:
    weights = [draw.normal(size=(WIDTH, WIDTH)) for _ in range(3)]
    params = {"table": draw.normal(size=(ROWS, WIDTH)), "w": weights}

    def batch() -> Any:
        others = [draw.normal(size=(SAMPLES, WIDTH)) for _ in range(3)]
        return params, draw.integers(0, ROWS, SAMPLES), *others

    return batch


def drawn_pipeline(seed: int, draw: np.random.Generator, most: int) -> Pipeline:
    name = list(PIPELINES)[seed % len(PIPELINES)]
    devices = int(draw.integers(1, min(4, most // 2) + 1))
    recompute = [None, "early", "late"][draw.integers(3)]
    one = PIPELINES[name](devices, devices * int(draw.integers(1, 4)), recompute=recompute)
    return data_parallel(one, int(draw.integers(1, 4)), int(draw.integers(0, 4)))


@pytest.mark.sampled(30)
@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_random_pipeline_equals_one_device(seed: int) -> None:
    draw = np.random.default_rng(seed)
    batch = drawn_batches(draw)
    graph = tc.differentiate(tc.build(drawn_loss(draw), *batch()))
    pipeline = drawn_pipeline(seed, draw, graph.forward_count)
    depth = pipeline.stages // pipeline.replicas
    places = np.arange(1, graph.forward_count)
    cuts = sorted(draw.choice(places, depth - 1, replace=False).tolist())
    policy = ["store_all", "sqrt_n", "recompute_all", "chen_recursive"][draw.integers(4)]
    halves, early = pipeline.halves, bool(draw.integers(2))
    stages = plan_stages(stages_of(graph, cuts, halves), policy, early=early)
    costs = pipeline_costs(pipeline, stages)
    trace = replay_pipeline(pipeline, costs, [each.footprint for each in stages])
    assert trace.makespan >= max(trace.busy) > 0
    batches = [batch() for _ in range(pipeline.micro_batches * pipeline.replicas)]
    result = run_pipeline(pipeline, stages, batches)
    values, gradients = on_one_device(graph, batches)
    np.testing.assert_allclose(result.values, values, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(leaves(result.gradients), gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_batch_norm_normalises_over_one_micro_batch() -> None:
    def loss(params: Any, x: Any) -> Any:
        h, mean, variance = tc.batch_norm(x, params["scale"], params["shift"])
        return tc.mean(tc.tanh(h) ** 2), mean, variance

    draw = np.random.default_rng(0)
    params = {"scale": draw.normal(size=3), "shift": draw.normal(size=3)}
    batches = [(params, draw.normal(size=(4, 3, 2, 2))) for _ in range(4)]
    graph = tc.differentiate(tc.build(loss, *batches[0]))
    stages = plan_stages(stages_of(graph, partition(graph, 2)))
    result = run_pipeline(data_parallel(PIPELINES["1f1b"](2, 2), 2, zero=2), stages, batches)
    values, gradients = on_one_device(graph, batches)
    # As one device that adds up micro-batches: the same numbers, statistics of each included.
    for ours, theirs in zip(leaves(result.values), leaves(values), strict=True):
        assert np.array_equal(ours, theirs)
    for ours, theirs in zip(leaves(result.gradients), gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)
    # And not those of the whole batch, whose statistics are others.
    whole = tc.run(tc.plan(tc.differentiate(tc.build(loss, params, tc.Spec((16, 3, 2, 2))))),
                   params, np.concatenate([batch[1] for batch in batches]))  # fmt: skip
    differences = [
        np.abs(ours - theirs).max()
        for ours, theirs in zip(leaves(whole.gradients), gradients, strict=True)
    ]
    assert max(differences) > 1e-4
