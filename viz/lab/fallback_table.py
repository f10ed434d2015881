"""Static fallback of the interactive planning page: candidate schedules as an HTML table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyckpt.base.units import size_text

from ..player.page import table_of
from ..scene import count_text, title_of

if TYPE_CHECKING:
    from tinyckpt.planner.portfolio.precomputed_choices import Choices

HEADER = ("schedule", "evaluations", "recomputations", "peak")
MOST_POINTS = 12  # rows of the frontier
CAPTION = "Schedules to choose from, by their peak"


def offered_table(offered: Choices) -> str:
    """Return policies and frontier points as rows of a table, by peak, ascending."""
    every = -(-len(offered.points) // MOST_POINTS)
    rows = [
        (point.peak, f"{point.policy}: {point.detail}", len(point.order), len(set(point.order)))
        for point in offered.points[::every]
    ]
    for _, trace in offered.named:
        once = trace.evaluations - trace.recomputations
        rows.append((trace.peak_bytes, title_of(trace), trace.evaluations, once))
    return table_of(
        HEADER,
        [
            (title, count_text(evaluations), count_text(evaluations - once), size_text(peak))
            for peak, title, evaluations, once in sorted(rows)
        ],
    )
