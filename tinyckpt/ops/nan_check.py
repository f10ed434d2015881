"""NaN and overflow detection: locates the first operator that produces a NaN or a float16 overflow.

The implementation of ``run(check_nan=True)``, comparable to ``torch.autograd.detect_anomaly`` and
``jax_debug_nans``: results are checked first, and only if they have a defect a second run checks
every evaluation. An infinity that follows from an infinite input is not an overflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tinyckpt.base.dtypes import is_float
from tinyckpt.core.graph import Graph

OVERFLOW = "float16 overflow"
BLOCK = 1 << 14  # elements


def defect_of(array: Any) -> str:
    """Return ``NaN`` if an array has one, ``float16 overflow`` for an infinity, else nothing."""
    if array.dtype == np.float16:
        for block in blocks(array):
            if bool((abs(block) == np.inf).any().item()):
                return OVERFLOW
    return "NaN" if has_nan(array) else ""


def has_nan(array: Any) -> bool:
    """Whether a floating-point array contains a NaN."""
    if not is_float(array.dtype):
        return False
    if array.dtype.itemsize == 2:
        return any(bool((block != block).any().item()) for block in blocks(array))
    # The sum of squares is NaN if and only if an element is: squares of infinities are +inf, and
    # infinities of one sign add up to infinity.
    flat = in_order_of_memory(array)
    with np.errstate(all="ignore"):
        total = flat @ flat
    return bool((total != total).item())


def in_order_of_memory(array: Any) -> Any:
    """Flatten an array in memory order: a view, if it covers each byte of its memory once."""
    steps = [slice(None, None, -1 if stride < 0 else 1) for stride in array.strides]
    forward = array[(*steps, ...)]
    axes = sorted(range(array.ndim), key=lambda axis: -forward.strides[axis])
    return forward.transpose(axes).ravel()


def blocks(array: Any) -> Iterator[Any]:
    """Yield an array's elements in blocks, so small that temporaries take negligible memory."""
    flat = in_order_of_memory(array)
    for start in range(0, flat.size, BLOCK):
        yield flat[start : start + BLOCK]


class Watcher:
    """Checks the results of every evaluation; infinities caused by infinite inputs are no overflow.

    Attributes:
        graph, xp: the executed graph, and NumPy or CuPy.
        given: the arrays of arguments and constants.
        infinite: the values that contain an infinity, of arguments, constants and results so far.
        found: the messages about the first defect.
    """

    def __init__(self, graph: Graph, sources: Mapping[int, Any], xp: Any) -> None:
        self.graph, self.xp = graph, xp
        self.given = {**sources, **graph.constants}
        self.infinite = {data for data, array in self.given.items() if has_infinity(array)}
        self.found: list[str] = []

    def watch(self, position: int, index: int, results: tuple[Any, ...]) -> None:
        """Check the results of an evaluation; the ``watch`` callback of ``execute``."""
        if self.found or not (defect := self.defect(index, results)):
            return
        operator = self.graph.operators[index]
        names = ", ".join(self.graph.data[data].name for data in operator.inputs)
        what = f"{defect}, first from step {position}"
        self.found = [f"{what}: {operator.name}, a {operator.kind} of {names}"]
        self.found += self.given_nan(operator.inputs)

    def text(self) -> str:
        """Return the message about the first defect, with a hint; empty if there is none."""
        # If no operator produced it, a result is itself an argument or a constant.
        found = self.found or self.given_nan(self.graph.outputs)
        if len(found) == 1 and found[0].startswith("NaN"):
            found.append("look for the log or root of a negative number, 0/0, or inf - inf")
        return "; ".join(found)

    def given_nan(self, values: Iterable[int]) -> list[str]:
        """Describe the NaNs in those of some values that are arguments or constants."""
        arrays = {data: self.given[data] for data in values if data in self.given}
        return [nan_text(self.graph, data, a) for data, a in arrays.items() if has_nan(a)]

    def defect(self, index: int, results: tuple[Any, ...]) -> str:
        """Return the defect of an operator's results, as ``defect_of``; empty if none."""
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
    """Whether a floating-point array contains an infinity."""
    return is_float(array.dtype) and bool((abs(array) == np.inf).any().item())


def nan_text(graph: Graph, data: int, array: Any) -> str:
    """Describe how many elements of an argument or constant are NaN."""
    name, count = graph.data[data].name, int((array != array).sum().item())
    return f"{name} holds NaN in {count} of {array.size} elements"
