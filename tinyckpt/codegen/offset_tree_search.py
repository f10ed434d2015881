"""Branch and bound for dynamic storage allocation: depth-first search in order of offsets.

A packing is canonical if no block can be moved down; placed in order of their offsets, each of its
blocks lies on the top of those placed before. So a node of the tree places one more block, at its
least offset, and never below the block before it. A node is cut off if for a section of time, what
is still to be placed there does not fit above the lowest of its least offsets. Where the rest falls
into parts that no lifetime connects, each is searched alone.

Source: M. Moffitt, MiniMalloc, ASPLOS 2023, doi:10.1145/3623278.3624752: canonical order, section
inference, dominance by the lowest top, decomposition, the orders of preference and their restarts
with growing limits. Here a node is a few NumPy calls on all blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinyckpt.base.deadline import Clock

Integers = Any
DEEPEST = 200  # parts within parts: what Python's own stack has room for


class NodeLimitError(Exception):
    """A search has visited as many nodes as it may."""


@dataclass(slots=True)
class Budget:
    """What a search may still do: nodes and seconds."""

    nodes: int
    clock: Clock
    visited: int = 0

    def visit(self, count: int) -> None:
        """Count nodes; raise NodeLimitError at the limit, OutOfTimeError after the deadline."""
        self.visited += count
        if self.visited > self.nodes:
            raise NodeLimitError
        self.clock.check()


@dataclass(slots=True)
class Part:
    """Blocks that lifetimes connect, in order of preference; begin and end count sections.

    Attributes:
        blocks: their ids in the whole problem.
        begin, end, size: of each.
        overlaps: (blocks, blocks), 1 where lifetimes overlap, else 0.
        members, first: of each section, concatenated, and where each section's begin.
        crossing: lifetimes across the border after each section.
        rest: sizes of all members of each section.
    """

    blocks: Integers
    begin: Integers
    end: Integers
    size: Integers
    overlaps: Integers = field(init=False)
    inside: Integers = field(init=False)
    members: Integers = field(init=False)
    first: Integers = field(init=False)
    crossing: Integers = field(init=False)
    rest: Integers = field(init=False)

    def __post_init__(self) -> None:
        times = np.unique(np.concatenate([self.begin, self.end]))
        self.begin = np.searchsorted(times, self.begin)
        self.end = np.searchsorted(times, self.end)
        apart = (self.end[:, None] <= self.begin) | (self.begin[:, None] >= self.end)
        self.overlaps = (~apart).astype(np.int64)
        np.fill_diagonal(self.overlaps, 0)
        self.overlaps = self.overlaps.astype(self.size.dtype)
        sections = np.arange(len(times) - 1)
        inside = (self.begin <= sections[:, None]) & (sections[:, None] < self.end)
        self.members = np.nonzero(inside)[1]
        counts = inside.sum(axis=1)
        self.first = counts.cumsum() - counts
        self.crossing = (inside[:-1] & inside[1:]).sum(axis=1)
        self.inside = inside.T.astype(self.size.dtype)
        self.rest = inside @ self.size


@dataclass(slots=True)
class Child:
    """A partial packing: its last block and that one's offset, least offsets, rest of sections."""

    block: int
    offset: int
    least: Integers
    rest: Integers
    is_last: bool  # whether its siblings need not be tried: nothing unplaced lies above it


