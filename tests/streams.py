"""Fake CuPy streams: computation is immediate, copies complete late (asynchronously).

Copies of a stream run in order: when something waits for an event of it, and, where ``progress`` is
set, at random before. A copy whose memory was freed is an error, and a value that has not arrived
is garbage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from weakref import ref

import numpy as np


class Event:
    """A position in a stream: the copies before it, and the events they wait for."""

    def __init__(self, stream: Stream, place: int) -> None:
        self.stream, self.place = stream, place

    @property
    def done(self) -> bool:
        """Whether all before it has run."""
        return self.stream.count >= self.place

    def synchronize(self) -> None:
        """Let all before it run."""
        self.stream.run(self.place)


class Stream:
    """A queue of copies. Those of the current stream are computation, and run at once."""

    every: ClassVar[list[Stream]] = []
    progress: ClassVar[Callable[[], bool]] = lambda: False

    def __init__(self, *, non_blocking: bool = False) -> None:
        assert non_blocking
        self.line: list[Callable[[], None]] = []
        self.count = 0
        self.waits_for_current = False
        Stream.every.append(self)

    def record(self) -> Event:
        """Return the event of what was handed over so far."""
        return Event(self, len(self.line))

    def wait_event(self, event: Event) -> None:
        """Let what is handed over from now on wait."""
        self.line.append(event.synchronize)
        self.waits_for_current |= event.stream is CURRENT
        if self is CURRENT:
            self.run(len(self.line))

    def copy(self, numbers: Callable[[], Any], into: Callable[[], Any]) -> None:
        """Hand a copy over, which has to be after what was computed so far."""
        assert self.waits_for_current, "what the copy reads or overwrites may not be computed yet"
        self.waits_for_current = False
        source, target = alive(numbers), alive(into)
        self.line.append(lambda: np.copyto(target(), source()))
        for stream in Stream.every:
            while stream.count < len(stream.line) and Stream.progress():
                stream.run(stream.count + 1)

    def run(self, place: int) -> None:
        """Run what stands before a place."""
        while self.count < place:
            work = self.line[self.count]
            work()
            self.line[self.count] = lambda: None
            self.count += 1


def alive(array: Callable[[], Any]) -> Callable[[], Any]:
    """Return what returns an array, if it is still held by somebody else."""
    found = ref(array())

    def get() -> Any:
        numbers = found()
        assert numbers is not None, "memory was given back while a copy was to use it"
        return numbers

    return get


CURRENT = Stream(non_blocking=True)


def get_current_stream() -> Stream:
    """Return the stream of what is computed."""
    return CURRENT


def alloc_pinned_memory(size: int) -> bytearray:
    """Return memory of the host, with garbage in it."""
    return bytearray(b"\xff" * size)
