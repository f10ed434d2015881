"""Interactive prompt for a prediction: lessons ask the reader before they show the answer.

Lessons also run non-interactively: in CI, in a pipe, in a test, in a notebook executed for a site.
There the prompt prints so and returns the default from the script.
"""

from __future__ import annotations

import builtins
import os
import re
import sys
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Any

# Integers with thousands separators or without, and decimals; a unit may follow.
NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:[,_]\d{3})+(?!\d)|\d+)(?:\.\d+)?|[-+]?\.\d+")
LONGEST = 100  # characters of an answer
SHORT = 8  # names: up to so many, a prompt lists all
COUNTS = {1: "one number", 2: "two numbers, with a space between them"}


def ask(question: str, otherwise: Any, among: Collection[str] = ()) -> Any:
    """Ask for a guess and return it; return ``otherwise`` in a non-interactive session.

    An empty line stands for ``otherwise`` too, which is a text, a number, or a tuple of numbers;
    the result has the same form. With names to choose ``among``, it is a tuple of some of these; a
    pattern such as ``f*`` selects several. Nothing waits for input in CI, in a pipe, in a test, or
    in a notebook without input.

    Raises:
        ValueError: ``otherwise`` has none of these forms.

    >>> ask("17 values: how many evaluations?", 0)
    17 values: how many evaluations? (non-interactive: using 0)
    0
    >>> ask("Which do you keep?", ("f2",), among=["f1", "f2", "f3"])
    Which do you keep? (non-interactive: using f2)
    ('f2',)
    """
    expected = expected_of(otherwise, among)
    prompt = f"{question} [{as_text(otherwise)}] "
    while is_interactive():
        try:
            text = input(prompt).strip()
        except (EOFError, NotImplementedError):  # the end of input; a notebook without any
            break
        if not text:
            return otherwise
        answer = parse_names(text, among) if among else parse_answer(text, otherwise)
        if answer is not None:
            return answer
        prompt = f"{expected}, please; or nothing, for {as_text(otherwise)}: "
    print(f"{question} (non-interactive: using {as_text(otherwise)})")
    return otherwise


def is_interactive() -> bool:
    """Return whether the session is interactive, so that a question may wait for an answer."""
    if os.environ.get("CI") or "PYTEST_CURRENT_TEST" in os.environ:
        return False
    shell = getattr(builtins, "get_ipython", lambda: None)()
    if hasattr(shell, "kernel"):  # a notebook; whether it takes input shows only when it is asked
        return True
    # The streams are None where a program has no console.
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def expected_of(otherwise: Any, among: Collection[str] = ()) -> str:
    """Return a description of the expected form of an answer."""
    if among:
        if not isinstance(otherwise, tuple) or not set(otherwise) <= set(among):
            raise ValueError(f"expected a tuple of names from the list, got {otherwise!r:.80}")
        names = list(among)
        some = names if len(names) <= SHORT else [*names[:2], "...", names[-1]]
        return f"some of {', '.join(some)}, with spaces between them"
    if isinstance(otherwise, str):
        return "a text"
    numbers = otherwise if isinstance(otherwise, tuple) else (otherwise,)
    if not numbers or not all(type(number) in (int, float) for number in numbers):
        raise ValueError(f"expected a text, a number, or a tuple of numbers, got {otherwise!r:.80}")
    return COUNTS.get(len(numbers), f"{len(numbers)} numbers")


def as_text(guess: Any) -> str:
    """Format a guess as one would type it."""
    return (" ".join(map(str, guess)) or "none") if isinstance(guess, tuple) else str(guess)


def parse_answer(text: str, otherwise: Any) -> Any:
    """Parse an answer of the same form as ``otherwise``; None if it has another one."""
    if len(text) > LONGEST:
        return None
    if isinstance(otherwise, str):
        return text
    found = [parse_number(word) for word in NUMBER.findall(text)]
    if isinstance(otherwise, tuple):
        return tuple(found) if len(found) == len(otherwise) else None
    return found[0] if len(found) == 1 else None


def parse_names(text: str, among: Collection[str]) -> tuple[str, ...] | None:
    """Return the names that an answer selects, in their own order; None if there is no such name.

    >>> parse_names("f2 g*", ["f1", "f2", "g1", "g2"])
    ('f2', 'g1', 'g2')
    >>> parse_names("none", ["f1"]), parse_names("h", ["f1"])
    ((), None)
    """
    words = text.replace(",", " ").split()
    if words == ["none"]:
        return ()
    if not all(any(fnmatchcase(name, word) for name in among) for word in words):
        return None
    return tuple(name for name in among if any(fnmatchcase(name, word) for word in words))


def parse_number(word: str) -> int | float:
    """Parse a number; an int if it is written as one."""
    plain = word.replace(",", "").replace("_", "")
    return float(plain) if "." in plain else int(plain)
