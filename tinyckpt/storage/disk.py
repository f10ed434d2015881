"""The disk as host memory: what a schedule moves to the host waits in a file.

The file has no name. On POSIX it is unlinked as it is made, and on Windows it is marked to be
deleted when it is closed; either way the system takes it back when the process ends, killed or not.
Places in it are used again once nothing waits in them.

Any number of threads may share a backend, and so may processes: each writes to a file of its own,
a forked one too, from the first value on that it writes. What its parent wrote stays the parent's.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from tempfile import TemporaryFile, gettempdir
from threading import Lock
from typing import Any
from weakref import finalize, ref

import numpy as np

from tinyckpt.base.errors import BackendError, OptionError
from tinyckpt.base.units import size_text
from tinyckpt.core.backend import NUMPY, Backend
from tinyckpt.storage.host import Bound, by_memory, inverse

FORKS = [0]  # between the first process and this one; a process may have the id of one that ended
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: FORKS.append(FORKS.pop() + 1))


def process() -> tuple[int, int]:
    """Return what tells this process from those that it was forked from."""
    return os.getpid(), FORKS[0]


def on_disk(folder: str | os.PathLike[str] | None = None) -> Backend:
    """Return NumPy's backend with the disk for a host.

    It may be pickled, and opens a file of its own on the other side.

    >>> import numpy as np, tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(16), "offload")
    >>> x = np.ones((8, 8))
    >>> result = tc.run(schedule, x, backend=tc.on_disk())
    >>> bool(np.array_equal(result.gradients, tc.run(schedule, x).gradients))
    True

    Args:
        folder: where the file is made; that of the system for temporary files, if not given.

    Raises:
        OptionError: if the folder is no path.
        BackendError: if no file can be made there; later, if the disk is full, or a forked process
            reads what its parent wrote.
    """
    try:
        path = None if folder is None else os.fsdecode(folder)
    except TypeError:
        raise OptionError(f"folder={folder!r:.80}; on_disk expects a folder's path") from None
    return replace(NUMPY, host=Disk(path))


class Disk:
    """A folder, and the file there that this process writes to.

    Called, it returns itself: it stands where a backend has what makes the host of a run.
    """

    def __init__(self, folder: str | None) -> None:
        self.folder = folder
        self.file = File(folder)

    def __call__(self) -> Disk:
        return self

    def __reduce__(self) -> Any:
        """Pickle the folder alone."""
        return Disk, (self.folder,)

    def park(self, array: Any) -> DiskValue:
        """Write an array to the file; return what reads it again.

        Raises:
            BackendError: if it cannot be written.
        """
        order = by_memory(array)
        dense = np.asarray(array.transpose(order), order="C")
        file = self.file
        if file.process != process():
            # Two threads may make two of them: what each writes is read from where it was written.
            file = self.file = File(self.folder)
        return file.write(dense, order)

    def fetch(self, parked: DiskValue, bound: Bound, readers: Sequence[int]) -> Any:
        """Return a new array with what was written; it is there at once.

        Raises:
            BackendError: if it cannot be read, or was written before this process was forked.
        """
        dense = parked.file.read(parked.place, parked.shape, parked.dtype)
        return dense.transpose(inverse(parked.order))

    def settle(self) -> None:
        """Do nothing: nothing is on its way."""


class File:
    """A nameless file of one process, and which of its bytes are in use.

    Whatever changes is changed under the lock, but for ``freed``, to which the garbage collector
    appends what nobody needs any more: at any moment in any thread, also in one that is here and
    has the lock. ``reclaim`` takes it out. It runs no code of Python's to append, in which an
    interrupt would be ignored, and the place lost.

    An interrupt anywhere else may lose a place until nothing waits; none is ever used twice.
    """

    def __init__(self, folder: str | None) -> None:
        self.process = process()
        try:
            self.folder = gettempdir() if folder is None else folder
            self.raw: Any = TemporaryFile(dir=self.folder, buffering=0, prefix="tinyckpt-")  # noqa: SIM115
        except (OSError, ValueError) as error:
            raise BackendError(f"on_disk: no file can be made in {folder!r}: {error}") from error
        finalize(self, self.raw.close)
        self.number = self.raw.fileno()
        self.identity = self.found()
        self.lock = Lock()
        self.end = 0
        self.unused: dict[int, list[int]] = {}  # places by their size
        self.waiting: dict[int, Waiting] = {}  # by their identities
        self.freed: deque[Waiting] = deque()

    def write(self, dense: Any, order: tuple[int, ...]) -> DiskValue:
        """Write a C-contiguous array where there is room; return what reads it again.

        Raises:
            BackendError: if the system refuses; nothing is taken then.
        """
        with self.lock:
            self.reclaim()
            self.check()
            try:
                place = self.put(dense, dense.nbytes)
            except OSError:
                # The disk may be full: a larger place will do, and the end may be nearer.
                self.gather()
                fitting = [n for n, places in self.unused.items() if places and n >= dense.nbytes]
                try:
                    place = self.put(dense, min(fitting, default=-1))
                except OSError as error:
                    self.shorten()
                    raise BackendError(
                        f"on_disk: {size_text(dense.nbytes)} cannot be written in {self.folder}, "
                        f"with {size_text(self.end)} in use: {error}"
                    ) from error
            parked = DiskValue(self, place, dense.shape, dense.dtype, order, dense.nbytes)
            waiting = Waiting(parked, self.freed.append)
            waiting.place, waiting.nbytes = place, dense.nbytes
            self.waiting[id(waiting)] = waiting
        return parked

    def found(self) -> tuple[int, int] | None:
        """Return what tells the open file from every other; None if it is closed."""
        try:
            status = os.fstat(self.number)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def check(self) -> None:
        """Raise a BackendError if somebody closed the file, whose number may be another's now."""
        if self.found() != self.identity:
            raise BackendError(
                f"on_disk: the file in {self.folder} was closed from outside, as os.closerange "
                "does; make a new on_disk() after it"
            )

    def put(self, dense: Any, size: int) -> int:
        """Write an array to an unused place of a size, or at the end; return where, and take it."""
        places = self.unused.get(size)
        place = places[-1] if places else self.end
        self.raw.seek(place)
        rest = bytes_of(dense)
        while rest:
            count = self.raw.write(rest)
            if not count:
                raise OSError(f"{len(rest)} bytes were not taken")
            rest = rest[count:]
        behind = place + dense.nbytes
        if not places:
            self.end = behind
        elif places.pop() is not None and size > dense.nbytes:
            self.unused.setdefault(size - dense.nbytes, []).append(behind)
        return place

    def read(self, place: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return an array that was written.

        Raises:
            BackendError: if the system refuses, or the file is another process's.
        """
        if self.process != process():
            raise BackendError(
                "on_disk: what was written before this process was forked can be read by its "
                "parent alone; fork before a run begins, or let the parent finish it"
            )
        dense = np.empty(shape, dtype)
        rest = bytes_of(dense)
        try:
            with self.lock:
                self.check()
                self.raw.seek(place)
                while rest:
                    count = self.raw.readinto(rest)
                    if not count:
                        raise OSError("the file was cut short")
                    rest = rest[count:]
        except OSError as error:
            raise BackendError(
                f"on_disk: {size_text(dense.nbytes)} cannot be read in {self.folder}: {error}"
            ) from error
        return dense

    def reclaim(self) -> None:
        """Let places be used again in which nothing waits; the whole file, if nothing does."""
        while self.freed:
            # In this order: if an interrupt comes between, no place is there to be taken twice.
            gone = self.freed[0]
            if self.waiting.pop(id(gone), None) is not None:
                self.unused.setdefault(gone.nbytes, []).append(gone.place)
            self.freed.popleft()
        if not self.waiting:
            self.unused.clear()
            self.end = 0

    def gather(self) -> None:
        """Join unused places that touch each other; give those at the end back to the disk."""
        spans: list[list[int]] = []
        for place, nbytes in sorted((p, n) for n, places in self.unused.items() for p in places):
            if spans and spans[-1][1] == place:
                spans[-1][1] += nbytes
            else:
                spans.append([place, place + nbytes])
        end = spans.pop()[0] if spans and spans[-1][1] == self.end else self.end
        unused: dict[int, list[int]] = {}
        for begin, behind in spans:
            unused.setdefault(behind - begin, []).append(begin)
        self.unused = unused
        self.end = end
        self.shorten()

    def shorten(self) -> None:
        """Give back to the disk what lies behind the end."""
        with suppress(OSError):  # there is less room then, and nothing else is wrong
            self.raw.truncate(self.end)


def bytes_of(dense: Any) -> memoryview:
    """Return the bytes of a C-contiguous array, to be read and written in place."""
    return memoryview(dense.reshape(-1).view(np.uint8))


@dataclass(frozen=True, eq=False)
class DiskValue:
    """An array that waits in a file.

    Attributes:
        file: the file, which is there as long as anything waits in it.
        place: its first byte there.
        shape, dtype: as it was written.
        order: which axis of the array each of its axes there is.
        nbytes: what it weighs.
    """

    file: File
    place: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: tuple[int, ...]
    nbytes: int


class Waiting(ref[DiskValue]):
    """A weak reference to what was written, with its place and size in the file."""

    __slots__ = ("nbytes", "place")
    place: int
    nbytes: int
