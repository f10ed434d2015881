"""Digits as images, and the CNN trained on them."""

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.base.tree import leaves
from tinyckpt.networks import random_arrays
from tinyckpt.networks.digits import cnn_accuracy, digits_cnn, load_digit_images, load_digits


def test_digit_images_are_reshaped_rows() -> None:
    rows, images = load_digits(), load_digit_images()
    assert (images.images.shape, images.test_images.shape) == ((1400, 1, 8, 8), (397, 1, 8, 8))
    assert images.images.dtype == "float32"
    assert np.array_equal(images.images.reshape(-1, 64), rows.images)
    assert np.array_equal(images.test_labels, rows.test_labels)


@pytest.mark.long
def test_digits_cnn_reaches_98_percent_test_accuracy() -> None:
    digits, network = load_digit_images(), digits_cnn()
    assert network.parameter_count == 16_794
    params, statistics = random_arrays(network.specs[:2])
    step = tc.value_and_grad(network.loss, "sqrt_n")
    generator = np.random.default_rng(0)
    squares = [np.zeros_like(array) for array in leaves(params)]
    epochs = 5
    for epoch in range(epochs):
        order = generator.permutation(len(digits.labels))
        for begin in range(0, len(order), 100):
            batch = order[begin : begin + 100]
            (_, statistics), gradients = step(
                params, statistics, digits.images[batch], digits.labels[batch]
            )
            rate = 0.03 * (1 - epoch / epochs)
            for array, gradient, square in zip(
                leaves(params), leaves(gradients), squares, strict=True
            ):
                square += gradient**2
                array -= rate * gradient / np.sqrt(square + 1e-10)  # Adagrad
    assert cnn_accuracy(params, statistics) > 0.98
