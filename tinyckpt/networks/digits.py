"""The handwritten digits: real data, small enough to ship, and a network trained on them.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, 1998, doi:10.24432/C50P49, CC BY 4.0; see data/ATTRIBUTION.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from tinyckpt.api import value_and_grad
from tinyckpt.networks.network import Network, mlp, random_arrays
from tinyckpt.planning.asked import PolicyLike
from tinyckpt.tree import leaves

IMAGES, TEST_IMAGES = 1797, 397
BATCH = 200
EPOCHS = 40
STEPS = EPOCHS * (IMAGES - TEST_IMAGES) // BATCH


@dataclass(frozen=True, slots=True)
class Digits:
    """1,400 images to train on and 397 to test on.

    Attributes:
        images, labels: float64 of shape (1400, 64), values 0 to 1; int64 of shape (1400,).
        test_images, test_labels: likewise, 397 of them.
    """

    images: Any
    labels: Any
    test_images: Any
    test_labels: Any


def load_digits() -> Digits:
    """Return the digits, shuffled once and for all before they are divided.

    The file's order goes by writer; shuffled, every writer's hand is in both parts.
    """
    with files("tinyckpt").joinpath("data/digits.npz").open("rb") as file, np.load(file) as data:
        images = data["images"].reshape(-1, 64) / 16.0
        labels = data["labels"].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[:-TEST_IMAGES], order[-TEST_IMAGES:]
    return Digits(images[train], labels[train], images[test], labels[test])


def digits_network(layers: int = 6, width: int = 32, batch: int = BATCH) -> Network:
    """Return the classifier that ``train`` trains."""
    network = mlp(layers, width, batch, inputs=64, activation="tanh")
    return Network(f"digits:{layers}x{width}", network.loss, network.specs)


def train(
    policy: PolicyLike,
    epochs: int = EPOCHS,
    rate: float = 0.1,
    momentum: float = 0.9,
    seed: int = 0,
) -> Iterator[tuple[float, Any]]:
    """Train the digits network by stochastic gradient descent with momentum.

    Yields:
        After every step, the loss before it and the parameters after it.
    """
    digits, network = load_digits(), digits_network()
    params = random_arrays(network.specs[0], seed)
    velocities = [np.zeros_like(array) for array in leaves(params)]
    step = value_and_grad(network.loss, policy)
    generator = np.random.default_rng(seed)
    for _ in range(epochs):
        order = generator.permutation(len(digits.labels))
        for begin in range(0, len(order), BATCH):
            batch = order[begin : begin + BATCH]
            loss, gradients = step(params, digits.images[batch], digits.labels[batch])
            for array, gradient, velocity in zip(
                leaves(params), leaves(gradients), velocities, strict=True
            ):
                velocity *= momentum
                velocity -= rate * gradient
                array += velocity
            yield float(loss), params


def accuracy(params: Any) -> float:
    """Return the share of the test images that the network classifies correctly."""
    digits = load_digits()
    h = digits.test_images
    for layer in params[:-1]:
        h = np.tanh(h @ layer["w"] + layer["b"])
    predicted = (h @ params[-1]["w"] + params[-1]["b"]).argmax(axis=1)
    return float((predicted == digits.test_labels).mean())
