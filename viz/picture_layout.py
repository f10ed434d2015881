"""Figure layout: panels, headings, memory plots, legend, at any width and aspect ratio.

A ``Scene`` comes in; a ``Sheet`` goes out: all positions in pixels at scale 1, and the scale. From
800 pixels on, a picture only gets larger; a narrower one is laid out anew, so that its letters keep
their size. Raster and SVG pictures are drawn from the same sheet. The graph inside a panel is laid
out by ``layout.views``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from .layout.geometry import MARGIN, WIDTH, Layout, Point
from .layout.views import overview
from .node_looks import Activity, Fill, NodeLook
from .node_memory import LEVELS, result_gradients
from .scene import ARRANGEMENTS, NARROWEST, Row, Scene
from .strip_layout import STRIP
from .theme import font

GAP = 14  # pixels between the parts of a picture
HEADER = 66  # pixels for title, subtitle and counters
LEAST = 0.25  # of a picture's height: what its memory strips take, unless its aspect is given
EARLY = 0.9  # of the time: a trace that ends before has no graph after its end
LEGEND = 38  # pixels
CAPTION = 22  # pixels of the caption above the strip
LANE = 40  # pixels of the lane below it: host memory
LANE_GAP = 4  # pixels between the two
# A node shows the state of its value; the arrow, which has no look, stands for a read.
LEGEND_ITEMS: tuple[tuple[str, NodeLook | None], ...] = (
    ("kept", NodeLook(Fill.KEPT)),
    ("recomputed", NodeLook(Fill.RECOMPUTED)),
    ("gradient", NodeLook(Fill.GRADIENT, backward=True)),
    ("result", NodeLook(Fill.GRADIENT, backward=True, results=LEVELS)),
    ("checkpoint", NodeLook(Fill.KEPT, checkpoint=True)),
    ("computing", NodeLook(Fill.KEPT, Activity.COMPUTING)),
    ("recomputing", NodeLook(Fill.RECOMPUTED, Activity.RECOMPUTING)),
    ("dropped", NodeLook(Fill.DROPPED)),
    ("not yet", NodeLook(Fill.NOT_YET)),
    ("reads", None),
)

HOST_ITEM = ("on the host", NodeLook(Fill.ON_HOST))
BESIDE = 480  # default pixels of a panel that stands side by side with others
TRIES = 20  # widths tried for a given aspect ratio, each 8 % larger than the last
HIGHEST_STRIP = 160  # pixels: limit of a strip's growth into free height
COLUMN, NARROW_COLUMN = 26, 16  # pixels between two counters
ROOM = 180  # least pixels for a title next to the counters; with less, they stand below it
HEADING_ROWS, COUNTER_ROW = 64, 40  # pixels for title and subtitle, and for a row of counters
SUBTITLE_ENDS = 57.0  # pixels from the top
LEGEND_ROW = 22  # pixels
LEGEND_GAP = 7  # pixels between two items, at least


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
        ticks: of the frames that are drawn on it.
    """

    width: float
    height: float
    pixels: tuple[int, int]
    scale: float
    panels: tuple[Panel, ...]
    legend: tuple[Item, ...]
    ticks: tuple[int, ...] = ()


def sheet_of(scene: Scene, high_strips: bool = True) -> Sheet:
    """Lay out a picture.

    Args:
        scene: what is drawn.
        high_strips: whether memory strips take LEAST of the height; not in a document, where they
            would push the text off a slide, and an SVG has as many bytes more.

    Raises:
        BackendError: if a layout needs a package that is missing.
    """
    style, widths = scene.style, counter_widths(scene.counters)
    if style.ratio is not None:
        return fit_aspect(scene, widths, style.ratio)
    columns = len(scene.rows) if style.arrange == ARRANGEMENTS[1] else 1
    natural = natural_width(columns)
    width = natural * style.scale if style.width is None else style.width
    sheet = sheet_of_width(scene, widths, columns, min(width, natural))
    sheet = with_high_strips(sheet) if high_strips else sheet
    return with_scale(sheet, width / sheet.width, width)


def counter_widths(counters: Mapping[str, Collection[str]]) -> dict[str, float]:
    """Return the maximum width of each counter, by its name, so that it does not move."""
    face = font("SemiBold", 16)
    digit = max(math.ceil(face.getlength(figure)) for figure in "0123456789")
    known: dict[str, int] = dict.fromkeys("0123456789", digit)

    def width(text: str) -> int:
        for letter in text:
            if letter not in known:
                known[letter] = math.ceil(face.getlength(letter))
        return sum(known[letter] for letter in text)

    return {
        name: max(font("Regular", 12).getlength(name), *map(width, texts))
        for name, texts in counters.items()
    }


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


def sheet_of_width(scene: Scene, widths: Mapping[str, float], columns: int, width: float) -> Sheet:
    """Lay out a sheet of a given width at scale 1, as high as it needs to be."""
    own = width / columns
    header = header_of(own, widths)
    plans = {id(one.trace.graph): overview(one.trace.graph, own, one.naming) for one in scene.rows}
    panels: list[Panel] = []
    top = 0.0
    for place in range(0, len(scene.rows), columns):
        beside = scene.rows[place : place + columns]
        row = [plans[id(one.trace.graph)] for one in beside]
        below = top + header.height + max(round(plan.height) + plan.room_below for plan in row)
        below += CAPTION
        for column, (plan, one) in enumerate(zip(row, beside, strict=True)):
            panels.append(Panel(column * own, top, own, header, plan, below, STRIP, one.moves))
        top = below + STRIP + GAP + (LANE_GAP + LANE if any(one.moves for one in beside) else 0)
    legend = legend_of(width, top, legend_items(scene.rows))
    height = legend[-1].y - 17 + LEGEND
    return Sheet(width, height, (0, 0), 1.0, tuple(panels), legend)


