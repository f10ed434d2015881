"""Asynchronous offloading: pinned host memory and CUDA streams, copies overlapping computation.

Device-to-host and host-to-device copies have a stream each, as PCI Express has a copy engine for
each direction. Ordering is by CUDA events on the device; the CPU thread that enqueues work hardly
ever blocks:

- a copy to the host waits for the computation before it, and so does a copy back, into whose
  memory earlier work may still write; it also waits for its own value to be on the host;
- a kernel that reads a fetched value waits for its arrival, and no other kernel does;
- device and host buffers are kept alive until the copies that read or write them have ended.

The CPU runs far ahead of the GPU. If it never blocked, every offloaded value would still occupy
device memory while the whole forward pass is being enqueued, and nothing would be saved. Hence back
pressure: at most two copies are in flight per direction, and the CPU waits for the third last.

Source: CUDA Programming Guide, "Asynchronous Concurrent Execution".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import finalize

import numpy as np

from tinyckpt.core.execute import DispatchTable
from tinyckpt.storage.host import Array, inverse, memory_order

MAX_IN_FLIGHT = (
    2  # copies in flight per direction: the running one, and the next, so that no engine idles
)


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """An asynchronous copy, possibly in flight.

    Attributes:
        end: the event recorded at its end.
        device, host: the arrays that it reads and writes.
    """

    end: Any
    device: Array
    host: Any


@dataclass(frozen=True, slots=True, eq=False)
class PinnedValue:
    """Handle of a value in pinned memory, or on its way there.

    Attributes:
        copy: the copy to the host.
        order: the axis permutation under which it is stored.
        nbytes: its size.
    """

    copy: Copy
    order: tuple[int, ...]
    nbytes: int


class PinnedMemory:
    """The pinned host store of one run.

    Args:
        library: CuPy.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.out, self.back = (library.cuda.Stream(non_blocking=True) for _ in range(2))
        self.leaving: deque[Copy] = deque()
        self.arriving: deque[Copy] = deque()
        # If the run fails, its buffers are not reused while copies in flight read and write them.
        finalize(self, wait_for, self.leaving, self.arriving)

    def park(self, array: Array) -> PinnedValue:
        """Enqueue a copy to the host."""
        current = self.library.cuda.get_current_stream()
        for copy in self.arriving:
            if copy.device is array:
                current.wait_event(copy.end)
        order = memory_order(array)
        shown = array.transpose(order)
        dense = shown if shown.flags.c_contiguous else shown.copy(order="C")
        memory = self.library.cuda.alloc_pinned_memory(dense.nbytes)
        host = np.ndarray(dense.shape, dense.dtype, memory)
        self.out.wait_event(current.record())
        dense.get(stream=self.out, out=host, blocking=False)
        copy = Copy(self.out.record(), dense, host)
        begun(self.leaving, copy)
        # The handle does not keep the device array alive.
        return PinnedValue(Copy(copy.end, None, host), order, array.nbytes)

    def fetch(self, parked: PinnedValue, bound: DispatchTable, readers: Sequence[int]) -> Array:
        """Enqueue a copy back to the device, and make the kernels that read it wait for its end."""
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
        """Make the computation that follows wait for all copies back."""
        current = self.library.cuda.get_current_stream()
        for copy in self.arriving:
            current.wait_event(copy.end)


def after(library: Any, end: Any, kernel: Callable[..., Any], *arrays: Array) -> Any:
    """Enqueue a kernel behind the end of a copy."""
    library.cuda.get_current_stream().wait_event(end)
    return kernel(*arrays)


def begun(line: deque[Copy], copy: Copy) -> None:
    """Record a copy in flight; block until at most MOST are."""
    line.append(copy)
    while len(line) > MAX_IN_FLIGHT:
        line[0].end.synchronize()
        line.popleft()


def wait_for(*copies: deque[Copy]) -> None:
    """Block until all copies have ended."""
    for line in copies:
        for copy in line:
            copy.end.synchronize()
        line.clear()
