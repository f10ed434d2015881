"""Dynamic storage allocation, offline: offsets in one buffer for blocks of known lifetimes.

A block is a rectangle that is fixed in time and may be moved in address. The least height is
NP-hard to find (Garey & Johnson 1979, problem SR2; within 2 + eps in polynomial time: Buchsbaum et
al. 2003, doi:10.1145/780542.780624), and the peak of live bytes bounds it from below. Tried in
turn, until that bound is reached:

- best fit in order of time, as an allocator does that cannot look ahead, and in reversed time;
  optimal for equal sizes;
- the skyline: fill the lowest segment of the top edge with the block that fits and has the largest
  area, size or lifetime (Burke, Kendall & Whitwell 2004; for tensors Sekiyama et al. 2018, arXiv
  1804.10001); in the search, with random preferences between these;
- best fit in order of size and of lifetime (greedy by size: Pisarchyk & Lee 2020, arXiv
  2001.03288);
- the guided ejection search of ``codegen.offset_ejection``, within lower and lower capacities;
- the branch and bound of ``codegen.offset_tree_search``, after MiniMalloc;
- where the extra ``optimal`` is installed and a deadline given, CP-SAT: of few blocks before the
  search.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from importlib.util import find_spec
from typing import Any

import numpy as np

from tinyckpt.base.deadline import NO_DEADLINE, Clock, OutOfTimeError, checked_seconds
from tinyckpt.base.errors import OptionError
from tinyckpt.codegen.offset_ejection import eject_within
from tinyckpt.codegen.offset_tree_search import search_within

Integers = Any
MOST_BYTES = 2**60  # of all blocks together, so that sums stay within 64 bits
# Work that is done without a deadline. Best fit in a given order looks at all pairs of blocks, 5 ns
# each; a node of the tree search takes about 100 ns for each block.
MOST_PAIRS = 60_000_000
MOST_SEEN = 10**9  # blocks that the skyline looks at, 3 ns each
MOST_IN_TREE = 1500  # blocks
MOST_IN_MODEL = 1000  # blocks, of CP-SAT
MOST_BEFORE_SEARCH = 100  # blocks, of CP-SAT before the search: of few it proves optima in seconds
NODES = 2_000_000  # of the tree search, times blocks
LEAST_NODES = 500
EJECTIONS = 20  # steps of one ejection search, for each block; most successes come by then
MOST_EJECTIONS = 200_000  # steps of failed searches together, without a deadline: 45 to 130 us each
PILED = 1 / 8  # ejection searches are two-ended if blocks of this share of the peak live to the end
STRIP = 1000  # two-ended, blocks of less than a 1/1000 of the peak have a strip of their own
HIGHEST_STRIP = 200  # if it is no higher than a 1/200 of the peak
FEWEST_IN_STRIP = 2000  # blocks, the large ones too: of fewer, the strip costs more than it saves
TRIES = 2  # ejection searches of one capacity, before a larger one; of two-ended ones 1
CLOSE = 1000  # ejection searches aim no nearer to the lowest packing than a 1/1000 of its height
MOST_ON_LINE = (
    20_000  # blocks, of all skylines of blocks so many that their pairs are not looked at
)
SKYLINES = 60_000  # rounds, times blocks, each 10 us and more
UNLIMITED = 2**62
CHECKED = 64  # blocks that are placed between two looks at the clock


@dataclass(frozen=True, slots=True)
class Packing:
    """Offsets of blocks, and how good they are.

    Attributes:
        offsets: of each block, in bytes.
        nbytes: the height: the largest offset plus size, with sizes rounded up to the alignment.
        lower_bound: the peak of live bytes, with sizes rounded up.
        optimal: whether no packing is lower: the height equals the bound, or a solver proved it.
    """

    offsets: tuple[int, ...]
    nbytes: int
    lower_bound: int
    optimal: bool


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rectangles of positive size: half-open lifetimes, and sizes in units of their divisor."""

    begin: Integers
    end: Integers
    size: Integers

    def __len__(self) -> int:
        return len(self.size)

    def part(self, chosen: Integers) -> Blocks:
        """Return some of the blocks."""
        return Blocks(self.begin[chosen], self.end[chosen], self.size[chosen])

    def mirrored(self) -> Blocks:
        """Return the same blocks in reversed time; their packings are the same."""
        return Blocks(-self.end, -self.begin, self.size)

    def height(self, offset: Integers) -> int:
        """Return the height of a packing."""
        return int((offset + self.size).max(initial=0))

    def peak(self) -> int:
        """Return the largest sum of live sizes."""
        order = np.argsort(np.concatenate([self.end, self.begin]), kind="stable")  # frees first
        change = np.concatenate([-self.size, self.size])
        return int(change[order].cumsum().max(initial=0))


