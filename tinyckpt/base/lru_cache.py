"""LRU cache of compiled programs, by shapes and static arguments; lock-free, safe across fork.

A lock could be inherited locked by a forked process. So there is none: each step is one atomic dict
operation, and a race between threads can at most compile a program twice, or evict one too many.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")

# Capacity per function or training step, at 1 to 2 kB per operator and program. Doubling it doubles
# the memory, and lets a function that cycles through up to 256 shapes avoid a compilation per call,
# which takes 60 to 200 times as long as a run on small arrays.
MOST_PROGRAMS = 128


@dataclass(slots=True)
class Entry(Generic[Made]):
    """A program, and the logical time of its last use."""

    program: Made
    used: int


class ProgramCache(Generic[Made]):
    """The compiled programs of one function, at most ``capacity``, or ``MOST_PROGRAMS``."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.entries: dict[Hashable, Entry[Made]] = {}
        self.clock = count()

    def __len__(self) -> int:
        return len(self.entries)

    def __reduce__(self) -> Any:
        return ProgramCache, (self.capacity,)

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the program for a key, compiling it on a miss; evict the least recently used."""
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries.setdefault(key, Entry(make(), 0))
        entry.used = next(self.clock)
        while len(self.entries) > (self.capacity or MOST_PROGRAMS):
            oldest, _ = min(list(self.entries.items()), key=lambda item: item[1].used)
            self.entries.pop(oldest, None)
        return entry.program
