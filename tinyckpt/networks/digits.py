"""Handwritten digits (UCI, 8x8 pixels): the data set, an MLP and a CNN for it, SGD and accuracy.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, 1998, doi:10.24432/C50P49, CC BY 4.0; see data/ATTRIBUTION.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Any

import numpy as np

from tinyckpt.base.tree import leaves
from tinyckpt.core.tracing import scope
from tinyckpt.networks.layers import (
    Norm,
    batch_norm_training,
    check_image_size,
    classifier_head,
    conv_norm,
    conv_norm_specs,
    image_classifier,
    inference,
)
from tinyckpt.networks.network import Network, affine_specs, mlp, random_arrays
from tinyckpt.ops.activation import relu
from tinyckpt.ops.pooling import max_pool2d
from tinyckpt.planner.portfolio.resolve_policy import PolicyLike
from tinyckpt.training.transformations import jit, value_and_grad

IMAGES, TEST_IMAGES = 1797, 397
BATCH = 200
EPOCHS = 40
RATE, MOMENTUM = 0.1, 0.9  # of ``train``
STEPS = EPOCHS * (IMAGES - TEST_IMAGES) // BATCH


@dataclass(frozen=True, slots=True)
class DigitImages:
    """A training set of 1,400 images and a test set of 397.

    Attributes:
        images, labels: floats of shape (1400, 64), values 0 to 1; int64 of shape (1400,).
        test_images, test_labels: the same for the 397 test images.
    """

    images: Any
    labels: Any
    test_images: Any
    test_labels: Any


def load_digits() -> DigitImages:
    """Return the digits, split into training and test set after a fixed shuffle.

    The file is ordered by writer; after the shuffle every writer is in both sets.

    >>> digits = load_digits()
    >>> digits.images.shape, digits.test_images.shape
    ((1400, 64), (397, 64))
    """
    with files("tinyckpt").joinpath("data/digits.npz").open("rb") as file, np.load(file) as data:
        images = data["images"].reshape(-1, 64) / 16.0
        labels = data["labels"].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[:-TEST_IMAGES], order[-TEST_IMAGES:]
    return DigitImages(images[train], labels[train], images[test], labels[test])


def load_digit_images(dtype: str = "float32") -> DigitImages:
    """Return the digits as images for convolutions, of shape ``(1400, 1, 8, 8)``."""
    digits = load_digits()
    images, test_images = (
        rows.reshape(-1, 1, 8, 8).astype(dtype) for rows in (digits.images, digits.test_images)
    )
    return DigitImages(images, digits.labels, test_images, digits.test_labels)


def digits_network() -> Network:
    """Build the MLP classifier that ``train`` trains."""
    network = mlp(6, 32, BATCH, inputs=64, activation="tanh")
    return Network("digits:6x32", network.loss, network.specs)


def train(policy: PolicyLike) -> Iterator[tuple[float, Any]]:
    """Train the digits network by stochastic gradient descent with momentum.

    Yields:
        For every step, the loss before the update and the parameters after it.
    """
    digits, network = load_digits(), digits_network()
    params = random_arrays(network.specs[0], seed=0)
    velocities = [np.zeros_like(array) for array in leaves(params)]
    step = value_and_grad(network.loss, policy)
    generator = np.random.default_rng(0)
    for _ in range(EPOCHS):
        order = generator.permutation(len(digits.labels))
        for begin in range(0, len(order), BATCH):
            batch = order[begin : begin + BATCH]
            loss, gradients = step(params, digits.images[batch], digits.labels[batch])
            for array, gradient, velocity in zip(
                leaves(params), leaves(gradients), velocities, strict=True
            ):
                velocity *= MOMENTUM
                velocity -= RATE * gradient
                array += velocity
            yield float(loss), params


def accuracy(params: Any) -> float:
    """Return the test accuracy of the MLP, 0 to 1."""
    digits = load_digits()
    h = digits.test_images
    for layer in params[:-1]:
        h = np.tanh(h @ layer["w"] + layer["b"])
    predicted = (h @ params[-1]["w"] + params[-1]["b"]).argmax(axis=1)
    return float((predicted == digits.test_labels).mean())


# Convolutions ------------------------------------------------------------------------------------


def digits_cnn_logits(params: Any, images: Any, norm: Norm = batch_norm_training) -> Any:
    """Return the logits of the ten digits, of shape ``(batch, 10)``."""
    h = images
    for index, stage in enumerate(params["stages"], start=1):
        with scope(f"stage{index}"):
            if index > 1:
                h = max_pool2d(h, 2)
            for layer in stage:
                h = relu(conv_norm(h, layer, norm, padding=1))
    return classifier_head(h, params["affine"])


def digits_cnn(
    batch: int = 100, width: int = 16, *, statistics: bool = True, dtype: str = "float32"
) -> Network:
    """Build a small CNN for the digits: two stages of two convolutions with batch norm and relu.

    At its default width it has 16,794 parameters, and reaches 98 % test accuracy in a few epochs.
    Its arguments are ``(params, statistics, images, labels)``, its results the loss and updated
    running statistics; see ``layers``.

    Args:
        batch: images, of shape ``(1, 8, 8)``.
        width: channels of the first stage; the second has twice as many.
        statistics: whether running statistics are an argument and a result.
        dtype: of everything but the labels.
    """
    check_image_size("digits_cnn", 8, 8, batch=batch, width=width)
    widths = [[1, width, width], [width, 2 * width, 2 * width]]
    stages = [[conv_norm_specs(a, b, 3, dtype) for a, b in pairwise(stage)] for stage in widths]
    params = {"stages": stages, "affine": affine_specs(2 * width, 10, dtype)}
    return image_classifier(
        f"digits_cnn:{width}", digits_cnn_logits, params, (batch, 1, 8, 8), dtype,
        statistics=statistics,
    )  # fmt: skip


def cnn_accuracy(params: Any, statistics: Any) -> float:
    """Return the test accuracy of ``digits_cnn``, 0 to 1, with its running statistics."""
    digits = load_digit_images(params["affine"]["w"].dtype)

    def predict(params: Any, statistics: Any, images: Any) -> Any:
        return digits_cnn_logits(params, images, inference(statistics))

    predicted = jit(predict)(params, statistics, digits.test_images).argmax(axis=1)
    return float((predicted == digits.test_labels).mean())
