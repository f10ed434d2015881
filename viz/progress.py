"""Progress bar (tqdm) over an iterator, shown on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def with_bar(items: Iterator[T], count: int, what: str, unit: str) -> Iterator[T]:
    """Return the items, with a progress bar unless stderr is not a terminal.

    >>> from tinyckpt import viz
    >>> list(viz.with_bar(iter("abc"), 3, "planning", "steps"))
    ['a', 'b', 'c']
    """
    if not sys.stderr.isatty():
        return items
    from tqdm import tqdm

    bar: Iterator[T] = iter(tqdm(items, total=count, desc=what, unit=unit, leave=False))
    return bar
