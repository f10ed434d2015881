"""Pinned host memory and streams of its own: a GPU's copies to the host beside its computation.

Copies to the host and copies back have a stream each, as they have an engine each on PCI Express.
They wait for events, and the processor that hands them over waits for next to nothing:

- a copy to the host waits for what was computed before it, and so does a copy back, into whose
  memory something may still be computed; it also waits for its own value to be on the host;
- a kernel that reads a fetched value waits until it has arrived, and no other kernel does;
- device and host memory is held on to until the copies are over that read or write it.

The processor is far ahead of the GPU. If it never waited, every value that leaves would still be
held while all of the forward half is being handed over, and nothing would be gained: so that no
more than two are on their way in each direction, it waits for the third last before it goes on.

What these streams may do is in the CUDA Programming Guide, "Asynchronous Concurrent Execution".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import finalize

import numpy as np

from tinyckpt.storage.host import Array, Bound, by_memory, inverse

MOST = 2  # on their way: one that is being copied, and the next one, so that no engine waits


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """A copy that may not be over.

    Attributes:
        end: the event at its end.
        device, host: the arrays that it reads and writes.
    """

    end: Any
    device: Array
    host: Any


@dataclass(frozen=True, slots=True, eq=False)
class PinnedValue:
    """A value in pinned memory, or on its way there.

    Attributes:
        copy: the copy.
        order: which axis of the array each axis of what is on the host is.
        nbytes: what it weighs.
    """

    copy: Copy
    order: tuple[int, ...]
    nbytes: int


class PinnedMemory:
    """The pinned memory of one run.

    Args:
        library: CuPy.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.out, self.back = (library.cuda.Stream(non_blocking=True) for _ in range(2))
        self.leaving: deque[Copy] = deque()
        self.arriving: deque[Copy] = deque()
        # If the run fails, its memory is not given to others while copies read and write it.
        finalize(self, wait_for, self.leaving, self.arriving)

    def park(self, array: Array) -> PinnedValue:
        """Begin a copy to the host."""
        current = self.library.cuda.get_current_stream()
        for copy in self.arriving:
            if copy.device is array:
                current.wait_event(copy.end)
        order = by_memory(array)
        shown = array.transpose(order)
        dense = shown if shown.flags.c_contiguous else shown.copy(order="C")
        memory = self.library.cuda.alloc_pinned_memory(dense.nbytes)
        host = np.ndarray(dense.shape, dense.dtype, memory)
        self.out.wait_event(current.record())
        dense.get(stream=self.out, out=host, blocking=False)
        copy = Copy(self.out.record(), dense, host)
        begun(self.leaving, copy)
        # The copy that the value keeps is without the device's memory.
        return PinnedValue(Copy(copy.end, None, host), order, array.nbytes)

    def fetch(self, parked: PinnedValue, bound: Bound, readers: Sequence[int]) -> Array:
        """Begin a copy back, and let those that read it wait for it."""
        current = self.library.cuda.get_current_stream()
        host = parked.copy.host
        dense = self.library.empty(host.shape, host.dtype)
        self.back.wait_event(current.record())
        self.back.wait_event(parked.copy.end)
        dense.set(host, stream=self.back)
        array = dense.transpose(inverse(parked.order))
        end = self.back.record()
        begun(self.arriving, Copy(end, array, host))
        for reader in readers:
            kernel, *rest = bound[reader]
            bound[reader] = (partial(after, self.library, end, kernel), *rest)
        return array

    def settle(self) -> None:
        """Let the computation that follows wait for all that comes back."""
        current = self.library.cuda.get_current_stream()
        for copy in self.arriving:
            current.wait_event(copy.end)


def after(library: Any, end: Any, kernel: Callable[..., Any], *arrays: Array) -> Any:
    """Call a kernel, which the GPU begins once a copy has ended."""
    library.cuda.get_current_stream().wait_event(end)
    return kernel(*arrays)


def begun(line: deque[Copy], copy: Copy) -> None:
    """Note a copy; wait for those that are too many before it."""
    line.append(copy)
    while len(line) > MOST:
        line[0].end.synchronize()
        line.popleft()


def wait_for(*copies: deque[Copy]) -> None:
    """Wait until copies are over."""
    for line in copies:
        for copy in line:
            copy.end.synchronize()
        line.clear()
