"""Figure layout: panels, headings, memory plots, legend, at any width and aspect ratio.

Traces and a ``Design`` (the user's options) come in; a ``Sheet`` goes out: all positions in pixels
at scale 1, and the scale. From 800 pixels on, a picture only gets larger; a narrower one is laid
out anew, so that its letters keep their size. Raster and SVG pictures are drawn from the same
sheet. The graph inside a panel is laid out by ``layout.views``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tinyckpt.base.errors import OptionError

from .layout.check_label_options import Grouping, Labels, Naming, check_naming
from .layout.geometry import MARGIN, WIDTH, Layout, Point
from .layout.views import overview
from .picture_parts import (  # fmt: skip
    CAPTION,
    GAP,
    HEADER,
    LANE,
    LANE_GAP,
    LEGEND,
    STRIP,
    check_drawable,
    counter_widths,
    legend_items,
)
from .scene import Activity, NodeLook, moves
from .theme import font

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

NARROWEST, WIDEST = 320, 3840  # pixels
SCALES = (1, 2, 3)
ARRANGEMENTS = ("stacked", "side by side")
BESIDE = 480  # default pixels of a panel that stands side by side with others
ASPECTS = 0.25, 4.0  # width by height
TRIES = 20  # widths tried for a given aspect ratio, each 8 % larger than the last
HIGHEST_STRIP = 160  # pixels: limit of a strip's growth into free height
COLUMN, NARROW_COLUMN = 26, 16  # pixels between two counters
ROOM = 180  # least pixels for a title next to the counters; with less, they stand below it
HEADING_ROWS, COUNTER_ROW = 64, 40  # pixels for title and subtitle, and for a row of counters
SUBTITLE_ENDS = 57.0  # pixels from the top
LEGEND_ROW = 22  # pixels
LEGEND_GAP = 10  # pixels between two items, at least


@dataclass(frozen=True, slots=True)
class Design:
    """Display options of a picture, unchecked; ``viz.gif`` documents the accepted values."""

    theme: str = "light"
    title: str | Sequence[str] | None = None
    labels: Labels = None
    group: Grouping = None
    scale: int = 1
    width: int | None = None
    aspect: str | None = None
    arrange: str | None = None


PLAIN = Design()


@dataclass(frozen=True, slots=True)
class Header:
    """Position of title and counters, relative to the top left of a panel.

    Attributes:
        height: of the whole header.
        room: maximum width of title and subtitle.
        names: of the counters.
        counters: the top left of each counter's name.
        widths: of the counters.
    """

    height: int
    room: float
    names: tuple[str, ...]
    counters: tuple[Point, ...]
    widths: tuple[float, ...]

    @property
    def written(self) -> float:
        """Bottom edge of the lowest text of the header."""
        return max(SUBTITLE_ENDS, *(y + COUNTER_ROW - 4 for _, y in self.counters))


@dataclass(frozen=True, slots=True)
class Panel:
    """Position of one trace.

    Attributes:
        left, top, width: of the panel.
        header: its uppermost part.
        plan: layout of the graph, below the header.
        strip_top, strip: top and height of the memory strip.
        moves: whether the trace offloads values: then a lane for host memory follows the strip.
    """

    left: float
    top: float
    width: float
    header: Header
    plan: Layout
    strip_top: float
    strip: int
    moves: bool = False

    @property
    def lane_top(self) -> float:
        """Top of the host memory lane, if there is one."""
        return self.strip_top + self.strip + LANE_GAP


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of the legend.

    Attributes:
        x, y: the centre of its mark.
        radius: of the mark.
        words: where its name begins.
        name, look: its text, and the look of its mark; None for the arrow.
    """

    x: float
    y: float
    radius: int
    words: float
    name: str
    look: NodeLook | None


@dataclass(frozen=True, slots=True)
class Sheet:
    """The layout of a whole picture.

    Attributes:
        width, height: in pixels at scale 1.
        pixels: height and width of the picture in pixels; the height is even, as video codecs need.
        scale: pixels of the picture per pixel at scale 1.
        panels: one per trace.
        legend: its entries.
    """

    width: float
    height: float
    pixels: tuple[int, int]
    scale: float
    panels: tuple[Panel, ...]
    legend: tuple[Item, ...]


