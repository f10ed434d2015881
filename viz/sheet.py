"""What all pictures share: the sizes of their parts, and the texts above and below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinyckpt.errors import OptionError
from tinyckpt.units import size_text
from viz.curve import Scales, limits_of
from viz.scene import Activity, Fill, Look, count_text, live_of, live_text, title_of
from viz.theme import THEMES, font

if TYPE_CHECKING:
    from tinyckpt.trace import Trace


GAP = 14  # pixels between the parts of a picture
HEADER = 66  # pixels for title, subtitle and counters
STRIP = 64  # pixels of the memory strip
AIR = 4  # pixels between the strip's words and its sides
HEAD = 14  # pixels above the highest peak, for the strip's own text
LEGEND = 38  # pixels
COUNTERS = ("step", "evaluations", "live", "peak so far")
WORDS = 13  # pixels that words upon a line of a strip are high
DASHES_OF = {"budget": (1, 0), "store all": (1, 1)}  # pixels that are drawn, and pixels between
# A node says what becomes of its value; an arrow, without a look, says what reads what.
LEGEND_ITEMS: tuple[tuple[str, Look | None], ...] = (
    ("kept", Look(Fill.KEPT)),
    ("recomputed", Look(Fill.RECOMPUTED)),
    ("gradient", Look(Fill.GRADIENT, backward=True)),
    ("checkpoint", Look(Fill.KEPT, checkpoint=True)),
    ("computing", Look(Fill.KEPT, Activity.COMPUTING)),
    ("recomputing", Look(Fill.RECOMPUTED, Activity.RECOMPUTING)),
    ("dropped", Look(Fill.DROPPED)),
    ("not yet", Look(Fill.NOT_YET)),
    ("reads", None),
)


@dataclass(frozen=True, slots=True)
class StripLine:
    """A line across a memory strip, and what stands upon it at the right.

    Attributes:
        words: what it is.
        amount: where it is, in nodes or bytes.
        dashes: pixels that are drawn, and pixels between.
        beside: the lines before it that are so near that its words stand to the left of theirs.
    """

    words: str
    amount: int
    dashes: tuple[int, int]
    beside: tuple[int, ...] = ()


def lines_of(trace: Trace, scales: Scales, height: float = STRIP) -> list[StripLine]:
    """Return the lines across a memory strip, ``height`` pixels high: the peak's, then limits'."""
    in_nodes = scales.in_nodes
    nodes = f"{count_text(trace.peak_nodes)} nodes = " if in_nodes else ""
    peak = f"peak {nodes}{size_text(trace.peak_bytes)}"
    lines = [StripLine(peak, max(live_of(trace, in_nodes)), (4, 4))]
    for name, amount in limits_of(trace, scales).items():
        near = tuple(
            place
            for place, line in enumerate(lines)
            if abs(line.amount - amount) * (height - HEAD) < WORDS * scales.highest
        )
        words = f"{name} {live_text(amount, in_nodes)}"
        lines.append(StripLine(words, amount, DASHES_OF[name], near))
    return lines


def strip_words(trace: Trace, scales: Scales, width: float, height: float = STRIP) -> str:
    """Return what a memory strip shows, as far as there is room beside what stands on its lines."""
    face = font("Regular", 10)
    room = width - 2 * AIR
    for line in lines_of(trace, scales, height):
        if (scales.highest - line.amount) * (height - HEAD) < WORDS * scales.highest:
            room -= face.getlength(line.words) + 2 * AIR
    words = ["live memory", "outline: to come"]
    if any(trace.workspace):
        words.append("grey: workspace")
    while len(words) > 1 and face.getlength(" · ".join(words)) > room:
        words.pop()
    return " · ".join(words)


def as_list(traces: Any) -> list[Trace]:
    """Return one trace or several as a list.

    Raises:
        OptionError: if they are something else, such as schedules.
    """
    found = list(traces) if isinstance(traces, Iterable) else [traces]
    for trace in found:
        if not hasattr(trace, "live_bytes"):
            raise OptionError(
                f"expected a trace or several, got a {type(trace).__name__}; tc.replay(schedule) "
                "makes one of a schedule, tc.replay(tc.plan(graph, policy)) of a graph"
            )
    return found


def check(traces: Sequence[Trace], theme: str) -> None:
    """Raise an OptionError unless there is something to draw, in a known theme."""
    if not traces or not all(trace.steps for trace in traces):
        raise OptionError("nothing to draw: give at least one trace, with at least one step")
    if theme not in THEMES:
        raise OptionError(f"unknown theme {theme!r}; known are {', '.join(THEMES)}")


def headings(traces: Sequence[Trace], title: str | Sequence[str] | None) -> list[str]:
    """Return what stands above each trace.

    Raises:
        OptionError: if there are titles, but not one for each trace.
    """
    if title is None:
        return [title_of(trace) for trace in traces]
    titles = [title] if isinstance(title, str) else list(title)
    if len(titles) != len(traces):
        raise OptionError(
            f"{len(titles)} {'title' if len(titles) == 1 else 'titles'} for {len(traces)} "
            f"{'trace' if len(traces) == 1 else 'traces'}: give one for each, in order, or none"
        )
    return titles
