"""Pipeline-parallel schedule chart: Gantt lanes per device, and memory per device below.

A block is one action of a device on one micro-batch, with its number where there is room; a device
with several stages has a row for each. Shaded areas are the bubble. Compared schedules have shared
scales.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..scene import count_text
from ..theme import Theme, blend, css
from .pipeline_gantt import (
    COARSER,
    FILLED,
    FULL,
    MOST_LANES,
    BlockLook,
    Detail,
    draw_lanes,
    draw_messages,
    draw_numbers,
    draws_blocks,
    idle_of,
    idle_texts,
    label_devices,
    looks_of,
    rows_of,
    write_right,
)
from .pipeline_lanes import (
    WORK,
    DeviceLane,
    as_pipelines,
    counters_of,
    highest_peaks,
    lane_of,
    memory_text,
    scale_of,
    subtitles_of,
    title_of,
)
from .style import (
    LETTER,
    SMALL,
    WIDTH,
    Titles,
    bold_font,
    heading,
    new_figure,
    style_axes,
    titles_of,
    write,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tinyckpt.pipeline import PipelineTrace

# Inches: a lane, one of several rows in it, a curve, a utilisation image of very many devices.
LANE, ROW, CURVE, SHARES = 0.24, 0.17, 0.26, 2.6
# Inches: around everything, for a heading, above curves, for the time's axis, for a legend's row.
EDGE, HEADING, CAPTION, AXIS, LEGEND = 0.1, 0.58, 0.3, 0.48, 0.17
LEFT = 0.52  # inches for the devices' numbers
TITLE, VALUE, NAME = 7.4, 6.2, 4.0  # points that a letter takes: in titles, counters, their names
KEY = 28.0  # points around an entry of the legend
# Bytes of an SVG: of one pipeline or two, and for each beyond.
MOST_OF_TWO, MOST_OF_EACH = 40_000, 20_000


def pipeline(
    traces: PipelineTrace | Sequence[PipelineTrace],
    path: str | os.PathLike[str],
    *,
    theme: str = "light",
    width: float = WIDTH,
    title: Titles = None,
) -> Path:
    """Write the Gantt chart and memory curves of pipeline schedules, on shared scales.

    Where there are too many devices or blocks to be drawn one by one, a column shows the share of
    time of each kind of work, and the curves are those of the devices with the highest peaks among
    their neighbours.

    An SVG takes at most 40 KB, and 20 KB more for each pipeline beyond two. To be that small, it
    leaves out numbers and joins neighbouring blocks of a kind, or shows shares of time, in columns
    as few as it takes; its axis says which.

    Args:
        traces: what ``replay_pipeline`` returned; one, or several to compare. Memory is in bytes if
            it was replayed with footprints, else in micro-batches in flight.
        path: ends in ``.png``, ``.svg`` or ``.pdf``; the file is replaced only once the new one is
            complete.
        theme: ``light`` or ``dark``.
        width: in inches, from 3 to 30; a PNG has 150 pixels per inch.
        title: replaces the schedules' names, one for each; ``""`` for none.

    Raises:
        TinyckptError: if pipelines cannot be compared, an option is not legal, or the file cannot
            be written.

    >>> from tempfile import TemporaryDirectory
    >>> from tinyckpt import viz
    >>> from tinyckpt.pipeline import gpipe, one_f_one_b, replay_pipeline
    >>> traces = [replay_pipeline(schedule(4, 8)) for schedule in (gpipe, one_f_one_b)]
    >>> with TemporaryDirectory() as folder:
    ...     viz.pipeline(traces, f"{folder}/pipeline.svg").name
    'pipeline.svg'
    """
    listed = as_pipelines(traces)
    names = titles_of([title_of(trace) for trace in listed], title)
    draw, *coarser = (
        partial(pipeline_figure, listed, width=width, names=names, detail=detail)
        for detail in (FULL, *COARSER)
    )
    most = MOST_OF_TWO + MOST_OF_EACH * max(0, len(listed) - 2)
    return write(path, theme, width, draw, coarser, most)


def pipeline_figure(
    traces: Sequence[PipelineTrace],
    colours: Theme,
    width: float = WIDTH,
    names: Sequence[str] | None = None,
    detail: Detail = FULL,
) -> Figure:
    """Return the figure; call it within ``looks()``."""
    names = [title_of(trace) for trace in traces] if names is None else names
    legend = entries_of(traces, colours)
    entry = max(len(handle.get_label()) for handle in legend) * LETTER + KEY
    rows = -(-len(legend) // max(1, int(width * 72 / entry)))
    figure, axes = layout(traces, colours, width, rows)
    longest = max(float(trace.makespan) for trace in traces)
    factor, measure = scale_of(traces[0], longest)
    highest = max(1, *(max(trace.peaks) for trace in traces))
    axes[0][0].set_xlim(0, longest / factor)
    for trace, (lanes, curves), name in zip(traces, axes, names, strict=True):
        per = trace.unit * factor
        draw_heading(lanes, trace, name, colours)
        draw_lanes(lanes, trace, per, longest * trace.unit, colours, detail)
        if detail.apart and draws_blocks(trace, detail):
            draw_numbers(lanes, trace, per, colours)
            draw_messages(lanes, trace, per, colours)
        draw_curves(curves, trace, per, highest, colours, detail)
    last = axes[-1][1]
    label = f"time, {measure}" if measure else "time"
    mixed = "" if detail.apart else " (neighbours of a kind are joined)"
    if not all(draws_blocks(trace, detail) for trace in traces):
        mixed = " (colours mix by their share of it)"
    last.set_xlabel(label + mixed)
    last.xaxis.set_major_formatter(
        lambda at, _: count_text(round(at)) if 1e4 <= at < 1e9 else f"{at:g}"
    )
    last.tick_params(axis="x", length=3, labelbottom=True)
    figure.legend(
        handles=legend, frameon=False, labelcolor=css(colours.muted), fontsize=SMALL,
        ncols=-(-len(legend) // rows), loc="lower center", handlelength=1.4, columnspacing=1.6,
        bbox_to_anchor=(0.5, 0.5 * EDGE / figure.get_figheight()), borderaxespad=0.0,
    )  # fmt: skip
    return figure


def layout(
    traces: Sequence[PipelineTrace], colours: Theme, width: float, rows: int
) -> tuple[Figure, list[tuple[Any, Any]]]:
    """Return a figure with axes for the lanes and the curves of each pipeline.

    The height of lanes is fixed, and the figure's height follows from it.

    Args:
        traces: of the pipelines.
        colours: of the theme.
        width: inches.
        rows: of the legend.
    """
    height = EDGE + AXIS + LEGEND * rows
    for trace in traces:
        height += HEADING + lanes_height(trace) + CAPTION + curves_height(trace)
    figure = new_figure(colours, height, width)
    longest = max(len(text) for trace in traces for text in side_texts(trace))
    room = (longest * (SMALL - 0.5) * 0.55 + 12) / 72
    across = LEFT / width, 1 - (LEFT + room) / width
    axes: list[tuple[Any, Any]] = []
    top = height
    for trace in traces:
        pair = []
        for above, high in (
            (HEADING, lanes_height(trace)), (CAPTION, curves_height(trace))
        ):  # fmt: skip
            top -= above + high
            place = (across[0], top / height, across[1], high / height)
            pair.append(figure.add_axes(place, sharex=axes[0][0] if axes else None))
        if not axes:
            pair[1].sharex(pair[0])
        axes.append((pair[0], pair[1]))
        for axis in pair:
            style_axes(axis, colours)
            axis.set_facecolor(css(colours.background))
            axis.tick_params(axis="both", length=0, labelbottom=False)
    return figure, axes


def lanes_height(trace: PipelineTrace) -> float:
    """Return the height of the lanes in inches."""
    devices = trace.pipeline.devices
    if devices > MOST_LANES:
        return SHARES
    return devices * max(LANE, ROW * rows_of(trace)) / FILLED


def curves_height(trace: PipelineTrace) -> float:
    """Return the height of the curves in inches."""
    return CURVE * min(trace.pipeline.devices, MOST_LANES)


def side_texts(trace: PipelineTrace) -> list[str]:
    """Return the texts to the right of lanes and curves."""
    return [*idle_texts(trace), *(f"peak {peak_text(trace, peak)}" for peak in trace.peaks)]


# Curves -------------------------------------------------------------------------------------------


def draw_curves(
    axis: Any, trace: PipelineTrace, per: float, highest: int, colours: Theme, detail: Detail
) -> None:
    """Draw the memory curve of each device, one below the other, in one scale, with its peak."""
    devices = highest_peaks(trace, MOST_LANES)
    axis.set_ylim(len(devices) - 0.5, -0.5)
    label_devices(axis, devices, colours)
    caption(axis, trace, len(devices), highest, colours)
    for row, device in enumerate(devices):
        lane = lane_of(trace, device)
        ground = row + FILLED / 2
        times, held = corners_of(lane, detail.corners)
        times, heights = times / per, ground - FILLED * held / highest
        steps = np.repeat(times, 2)[1:], np.repeat(heights, 2)[:-1]
        axis.fill(
            [times[0], *steps[0], times[-1]], [ground, *steps[1], ground], label="held", zorder=2,
            facecolor=css(blend(colours.kept, colours.background, 0.3)), linewidth=0.9,
            edgecolor=css(colours.kept), joinstyle="miter",
        )  # fmt: skip
        first = int(np.argmax(lane.held))
        axis.plot(
            [float(lane.times[first]) / per], [ground - FILLED * lane.held[first] / highest], "o",
            markersize=3, color=css(colours.ink), zorder=4, clip_on=False, label="peak",
        )  # fmt: skip
        write_right(axis, row, f"peak {peak_text(trace, trace.peaks[device])}", colours)


def caption(axis: Any, trace: PipelineTrace, rows: int, highest: int, colours: Theme) -> None:
    """Write a caption above the curves: their meaning and their scale."""
    counts = trace.footprints is None
    each = " by stage" if trace.pipeline.folded else ""
    what = f"micro-batches in flight{each}" if counts else "memory of micro-batches"
    few = -(-trace.pipeline.devices // rows)
    which = "on each device" if few == 1 else f"on one of each {few} devices, with the highest peak"
    texts = (f"{what} {which}; a row is {peak_text(trace, highest)} high", f"{what} {which}", what)
    room = axis.get_window_extent().width * 72 / axis.figure.dpi / LETTER
    axis.annotate(
        next((text for text in texts if len(text) <= room), what), (0, 1), (0, 4),
        xycoords="axes fraction", textcoords="offset points", va="bottom",
        fontsize=SMALL - 0.5, color=css(colours.muted),
    )  # fmt: skip


def peak_text(trace: PipelineTrace, amount: int) -> str:
    """Format a device's peak in as few letters as suffice below a caption."""
    return count_text(amount) if trace.footprints is None else memory_text(trace, amount)