def sheet_of(traces: Sequence[Trace], design: Design) -> Sheet:
    """Lay out a picture of these traces.

    Raises:
        OptionError: if there is nothing to draw, or an option has no legal value.
        BackendError: if a layout needs a package that is missing.
    """
    check_drawable(traces, design.theme)
    ratio = checked_ratio(design, len(traces))
    naming = Naming(design.labels, design.group)
    check_naming(naming, [trace.graph for trace in traces])
    widths = counter_widths(traces)
    if ratio is not None:
        return fit_aspect(traces, design, naming, widths, ratio)
    columns = len(traces) if design.arrange == ARRANGEMENTS[1] else 1
    natural = natural_width(columns)
    width = natural * design.scale if design.width is None else design.width
    sheet = sheet_of_width(traces, naming, widths, columns, min(width, natural))
    return with_scale(sheet, width / sheet.width, width)


def checked_ratio(design: Design, count: int) -> float | None:
    """Return the requested width-to-height ratio, or None; raise OptionError if one is illegal."""
    scale, width, arrange = design.scale, design.width, design.arrange
    if not is_integer(scale) or scale not in SCALES:
        raise OptionError(f"scale {scale!r}: expected 1, 2 or 3")
    if width is not None and (not is_integer(width) or not NARROWEST <= width <= WIDEST):
        raise OptionError(f"width {width!r}: expected {NARROWEST} to {WIDEST} pixels")
    if width is not None and scale != 1:
        raise OptionError(f"width {width} and scale {scale}: give one of them")
    if arrange is not None and arrange not in ARRANGEMENTS:
        raise OptionError(f"arrange {arrange!r}: expected {', '.join(ARRANGEMENTS)}")
    if arrange == ARRANGEMENTS[1] and width is not None and width < NARROWEST * count:
        raise OptionError(
            f"width {width}: {count} traces side by side need at least {NARROWEST * count}"
        )
    if design.aspect is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,3}):([1-9]\d{0,3})", str(design.aspect))
    ratio = int(found[1]) / int(found[2]) if found else 0.0
    if not ASPECTS[0] <= ratio <= ASPECTS[1]:
        raise OptionError(
            f"aspect {design.aspect!r}: expected width:height such as 16:9, from 1:4 to 4:1"
        )
    return ratio


def is_integer(number: object) -> bool:
    """Whether a value is an integer and not a bool."""
    return isinstance(number, int) and not isinstance(number, bool)


def natural_width(columns: int) -> int:
    """Return the default width of a picture at scale 1, in pixels."""
    return max(WIDTH, BESIDE * columns)