def legend_items(rows: Sequence[Row]) -> tuple[tuple[str, NodeLook | None], ...]:
    """Return the entries of the legend; results and host memory only where a trace has them."""
    results = any(result_gradients(row.trace.graph) for row in rows)
    items = [item for item in LEGEND_ITEMS if results or item[0] != "result"]
    if any(row.moves for row in rows):
        items.insert([name for name, _ in items].index("checkpoint"), HOST_ITEM)
    return tuple(items)


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


def fit_aspect(scene: Scene, widths: Mapping[str, float], ratio: float) -> Sheet:
    """Search the sheet of a given aspect ratio on which everything is drawn largest."""
    style, count = scene.style, len(scene.rows)
    arrangements = [style.arrange] if style.arrange else ARRANGEMENTS[: min(2, count)]
    best = (0.0, 1, 0)  # size of letters in the picture, columns, pixels of width
    for arrange in arrangements:
        columns = count if arrange == ARRANGEMENTS[1] else 1
        natural = natural_width(columns)
        width = natural * style.scale if style.width is None else style.width
        narrow = min(natural, max(width, NARROWEST * columns))
        for step in range(TRIES):
            sheet = sheet_of_width(scene, widths, columns, narrow * 1.08**step)
            size = min(1 / sheet.width, 1 / ratio / sheet.height)
            best = max(best, (size, columns, width))
            if sheet.height * ratio <= sheet.width:
                break
    size, columns, width = best
    # Use the full width at this size: a trial that was too high may have been narrower.
    sheet = sheet_of_width(scene, widths, columns, 1 / size)
    height = 2 * round(width / ratio / 2)
    scale = min(width / sheet.width, height / sheet.height)
    return replace(
        centred(sheet, width / scale, height / scale), pixels=(height, width), scale=scale
    )


def with_high_strips(sheet: Sheet) -> Sheet:
    """Return a sheet whose memory strips, and lanes below them, take LEAST of its height."""
    rows = len({panel.top for panel in sheet.panels})
    lanes = LANE * len({panel.top for panel in sheet.panels if panel.moves})
    others = sheet.height - rows * STRIP - lanes
    needed = (others * LEAST / (1 - LEAST) - lanes) / rows
    return grown(sheet, max(0, math.ceil(needed) - STRIP))


def grown(sheet: Sheet, grow: int) -> Sheet:
    """Return a sheet whose memory strips are higher, by a number of pixels."""
    tops = sorted({panel.top for panel in sheet.panels})
    panels = tuple(
        replace(
            panel, top=panel.top + grow * tops.index(panel.top), strip=panel.strip + grow,
            strip_top=panel.strip_top + grow * tops.index(panel.top),
        )
        for panel in sheet.panels
    )  # fmt: skip
    legend = tuple(replace(item, y=item.y + grow * len(tops)) for item in sheet.legend)
    return replace(sheet, height=sheet.height + grow * len(tops), panels=panels, legend=legend)


def centred(sheet: Sheet, width: float, height: float) -> Sheet:
    """Centre a sheet in a larger one; its memory strips grow into the free height."""
    rows = len({panel.top for panel in sheet.panels})
    highest = max(HIGHEST_STRIP, math.ceil(LEAST * height / rows))
    sheet = grown(sheet, min(highest - STRIP, int((height - sheet.height) / rows)))
    right, down = (width - sheet.width) / 2, (height - sheet.height) / 2
    panels = tuple(
        replace(
            panel, left=panel.left + right, top=panel.top + down, strip_top=panel.strip_top + down
        )
        for panel in sheet.panels
    )
    legend = tuple(
        replace(item, x=item.x + right, words=item.words + right, y=item.y + down)
        for item in sheet.legend
    )
    return replace(sheet, width=width, height=height, panels=panels, legend=legend)


def sheets_of(scene: Scene, high_strips: bool = True) -> tuple[Sheet, ...]:
    """Lay out the sheets of a picture, each with the frames that are drawn on it.

    The next one begins where a trace has ended long before the others, if panels are above each
    other: memory strips grow into the room of its graph.
    """
    sheet, early = sheet_of(scene, high_strips), EARLY * scene.longest
    if len({panel.top for panel in sheet.panels}) < len(scene.rows):
        return (replace(sheet, ticks=scene.steps),)
    runs = groupby(scene.steps, lambda tick: [row.end < min(tick, early) for row in scene.rows])
    return tuple(replace(without_graphs(sheet, gone), ticks=(*ticks,)) for gone, ticks in runs)


def without_graphs(sheet: Sheet, ended: Sequence[bool]) -> Sheet:
    """Return a sheet on which memory strips, all alike, take the room of graphs of ended traces."""
    rooms = [round(p.plan.height) + p.plan.room_below for p in sheet.panels]
    free = [room if gone else 0 for room, gone in zip(rooms, ended, strict=True)]
    grow, down, panels = sum(free) // len(free), 0, []
    for panel, room in zip(sheet.panels, free, strict=True):
        plan = replace(
            panel.plan, cells=(), centres=(), reads=(), dots=(), height=0, sizes=(), headings=(),
            labels=(), points=(),
        ) if room else panel.plan  # fmt: skip
        panels.append(
            replace(
                panel, top=panel.top + down, plan=plan, strip=panel.strip + grow,
                strip_top=panel.strip_top + down - room,
            )
        )  # fmt: skip
        down += grow - room
    return replace(sheet, panels=tuple(panels))
