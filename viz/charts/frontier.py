"""Pareto frontier chart: peak memory against cost of the best schedules found, with lower bounds.

Three regions are told apart: below the lower bound, infeasible; on the step line and to its right,
found; between the two, unknown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyckpt.base.errors import TinyckptError
from tinyckpt.planner.model.cost_models import cost_of

from ..scene import as_list, one_line
from ..theme import css
from .label_placement import write_labels
from .style import (
    SMALL,
    WIDTH,
    Titles,
    byte_unit,
    heading,
    legend,
    names_of,
    new_figure,
    shown,
    style_axes,
    titles_of,
    write,
)  # fmt: skip

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tinyckpt.core.trace import Trace
    from tinyckpt.planner.portfolio.pareto import Frontier

    from ..theme import Theme

Bound = Sequence[tuple[int, float]]
Points = Sequence[tuple[float, float]]
Named = Sequence[tuple[str, int, float]]  # name, peak, cost
HEIGHT = 4.6  # inches
TITLE = "Memory against cost"
WIDE = 30  # ratio of peaks from which the axis is logarithmic
STEEP = 3  # ratio of costs from which the axis is logarithmic
MOST_DOTS = 64
TIGHT = 1e-9  # relative tolerance for rounding errors


def frontier(
    found: Frontier,
    path: str | os.PathLike[str],
    *,
    traces: Trace | Sequence[Trace] | Mapping[str, Trace] = (),
    points: Named = (),
    bound: Bound = (),
    theme: str = "light",
    width: float = WIDTH,
    title: Titles = None,
) -> Path:
    """Write the Pareto frontier of peak and cost, relative to store-all, with some policies.

    The chart plans nothing, since a chart that takes minutes would surprise: pass what
    ``tc.frontier(graph)`` returned.

    Args:
        found: the frontier.
        path: ends in ``.png``, ``.svg`` or ``.pdf``.
        traces: of the same graph, shown as points; a mapping gives them other names.
        points: points that are no schedule of the graph, such as steps of another program: name,
            peak and cost of each, in the units of the frontier.
        bound: pairs of a budget and a lower bound on the cost of any schedule within it, such as
            ``found.bounds()``.
        theme: ``light`` or ``dark``.
        width: in inches, from 3 to 30; a PNG has 150 pixels per inch.
        title: replaces the chart's own; ``""`` for none.

    Raises:
        TinyckptError: if there is nothing to draw, a trace is of another graph, the theme or the
            format is unknown, or the file cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> graph = tc.networks.chain(4)
    >>> found, trace = tc.frontier(graph, time_limit=0.1), tc.replay(tc.plan(graph, "sqrt_n"))
    >>> with TemporaryDirectory() as folder:
    ...     viz.frontier(found, f"{folder}/pareto.svg", traces=trace).name
    'pareto.svg'
    """
    if not hasattr(found, "points"):
        raise TinyckptError(
            f"expected a Frontier, got a {type(found).__name__}; the chart plans nothing by "
            "itself: viz.frontier(tc.frontier(graph), path)"
        )
    if not found.points:
        raise TinyckptError("nothing to draw: the frontier has no points")
    named = named_points(found, traces)
    (name,) = titles_of([TITLE], title)
    return write(
        path,
        theme,
        width,
        lambda colours: frontier_figure(found, named, bound, colours, width, name, points),
    )


def named_points(
    found: Frontier, traces: Trace | Sequence[Trace] | Mapping[str, Trace]
) -> list[tuple[str, int, float]]:
    """Return name, peak and cost of every trace, in the units of the frontier."""
    if isinstance(traces, Mapping):
        named = list(traces.items())
    else:
        listed = as_list(traces)
        named = list(zip(names_of(listed), listed, strict=True))
    for name, trace in named:
        if trace.graph is not found.graph and trace.graph != found.graph:
            raise TinyckptError(
                f"{one_line(name)}: this trace is of {one_line(trace.graph.name)}, the frontier of "
                f"{one_line(found.graph.name)}; give traces of the same graph"
            )
    in_nodes = found.costs.memory_unit == "nodes"
    return [
        (name, trace.peak_nodes if in_nodes else trace.peak_bytes, cost_of(trace, found.costs))
        for name, trace in named
    ]


def frontier_figure(
    found: Frontier,
    named: Named,
    bound: Bound,
    colours: Theme,
    width: float = WIDTH,
    title: str = TITLE,
    points: Named = (),
) -> Figure:
    """Return the figure; call it within ``looks()``."""
    in_nodes = found.costs.memory_unit == "nodes"
    everywhere = [point.peak for point in found.points] + [peak for _, peak, _ in (*named, *points)]
    unit, unit_name = (1, "values") if in_nodes else byte_unit(max(everywhere))
    least = sum(found.costs.operators) or 1.0
    known = [(point.peak / unit, point.cost / least) for point in found.points]
    policies, others = (
        names_by_point([(name, peak / unit, cost / least) for name, peak, cost in each])
        for each in (named, points)
    )
    placed = [point for _, point in (*policies, *others)]
    below = sorted((budget / unit, cost / least) for budget, cost in bound)
    figure = new_figure(colours, HEIGHT, width)
    axis = figure.subplots()
    style_axes(axis, colours, grid=True)
    set_scales(axis, [*known, *placed])
    once = "the optimum" if below and proven(known, below) == known else "the best known"
    subtitle = f"{found.graph.name}: {once} at every budget"
    if len(known) == 1:
        subtitle = f"{found.graph.name}: no plan found needs less memory than this one"
    if not found.complete:
        subtitle += "; the search was cut short"
    heading(axis, colours, title, subtitle)
    axis.set_xlabel(f"peak, {unit_name}")
    axis.set_ylabel(f"{shown(found.costs.unit)}, relative to store-all")
    handles = draw_known(axis, known, below, 1 / unit, colours)
    handles += draw_points(axis, policies, colours, "policies", "D")
    handles += draw_points(axis, others, colours, "other programs", "s")
    legend(axis, colours, handles)
    figure.tight_layout()
    write_labels(
        axis, placed, [text for text, _ in (*policies, *others)], step_line(axis, known),
        color=css(colours.ink), fontsize=SMALL + 0.5, linespacing=1.15, zorder=7,
    )  # fmt: skip
    return figure


def draw_points(
    axis: Any, points: Sequence[Any], colours: Theme, label: str, marker: str
) -> list[Any]:
    """Draw a marker per named point; return the legend's entry, if there are any."""
    drawn = [
        axis.plot(
            [x], [y], marker, markersize=5, color=css(colours.recomputing), zorder=5,
            markeredgecolor=css(colours.panel), markeredgewidth=0.8, label=label,
        )[0]
        for _, (x, y) in points
    ]  # fmt: skip
    return drawn[:1]


