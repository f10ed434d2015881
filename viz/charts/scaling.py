"""Scaling chart (log-log): operator evaluations and peak against network size, fitted exponents.

Checks empirically that sqrt(n) checkpointing takes O(sqrt(n)) memory, for example: a policy is a
line, labelled with the power n^p of a least-squares fit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.errors import TinyckptError

from ..scene import TITLES, as_list, check_drawable, count_text, counts_nodes, live_of
from ..theme import css
from .label_placement import spread
from .style import (
    SMALL,
    WIDTH,
    Titles,
    byte_unit,
    heading,
    new_figure,
    series,
    shown,
    style_axes,
    titles_of,
    write,
)  # fmt: skip

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tinyckpt.core.trace import Trace

    from ..theme import Theme

HEIGHT = 4.0  # inches
BESIDE = 7.0  # inches: least width with the two charts side by side
NAMES, BETWEEN = 1.0, 1.7  # inches for the names at the right, and between the charts
GAP = 8.0  # points between axes and labels
LINE = 21.0  # points between the labels of two lines


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of one metric of one policy with the network size n.

    Attributes:
        name: the policy's.
        n: forward operators of the networks, ascending.
        values: the metric for each.
        exponent: p of the power n^p that fits best, by least squares of the logarithms.
    """

    name: str
    n: tuple[int, ...]
    values: tuple[float, ...]
    exponent: float


def scaling(
    traces: Mapping[str, Sequence[Trace]],
    path: str | os.PathLike[str],
    *,
    theme: str = "light",
    width: float = WIDTH,
    title: Titles = None,
) -> Path:
    """Write evaluations and peak against n, log-log, one line per policy with its fitted exponent.

    Nothing is planned here: plan and replay each policy on networks of several sizes, and pass the
    traces, as in ``{"sqrt_n": [trace_of_16, trace_of_64], ...}``. n is the number of forward
    operators.

    Args:
        traces: by policy name, its traces, of at least two sizes.
        path: ends in ``.png``, ``.svg`` or ``.pdf``.
        theme: ``light`` or ``dark``.
        width: in inches, from 3 to 30; a PNG has 150 pixels per inch.
        title: replaces the two charts' own, one for each; ``""`` for none.

    Raises:
        TinyckptError: if a policy has fewer than two sizes or a number that has no logarithm, the
            theme or the format is unknown, or the file cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> sizes = [tc.replay(tc.plan(tc.networks.chain(n), "sqrt_n")) for n in (16, 64)]
    >>> with TemporaryDirectory() as folder:
    ...     viz.scaling({"sqrt_n": sizes}, f"{folder}/growth.svg").name
    'growth.svg'
    """
    if not isinstance(traces, Mapping):
        raise TinyckptError(
            f"expected a mapping from names to traces, got a {type(traces).__name__}: "
            'viz.scaling({"sqrt_n": [trace, larger_trace]}, path)'
        )
    listed = {name: as_list(some) for name, some in traces.items()}
    check_drawable([trace for some in listed.values() for trace in some], theme)
    in_nodes = counts_nodes([trace for some in listed.values() for trace in some])
    evaluations = [growth(name, some, lambda t: t.evaluations) for name, some in listed.items()]
    peaks = [growth(n, some, lambda t: max(live_of(t, in_nodes))) for n, some in listed.items()]
    titles_of(["", ""], title)
    return write(
        path,
        theme,
        width,
        lambda colours: scaling_figure(evaluations, peaks, in_nodes, colours, width, title),
    )


def growth(name: str, traces: Sequence[Trace], number: Any) -> Growth:
    """Fit the growth of a metric over the traces of one policy.

    Raises:
        TinyckptError: if there are fewer than two sizes, or the metric is 0 at one of them.
    """
    pairs = sorted({(trace.graph.forward_count, number(trace)) for trace in traces})
    sizes = {n for n, _ in pairs}
    if len(sizes) < 2 or len(sizes) < len(pairs):
        raise TinyckptError(
            f"{shown(name)}: the sizes are {', '.join(str(n) for n, _ in pairs)}; give traces of "
            "at least two sizes, one for each"
        )
    if pairs[0][0] == 0 or not all(value > 0 for _, value in pairs):
        raise TinyckptError(f"{shown(name)}: a size or a peak is 0, which has no logarithm")
    n, values = zip(*pairs, strict=True)
    x, y = np.log(n), np.log(values)
    away = x - x.mean()
    exponent = float((away * y).sum() / (away * away).sum())
    return Growth(TITLES.get(name, name.replace("_", " ")), n, values, exponent)


