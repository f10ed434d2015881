"""Recomputing the fewest chain stages: bytes freed, cost, and bitwise equal gradients."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.tinyckpt.techniques.test_techniques import quick
from tinyckpt.base.tree import leaves
from tinyckpt.core.costs import flops
from tinyckpt.networks import Network
from tinyckpt.planner.model.cost_models import cost_of
from tinyckpt.planner.portfolio.fewest_stages import fewest_stages

SIZE, LAYERS, DEPTH = 64, 6, 12
VALUE = 8 * SIZE**2
CODE = SIZE**2 + 2 * 8 * SIZE**2 // 256  # a byte for each, and two numbers a group
# Codes of what a layer's functions return, but not the layer's input, which stays instead.
FREED = DEPTH * CODE - VALUE
AGAIN = DEPTH * 4  # tanh, reshape, encode, compressed


def layered(w: Any, x: Any) -> Any:
    for _ in range(LAYERS):
        h = x @ w
        for _ in range(DEPTH):
            h = tc.tanh(h)
        x = x + h
    return tc.sum(x)


NETWORK = Network("layered", layered, (tc.Spec((SIZE, SIZE)), tc.Spec((SIZE, SIZE))))
GRAPH = tc.with_compression(NETWORK).graph()
WHOLE = tc.replay(tc.plan(GRAPH)).peak_bytes


@pytest.mark.parametrize("missing", [1, FREED, FREED + 1, 3 * FREED, 3 * FREED + 1])
def test_fewest_stages_are_recomputed_for_the_missing_bytes(missing: int) -> None:
    schedule = fewest_stages(GRAPH, flops(GRAPH), WHOLE - missing, 9.0)
    assert schedule is not None
    trace, stages = tc.replay(schedule), -(-missing // FREED)
    assert (trace.peak_bytes, trace.recomputations) == (WHOLE - stages * FREED, stages * AGAIN)
    w, x = np.random.default_rng(1).normal(size=(2, SIZE, SIZE)) / 8
    found, expected = (tc.run(each, w, x, 3) for each in (schedule, tc.plan(GRAPH)))
    assert found.trace == trace
    for ours, theirs in zip(leaves(found.gradients), leaves(expected.gradients), strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_fitting_graph_recomputes_nothing_and_infeasible_budget_gives_none() -> None:
    kept = fewest_stages(GRAPH, flops(GRAPH), WHOLE, 9.0)
    assert kept is not None
    assert tc.replay(kept).recomputations == 0
    assert fewest_stages(GRAPH, flops(GRAPH), VALUE, 9.0) is None
    assert fewest_stages(GRAPH, flops(GRAPH), WHOLE - 1, 0.0) is None  # no time
    for graph in (tc.networks.chain(8), tc.networks.mlp(3, 8).graph()):
        assert fewest_stages(graph, flops(graph), 1, 9.0) is None


@pytest.mark.long
def test_compression_with_recomputation_recomputes_few_stages() -> None:
    graph = NETWORK.graph()
    name, budget = "8 bits + recomputation", WHOLE - FREED - 1
    found = quick(NETWORK, "8 bits", name, budget=budget, time_limit=1.0, measure=False)
    row = found.row(name)
    few = fewest_stages(GRAPH, flops(GRAPH), budget, 9.0)
    assert few is not None
    assert row.times is not None
    whole = cost_of(tc.plan(graph), flops(graph))
    assert row.times <= cost_of(few, flops(GRAPH)) / whole
    assert not found.row("8 bits").fits
