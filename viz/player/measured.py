"""Measured memory as data of a page: a staircase over the whole of a schedule, thinned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.errors import OptionError

from .columns import packed
from .data import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tinyckpt.documents.measured import Measured

MOST_MOMENTS = 100_000  # of one measurement in a page: some hundred kilobytes
WHOLE = 2**30  # of the time from the first moment to the last: whole numbers of 32 bits
LARGEST = 2**52  # bytes that the page can add up


def as_measured(measured: Any, count: int) -> list[Measured | None]:
    """Return what was measured for each of some traces: one for all of them, or one each.

    Raises:
        OptionError: if it is neither, or more than a page holds.
    """
    several = isinstance(measured, Sequence) and not isinstance(measured, str)
    listed = list(measured) if several else [measured] * count
    if len(listed) != count:
        raise OptionError(f"measured: {len(listed)} for {count} traces; give one for all, or each")
    for each in listed:
        if each is not None and not hasattr(each, "less"):
            raise OptionError(
                f"measured: {type(each).__name__}; give what tc.load_measured(path) returns"
            )
        if each is not None and max(each.bytes) >= LARGEST:
            raise OptionError(f"measured: {each.source} has more bytes than a page can add up")
    return listed


def with_measured(data: dict[str, Any], measured: Sequence[Measured | None]) -> dict[str, Any]:
    """Return a page's data with what was measured: each once, and which of them a trace has."""
    known = list({id(each): each for each in measured if each is not None}.values())
    if not known:
        return data
    traces = [
        trace if each is None else {**trace, "measured": known.index(each)}
        for trace, each in zip(data["traces"], measured, strict=True)
    ]
    return {**data, "traces": traces, "measured": [measured_data(each) for each in known]}


def measured_data(measured: Measured) -> dict[str, Any]:
    """Return what a page draws: times as whole shares of all, and all bytes with their base."""
    times = np.asarray(measured.times, np.float64)
    held = np.asarray(measured.bytes, np.int64)
    places = thinned(held)
    span = times[-1] or 1.0
    return {
        "source": shown(measured.source),
        "what": shown(measured.what),
        "unit": measured.unit,
        "span": float(times[-1]),
        "base": measured.base,
        "moments": packed(np.round(times[places] / span * WHOLE).astype(np.int64)),
        "held": packed(held[places]),
    }


def thinned(held: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which moments are shown: of so many in a row the first, the highest and the last."""
    count = len(held)
    if count <= MOST_MOMENTS:
        return np.arange(count)
    row = -(-3 * count // MOST_MOMENTS)
    begins = np.arange(0, count, row)
    highest = [begin + int(held[begin : begin + row].argmax()) for begin in begins]
    lasts = np.minimum(begins + row, count) - 1
    return np.unique(np.concatenate([begins, highest, lasts]))