class TreeSearch:
    """Search for a packing within a capacity, for one order of preference."""

    def __init__(self, part: Part, capacity: int, budget: Budget) -> None:
        self.capacity, self.budget = capacity, budget
        self.never = 4 * capacity  # the least offset of a block that is placed
        self.offsets = np.zeros(int(part.blocks.max(initial=-1)) + 1, np.int64)
        self.part = part

    def run(self) -> bool:
        """Whether there is a packing; its offsets are in ``offsets``."""
        least = np.zeros_like(self.part.size)
        pieces = self.pieces(self.part, least, self.part.crossing)
        return all(self.solve(*piece, 0) for piece in pieces)

    def solve(self, part: Part, least: Integers, depth: int) -> bool:
        """Place the blocks of a part, each at or above its least offset."""
        if depth > DEEPEST:
            raise NodeLimitError
        if len(part.blocks) == 1:
            self.offsets[part.blocks[0]] = least[0]
            return bool(least[0] + part.size[0] <= self.capacity)
        path = [(self.children(part, least, part.rest, 0, -1), part.crossing)]
        while path:
            children, crossing = path[-1]
            if not children:
                path.pop()
                continue
            child = children.pop()
            if child.is_last:
                children.clear()
            self.offsets[part.blocks[child.block]] = child.offset
            begin, end = part.begin[child.block], part.end[child.block]
            crossing = crossing.copy()
            crossing[begin : end - 1] -= 1
            if not crossing[begin : end - 1].all():
                # Parts are independent: if one cannot be placed, this node is cut off.
                pieces = self.pieces(part, child.least, crossing)
                if all(self.solve(*piece, depth + 1) for piece in pieces):
                    return True
            elif not child.rest.any():
                return True
            else:
                below = self.children(part, child.least, child.rest, child.offset, child.block)
                path.append((below, crossing))
        return False

    def children(
        self, part: Part, least: Integers, rest: Integers, offset: int, block: int
    ) -> list[Child]:
        """Return the partial packings with one more block, the preferred one last.

        None that would be below the block before it; and none at or above the lowest possible top,
        since another block would fit below it. All are checked at once.
        """
        able = least < (least + part.size).min()
        able &= least >= offset
        able[: block + 1] &= least[: block + 1] > offset
        blocks = np.flatnonzero(able)
        self.budget.visit(len(blocks))
        offsets = least[blocks]
        tops = offsets + part.size[blocks]
        near = part.overlaps[blocks]
        below = np.maximum(least, near * tops[:, None])
        below[np.arange(len(blocks)), blocks] = self.never
        left = rest - part.inside[blocks] * part.size[blocks, None]
        low = np.minimum.reduceat(below.take(part.members, axis=1), part.first, axis=1)
        np.maximum(low, offsets[:, None], out=low)
        fits = ~((low + left > self.capacity) & (left > 0)).any(axis=1)
        hatless = ~((near > 0) & (least < self.never)).any(axis=1)
        order = np.flatnonzero(fits)
        order = order[np.argsort(offsets[order], kind="stable")[::-1]]
        return [
            Child(int(blocks[i]), int(offsets[i]), below[i], left[i], bool(hatless[i]))
            for i in order
        ]

    def pieces(
        self, part: Part, least: Integers, crossing: Integers
    ) -> Iterator[tuple[Part, Integers]]:
        """Yield the parts into which the unplaced blocks fall, with their least offsets."""
        left = np.flatnonzero(least < self.never)
        borders = np.flatnonzero(crossing == 0) + 1
        piece_of = np.searchsorted(borders, part.begin[left], side="right")
        for piece in np.unique(piece_of):
            own = left[piece_of == piece]
            yield (
                Part(part.blocks[own], part.begin[own], part.end[own], part.size[own]),
                least[own],
            )


def orders_of_preference(begin: Integers, end: Integers, size: Integers) -> list[Integers]:
    """Return three orders: by width, area, total; total, area, width; total, width, area.

    A block's total is the largest sum of live sizes in its lifetime.
    """
    width = end - begin
    times, inverse = np.unique(np.concatenate([begin, end]), return_inverse=True)
    change = np.zeros(len(times) + 1, np.int64)
    np.add.at(change, inverse, np.concatenate([size, -size]))
    live = change.cumsum()
    low, high = inverse[: len(begin)], inverse[len(begin) :]
    total = np.array([live[a:b].max() for a, b in zip(low, high, strict=True)], np.int64)
    area = width * size
    return [
        np.lexsort(keys)
        for keys in ((-total, -area, -width), (-width, -area, -total), (-area, -width, -total))
    ]


def search_within(
    begin: Integers, end: Integers, size: Integers, capacity: int, nodes: int, clock: Clock
) -> Integers | None:
    """Return a packing within a capacity, if one is found, with restarts; all sizes positive.

    Raises:
        OutOfTimeError: if the deadline passes.
    """
    orders = orders_of_preference(begin, end, size)
    if capacity < 2**28:
        size = size.astype(np.int32)
    limit = len(size)
    while nodes > 0:
        limit *= 2
        for order in orders:
            budget = Budget(min(limit, nodes), clock)
            part = Part(order, begin[order], end[order], size[order])
            search = TreeSearch(part, capacity, budget)
            try:
                found = search.run()
            except NodeLimitError:
                nodes -= budget.visited
                continue
            return search.offsets if found else None
    return None
