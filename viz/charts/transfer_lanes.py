"""Offload timeline chart: compute, copies in both directions and stalls, above device memory.

Draws what ``tc.timed`` returns: one lane for evaluations and one for the copies of each direction,
with every stall shaded. Below them, on the same axis, is device memory, transfers in flight
included (``offload_memory``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.units import cost_text, size_text
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Offload, recomputations

from ..memory_curve import BANDS, STRIPES
from ..theme import RGB, blend, css
from .offload_memory import Moment, memory_over_time
from .residency import EvaluationKind
from .style import (
    ENTRY,
    SMALL,
    byte_unit,
    draw_peak_line,
    hatched,
    heading,
    names_of,
    new_figure,
    stacked_areas,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tinyckpt.planner.offload.simulate import Timeline

    from ..theme import Theme

Span = tuple[Fraction, Fraction]  # from when to when
LANES = ("compute", "to the host", "back")  # from the top down
MOST_BOXES = 1000  # of a lane: about a pixel each in a PNG
FEW, RIM = 100, 0.6  # boxes of a lane, up to which none are merged; points of a box's rim
HEADROOM = 1.22  # for the label of the peak
STALL = 0.25  # of full colour
KINDS = {
    EvaluationKind.FORWARD: "evaluation",
    EvaluationKind.RECOMPUTATION: "recomputing",
    EvaluationKind.BACKWARD: "gradient",
}  # the colour of each in a theme
LEFT, RIGHT = 0.8, 0.13  # inches beside the axes
HEAD, LANES_HIGH, CURVE = 0.54, 0.7, 1.3  # inches: a heading, the lanes, the memory curve
EACH = HEAD + LANES_HIGH + 0.1 + CURVE + 0.2  # inches of one timeline
BELOW, ROW = 0.42, 0.18  # inches for the last axis, and for a row of the legend


@dataclass(frozen=True, slots=True)
class Lanes:
    """A timeline as boxes on a time axis.

    Attributes:
        evaluations: begin, end and kind of each evaluation, in order.
        out, back: begin and end of the copies to the host, and of those back.
        stalls: when computation waits: all time between two evaluations.
        end: when the last step has ended.
    """

    evaluations: tuple[tuple[Span, EvaluationKind], ...]
    out: tuple[Span, ...]
    back: tuple[Span, ...]
    stalls: tuple[Span, ...]
    end: Fraction


def lanes_of(timeline: Timeline) -> Lanes:
    """Return the lanes of a timeline, with exact times."""
    graph, steps = timeline.schedule.graph, timeline.schedule.steps
    spans = list(zip(timeline.begin, timeline.end, strict=True))
    evaluations, stalls = [], []
    now = Fraction(0)
    for place, (step, again) in enumerate(zip(steps, recomputations(steps), strict=True)):
        if not isinstance(step, EVALUATIONS):
            continue
        phase = graph.operators[step.operator].phase
        kind = EvaluationKind.BACKWARD if phase == "backward" else EvaluationKind.FORWARD
        evaluations.append((spans[place], EvaluationKind.RECOMPUTATION if again else kind))
        begin, end = spans[place]
        if begin > now:
            stalls.append((now, begin))
        now = end
    if timeline.makespan > now:  # a result is fetched at the end
        stalls.append((now, timeline.makespan))
    return Lanes(
        tuple(evaluations),
        tuple(span for step, span in zip(steps, spans, strict=True) if isinstance(step, Offload)),
        tuple(span for step, span in zip(steps, spans, strict=True) if isinstance(step, Fetch)),
        tuple(stalls), max((end for _, end in spans), default=Fraction(0)),
    )  # fmt: skip


def lanes_figure(
    timelines: Sequence[Timeline],
    colours: Theme,
    width: float,
    names: Sequence[str] | None = None,
) -> Figure:
    """Return the figure; call it within ``looks()``."""
    found = [lanes_of(timeline) for timeline in timelines]
    curves = [memory_over_time(timeline) for timeline in timelines]
    names = names_of([timeline.trace for timeline in timelines]) if names is None else names
    handles = legend_handles(found, curves, colours)
    columns = max(1, min(len(handles), int(width / ENTRY)))
    below = BELOW + ROW * -(-len(handles) // columns)
    figure = new_figure(colours, EACH * len(timelines) + below, width)
    axes = axes_of(figure, len(timelines))
    highest = max(sum(row) for curve in curves for _, row in curve)
    unit, name = byte_unit(highest)
    longest = float(max(lanes.end for lanes in found)) or 1.0
    for place, (timeline, lanes, curve) in enumerate(zip(timelines, found, curves, strict=True)):
        upper, lower = axes[place]
        heading(upper, colours, names[place], subtitle_of(timeline))
        for axis in (upper, lower):
            style_axes(axis, colours)
            axis.set_xlim(0, longest)
            draw_stalls(axis, lanes, longest, colours)
        draw_lanes(upper, lanes, longest, colours)
        draw_memory(lower, curve, lanes, longest, unit, colours)
        lower.set_ylabel(f"live {name}")
        lower.set_ylim(0, HEADROOM * max(highest / unit, 1e-9))
        mark_peak(lower, timeline, curve, unit, name, colours)
        upper.tick_params(axis="x", length=0, labelbottom=False)
    axes[-1][1].set_xlabel(f"time in {timelines[0].unit}")
    figure.legend(
        handles=handles, frameon=False, labelcolor=css(colours.muted), fontsize=SMALL,
        ncols=columns, loc="lower center", bbox_to_anchor=(0.5, 0.0),
        handlelength=1.2, columnspacing=1.6, borderaxespad=0.3,
    )  # fmt: skip
    return figure


def axes_of(figure: Figure, count: int) -> list[tuple[Any, Any]]:
    """Return for each timeline the axes of its lanes and, right below them, of its memory."""
    width, height = figure.get_size_inches()
    left, right = LEFT / width, 1 - RIGHT / width
    pairs = []
    for place in range(count):
        top = height - HEAD - place * EACH
        boxes_at = ((top - LANES_HIGH, LANES_HIGH), (top - LANES_HIGH - 0.1 - CURVE, CURVE))
        pair = [
            figure.add_axes((left, bottom / height, right - left, high / height))
            for bottom, high in boxes_at
        ]
        pairs.append((pair[0], pair[1]))
    return pairs


def legend_handles(
    found: Sequence[Lanes], curves: Sequence[list[Moment]], colours: Theme
) -> list[Any]:
    """Return the entries of the legend; only colours that occur."""
    from matplotlib.patches import Patch

    kinds = {kind for lanes in found for _, kind in lanes.evaluations}
    rows = zip(*(row for curve in curves for _, row in curve), strict=True)
    kept, recomputed, gradients, results, workspace, flying = (any(band) for band in rows)
    copied = any(lanes.out or lanes.back for lanes in found)
    entries = (
        (EvaluationKind.FORWARD in kinds, "forward", colours.evaluation),
        (EvaluationKind.RECOMPUTATION in kinds, "recomputation", colours.recomputing),
        (EvaluationKind.BACKWARD in kinds or gradients, "backward, gradients", colours.gradient),
        (results, "results", colours.staying),
        (kept or copied, "kept, copies" if copied else "kept", colours.kept),
        (recomputed, "recomputed", colours.recomputed),
        (workspace, "workspace", colours.workspace),
        (any(lanes.stalls for lanes in found), "stall", shade_of(colours)),
    )
    strokes = {
        "recomputation": colours.panel, "recomputed": colours.kept, "results": colours.gradient
    }  # fmt: skip
    handles = [
        Patch(label=name, **hatched(ink, strokes.get(name, ink)))
        if name in strokes
        else Patch(color=css(ink), label=name, linewidth=0)
        for there, name, ink in entries
        if there
    ]
    if flying:
        handles.append(Patch(**striped(colours), label="on its way to the host"))
    return handles


def striped(colours: Theme) -> dict[str, Any]:
    """Return the area style of memory in flight to the host: stripes, as on its nodes."""
    return {
        "facecolor": css(colours.panel), "edgecolor": css(colours.kept), "hatch": "-----",
        "linewidth": 0,
    }  # fmt: skip


def shade_of(colours: Theme) -> RGB:
    """Return the background colour of a stall: a pale one of lost time."""
    return blend(colours.recomputing, colours.panel, STALL)


def subtitle_of(timeline: Timeline) -> str:
    """Return makespan, stalled time and bytes transferred, as text."""
    out, back = size_text(timeline.moved(Offload)), size_text(timeline.moved(Fetch))
    return f"{time_words(timeline)} · {out} to the host, {back} back"


def time_words(timeline: Timeline) -> str:
    """Return makespan and stalled time as text."""
    stalled = timeline.stalled
    waits = f"{float(stalled):.6g} of them stalled" if stalled else "nothing stalled"
    return f"{cost_text(float(timeline.makespan), timeline.unit)}, {waits}"


def draw_lanes(axis: Any, lanes: Lanes, longest: float, colours: Theme) -> None:
    """Draw a lane for evaluations, and one for the copies of each direction."""
    for kind, fill in KINDS.items():
        spans = [span for span, own in lanes.evaluations if own is kind]
        hatch = "////" if kind is EvaluationKind.RECOMPUTATION else ""
        boxes(axis, spans, 2, css(getattr(colours, fill)), longest, colours, hatch)
    boxes(axis, lanes.out, 1, css(colours.kept), longest, colours)
    boxes(axis, lanes.back, 0, css(colours.kept), longest, colours)
    axis.set_yticks(range(3), LANES[::-1])
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(-0.5, 2.5)


def boxes(
    axis: Any,
    spans: Sequence[Span],
    row: int,
    ink: str,
    longest: float,
    colours: Theme,
    hatch: str = "",
) -> None:
    """Draw boxes in a row; boxes closer than a pixel are merged."""
    shown = merged_spans(spans, longest)
    rims = [RIM if end - begin > longest / FEW else 0.0 for begin, end in shown]
    axis.broken_barh(
        [(begin, end - begin) for begin, end in shown], (row - 0.36, 0.72), facecolor=ink,
        edgecolor=css(colours.panel), linewidth=rims, zorder=3, hatch=hatch,
    )  # fmt: skip


def merged_spans(spans: Sequence[Span], longest: float) -> list[tuple[float, float]]:
    """Return spans in floats; if there are many, spans closer than a pixel are merged.

    >>> from fractions import Fraction
    >>> merged_spans([(Fraction(0), Fraction(1)), (Fraction(1), Fraction(2))], 2.0)
    [(0.0, 1.0), (1.0, 2.0)]
    """
    nearest = longest / MOST_BOXES if len(spans) > FEW else -1.0
    found: list[tuple[float, float]] = []
    for begin, end in ((float(begin), float(end)) for begin, end in spans):
        if found and begin - found[-1][1] < nearest:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def draw_stalls(axis: Any, lanes: Lanes, longest: float, colours: Theme) -> None:
    """Shade the stalls."""
    for begin, end in merged_spans(lanes.stalls, longest):
        axis.axvspan(begin, end, color=css(shade_of(colours)), linewidth=0, zorder=0.5)


def draw_memory(
    axis: Any,
    curve: Sequence[Moment],
    lanes: Lanes,
    longest: float,
    unit: int,
    colours: Theme,
) -> None:
    """Stack device memory over time."""
    shown = downsampled(curve, longest)
    times = [*(float(begin) for begin, _ in shown), max(float(lanes.end), float(curve[-1][0]))]
    bands = np.array([*(row for _, row in shown), shown[-1][1]], float).T / unit
    looks = [
        hatched(getattr(colours, fill), getattr(colours, STRIPES[fill]))
        if fill in STRIPES
        else {"facecolor": css(getattr(colours, fill))}
        for fill in BANDS.values()
    ]
    stacked_areas(axis, times, bands, [*looks, striped(colours)])


def downsampled(curve: Sequence[Moment], longest: float) -> list[Moment]:
    """Downsample a memory curve: of several moments in one pixel, the one with the most memory."""
    if len(curve) <= MOST_BOXES:
        return list(curve)
    chosen: dict[int, Moment] = {}
    for begin, row in curve:
        column = int(float(begin) / longest * MOST_BOXES)
        if column not in chosen or sum(row) > sum(chosen[column][1]):
            chosen[column] = (chosen.get(column, (begin, row))[0], row)
    return list(chosen.values())


def mark_peak(
    axis: Any, timeline: Timeline, curve: Sequence[Moment], unit: int, name: str, colours: Theme
) -> None:
    """Mark the peak of device memory: a line, its size, and the first time it is reached."""
    most = timeline.peak_bytes
    at = float(next((begin for begin, row in curve if sum(row) >= most), 0))
    draw_peak_line(axis, at, most / unit, f"peak {most / unit:.4g} {name}, at {at:.4g}", colours)
