"""Drawing of the explainer: a moment of a story as marks, painted by Pillow or written as SVG.

A picture is a list of patches: a box and the marks in it. Of a frame only the patches that differ
from the frame before are painted. All coordinates are at scale 1, of a picture of 800 by 450.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tinyckpt.base.units import cost_text, size_text

from ..memory_curve import BANDS
from ..node_memory import shown_share
from ..node_style import truncated
from ..raster.canvas import Canvas, Change, Inks
from ..scene import count_text, what_of
from ..theme import RGB, Theme, blend, css, font
from ..vector.marks import number, text_element
from .story import Moment, RowMoment, Story

WIDTH, HEIGHT = 800, 450
LEFT, TRACK = 28, 544  # of the tiles and of the work bar: the left end and the length
ROW = 204  # pixels from one row to the next
TILE_TOP, TILE_HIGH = 73, 43
TANK = 600, 18, 64, 142  # left, top, width, height
CARD_WORDS = 212  # pixels: room for the words before the bars of the end card
MOST_SLICES = 40  # values in a tank that are drawn one by one
LEGEND = 424
RESULTS, WORKSPACE = ([*BANDS].index(name) for name in ("results", "workspace"))
WAITS = "The gradient waits for the other one"


class Rect(NamedTuple):
    """A rectangle with rounded corners; ``dash`` is the length of dashes of its outline."""

    x: float
    y: float
    wide: float
    high: float
    corner: float = 0.0
    fill: RGB | None = None
    stroke: RGB | None = None
    dash: float = 0.0


class Line(NamedTuple):
    """An open line through points; a closed shape with a ``fill``."""

    points: tuple[tuple[float, float], ...]
    stroke: RGB | None = None
    wide: float = 1.0
    fill: RGB | None = None


class Text(NamedTuple):
    """A line of text on its baseline."""

    x: float
    y: float
    text: str
    size: int
    ink: RGB
    bold: bool = False
    anchor: str = "start"


Mark = Rect | Line | Text
STROKE = 1.5  # pixels: outlines of tiles


class Patch(NamedTuple):
    """A box of the picture (left, top, width, height) and the marks in it, in order."""

    box: tuple[int, int, int, int]
    marks: tuple[Mark, ...]


# What the picture says ----------------------------------------------------------------------------


def heading_of(story: Story, row: int) -> str:
    """Return what a row keeps, as a heading."""
    kept, count, noun = story.kept[row], len(story.tiles), story.noun
    if kept is None:
        return "Move to host memory, and back" if offloads(story, row) else "Keep everything"
    if not kept:
        return "Keep nothing, compute all of it again"
    period = kept[0] + 1
    regular = range(kept[0], count - 1, period)
    # After the last of them nothing has to be computed again: it is kept until it is read.
    before = [place for place in kept if place <= regular[-1]] if regular else []
    part = "part of " if keeps_little(story, row) else ""
    if len(kept) == 1 < count:
        return f"Keep {part}{noun} {kept[0] + 1}, compute the rest again"
    if before == [*regular] and len(regular) > 1:
        every = f"every {ordinal(period)} {noun}" if period > 1 else f"a part of every {noun}"
        return f"Keep {every}, compute the rest again"
    some = f"{len(kept)} of {count} {noun}s" if len(kept) < count else "some values"
    if part and len(kept) < count:
        some = f"part of {len(kept)} {noun}s"
    return f"Keep {some}, compute the rest again"


def keeps_little(story: Story, row: int) -> bool:
    """Whether at the turn the tiles that a row keeps are less than half full, all together."""
    turn = next((moment.rows[row] for moment in story.moments if moment.phase == "turn"), None)
    kept = story.kept[row] or ()
    return turn is not None and 2 * sum(turn.filled[place] for place in kept) < len(kept)


def offloads(story: Story, row: int) -> bool:
    """Whether a row offloads values to host memory."""
    return any(story.traces[row].host)


def subtitle_of(story: Story, row: int) -> str:
    """Return what a row is, below its heading."""
    policy = story.traces[row].schedule.policy
    if story.kept[row] is not None:
        return f"gradient checkpointing: {policy}"
    if offloads(story, row):
        return f"offloading: {policy}; nothing is computed again"
    if row and policy != "store_all":
        return f"{policy}: here it computes nothing again"
    count, name = len(story.tiles), what_of(story.traces[0])
    several = f"{count} {story.noun}{'s' if count > 1 else ''}"
    unnamed = name == "loss" or name.startswith("chain of")
    return f"a step of training{'' if unnamed else f' {name}'}, {several}"


def ordinal(number: int) -> str:
    """Return a number as an ordinal.

    >>> ordinal(2), ordinal(3), ordinal(4), ordinal(11)
    ('2nd', '3rd', '4th', '11th')
    """
    special = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else special}"


def caption_of(story: Story, moment: Moment, row: int) -> str:
    """Return the sentence under a row."""
    now, noun = moment.rows[row], story.noun
    if now.waits:
        return WAITS
    if now.run is not None:
        first, last, source = now.run
        names = [str(place + 1) for place in range(first, last + 1)]
        some = ", ".join(names) if len(names) <= 3 else f"{names[0]} to {names[-1]}"
        origin = "the input" if source is None else f"{noun} {source + 1}"
        return f"{noun.title()}{'s' if last > first else ''} {some} again, from {origin}"
    if moment.phase == "turn":
        return "The loss is known; its gradient goes back"
    if now.gradient is not None:
        return f"The gradient of {noun} {now.gradient + 1}"
    if story.kept[row] is not None:
        return "The others are thrown away"
    return "The others wait on the host" if offloads(story, row) else f"Every {noun}'s output stays"


def amount_text(story: Story, amount: int) -> str:
    """Return an amount of memory as text."""
    return count_text(amount) if story.in_nodes else size_text(amount)


def results_of(story: Story) -> list[tuple[str, str]]:
    """Return the sentences of the end card, each with the name of its ink."""
    (_, before), (_, after) = ((r, r.peak) for r in story.moments[-1].rows)
    less, more = 1 - after / before, work_of(story, 1) / work_of(story, 0) - 1
    memory = f"{abs(less):.0%} {'less' if less > 0 else 'more'} memory.".replace("%", " %")
    if abs(less - 0.5) < 0.015:
        memory = "Half the memory."
    elif round(100 * less) == 0:
        memory = "The same memory."
    work = f"{abs(more):.0%} {'more' if more > 0 else 'less'} work.".replace("%", " %")
    if more >= 1:  # of more than twice, nobody thinks in per cent
        work = f"{1 + more:.{0 if more >= 9 else 1}f} times the work."
    elif round(100 * more) == 0:
        work = "No more work."
    return [(memory, "ink"), (work, "recomputing"), ("The same gradient.", "muted")]


def work_of(story: Story, row: int) -> float:
    """Return all the work of a row."""
    return sum(story.moments[-1].rows[row].done)


# Marks --------------------------------------------------------------------------------------------


def tile_boxes(count: int) -> list[tuple[float, float]]:
    """Return the left end and the width of each tile."""
    pitch = TRACK / max(count, 8)
    gap = 4 if pitch > 24 else 2
    return [(LEFT + place * pitch, pitch - gap) for place in range(count)]


def tile_marks(
    now: RowMoment, place: int, x: float, top: float, wide: float, theme: Theme
) -> Iterator[Mark]:
    """Yield one tile: filled from below to the share of its values that is in memory."""
    corner = min(5.0, wide / 4)
    label, points = str(place + 1), 15 if wide >= 24 else 11
    box = (x, top, wide, TILE_HIGH, corner)
    text = Text(x + wide / 2, top + 28, label, points, theme.muted, True, "middle")
    share, again = now.filled[place], now.again[place] > 0
    if now.active == place and now.run is not None:
        yield Rect(*box, theme.recomputing, theme.recomputing)
        yield text._replace(ink=theme.recomputing_label)
        return
    if share <= 0:
        computed = now.computed[place]
        outline = theme.muted if computed else theme.not_yet_outline
        yield Rect(*box, theme.background, outline, 0.0 if computed else 3.0)
        yield text
        return
    fill, ink = (
        (theme.recomputed, theme.recomputed_label) if again else (theme.kept, theme.kept_label)
    )
    outline = theme.ink if again else theme.kept
    yield Rect(*box, fill, outline)
    if again:
        yield from hatch(x, top, wide, theme)
    if share < 1:
        empty = (1 - shown_share(max(share, 0.12))) * TILE_HIGH
        yield Rect(x, top, wide, empty, 0.0, theme.background)
        yield Rect(*box, None, outline)
        if empty > TILE_HIGH / 2:
            ink = theme.muted
    elif again:
        half = 4.5 * len(label) + 2
        yield Rect(x + wide / 2 - half, top + 14, 2 * half, 18, 3, fill)
    yield text._replace(ink=ink)


def hatch(x: float, top: float, wide: float, theme: Theme) -> Iterator[Mark]:
    """Yield diagonal lines across a tile: recomputed values, without colour too."""
    inset, slope = 3.0, 1.6
    left, right, low, high = x + inset, x + wide - inset, top + TILE_HIGH - inset, top + inset
    for start in np.arange(left - (low - high) / slope + 6, right, 11.0):
        begin, end = max(left, start), min(right, start + (low - high) / slope)
        if end - begin > 2:
            points = tuple((at, low - (at - start) * slope) for at in (begin, end))
            yield Line(points, theme.kept, 1.2)


def row_patches(story: Story, moment: Moment, row: int, theme: Theme) -> Iterator[Patch]:
    """Yield the patches of one row: heading, arrow, tiles, gradient, sentence, work, tank."""
    now, down = moment.rows[row], ROW * row
    boxes = tile_boxes(len(story.tiles))
    subtitle = subtitle_of(story, row)
    heading = truncated(heading_of(story, row), "SemiBold", 22, TANK[0] - LEFT - 12)
    yield Patch(
        (LEFT - 4, down + 4, TANK[0] - LEFT - 4, 51),
        (
            Text(LEFT, down + 30, heading, 22, theme.ink, True),
            Text(LEFT, down + 50, truncated(subtitle, "Regular", 15, TRACK), 15, theme.muted),
        ),
    )
    lane = (LEFT - 8, down + 55, TRACK + 20, TILE_TOP - 56)
    yield Patch(lane, tuple(arrow_marks(now, boxes, down, theme)))
    for place, (x, wide) in enumerate(boxes):
        box = (int(x) - 1, down + TILE_TOP - 1, int(wide + x) - int(x) + 3, TILE_HIGH + 2)
        yield Patch(box, tuple(tile_marks(now, place, x, down + TILE_TOP, wide, theme)))
    lane = (LEFT - 24, down + 119, TRACK + 30, 20)
    yield Patch(lane, tuple(gradient_marks(now, boxes, down, theme)))
    caption = caption_of(story, moment, row)
    ink = theme.recomputing if now.run is not None else theme.ink
    ink = theme.muted if now.waits else ink
    yield Patch((LEFT, down + 142, TRACK, 26), (Text(LEFT, down + 160, caption, 16, ink, True),))
    yield Patch((LEFT - 2, down + 168, TRACK + 8, 18), tuple(work_marks(story, now, row, theme)))
    yield Patch(
        (TANK[0] - 12, down + 4, WIDTH - TANK[0] + 12, 182),
        tuple(tank_marks(story, now, down, theme)),
    )


def arrow_marks(
    now: RowMoment, boxes: Sequence[tuple[float, float]], down: float, theme: Theme
) -> Iterator[Mark]:
    """Yield the orange arrow from the layer that is in memory to the one recomputed from it."""
    if now.run is None or now.active is None:
        return
    source = now.run[2]
    x, wide = boxes[now.active]
    end = x + wide / 2
    begin = LEFT - 4 if source is None else boxes[source][0] + boxes[source][1] / 2
    base, rise = down + TILE_TOP - 2, 13
    curve = tuple(
        (begin + (end - begin) * t, base - 2 - rise * 4 * t * (1 - t))
        for t in (step / 16 for step in range(17))
    )
    yield Line((*curve[:-1], (end, base - 5)), theme.recomputing, 2.5)
    yield Line(((end - 5, base - 8), (end, base), (end + 5, base - 8)), None, 0, theme.recomputing)


def gradient_marks(
    now: RowMoment, boxes: Sequence[tuple[float, float]], down: float, theme: Theme
) -> Iterator[Mark]:
    """Yield the marker of the gradient, under the layer that it has reached."""
    if now.gradient is None:
        return
    x, wide = boxes[now.gradient]
    y = down + 129
    yield Rect(x, y - 8, wide, 16, 4, theme.gradient)
    tip = x - 20
    yield Line(((x - 5, y), (tip, y)), theme.gradient, 2.5)
    yield Line(((tip + 6, y - 5), (tip, y), (tip + 6, y + 5)), theme.gradient, 2.5)


def work_marks(story: Story, now: RowMoment, row: int, theme: Theme) -> Iterator[Mark]:
    """Yield the bar of work done, with a mark where the row ends."""
    most = max(work_of(story, row) for row in range(len(story.traces)))
    x, y = float(LEFT), ROW * row + 172
    yield Rect(LEFT, y, TRACK, 8, 4, theme.panel)
    for amount, ink in zip(now.done, (theme.ink, theme.gradient, theme.recomputing), strict=True):
        wide = TRACK * amount / most
        if wide > 0:
            yield Rect(x, y, wide, 8, 0, ink)
        x += wide
    end = LEFT + TRACK * work_of(story, row) / most
    yield Line(((end, y - 4), (end, y + 12)), theme.ink, 2)


def tank_marks(story: Story, now: RowMoment, down: float, theme: Theme) -> Iterator[Mark]:
    """Yield the tank: live memory by kind, and the most so far; below it, what the bar counts."""
    x, wide, high, top = TANK[0], TANK[2], TANK[3], TANK[1] + down
    yield Text(x - 10, down + 181, "work", 14, theme.muted)
    fills = [getattr(theme, fill) for fill in BANDS.values()]
    yield Rect(x, top, wide, high, 6, theme.panel, theme.not_yet_outline)
    unit = high / max(story.highest, 1)
    level = float(top + high)
    slices = story.in_nodes and story.highest <= MOST_SLICES
    for amount, fill in zip(now.bands, fills, strict=True):
        for part in [1] * amount if slices else [amount]:
            tall = part * unit
            if tall > 0:
                gap = min(1.6, tall / 4) if slices else 0
                yield Rect(x + 3, level - tall + gap / 2, wide - 6, tall - gap, 1, fill)
            level -= tall
    if now.peak:
        mark = top + high - now.peak * unit
        text = f"peak {amount_text(story, now.peak)}"
        yield Line(((x - 6, mark), (x + wide + 6, mark)), theme.ink, 2)
        yield Text(x + wide + 14, mark + 5, text, 15, theme.ink, True)
    if not now.peak or mark + 8 < top + high - 32:
        words = ("values in", "memory") if story.in_nodes else ("in memory", "")
        for line, word in enumerate(words):
            yield Text(x + wide + 14, top + high - 20 + 16 * line, word, 14, theme.muted)


def legend_patch(story: Story, theme: Theme) -> Patch:
    """Return the legend."""
    marks: list[Mark] = []
    x = float(LEFT)
    shown = np.max([row.bands for moment in story.moments for row in moment.rows], axis=0)
    only_moved = offloads(story, -1) and story.kept[-1] is None
    entries = [
        ("in memory", theme.kept, theme.kept),
        ("on the host" if only_moved else "thrown away", theme.background, theme.muted),
        ("computed again", theme.recomputed, theme.ink),
        ("gradient, going back", theme.gradient, theme.gradient),
    ]
    if shown[RESULTS]:
        entries.append(("result", theme.staying, theme.staying))
    if shown[WORKSPACE]:
        entries.append(("workspace", theme.workspace, theme.workspace))
    lengths = [20 + font("Regular", 14).getlength(words) for words, _, _ in entries]
    gap = min(26.0, (WIDTH - 2 * LEFT - sum(lengths)) / (len(entries) - 1))
    for (words, fill, stroke), length in zip(entries, lengths, strict=True):
        marks.append(Rect(x, LEGEND, 14, 14, 3, fill, stroke))
        if fill == theme.recomputed:
            marks.append(Line(((x + 3, LEGEND + 11), (x + 9, LEGEND + 2)), theme.kept, 1.2))
            marks.append(Line(((x + 8, LEGEND + 12), (x + 12, LEGEND + 6)), theme.kept, 1.2))
        marks.append(Text(x + 20, LEGEND + 12, words, 14, theme.muted))
        x += length + gap
    return Patch((LEFT - 2, LEGEND - 4, WIDTH - LEFT, 24), tuple(marks))


def picture(story: Story, place: int, theme: Theme) -> list[Patch]:
    """Return the patches of a moment, always in the same order."""
    moment = story.moments[place]
    rows = [patch for row in range(2) for patch in row_patches(story, moment, row, theme)]
    return [*rows, legend_patch(story, theme)]


def end_card(story: Story, command: str, theme: Theme) -> Patch:
    """Return the end card: what it saves, what it costs, and the command that made the picture."""
    marks: list[Mark] = []
    for line, (sentence, ink) in enumerate(results_of(story)):
        marks.append(Text(40, 96 + 52 * line, sentence, 42, getattr(theme, ink), True))
    left, longest = 40 + CARD_WORDS, 252
    for row, now in enumerate(story.moments[-1].rows):
        y = 262 + 62 * row
        words = truncated(
            heading_of(story, row).split(",")[0].lower(), "Regular", 18, CARD_WORDS - 12
        )
        marks.append(Text(40, y + 22, words, 18, theme.ink))
        wide = longest * now.peak / story.highest
        marks.append(Rect(left, y, max(wide, 2), 30, 4, theme.kept))
        work = work_of(story, row)
        done = (
            f"{count_text(round(work))} computed" if story.in_nodes else cost_text(work, story.unit)
        )
        text = f"{amount_text(story, now.peak)} in memory, {done}"
        size = 18 if left + longest + 12 + font("SemiBold", 18).getlength(text) < WIDTH - 8 else 15
        marks.append(Text(left + 12 + wide, y + 15 + 0.4 * size, text, size, theme.ink, True))
    marks.append(Text(40, 425, command, 15, theme.muted))
    return Patch((0, 0, WIDTH, HEIGHT), tuple(marks))


# Raster -------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def explainer_inks(theme: Theme, scale: float) -> Inks:
    """Return the palette of the explainer: its colours, and steps between those that meet."""
    ground = theme.background
    meeting = [
        (theme.ink, ground), (theme.muted, ground), (theme.kept, ground),
        (theme.gradient, ground), (theme.recomputing, ground), (theme.not_yet_outline, ground),
        (theme.kept_label, theme.kept), (theme.recomputed_label, theme.recomputed),
        (theme.kept, theme.recomputed), (theme.recomputing_label, theme.recomputing),
        (theme.panel, ground), (theme.kept, theme.panel),
    ]  # fmt: skip
    colours = [colour for pair in meeting for colour in pair]
    colours += [theme.workspace, theme.recomputed, theme.staying]
    colours += [blend(a, b, share) for a, b in meeting for share in (0.25, 0.5, 0.75)]
    return Inks(theme, scale, np.array(list(dict.fromkeys(colours)), np.uint8))


class Painter:
    """Frame buffer of the explainer: paints the patches that changed."""

    def __init__(self, theme: Theme, scale: int) -> None:
        self.inks = explainer_inks(theme, float(scale))
        self.canvas = Canvas((HEIGHT * scale, WIDTH * scale), self.inks)
        self.shown: list[Patch] = []

    def show(self, patches: Sequence[Patch]) -> None:
        """Paint a picture over the one before."""
        scale = int(self.inks.scale)
        if len(patches) != len(self.shown):
            self.canvas.region(0, HEIGHT * scale, 0, WIDTH * scale)[:] = self.canvas.ground
            self.shown = []
        for place, patch in enumerate(patches):
            if not self.shown or patch != self.shown[place]:
                x, y, wide, high = (scale * side for side in patch.box)
                region = self.canvas.region(
                    y, min(y + high, HEIGHT * scale), x, min(x + wide, WIDTH * scale)
                )
                region[:] = painted(patch, self.inks)[: region.shape[0], : region.shape[1]]
        self.shown = list(patches)

    def changes(self, pictures: Iterable[Sequence[Patch]]) -> Iterator[Change]:
        """Yield the change of every frame; the first is the whole picture."""
        for patches in pictures:
            self.show(patches)
            yield self.canvas.change()

    def rgb(self) -> Any:
        """Return the current frame in colours, uint8 (height, width, 3)."""
        return self.inks.colours[self.canvas.pixels]


@lru_cache(maxsize=512)
def painted(patch: Patch, inks: Inks) -> Any:
    """Return a patch as palette indices."""
    x, y, wide, high = patch.box
    scale = int(inks.scale)

    def paint(draw: Any, factor: float) -> None:
        for mark in patch.marks:
            paint_mark(draw, mark, x, y, factor)

    return inks.painted((high * scale, wide * scale), paint)


def paint_mark(draw: Any, mark: Mark, left: float, top: float, factor: float) -> None:
    """Paint one mark with Pillow; ``left`` and ``top`` are the patch's corner."""

    def at(x: float, y: float) -> tuple[float, float]:
        return ((x - left) * factor, (y - top) * factor)

    if isinstance(mark, Text):
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[mark.anchor]
        face = font("SemiBold" if mark.bold else "Regular", mark.size * factor)
        draw.text(at(mark.x, mark.y), mark.text, fill=mark.ink, font=face, anchor=anchor)
    elif isinstance(mark, Line):
        points = [at(*point) for point in mark.points]
        if mark.fill is not None:
            draw.polygon(points, fill=mark.fill)
        else:
            draw.line(points, fill=mark.stroke, width=round(mark.wide * factor), joint="curve")
    else:
        box = [*at(mark.x, mark.y), *at(mark.x + mark.wide, mark.y + mark.high)]
        stroke = None if mark.dash else mark.stroke
        draw.rounded_rectangle(
            box, mark.corner * factor, mark.fill, stroke, round(STROKE * factor) if stroke else 0
        )
        if mark.dash:
            for begin, end in dashes(mark):
                draw.line([at(*begin), at(*end)], fill=mark.stroke, width=round(STROKE * factor))


