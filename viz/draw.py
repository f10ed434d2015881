"""From frames to pixels: one panel a policy, stacked, on shared scales; only what changed is drawn.

Pixels are palette indices. A picture is drawn once without its moving parts; a frame then costs a
few copies: the nodes that changed, the digits of the counters, a stretch of the memory strip.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.errors import TinyckptError
from viz.layout import MARGIN, WIDTH, Layout, layout
from viz.scene import (
    Activity,
    Fill,
    Frame,
    Look,
    count_text,
    counts_nodes,
    frame_steps,
    frames,
    live_of,
    live_text,
    one_line,
    subtitle_of,
    title_of,
)
from viz.sprites import (
    TRANSPARENT,
    Digits,
    Indices,
    inks_of,
    label_coverage,
    label_inks,
    layer,
    node_sprite,
    sprite_size,
    text_layer,
)
from viz.strip import peak_step, strip_of
from viz.theme import RGB, THEMES, font

if TYPE_CHECKING:
    from tinyckpt.trace import Trace

HEADER = 66
STRIP = 64
GAP = 14
LEGEND = 38
COUNTERS = ("step", "evaluations", "live", "peak")
LEGEND_ITEMS = (
    ("kept", Look(Fill.KEPT)),
    ("recomputed", Look(Fill.RECOMPUTED)),
    ("gradient", Look(Fill.GRADIENT, backward=True)),
    ("checkpoint", Look(Fill.KEPT, checkpoint=True)),
    ("computing now", Look(Fill.KEPT, Activity.COMPUTING)),
    ("recomputing now", Look(Fill.RECOMPUTED, Activity.RECOMPUTING)),
    ("dropped", Look(Fill.DROPPED)),
    ("not yet", Look(Fill.NOT_YET)),
)


MOST_FRAMES = 1500


def as_list(traces: Any) -> list[Trace]:
    """Return one trace or several as a list."""
    return [traces] if hasattr(traces, "steps") else list(traces)


def check(traces: Sequence[Trace], theme: str) -> None:
    """Raise a TinyckptError unless there is something to draw, in a known theme."""
    if not traces or not all(trace.steps for trace in traces):
        raise TinyckptError("nothing to draw: give at least one trace, with at least one step")
    if theme not in THEMES:
        raise TinyckptError(f"unknown theme {theme!r}; known are {', '.join(THEMES)}")


def thinned(steps: Sequence[int], always: Collection[int]) -> list[int]:
    """Return every k-th of the steps, such that a picture has at most about MOST_FRAMES frames.

    The last step and the peaks are always among them.
    """
    every = -(-len(steps) // MOST_FRAMES)
    chosen = {*steps[every - 1 :: every], steps[-1], *(step for step in always if step in steps)}
    return sorted(chosen)


class Picture:
    """Traces drawn above each other; ``play`` yields the picture frame by frame.

    Attributes:
        steps: the steps that get a frame; the first frame, before any step, is not among them.
        canvas: palette indices of the present frame, (height, width).
        colours: bytes of the palette.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        theme: str = "light",
        scale: int = 1,
        title: str | None = None,
    ) -> None:
        check(traces, theme)
        if not isinstance(scale, int) or scale not in (1, 2, 3):
            raise TinyckptError(f"scale {scale!r}: legal are 1, 2 and 3")
        self.inks, self.scale = inks_of(THEMES[theme]), scale
        longest = max(len(trace.steps) for trace in traces)
        self.in_nodes = counts_nodes(traces)
        self.steps = thinned(
            sorted({step for trace in traces for step in frame_steps(trace)}),
            peak_step(traces, self.in_nodes),
        )
        highest = max(max(live_of(trace, self.in_nodes)) for trace in traces)
        layouts = [layout(trace.graph) for trace in traces]
        heights = [HEADER + round(plan.height) + STRIP + GAP for plan in layouts]
        height = sum(heights) + LEGEND
        self.canvas = np.full(
            (height * scale, WIDTH * scale), self.inks.index(self.inks.theme.background), np.uint8
        )
        self.digits = Digits(15, self.inks, scale)
        self.place_counters(traces)
        self.panels = []
        top = 0
        for trace, plan, extent in zip(traces, layouts, heights, strict=True):
            heading = title if title is not None and len(traces) == 1 else title_of(trace)
            self.panels.append(Panel(self, trace, plan, top, longest, highest, heading))
            top += extent
        self.draw_legend(top)
        self.colours = self.inks.table

    def play(self) -> Iterator[Indices]:
        """Yield the canvas at every frame; it is the same array, changed in place."""
        moving = [panel.frames(self.steps) for panel in self.panels]
        for _ in range(len(self.steps) + 1):
            for panel, stream in zip(self.panels, moving, strict=True):
                panel.draw(next(stream))
            yield self.canvas

    def show(self, step: int) -> None:
        """Draw the one frame that a still of a step shows: the last one that is not after it.

        Raises:
            TinyckptError: if the step is out of range.
        """
        last = self.steps[-1]
        if not 0 <= step <= last:
            raise TinyckptError(f"step {step} is out of range: legal are 0 to {last}")
        at = max(known for known in self.steps if known <= step)
        for panel in self.panels:
            own = [min(at, len(panel.trace.steps) - 1)]
            for frame in panel.frames(own):
                panel.draw(frame)
                if frame.step == own[0]:
                    break

    def rgb(self) -> Any:
        """Return the present frame in colours, (height, width, 3)."""
        return self.inks.colours[self.canvas]

    def put(self, sprite: Indices, x: int, y: int) -> None:
        """Copy a picture to (x, y), in pixels of the canvas."""
        height, width = sprite.shape
        self.canvas[y : y + height, x : x + width] = sprite

    def text(self, x: float, y: float, text: str, weight: str, size: int, ink: RGB) -> int:
        """Write text with its top left corner at (x, y), at scale 1; return its width there."""
        pixels = text_layer(text, weight, size, ink, self.inks.theme.background, self.scale)
        pixels = pixels[:, : self.canvas.shape[1] - round(x * self.scale)]
        self.put(self.inks.match(pixels), round(x * self.scale), round(y * self.scale))
        return int(pixels.shape[1] / self.scale)

    def place_counters(self, traces: Sequence[Trace]) -> None:
        """Find columns for the counters, wide enough for the longest texts of all traces."""
        widest = [font("Regular", 12).getlength(name) for name in COUNTERS]
        for trace in traces:
            memory = max(memory_texts(trace, self.in_nodes), key=self.digits.width)
            steps = count_text(len(trace.steps) - 1)
            evaluations = count_text(trace.total_evaluations)
            texts = [f"{steps} / {steps}", f"{evaluations} / {evaluations}", memory, memory]
            for column, text in enumerate(texts):
                widest[column] = max(widest[column], self.digits.width(text) / self.scale)
        right = float(WIDTH - MARGIN)
        self.widths, self.columns = widest, [0.0] * len(widest)
        for column in reversed(range(len(widest))):
            self.columns[column] = right - widest[column]
            right = self.columns[column] - 26

    def draw_legend(self, top: int) -> None:
        """Draw what the looks mean."""
        x = float(MARGIN)
        for name, look in LEGEND_ITEMS:
            sprite = node_sprite(look, 10.0, self.inks, self.scale)
            size = sprite.shape[0] / self.scale
            target = round(x * self.scale), round((top + 17 - size / 2) * self.scale)
            ground = self.inks.index(self.inks.theme.background)
            self.put(np.where(sprite == TRANSPARENT, ground, sprite).astype(np.uint8), *target)
            x += size + 2
            x += self.text(x, top + 9, name, "Regular", 12, self.inks.theme.muted) + 8


