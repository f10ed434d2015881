"""Measured memory over time, embedded in an HTML player as a downsampled step function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.errors import OptionError

from .data import shown
from .packing import packed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tinyckpt.documents.measured_memory import Measured

MOST_MOMENTS = 100_000  # per measurement in a page: some hundred kilobytes
WHOLE = 2**30  # ticks from the first moment to the last: 32-bit integers
LARGEST = 2**52  # bytes: sums stay exact integers in JavaScript


def as_measured(measured: Any, count: int) -> list[Measured | None]:
    """Return the measurement of each trace: one for all of them, or one each.

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
    """Add measurements to a page's data: each once, and the index of each trace's own."""
    known = list({id(each): each for each in measured if each is not None}.values())
    if not known:
        return data
    traces = [
        trace if each is None else {**trace, "measured": known.index(each)}
        for trace, each in zip(data["traces"], measured, strict=True)
    ]
    return {**data, "traces": traces, "measured": [measured_data(each) for each in known]}


def measured_data(measured: Measured) -> dict[str, Any]:
    """Return a measurement: times as integer shares of the whole, bytes with their base."""
    times = np.asarray(measured.times, np.float64)
    held = np.asarray(measured.bytes, np.int64)
    places = downsampled(held)
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


def downsampled(held: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return indices of the shown moments: of each run the first, the highest and the last."""
    count = len(held)
    if count <= MOST_MOMENTS:
        return np.arange(count)
    row = -(-3 * count // MOST_MOMENTS)
    begins = np.arange(0, count, row)
    highest = [begin + int(held[begin : begin + row].argmax()) for begin in begins]
    lasts = np.minimum(begins + row, count) - 1
    return np.unique(np.concatenate([begins, highest, lasts]))