def scaling_figure(
    evaluations: Sequence[Growth],
    peaks: Sequence[Growth],
    in_nodes: bool,
    colours: Theme,
    width: float = WIDTH,
    title: Titles = None,
) -> Figure:
    """Return the figure; call it within ``looks()``."""
    unit, name = (1, "values")
    if not in_nodes:
        unit, name = byte_unit(max(max(line.values) for line in peaks))
    beside = width >= BESIDE
    figure = new_figure(colours, HEIGHT if beside else 2 * HEIGHT, width)
    first, second = titles_of(["Evaluations", f"Peak, {name}"], title)
    axes = figure.subplots(1, 2) if beside else figure.subplots(2, 1)
    entries = (
        (axes[0], first, "of a training step, against forward operators", evaluations, 1),
        (axes[1], second, "live at once, against forward operators", peaks, unit),
    )
    for axis, title, subtitle, lines, scale in entries:
        style_axes(axis, colours, grid=True)
        heading(axis, colours, title, subtitle)
        draw_lines(axis, lines, scale, colours)
        axis.set_xlabel("n, forward operators")
    figure.tight_layout(w_pad=1.0, rect=(0, 0, 1 - NAMES / width, 1))
    if beside:  # matplotlib takes the space between two axes in shares of their width
        figure.subplots_adjust(wspace=2 * BETWEEN / (width - BETWEEN - NAMES - 0.6))
    for axis, _, _, lines, scale in entries:
        label_lines(axis, lines, scale, colours)
    return figure


def draw_lines(axis: Any, lines: Sequence[Growth], unit: int, colours: Theme) -> None:
    """Draw the lines of all policies on logarithmic axes."""
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    axis.set_xscale("log")
    axis.set_yscale("log")
    for place, line in enumerate(lines):
        axis.plot(
            line.n, [value / unit for value in line.values], linewidth=1.6, markersize=5,
            markeredgecolor=css(colours.panel), markeredgewidth=0.8, label=line.name,
            **series(colours, place),
        )  # fmt: skip
    sizes = sorted({n for line in lines for n in line.n})
    axis.xaxis.set_minor_locator(NullLocator())
    if len(sizes) <= 6:
        axis.set_xticks(sizes)
    axis.xaxis.set_major_formatter(lambda n, _: count_text(round(n)))
    axis.yaxis.set_major_locator(LogLocator(numticks=8))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.yaxis.set_major_formatter(number_text)


def number_text(value: float, _: int) -> str:
    """Format a tick: groups of thousands, or as many digits as a fraction needs."""
    return count_text(round(value)) if value >= 1 else f"{value:g}"


def label_lines(axis: Any, lines: Sequence[Growth], unit: int, colours: Theme) -> None:
    """Write each policy's name and power next to the end of its line, without overlaps."""
    scale = 72 / axis.figure.dpi  # points per pixel
    ends = [(line.n[-1], line.values[-1] / unit) for line in lines]
    heights = [scale * float(axis.transData.transform(end)[1]) for end in ends]
    edge = scale * float(axis.transAxes.transform((1.0, 0.0))[0]) + GAP
    for place, (line, end, wanted, height) in enumerate(
        zip(lines, ends, heights, spread(heights, LINE), strict=True)
    ):
        at = (edge - scale * float(axis.transData.transform(end)[0]), height - wanted)
        leader = {
            "arrowstyle": "-", "color": series(colours, place)["color"], "linewidth": 0.7,
            "shrinkA": 0, "shrinkB": 4,
        }  # fmt: skip
        beside: Any = {"textcoords": "offset points", "annotation_clip": False, "fontsize": SMALL}
        axis.annotate("", end, (at[0] - 2, at[1]), arrowprops=leader, **beside)
        axis.annotate(shown(line.name, 22), end, at, va="bottom", color=css(colours.ink), **beside)
        power = f"$n^{{{line.exponent:.2f}}}$"  # a formula, without names of a user
        axis.annotate(power, end, at, va="top", color=css(colours.muted), parse_math=True, **beside)
