"""Common style of all charts: files, fonts, axes, headings, legends (matplotlib rcParams).

Every chart is a function from data to a matplotlib figure, drawn within ``looks()`` and written by
``write``. Output is deterministic: the same data give the same bytes, without dates or random ids.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.display import DrawnPath
from tinyckpt.base.errors import OptionError
from tinyckpt.base.files import suffix_of, write_atomically
from tinyckpt.base.units import memory_text

from ..scene import listed_titles, one_line, title_of
from ..theme import FONTS, RGB, THEMES, Theme, blend, check_theme, css
from .compact_svg import compact

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tinyckpt.core.schedule import Schedule
    from tinyckpt.core.trace import Trace

# File metadata without a date, so that output is deterministic.
METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
FORMATS = tuple(METADATA)
LOOKS: Any = {
    # The second font comes with matplotlib and has the letters that the bundled subset lacks.
    "font.family": ["Inter", "DejaVu Sans"],
    "font.size": 9,
    "mathtext.fontset": "custom",
    **{f"mathtext.{style}": "Inter" for style in ("rm", "it", "bf", "bfit", "sf", "tt", "cal")},
    "text.parse_math": False,  # dollar signs in names are literal
    "pdf.fonttype": 42,  # TrueType, as publishers ask for
    "svg.fonttype": "none",  # text as text; the letters that occur are embedded
    "svg.hashsalt": "0",
    "hatch.linewidth": 0.7,
}
WIDTH = 8.0  # inches
NARROWEST, WIDEST = 3.0, 30.0  # inches: the accepted widths
BESIDE = 6.0  # inches: least width with the legend next to the title, and not above it
ENTRY = 1.3  # inches: largest width of a legend's entry
LETTER = 4.4  # points: mean width of a letter of a subtitle
Titles = str | Sequence[str] | None
DPI = 150  # of a PNG
SMALL = 8.0  # points
# Theme colours that are distinct for the colour-blind too; further series differ by markers.
SERIES = ("kept", "recomputing", "gradient", "evaluation", "recomputed", "workspace")
MARKERS = ("o", "s", "D", "^", "v", "P", "X")


def write(
    path: str | os.PathLike[str],
    theme: str,
    width: float,
    draw: Callable[[Theme], Figure],
    coarser: Sequence[Callable[[Theme], Figure]] = (),
    most: int = 0,
) -> Path:
    """Write the figure that ``draw`` returns, in the format of the path's suffix.

    Args:
        path, theme, width: as in every chart.
        draw: returns the figure of a theme.
        coarser: return it with less and less detail: an SVG is the first figure of at most ``most``
            bytes, or the last one.
        most: bytes.

    Raises:
        OptionError: if the theme or the format is unknown, or the width is out of range.
        FormatError: if the file cannot be written.
    """
    form = format_of(path)
    if not isinstance(width, int | float) or not NARROWEST <= width <= WIDEST:
        raise OptionError(f"width {width!r}: expected {NARROWEST:g} to {WIDEST:g} inches")
    check_theme(theme)
    content = b""
    for drawn in (draw, *coarser):
        content = rendered(drawn, THEMES[theme], form)
        if form != "svg" or len(content) <= most:
            break
    write_atomically(path, content)
    return DrawnPath(path)


def rendered(draw: Callable[[Theme], Figure], colours: Theme, form: str) -> bytes:
    """Return a figure as a file of a format."""
    buffer = io.BytesIO()
    with looks():
        figure = draw(colours)
        if form == "svg":
            drop_path_effects(figure)
        figure.savefig(buffer, format=form, dpi=DPI, metadata=METADATA[form])
    content = buffer.getvalue()
    return compact(content) if form == "svg" else content


def hatched(fill: RGB, strokes: RGB) -> dict[str, Any]:
    """Return the area style of what was recomputed: stripes, so that no colour need say it."""
    return {
        "facecolor": css(fill), "edgecolor": css(strokes), "hatch": "////", "linewidth": 0,
    }  # fmt: skip


def drop_path_effects(figure: Figure) -> None:
    """Take the halos of texts away: their letters would be paths. ``compact`` draws them by id."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_path_effects([])


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the format of a path's suffix, or raise OptionError."""
    form = suffix_of(path).removeprefix(".")
    if form not in FORMATS:
        raise OptionError(f"{path}: unknown format {form!r}; known are {', '.join(FORMATS)}")
    return form