def dashes(mark: Rect) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Yield the dashes of a rectangle's sides; its corners stay open."""
    x, y, wide, high, inset = mark.x, mark.y, mark.wide, mark.high, STROKE / 2
    right, bottom = x + wide - inset, y + high - inset
    for length, begin, way in (
        (wide, (x, y + inset), (1, 0)), (wide, (x, bottom), (1, 0)),
        (high, (x + inset, y), (0, 1)), (high, (right, y), (0, 1)),
    ):  # fmt: skip
        usable = length - 2 * mark.corner
        count = max(2, round((usable / mark.dash + 1) / 2))
        step = usable / (2 * count - 1)
        for dash in range(count):
            start, stop = (mark.corner + step * (2 * dash + more) for more in (0, 1))
            yield (
                (begin[0] + way[0] * start, begin[1] + way[1] * start),
                (begin[0] + way[0] * stop, begin[1] + way[1] * stop),
            )


# SVG ----------------------------------------------------------------------------------------------


def svg_of(patches: Sequence[Patch], title: str, theme: Theme) -> str:
    """Return a picture as SVG: the same marks, and text as text."""
    marks = "".join(mark_element(mark) for patch in patches for mark in patch.marks)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="Inter,system-ui,sans-serif" '
        f'role="img" aria-label="{html.escape(title)}">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{css(theme.background)}"/>{marks}</svg>\n'
    )


