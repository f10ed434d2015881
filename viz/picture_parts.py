"""Constants and texts shared by raster and SVG pictures: sizes, counters, headings, legend entries.

Constants in pixels at scale 1, texts as plain strings, and the argument checks that all pictures
have in common. Positions are computed in ``picture_layout``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinyckpt.base.errors import OptionError
from tinyckpt.base.units import size_text

from .memory_curve import Scales, limits_of
from .scene import (
    Activity,
    Fill,
    NodeLook,
    count_text,
    counts_nodes,
    live_of,
    live_text,
    moves,
    title_of,
)
from .theme import THEMES, font

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace


GAP = 14  # pixels between the parts of a picture
HEADER = 66  # pixels for title, subtitle and counters
STRIP = 64  # pixels of the memory strip
AIR = 4  # pixels between the strip's words and its sides
HEAD = 14  # pixels above the highest peak, for the strip's own text
LEGEND = 38  # pixels
COUNTERS = ("step", "evaluations", "live", "peak so far")
HOST_COUNTER = "on the host"  # of traces that offload values
CAPTION = 22  # pixels of the caption above the strip
LANE = 40  # pixels of the lane below it: host memory
LANE_GAP = 4  # pixels between the two
LANE_WORDS = "on the host"
WORDS = 13  # pixels: height of a label on a line of a strip
DASHES_OF = {"budget": (1, 0), "store all": (1, 1)}  # pixels that are drawn, and pixels between
# A node shows the state of its value; the arrow, which has no look, stands for a read.
LEGEND_ITEMS: tuple[tuple[str, NodeLook | None], ...] = (
    ("kept", NodeLook(Fill.KEPT)),
    ("recomputed", NodeLook(Fill.RECOMPUTED)),
    ("gradient", NodeLook(Fill.GRADIENT, backward=True)),
    ("checkpoint", NodeLook(Fill.KEPT, checkpoint=True)),
    ("computing", NodeLook(Fill.KEPT, Activity.COMPUTING)),
    ("recomputing", NodeLook(Fill.RECOMPUTED, Activity.RECOMPUTING)),
    ("dropped", NodeLook(Fill.DROPPED)),
    ("not yet", NodeLook(Fill.NOT_YET)),
    ("reads", None),
)


HOST_ITEM = ("on the host", NodeLook(Fill.ON_HOST))


@dataclass(frozen=True, slots=True)
class StripLine:
    """A horizontal reference line across a memory strip, with a label at its right end.

    Attributes:
        words: the label.
        amount: its height, in values or bytes.
        dashes: pixels that are drawn, and pixels between.
        beside: the earlier lines so near that its label stands to the left of theirs.
    """

    words: str
    amount: int
    dashes: tuple[int, int]
    beside: tuple[int, ...] = ()


def lines_of(trace: Trace, scales: Scales, height: float = STRIP) -> list[StripLine]:
    """Return the lines across a strip of ``height`` pixels: peak first, then budget, store-all."""
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


def lane_lines(trace: Trace) -> list[StripLine]:
    """Return the line across the host memory lane: its maximum."""
    most = max(trace.host)
    return [StripLine(f"most {size_text(most)}", most, (4, 4))]


def legend_items(traces: Sequence[Trace]) -> tuple[tuple[str, NodeLook | None], ...]:
    """Return the entries of the legend; host memory only where a trace uses it."""
    if not any(map(moves, traces)):
        return LEGEND_ITEMS
    place = [name for name, _ in LEGEND_ITEMS].index("checkpoint")
    return (*LEGEND_ITEMS[:place], HOST_ITEM, *LEGEND_ITEMS[place:])


def strip_words(
    trace: Trace, scales: Scales, width: float, height: float = STRIP, note: str = ""
) -> str:
    """Return the caption inside a memory strip, as long as the labels of its lines leave room."""
    face = font("Regular", 10)
    room = width - 2 * AIR
    for line in lines_of(trace, scales, height):
        if (scales.highest - line.amount) * (height - HEAD) < WORDS * scales.highest:
            room -= face.getlength(line.words) + 2 * AIR
    words = ["live memory", *([note] if note else []), "outline: to come"]
    if any(trace.workspace):
        words.append("grey: workspace")
    while len(words) > 1 and face.getlength(" · ".join(words)) > room:
        words.pop()
    return " · ".join(words)


def counter_widths(traces: Sequence[Trace]) -> dict[str, float]:
    """Return the maximum width of each counter, by its name, so that it does not move."""
    in_nodes = counts_nodes(traces)
    face = font("SemiBold", 16)
    digit = max(math.ceil(face.getlength(figure)) for figure in "0123456789")
    known: dict[str, int] = dict.fromkeys("0123456789", digit)

    def width(text: str) -> int:
        for letter in text:
            if letter not in known:
                known[letter] = math.ceil(face.getlength(letter))
        return sum(known[letter] for letter in text)

    moving = any(map(moves, traces))
    names = (*COUNTERS, HOST_COUNTER) if moving else COUNTERS
    widths = [float(font("Regular", 12).getlength(name)) for name in names]
    for trace in traces:
        amounts = {0, *live_of(trace, in_nodes)}
        memory = max(width(live_text(amount, in_nodes)) for amount in amounts)
        steps, evaluations = count_text(len(trace.steps) - 1), count_text(trace.evaluations)
        own = [width(f"{steps} / {steps}"), width(f"{evaluations} / {evaluations}"), memory, memory]
        if moving:
            own.append(max(width(size_text(nbytes)) for nbytes in {0, *trace.host}))
        widths = [max(pair) for pair in zip(widths, own, strict=True)]
    return dict(zip(names, widths, strict=True))


def as_list(traces: Any) -> list[Trace]:
    """Return one trace or several as a list.

    Raises:
        OptionError: if they are something else, such as schedules.
    """
    found = list(traces) if isinstance(traces, Iterable) else [traces]
    for trace in found:
        if hasattr(trace, "stall"):
            raise OptionError(
                f"expected a trace or several, got a {type(trace).__name__}; its .trace is one, "
                "and viz.timeline and viz.player show its times"
            )
        if not hasattr(trace, "live_bytes"):
            raise OptionError(
                f"expected a trace or several, got a {type(trace).__name__}; tc.replay(schedule) "
                "makes one of a schedule, tc.replay(tc.plan(graph, policy)) of a graph"
            )
    return found


def check_drawable(traces: Sequence[Trace], theme: str) -> None:
    """Raise OptionError unless there is something to draw, in a known theme."""
    if not traces or not all(trace.steps for trace in traces):
        raise OptionError("nothing to draw: give at least one trace, with at least one step")
    if theme not in THEMES:
        raise OptionError(f"unknown theme {theme!r}; known are {', '.join(THEMES)}")


def headings(traces: Sequence[Trace], title: str | Sequence[str] | None) -> list[str]:
    """Return the heading of each trace.

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
