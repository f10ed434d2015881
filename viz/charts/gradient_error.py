"""Chart of gradient error against saved bytes, for approximate gradients (log-log).

Both span orders of magnitude, so both axes are logarithmic. Exact gradients have error 0, which has
no logarithm: their saved bytes are a line across the chart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyckpt.base.errors import TinyckptError
from tinyckpt.base.units import size_text

from ..theme import css
from .label_placement import write_labels
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

    from ..theme import Theme

Points = Sequence[tuple[str, int, float]]  # label, saved bytes, error
HEIGHT = 4.2  # inches
TITLE = "Gradient error against memory"
SUBTITLE = "how far gradients are off, relative to their length, and what is kept for them"
MARGIN = 0.07  # beyond the outermost points, as a share of their span
ROOM = 0.2  # the same above and to the right, where labels are
LEAST = 1.3  # the least factor beyond the outermost points
LARGEST = 1e100  # largest number drawn: limits beyond it are still finite


def gradient_error(
    ways: Mapping[str, Points],
    path: str | os.PathLike[str],
    *,
    exact: int | None = None,
    theme: str = "light",
    width: float = WIDTH,
    title: Titles = None,
) -> Path:
    """Write the error of approximate gradients against the bytes saved for them, log-log.

    Nothing is run here: pass measured points.

    Args:
        ways: by the name of each memory-saving technique, its points, joined by a line in order of
            bytes: a label, the saved bytes, and the error, such as the norm of the gradient's
            difference to the exact one, relative to the norm of that.
        path: ends in ``.png``, ``.svg`` or ``.pdf``.
        exact: bytes that exact gradients save, drawn as a line.
        theme: ``light`` or ``dark``.
        width: in inches, from 3 to 30; a PNG has 150 pixels per inch.
        title: replaces the chart's own; ``""`` for none.

    Raises:
        TinyckptError: if there is nothing to draw, or bytes or an error are not above 0.
        OptionError: if the theme or the format is unknown, or width or title are not legal.

    >>> from tempfile import TemporaryDirectory
    >>> from tinyckpt import viz
    >>> measured = {"codes": [("8 bits", 4096, 0.01), ("4 bits", 2048, 0.2)]}
    >>> with TemporaryDirectory() as folder:
    ...     viz.gradient_error(measured, f"{folder}/error.svg", exact=16384).name
    'error.svg'
    """
    check_points(ways, exact)
    (name,) = titles_of([TITLE], title)
    return write(
        path,
        theme,
        width,
        lambda colours: gradient_error_figure(ways, exact, colours, width, name),
    )


def check_points(ways: Mapping[str, Points], exact: int | None) -> None:
    """Raise TinyckptError unless there are points and all their numbers have a logarithm."""
    if not isinstance(ways, Mapping):
        raise TinyckptError(
            f"expected a mapping from names to points, got a {type(ways).__name__}; give, for each "
            "way, points of a label, bytes and an error: {'codes': [('8 bits', 4096, 0.01)]}"
        )
    if not any(ways.values()):
        raise TinyckptError("nothing to draw: there are no points")
    for name, points in ways.items():
        for point in points:
            if len(point) != 3:
                raise TinyckptError(f"{shown(name)}: a point is a label, bytes and an error")
            label, nbytes, error = point
            if not (is_drawable(nbytes) and is_drawable(error)):
                raise TinyckptError(
                    f"{shown(name)}, {shown(label)}: {nbytes!r} bytes, an error of {error!r}; both "
                    "must be numbers above 0, since axes are logarithmic; what is exact goes into "
                    "exact="
                )
    if exact is not None and not is_drawable(exact):
        raise TinyckptError(f"exact={exact!r}: bytes must be a number above 0")


def is_drawable(value: object) -> bool:
    """Whether a value is a number within the range of a logarithmic axis."""
    return isinstance(value, Real) and 1 / LARGEST <= float(value) <= LARGEST


def gradient_error_figure(
    ways: Mapping[str, Points],
    exact: int | None,
    colours: Theme,
    width: float = WIDTH,
    title: str = TITLE,
) -> Figure:
    """Return the figure; call it within ``looks()``."""
    drawn = {name: sorted(points, key=lambda p: p[1:]) for name, points in ways.items() if points}
    sizes = [nbytes for points in drawn.values() for _, nbytes, _ in points]
    errors = [error for points in drawn.values() for *_, error in points]
    sizes += [] if exact is None else [exact]
    unit, unit_name = byte_unit(max(sizes))
    figure = new_figure(colours, HEIGHT, width)
    axis = figure.subplots()
    style_axes(axis, colours, grid=True)
    heading(axis, colours, title, SUBTITLE)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(with_room([size / unit for size in sizes]))
    axis.set_ylim(with_room(errors))
    plain_ticks(axis)
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


def with_room(values: Sequence[float]) -> tuple[float, float]:
    """Return the limits of a logarithmic axis with margins around values.

    >>> low, high = with_room([1.0, 1e10])
    >>> round(low, 3), round(high)
    (0.2, 1000000000000)
    """
    low, high = min(values), max(values)
    return low / max(LEAST, (high / low) ** MARGIN), high * max(LEAST, (high / low) ** ROOM)


def plain_ticks(axis: Any) -> None:
    """Format the ticks of both axes as 1, 2, 5, 10 and not as powers; errors in percent."""
    from matplotlib.ticker import LogLocator, NullLocator

    for part in (axis.xaxis, axis.yaxis):
        part.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        part.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g} %")
