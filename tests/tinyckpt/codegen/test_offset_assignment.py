"""Packings: no two live blocks overlap, and how high they are; checked block by block."""

import time
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples, require
from tinyckpt.base.deadline import NO_DEADLINE
from tinyckpt.base.errors import OptionError
from tinyckpt.codegen import offset_assignment
from tinyckpt.codegen.offset_assignment import (
    Blocks,
    assign_offsets,
    best_fit,
    best_fit_in_time,
    constructed,
    ejections,
    random_skylines,
    skyline,
    strip,
)
from tinyckpt.codegen.offset_ejection import eject_within
from tinyckpt.codegen.offset_tree_search import search_within

Block = tuple[int, int, int]  # start, stop, size


@st.composite
def blocks_of(draw: st.DrawFn, most: int = 14, largest: int = 9) -> list[Block]:
    """Draw blocks: short lifetimes and long ones, of few sizes, so that some fit exactly."""
    count = draw(st.integers(0, most))
    drawn = []
    for _ in range(count):
        start = draw(st.integers(0, 8))
        drawn.append(
            (start, start + draw(st.integers(1, 6)), draw(st.integers(0, largest)))
        )  # fmt: skip
    return drawn


def collisions(blocks: list[Block], offsets: Any) -> list[tuple[int, int]]:
    """Return the pairs of blocks that share a byte at a moment; looks at every byte of each."""
    used: dict[tuple[int, int], int] = {}
    found = []
    for number, ((start, stop, size), offset) in enumerate(zip(blocks, offsets, strict=True)):
        assert offset >= 0
        for moment in range(start, stop):
            for byte in range(offset, offset + size):
                if (other := used.setdefault((moment, byte), number)) != number:
                    found.append((other, number))
    return found


def live_peak(blocks: list[Block]) -> int:
    """Return the largest number of live bytes, moment by moment."""
    last = max((stop for _, stop, _ in blocks), default=0)
    return max((sum(size for a, b, size in blocks if a <= at < b) for at in range(last)), default=0)


def least_height(blocks: list[Block]) -> int:
    """Return the height of the lowest packing: in some order, each block as low as it can be."""
    best = sum(size for *_, size in blocks)
    for order in permutations(range(len(blocks))):
        offsets: dict[int, int] = {}
        for block in order:
            start, stop, _ = blocks[block]
            below = [
                offsets[other] + blocks[other][2]
                for other in offsets
                if blocks[other][0] < stop and start < blocks[other][1]
            ]
            offsets[block] = max(below, default=0)
        best = min(best, max((offsets[b] + blocks[b][2] for b in offsets), default=0))
    return best