def names_by_point(
    named: Sequence[tuple[str, float, float]],
) -> list[tuple[str, tuple[float, float]]]:
    """Merge coinciding points: each point once, with the names of its policies, one per line."""
    at: dict[tuple[float, float], list[str]] = {}
    for name, peak, cost in named:
        at.setdefault((peak, cost), []).append(shown(name))
    return [("\n".join(names), point) for point, names in sorted(at.items())]


def set_scales(axis: Any, points: Points) -> None:
    """Set axis limits, with room for labels; logarithmic where numbers span a large ratio."""
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    bottom, top = min(1.0, *(y for _, y in points)), max(y for _, y in points)
    if low > 0 and high / low > WIDE:
        axis.set_xscale("log")
        axis.set_xlim(low / 1.25, high * 1.4)
    else:
        room = max(high - low, 0.2 * high, 1e-9)
        beside = (room - (high - low)) / 2  # of points at nearly one peak
        axis.set_xlim(max(0.0, low - 0.08 * room - beside), high + 0.12 * room + beside)
    if bottom > 0 and top / bottom > STEEP:
        axis.set_yscale("log")
        axis.set_ylim(bottom / (top / bottom) ** 0.05, top * (top / bottom) ** 0.12)
    else:
        room = max(top - bottom, 0.1)
        axis.set_ylim(bottom - 0.06 * room, bottom + 1.14 * room)
    for part in (axis.xaxis, axis.yaxis):
        plain_ticks(part)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")  # noqa: RUF001


def plain_ticks(part: Any) -> None:
    """Format the ticks of a logarithmic axis as 1, 2, 5, 10 and not as powers."""
    from matplotlib.ticker import LogLocator, NullLocator

    if part.get_scale() == "log":
        part.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0), numticks=12))
        part.set_minor_locator(NullLocator())
        part.set_major_formatter(lambda value, _: f"{value:g}")


def draw_known(axis: Any, known: Points, below: Points, grain: float, colours: Theme) -> list[Any]:
    """Draw the frontier as a step line, and the bound below it; return the legend's entries."""
    right = axis.get_xlim()[1]
    xs, ys = zip(*known, (right, known[-1][1]), strict=True)
    (line,) = axis.plot(
        xs, ys, drawstyle="steps-post", color=css(colours.kept), linewidth=1.8, zorder=4,
        label="best known", marker="o" if len(known) == 1 else "", markevery=[0],
    )  # fmt: skip
    handles = [line]
    dots = proven(known, below)
    if 0 < len(dots) <= MOST_DOTS:
        (points,) = axis.plot(
            *zip(*dots, strict=True), "o", markersize=8.5, markerfacecolor="none", zorder=6,
            markeredgecolor=css(colours.kept), markeredgewidth=1.2, label="proven optimal",
        )  # fmt: skip
        handles.append(points)
    if below:
        edges, heights = infeasible_region(below, grain, axis)
        area = axis.stairs(
            heights, edges, baseline=axis.get_ylim()[0], fill=True, linewidth=0, zorder=1,
            color=css(colours.impossible), label="proven impossible",
        )  # fmt: skip
        handles.append(area)
    return handles


def infeasible_region(below: Points, grain: float, axis: Any) -> tuple[list[float], list[float]]:
    """Return edges and heights of the step function below which no schedule is feasible.

    A bound also holds for smaller budgets, and, since budgets are integers of bytes or values
    (``grain``), up to the next larger one.
    """
    left, right = axis.get_xlim()
    top = axis.get_ylim()[1]
    inner = [min(max(x + grain, left), right) for x, _ in below]
    return [left, *inner], [min(y, top) for _, y in below]


def proven(known: Points, below: Points) -> list[tuple[float, float]]:
    """Return the frontier points that the bound at their own peak proves optimal."""
    least = dict(below)
    return [(x, y) for x, y in known if x in least and y <= least[x] * (1 + TIGHT)]


def step_line(axis: Any, known: Points) -> list[tuple[float, float]]:
    """Return the corners of the step line."""
    corners = [(axis.get_xlim()[1], known[-1][1])]
    for x, y in reversed(known):
        corners += [(corners[-1][0], y), (x, y)]
    return corners
