"""Benchmark: accuracy of a small ViT fine-tuned on digits with approximate gradients.

The network is trained with exact gradients on digits turned by 90 degrees, and then fine-tuned on
digits as they are: exactly; with 2-bit activations and memory-sharing norms, in both fits; and with
saved values quantised to 8 and to 4 bits. All start from the same parameters and see the same
batches. One of the 397 test images is a quarter of a percentage point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import table

import tinyckpt as tc
from tinyckpt.networks.digits import load_digits

SEEDS, BATCH, HEADS = 5, 100, 2
PRETRAINED, FINE_TUNED = 20, 8  # epochs
NETWORK = tc.networks.vit(2, 16, HEADS, size=8, batch=BATCH, patch=2, classes=10)


def images_of(rows: Any) -> Any:
    """Return digits as images of three equal channels."""
    return np.repeat(rows.reshape(-1, 1, 8, 8), 3, axis=1).astype("float32")


def trained(network: Any, params: Any, images: Any, labels: Any, epochs: int, seed: int) -> Any:
    """Return parameters after some epochs; a network with an argument more gets it as a seed."""
    steps = len(images) // BATCH
    step = tc.train_step(network.loss, tc.adam(tc.cosine_rate(3e-3, epochs * steps)))
    state, generator = step.init(params), np.random.default_rng(seed)
    for epoch in range(epochs):
        for index, batch in enumerate(np.split(generator.permutation(len(images)), steps)):
            more = [epoch * steps + index][: len(network.specs) - 3]
            state, _ = step(state, images[batch], labels[batch], *more)
    return state["parameters"]


def ways() -> dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]]:
    """Return each network, with conversions to and from its parameters."""
    found: dict[str, Any] = {"exact": (NETWORK, lambda params: params, lambda params: params)}
    for fit in ("published", "symmetric"):
        rewriting = tc.rewrite(NETWORK, fit=fit)
        found[f"ReGELU2 ({fit}), MS norms"] = (
            rewriting.network, rewriting.merged, rewriting.unmerged,
        )  # fmt: skip
    for bits in (8, 4):
        coded = tc.with_compression(NETWORK, bits=bits)
        found[f"codes of {bits} bits"] = coded, *found["exact"][1:]
    return found


def kept(network: Any) -> int:
    """Return the bytes of activations that store-all saves."""
    return sum(n.nbytes for n in tc.saved_values(network.graph()) if n.role == "activation")


if __name__ == "__main__":
    digits = load_digits()
    images, test = images_of(digits.images), images_of(digits.test_images)
    turned = np.rot90(images, axes=(2, 3)).copy()
    predict = tc.jit(lambda params, images: tc.networks.vit_logits(params, images, heads=HEADS))
    networks = ways()
    reached: dict[str, list[float]] = {name: [] for name in networks}
    for seed in range(SEEDS):
        begin = trained(NETWORK, NETWORK.arrays(seed)[0], turned, digits.labels, PRETRAINED, seed)
        for name, (network, there, back) in networks.items():
            params = back(
                trained(network, there(begin), images, digits.labels, FINE_TUNED, seed + SEEDS)
            )
            right = predict(params, test).argmax(1) == digits.test_labels
            reached[name].append(100 * float(right.mean()))
    exact, least = np.array(reached["exact"]), kept(NETWORK)
    body = [
        [name, f"{kept(networks[name][0]) / least:.3f}", f"{np.mean(values):.2f}",
         f"{np.mean(values - exact):+.2f}", ", ".join(f"{value:.1f}" for value in values)]
        for name, values in reached.items()
    ]  # fmt: skip
    header = ["derivatives", "kept / exact", "accuracy, %", "points more", "by seed"]
    table.write(
        "fine_tuning",
        "A small vision transformer, fine-tuned with approximate derivatives",
        [table.rows(header, body)],
        ["numpy"],
    )
