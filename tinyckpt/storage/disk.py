"""The disk as host memory: what a schedule moves to the host waits in a file.

The file has no name. On POSIX it is unlinked as it is made, and on Windows it is marked to be
deleted when it is closed; either way the system takes it back when the process ends, killed or not.
Places in it are used again once nothing waits in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from tempfile import TemporaryFile, gettempdir
from threading import Lock
from typing import Any
from weakref import finalize

import numpy as np

from tinyckpt.backend import NUMPY, Backend
from tinyckpt.errors import BackendError
from tinyckpt.storage.host import Bound, by_memory, inverse
from tinyckpt.units import size_text


def on_disk(folder: str | PathLike[str] | None = None) -> Backend:
    """Return NumPy's backend with the disk for a host.

    >>> import numpy as np, tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(16), "offload")
    >>> x = np.ones((8, 8))
    >>> result = tc.run(schedule, x, backend=tc.on_disk())
    >>> bool(np.array_equal(result.gradients, tc.run(schedule, x).gradients))
    True

    Args:
        folder: where the file is made; that of the system for temporary files, if not given.

    Raises:
        BackendError: if no file can be made there; later, if the disk is full.
    """
    disk = Disk(gettempdir() if folder is None else fspath(folder))
    return replace(NUMPY, host=lambda: disk)


class Disk:
    """A nameless file, and which of its bytes are in use."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        try:
            self.file = TemporaryFile(dir=folder, buffering=0, prefix="tinyckpt-")  # noqa: SIM115
        except OSError as error:
            raise BackendError(f"on_disk: no file can be made in {folder}: {error}") from error
        finalize(self, self.file.close)
        self.end = 0
        self.unused: dict[int, list[int]] = {}  # places by their size
        self.waiting = 0
        self.lock = Lock()

    def park(self, array: Any) -> Parked:
        """Write an array to the file; return what reads it again.

        Raises:
            BackendError: if it cannot be written.
        """
        order = by_memory(array)
        dense = np.asarray(array.transpose(order), order="C")
        with self.lock:
            places = self.unused.get(dense.nbytes)
            place = places.pop() if places else self.end
            self.end = max(self.end, place + dense.nbytes)
            try:
                self.file.seek(place)
                rest = bytes_of(dense)
                while rest:
                    rest = rest[self.file.write(rest) :]
            except OSError as error:
                raise BackendError(
                    f"on_disk: {size_text(dense.nbytes)} cannot be written in {self.folder}, with "
                    f"{size_text(self.end)} in use: {error}"
                ) from error
        self.waiting += 1
        parked = Parked(place, dense.shape, dense.dtype, order, array.nbytes)
        finalize(parked, self.release, place, dense.nbytes)
        return parked

    def fetch(self, parked: Parked, bound: Bound, readers: Sequence[int]) -> Any:
        """Return a new array with what was written; it is there at once."""
        dense = self.read(parked.place, parked.shape, parked.dtype)
        return dense.transpose(inverse(parked.order))

    def settle(self) -> None:
        """Do nothing: nothing is on its way."""

    def release(self, place: int, nbytes: int) -> None:
        """Let a place be used again; the whole file, once nothing waits in it."""
        self.waiting -= 1
        if self.waiting:
            self.unused.setdefault(nbytes, []).append(place)
        else:
            self.end = 0
            self.unused.clear()

    def read(self, place: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return an array that was written."""
        dense = np.empty(shape, dtype)
        rest = bytes_of(dense)
        with self.lock:
            self.file.seek(place)
            while rest:
                count = self.file.readinto(rest)
                if not count:
                    raise BackendError(f"on_disk: the file in {self.folder} was cut short")
                rest = rest[count:]
        return dense


def bytes_of(dense: Any) -> memoryview:
    """Return the bytes of a C-contiguous array, to be read and written in place."""
    return memoryview(dense.reshape(-1).view(np.uint8))


@dataclass(frozen=True, eq=False)
class Parked:
    """An array that waits in a file.

    Attributes:
        place: its first byte there.
        shape, dtype: as it was written.
        order: which axis of the array each of its axes there is.
        nbytes: what it weighs.
    """

    place: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: tuple[int, ...]
    nbytes: int