@contextmanager
def looks() -> Iterator[None]:
    """Context in which matplotlib uses the bundled font and takes text literally."""
    import matplotlib

    add_fonts()
    with matplotlib.rc_context(LOOKS):
        yield


@cache
def add_fonts() -> None:
    """Register the bundled fonts with matplotlib, once."""
    from matplotlib.font_manager import fontManager

    for weight in ("Regular", "SemiBold"):
        fontManager.addfont(font_file(weight))


def bold_font(size: float) -> Any:
    """Return the semibold font at a size in points."""
    from matplotlib.font_manager import FontProperties

    return FontProperties(fname=font_file("SemiBold"), weight=600, size=size)


def font_file(weight: str) -> str:
    """Return the path of the bundled Inter as TrueType, which PDFs embed."""
    return str(FONTS / f"Inter-{weight}.ttf")


@cache
def letters() -> frozenset[int]:
    """Return the code points that the fonts can draw."""
    from matplotlib.font_manager import findfont
    from matplotlib.ft2font import FT2Font

    files = (font_file("Regular"), findfont("DejaVu Sans"))
    return frozenset(code for file in files for code in FT2Font(file).get_charmap())


def shown(text: str, longest: int = 40) -> str:
    """Return text as a chart can show it: one line, not too long, ``?`` for unknown letters.

    >>> shown("line\\nbreak"), shown("x" * 50, 10)
    ('line break', 'xxxxxxxxx…')
    """
    known = letters()
    return "".join(c if ord(c) in known else "?" for c in one_line(text, longest))


def series(colours: Theme, place: int) -> dict[str, Any]:
    """Return the line style of one of several series."""
    return {
        "color": css(getattr(colours, SERIES[place % len(SERIES)])),
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": "-" if place < len(SERIES) else (0, (4, 2)),
    }


def new_figure(colours: Theme, height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure of a height and a width in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor=css(colours.background))
    FigureCanvasAgg(figure)  # measures text
    return figure


def style_axes(axis: Any, colours: Theme, *, grid: bool = False) -> None:
    """Style axes in the theme's colours, without a frame."""
    axis.set_facecolor(css(colours.panel))
    axis.tick_params(which="both", colors=css(colours.muted), labelsize=SMALL, length=3)
    axis.xaxis.label.set_color(css(colours.muted))
    axis.yaxis.label.set_color(css(colours.muted))
    for side in axis.spines.values():
        side.set_visible(False)
    if grid:
        line = blend(colours.muted, colours.panel, 0.25)
        axis.grid(True, which="major", color=css(line), linewidth=0.6)
        axis.set_axisbelow(True)


def titles_of(own: Sequence[str], title: Titles) -> list[str]:
    """Return the titles of a figure's charts: the user's, or else their own.

    Raises:
        OptionError: if there are titles, but not one per chart; an empty one is for all.
    """
    if title is None:
        return list(own)
    titles = listed_titles(title)
    if titles == [""]:
        return [""] * len(own)
    if len(titles) != len(own):
        raise OptionError(
            f"title {title!r}: give one for each chart, of which there are {len(own)}; or none; "
            "or '' for charts without any"
        )
    return titles


def heading(axis: Any, colours: Theme, title: str, subtitle: str) -> None:
    """Draw a title and a line under it above axes, left-aligned; nothing without one."""
    if not title:
        return
    longest = int((axis.figure.get_size_inches()[0] * 72 - 50) / LETTER)
    axis.set_title(
        shown(title, 48), loc="left", color=css(colours.ink), pad=17, fontproperties=bold_font(12)
    )
    axis.annotate(
        shown(subtitle, min(120, longest)), (0, 1), (0, 5), xycoords="axes fraction",
        textcoords="offset points", color=css(colours.muted), fontsize=SMALL,
    )  # fmt: skip


def legend(axis: Any, colours: Theme, handles: Sequence[Any]) -> None:
    """Draw a legend in one row above axes, next to the title or above it, right-aligned."""
    from matplotlib.transforms import ScaledTranslation

    titled = bool(axis.get_title("left"))
    beside = axis.figure.get_size_inches()[0] >= BESIDE
    points = 15 if beside else 32
    raised = ScaledTranslation(0, (points if titled else 2) / 72, axis.figure.dpi_scale_trans)
    axis.legend(
        handles=handles, frameon=False, labelcolor=css(colours.muted), fontsize=SMALL,
        ncols=columns_of(axis.figure, len(handles)), loc="lower right", bbox_to_anchor=(1.0, 1.0),
        bbox_transform=axis.transAxes + raised, borderaxespad=0.0, borderpad=0.2,
        handlelength=1.2, columnspacing=1.2,
    )  # fmt: skip


