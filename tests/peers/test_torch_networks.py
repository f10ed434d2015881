"""Networks at small sizes, in float64, against PyTorch with the same parameters."""

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.tinyckpt.networks.small import SMALL, arguments, small
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.networks import inference, resnet_logits

torch: Any = pytest.importorskip("torch")
peer: Any = import_module("tests.peers.torch_networks")
sequences: Any = import_module("tests.peers.torch_transformers")


def tensors(tree: Any, trained: bool = False) -> Any:
    """Return a tree of tensors, which PyTorch differentiates with respect to if ``trained``."""
    return map_leaves(lambda x: torch.tensor(np.asarray(x), requires_grad=trained), tree)


def assert_close(ours: Any, theirs: Any) -> None:
    """Check trees of arrays to a relative error of 1e-10.

    What is 0 but for rounding, such as the gradient of a bias before a batch norm, is as small as
    the largest array's rounding.
    """
    pairs = list(zip(leaves(ours), leaves(theirs), strict=True))
    largest = max(float(np.abs(b).max()) for _, b in pairs)
    for a, b in pairs:
        allowed = 1e-10 * float(np.abs(b).max()) + 1e-13 * largest
        assert float(np.abs(a - b).max()) <= allowed


@pytest.mark.parametrize("name", SMALL)
def test_network_losses_and_gradients_match_pytorch(name: str) -> None:
    network = small(name)
    params, *data = arguments(name, network, seed=4)
    result = tc.run(tc.plan(network.graph()), params, *data)
    trained = tensors(params, trained=True)
    loss_of = sequences.LOSSES.get(name) or partial(peer.loss_of, name)
    loss = loss_of(trained, *tensors(data))
    loss.backward()
    assert float(result.value) == pytest.approx(float(loss.detach()), rel=1e-10)
    assert_close(result.gradients, map_leaves(lambda x: x.grad.numpy(), trained))


@pytest.mark.parametrize("name", ["resnet18", "vgg16_bn"])
def test_running_statistics_match_pytorch(name: str) -> None:
    network = small(name, statistics=True)
    arrays = arguments(name, network, seed=4)
    _, updated = tc.run(tc.plan(network.graph()), *arrays).value
    params, statistics, images, _ = tensors(list(arrays))
    peer.LOGITS[name](params, images, peer.BatchNorm(statistics))  # changes them in their place
    assert_close(updated, map_leaves(lambda x: x.numpy(), statistics))
    if name == "resnet18":
        predict = tc.jit(lambda params, given, x: resnet_logits(params, x, inference(given)))
        theirs = peer.LOGITS[name](params, images, peer.BatchNorm(statistics, training=False))
        assert_close(predict(arrays[0], updated, arrays[2]), theirs.numpy())
