"""Running statistics of batch norm as results, and inference by them."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.tinyckpt.networks.small import CLASSES, arguments, equal, small
from tinyckpt.base.tree import leaves
from tinyckpt.networks import inference, resnet_logits
from tinyckpt.networks.digits import digits_cnn


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize("name", ["vgg16_bn", "resnet18", "resnet50", "mobilenet"])
def test_recomputed_statistics_are_not_updated_twice(name: str) -> None:
    plain, network = small(name), small(name, statistics=True)
    assert network.parameter_count == plain.parameter_count
    params, statistics, images, labels = arguments(name, network)
    assert len(statistics) == str(network.specs[0]).count("scale")
    expected = tc.run(tc.plan(plain.graph()), params, images, labels)
    graph, found = network.graph(), []
    for policy in ("store_all", "sqrt_n", "recompute_all"):
        result = tc.run(tc.plan(graph, policy), params, statistics, images, labels)
        value, updated = result.value
        assert value == expected.value
        assert equal(result.gradients, expected.gradients)
        found.append(updated)
    assert equal(found[0], found[1])
    assert equal(found[0], found[2])


def test_updated_statistics_are_nine_tenths_old_one_tenth_batch() -> None:
    network = small("resnet18", statistics=True)
    params, statistics, images, labels = arguments("resnet18", network)
    assert statistics[0]["mean"].tolist() == [0, 0]
    assert statistics[0]["variance"].tolist() == [1, 1]
    _, updated = tc.run(tc.plan(network.graph()), params, statistics, images, labels).value
    first = tc.jit(lambda x, w: tc.conv2d(x, w, stride=2, padding=3))
    h = first(images, params["first"]["w"])
    axes = (0, 2, 3)
    assert np.allclose(updated[0]["mean"], 0.1 * h.mean(axes), rtol=1e-12)
    assert np.allclose(updated[0]["variance"], 0.9 + 0.1 * h.var(axes, ddof=1), rtol=1e-12)


def test_inference_uses_given_statistics_not_batch() -> None:
    network = small("resnet18", statistics=True)
    params, statistics, images, labels = arguments("resnet18", network)
    _, statistics = tc.run(tc.plan(network.graph()), params, statistics, images, labels).value

    def predict(params: Any, statistics: Any, images: Any) -> Any:
        return resnet_logits(params, images, inference(statistics))

    both = tc.jit(predict)(params, statistics, images)
    alone = tc.jit(predict)(params, statistics, images[:1])
    assert both.shape == (2, CLASSES)
    assert np.allclose(both[:1], alone, rtol=1e-12)


def test_running_statistics_of_float16_are_float32() -> None:
    network = digits_cnn(20, 4, dtype="float16")
    step = tc.train_step(network.loss, tc.sgd(0.01), carry=True)
    params, statistics, *batch = network.arrays()
    state, _ = step(step.init(params, statistics), *batch)
    assert {array.dtype.name for array in leaves(state["carried"])} == {"float32"}
    assert all(np.isfinite(array).all() for array in leaves(state))
