"""Gradient error: how far approximate gradients are off, against the bytes that are kept for them.

Both are of different kinds and sizes, so both axes are logarithmic. Exact gradients have no error,
which has no logarithm: what they keep is a line across the chart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyckpt.errors import TinyckptError
from tinyckpt.units import size_text
from viz.charts.labels import write_labels
from viz.charts.style import (
    SMALL,
    WIDTH,
    Titles,
    byte_unit,
    dress,
    heading,
    new_figure,
    series,
    shown,
    titles_of,
    write,
)  # fmt: skip
from viz.theme import css

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from viz.theme import Theme

Points = Sequence[tuple[str, int, float]]  # a label, bytes that are kept, the error
HEIGHT = 4.2  # inches
TITLE = "Gradient error against memory"
SUBTITLE = "how far gradients are off, relative to their length, and what is kept for them"
MARGIN = 1.35  # of each axis beyond the outermost points, as a factor
ROOM = 2.0  # the same above and to the right of them, where labels are


def gradient_error(
    ways: Mapping[str, Points],
    path: str | os.PathLike[str],
    *,
    exact: int | None = None,
    theme: str = "light",
    width: float = WIDTH,
    title: Titles = None,
) -> Path:
    """Write how far approximate gradients are off, against the bytes kept for them, log-log.

    Nothing is run here: hand over what was measured, as in ``{"codes": [("8 bits", 4096, 0.01),
    ("4 bits", 2048, 0.2)]}``.

    Args:
        ways: for the name of each way to keep less its points, which a line joins by their bytes:
            a label, the bytes that are kept, and the error, such as the length of the gradient's
            difference to the exact one over the length of that.
        path: ends in ``.png``, ``.svg`` or ``.pdf``.
        exact: bytes that exact gradients keep, to be drawn as a line.
        theme: ``light`` or ``dark``.
        width: in inches, from 3 to 30; a PNG has 150 pixels for each.
        title: in place of the chart's own; ``""`` for none.

    Raises:
        TinyckptError: if there is nothing to draw, or bytes or an error are not above 0.
        OptionError: if the theme or the format is unknown, or width or title are not legal.
    """
    checked(ways, exact)
    (name,) = titles_of([TITLE], title)
    return write(
        path,
        theme,
        width,
        lambda colours: gradient_error_figure(ways, exact, colours, width, name),
    )


def checked(ways: Mapping[str, Points], exact: int | None) -> None:
    """Raise a TinyckptError unless all numbers have a logarithm, and there are some."""
    if not isinstance(ways, Mapping):
        raise TinyckptError(
            f"expected a mapping from names to points, got a {type(ways).__name__}; give, for each "
            "way, points of a label, bytes and an error: {'codes': [('8 bits', 4096, 0.01)]}"
        )
    if not any(ways.values()):
        raise TinyckptError("nothing to draw: there are no points")
    for name, points in ways.items():
        for label, nbytes, error in points:
            if not (nbytes > 0 and error > 0 and isfinite(nbytes) and isfinite(error)):
                raise TinyckptError(
                    f"{shown(name)}, {shown(label)}: {nbytes} bytes, an error of {error}; both "
                    "must be above 0 and finite, since axes are logarithmic; what is exact goes "
                    "into exact="
                )
    if exact is not None and not 0 < exact < float("inf"):
        raise TinyckptError(f"exact={exact!r}: bytes must be above 0 and finite")


def gradient_error_figure(
    ways: Mapping[str, Points],
    exact: int | None,
    colours: Theme,
    width: float = WIDTH,
    title: str = TITLE,
) -> Figure:
    """Return the chart; call it within ``looks()``."""
    drawn = {name: sorted(points, key=lambda p: p[1:]) for name, points in ways.items() if points}
    sizes = [nbytes for points in drawn.values() for _, nbytes, _ in points]
    errors = [error for points in drawn.values() for *_, error in points]
    sizes += [] if exact is None else [exact]
    unit, unit_name = byte_unit(max(sizes))
    figure = new_figure(colours, HEIGHT, width)
    axis = figure.subplots()
    dress(axis, colours, grid=True)
    heading(axis, colours, title, SUBTITLE)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(min(sizes) / unit / MARGIN, max(sizes) / unit * ROOM)
    axis.set_ylim(min(errors) / MARGIN, max(errors) * ROOM)
    few_numbers(axis)
    axis.set_xlabel(f"kept, {unit_name}")
    axis.set_ylabel("gradient error")
    places: list[tuple[float, float]] = []
    texts: list[str] = []
    for number, (name, points) in enumerate(drawn.items()):
        own = [(nbytes / unit, error) for _, nbytes, error in points]
        axis.plot(
            *zip(*own, strict=True), linewidth=1.4, markersize=5.5, markeredgewidth=0.8,
            markeredgecolor=css(colours.panel), zorder=4, **series(colours, number),
        )  # fmt: skip
        places += own
        labels = [shown(label, 24) for label, *_ in points]
        texts += [f"{shown(name, 24)}\n{labels[0]}", *labels[1:]]
    corners = list(places)
    if exact is not None:
        axis.axvline(
            exact / unit, color=css(colours.muted), linewidth=1.2, linestyle=(0, (4, 2))
        )  # fmt: skip
        corners += [(exact / unit, end) for end in axis.get_ylim()]
        places.append((exact / unit, min(errors)))
        texts.append(f"exact\n{size_text(exact)}")
    figure.tight_layout()
    write_labels(
        axis, places, texts, corners, color=css(colours.ink), fontsize=SMALL, linespacing=1.15,
        zorder=7,
    )  # fmt: skip
    return figure


def few_numbers(axis: Any) -> None:
    """Have both axes say 1, 2, 5, 10, and not powers; errors in percent."""
    from matplotlib.ticker import LogLocator, NullLocator

    for part in (axis.xaxis, axis.yaxis):
        part.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        part.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g} %")
