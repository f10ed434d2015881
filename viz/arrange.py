"""Where everything stands on a picture: panels, headers, strips, legend, at any width and aspect.

What people ask of a picture comes in, a sheet goes out: positions in pixels at scale 1, and the
scale. From 800 pixels on a picture is the same, only larger; a narrower one is laid out anew, so
that its letters stay as large. Pictures as pixels and as SVG are drawn from one sheet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tinyckpt.base.errors import OptionError

from .layout.geometry import MARGIN, WIDTH, Layout, Point
from .layout.naming import Grouping, Labels, Naming, check_naming
from .layout.views import overview
from .scene import Activity, NodeLook, moves
from .sheet import (
    CAPTION,
    GAP,
    HEADER,
    LANE,
    LANE_GAP,
    LEGEND,
    STRIP,
    check,
    counter_widths,
    legend_items,
)  # fmt: skip
from .theme import font

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

NARROWEST, WIDEST = 320, 3840  # pixels
SCALES = (1, 2, 3)
ARRANGEMENTS = ("stacked", "side by side")
BESIDE = 480  # pixels of a panel that has others beside it, where nothing else is asked for
ASPECTS = 0.25, 4.0  # width by height
TRIES = 20  # widths at which a picture of a given aspect is laid out, each 8 % more than the last
HIGHEST_STRIP = 160  # pixels that a strip may grow to where there is height to spare
COLUMN, NARROW_COLUMN = 26, 16  # pixels between two counters
ROOM = 180  # pixels for a title beside the counters; with less these stand below it
HEADING_ROWS, COUNTER_ROW = 64, 40  # pixels for title and subtitle, and for a row of counters
SUBTITLE_ENDS = 57.0  # pixels from the top
LEGEND_ROW = 22  # pixels
LEGEND_GAP = 10  # pixels between two items, at least


@dataclass(frozen=True, slots=True)
class Design:
    """What people ask of a picture; ``viz.gif`` says what is legal."""

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
    """Where title and counters stand, from the top left of a panel.

    Attributes:
        height: of the whole header.
        room: how wide title and subtitle may be.
        names: of the counters.
        counters: the top left of each name.
        widths: of the counters.
    """

    height: int
    room: float
    names: tuple[str, ...]
    counters: tuple[Point, ...]
    widths: tuple[float, ...]

    @property
    def written(self) -> float:
        """Where the lowest of its texts ends."""
        return max(SUBTITLE_ENDS, *(y + COUNTER_ROW - 4 for _, y in self.counters))


@dataclass(frozen=True, slots=True)
class Panel:
    """Where one trace stands.

    Attributes:
        left, top, width: of the panel.
        header: its uppermost part.
        plan: the graph, below the header.
        strip_top, strip: where the memory strip begins, and how high it is.
        moves: whether it moves values: there is a lane below the strip then.
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
        """Where the lane of what is on the host begins, if there is one."""
        return self.strip_top + self.strip + LANE_GAP


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of the legend.

    Attributes:
        x, y: the middle of its mark.
        radius: of the mark.
        words: where its name begins.
        name, look: what it says, and what its mark looks like; an arrow has no look.
    """

    x: float
    y: float
    radius: int
    words: float
    name: str
    look: NodeLook | None


@dataclass(frozen=True, slots=True)
class Sheet:
    """A whole picture.

    Attributes:
        width, height: in pixels at scale 1.
        pixels: height and width in pixels of the picture itself; the height is even, as films ask.
        scale: pixels of the picture for each at scale 1.
        panels: one for each trace.
        legend: its entries.
    """

    width: float
    height: float
    pixels: tuple[int, int]
    scale: float
    panels: tuple[Panel, ...]
    legend: tuple[Item, ...]


def sheet_of(traces: Sequence[Trace], design: Design) -> Sheet:
    """Return where everything stands.

    Raises:
        OptionError: if there is nothing to draw, or what is asked for is not legal.
        BackendError: if a layout needs a package that is missing.
    """
    check(traces, design.theme)
    ratio = checked_ratio(design, len(traces))
    naming = Naming(design.labels, design.group)
    check_naming(naming, [trace.graph for trace in traces])
    widths = counter_widths(traces)
    if ratio is not None:
        return of_aspect(traces, design, naming, widths, ratio)
    columns = len(traces) if design.arrange == ARRANGEMENTS[1] else 1
    natural = natural_width(columns)
    width = natural * design.scale if design.width is None else design.width
    sheet = laid_out(traces, naming, widths, columns, min(width, natural))
    return scaled(sheet, width / sheet.width, width)


def checked_ratio(design: Design, count: int) -> float | None:
    """Return width by height, if it is asked for; raise an OptionError about what is not legal."""
    scale, width, arrange = design.scale, design.width, design.arrange
    if not is_whole(scale) or scale not in SCALES:
        raise OptionError(f"scale {scale!r}: legal are 1, 2 and 3")
    if width is not None and (not is_whole(width) or not NARROWEST <= width <= WIDEST):
        raise OptionError(f"width {width!r}: legal are {NARROWEST} to {WIDEST} pixels")
    if width is not None and scale != 1:
        raise OptionError(f"width {width} and scale {scale}: give one of them")
    if arrange is not None and arrange not in ARRANGEMENTS:
        raise OptionError(f"arrange {arrange!r}: legal are {', '.join(ARRANGEMENTS)}")
    if arrange == ARRANGEMENTS[1] and width is not None and width < NARROWEST * count:
        raise OptionError(
            f"width {width}: {count} traces side by side need {NARROWEST * count} at least"
        )
    if design.aspect is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,3}):([1-9]\d{0,3})", str(design.aspect))
    ratio = int(found[1]) / int(found[2]) if found else 0.0
    if not ASPECTS[0] <= ratio <= ASPECTS[1]:
        raise OptionError(
            f"aspect {design.aspect!r}: legal are width and height such as 16:9, from 1:4 to 4:1"
        )
    return ratio


def is_whole(number: object) -> bool:
    """Whether something is a whole number, and not a truth."""
    return isinstance(number, int) and not isinstance(number, bool)


def natural_width(columns: int) -> int:
    """Return how wide a picture is at scale 1, where nothing else is asked for."""
    return max(WIDTH, BESIDE * columns)


def header_of(width: float, by_name: Mapping[str, float]) -> Header:
    """Return a header: the counters at the right, or below the title where that has no room."""
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


def laid_out(
    traces: Sequence[Trace],
    naming: Naming,
    widths: Mapping[str, float],
    columns: int,
    width: float,
) -> Sheet:
    """Return a sheet of a width, as high as it needs to be, at scale 1."""
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
    """Return the legend's entries: from margin to margin, or in rows where they need several."""
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