def corners_of(lane: DeviceLane, most: int = FULL.corners) -> tuple[Any, Any]:
    """Return the visible corners of a device's memory curve.

    Points of no duration are left out, unless they are higher than before and after; of more than
    ``most`` corners, those that share a column become the highest of them.
    """
    times, held = lane.times.astype(float), lane.held
    before, after = np.append(-1, held[:-1]), np.append(held[1:], -1)
    lasts = np.append(np.diff(times) > 0, True)
    seen = lasts | ((held > before) & (held > after))
    times, held = times[seen], held[seen]
    if len(times) <= most:
        return times, held
    count = min(most, FULL.columns)
    columns = np.minimum(times * count // times[-1], count - 1).astype(np.int64)
    highest = np.zeros(count + 1, held.dtype)
    np.maximum.at(highest, columns, held)
    # At the begin of a column, the memory from before still counts.
    last = np.searchsorted(columns, np.arange(1, count)) - 1
    highest[1:-1] = np.maximum(highest[1:-1], held[last])
    return np.arange(count + 1) * (times[-1] / count), highest


# Around -------------------------------------------------------------------------------------------


def draw_heading(axis: Any, trace: PipelineTrace, name: str, colours: Theme) -> None:
    """Draw title, subtitle and as many counters as fit; nothing without a title."""
    if not name:
        return
    room = axis.get_window_extent().width * 72 / axis.figure.dpi
    counters, used = [], 0.0
    for what, text in counters_of(trace):
        wide = max(VALUE * len(text), NAME * len(what)) + 12
        if TITLE * min(len(name), 48) + used + wide <= room:
            counters.append((what, text))
            used += wide
    texts = subtitles_of(trace)
    if len(counters) < 2:  # a single one is in the subtitle
        counters, used = [], 0.0
        numbers = [f"{what} {text}" for what, text in counters_of(trace)[:2]]
        texts = [*(f"{', '.join(numbers)}; {text}" for text in texts), ", ".join(numbers)]
        texts.append(numbers[-1])
    fitting = (text for text in texts if len(text) * LETTER <= room - used)
    heading(axis, colours, name, next(fitting, texts[-1]))
    draw_counters(axis, counters, colours)


def draw_counters(axis: Any, counters: Sequence[tuple[str, str]], colours: Theme) -> None:
    """Draw counters above axes, right-aligned."""
    right = 0.0
    for name, text in reversed(counters):
        parts = [
            axis.annotate(
                words, (1, 1), (-right, above), xycoords="axes fraction", ha="right", va="bottom",
                textcoords="offset points", **look,
            )
            for words, above, look in (
                (text, 6, {"fontproperties": bold_font(10), "color": css(colours.ink)}),
                (name, 19, {"fontsize": SMALL - 1, "color": css(colours.muted)}),
            )
        ]  # fmt: skip
        renderer = axis.figure.canvas.get_renderer()
        wide = max(part.get_window_extent(renderer).width for part in parts)
        right += wide * 72 / axis.figure.dpi + 12


def entries_of(traces: Sequence[PipelineTrace], colours: Theme) -> list[Any]:
    """Return the entries of the legend; only colours that occur."""
    from matplotlib.patches import Patch

    kinds = {
        kind
        for trace in traces
        for kind in np.unique(trace.pipeline.kind).tolist()
        if (trace.durations[kind] > 0).any()
    }
    looks: dict[BlockLook, list[str]] = {}
    for name, look in looks_of(colours).items():
        if kinds & set(WORK[name]):
            looks.setdefault(look, []).append(name)
    handles: list[Any] = [
        Patch(
            facecolor=css(look.fill), label=", ".join(names), linewidth=0, hatch=look.hatch,
            edgecolor=css(look.strokes or look.fill),
        )
        for look, names in looks.items()
    ]  # fmt: skip
    return [*handles, Patch(color=css(idle_of(colours)), label="idle: the bubble", linewidth=0)]
