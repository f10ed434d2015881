"""Dynamic storage allocation, offline: offsets for blocks of known lifetimes in one buffer.

NP-hard (Garey & Johnson 1979, problem SR2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyckpt.base.errors import OptionError

Integers = Any


@dataclass(frozen=True, slots=True)
class Packing:
    """Offsets of blocks, and how good they are.

    Attributes:
        offsets: of each block, in bytes.
        nbytes: the height: the largest offset plus size, rounded up to the alignment.
        lower_bound: the peak of live bytes, sizes rounded up.
        optimal: whether no packing is lower.
    """

    offsets: tuple[int, ...]
    nbytes: int
    lower_bound: int
    optimal: bool


def assign_offsets(
    starts: Sequence[int],
    stops: Sequence[int],
    sizes: Sequence[int],
    alignment: int = 1,
    deadline: float | None = None,
    seed: int = 0,
) -> Packing:
    """Assign an offset to each block, so that blocks that are live together do not overlap."""
    if alignment < 1 or alignment & (alignment - 1):
        raise OptionError(f"alignment={alignment!r}; expected a power of two")
    begin, end = np.asarray(starts, np.int64), np.asarray(stops, np.int64)
    size = -(-np.asarray(sizes, np.int64) // alignment)
    offset = np.zeros(len(size), np.int64)
    placed = np.zeros(len(size), bool)
    for block in np.lexsort((begin, -(end - begin) * size, -size)):
        near = np.flatnonzero(placed & (begin < end[block]) & (end > begin[block]))
        near = near[np.argsort(offset[near], kind="stable")]
        tops = np.maximum.accumulate(np.concatenate([[0], offset[near] + size[near]]))
        gaps = offset[near] - tops[:-1]
        fits = np.flatnonzero(gaps >= size[block])
        offset[block] = tops[fits[np.argmin(gaps[fits])]] if len(fits) else tops[-1]
        placed[block] = True
    events = np.concatenate([np.stack([end, -size]), np.stack([begin, size])], axis=1)
    order = np.lexsort((events[1], events[0]))
    bound = int(max(0, events[1][order].cumsum().max(initial=0)))
    height = int((offset + size).max(initial=0))
    return Packing(
        tuple((offset * alignment).tolist()),
        height * alignment,
        bound * alignment,
        height == bound,
    )