def header_of(width: float, by_name: Mapping[str, float]) -> Header:
    """Lay out a header: counters at the right, or below the title where they do not fit."""
    room = width - 2 * MARGIN
    names, widths = tuple(by_name), tuple(by_name.values())
    columns = [0.0] * len(widths)
    right = width - MARGIN
    for place in reversed(range(len(widths))):
        columns[place] = right - widths[place]
        right = columns[place] - COLUMN
    beside = columns[0] - MARGIN - 12
    if beside >= ROOM:
        return Header(HEADER, beside, names, tuple((x, 13.0) for x in columns), widths)
    for count in (len(widths), -(-len(widths) // 2), 2, 1):
        if count * max(widths) + (count - 1) * NARROW_COLUMN <= room:
            break
    spots = tuple(
        (MARGIN + place % count * room / count, HEADING_ROWS + place // count * COUNTER_ROW)
        for place in range(len(widths))
    )
    rows = -(-len(widths) // count)
    return Header(HEADING_ROWS + rows * COUNTER_ROW, room, names, spots, widths)


def sheet_of_width(
    traces: Sequence[Trace],
    naming: Naming,
    widths: Mapping[str, float],
    columns: int,
    width: float,
) -> Sheet:
    """Lay out a sheet of a given width at scale 1, as high as it needs to be."""
    own = width / columns
    header = header_of(own, widths)
    plans = {id(trace.graph): overview(trace.graph, own, naming) for trace in traces}
    panels: list[Panel] = []
    top = 0.0
    for place in range(0, len(traces), columns):
        beside = traces[place : place + columns]
        row = [plans[id(trace.graph)] for trace in beside]
        moving = [moves(trace) for trace in beside]
        below = top + header.height + max(round(plan.height) + plan.room_below for plan in row)
        below += CAPTION
        for column, (plan, own_moves) in enumerate(zip(row, moving, strict=True)):
            panels.append(Panel(column * own, top, own, header, plan, below, STRIP, own_moves))
        top = below + STRIP + GAP + (LANE_GAP + LANE if any(moving) else 0)
    legend = legend_of(width, top, legend_items(traces))
    height = legend[-1].y - 17 + LEGEND
    return Sheet(width, height, (0, 0), 1.0, tuple(panels), legend)


def legend_of(
    width: float, top: float, entries: Sequence[tuple[str, NodeLook | None]]
) -> tuple[Item, ...]:
    """Lay out the legend: justified between the margins, or in rows where it needs several."""
    face = font("Regular", 12)
    extents = []
    for name, look in entries:
        around = look is None or look.checkpoint or look.activity is not Activity.NONE
        radius = 10 if around else 6
        extents.append((radius, 2 * radius + 4 + face.getlength(name)))
    room = width - 2 * MARGIN
    gap = (room - sum(extent for _, extent in extents)) / (len(extents) - 1)
    if gap < LEGEND_GAP:
        gap = LEGEND_GAP + 4.0
    items = []
    x, y = float(MARGIN), top + 17
    for (name, look), (radius, extent) in zip(entries, extents, strict=True):
        if x > MARGIN and x + extent > width - MARGIN + 0.5:
            x, y = float(MARGIN), y + LEGEND_ROW
        items.append(Item(x + radius, y, radius, x + 2 * radius + 4, name, look))
        x += extent + gap
    return tuple(items)


def with_scale(sheet: Sheet, scale: float, width: int) -> Sheet:
    """Return a sheet with its scale and the size of the picture in pixels."""
    height = math.ceil(sheet.height * scale / 2 - 1e-9) * 2
    return replace(sheet, pixels=(height, width), scale=scale)


def fit_aspect(
    traces: Sequence[Trace],
    design: Design,
    naming: Naming,
    widths: Mapping[str, float],
    ratio: float,
) -> Sheet:
    """Search the sheet of a given aspect ratio on which everything is drawn largest."""
    arrangements = [design.arrange] if design.arrange else ARRANGEMENTS[: min(2, len(traces))]
    best = (0.0, 1, 0)  # size of letters in the picture, columns, pixels of width
    for arrange in arrangements:
        columns = len(traces) if arrange == ARRANGEMENTS[1] else 1
        natural = natural_width(columns)
        width = natural * design.scale if design.width is None else design.width
        narrow = min(natural, max(width, NARROWEST * columns))
        for step in range(TRIES):
            sheet = sheet_of_width(traces, naming, widths, columns, narrow * 1.08**step)
            size = min(1 / sheet.width, 1 / ratio / sheet.height)
            best = max(best, (size, columns, width))
            if sheet.height * ratio <= sheet.width:
                break
    size, columns, width = best
    # Use the full width at this size: a trial that was too high may have been narrower.
    sheet = sheet_of_width(traces, naming, widths, columns, 1 / size)
    height = 2 * round(width / ratio / 2)
    scale = min(width / sheet.width, height / sheet.height)
    return replace(
        centred(sheet, width / scale, height / scale), pixels=(height, width), scale=scale
    )


def centred(sheet: Sheet, width: float, height: float) -> Sheet:
    """Centre a sheet in a larger one; its memory strips grow into the free height."""
    tops = sorted({panel.top for panel in sheet.panels})
    grow = min(HIGHEST_STRIP - STRIP, int((height - sheet.height) / len(tops)))
    right = (width - sheet.width) / 2
    down = (height - sheet.height - grow * len(tops)) / 2
    panels = tuple(
        replace(
            panel,
            left=panel.left + right,
            top=panel.top + down + grow * tops.index(panel.top),
            strip_top=panel.strip_top + down + grow * tops.index(panel.top),
            strip=panel.strip + grow,
        )
        for panel in sheet.panels
    )
    legend = tuple(
        replace(
            item, x=item.x + right, words=item.words + right, y=item.y + down + grow * len(tops)
        )
        for item in sheet.legend
    )
    return replace(sheet, width=width, height=height, panels=panels, legend=legend)