def assign_offsets(
    starts: Sequence[int],
    stops: Sequence[int],
    sizes: Sequence[int],
    alignment: int = 1,
    deadline: float | None = None,
    seed: int = 0,
    capacity: int | None = None,
) -> Packing:
    """Assign an offset to each block, so that no two that are live together overlap.

    Args:
        starts, stops: half-open lifetimes, in any unit of time.
        sizes: bytes, 0 or more.
        alignment: of all offsets, a power of two; sizes are rounded up to it.
        deadline: seconds that the search may take. With none, it does an amount of work that
            depends on the blocks only, and so does its result.
        seed: of the search.
        capacity: a height that is low enough: the search ends there.

    Raises:
        OptionError: if a block or an option is out of range.

    >>> packing = assign_offsets([0, 1, 2], [2, 4, 4], [30, 10, 20])
    >>> packing.offsets, packing.nbytes, packing.optimal
    ((0, 30, 0), 40, True)
    """
    begin, end, size = checked(starts, stops, sizes, alignment)
    size = -(-size // alignment)
    real = np.flatnonzero(size)
    unit = int(np.gcd.reduce(size)) or 1
    blocks = Blocks(begin[real], end[real], size[real] // unit)
    unit *= alignment
    enough = blocks.peak()
    if capacity is not None:
        enough = max(enough, capacity // unit)
    clock = None if deadline is None else Clock(checked_seconds(deadline))
    found, proven = pack(blocks, enough, clock, seed)
    offset = np.zeros(len(size), np.int64)
    offset[real] = found * unit
    height, bound = blocks.height(found) * unit, blocks.peak() * unit
    return Packing(tuple(offset.tolist()), height, bound, proven or height == bound)


def checked(
    starts: Sequence[int], stops: Sequence[int], sizes: Sequence[int], alignment: int
) -> tuple[Integers, Integers, Integers]:
    """Return lifetimes and sizes as arrays, or raise an OptionError."""
    if (
        isinstance(alignment, bool)
        or not isinstance(alignment, int)
        or not 1 <= alignment <= MOST_BYTES
        or alignment & (alignment - 1)
    ):
        raise OptionError(f"alignment={alignment!r}; expected a power of two")
    try:
        begin, end, size = (
            np.asarray([*map(int, column)], np.int64) for column in (starts, stops, sizes)
        )
    except OverflowError:
        raise OptionError("a number of a block is not within 64 bits") from None
    if not len(begin) == len(end) == len(size):
        raise OptionError(
            f"{len(begin)} starts, {len(end)} stops and {len(size)} sizes; expected one of each "
            "per block"
        )
    for block in np.flatnonzero((size < 0) | (end <= begin))[:1]:
        what = f"size {size[block]}" if size[block] < 0 else f"stop {end[block]}"
        least = "0 or more" if size[block] < 0 else f"more than its start, {begin[block]}"
        raise OptionError(f"block {block} has {what}; expected {least}")
    if size.astype(float).sum() + float(alignment) * len(size) > MOST_BYTES:
        raise OptionError(f"blocks of more than {MOST_BYTES:,} bytes together, with rounding")
    return begin, end, size


def pack(blocks: Blocks, enough: int, clock: Clock | None, seed: int) -> tuple[Integers, bool]:
    """Return the lowest packing that was found, and whether a solver proved it optimal."""
    best = np.zeros(len(blocks), np.int64)
    if len(blocks) == 0:
        return best, False
    least = int(blocks.size.sum()) + 1
    try:
        for packing in constructed(blocks, clock):
            if blocks.height(packing) < least:
                best, least = packing, blocks.height(packing)
            if least <= enough:
                return best, False
            if clock is not None:
                clock.check()
        if clock is not None and len(blocks) <= MOST_BEFORE_SEARCH:
            best, proven = solved(blocks, best, enough, clock.left() / 2)
            if proven or blocks.height(best) <= enough:
                return best, proven
        for packing in searched(blocks, best, enough, part_of(clock, len(blocks)), seed):
            best = packing
            if blocks.height(best) <= enough:
                return best, False
    except OutOfTimeError:
        pass  # what was found by the deadline
    if clock is not None and MOST_BEFORE_SEARCH < len(blocks) <= MOST_IN_MODEL:
        return solved(blocks, best, enough, clock.left())
    return best, False


def part_of(clock: Clock | None, count: int) -> Clock | None:
    """Return the deadline of the search; where CP-SAT comes after it, it has most of the time."""
    if clock is None or count <= MOST_BEFORE_SEARCH or count > MOST_IN_MODEL or not has_solver():
        return clock
    return Clock(clock.left() * 3 / 4)


def constructed(blocks: Blocks, clock: Clock | None) -> Iterator[Integers]:
    """Yield the packings of the heuristics; of the slow ones, as many as the work allows."""
    yield best_fit_in_time(blocks)
    width = blocks.end - blocks.begin
    area = width * blocks.size.astype(float)
    few = len(blocks) ** 2 <= MOST_PAIRS or clock is not None
    preferences = (area, blocks.size, width)
    for preference in preferences if few else preferences[: max(1, MOST_ON_LINE // len(blocks))]:
        if (packing := skyline(blocks, preference, clock)) is not None:
            yield packing
    if few:
        yield best_fit_in_time(blocks.mirrored())
        for order in ((blocks.begin, -width, -blocks.size), (blocks.begin, -blocks.size, -width)):
            yield best_fit(blocks, np.lexsort(order), clock)


def random_skylines(
    blocks: Blocks, rounds: int, random: np.random.Generator, clock: Clock | None = None
) -> Iterator[Integers]:
    """Yield skylines that prefer powers of size and lifetime, with noise, in either time."""
    size, width = np.log(blocks.size), np.log(blocks.end - blocks.begin)
    for place in range(rounds):
        of_size, of_width, noise = random.uniform(0, (1.5, 1.5, 0.6))
        wish = of_size * size + of_width * width + random.normal(0, noise, len(size))
        drawn = blocks.mirrored() if place % 2 else blocks
        if (packing := skyline(drawn, np.exp(wish - wish.max()), clock)) is not None:
            yield packing


def has_solver() -> bool:
    """Whether CP-SAT is installed."""
    return find_spec("ortools") is not None


def solved(blocks: Blocks, best: Integers, enough: int, seconds: float) -> tuple[Integers, bool]:
    """Return the packing of CP-SAT in some seconds, and whether it is proven; if installed."""
    if not has_solver() or not seconds:
        return best, False
    from tinyckpt.codegen.no_overlap_cp import least_height

    return least_height(blocks.begin, blocks.end, blocks.size, best, enough, seconds)


def searched(
    blocks: Blocks, best: Integers, enough: int, clock: Clock | None, seed: int
) -> Iterator[Integers]:
    """Yield lower and lower packings.

    First come skylines of random preferences. Branch and bound looks for a packing of height
    ``enough``, and if it finds none in most of the time or half of the nodes, for one halfway
    between that and the lowest so far; then ejection searches do.
    """
    random = np.random.default_rng(seed)
    rounds = SKYLINES // len(blocks) if len(blocks) ** 2 <= MOST_PAIRS else 0
    for packing in random_skylines(blocks, rounds, random, clock):
        if blocks.height(packing) < blocks.height(best):
            best = packing
            yield best
    target = enough
    nodes = NODES // len(blocks)
    while len(blocks) <= MOST_IN_TREE and target < blocks.height(best):
        limit = Clock(clock.left() * 7 / 8) if clock is not None else NO_DEADLINE
        try:
            found = search_within(
                blocks.begin, blocks.end, blocks.size, target,
                nodes if clock is None else UNLIMITED, limit,
            )  # fmt: skip
        except OutOfTimeError:
            found = None
        if found is not None:
            best = found
            yield best
        if clock is not None:
            clock.check()
        else:
            nodes //= 2
            if nodes < LEAST_NODES:
                break
        target = max(target + 1, (target + blocks.height(best)) // 2)
    if rounds:  # of more blocks, they would take minutes
        yield from ejections(blocks, best, enough, clock, random)


def ejections(
    blocks: Blocks, best: Integers, enough: int, clock: Clock | None, random: np.random.Generator
) -> Iterator[Integers]:
    """Yield lower and lower packings of ejection searches, by bisection of the capacity.

    They are two-ended if enough bytes live to the end; small blocks are then below the others.
    """
    stacked = int(blocks.size[blocks.end == blocks.end.max()].sum()) > PILED * enough
    packing, others, base = strip(blocks, enough if stacked else 0)
    part = blocks.part(others)
    steps = min(EJECTIONS * len(part), MOST_EJECTIONS)
    low, high, tries, failed = enough, blocks.height(best), 0, 0
    while high - low > high // CLOSE:
        middle = (low + high) // 2
        found = eject_within(
            part.begin, part.end, part.size, middle - base, steps, random, clock or NO_DEADLINE,
            stacked,
        )  # fmt: skip
        if found is not None:
            packing[others] = found + base
            high, tries = blocks.height(packing), 0
            yield packing.copy()
            continue
        tries, failed = tries + 1, failed + 1
        if clock is None and failed >= MOST_EJECTIONS // steps:
            break
        if stacked or tries == TRIES:
            low, tries = middle + 1, 0


def strip(blocks: Blocks, peak: int) -> tuple[Integers, Integers, int]:
    """Pack small blocks at the bottom, as a caching allocator does in segments of their own.

    Where they live long, they would divide the gaps of large blocks, and all of them together are
    a few thousandths of the bytes.

    Args:
        blocks: the blocks.
        peak: of live bytes, of which a small block is a small part; at 0 none is small.

    Returns:
        Offsets of the small blocks, and 0 of the others; the others; the height of the strip, 0
        if there is none.
    """
    offset = np.zeros(len(blocks), np.int64)
    small = (blocks.size * STRIP < peak) & (blocks.end < blocks.end.max())
    small &= len(blocks) >= FEWEST_IN_STRIP
    if small.any():
        offset[small] = best_fit_in_time(blocks.part(small))
    height = blocks.part(small).height(offset[small])
    if height * HIGHEST_STRIP > peak:
        return np.zeros_like(offset), np.arange(len(blocks)), 0
    return offset, np.flatnonzero(~small), height


def best_fit_in_time(blocks: Blocks) -> Integers:
    """Place blocks as they are allocated, each in the smallest free gap that it fits in."""
    begin, end, size = blocks.begin.tolist(), blocks.end.tolist(), blocks.size.tolist()
    offset = [0] * len(size)
    moments = sorted(
        [(at, 1, block) for block, at in enumerate(begin)]
        + [(at, 0, block) for block, at in enumerate(end)]
    )
    gaps: list[tuple[int, int]] = []  # (size, offset), sorted; by both of their ends also:
    at_begin: dict[int, int] = {}
    at_end: dict[int, int] = {}
    height = 0

    def add(low: int, high: int) -> None:
        insort(gaps, (high - low, low))
        at_begin[low], at_end[high] = high, low

    def remove(low: int, high: int) -> None:
        gaps.pop(bisect_left(gaps, (high - low, low)))
        del at_begin[low], at_end[high]

    for _, begins, block in moments:
        if begins:
            place = bisect_left(gaps, (size[block], 0))
            if place < len(gaps):
                wide, low = gaps[place]
                high = low + wide
                remove(low, high)
            elif (low := at_end.get(height, height)) < height:  # extend the topmost gap
                remove(low, height)
                high = height = low + size[block]
            else:
                high = height = low + size[block]
            offset[block] = low
            if low + size[block] < high:
                add(low + size[block], high)
        else:
            low, high = offset[block], offset[block] + size[block]
            if high in at_begin:
                after = at_begin[high]
                remove(high, after)
                high = after
            if low in at_end:
                before = at_end[low]
                remove(before, low)
                low = before
            add(low, high)
    return np.asarray(offset, np.int64)


def best_fit(blocks: Blocks, order: Integers, clock: Clock | None = None) -> Integers:
    """Place blocks in an order, each in the smallest gap that is free for its whole lifetime."""
    count = len(blocks)
    # Blocks that are placed, sorted by offset: lifetimes, offset and top.
    begins, ends, lows, tops = np.zeros((4, count + 1), np.int64)
    offset = np.zeros(count, np.int64)
    columns = blocks.begin[order].tolist(), blocks.end[order].tolist(), blocks.size[order].tolist()
    for placed, (block, *times, size) in enumerate(zip(order.tolist(), *columns, strict=True)):
        if clock is not None and placed % CHECKED == 0:
            clock.check()
        begin, end = times
        near = (begins[:placed] < end) & (ends[:placed] > begin)
        above = np.maximum.accumulate(np.concatenate([[0], tops[:placed][near]]))
        gaps = lows[:placed][near] - above[:-1]
        fits = np.flatnonzero(gaps >= size)
        low = int(above[fits[gaps[fits].argmin()]] if len(fits) else above[-1])
        offset[block] = low
        at = int(lows[:placed].searchsorted(low))
        for column, value in ((begins, begin), (ends, end), (lows, low), (tops, low + size)):
            column[at + 1 : placed + 1] = column[at:placed]
            column[at] = value
    return offset


def skyline(blocks: Blocks, preference: Integers, clock: Clock | None = None) -> Integers | None:
    """Fill the lowest segment of the top edge with the preferred block that fits; else raise it.

    Returns None if that is too much work.
    """
    order = np.argsort(blocks.begin, kind="stable")
    begin, end, size = blocks.begin[order], blocks.end[order], blocks.size[order]
    wish = np.asarray(preference, float)[order]
    offset = np.zeros(len(order), np.int64)
    first, last = int(begin[0]), int(end.max())
    # Segments are a doubly linked list: a segment ends where the next one starts.
    stop = {first: last}  # by the start of each, as the next two
    level = {first: 0}
    before = {first: first}  # of the first one itself
    lowest = [(0, first)]

    def replace(start: int, until: int, pieces: Sequence[tuple[int, int, int]]) -> None:
        """Put pieces, (start, stop, level) each, in place of the segments of a range."""
        previous, old = before[start], start
        while old < until:
            following = stop.pop(old)
            del level[old], before[old]
            old = following
        for begins, ends, height in pieces:
            before[begins] = begins if begins == first else previous
            stop[begins], level[begins] = ends, height
            heappush(lowest, (height, begins))
            previous = begins
        if until < last:
            before[until] = previous

    left, seen = len(order), 0
    while left:
        if clock is not None and left % CHECKED == 0:
            clock.check()
        high, start = heappop(lowest)
        if level.get(start) != high:
            continue  # replaced since
        until = stop[start]
        while until < last and level[until] == high:  # equal neighbours are one segment
            until = stop[until]
        low, top = begin.searchsorted((start, until)).tolist()
        seen += top - low
        if seen > MOST_SEEN:
            return None
        able = np.where(end[low:top] <= until, wish[low:top], -1.0)
        at = int(able.argmax()) if top > low else -1
        if at < 0 or able[at] < 0:
            previous = before[start]
            levels = [level[previous]] * (start > first) + ([level[until]] if until < last else [])
            begins = previous if start > first and level[previous] == min(levels) else start
            replace(begins, until, [(begins, until, min(levels))])
            continue
        block = low + at
        wish[block] = -1.0
        left -= 1
        offset[order[block]] = high
        a, b = int(begin[block]), int(end[block])
        pieces = ((start, a, high), (a, b, high + int(size[block])), (b, until, high))
        replace(start, until, [piece for piece in pieces if piece[0] < piece[1]])
    return offset
