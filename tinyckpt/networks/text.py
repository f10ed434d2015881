"""A text small enough to ship, the project's own lessons, and a GPT that learns its characters.

A token is a character. ``make text`` writes ``data/lessons.txt`` from the lessons as they stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from tinyckpt.api import jit
from tinyckpt.base.errors import GraphError
from tinyckpt.networks.gpt2 import gpt2, gpt2_logits
from tinyckpt.networks.network import Network

HEADS = 4  # of tiny_gpt
LENGTH = 64  # tokens that tiny_gpt sees


@dataclass(frozen=True, slots=True)
class Text:
    """A text as tokens.

    Attributes:
        characters: those that occur, in the order of their code points; a token is an index.
        tokens: int64, one for every character of the text.
    """

    characters: str
    tokens: Any

    def __str__(self) -> str:
        return f"{len(self.tokens):,} tokens of {len(self.characters)} characters"


def load_text() -> Text:
    """Return the lessons, one after the other."""
    return text_of(files("tinyckpt").joinpath("data/lessons.txt").read_text("utf-8"))


def text_of(string: str) -> Text:
    """Return a text of one's own, with the characters that occur in it.

    >>> text = text_of("a banana")
    >>> text.characters, text.tokens.tolist()
    (' abn', [1, 0, 2, 1, 3, 1, 3, 1])
    """
    characters = "".join(sorted(set(string)))
    return Text(characters, encoded(characters, string))


def encoded(characters: str, string: str) -> Any:
    """Return the tokens of a string.

    Raises:
        GraphError: if it has a character that is not among those that there are.
    """
    indices = {character: index for index, character in enumerate(characters)}
    unknown = sorted(set(string) - indices.keys())
    if unknown:
        raise GraphError(f"{unknown[0]!r} is not among the {len(characters)} characters")
    return np.array([indices[character] for character in string], np.int64)


def decoded(characters: str, tokens: Any) -> str:
    """Return the string of some tokens."""
    return "".join(characters[token] for token in tokens)


def unigram_entropy(text: Text) -> float:
    """Return the loss, in nats a token, of who knows how often each character occurs and no more.

    >>> round(unigram_entropy(text_of("abab")), 4)  # log 2
    0.6931
    """
    shares = np.bincount(text.tokens) / len(text.tokens)
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())


def batches(text: Text, batch: int, length: int, seed: int = 0) -> Iterator[tuple[Any, Any]]:
    """Yield pieces of the text without end: tokens, and for each the token after.

    Args:
        text: longer than ``length``.
        batch: pieces at a time.
        length: tokens a piece.
        seed: the same one draws the same pieces.

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
        places = generator.integers(starts, size=(batch, 1)) + np.arange(length + 1)
        pieces = text.tokens[places]
        yield pieces[:, :-1].copy(), pieces[:, 1:].copy()


def tiny_gpt(
    layers: int = 2, width: int = 64, batch: int = 32, *, vocabulary: int | None = None,
    fused: bool = False, dtype: str = "float32",
) -> Network:  # fmt: skip
    """Return a GPT for characters that learns in minutes on a CPU; its arguments are ``gpt2``'s.

    Args:
        layers: blocks.
        width: of the residual stream; a multiple of 4, which is the number of heads.
        batch: sequences, of 64 tokens.
        vocabulary: characters; those of the lessons if not given.
        fused, dtype: as in ``gpt2``.
    """
    count = len(load_text().characters) if vocabulary is None else vocabulary
    return gpt2(
        layers, width, HEADS, LENGTH, batch, count, positions=LENGTH, fused=fused, dtype=dtype
    )


def written(params: Any, text: Text, start: str, count: int, seed: int = 0) -> Iterator[str]:
    """Yield what ``tiny_gpt`` writes after some characters, one at a time.

    Each is drawn by the probabilities that the network gives, from the last 64 characters.

    Args:
        params: the network's.
        text: whose characters it was trained on.
        start: at least one character.
        count: how many to write.
        seed: the same one draws the same characters.
    """
    generator = np.random.default_rng(seed)
    predict = jit(lambda params, tokens: gpt2_logits(params, tokens, heads=HEADS))
    tokens = encoded(text.characters, start).tolist()
    for _ in range(count):
        seen = np.array([tokens[-LENGTH:]])
        logits = predict(params, seen)[0, -1].astype(np.float64)
        shares = np.exp(logits - logits.max())
        tokens.append(int(generator.choice(len(shares), p=shares / shares.sum())))
        yield text.characters[tokens[-1]]
