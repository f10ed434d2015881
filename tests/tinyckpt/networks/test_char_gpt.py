"""The shipped text, its tokens and batches, and the tiny GPT trained on it."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.base.tree import leaves
from tinyckpt.networks import random_arrays
from tinyckpt.networks.char_gpt import (
    batches,
    decode,
    encode,
    generate,
    load_text,
    tiny_gpt,
    tokenize,
    unigram_entropy,
)

LESSONS = Path(__file__).parents[3] / "lessons"


def test_shipped_text_equals_lessons() -> None:
    """If a lesson was changed on purpose, run ``make text``."""
    lessons = "".join(path.read_text("utf-8") for path in sorted(LESSONS.glob("*.py")))
    text = load_text()
    assert decode(text.characters, text.tokens) == lessons, "run make text"
    assert str(text) == f"{len(lessons):,} tokens of {len(set(lessons))} characters"


def test_tokens_index_characters_of_text() -> None:
    text = tokenize("banana")
    assert (text.characters, text.tokens.tolist()) == ("abn", [1, 0, 2, 0, 2, 0])
    assert decode(text.characters, encode(text.characters, "nab")) == "nab"
    with pytest.raises(tc.GraphError, match="'c' is not among the 3 characters"):
        encode(text.characters, "cab")
    # a half, n a third, b a sixth.
    expected = np.log(2) / 2 + np.log(3) / 3 + np.log(6) / 6
    assert unigram_entropy(text) == pytest.approx(expected, rel=1e-12)


def test_batches_are_excerpts_with_next_tokens() -> None:
    text = tokenize("".join(map(chr, range(97, 117))))
    drawn = list(islice(batches(text, 5, 7, seed=1), 40))
    for tokens, labels in drawn:
        assert (tokens.shape, labels.shape, tokens.dtype) == ((5, 7), (5, 7), np.int64)
        assert np.array_equal(tokens, tokens[:, :1] + np.arange(7))
        assert np.array_equal(labels, tokens + 1)
    starts = {int(start) for tokens, _ in drawn for start in tokens[:, 0]}
    assert starts == set(range(20 - 7))  # the last piece ends with the text
    again = next(batches(text, 5, 7, seed=1))
    assert np.array_equal(again[0], drawn[0][0])
    assert not np.array_equal(next(batches(text, 5, 7, seed=2))[0], again[0])
    with pytest.raises(tc.GraphError, match="a text of 20 tokens has no 20 and one after them"):
        next(batches(text, 5, 20))


@pytest.mark.long
def test_tiny_gpt_learns_text() -> None:
    text = tokenize("to be, or not to be: that is the question. " * 20)
    network = tiny_gpt(1, 16, 8, vocabulary=len(text.characters))
    params = random_arrays(network.specs[0])
    squares = [np.zeros_like(array) for array in leaves(params)]
    step = tc.value_and_grad(network.loss, "sqrt_n")
    for tokens, labels in islice(batches(text, 8, 64), 40):
        loss, gradients = step(params, tokens, labels)
        for array, gradient, square in zip(leaves(params), leaves(gradients), squares, strict=True):
            square += gradient**2
            array -= 0.1 * gradient / np.sqrt(square + 1e-10)  # Adagrad
    assert loss < 0.6 * unigram_entropy(text)
    sample = "".join(generate(params, text, "to be", 80, seed=3))
    assert sample == "".join(generate(params, text, "to be", 80, seed=3))
    assert len(sample) == 80
    assert set(sample) <= set(text.characters)
    assert sample != "".join(generate(params, text, "to be", 80, seed=4))
