"""Fragmentation of a schedule: the segments that PyTorch's caching allocator would reserve for it.

In: a legal schedule. Out: for each allocation its address, and each segment with the free memory
that there was when it was reserved. Where that would have sufficed but for its pieces, the step has
fragmented the memory; an arena (``codegen.arena``) is planned with the future known, and has no
such holes. The allocator starts empty and has one stream; sources are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tinyckpt.base.units import counted, size_text
from tinyckpt.codegen.arena import Allocation, allocations_of
from tinyckpt.codegen.caching_allocator import Block, CachingAllocator, rounded
from tinyckpt.core.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that was reserved, and why: no free block was large enough.

    Attributes:
        step: the step that needed it.
        address, nbytes: where it is, and its size.
        needed: bytes of the request, rounded.
        free: free bytes at this moment of the segments for requests like this one: there is a
            pool for those of up to 1 MiB, and one for larger ones.
        largest_free: the largest free block of them.
    """

    step: int
    address: int
    nbytes: int
    needed: int
    free: int
    largest_free: int

    @property
    def is_fragmented(self) -> bool:
        """Whether the free bytes would have sufficed in one piece."""
        return self.free >= self.needed


@dataclass(frozen=True, slots=True, repr=False)
class Reserved:
    """What the caching allocator reserves for a schedule.

    Attributes:
        schedule: the schedule.
        allocations: its allocations.
        offsets: their addresses; segments lie one after another.
        nbytes: bytes of all segments.
        lower_bound: peak of the bytes in use, rounded up to 512 each.
        segments: in the order in which they were reserved.
    """

    schedule: Schedule = field(repr=False)
    allocations: tuple[Allocation, ...]
    offsets: tuple[int, ...]
    nbytes: int
    lower_bound: int
    segments: tuple[Segment, ...]

    def __repr__(self) -> str:
        what = f"{self.schedule.policy} of {self.schedule.graph.name}"
        sizes = f"{size_text(self.nbytes)} for {size_text(self.lower_bound)}"
        return f"<Reserved {what}: {sizes}, {counted(len(self.segments), 'segment')}>"


def reserved(schedule: Schedule) -> Reserved:
    """Replay a schedule on PyTorch's caching allocator of CUDA memory, from empty.

    Raises:
        ScheduleError: if the schedule is illegal.

    >>> import tinyckpt as tc
    >>> tc.reserved(tc.plan(tc.networks.chain(16)))
    <Reserved store_all of chain:16: 2.0 MiB for 9.0 KiB, 1 segment>
    """
    allocations = allocations_of(schedule)
    memory = CachingAllocator()
    blocks: dict[int, Block] = {}
    offsets = [0] * len(allocations)
    segments: list[Segment] = []
    live = peak = 0
    # What ends at a step is freed before what starts at it is allocated, in order.
    moments = sorted(
        [(each.start, 1, number) for number, each in enumerate(allocations)]
        + [(each.stop, 0, number) for number, each in enumerate(allocations)]
    )
    for step, starts, number in moments:
        if not starts:
            if number in blocks:
                memory.free(blocks.pop(number))
                live -= rounded(allocations[number].nbytes)
            continue
        nbytes = allocations[number].nbytes
        if nbytes == 0:
            continue  # PyTorch gives no memory to an empty tensor
        before, (free, largest) = memory.reserved, memory.free_for(nbytes)
        blocks[number] = block = memory.allocate(nbytes)
        offsets[number] = block.address
        live += rounded(nbytes)
        peak = max(peak, live)
        if memory.reserved > before:
            size = memory.reserved - before
            segments.append(Segment(step, block.address, size, rounded(nbytes), free, largest))
    return Reserved(
        schedule, allocations, tuple(offsets), memory.most_reserved, peak,
        tuple(segments),
    )  # fmt: skip
