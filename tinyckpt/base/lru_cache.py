"""Programs by what they are for: a cache that forgets the least recently used.

It has no lock, which a forked process could inherit locked: each of its steps is one operation of a
dict, and threads that are in it at once can at most make a program twice, or forget one too many.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")

# Programs that one function or training step keeps, of 1 to 2 kB per operator. Twice as many take
# twice the memory, and let a function that is called with up to 256 shapes in turn go without
# making a program in every call: 60 to 200 times as long as running one on small arrays.
MOST_PROGRAMS = 128


@dataclass(slots=True)
class Entry(Generic[Made]):
    """A program, and when it was used last, in uses of the cache."""

    program: Made
    used: int


class Programs(Generic[Made]):
    """The programs of one function, at most ``MOST_PROGRAMS``; a copy of it begins empty."""

    def __init__(self) -> None:
        self.entries: dict[Hashable, Entry[Made]] = {}
        self.clock = count()

    def __len__(self) -> int:
        return len(self.entries)

    def __reduce__(self) -> Any:
        return Programs, ()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the program for a key, made if there is none."""
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries.setdefault(key, Entry(make(), 0))
        entry.used = next(self.clock)
        while len(self.entries) > MOST_PROGRAMS:
            oldest, _ = min(list(self.entries.items()), key=lambda item: item[1].used)
            self.entries.pop(oldest, None)
        return entry.program
