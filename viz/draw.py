"""From frames to pixels: one panel a policy, stacked, on shared scales; only what changed is drawn.

Pixels are palette indices. A picture is drawn once without its moving parts; a frame then costs a
few copies: the nodes that changed, the digits of the counters, a stretch of the memory strip.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.errors import TinyckptError
from tinyckpt.trace import size_text
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


def as_list(traces: Any) -> list[Trace]:
    """Return one trace or several as a list."""
    return list(traces) if isinstance(traces, list | tuple) else [traces]


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
        if not traces or not all(trace.steps for trace in traces):
            raise TinyckptError("nothing to draw: give at least one trace, with at least one step")
        if theme not in THEMES:
            raise TinyckptError(f"unknown theme {theme!r}; known are {', '.join(THEMES)}")
        if scale not in (1, 2, 3):
            raise TinyckptError(f"scale {scale!r}: legal are 1, 2 and 3")
        self.inks, self.scale = inks_of(THEMES[theme]), scale
        self.steps = sorted({step for trace in traces for step in frame_steps(trace)})
        longest = max(len(trace.steps) for trace in traces)
        self.in_nodes = counts_nodes(traces)
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
            steps = count_text(len(trace.steps))
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
            sprite = node_sprite(look, 11.0, self.inks, self.scale)
            size = sprite.shape[0] / self.scale
            target = round(x * self.scale), round((top + 17 - size / 2) * self.scale)
            ground = self.inks.index(self.inks.theme.background)
            self.put(np.where(sprite == TRANSPARENT, ground, sprite).astype(np.uint8), *target)
            x += size + 1
            x += self.text(x, top + 9, name, "Regular", 12, self.inks.theme.muted) + 9


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
        self.past, self.future, self.per_step = self.strips(longest, highest)
        self.cursor: int | None = None
        y = self.strip_top * self.scale
        self.picture.put(self.future, MARGIN * self.scale, y)

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
        subtitle = fitted(subtitle_of(self.trace), "Regular", 12, room)
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

    def strips(self, longest: int, highest: int) -> tuple[Indices, Indices, float]:
        """Return the memory strip in full colour, the same in pale, and its pixels a step."""
        theme = self.inks.theme
        width, height = (WIDTH - 2 * MARGIN) * self.scale, STRIP * self.scale
        per_step = width / longest
        head = 14 * self.scale  # room for the strip's own text
        unit = (height - head) / max(highest, 1)
        kinds = stacked(self.trace, self.picture.in_nodes)
        # Each pixel column shows the largest moment of the steps that fall into it.
        edges = np.minimum((np.arange(width + 1) / per_step).astype(int), longest)
        result = []
        for colours in (
            (theme.kept, theme.gradient, theme.workspace),
            (theme.kept_pale, theme.gradient_pale, theme.workspace_pale),
        ):
            strip = np.full((height, width), self.inks.index(theme.panel), np.uint8)
            rows = np.arange(height)[:, None]
            below = np.zeros(width)
            for kind, colour in zip(kinds, colours, strict=True):
                values = np.zeros(longest)
                values[: len(kind)] = kind
                column = largest_between(values, edges) * unit
                inside = (rows >= height - np.round(below + column)) & (
                    rows < height - np.round(below)
                )
                strip[inside] = self.inks.index(colour)
                below += column
            self.label_strip(strip, unit)
            result.append(strip)
        return result[0], result[1], per_step

    def label_strip(self, strip: Indices, unit: float) -> None:
        """Draw the dashed line at the peak, and the strip's texts."""
        theme, scale = self.inks.theme, self.scale
        in_nodes = self.picture.in_nodes
        peak = max(live_of(self.trace, in_nodes))
        y = max(0, strip.shape[0] - round(peak * unit) - scale)
        dashes = (np.arange(strip.shape[1]) // (4 * scale)) % 2 == 0
        strip[y : y + scale, dashes] = self.inks.index(theme.muted)
        size = size_text(self.trace.peak_bytes)
        nodes = f"{count_text(self.trace.peak_nodes)} values = " if in_nodes else ""
        label = "live memory (grey: workspace)" if any(self.trace.workspace) else "live memory"
        texts = ((4, label), (None, f"peak {nodes}{size}"))
        for left, text in texts:
            pixels = text_layer(text, "Regular", 10, theme.muted, theme.panel, scale)
            x = strip.shape[1] - pixels.shape[1] - 4 * scale if left is None else left * scale
            top = max(0, min(y - pixels.shape[0], strip.shape[0] - pixels.shape[0]))
            if left is not None:
                top = 0
            region = strip[top : top + pixels.shape[0], x : x + pixels.shape[1]]
            region[:] = self.inks.match(pixels)[: region.shape[0], : region.shape[1]]

    # Parts that move -----------------------------------------------------------------------------

    def draw(self, frame: Frame) -> None:
        """Draw what a frame changes."""
        if frame is self.last:
            return
        self.last = frame
        self.draw_nodes(frame.changed)
        step = count_text(frame.step + 1)
        total = count_text(len(self.trace.steps))
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
        now = min(round((step + 1) * self.per_step), self.past.shape[1])
        before = 0 if self.cursor is None else self.cursor
        x, y, wide = MARGIN * self.scale, self.strip_top * self.scale, 2 * self.scale
        canvas = self.picture.canvas[y : y + self.past.shape[0], x : x + self.past.shape[1]]
        low, high = max(0, min(before, now) - wide), max(before, now) + wide
        canvas[:, low:now] = self.past[:, low:now]
        canvas[:, now:high] = self.future[:, now:high]
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


def stacked(trace: Trace, in_nodes: bool) -> list[list[int]]:
    """Return what the strip stacks: activations, gradients, workspace; in values or bytes."""
    gradients = [sum(pair) for pair in zip(trace.cotangent, trace.output, strict=True)]
    kinds = [list(trace.activation), gradients, list(trace.workspace)]
    if in_nodes:
        size = max((node.nbytes for node in trace.graph.data if not node.is_source), default=1)
        kinds = [[value // max(size, 1) for value in kind] for kind in kinds]
    return kinds


def memory_texts(trace: Trace, in_nodes: bool) -> list[str]:
    """Return every text that the memory counters may show."""
    return [live_text(amount, in_nodes) for amount in {0, *live_of(trace, in_nodes)}]


def largest_between(values: Any, edges: Any) -> Any:
    """Return the largest of ``values[edges[i]:edges[i + 1]]``, at least one value each."""
    starts = np.minimum(edges[:-1], len(values) - 1)
    return np.maximum.reduceat(values, starts) if len(values) > len(edges) else values[starts]


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


def still(picture: Picture, step: int) -> Any:
    """Return one frame in colours: the last one that is not after ``step``.

    Raises:
        TinyckptError: if the step is out of range.
    """
    last = picture.steps[-1]
    if not 0 <= step <= last:
        raise TinyckptError(f"step {step} is out of range: legal are 0 to {last}")
    shown = [-1, *picture.steps]
    for position, _ in zip(shown, picture.play(), strict=True):
        following = shown.index(position) + 1
        if following == len(shown) or shown[following] > step:
            return picture.rgb()
    raise AssertionError("the last frame is never after the step")
