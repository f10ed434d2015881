"""The bytes that networks take, measured, beside those that replay predicts.

Arrays are of a megabyte and more, so that what Python itself takes is small beside them.
"""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

import tinyckpt as tc
from tinyckpt.networks import (
    Network,
    bert,
    cnn100,
    gpt2,
    lenet5,
    llama,
    mobilenet_v1,
    resnet,
    unet_network,
    vgg,
    vit,
)

SEQUENCES: dict[str, Any] = {"width": 256, "length": 128, "batch": 4, "vocabulary": 1000}
NETWORKS: dict[str, Callable[[], Network]] = {
    "lenet5": lambda: lenet5(128, 64),
    "cnn100": lambda: cnn100(16, layers=4, width=48),
    "vgg16": lambda: vgg(16, 4, 64, width=32, hidden=64, batch_normed=True),
    "resnet18": lambda: resnet(18, 4, 64),
    "mobilenet": lambda: mobilenet_v1(16, 64),
    "unet": lambda: unet_network(2, 64, 3, 32),
    "vit": lambda: vit(2, 256, size=64, batch=4, patch=8),
    "bert": lambda: bert(2, **SEQUENCES, dropout=0.1),
    "gpt2": lambda: gpt2(2, **SEQUENCES),
    "gpt2_fused": lambda: gpt2(2, **SEQUENCES, fused=True),
    "llama": lambda: llama(2, **SEQUENCES, hidden=512),
}


def measured(call: Callable[[], Any]) -> int:
    """Return the most bytes held at a time during a call, by tracemalloc, after one before it."""
    call()
    gc.collect()
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("name", NETWORKS)
def test_the_measured_peak_is_the_predicted_one(name: str) -> None:
    network = NETWORKS[name]()
    graph, arrays = network.graph(), network.arrays()
    stored = tc.plan(graph, "store_all")
    peak = tc.replay(stored).peak_bytes
    assert measured(lambda: tc.run(stored, *arrays)) == pytest.approx(peak, rel=0.01)
    least = tc.replay(tc.plan(graph, "recompute_all")).peak_bytes
    budget = (peak + max(least, peak // 2)) // 2
    for schedule in (tc.plan(graph, "sqrt_n"), tc.plan(graph, budget=budget, time_limit=0.5)):
        program = tc.compile(schedule)
        expected = tc.replay(schedule).peak_bytes
        found = measured(lambda program=program: program(*arrays))
        assert found == pytest.approx(expected, rel=0.01)