def draw_peak_line(axis: Any, where: float, height: float, text: str, colours: Theme) -> None:
    """Draw a horizontal line, and a label on it, on the side with more room."""
    axis.axhline(height, color=css(colours.muted), linewidth=0.8, linestyle=(0, (4, 3)), zorder=3)
    on_the_left = where <= axis.get_xlim()[1] / 2
    axis.annotate(
        text, (where, height), (0, 4.5), textcoords="offset points",
        ha="left" if on_the_left else "right", va="bottom",
        color=css(colours.ink), fontsize=SMALL,
    )  # fmt: skip


def columns_of(figure: Figure, entries: int) -> int:
    """Return the number of columns in which a legend of ``entries`` fits a figure."""
    return max(1, min(entries, int(figure.get_size_inches()[0] / ENTRY)))


def legend_below(
    figure: Figure, handles: Sequence[Any], colours: Theme, handlelength: float
) -> None:
    """Draw a legend below a chart, in as many columns as fit, and make room for it."""
    height = figure.get_size_inches()[1]
    columns = columns_of(figure, len(handles))
    rows = -(-len(handles) // columns)
    figure.subplots_adjust(bottom=figure.subplotpars.bottom + (0.06 + 0.16 * rows) / height)
    figure.legend(
        handles=handles, frameon=False, labelcolor=css(colours.muted), fontsize=SMALL,
        ncols=columns, loc="lower center", bbox_to_anchor=(0.5, 0.04 / height),
        handlelength=handlelength, columnspacing=1.6, borderaxespad=0.0,
    )  # fmt: skip


def names_of(traces: Sequence[Trace]) -> list[str]:
    """Return a name for each trace: its policy, and if that is ambiguous its options."""
    titles = [title_of(trace) for trace in traces]
    details = [detail_of(trace.schedule) for trace in traces]
    return [
        title if titles.count(title) == 1 or not detail else f"{title}, {detail}"
        for title, detail in zip(titles, details, strict=True)
    ]


def detail_of(schedule: Schedule) -> str:
    """Return a schedule's options, or the budget that it is certified for, if it has either."""
    if schedule.options:
        return options_text(schedule.options)
    known = schedule.certificate
    return f"within {memory_text(known.budget, known.memory_unit, 'value')}" if known else ""


def options_text(options: Mapping[str, Any]) -> str:
    """Format a policy's options in one line.

    >>> options_text({"segments": 4}), options_text({"budget": 4608, "memory_unit": "bytes"})
    ('segments 4', 'within 4.5 KiB')
    """
    rest = dict(options)
    parts = []
    if isinstance(rest.get("budget"), int) and rest.get("memory_unit") in ("bytes", "nodes"):
        parts.append(f"within {memory_text(rest.pop('budget'), rest.pop('memory_unit'))}")
    return ", ".join([*parts, *(f"{name} {value}" for name, value in rest.items())])


def byte_unit(largest: float) -> tuple[int, str]:
    """Return the unit in which the largest value reads best, and its name."""
    for power, name in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if largest >= 2**power:
            return 2**power, name
    return 1, "B"


def stacked_areas(
    axis: Any, at: Sequence[float], heights: Any, looks: Sequence[Mapping[str, Any]]
) -> list[Any]:
    """Stack areas of steps, from the ground up; return them.

    Each reaches down to the ground behind those below it, so that it has one edge and not two, and
    is left out where it is empty: an SVG has a quarter of the points of ``stackplot``.

    Args:
        axis: of matplotlib.
        at: where each step begins, and where the last one ends.
        heights: of each area, at every place of ``at``.
        looks: of each area, for matplotlib.
    """
    own = np.asarray(heights, float)
    tops = np.where(own > 0, own.cumsum(axis=0), 0)
    return [
        axis.fill_between(
            at, 0, top, step="post", zorder=1 - 0.01 * place, **{"linewidth": 0, **look}
        )
        for place, (top, look) in enumerate(zip(tops, looks, strict=True))
    ]