class Panel:
    """One trace: heading, counters, graph and memory strip."""

    def __init__(
        self,
        picture: Picture,
        trace: Trace,
        plan: Layout,
        top: int,
        longest: int,
        highest: int,
        title: str,
    ) -> None:
        self.picture, self.trace, self.plan, self.top = picture, trace, plan, top
        self.inks, self.scale = picture.inks, picture.scale
        self.shapes: dict[Look, tuple[Indices, Indices]] = {}
        self.labels: dict[str, Indices] = {}
        self.looks: dict[int, Look] = {}
        self.last: Frame | None = None
        self.draw_graph()
        self.place_nodes()
        self.draw_counter_names()
        self.draw_heading(title)
        self.strip_top = top + HEADER + round(plan.height)
        size = (STRIP * self.scale, (WIDTH - 2 * MARGIN) * self.scale)
        self.strip = strip_of(
            trace, picture.in_nodes, longest, highest, size, self.scale, self.inks
        )
        self.cursor = 0
        picture.put(self.strip.future, MARGIN * self.scale, self.strip_top * self.scale)

    def frames(self, steps: Sequence[int]) -> Iterator[Frame]:
        """Yield a frame for every step, the last one again and again once the trace has ended."""
        own = [step for step in steps if step < len(self.trace.steps)]
        frame = None
        for frame in frames(self.trace, self.plan.cells, own, self.picture.in_nodes):
            yield frame
        while frame is not None:
            yield frame

    # Parts that stand still ----------------------------------------------------------------------

    def draw_heading(self, title: str) -> None:
        """Write title and subtitle, cut where the counters begin."""
        theme, room = self.inks.theme, self.picture.columns[0] - MARGIN - 12
        self.picture.text(
            MARGIN, self.top + 15, fitted(title, "SemiBold", 20, room), "SemiBold", 20, theme.ink
        )
        face = font("Regular", 12)
        shorter = (subtitle_of(self.trace, parts) for parts in (3, 2, 1))
        subtitle = next((text for text in shorter if face.getlength(text) <= room), "")
        self.picture.text(MARGIN, self.top + 42, subtitle, "Regular", 12, theme.muted)

    def draw_counter_names(self) -> None:
        """Write what the counters count."""
        for x, name in zip(self.picture.columns, COUNTERS, strict=True):
            self.picture.text(x, self.top + 13, name, "Regular", 12, self.inks.theme.muted)

    def draw_graph(self) -> None:
        """Draw the arrows; the nodes come with the first frame."""
        plan, edge = self.plan, self.inks.theme.edge
        head = 3.2 if plan.diameter >= 20 else 2.2
        line = 1.3 if plan.diameter >= 20 else 1.0

        def paint(draw: Any, factor: int) -> None:
            for arrow in plan.arrows:
                draw_arrow(draw, arrow, factor, head, line, edge)
            for x, y in plan.dots:
                box = [(x - 2) * factor, (y - 2) * factor, (x + 2) * factor, (y + 2) * factor]
                draw.ellipse(box, fill=edge)

        height = round(plan.height)
        pixels = layer(WIDTH, height, self.inks.theme.background, self.scale, paint)
        self.graph_top = (self.top + HEADER) * self.scale
        self.ground = self.inks.match(pixels)
        self.picture.put(self.ground, 0, self.graph_top)

    # Parts that move -----------------------------------------------------------------------------

    def draw(self, frame: Frame) -> None:
        """Draw what a frame changes."""
        if frame is self.last:
            return
        self.last = frame
        self.draw_nodes(frame.changed)
        # Numbered as everywhere else, from 0; before the first step there is none.
        step = count_text(frame.step) if frame.step >= 0 else "–"  # noqa: RUF001
        total = count_text(len(self.trace.steps) - 1)
        evaluations = count_text(self.trace.total_evaluations)
        texts = (
            f"{step} / {total}", f"{frame.evaluations} / {evaluations}", frame.live, frame.peak,
        )  # fmt: skip
        ground = self.inks.index(self.inks.theme.background)
        y, digits = (self.top + 30) * self.scale, self.picture.digits
        for x, width, text in zip(self.picture.columns, self.picture.widths, texts, strict=True):
            left, right = round(x * self.scale), round((x + width + 4) * self.scale)
            self.picture.canvas[y : y + digits.height, left:right] = ground
            digits.write(self.picture.canvas, left, y, text)
        self.draw_cursor(frame.step)

    def draw_nodes(self, changed: dict[int, Look]) -> None:
        """Draw nodes anew, and those around them whose rings and halos reach into them."""
        canvas = self.picture.canvas
        self.looks.update(changed)
        affected: set[int] = set()
        for index in changed:
            top, bottom, left, right = self.boxes[index]
            canvas[top:bottom, left:right] = self.ground[
                top - self.graph_top : bottom - self.graph_top, left:right
            ]
            affected.update(self.around[index])
        # Those with a halo or a ring last: they lie above the others.
        for index in sorted(affected, key=lambda index: (self.prominence(index), index)):
            if index in self.looks:
                top, bottom, left, right = self.boxes[index]
                label = self.plan.cells[index].label if self.plan.labelled else ""
                sprite = self.sprite(self.looks[index], label)
                region = canvas[top:bottom, left:right]
                visible = sprite != TRANSPARENT
                region[visible] = sprite[visible]

    def prominence(self, index: int) -> int:
        """Return 0 for a plain node, 1 with a ring, 2 with a halo."""
        look = self.looks.get(index)
        if look is None:
            return 0
        return 2 if look.activity is not Activity.NONE else int(look.checkpoint)

    def place_nodes(self) -> None:
        """Find each node's box on the canvas, and the nodes whose boxes overlap with it."""
        size = sprite_size(self.plan.diameter) * self.scale
        self.boxes = []
        for x, y in self.plan.centres:
            top = self.graph_top + round(y * self.scale - size / 2)
            left = round(x * self.scale - size / 2)
            self.boxes.append((top, top + size, left, left + size))
        self.around = neighbours(self.boxes, size)

    def sprite(self, look: Look, label: str) -> Indices:
        """Return the picture of a node with its label."""
        diameter, scale = self.plan.diameter, self.scale
        if look not in self.shapes:
            shape = node_sprite(look, diameter, self.inks, scale)
            self.shapes[look] = shape, label_inks(look, self.inks)
        shape, inks = self.shapes[look]
        if not label:
            return shape
        if label not in self.labels:
            self.labels[label] = label_coverage(label, diameter, scale)
        coverage = self.labels[label]
        return np.where(coverage == 0, shape, inks[coverage])

    def draw_cursor(self, step: int) -> None:
        """Move the cursor: full colour up to it, pale behind it."""
        now, before = self.strip.column(step), self.cursor
        x, y, wide = MARGIN * self.scale, self.strip_top * self.scale, 2 * self.scale
        past, future = self.strip.past, self.strip.future
        low, high = max(0, min(before, now) - wide), max(before, now) + wide
        canvas = self.picture.canvas[y : y + past.shape[0], x : x + past.shape[1]]
        canvas[:, low:now] = past[:, low:now]
        canvas[:, now:high] = future[:, now:high]
        canvas[:, max(0, now - wide) : max(now, wide)] = self.inks.index(self.inks.theme.ink)
        self.cursor = now


