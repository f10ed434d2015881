"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from tinyckpt.trace import Trace, size_text


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows in aligned columns: the first to the left, the others to the right.

    >>> print(table(["policy", "peak"], [["store_all", "18"], ["sqrt_n", "9"]]))
    policy     peak
    store_all    18
    sqrt_n        9
    """
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for row in (header, *rows):
        first, *others = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


TRACE_HEADER = ("policy", "evaluations", "x store-all", "peak nodes", "peak")


def trace_row(trace: Trace) -> list[str]:
    """Return a trace's entries under TRACE_HEADER."""
    once = trace.evaluations - trace.recomputations
    return [
        trace.schedule.policy,
        str(trace.evaluations),
        f"{trace.evaluations / max(once, 1):.2f}",
        str(trace.peak_nodes),
        size_text(trace.peak_bytes),
    ]