def rounded(blocks: list[Block], alignment: int) -> list[Block]:
    return [(a, b, -(-size // alignment) * alignment) for a, b, size in blocks]


def columns_of(blocks: list[Block]) -> Any:
    """Return starts, stops and sizes."""
    return [list(column) for column in zip(*blocks, strict=True)] or [[], [], []]


def arrays_of(blocks: list[Block]) -> Blocks:
    """Return the blocks that have a size, as the heuristics take them."""
    columns = np.array([block for block in blocks if block[2]], np.int64).reshape(-1, 3).T
    return Blocks(*columns)


@settings(max_examples=examples(200))
@given(blocks_of(), st.sampled_from([1, 2, 4, 8]), st.integers(0, 3))
def test_no_two_live_blocks_overlap(blocks: list[Block], alignment: int, seed: int) -> None:
    starts, stops, sizes = columns_of(blocks)
    packing = assign_offsets(starts, stops, sizes, alignment, seed=seed)
    taken = rounded(blocks, alignment)
    assert collisions(taken, packing.offsets) == []
    assert all(offset % alignment == 0 for offset in packing.offsets)
    tops = [offset + size for (*_, size), offset in zip(taken, packing.offsets, strict=True)]
    assert packing.nbytes == max(tops, default=0)
    assert packing.lower_bound == live_peak(taken) <= packing.nbytes
    assert packing.optimal == (packing.nbytes == packing.lower_bound)


@settings(max_examples=examples(60))
@given(blocks_of(most=6, largest=4))
def test_height_of_few_blocks_is_least(blocks: list[Block]) -> None:
    columns = columns_of(blocks)
    assert assign_offsets(*columns).nbytes == least_height(blocks)


@settings(max_examples=examples(100))
@given(blocks_of(most=20))
def test_every_heuristic_packs_without_overlap(blocks: list[Block]) -> None:
    arrays = arrays_of(blocks)
    real = [block for block in blocks if block[2]]
    if not real:
        return
    width = arrays.end - arrays.begin
    packings = [
        best_fit_in_time(arrays),
        skyline(arrays, width),
        skyline(arrays, arrays.size),
        best_fit(arrays, np.arange(len(real))[::-1]),
        *random_skylines(arrays, 4, np.random.default_rng(2)),
    ]
    for packing in packings:
        assert packing is not None
        assert collisions(real, packing.tolist()) == []


@settings(max_examples=examples(80))
@given(blocks_of(most=6, largest=4))
def test_tree_search_finds_a_packing_exactly_where_there_is_one(blocks: list[Block]) -> None:
    arrays = arrays_of(blocks)
    real = [block for block in blocks if block[2]]
    if not real:
        return
    least = least_height(real)
    for capacity in (least - 1, least, least + 1):
        found = search_within(arrays.begin, arrays.end, arrays.size, capacity, 10**6, NO_DEADLINE)
        assert (found is not None) == (capacity >= least)
        if found is not None:
            assert collisions(real, found.tolist()) == []
            assert arrays.height(found) <= capacity


@settings(max_examples=examples(80))
@given(blocks_of(most=6, largest=4), st.integers(0, 3))
def test_ejection_search_finds_only_packings_that_there_are(blocks: list[Block], seed: int) -> None:
    arrays = arrays_of(blocks)
    real = [block for block in blocks if block[2]]
    if not real:
        return
    least, random = least_height(real), np.random.default_rng(seed)
    columns = arrays.begin, arrays.end, arrays.size
    assert eject_within(*columns, least - 1, 100, random, NO_DEADLINE) is None
    found = eject_within(*columns, least, 2000, random, NO_DEADLINE)
    assert found is not None
    assert collisions(real, found.tolist()) == []
    assert arrays.height(found) == least


def test_ejection_search_packs_lower_than_every_heuristic() -> None:
    random = np.random.default_rng(4)
    starts = random.integers(0, 200, 120)
    stops, sizes = starts + random.integers(1, 60, 120), random.integers(1, 200, 120)
    blocks = Blocks(starts, stops, sizes)
    least = min(map(blocks.height, constructed(blocks, None)))
    start = best_fit_in_time(blocks)
    *_, found = ejections(blocks, start, blocks.peak(), NO_DEADLINE, random)
    assert collisions([*zip(starts, stops, sizes, strict=True)], found.tolist()) == []
    assert blocks.height(found) < least


def test_equal_sizes_are_packed_to_the_peak() -> None:
    # Interval graphs are perfect: as many places are enough as blocks are live at once.
    random = np.random.default_rng(3)
    starts = random.integers(0, 500, 400)
    stops = starts + random.integers(1, 200, 400)
    packing = assign_offsets(starts.tolist(), stops.tolist(), [64] * 400)
    assert packing.optimal
    assert packing.nbytes == packing.lower_bound


def test_nested_lifetimes_are_packed_to_the_peak() -> None:
    starts, stops = list(range(50)), list(range(100, 50, -1))
    packing = assign_offsets(starts, stops, list(range(1, 51)))
    assert packing.nbytes == packing.lower_bound == sum(range(1, 51))


def test_result_depends_on_the_arguments_only() -> None:
    random = np.random.default_rng(5)
    starts = random.integers(0, 60, 80)
    columns = starts.tolist(), (starts + random.integers(1, 30, 80)).tolist()
    sizes = random.integers(1, 50, 80).tolist()
    assert assign_offsets(*columns, sizes, 4, seed=7) == assign_offsets(*columns, sizes, 4, seed=7)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([0], [1], [-1]), "block 0 has size -1; expected 0 or more"),
        (([0, 3], [1, 3], [1, 1]), "block 1 has stop 3; expected more than its start, 3"),
        (([0], [1], [1], 3), "alignment=3; expected a power of two"),
        (([0], [1], [1], 0), "alignment=0; expected a power of two"),
        (([0], [1], [1], 2.0), r"alignment=2\.0; expected a power of two"),
        (([0], [1, 2], [1]), "1 starts, 2 stops and 1 sizes; expected one of each per block"),
        (([0], [1], [2**61]), "blocks of more than 1,152,921,504,606,846,976 bytes together"),
        (([0], [2**70], [1]), "a number of a block is not within 64 bits"),
        (([0], [1], [1], 1, -1.0), r"time_limit = -1\.0"),
    ],
)
def test_illegal_blocks_and_options_are_refused(arguments: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        assign_offsets(*arguments)


def test_search_ends_at_capacity() -> None:
    # Of these blocks the first heuristic makes a higher packing than the search.
    random = np.random.default_rng(0)
    starts = random.integers(0, 30, 40)
    stops, sizes = starts + random.integers(1, 12, 40), random.integers(1, 20, 40)
    columns = starts.tolist(), stops.tolist(), sizes.tolist()
    first = Blocks(starts, stops, sizes)
    height = first.height(best_fit_in_time(first))
    assert assign_offsets(*columns).nbytes < assign_offsets(*columns, capacity=height).nbytes
    assert assign_offsets(*columns, capacity=height).nbytes <= height


@pytest.mark.long
def test_search_ends_at_the_deadline() -> None:
    random = np.random.default_rng(2)
    starts = random.integers(0, 40_000, 40_000)
    stops, sizes = starts + random.geometric(0.01, 40_000), random.integers(1, 1000, 40_000)
    begin = time.process_time()
    packing = assign_offsets(starts.tolist(), stops.tolist(), sizes.tolist(), deadline=3)
    # Checks, and the first packing, which is made in any case, take a second or two.
    assert time.process_time() - begin < 3 + 5
    assert packing.nbytes >= packing.lower_bound


def test_skyline_gives_up_where_it_would_look_at_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = arrays_of([(at, at + 2, 1) for at in range(20)])
    assert skyline(arrays, arrays.size) is not None
    monkeypatch.setattr(offset_assignment, "MOST_SEEN", 10)
    assert skyline(arrays, arrays.size) is None


def test_solver_proves_packings_optimal_without_the_peak() -> None:
    require("ortools")
    from tinyckpt.codegen.no_overlap_cp import least_height as solve

    random = np.random.default_rng(0)
    for _ in range(5):
        starts = random.integers(0, 6, 6)
        stops, sizes = starts + random.integers(1, 5, 6), random.integers(1, 4, 6)
        blocks = [*zip(starts.tolist(), stops.tolist(), sizes.tolist(), strict=True)]
        arrays = arrays_of(blocks)
        above = np.arange(6) * 4  # one above another: high, and legal
        found, proven = solve(arrays.begin, arrays.end, arrays.size, above, 0, 60.0)
        assert proven
        assert collisions(blocks, found.tolist()) == []
        assert arrays.height(found) == least_height(blocks)
        # A height that is low enough ends the search, and proves nothing.
        enough = least_height(blocks) + 1
        found, proven = solve(arrays.begin, arrays.end, arrays.size, above, enough, 60.0)
        assert arrays.height(found) <= enough
        assert not proven


@pytest.mark.long
def test_many_blocks_are_packed_close_to_the_bound() -> None:
    random = np.random.default_rng(0)
    count = 10_000
    starts = random.integers(0, count, count)
    stops = (starts + random.geometric(0.02, count)).tolist()
    sizes = (random.integers(1, 1000, count) * 64).tolist()
    packing = assign_offsets(starts.tolist(), stops, sizes, 64)
    assert packing.nbytes <= 1.15 * packing.lower_bound


@pytest.mark.parametrize(
    ("count", "expected"),
    [(100, ["solver", "search"]), (101, ["search", "solver"]), (1001, ["search"])],
)
def test_solver_comes_before_the_search_of_few_blocks_only(
    monkeypatch: pytest.MonkeyPatch, count: int, expected: list[str]
) -> None:
    calls: list[str] = []

    def solved(blocks: Blocks, best: Any, enough: int, seconds: float) -> tuple[Any, bool]:
        assert 0 < seconds <= 60
        calls.append("solver")
        return best, False

    def searched(*arguments: Any) -> Iterator[Any]:
        calls.append("search")
        return iter(())

    def stacked(blocks: Blocks, clock: Any) -> Iterator[Any]:
        yield blocks.size.cumsum() - blocks.size

    for function in (solved, searched):
        monkeypatch.setattr(offset_assignment, function.__name__, function)
    monkeypatch.setattr(offset_assignment, "constructed", stacked)
    starts = range(count)
    assign_offsets(starts, [start + 1 for start in starts], [64] * count, deadline=60)
    assert calls == expected


def test_small_blocks_of_a_two_ended_search_are_in_a_strip_below_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offset_assignment, "FEWEST_IN_STRIP", 90)
    random = np.random.default_rng(6)
    starts = random.integers(0, 40, 90)
    stops, sizes = starts + random.integers(1, 12, 90), random.integers(200, 700, 90)
    stops[:20] = 60
    stops[20:50], sizes[20:50] = starts[20:50] + 15, random.integers(1, 3, 30)
    blocks = Blocks(starts, stops, sizes)
    peak = blocks.peak()
    drawn = [*zip(starts.tolist(), stops.tolist(), sizes.tolist(), strict=True)]
    found = np.arange(0)
    for found in ejections(blocks, best_fit_in_time(blocks), peak, NO_DEADLINE, random):
        assert collisions(drawn, found.tolist()) == []
    height = max(found[20:50] + sizes[20:50])
    assert height <= 3 * live_peak(drawn[20:50])
    assert min(np.delete(found, np.s_[20:50])) == height
    # A strip of a hundredth of the peak would be too high: all blocks are packed together.
    sizes[20:50] = peak // 1200
    _, others, base = strip(Blocks(starts, stops, sizes), peak)
    assert (len(others), base) == (90, 0)
    sizes[20:50] = 1
    blocks = Blocks(starts, stops, sizes)
    assert strip(blocks, peak)[2] > 0
    monkeypatch.setattr(offset_assignment, "FEWEST_IN_STRIP", 91)
    assert strip(blocks, peak)[2] == 0


