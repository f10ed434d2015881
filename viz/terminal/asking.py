"""Questions of lessons: who sits at a terminal is asked before the answer is shown.

A lesson also runs where nobody can answer: in CI, in a pipe, in a test, in a notebook that is
executed for a site. There it says so and goes on with the guess that stands in the script.
"""

from __future__ import annotations

import builtins
import os
import re
import sys
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Any

# Whole numbers with separators or without, and decimals; a unit may follow.
NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:[,_]\d{3})+(?!\d)|\d+)(?:\.\d+)?|[-+]?\.\d+")
LONGEST = 100  # characters of an answer
SHORT = 8  # names that are all told when they are to be chosen among
COUNTS = {1: "one number", 2: "two numbers, with a space between them"}


def ask(question: str, otherwise: Any, among: Collection[str] = ()) -> Any:
    """Ask for a guess, and return it; ``otherwise`` where nobody can answer.

    An empty line stands for ``otherwise`` too, which is a text, a number, or a tuple of numbers:
    so is what is returned. With names to choose ``among``, it is a tuple of some of these; a
    pattern such as ``f*`` may be typed for several. Nothing waits in CI, in a pipe, in a test, or
    in a notebook without input.

    Raises:
        ValueError: The guess to go on with is none of these.

    >>> ask("17 values: how many evaluations?", 0)
    17 values: how many evaluations? Nobody is asked here, so: 0
    0
    >>> ask("Which do you keep?", ("f2",), among=["f1", "f2", "f3"])
    Which do you keep? Nobody is asked here, so: f2
    ('f2',)
    """
    expected = expected_of(otherwise, among)
    prompt = f"{question} [{as_text(otherwise)}] "
    while is_somebody_there():
        try:
            text = input(prompt).strip()
        except (EOFError, NotImplementedError):  # the end of input; a notebook without any
            break
        if not text:
            return otherwise
        answer = names_of(text, among) if among else answer_of(text, otherwise)
        if answer is not None:
            return answer
        prompt = f"{expected}, please; or nothing, for {as_text(otherwise)}: "
    print(f"{question} Nobody is asked here, so: {as_text(otherwise)}")
    return otherwise


def is_somebody_there() -> bool:
    """Return whether a question may wait for an answer."""
    if os.environ.get("CI") or "PYTEST_CURRENT_TEST" in os.environ:
        return False
    shell = getattr(builtins, "get_ipython", lambda: None)()
    if hasattr(shell, "kernel"):  # a notebook; whether it has input, only a question tells
        return True
    # None, where a program has no console.
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def expected_of(otherwise: Any, among: Collection[str] = ()) -> str:
    """Return in words what an answer has to be."""
    if among:
        if not isinstance(otherwise, tuple) or not set(otherwise) <= set(among):
            raise ValueError(f"a guess is a tuple of names that there are, not {otherwise!r:.80}")
        names = list(among)
        some = names if len(names) <= SHORT else [*names[:2], "...", names[-1]]
        return f"some of {', '.join(some)}, with spaces between them"
    if isinstance(otherwise, str):
        return "a text"
    numbers = otherwise if isinstance(otherwise, tuple) else (otherwise,)
    if not numbers or not all(type(number) in (int, float) for number in numbers):
        raise ValueError(
            f"a guess is a text, a number, or a tuple of numbers, not {otherwise!r:.80}"
        )
    return COUNTS.get(len(numbers), f"{len(numbers)} numbers")


def as_text(guess: Any) -> str:
    """Return a guess as one would type it."""
    return (" ".join(map(str, guess)) or "none") if isinstance(guess, tuple) else str(guess)


def answer_of(text: str, otherwise: Any) -> Any:
    """Return an answer of the same form as ``otherwise``; None if it has another one."""
    if len(text) > LONGEST:
        return None
    if isinstance(otherwise, str):
        return text
    found = [number_of(word) for word in NUMBER.findall(text)]
    if isinstance(otherwise, tuple):
        return tuple(found) if len(found) == len(otherwise) else None
    return found[0] if len(found) == 1 else None


def names_of(text: str, among: Collection[str]) -> tuple[str, ...] | None:
    """Return the names that an answer has, in their own order; None if there is no such name.

    >>> names_of("f2 g*", ["f1", "f2", "g1", "g2"]), names_of("none", ["f1"]), names_of("h", ["f1"])
    (('f2', 'g1', 'g2'), (), None)
    """
    words = text.replace(",", " ").split()
    if words == ["none"]:
        return ()
    if not all(any(fnmatchcase(name, word) for name in among) for word in words):
        return None
    return tuple(name for name in among if any(fnmatchcase(name, word) for word in words))


def number_of(word: str) -> int | float:
    """Return the number that a word is; whole if it is written so."""
    plain = word.replace(",", "").replace("_", "")
    return float(plain) if "." in plain else int(plain)
