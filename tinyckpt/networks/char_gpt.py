"""Character-level language modelling: a text corpus, mini-batches, and a tiny GPT.

A token is a character. ``make text`` writes ``data/lessons.txt`` from the present lessons.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.networks.gpt2 import gpt2, gpt2_logits
from tinyckpt.networks.network import Network
from tinyckpt.training.transformations import jit

HEADS = 4  # of tiny_gpt
LENGTH = 64  # context length of tiny_gpt, in tokens


@dataclass(frozen=True, slots=True)
class Text:
    """A text as character tokens.

    Attributes:
        characters: the vocabulary, in the order of code points; a token is an index into it.
        tokens: int64, one for every character of the text.
    """

    characters: str
    tokens: Any

    def __str__(self) -> str:
        return f"{len(self.tokens):,} tokens of {len(self.characters)} characters"


def load_text() -> Text:
    """Return the text of the lessons, concatenated."""
    return tokenize(files("tinyckpt").joinpath("data/lessons.txt").read_text("utf-8"))


def tokenize(string: str) -> Text:
    """Tokenize a string, with the characters that occur in it as the vocabulary.

    >>> text = tokenize("a banana")
    >>> text.characters, text.tokens.tolist()
    (' abn', [1, 0, 2, 1, 3, 1, 3, 1])
    """
    characters = "".join(sorted(set(string)))
    return Text(characters, encode(characters, string))


def encode(characters: str, string: str) -> Any:
    """Return the tokens of a string.

    Raises:
        GraphError: if it has a character outside the vocabulary.
    """
    indices = {character: index for index, character in enumerate(characters)}
    unknown = sorted(set(string) - indices.keys())
    if unknown:
        raise GraphError(f"{unknown[0]!r} is not among the {len(characters)} characters")
    return np.array([indices[character] for character in string], np.int64)


def decode(characters: str, tokens: Any) -> str:
    """Return the string of a sequence of tokens."""
    return "".join(characters[token] for token in tokens)


def unigram_entropy(text: Text) -> float:
    """Return the unigram entropy, in nats per token: the loss of a model of character frequencies.

    >>> round(unigram_entropy(tokenize("abab")), 4)  # log 2
    0.6931
    """
    frequencies = np.bincount(text.tokens) / len(text.tokens)
    frequencies = frequencies[frequencies > 0]
    return float(-(frequencies * np.log(frequencies)).sum())


def batches(text: Text, batch: int, length: int, seed: int = 0) -> Iterator[tuple[Any, Any]]:
    """Yield random excerpts of the text without end: tokens, and for each the next token.

    Args:
        text: longer than ``length``.
        batch: excerpts per batch.
        length: tokens per excerpt.
        seed: of the random generator.

    Yields:
        Two arrays of int64 of shape ``(batch, length)``.

    Raises:
        GraphError: if the text is too short.
    """
    starts = len(text.tokens) - length
    if starts < 1:
        raise GraphError(f"a text of {len(text.tokens)} tokens has no {length} and one after them")
    generator = np.random.default_rng(seed)
    while True:
        positions = generator.integers(starts, size=(batch, 1)) + np.arange(length + 1)
        excerpts = text.tokens[positions]
        yield excerpts[:, :-1].copy(), excerpts[:, 1:].copy()


def tiny_gpt(
    layers: int = 2, width: int = 64, batch: int = 32, *, vocabulary: int | None = None,
    fused: bool = False, dtype: str = "float32",
) -> Network:  # fmt: skip
    """Build a character-level GPT that trains in minutes on a CPU; its arguments are ``gpt2``'s.

    Args:
        layers: blocks.
        width: of the residual stream; a multiple of 4, which is the number of heads.
        batch: sequences, of 64 tokens.
        vocabulary: number of characters; that of the lessons if not given.
        fused, dtype: as in ``gpt2``.
    """
    count = len(load_text().characters) if vocabulary is None else vocabulary
    return gpt2(
        layers, width, HEADS, LENGTH, batch, count, positions=LENGTH, fused=fused, dtype=dtype
    )


def generate(params: Any, text: Text, start: str, count: int, seed: int = 0) -> Iterator[str]:
    """Generate characters with ``tiny_gpt`` after a prompt: ancestral sampling, one at a time.

    Each is sampled from the network's distribution given the last 64 characters.

    Args:
        params: the network's.
        text: the text it was trained on, for its vocabulary.
        start: the prompt, at least one character.
        count: characters to generate.
        seed: of the random generator.
    """
    generator = np.random.default_rng(seed)
    predict = jit(lambda params, tokens: gpt2_logits(params, tokens, heads=HEADS))
    tokens = encode(text.characters, start).tolist()
    for _ in range(count):
        context = np.array([tokens[-LENGTH:]])
        logits = predict(params, context)[0, -1].astype(np.float64)
        weights = np.exp(logits - logits.max())  # softmax, before normalisation
        tokens.append(int(generator.choice(len(weights), p=weights / weights.sum())))
        yield text.characters[tokens[-1]]
