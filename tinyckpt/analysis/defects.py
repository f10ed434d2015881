"""Where a NaN came from, or a number that float16 does not reach: what ``check_nan`` is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tinyckpt.graph import Graph
from tinyckpt.ops.dtypes import is_float

OVERFLOW = "float16 overflow"


def defect_of(array: Any) -> str:
    """Return ``NaN`` if an array holds one, ``float16 overflow`` for an infinity, or nothing."""
    if array.dtype == np.float16 and bool((abs(array) == np.inf).any().item()):
        return OVERFLOW
    return "NaN" if has_nan(array) else ""


def has_nan(array: Any) -> bool:
    """Whether a floating-point array holds a NaN."""
    if not is_float(array.dtype):
        return False
    if array.dtype.itemsize == 2:
        return bool((array != array).any().item())
    # The sum of squares is NaN if and only if an element is: infinities add up to infinity.
    flat = array.ravel()
    with np.errstate(all="ignore"):
        total = flat @ flat
    return bool((total != total).item())


class Watcher:
    """Looks at results, one operator after the other; infinities that were given are no overflow.

    Attributes:
        graph, xp: of what is executed: the graph, and NumPy or CuPy.
        infinite: the values that show an infinity, of arguments, constants and results so far.
    """

    def __init__(self, graph: Graph, sources: Mapping[int, Any], xp: Any) -> None:
        self.graph, self.xp = graph, xp
        given = {**sources, **graph.constants}
        self.infinite = {data for data, array in given.items() if has_infinity(array)}

    def defect(self, index: int, results: tuple[Any, ...]) -> str:
        """Return what is wrong with an operator's results, as ``defect_of``, or nothing."""
        operator = self.graph.operators[index]
        is_given = not self.infinite.isdisjoint(operator.inputs)
        arrays = [self.xp.asarray(result) for result in results]
        if is_given:
            self.infinite.update(
                data
                for data, array in zip(operator.outputs, arrays, strict=True)
                if has_infinity(array)
            )
        defects = map(defect_of, arrays)
        return max((d for d in defects if not (is_given and d == OVERFLOW)), default="")


def has_infinity(array: Any) -> bool:
    """Whether a floating-point array holds an infinity."""
    return is_float(array.dtype) and bool((abs(array) == np.inf).any().item())


def nan_text(graph: Graph, data: int, array: Any) -> str:
    """Return how many elements of a source are NaN."""
    name, count = graph.data[data].name, int((array != array).sum().item())
    return f"{name} holds NaN in {count} of {array.size} elements"
