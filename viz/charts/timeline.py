"""Memory timeline chart: live memory against steps, stacked by kind, one chart per trace.

Traces are drawn against steps; offload timelines against time (``transfer_lanes``). Scales are
shared.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyckpt.base.errors import OptionError
from tinyckpt.base.files import temporary_path

from ..memory_curve import BANDS, STRIPES, Curve, by_column
from ..scene import Row, Scene, Style, count_text, scene_of
from ..theme import css
from .style import (
    WIDTH,
    Titles,
    byte_unit,
    draw_peak_line,
    hatched,
    heading,
    legend,
    names_of,
    new_figure,
    stacked_areas,
    style_axes,
    titles_of,
    write,
)
from .transfer_lanes import lanes_figure, striped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tinyckpt.core.trace import Trace
    from tinyckpt.planner.offload.simulate import Timeline

    from ..theme import Theme

MOST_COLUMNS = 700  # of the whole axis: about a CSS pixel each
LANE = 0.4  # of the height of a chart: the host memory lane
BETWEEN = 0.1  # inches between the two
HEADROOM = 1.22  # for the label of the highest peak


def timeline(
    traces: Trace | Timeline | Sequence[Trace] | Sequence[Timeline],
    path: str | os.PathLike[str] | None = None,
    *,
    theme: str = "light",
    width: float = WIDTH,
    title: Titles = None,
) -> Path:
    """Write live memory against steps, one chart per trace, on shared scales, with peaks marked.

    Where values are offloaded, a lane below the chart shows host memory.

    A ``Timeline``, which ``tc.timed`` returns, is drawn against time: a lane for evaluations, one
    for copies to the host and one for copies back, every stall shaded, above the memory curve.

    Args:
        traces: one trace or timeline, or several of one kind to compare.
        path: ends in ``.png``, ``.svg`` or ``.pdf``; the file is replaced only once the new one is
            complete. Without it the file is a temporary one: the result displays itself in a
            notebook.
        theme: ``light`` or ``dark``.
        width: in inches, from 3 to 30; a PNG has 150 pixels per inch.
        title: replaces the policies' names, one per trace; ``""`` for none.

    Raises:
        TinyckptError: if the theme or the format is unknown, or the file cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> trace = tc.replay(tc.plan(tc.networks.chain(8), "sqrt_n"))
    >>> with TemporaryDirectory() as folder:
    ...     viz.timeline(trace, f"{folder}/live.svg").name
    'live.svg'
    """
    if path is None:
        path = temporary_path(".svg")
    given = list(traces) if isinstance(traces, Iterable) else [traces]
    if timed := timelines_of(given):
        names = titles_of(names_of([own.trace for own in timed]), title)
        return write(path, theme, width, lambda colours: lanes_figure(timed, colours, width, names))
    scene = scene_of(given, Style(theme))
    names = titles_of(names_of([row.trace for row in scene.rows]), title)
    return write(path, theme, width, lambda colours: timeline_figure(scene, colours, width, names))


def timelines_of(listed: Sequence[Any]) -> list[Timeline]:
    """Return the items with times if all are timelines; empty for traces alone.

    Raises:
        OptionError: if there are both, or costs in several units: one axis cannot show them.
    """
    timed = [item for item in listed if hasattr(item, "stall")]
    if timed and len(timed) < len(listed):
        raise OptionError(
            "give traces, or timelines of tc.timed, not both: steps and times have no common axis"
        )
    if len(units := dict.fromkeys(own.unit for own in timed)) > 1:
        raise OptionError(f"timelines in {', '.join(units)}: expected a common unit")
    if not all(own.schedule.steps for own in timed):
        raise OptionError("nothing to draw: a timeline has no steps")
    return timed


def timeline_figure(
    scene: Scene,
    colours: Theme,
    width: float = WIDTH,
    names: Sequence[str] | None = None,
) -> Figure:
    """Return the figure; call it within ``looks()``."""
    rows, largest = scene.rows, max(max(row.live) for row in scene.rows)
    names = names_of([row.trace for row in rows]) if names is None else names
    unit, name = (1, "values") if scene.in_nodes else byte_unit(largest)
    high = 1.9 * (len(rows) + LANE * sum(row.moves for row in rows))
    figure = new_figure(colours, 0.5 + high, width)
    axes, lanes = axes_of(figure, rows)
    handles: dict[str, Any] = {}
    for axis, row, title in zip(axes, rows, names, strict=True):
        style_axes(axis, colours)
        heading(axis, colours, title, row.subtitles[0])
        for handle in draw_bands(axis, row.memory.bands / unit, scene.longest, colours):
            handles.setdefault(handle.get_label(), handle)
        axis.set_ylabel(f"live {name}")
    for row, lane in lanes:
        handles["on the host"] = draw_lane(lane, row.host, scene.longest, colours)
    axes[0].set_xlim(0, scene.longest)
    axes[0].set_ylim(0, HEADROOM * max(largest / unit, 1e-9))
    for axis, row in zip(axes, rows, strict=True):
        mark_peak(axis, row.live, unit, name, colours)
    lowest = figure.axes[-1]
    lowest.set_xlabel("step")
    lowest.xaxis.set_major_formatter(lambda step, _: count_text(round(step)))
    order = [*BANDS, "on the host"]
    legend(axes[0], colours, [handles[name] for name in order if name in handles])
    figure.tight_layout()
    move_below(figure, [lane for _, lane in lanes])
    return figure


def move_below(figure: Figure, lanes: Sequence[Any]) -> None:
    """Move lanes right below the charts that they belong to."""
    gap = BETWEEN / figure.get_size_inches()[1]
    for lane in lanes:
        chart, box = figure.axes[figure.axes.index(lane) - 1].get_position(), lane.get_position()
        lane.set_position((box.x0, box.y0, box.width, chart.y0 - gap - box.y0))


def axes_of(figure: Figure, rows: Sequence[Row]) -> tuple[list[Any], list[tuple[Row, Any]]]:
    """Return the axes of each trace, and the lanes of those that offload, with their rows."""
    if not any(row.moves for row in rows):
        axes = figure.subplots(len(rows), 1, sharex=True, sharey=True, squeeze=False)
        return list(axes[:, 0]), []
    ratios = [ratio for row in rows for ratio in ((1.0, LANE) if row.moves else (1.0,))]
    places = figure.subplots(
        len(ratios), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": ratios}
    )[:, 0]
    upper = [axis for axis, ratio in zip(places, ratios, strict=True) if ratio == 1]
    lower = [axis for axis, ratio in zip(places, ratios, strict=True) if ratio != 1]
    for axis in upper[1:]:
        axis.sharey(upper[0])
    return upper, list(zip((row for row in rows if row.moves), lower, strict=True))


def columns_for(steps: int, longest: int) -> int:
    """Return how many columns steps take on an axis of ``longest``: each a pixel at least.

    >>> columns_for(600, 600), columns_for(600, 2_800), columns_for(2_800, 2_800)
    (600, 150, 700)
    """
    return min(steps, -(-steps * MOST_COLUMNS // longest))


def draw_lane(axis: Any, curve: Curve, longest: int, colours: Theme) -> Any:
    """Draw host memory at every step, striped; return the area."""
    unit, name = byte_unit(curve.highest)
    steps = curve.bands.shape[1]
    column = by_column(curve.bands, steps, columns_for(steps, longest))[0] / unit
    style_axes(axis, colours)
    (area,) = stack(axis, steps, [("on the host", css(colours.panel), column)])
    area.set(**{**striped(colours), "linewidth": 0.8})
    axis.set_ylabel(f"host {name}")
    axis.set_ylim(0, HEADROOM * max(curve.highest / unit, 1e-9))
    return area


def draw_bands(axis: Any, bands: Any, longest: int, colours: Theme) -> list[Any]:
    """Stack live memory at every step by band; return the areas of the non-empty bands."""
    steps = bands.shape[1]
    columns = by_column(bands, steps, columns_for(steps, longest))
    every = [
        (name, getattr(colours, fill), column)
        for (name, fill), column in zip(BANDS.items(), columns, strict=True)
    ]
    # A trace of views alone has no live memory at any step.
    entries = [entry for entry in every if entry[2].any()] or every[:1]
    areas = stack(axis, steps, [(name, css(fill), column) for name, fill, column in entries])
    for area in areas:
        fill = BANDS[area.get_label()]
        if fill in STRIPES:
            area.set(**hatched(getattr(colours, fill), getattr(colours, STRIPES[fill])))
    return areas


def stack(axis: Any, steps: int, entries: Sequence[tuple[str, Any, Any]]) -> list[Any]:
    """Stack columns over the steps; return the areas.

    Args:
        axis: of matplotlib.
        steps: number of steps that the columns stand for.
        entries: names, colours and columns, from the bottom up.
    """
    count = len(entries[0][2])
    # Each column is a bar from its begin to the begin of the next.
    edges = [steps * place / count for place in range(count + 1)]
    return stacked_areas(
        axis,
        edges,
        [[*column, column[-1]] for *_, column in entries],
        [{"label": name, "facecolor": fill} for name, fill, _ in entries],
    )


def mark_peak(axis: Any, live: Sequence[int], unit: int, name: str, colours: Theme) -> None:
    """Mark the peak: a line, a dot at the first step that reaches it, and a label."""
    height = max(live)
    step = live.index(height)
    text = f"peak {height / unit:.4g} {name}, step {count_text(step)}"
    draw_peak_line(axis, step + 0.5, height / unit, text, colours)
    axis.plot(
        [step + 0.5], [height / unit], marker="o", markersize=5, zorder=4, clip_on=False,
        markerfacecolor=css(colours.ink), markeredgecolor=css(colours.panel),
    )  # fmt: skip