def neighbours(boxes: Sequence[tuple[int, int, int, int]], size: int) -> list[list[int]]:
    """Return for every box the boxes that overlap with it, itself included."""
    tiles: dict[tuple[int, int], list[int]] = {}
    for index, (top, _, left, _) in enumerate(boxes):
        tiles.setdefault((top // size, left // size), []).append(index)
    around = []
    for top, _, left, _ in boxes:
        near = [
            index
            for row in range(top // size - 1, top // size + 2)
            for column in range(left // size - 1, left // size + 2)
            for index in tiles.get((row, column), ())
        ]
        around.append(
            [i for i in near if abs(boxes[i][0] - top) < size and abs(boxes[i][2] - left) < size]
        )
    return around


def memory_texts(trace: Trace, in_nodes: bool) -> list[str]:
    """Return every text that the memory counters may show."""
    return [live_text(amount, in_nodes) for amount in {0, *live_of(trace, in_nodes)}]


def fitted(text: str, weight: str, size: int, room: float) -> str:
    """Return text cut to a width in pixels at scale 1."""
    line = one_line(text, 200)
    face = font(weight, size)
    if face.getlength(line) <= room:
        return line
    while line and face.getlength(line + "…") > room:
        line = line[:-1]
    return line.rstrip() + "…"


def draw_arrow(
    draw: Any, arrow: Sequence[tuple[float, float]], factor: int, head: float, line: float, ink: RGB
) -> None:
    """Draw a polyline with an arrowhead at its end."""
    points = [(x * factor, y * factor) for x, y in arrow]
    (x0, y0), (x1, y1) = points[-2], points[-1]
    if (x0, y0) == (x1, y1) and len(points) > 2:
        x0, y0 = points[-3]
    length = max(float(np.hypot(x1 - x0, y1 - y0)), 1e-9)
    ux, uy = (x1 - x0) / length, (y1 - y0) / length
    size = head * factor
    base = (x1 - ux * size, y1 - uy * size)
    draw.line([*points[:-1], base], fill=ink, width=max(1, round(line * factor)), joint="curve")
    across = 0.62 * size
    draw.polygon(
        [
            (x1, y1),
            (base[0] - uy * across, base[1] + ux * across),
            (base[0] + uy * across, base[1] - ux * across),
        ],
        fill=ink,
    )
