"""Disk offloading: values that a schedule moves to the host are written to a temporary file.

The file is anonymous. On POSIX it is unlinked on creation, on Windows marked delete-on-close;
either way the system reclaims it when the process ends, killed or not. A free list by size reuses
the space of values that are no longer referenced.

Any number of threads may share a backend, and so may processes: each process writes to a file of
its own, a forked one too, from its first write on. Values that the parent wrote before the fork
can only be read by the parent.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any
from weakref import finalize, ref

import numpy as np

from tinyckpt.base.errors import BackendError, OptionError
from tinyckpt.base.units import size_text
from tinyckpt.core.backend import NUMPY, Backend
from tinyckpt.core.execute import DispatchTable
from tinyckpt.storage.host import inverse, memory_order

FORKS = [0]  # fork depth of this process: process ids alone may be reused after a parent ended
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: FORKS.append(FORKS.pop() + 1))


def process() -> tuple[int, int]:
    """Return this process's identity, which differs from all its ancestors': pid and fork depth."""
    return os.getpid(), FORKS[0]


def on_disk(folder: str | os.PathLike[str] | None = None) -> Backend:
    """Return the NumPy backend with the disk as host memory.

    It is picklable; the copy opens a file of its own.

    >>> import numpy as np, tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(16), "offload")
    >>> x = np.ones((8, 8))
    >>> result = tc.run(schedule, x, backend=tc.on_disk())
    >>> bool(np.array_equal(result.gradients, tc.run(schedule, x).gradients))
    True

    Args:
        folder: where the file is created; the system's temporary folder, if not given.

    Raises:
        OptionError: if the folder is not a path.
        BackendError: if no file can be created there; later, if the disk is full, or a forked
            process reads a value that its parent wrote.
    """
    try:
        path = None if folder is None else os.fsdecode(folder)
    except TypeError:
        raise OptionError(f"folder={folder!r:.80}; on_disk expects a folder's path") from None
    return replace(NUMPY, host=Disk(path))


class Disk:
    """A folder, and this process's file there.

    Calling it returns it: a backend's ``host`` is a factory, and runs share this store.
    """

    def __init__(self, folder: str | None) -> None:
        self.folder = folder
        self.file = File(folder)

    def __call__(self) -> Disk:
        return self

    def __reduce__(self) -> Any:
        """Pickle the folder only."""
        return Disk, (self.folder,)

    def park(self, array: Any) -> DiskValue:
        """Write an array to the file; return the handle that ``fetch`` takes.

        Raises:
            BackendError: if it cannot be written.
        """
        order = memory_order(array)
        dense = np.asarray(array.transpose(order), order="C")
        file = self.file
        if file.process != process():
            # Two threads may race to create two files: each value is read from the file it is in.
            file = self.file = File(self.folder)
        return file.write(dense, order)

    def fetch(self, parked: DiskValue, bound: DispatchTable, readers: Sequence[int]) -> Any:
        """Read a value into a new array; synchronous.

        Raises:
            BackendError: if it cannot be read, or was written before this process was forked.
        """
        dense = parked.file.read(parked.place, parked.shape, parked.dtype)
        return dense.transpose(inverse(parked.order))

    def settle(self) -> None:
        """Do nothing: all copies are synchronous."""


class File:
    """An anonymous file of one process, with a free-list allocator for the space in it.

    All state changes under the lock, except ``freed``: the garbage collector appends dead values to
    it at any moment in any thread, including one that is in a method here and has the lock.
    ``reclaim`` drains it. The append is a bound method of a deque, so that no Python code runs in
    the weak reference's callback, where an interrupt would be swallowed and the space lost.

    An interrupt anywhere else may leak a span until the file is empty; no span is ever used twice.
    """

    def __init__(self, folder: str | None) -> None:
        self.process = process()
        try:
            from tempfile import TemporaryFile, gettempdir  # load cryptography: as in base.files

            self.folder = gettempdir() if folder is None else folder
            self.raw: Any = TemporaryFile(dir=self.folder, buffering=0, prefix="tinyckpt-")  # noqa: SIM115
        except (OSError, ValueError) as error:
            raise BackendError(f"on_disk: no file can be made in {folder!r}: {error}") from error
        finalize(self, self.raw.close)
        self.number = self.raw.fileno()
        self.identity = self.found()
        self.lock = Lock()
        self.end = 0
        self.unused: dict[int, list[int]] = {}  # free list: offsets by size
        self.waiting: dict[int, StoredReference] = {}  # stored values, by ``id()``
        self.freed: deque[StoredReference] = deque()

    def write(self, dense: Any, order: tuple[int, ...]) -> DiskValue:
        """Allocate space for a C-contiguous array and write it; return its handle.

        Raises:
            BackendError: if the system refuses; no space is taken then.
        """
        with self.lock:
            self.reclaim()
            self.check()
            try:
                place = self.put(dense, dense.nbytes)
            except OSError:
                # The disk may be full: after coalescing, a larger free span may fit (best fit).
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
            waiting = StoredReference(parked, self.freed.append)
            waiting.place, waiting.nbytes = place, dense.nbytes
            self.waiting[id(waiting)] = waiting
        return parked

    def found(self) -> tuple[int, int] | None:
        """Return the identity of the open file (device, inode); None if it is closed."""
        try:
            status = os.fstat(self.number)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def check(self) -> None:
        """Raise a BackendError if the descriptor was closed from outside, and perhaps reused."""
        if self.found() != self.identity:
            raise BackendError(
                f"on_disk: the file in {self.folder} was closed from outside, as os.closerange "
                "does; create a new on_disk() after it"
            )

    def put(self, dense: Any, size: int) -> int:
        """Write an array to a free span of this size, or at the end; return its offset."""
        places = self.unused.get(size)
        place = places[-1] if places else self.end
        self.raw.seek(place)
        rest = bytes_of(dense)
        while rest:
            count = self.raw.write(rest)
            if not count:
                raise OSError(f"{len(rest)} bytes were not written")
            rest = rest[count:]
        stop = place + dense.nbytes
        if not places:
            self.end = stop
        elif places.pop() is not None and size > dense.nbytes:
            self.unused.setdefault(size - dense.nbytes, []).append(stop)
        return place

    def read(self, place: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Read an array back.

        Raises:
            BackendError: if the system refuses, or the file belongs to another process.
        """
        if self.process != process():
            raise BackendError(
                "on_disk: values written before this process was forked can only be read by its "
                "parent; fork before a run begins, or let the parent finish it"
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
                        raise OSError("the file was truncated")
                    rest = rest[count:]
        except OSError as error:
            raise BackendError(
                f"on_disk: {size_text(dense.nbytes)} cannot be read in {self.folder}: {error}"
            ) from error
        return dense

    def reclaim(self) -> None:
        """Move the space of dead values to the free list; reset the file if nothing is stored."""
        while self.freed:
            # In this order, an interrupt in between cannot put a span on the free list twice.
            dead = self.freed[0]
            if self.waiting.pop(id(dead), None) is not None:
                self.unused.setdefault(dead.nbytes, []).append(dead.place)
            self.freed.popleft()
        if not self.waiting:
            self.unused.clear()
            self.end = 0

    def gather(self) -> None:
        """Coalesce adjacent free spans; truncate the file by those at its end."""
        spans: list[list[int]] = []
        for place, nbytes in sorted((p, n) for n, places in self.unused.items() for p in places):
            if spans and spans[-1][1] == place:
                spans[-1][1] += nbytes
            else:
                spans.append([place, place + nbytes])
        end = spans.pop()[0] if spans and spans[-1][1] == self.end else self.end
        unused: dict[int, list[int]] = {}
        for begin, stop in spans:
            unused.setdefault(stop - begin, []).append(begin)
        self.unused = unused
        self.end = end
        self.shorten()

    def shorten(self) -> None:
        """Truncate the file to its end, giving the rest back to the disk."""
        with suppress(OSError):  # on failure there is less room, but nothing is wrong
            self.raw.truncate(self.end)


def bytes_of(dense: Any) -> memoryview:
    """Return a writable byte view of a C-contiguous array."""
    return memoryview(dense.reshape(-1).view(np.uint8))


@dataclass(frozen=True, eq=False)
class DiskValue:
    """Handle of an array in a file; its space is reclaimed when the handle is garbage-collected.

    Attributes:
        file: the file, kept open as long as any handle refers to it.
        place: its offset there, in bytes.
        shape, dtype: as written.
        order: the axis permutation under which it was written.
        nbytes: its size.
    """

    file: File
    place: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: tuple[int, ...]
    nbytes: int


class StoredReference(ref[DiskValue]):
    """A weak reference to a handle, with the span of the file that it occupies."""

    __slots__ = ("nbytes", "place")
    place: int
    nbytes: int
