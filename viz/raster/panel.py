"""Raster panel of one trace: heading, counters, graph, caption and memory plot.

Static parts are drawn once; a frame then costs a few copies: the nodes that changed, the digits of
the counters, a part of the strip.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..layout.geometry import MARGIN, Size
from ..node_looks import Activity, NodeLook
from ..node_style import arrow_sizes, truncated
from ..picture_layout import CAPTION, LANE
from ..scene import Frame, Row, Scene, frames
from ..strip_layout import HEAD
from ..theme import faint_edge, font
from .canvas import TRANSPARENT, Canvas, Indices
from .group_sprites import group_sprite
from .highlights import Lights
from .memory_strip import Strip, strip_of
from .sprites import draw_arrow, label_coverage, node_sprite, sprite_shape, with_label
from .text_cache import Counters, TextLine, words_of
from .title_card import draw_card

if TYPE_CHECKING:
    from ..layout.drawn_nodes import Cell
    from ..picture_layout import Panel

MOST_KEPT = 2**24  # bytes: size of the sprite cache


class PanelPicture:
    """Renderer of one trace: heading, counters, graph, memory strip."""

    def __init__(self, canvas: Canvas, scene: Scene, row: Row, place: Panel) -> None:
        self.canvas, self.scene, self.row, self.place = canvas, scene, row, place
        self.plan, self.inks, self.scale = place.plan, canvas.inks, canvas.scale
        self.ink = self.inks.index(self.inks.theme.ink)
        self.labels: dict[tuple[str, Size], Indices] = {}
        self.sprites: dict[tuple[int, NodeLook], tuple[Indices, Any]] = {}
        self.looks: dict[int, NodeLook] = {}
        self.last: Frame | None = None
        self.covered: tuple[Any, Indices] | None = None  # region of the card, and the pixels below
        self.draw_heading()
        self.draw_counter_names()
        self.draw_graph()
        self.place_nodes()
        self.lights = Lights(
            canvas, self.plan, self.boxes, (place.left, place.top + place.header.height),
            place.top + place.header.written,
        )  # fmt: skip
        left = round((place.left + MARGIN) * self.scale)
        right = round((place.left + place.width - MARGIN) * self.scale)
        top = round(place.strip_top * self.scale)
        self.line = TextLine(canvas, (top - round(CAPTION * self.scale), top, left, right))
        self.counters = Counters(canvas, place.header, place.left, place.top)
        curves = [(row.memory, place.strip, place.strip_top)]
        curves += [(row.host, LANE, place.lane_top)] if place.moves else []
        self.strips = [
            (
                left,
                round(top * self.scale),
                strip_of(curve, (round(height * self.scale), right - left), self.inks),
            )
            for curve, height, top in curves
        ]
        self.cursor = 0
        for x, y, strip in self.strips:
            canvas.put(strip.future, x, y)

    def frames(self, ticks: Sequence[int]) -> Iterator[Frame]:
        """Yield a frame for every tick: the same one while the trace waits, and after its end.

        Args:
            ticks: ascending; -1 is the moment before the first one.
        """
        steps = [self.row.step_at(tick) for tick in ticks]
        own = list(dict.fromkeys(step for step in steps if step >= 0))
        stream = frames(self.row.trace, self.plan.cells, own, self.scene.in_nodes)
        frame = next(stream)
        if steps[0] >= 0:  # the moment before the first step is drawn, but not shown
            first = next(stream)
            frame = replace(first, changed={**frame.changed, **first.changed})
        for step in steps:
            if step != frame.step:
                frame = next(stream)
            yield frame

    # Parts that stand still ----------------------------------------------------------------------

    def draw_heading(self) -> None:
        """Draw title and subtitle, truncated to the header."""
        theme, room = self.inks.theme, self.place.header.room
        left, top = self.place.left + MARGIN, self.place.top
        words = truncated(self.row.title, "SemiBold", 20, room)
        self.canvas.text(left, top + 15, words, "SemiBold", 20, theme.ink)
        face = font("Regular", 12)
        fitting = (text for text in self.row.subtitles if face.getlength(text) <= room)
        self.canvas.text(left, top + 42, next(fitting, ""), "Regular", 12, theme.muted)

    def draw_counter_names(self) -> None:
        """Draw the names of the counters."""
        left, top, theme = self.place.left, self.place.top, self.inks.theme
        header = self.place.header
        for (x, y), name in zip(header.counters, header.names, strict=True):
            self.canvas.text(left + x, top + y, name, "Regular", 12, theme.muted)

    def draw_graph(self) -> None:
        """Draw arrows and headings; the nodes come with the first frame."""
        plan, theme = self.plan, self.inks.theme
        edge, faint = theme.edge, faint_edge(theme)
        head, line = arrow_sizes(plan.diameter)

        def paint(draw: Any, factor: float) -> None:
            for arrow in plan.faint:
                draw_arrow(draw, arrow, factor, head, 1.0, faint)
            for heading in plan.headings:
                ends = [(x * factor, heading.y * factor) for x in (heading.left, heading.right)]
                draw.line(ends, fill=faint, width=max(1, round(factor)))
            for arrow in plan.arrows:
                draw_arrow(draw, arrow, factor, head, line, edge)
            for x, y in plan.dots:
                box = [(x - 2) * factor, (y - 2) * factor, (x + 2) * factor, (y + 2) * factor]
                draw.ellipse(box, fill=edge)

        left, right = self.place.left, self.place.left + self.place.width
        self.graph_left = round(left * self.scale)
        self.graph_top = round((self.place.top + self.place.header.height) * self.scale)
        shape = (
            round(round(plan.height) * self.scale), round(right * self.scale) - self.graph_left
        )  # fmt: skip
        self.ground = self.inks.painted(shape, paint) if plan.cells else np.zeros(shape, np.uint8)
        for heading in plan.headings:
            text = truncated(heading.text, "Regular", 10, heading.right - heading.left)
            words = self.inks.line(text, "Regular", 10, theme.muted, theme.background)
            top = max(0, round((heading.y - 1) * self.scale) - words.shape[0])
            left = round(heading.left * self.scale)
            rows, columns = slice(top, top + words.shape[0]), slice(left, left + words.shape[1])
            target = self.ground[rows, columns]
            target[:] = words[: target.shape[0], : target.shape[1]]
        self.canvas.put(self.ground, self.graph_left, self.graph_top)

    # Parts that move -----------------------------------------------------------------------------

    def play(self, ticks: Sequence[int]) -> Iterator[None]:
        """Draw the frame of every tick; of one that stays, the trace waits or has ended."""
        for tick, frame in zip(ticks, self.frames(ticks), strict=True):
            self.uncover()
            if frame is not self.last:
                self.draw(frame)
            elif tick < self.row.end and tick in self.scene.waits:
                self.lights.clear()
                muted = words_of("Regular", 12, self.inks.theme.muted, self.inks)
                self.line.write(muted, [self.scene.waits[tick], "waits"])
            self.draw_cursors(tick)
            if tick < 0:
                self.draw_card()
            yield

    def draw(self, frame: Frame) -> None:
        """Draw the changes of a frame."""
        self.last = frame
        if self.plan.cells:
            self.lights.clear()
            self.draw_nodes(frame.changed)
            self.lights.draw(frame)
        self.counters.write(frame.counters[: len(self.place.header.names)])
        self.draw_caption(frame.step)

    def draw_cursors(self, tick: int) -> None:
        """Move the cursor of every strip."""
        now = self.strips[0][2].column(min(tick, self.row.end))
        for x, y, strip in self.strips:
            self.draw_cursor(strip, x, y, now)
        self.cursor = now

    def draw_nodes(self, changed: dict[int, NodeLook]) -> None:
        """Redraw nodes, and their neighbours whose rings and halos overlap with them."""
        self.looks.update(changed)
        affected: set[int] = set()
        for index in changed:
            top, bottom, left, right = self.boxes[index]
            self.canvas.region(top, bottom, left, right)[:] = self.ground[
                top - self.graph_top : bottom - self.graph_top,
                left - self.graph_left : right - self.graph_left,
            ]
            affected.update(self.around[index])
        # Nodes with a halo or a ring last: they are on top.
        for index in sorted(affected, key=lambda index: (self.prominence(index), index)):
            if index in self.looks:
                top, bottom, left, right = self.boxes[index]
                sprite, where = self.sprite(self.looks[index], self.plan.cells[index])
                np.copyto(self.canvas.region(top, bottom, left, right), sprite, where=where)

    def prominence(self, index: int) -> int:
        """Return the z-order of a node: 0 plain, 1 with a ring, 2 with a halo."""
        look = self.looks.get(index)
        if look is None:
            return 0
        return 2 if look.activity is not Activity.NONE else int(look.checkpoint)

    def place_nodes(self) -> None:
        """Compute each node's box on the canvas, and the nodes whose boxes overlap with it."""
        self.boxes = []
        for cell, (x, y) in zip(self.plan.cells, self.plan.centres, strict=True):
            height, width = sprite_shape(self.plan.size(cell), self.scale)
            top = self.graph_top + round(y * self.scale - height / 2)
            left = self.graph_left + round(x * self.scale - width / 2)
            self.boxes.append((top, top + height, left, left + width))
        self.around = neighbours(self.boxes)

    def sprite(self, look: NodeLook, cell: Cell) -> tuple[Indices, Any]:
        """Return the cached sprite of a node with its label, and its opaque mask."""
        key = (cell.id, look)
        if key not in self.sprites:
            picture = self.picture(look, cell)
            if 2 * picture.size * len(self.sprites) > MOST_KEPT:
                self.sprites.clear()
            self.sprites[key] = picture, picture != TRANSPARENT
        return self.sprites[key]

    def picture(self, look: NodeLook, cell: Cell) -> Indices:
        """Draw a node with its label."""
        label, points = self.plan.labels[cell.id], self.plan.points[cell.id]
        size, scale = self.plan.size(cell), self.scale
        if cell.group:
            return group_sprite(look, label, points, size, self.inks)
        shape = node_sprite(look, size, self.inks)
        if not label:
            return shape
        if (label, size) not in self.labels:
            self.labels[label, size] = label_coverage(label, size, points, scale)
        return with_label(shape, look, self.labels[label, size], self.inks)

    def draw_caption(self, step: int) -> None:
        """Write the caption above the strip; at the end, the totals."""
        theme = self.inks.theme
        ends = step == len(self.row.trace.steps) - 1
        texts = self.row.totals if ends else self.row.captions.texts(step)
        weight, size = ("SemiBold", 14) if ends else ("Regular", 12)
        self.line.write(words_of(weight, size, theme.ink, self.inks), texts)

    def draw_card(self) -> None:
        """Cover heading and graph with the title card, and fill the strip, until the next frame."""
        (x, y, strip), scale = self.strips[0], self.scale
        top, wide = round((self.place.top + MARGIN / 4) * scale), strip.past.shape[1]
        box = (top, y + strip.past.shape[0], x, x + wide)
        left, right = self.graph_left, self.graph_left + self.ground.shape[1]
        whole = self.canvas.region(box[0], box[1], left, right)
        self.covered = ((box[0], box[1], left, right), whole.copy())
        whole[: y - top] = self.canvas.ground
        draw_card(self.canvas, self.canvas.region(top, y, x, x + wide), self.row.card)
        self.canvas.region(y, box[1], x, x + wide)[:] = strip.past

    def uncover(self) -> None:
        """Remove the title card."""
        if self.covered is not None:
            box, below = self.covered
            self.canvas.region(*box)[:] = below
            self.covered = None

    def draw_cursor(self, strip: Strip, x: int, y: int, now: int) -> None:
        """Move the cursor of a strip at (x, y): filled before it, outlined after it."""
        before, wide, past, future = self.cursor, strip.cursor, strip.past, strip.future
        low, high = max(0, min(before, now) - wide), max(before, now) + wide
        high = min(high, past.shape[1])
        shown = self.canvas.region(y, y + past.shape[0], x + low, x + high)
        shown[:, : now - low] = past[:, low:now]
        shown[:, now - low :] = future[:, now:high]
        # Below the strip's caption, which it would strike through.
        head, begin = round(HEAD * self.scale), max(0, now - wide)
        free = strip.free[head:, begin : begin + wide]
        np.copyto(shown[head:, begin - low : begin - low + wide], self.ink, where=free)


def neighbours(boxes: Sequence[tuple[int, int, int, int]]) -> list[list[int]]:
    """Return for every box (top, bottom, left, right) those that overlap with it, and itself."""
    size = max((max(bottom - top, right - left) for top, bottom, left, right in boxes), default=1)
    tiles: dict[tuple[int, int], list[int]] = {}
    for index, (top, _, left, _) in enumerate(boxes):
        tiles.setdefault((top // size, left // size), []).append(index)
    around = []
    for top, bottom, left, right in boxes:
        near = [
            index
            for row in range(top // size - 1, top // size + 2)
            for column in range(left // size - 1, left // size + 2)
            for index in tiles.get((row, column), ())
        ]
        around.append(
            [
                index
                for index in near
                if boxes[index][0] < bottom
                and top < boxes[index][1]
                and boxes[index][2] < right
                and left < boxes[index][3]
            ]
        )
    return around
