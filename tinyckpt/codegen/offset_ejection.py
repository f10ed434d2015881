"""Guided ejection search for dynamic storage allocation: blocks displace easier blocks.

In: blocks and a capacity. Out: a packing within it, or None. A partial packing is legal at every
step; the unplaced block that has failed most is placed where the blocks that it overlaps weigh
least, and these are ejected. A block that ejects others has failed once more, and gains weight: so
large blocks, and those that compete for the same gap, are settled first and displaced last. Free
gaps are taken bottom-left, the lowest first.

Stacked, the search is two-ended. Blocks that live to the end, such as gradients of parameters, are
piled from the top down by birth and stay there: no byte between them is lost at any time, and the
rest is packed under a ceiling that only comes down. Small blocks take the highest gap, so that the
bottom is left to large ones, whose gaps a small block would split.

Source: Y. Nagata & O. Braysy, A powerful route minimization heuristic, Operations Research Letters
37, 2009, doi:10.1016/j.orl.2009.04.006: ejection pool and penalties, there for vehicles. Their
limit on the number of ejected items and their random moves in between are not used here.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from tinyckpt.base.deadline import Clock

Integers = Any
SCALE = 1000  # weight of a block of mean weight, as an integer, so that a free gap costs exactly 0
# Weights begin as areas to this power. At 0, large blocks are displaced by several small ones; at
# 1, small ones never displace anything.
POWER = 0.25
NOISE = 0.2  # costs are raised at random by up to this share: restarts differ, cycles end
SMALL = 64  # stacked, blocks of less than a 64th of the capacity take the highest gap
FIXED = 2**40  # weight of a block that is never displaced
UNPLACED = np.iinfo(np.int64).min
CHECKED = 64  # steps between two looks at the clock


def eject_within(
    begin: Integers,
    end: Integers,
    size: Integers,
    capacity: int,
    steps: int,
    random: np.random.Generator,
    clock: Clock,
    stacked: bool = False,
) -> Integers | None:
    """Return a packing within a capacity, if one is found in some steps; all sizes positive.

    Args:
        begin, end, size: of each block.
        capacity: the height to pack within.
        steps: blocks placed, at most.
        random: the source of noise.
        clock: the deadline.
        stacked: whether the search is two-ended; it may then miss packings that there are.

    Raises:
        OutOfTimeError: if the deadline passes.

    >>> from tinyckpt.base.deadline import NO_DEADLINE
    >>> blocks = np.array([0, 1, 2]), np.array([2, 4, 4]), np.array([3, 1, 2])
    >>> eject_within(*blocks, 4, 9, np.random.default_rng(0), NO_DEADLINE).tolist()
    [0, 3, 0]
    """
    if size.max() > capacity:
        return None
    weight = ((end - begin) * size.astype(float)) ** POWER
    gain = np.maximum(1, weight * (SCALE / weight.mean())).astype(np.int64)
    weight = gain.copy()
    offset = np.zeros(len(size), np.int64)
    until = np.full(len(size), UNPLACED)  # the end of a block once it is placed
    small = size * SMALL < capacity if stacked else np.zeros(len(size), bool)
    if stacked:
        last_long = np.flatnonzero(end == end.max())
        piled = last_long[np.argsort(begin[last_long], kind="stable")]
        offset[piled] = capacity - size[piled].cumsum()
        if offset.min() < 0:
            return None
        until[piled], weight[piled] = end[piled], FIXED
    waiting = np.flatnonzero(until == UNPLACED)
    pool = [*zip((-weight[waiting]).tolist(), waiting.tolist(), strict=True)]
    heapify(pool)
    if not pool:  # all of them are piled
        return offset
    for step in range(steps):
        if step % CHECKED == 0:
            clock.check()
        block = heappop(pool)[1]
        own = int(size[block])
        near = np.flatnonzero((until > begin[block]) & (begin < end[block]))
        low, heavy = offset[near], weight[near]
        high = low + size[near]
        # The block moves up: above low - own it overlaps a neighbour, from its high on no more.
        # Where it touches neighbours, or an end of the buffer, it overlaps least. At equal places
        # ends come first, and a place's cost is that without the beginnings at it.
        places = np.concatenate((high, (0, capacity - own), low - own))
        change = np.concatenate((-heavy, (0, 0), heavy))
        order = places.argsort(kind="stable")
        places, change = places[order], change[order]
        first, last = places.searchsorted(0), places.searchsorted(capacity - own, "right")
        cost = (change.cumsum() - np.maximum(change, 0))[first:last]
        at = int(cost.argmin())
        if cost[at] > 0:
            if cost[at] >= FIXED:
                return None  # the pile leaves no place
            at = int((cost * (1 + NOISE * random.random(len(cost)))).argmin())
        elif small[block]:
            at = len(cost) - 1 - int(cost[::-1].argmin())
        place = int(places[first + at])
        if cost[at] > 0:
            ejected = near[(low < place + own) & (high > place)]
            until[ejected] = UNPLACED
            weight[block] += gain[block]
            for other, failed in zip(ejected.tolist(), weight[ejected].tolist(), strict=True):
                heappush(pool, (-failed, other))
        offset[block], until[block] = place, end[block]
        if not pool:
            return offset
    return None
