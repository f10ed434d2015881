"""The host's memory, as the machine asks for it: a value is parked there, and fetched.

Copies are made here and now; ``storage.disk`` keeps them in a file, and ``storage.pinned`` makes
them beside the GPU's computation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

Array = Any
Bound = list[tuple[Any, ...]]  # of each operator: its kernel, and what else the machine keeps


class Host(Protocol):
    """Where the values of one run wait that it moved to the host."""

    def park(self, array: Array) -> Any:
        """Copy an array of the device; return what ``fetch`` takes, with its ``nbytes``."""

    def fetch(self, parked: Any, bound: Bound, readers: Sequence[int]) -> Array:
        """Return an array on the device with what was parked.

        Where it arrives later, the kernels of its readers in ``bound`` are let wait for it.
        """

    def settle(self) -> None:
        """Let the device wait for all that has not arrived."""


class Copies:
    """Memory that is waited for.

    Args:
        to_host: copies an array of the device.
        to_device: copies what ``to_host`` returned into a new array of the device.
    """

    def __init__(self, to_host: Callable[[Array], Any], to_device: Callable[[Any], Array]) -> None:
        self.park, self.to_device = to_host, to_device

    def fetch(self, parked: Any, bound: Bound, readers: Sequence[int]) -> Array:
        """Return a new array; it is there at once."""
        return self.to_device(parked)

    def settle(self) -> None:
        """Do nothing: nothing is on its way."""


def by_memory(array: Array) -> tuple[int, ...]:
    """Return an array's axes in the order in which it lies in memory.

    What is written in this order can come back with the strides that it had: kernels may add in
    the order of memory, and so their results are the same to the bit.
    """
    return tuple(sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))


def inverse(axes: tuple[int, ...]) -> list[int]:
    """Return the transposition that undoes another."""
    return sorted(range(len(axes)), key=axes.__getitem__)
