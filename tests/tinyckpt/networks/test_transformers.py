"""Transformers: seeded dropout, fused attention, labels of values."""

import numpy as np
import pytest

import tinyckpt as tc
from tests.tinyckpt.networks.small import arguments, equal, small
from tinyckpt.base.tree import leaves


@pytest.mark.parametrize("name", ["vit", "bert", "roberta", "gpt2"])
def test_dropout_masks_follow_seed_argument(name: str) -> None:
    network = small(name, dropout=0.2)
    *data, seed = arguments(name, network)
    assert (seed.shape, seed.dtype) == ((), "int64")
    graph = network.graph()
    results = [
        tc.run(tc.plan(graph, policy), *data, np.array(number))
        for policy, number in (("store_all", 1), ("recompute_all", 1), ("store_all", 2))
    ]
    assert equal(results[0].gradients, results[1].gradients)
    assert results[0].value == results[1].value != results[2].value
    # No two masks of two steps are the same: seeds of one network's masks are its own.
    seeds = [operator for operator in graph.operators if operator.kind == "seeded_dropout"]
    assert len([o for o in seeds if o.phase == "forward"]) == 2 * 2 + 1


@pytest.mark.parametrize("name", ["vit", "bert", "gpt2", "llama", "llama_grouped"])
def test_fused_attention_changes_saved_values_not_numbers(name: str) -> None:
    plain, fused = small(name), small(name, fused=True)
    data = arguments(name, plain)
    ours, theirs = (tc.run(tc.plan(network.graph()), *data) for network in (fused, plain))
    assert float(ours.value) == pytest.approx(float(theirs.value), rel=1e-12)
    for a, b in zip(leaves(ours.gradients), leaves(theirs.gradients), strict=True):
        assert np.allclose(a, b, rtol=1e-9, atol=1e-12)
    labels = {node.label for node in plain.graph().data} - {None}
    assert labels - {node.label for node in fused.graph().data} == {"attention_scores"}


@pytest.mark.parametrize("name", ["vit", "bert", "roberta", "gpt2"])
def test_values_are_labelled_per_layer(name: str) -> None:
    graph = small(name).graph()
    labels = [node.label for node in graph.data if node.label]
    kinds = ("attention_scores", "attention_out", "mlp_hidden", "mlp_out", "residual")
    assert {label: labels.count(label) for label in set(labels)} == dict.fromkeys(kinds, 2)
    scopes = {operator.scope for operator in graph.operators}
    assert {"layer1/attention", "layer2/mlp"} <= scopes
    kept = tc.replay(tc.plan(graph, "retain", keep="residual"))
    assert kept.peak_bytes < tc.replay(tc.plan(graph)).peak_bytes
