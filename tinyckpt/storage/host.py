"""Host-memory store for offloading: the interface of all stores, and synchronous copies.

``Copies`` copies synchronously; ``storage.disk`` writes to a file, and ``storage.pinned`` overlaps
copies with the GPU's computation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tinyckpt.core.execute import DispatchTable

Array = Any


class Host(Protocol):
    """The store of the values that one run offloads."""

    def park(self, array: Array) -> Any:
        """Copy a device array to the host; return the handle for ``fetch``, with its ``nbytes``."""

    def fetch(self, parked: Any, bound: DispatchTable, readers: Sequence[int]) -> Array:
        """Return a device array with the parked contents.

        If the copy is asynchronous, the kernels of its readers are wrapped in ``bound`` to wait for
        it.
        """

    def settle(self) -> None:
        """Make the device wait for all copies in flight."""


class Copies:
    """Synchronous copies in ordinary host memory.

    Args:
        to_host: copies an array of the device.
        to_device: copies a result of ``to_host`` into a new array of the device.
    """

    def __init__(self, to_host: Callable[[Array], Any], to_device: Callable[[Any], Array]) -> None:
        self.park, self.to_device = to_host, to_device

    def fetch(self, parked: Any, bound: DispatchTable, readers: Sequence[int]) -> Array:
        """Return a new device array; synchronous."""
        return self.to_device(parked)

    def settle(self) -> None:
        """Do nothing: all copies are synchronous."""


def memory_order(array: Array) -> tuple[int, ...]:
    """Return an array's axes by decreasing stride: its memory layout as a permutation.

    A value stored in this order can be restored with its original strides: kernels may sum in
    memory order, so that only then results are bitwise equal.
    """
    return tuple(sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))


def inverse(axes: tuple[int, ...]) -> list[int]:
    """Return the inverse of a permutation of axes."""
    return sorted(range(len(axes)), key=axes.__getitem__)
