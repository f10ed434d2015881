"""Train a CNN on handwritten digits within a memory budget: 98 % accuracy in ten epochs.

    python examples/train_digits.py             # about a minute on two cores
    python examples/train_digits.py --epochs 3 --budget "95 %"

Batch normalisation's running statistics are explicit: an argument and a result of the loss, so that
a recomputation cannot update them twice.
"""

from __future__ import annotations

import argparse

import numpy as np
from tqdm import tqdm

import tinyckpt as tc
from tinyckpt.networks.digits import cnn_accuracy, digits_cnn, load_digit_images

BATCH = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--budget", default="90 %", help="share of store-all's peak")
    options = parser.parse_args()
    digits, network = load_digit_images(), digits_cnn(BATCH)
    steps = len(digits.images) // BATCH
    rate = tc.linear_rate(0.05, steps=options.epochs * steps)
    step = tc.train_step(network.loss, tc.momentum(rate), budget=options.budget, carry=True)
    params, statistics, *_ = tc.networks.random_arrays(network.specs, seed=0)
    state = step.init(params, statistics)
    generator = np.random.default_rng(0)
    for epoch in range(1, options.epochs + 1):
        order = generator.permutation(len(digits.images))
        batches = np.split(order[: steps * BATCH], steps)
        losses = []
        for batch in tqdm(batches, desc=f"epoch {epoch}", leave=False):
            state, loss = step(state, digits.images[batch], digits.labels[batch])
            losses.append(float(loss))
        reached = cnn_accuracy(state["parameters"], state["carried"])
        print(f"epoch {epoch}: loss {np.mean(losses):.4f}, {100 * reached:.1f} % of the test part")


if __name__ == "__main__":
    main()