@pytest.mark.long
def test_two_ended_ejection_search_piles_what_lives_to_the_end_below_the_top() -> None:
    random = np.random.default_rng(5)
    starts = random.integers(0, 200, 120)
    stops, sizes = starts + random.integers(1, 30, 120), random.integers(1, 200, 120)
    stops[:40] = 240
    blocks = Blocks(starts, stops, sizes)
    capacity = blocks.peak() * 11 // 10
    found = eject_within(starts, stops, sizes, capacity, 5000, random, NO_DEADLINE, stacked=True)
    assert found is not None
    assert collisions([*zip(starts, stops, sizes, strict=True)], found.tolist()) == []
    assert blocks.height(found) <= capacity
    first, second = np.argsort(starts[:40], kind="stable")[:2]
    assert found[first] == capacity - sizes[first]
    assert found[second] == found[first] - sizes[second]
    assert eject_within(starts, stops, sizes, 1000, 10, random, NO_DEADLINE, stacked=True) is None
    every = np.full(120, 240)  # all live to the end: nothing is left to search for
    within = int(sizes.sum())
    piled = eject_within(starts, every, sizes, within, 10, random, NO_DEADLINE, stacked=True)
    assert piled is not None
    assert collisions([*zip(starts, every, sizes, strict=True)], piled.tolist()) == []
