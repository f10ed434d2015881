"""The timeline: live memory against steps, one chart a trace, on shared scales."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyckpt.errors import OptionError
from viz.charts.copies import lanes_figure
from viz.charts.style import (
    WIDTH,
    Titles,
    byte_unit,
    dress,
    heading,
    legend,
    names_of,
    new_figure,
    say_peak,
    titles_of,
    write,
)
from viz.curve import BANDS, by_column, stacked
from viz.scene import count_text, counts_nodes, live_of, subtitle_of
from viz.sheet import as_list, check
from viz.theme import css

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tinyckpt.trace import Trace
    from tinyckpt.transfers.clock import Timeline
    from viz.theme import Theme

MOST_COLUMNS = 1000  # about a pixel each in a PNG
HEADROOM = 1.22  # for the label of the highest peak


def timeline(
    traces: Trace | Timeline | Sequence[Trace] | Sequence[Timeline],
    path: str | os.PathLike[str],
    *,
    theme: str = "light",
    width: float = WIDTH,
    title: Titles = None,
) -> Path:
    """Write live memory against steps, one chart a trace, on shared scales; each peak is marked.

    A ``Timeline``, which ``tc.timed`` returns, is drawn against time: a lane for evaluations, one
    for copies to the host and one for those back, every stall shaded, over the memory curve.

    Args:
        traces: one trace or timeline, or several of one kind to compare.
        path: ends in ``.png``, ``.svg`` or ``.pdf``; the file is replaced only once the new one is
            complete.
        theme: ``light`` or ``dark``.
        width: in inches, from 3 to 30; a PNG has 150 pixels for each.
        title: in place of the policies' names, one for each trace; ``""`` for none.

    Raises:
        TinyckptError: if the theme or the format is unknown, or the file cannot be written.
    """
    if timed := timelines_of(traces):
        names = titles_of(names_of([own.trace for own in timed]), title)
        return write(path, theme, width, lambda colours: lanes_figure(timed, colours, width, names))
    listed = as_list(traces)
    check(listed, theme)
    names = titles_of(names_of(listed), title)
    return write(path, theme, width, lambda colours: timeline_figure(listed, colours, width, names))


def timelines_of(items: Any) -> list[Timeline]:
    """Return what has times if it has, as a list; none of traces alone.

    Raises:
        OptionError: if there are both, or costs in several units: one axis cannot show them.
    """
    listed = list(items) if isinstance(items, Iterable) else [items]
    timed = [item for item in listed if hasattr(item, "stall")]
    if timed and len(timed) < len(listed):
        raise OptionError("give traces, or timelines of tc.timed, not both: steps are no times")
    if len(units := dict.fromkeys(own.unit for own in timed)) > 1:
        raise OptionError(f"timelines in {', '.join(units)}: give those in one unit")
    if not all(own.schedule.steps for own in timed):
        raise OptionError("nothing to draw: a timeline has no steps")
    return timed


def timeline_figure(
    traces: Sequence[Trace],
    colours: Theme,
    width: float = WIDTH,
    names: Sequence[str] | None = None,
) -> Figure:
    """Return the chart; call it within ``looks()``."""
    in_nodes = counts_nodes(traces)
    largest = max(max(live_of(trace, in_nodes)) for trace in traces)
    unit, name = (1, "nodes") if in_nodes else byte_unit(largest)
    figure = new_figure(colours, 0.5 + 1.9 * len(traces), width)
    names = names_of(traces) if names is None else names
    axes = figure.subplots(len(traces), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    handles: dict[str, Any] = {}
    for axis, trace, title in zip(axes, traces, names, strict=True):
        dress(axis, colours)
        heading(axis, colours, title, subtitle_of(trace))
        for handle in draw_bands(axis, stacked(trace, in_nodes) / unit, colours):
            handles.setdefault(handle.get_label(), handle)
        axis.set_ylabel(f"live {name}")
    axes[0].set_xlim(0, max(len(trace.steps) for trace in traces))
    axes[0].set_ylim(0, HEADROOM * max(largest / unit, 1e-9))
    for axis, trace in zip(axes, traces, strict=True):
        mark_peak(axis, trace, in_nodes, unit, name, colours)
    axes[-1].set_xlabel("step")
    axes[-1].xaxis.set_major_formatter(lambda step, _: count_text(round(step)))
    legend(axes[0], colours, [handles[name] for name in BANDS if name in handles])
    figure.tight_layout()
    return figure


def draw_bands(axis: Any, bands: Any, colours: Theme) -> list[Any]:
    """Stack what is live at every step by band; return the areas that hold anything."""
    steps = bands.shape[1]
    columns = by_column(bands, steps, min(steps, MOST_COLUMNS))
    every = [
        (name, getattr(colours, fill), column)
        for (name, fill), column in zip(BANDS.items(), columns, strict=True)
    ]
    # Where there is nothing but views, no memory is held at any step.
    entries = [entry for entry in every if entry[2].any()] or every[:1]
    return stack(axis, steps, [(name, css(fill), column) for name, fill, column in entries])


def stack(axis: Any, steps: int, entries: Sequence[tuple[str, Any, Any]]) -> list[Any]:
    """Stack columns over the steps; return the areas.

    Args:
        axis: where.
        steps: how many steps the columns stand for.
        entries: names, colours and columns, from the bottom up.
    """
    count = len(entries[0][2])
    # Each column is a bar from where it begins to where the next one does.
    edges = [steps * place / count for place in range(count + 1)]
    areas: list[Any] = axis.stackplot(
        edges,
        [[*column, column[-1]] for _, _, column in entries],
        labels=[name for name, _, _ in entries],
        colors=[colour for _, colour, _ in entries],
        step="post",
        linewidth=0,
    )
    return areas


def mark_peak(
    axis: Any, trace: Trace, in_nodes: bool, unit: int, name: str, colours: Theme
) -> None:
    """Draw a line at the peak, a dot at the first step that reaches it, and what it is."""
    live = live_of(trace, in_nodes)
    height = max(live)
    step = live.index(height)
    text = f"peak {height / unit:.4g} {name}, step {count_text(step)}"
    say_peak(axis, step + 0.5, height / unit, text, colours)
    axis.plot(
        [step + 0.5], [height / unit], marker="o", markersize=5, zorder=4, clip_on=False,
        markerfacecolor=css(colours.ink), markeredgecolor=css(colours.panel),
    )  # fmt: skip
