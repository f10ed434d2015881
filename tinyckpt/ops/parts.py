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


# A span is long enough for what is done to it to cost more than to ask for it; of a large array it
# is long enough for a GPU, and short enough for its memory to be little beside the array's.
LEAST_SPAN, MOST_SPANS = 2**12, 2**8


def spans(count: int, multiple: int) -> list[tuple[int, int]]:
    """Return from where to where to go over so many elements, on every backend.

    For what needs memory besides its results, which is declared, and so must not differ. Each span
    but the last is as long as the others, and a multiple of a number.
    """
    length = span_length(count, multiple)
    return [(start, min(start + length, count)) for start in range(0, count, length)]


def span_length(count: int, multiple: int) -> int:
    """Return the length of the first span."""
    wanted = max(LEAST_SPAN, -(-count // MOST_SPANS))
    return max(1, min(count, -(-wanted // multiple) * multiple))