def scaled(sheet: Sheet, scale: float, width: int) -> Sheet:
    """Return a sheet as it is, with the size of the picture that is made of it."""
    height = math.ceil(sheet.height * scale / 2 - 1e-9) * 2
    return replace(sheet, pixels=(height, width), scale=scale)


def of_aspect(
    traces: Sequence[Trace],
    design: Design,
    naming: Naming,
    widths: Mapping[str, float],
    ratio: float,
) -> Sheet:
    """Return the sheet of this aspect on which everything is as large as it can be."""
    arrangements = [design.arrange] if design.arrange else ARRANGEMENTS[: min(2, len(traces))]
    best = (0.0, 1, 0)  # how large letters are in the picture, columns, pixels of width
    for arrange in arrangements:
        columns = len(traces) if arrange == ARRANGEMENTS[1] else 1
        natural = natural_width(columns)
        width = natural * design.scale if design.width is None else design.width
        narrow = min(natural, max(width, NARROWEST * columns))
        for step in range(TRIES):
            sheet = laid_out(traces, naming, widths, columns, narrow * 1.08**step)
            size = min(1 / sheet.width, 1 / ratio / sheet.height)
            best = max(best, (size, columns, width))
            if sheet.height * ratio <= sheet.width:
                break
    size, columns, width = best
    # All the width that there is at this size: what was too high may have been narrower.
    sheet = laid_out(traces, naming, widths, columns, 1 / size)
    height = 2 * round(width / ratio / 2)
    scale = min(width / sheet.width, height / sheet.height)
    return replace(
        filled(sheet, width / scale, height / scale), pixels=(height, width), scale=scale
    )


def filled(sheet: Sheet, width: float, height: float) -> Sheet:
    """Return a sheet in a larger one: its strips grow, and the rest is around it."""
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