def mark_element(mark: Mark) -> str:
    """Return one mark as an SVG element."""
    if isinstance(mark, Text):
        weight = 600 if mark.bold else 400
        return text_element(mark.x, mark.y, mark.text, mark.size, mark.ink, weight, mark.anchor)
    if isinstance(mark, Line):
        path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in mark.points)
        if mark.fill is not None:
            return f'<path d="{path}z" fill="{css(mark.fill)}"/>'
        assert mark.stroke is not None
        return (
            f'<path d="{path}" fill="none" stroke="{css(mark.stroke)}" '
            f'stroke-width="{number(mark.wide)}"/>'
        )
    inset = STROKE / 2 if mark.stroke else 0.0
    stroke = f' stroke="{css(mark.stroke)}" stroke-width="{STROKE}"' if mark.stroke else ""
    dash = f' stroke-dasharray="{number(mark.dash)}"' if mark.dash else ""
    fill = css(mark.fill) if mark.fill else "none"
    return (
        f'<rect x="{number(mark.x + inset)}" y="{number(mark.y + inset)}" '
        f'width="{number(mark.wide - 2 * inset)}" height="{number(mark.high - 2 * inset)}" '
        f'rx="{number(mark.corner)}" fill="{fill}"{stroke}{dash}/>'
    )
