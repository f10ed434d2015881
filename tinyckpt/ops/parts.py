"""In which parts a chain of elementwise operations goes over arrays.

Over a large array at once, every operation of a chain reads from memory what the one before wrote
there. Over a part at a time they find it in the processor's cache. It pays for long chains: gelu's
take a quarter less time, normalisations no less.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# Elements of a part: four such arrays of float32 take 1 MiB, half of a core's second cache.
PART = 2**16


def parts(xp: Any, shape: tuple[int, ...]) -> list[Any]:
    """Return what to index arrays of a shape with, part by part of the first axis.

    Elsewhere than in NumPy it is all at once: a GPU has the bandwidth, and each operation there is
    a launch.
    """
    size = math.prod(shape)
    if xp is not np or size <= PART:
        return [...]
    rows = max(1, PART * shape[0] // size)
    return [slice(start, start + rows) for start in range(0, shape[0], rows)]


def spans(xp: Any, count: int, multiple: int) -> list[tuple[int, int]]:
    """Return from where to where to go over so many elements, as ``parts`` does.

    Each span but the last is as long as the others, and a multiple of a number.
    """
    length = span_length(count, multiple) if xp is np else max(count, 1)
    return [(start, min(start + length, count)) for start in range(0, count, length)]


def span_length(count: int, multiple: int) -> int:
    """Return the length of NumPy's first span."""
    return max(1, min(count, max(PART // multiple, 1) * multiple))
