"""Chart of memory-saving techniques: peak memory against modelled time, the budget as a line.

Filled points are exact, hollow ones approximate. Many points are close together, at the budget
above all, so points have numbers, with a key; techniques that do not apply have a dash there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyckpt.base.errors import TinyckptError
from tinyckpt.base.units import size_text

from ..theme import css
from .frontier import set_scales
from .label_placement import write_labels
from .style import (
    SMALL,
    WIDTH,
    Titles,
    byte_unit,
    heading,
    legend,
    new_figure,
    shown,
    style_axes,
    titles_of,
    write,
)  # fmt: skip

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tinyckpt.techniques import Row, TechniqueComparison

    from ..theme import Theme

HEIGHT = 5.2  # inches, as all that follows; without the key, where that stands below
BESIDE = 6.0  # least width with the key next to the axes
KEY = 2.25  # width of the key
LINE = 0.172  # height of one of its lines
INDENT, MARGIN = 0.12, 0.25  # before the key: next to the axes, and below them
NUMBER, GAP = 0.14, 0.07  # width of a number, and the space after it
TITLE = "Memory-saving techniques"
# By exactness of gradients: the filled part of a marker, and the legend's text.
FILLS = {
    "bitwise": ("full", "exact"),
    "rounded": ("full", "exact"),
    "unproven": ("left", "exact for means over samples"),
    "approximate": ("none", "approximate"),
}
ONE, SEVERAL = "o", "s"  # devices
TOUCHING = 7.0  # points of distance from which two markers do not overlap
BELOW = 0.08  # of the height, free for labels under the lowest points


def techniques(
    found: TechniqueComparison,
    path: str | os.PathLike[str],
    *,
    theme: str = "light",
    width: float = WIDTH,
    title: Titles = None,
) -> Path:
    """Write peak against modelled time, relative to store-all, of all techniques that apply.

    Args:
        found: what ``tinyckpt.techniques.compare_techniques`` returned.
        path: ends in ``.png``, ``.svg`` or ``.pdf``.
        theme: ``light`` or ``dark``.
        width: in inches, from 3 to 30; a PNG has 150 pixels per inch.
        title: replaces the chart's own; ``""`` for none.

    Raises:
        TinyckptError: if ``found`` is no Comparison, the theme or the format is unknown, or the
            file cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> from tinyckpt.techniques import compare_techniques
    >>> network = tc.networks.mlp(2, 4, batch=8)
    >>> found = compare_techniques(network, budget="90 %", time_limit=0.05, measure=False)
    >>> with TemporaryDirectory() as folder:
    ...     viz.techniques(found, f"{folder}/techniques.svg").name
    'techniques.svg'
    """
    if not hasattr(found, "rows"):
        raise TinyckptError(
            "expected what tinyckpt.techniques.compare_techniques returned, got a "
            f"{type(found).__name__}"
        )
    (name,) = titles_of([TITLE], title)
    return write(path, theme, width, lambda colours: techniques_figure(found, colours, width, name))


def techniques_figure(
    found: TechniqueComparison, colours: Theme, width: float = WIDTH, title: str = TITLE
) -> Figure:
    """Return the figure; call it within ``looks()``."""
    rows = [row for row in found.rows if row.peak is not None]
    unit, unit_name = byte_unit(max(found.budget, *(row.peak or 0 for row in rows)))
    beside = width >= BESIDE
    columns = 1 if beside else max(1, int(width / KEY))
    lines = -(-len(found.rows) // columns)
    figure = new_figure(colours, HEIGHT if beside else HEIGHT + LINE * lines, width)
    axis = figure.subplots()
    style_axes(axis, colours, grid=True)
    placed = [((row.peak or 0) / unit, row.times or 0.0) for row in rows]
    set_scales(axis, [*placed, (found.budget / unit, 1.0)])
    if axis.get_yscale() == "linear":
        bottom, top = axis.get_ylim()
        axis.set_ylim(bottom - BELOW * (top - bottom), top)
    heading(axis, colours, title, f"{shown(found.name)} within {size_text(found.budget)}")
    axis.set_xlabel(f"peak, {unit_name}")
    axis.set_ylabel(f"time in {shown(found.unit)}, relative to store-all")
    handles = draw_rows(axis, rows, unit, colours)
    line = axis.axvline(
        found.budget / unit, color=css(colours.ink), linewidth=1.2, linestyle=(0, (4, 3)),
        zorder=3, label="budget",
    )  # fmt: skip
    if not beside:
        legend(axis, colours, [*handles, line])
    height = figure.get_size_inches()[1]
    free = (0, 0, 1 - KEY / width, 1) if beside else (0, LINE * (lines + 0.5) / height, 1, 1)
    figure.tight_layout(rect=free)
    write_numbers(axis, found, unit, colours)
    write_key(figure, found, columns, beside, colours)
    if beside:
        figure.legend(
            handles=[*handles, line], frameon=False, labelcolor=css(colours.muted),
            fontsize=SMALL, loc="lower left", borderaxespad=0.0, handlelength=1.4,
            bbox_to_anchor=(1 - (KEY - INDENT) / width, axis.get_position().y0),
        )  # fmt: skip
    return figure


def numbers_of(found: TechniqueComparison) -> dict[str, str]:
    """Return the number of each technique that has a point, by its name."""
    names = [row.name for row in found.rows if row.peak is not None]
    return {name: str(place) for place, name in enumerate(names, start=1)}


def write_numbers(axis: Any, found: TechniqueComparison, unit: int, colours: Theme) -> None:
    """Label each point with its number, and coinciding points with all of theirs."""
    numbers = numbers_of(found)
    rows = [row for row in found.rows if row.peak is not None]
    points = [((row.peak or 0) / unit, row.times or 0.0) for row in rows]
    scale = 72 / axis.figure.dpi
    places = [tuple(scale * axis.transData.transform(point)) for point in points]
    groups = clusters(places, TOUCHING)
    back = axis.transData.inverted().transform
    ends = []
    for group in groups:
        x, y = (sum(places[m][side] for m in group) / len(group) / scale for side in (0, 1))
        ends.append((float(back((x, y))[0]), float(back((x, y))[1])))
    texts = [", ".join(numbers[rows[member].name] for member in group) for group in groups]
    line = [(found.budget / unit, end) for end in axis.get_ylim()]
    write_labels(axis, ends, texts, line, color=css(colours.ink), fontsize=SMALL + 0.5, zorder=7)


def clusters(places: Sequence[tuple[float, float]], distance: float) -> list[list[int]]:
    """Cluster points: single linkage by a distance threshold.

    >>> clusters([(0, 0), (9, 0), (1, 1), (2, 1)], 1.5)
    [[0, 2, 3], [1]]
    """
    groups: list[list[int]] = []
    for place, (x, y) in enumerate(places):
        near = [
            group
            for group in groups
            if any(hypot(places[m][0] - x, places[m][1] - y) < distance for m in group)
        ]
        groups = [group for group in groups if group not in near]
        groups.append(sorted([place, *(member for group in near for member in group)]))
    return sorted(groups)


def write_key(
    figure: Figure, found: TechniqueComparison, columns: int, beside: bool, colours: Theme
) -> None:
    """Draw the key from numbers to techniques: next to the axes, or below them in columns."""
    width, height = figure.get_size_inches()
    numbers = numbers_of(found)
    lines = -(-len(found.rows) // columns)
    top = figure.axes[0].get_position().y1 * height if beside else LINE * (lines + 0.25)
    for place, row in enumerate(found.rows):
        column, line = divmod(place, lines)
        left = width - KEY + INDENT if beside else MARGIN + column * (width - MARGIN) / columns
        y = (top - LINE * (line + 0.5)) / height
        number = numbers.get(row.name)
        colour = css(colours.muted if number is None else colours.ink)
        look: dict[str, Any] = {"color": colour, "fontsize": SMALL + 0.5, "va": "center"}
        figure.text((left + NUMBER) / width, y, number or "\N{EN DASH}", ha="right", **look)
        figure.text((left + NUMBER + GAP) / width, y, shown(row.name), **look)


def draw_rows(axis: Any, rows: Sequence[Row], unit: int, colours: Theme) -> list[Any]:
    """Draw a marker per row; return the legend's entries."""
    handles: dict[str, Any] = {}
    for row in rows:
        assert row.gradients is not None
        fill, label = FILLS[row.gradients]
        # Coinciding markers are both visible: rings are on top, and of another colour.
        is_ring = row.gradients == "approximate"
        look: dict[str, Any] = {
            "fillstyle": fill, "markersize": 6.5, "markeredgewidth": 1.4, "linestyle": "none",
            "color": css(colours.recomputing if is_ring else colours.kept),
            "markerfacecoloralt": css(colours.panel),
        }  # fmt: skip
        marker = ONE if row.devices == 1 else SEVERAL
        axis.plot([(row.peak or 0) / unit], [row.times], marker, zorder=6 if is_ring else 5, **look)
        handles.setdefault(label, axis.plot([], [], ONE, label=label, **look)[0])
        if row.devices > 1:
            text = f"{row.devices} devices"
            look |= {"color": css(colours.muted), "fillstyle": "none"}
            handles.setdefault(text, axis.plot([], [], SEVERAL, label=text, **look)[0])
    return list(handles.values())
