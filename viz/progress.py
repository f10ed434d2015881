"""Progress bars for long work, on a terminal only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def with_bar(items: Iterator[T], count: int, what: str, unit: str) -> Iterator[T]:
    """Yield the items behind a progress bar; without one where stderr is no terminal."""
    from tqdm import tqdm

    yield from tqdm(items, total=count, desc=what, unit=unit, disable=None, leave=False)
