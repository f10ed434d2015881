"""argparse types: the text of an option to its value, or an error that says what is expected."""

from __future__ import annotations

import argparse
import math

from tinyckpt.base.errors import BudgetError, did_you_mean
from tinyckpt.planner.model.budget import parse_written_budget
from tinyckpt.planner.portfolio.policies import POLICIES

BASE = "'1.5 GiB', a number of bytes, or 'start' for what is held at the start"


def policy_name(text: str) -> str:
    """Validate the name of a policy; the function of a file is loaded later."""
    if text not in POLICIES and ".py:" not in text:
        raise argparse.ArgumentTypeError(
            f"unknown policy {text!r}{did_you_mean(text, POLICIES)}; known are "
            f"{', '.join(POLICIES)} and path/to/file.py:function"
        )
    return text


def known_policy(text: str) -> str:
    """Validate the name of a policy, where a function in a file is not accepted."""
    if ".py:" in text:
        raise argparse.ArgumentTypeError(
            f"{text!r}: here policies are chosen by name; known are {', '.join(POLICIES)}"
        )
    return policy_name(text)


def labels(text: str) -> str | dict[int | str, str]:
    """Parse ``NAME=TEXT,NAME=TEXT`` to a dict; any other text is returned as it is."""
    if "=" not in text:
        return text
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and equals for name, equals, _ in pairs):
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=TEXT, with commas between them")
    return {int(name) if name.isdecimal() else name: label for name, _, label in pairs}


def seconds(text: str) -> float:
    """Parse a nonnegative number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, 0 or more, such as 6")
    return number


def moments(text: str) -> tuple[float, float]:
    """Parse the two times of ``FROM,TO``."""
    try:
        begin, end = map(float, text.split(","))
    except ValueError:
        message = f"{text!r}: expected two moments, such as 1.5,2.25"
        raise argparse.ArgumentTypeError(message) from None
    return begin, end


def holds(text: str) -> tuple[float, float]:
    """Parse ``S``, seconds for both ends, or ``FIRST,LAST``."""
    first, _, last = text.partition(",")
    try:
        return float(first), float(last or first)
    except ValueError:
        message = f"{text!r}: expected seconds, such as 2, or 0.5,2 for the first and the last"
        raise argparse.ArgumentTypeError(message) from None


def base(text: str) -> int | str:
    """Parse a number of bytes, or ``start``."""
    try:
        budget = parse_written_budget(text, BASE)
    except BudgetError:
        budget = None
    if text != "start" and (budget is None or budget.unit not in ("bytes", "unsaid")):
        raise argparse.ArgumentTypeError(f"{text!r}: expected {BASE}")
    return text if budget is None else int(budget.amount)
