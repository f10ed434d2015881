"""Train a character-level GPT of two blocks on this project's lessons, in half the memory.

    python examples/train_gpt.py             # about four minutes on two cores
    python examples/train_gpt.py --steps 200 --budget "75 %"

The baseline is the unigram entropy: the loss of a model that knows only character frequencies.
"""

from __future__ import annotations

import argparse
from itertools import islice

from tqdm import tqdm

import tinyckpt as tc
from tinyckpt.networks.char_gpt import batches, generate, load_text, tiny_gpt, unigram_entropy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--budget", default="50 %", help="share of store-all's peak")
    parser.add_argument("--characters", type=int, default=400, help="number to generate at the end")
    parser.add_argument("--save", default="gpt.npz", help="path of the saved state")
    options = parser.parse_args()
    text, network = load_text(), tiny_gpt()
    print(f"{text}; unigram entropy {unigram_entropy(text):.3f} nats")
    rate = tc.cosine_rate(3e-3, steps=options.steps, warmup=options.steps // 20)
    step = tc.train_step(network.loss, tc.adamw(rate), budget=options.budget)
    params, *batch = tc.networks.random_arrays(network.specs, seed=0)
    state = step.init(params)
    print(tc.ledger(step.schedule(state, *batch)))

    losses = []
    with tqdm(islice(batches(text, 32, 64), options.steps), total=options.steps) as bar:
        for tokens, labels in bar:
            state, loss = step(state, tokens, labels)
            losses.append(float(loss))
            bar.set_postfix(loss=f"{losses[-1]:.3f}")
    tc.save_params(state, options.save)
    reached = sum(losses[-50:]) / len(losses[-50:])
    print(f"loss {reached:.3f}, {100 * reached / unigram_entropy(text):.0f} % of the entropy")
    print("def " + "".join(generate(state["parameters"], text, "def ", options.characters)))


if __name__ == "__main__":
    main()
