"""PyTorch's caching allocator of CUDA memory: best fit, with splitting and coalescing.

Source: best fit with boundary tags, Knuth, volume 1, section 2.5; the sizes are those of
c10/cuda/CUDACachingAllocator.cpp at its defaults. Segments come from the driver and stay: what a
process has reserved is more than its tensors need, by rounding and by gaps that no request fits in
(fragmentation). Here requests are replayed without memory, on one stream.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

MIB = 2**20
BLOCK = 512  # bytes: every request is a multiple, and at least one of it
SMALL = MIB  # up to this, requests are packed into segments of SMALL_SEGMENT
SMALL_SEGMENT = 2 * MIB
LARGE = 10 * MIB  # below this, into segments of LARGE_SEGMENT; from it on, each has its own
LARGE_SEGMENT = 20 * MIB
ROUNDED = 2 * MIB  # own segments are multiples of it


def rounded(nbytes: int) -> int:
    """Return the bytes that a request takes.

    >>> rounded(1), rounded(512), rounded(513)
    (512, 512, 1024)
    """
    return max(BLOCK, -(-nbytes // BLOCK) * BLOCK)


def segment_of(size: int) -> int:
    """Return the bytes of a new segment for a request that no free block fits."""
    if size <= SMALL:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < LARGE else -(-size // ROUNDED) * ROUNDED


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment, between its neighbours; ``is_free`` ones are in the pool's list."""

    address: int
    size: int
    is_small: bool
    is_free: bool = False
    before: Block | None = None
    after: Block | None = None


@dataclass(slots=True, eq=False)
class CachingAllocator:
    """What a process has reserved while it allocates and frees.

    Attributes:
        capacity: bytes that the driver can give; free segments go back to it when it has no more.
        allocated, reserved: bytes in use, and bytes of segments.
        most_allocated, most_reserved: their peaks.
        is_over: whether a request could not be met.

    >>> memory = CachingAllocator()
    >>> first, second = memory.allocate(3 * 2**20), memory.allocate(300)
    >>> memory.allocated, memory.reserved // 2**20
    (3146240, 22)
    >>> memory.free(first)
    >>> memory.allocated, memory.reserved // 2**20
    (512, 22)
    """

    capacity: float = float("inf")
    allocated: int = 0
    reserved: int = 0
    most_allocated: int = 0
    most_reserved: int = 0
    is_over: bool = False
    _end: int = 0  # the address of the next segment
    _free: dict[bool, list[tuple[int, int]]] = field(default_factory=lambda: {True: [], False: []})
    _blocks: dict[int, Block] = field(default_factory=dict)  # free ones, by address

    def free_for(self, nbytes: int) -> tuple[int, int]:
        """Return the free bytes of a request's pool, and those of the largest block among them."""
        pool = self._free[rounded(nbytes) <= SMALL]
        return sum(size for size, _ in pool), pool[-1][0] if pool else 0

    def allocate(self, nbytes: int) -> Block:
        """Return the block of a request: the smallest free one that it fits in, or a new one."""
        size = rounded(nbytes)
        pool = self._free[size <= SMALL]
        place = bisect_left(pool, (size, 0))
        if place < len(pool):
            block = self._blocks.pop(pool.pop(place)[1])
            block.is_free = False
        else:
            block = self.new_segment(size)
        left = block.size - size
        if left >= BLOCK if block.is_small else left > SMALL:
            rest = Block(block.address + size, left, block.is_small, False, block, block.after)
            if block.after is not None:
                block.after.before = rest
            block.after, block.size = rest, size
            self.add_free(rest)
        self.allocated += block.size
        self.most_allocated = max(self.most_allocated, self.allocated)
        return block

    def new_segment(self, size: int) -> Block:
        """Reserve a segment; where there is no room, after free ones are given back."""
        wanted = segment_of(size)
        if self.reserved + wanted > self.capacity:
            self.release()
            self.is_over = self.is_over or self.reserved + wanted > self.capacity
        self.reserved += wanted
        self.most_reserved = max(self.most_reserved, self.reserved)
        self._end += wanted
        return Block(self._end - wanted, wanted, size <= SMALL)

    def free(self, block: Block) -> None:
        """Free a block, and join it with its free neighbours."""
        self.allocated -= block.size
        for other in (block.before, block.after):
            if other is not None and other.is_free:
                self.take_free(other)
                first, second = (other, block) if other is block.before else (block, other)
                first.size += second.size
                first.after = second.after
                if second.after is not None:
                    second.after.before = first
                block = first
        self.add_free(block)

    def release(self) -> None:
        """Give free segments back to the driver (``torch.cuda.empty_cache``)."""
        for block in list(self._blocks.values()):
            if block.before is None and block.after is None:
                self.take_free(block)
                self.reserved -= block.size

    def add_free(self, block: Block) -> None:
        """Put a block into the list of its pool."""
        block.is_free = True
        insort(self._free[block.is_small], (block.size, block.address))
        self._blocks[block.address] = block

    def take_free(self, block: Block) -> None:
        """Take a block out of the list of its pool."""
        block.is_free = False
        pool = self._free[block.is_small]
        pool.pop(bisect_left(pool, (block.size, block.address)))
        del self._blocks[block.address]


@dataclass(frozen=True, slots=True)
class Interval:
    """Memory that a step needs from one moment to before another; ``end`` None: beyond the step."""

    begin: float
    end: float | None
    nbytes: int


def replay_steps(
    memory: CachingAllocator, lasting: Iterable[int], step: Iterable[Interval],
    state: Iterable[int] = (), steps: int = 3,
) -> None:  # fmt: skip
    """Replay training steps on an allocator: what lasts, steps, and the optimizer's state.

    What a step leaves, gradients and the loss, is freed before the next one
    (``zero_grad(set_to_none=True)``); the optimizer makes its state after the first.

    Args:
        memory: the allocator.
        lasting: bytes of parameters, buffers and arguments, in order.
        step: memory of a step.
        state: bytes of the tensors of the optimizer's state, in order.
        steps: how many.
    """
    for nbytes in lasting:
        memory.allocate(nbytes)
    step = list(step)
    # What ends at a moment is freed before what begins at it is allocated.
    moments = sorted(
        [(each.begin, 1, number) for number, each in enumerate(step)]
        + [(each.end, 0, number) for number, each in enumerate(step) if each.end is not None]
    )
    for count in range(steps):
        blocks: dict[int, Block] = {}
        for _, begins, number in moments:
            if begins:
                blocks[number] = memory.allocate(step[number].nbytes)
            else:
                memory.free(blocks.pop(number))
        if count == 0:
            for nbytes in state:
                memory.allocate(nbytes)
        for block in blocks.values():
            memory.free(block)
