"""From traces to pixels: one panel a policy, stacked, in step, on shared scales."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.errors import TinyckptError
from viz.canvas import Canvas, Counters, Scales
from viz.layout import MARGIN, layout
from viz.panel import HEADER, STRIP, Panel
from viz.scene import (
    Activity,
    Fill,
    Look,
    counts_nodes,
    frame_steps,
    live_of,
    title_of,
)
from viz.sprites import TRANSPARENT, Indices, inks_of, node_sprite
from viz.strip import peak_step
from viz.theme import THEMES

if TYPE_CHECKING:
    from tinyckpt.trace import Trace

GAP = 14
LEGEND = 38
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
        self.inks = inks_of(THEMES[theme])
        in_nodes = counts_nodes(traces)
        self.steps = thinned(
            sorted({step for trace in traces for step in frame_steps(trace)}),
            peak_step(traces, in_nodes),
        )
        longest = max(len(trace.steps) for trace in traces)
        highest = max(max(live_of(trace, in_nodes)) for trace in traces)
        scales = Scales(in_nodes, longest, highest)
        layouts = [layout(trace.graph) for trace in traces]
        heights = [HEADER + round(plan.height) + STRIP + GAP for plan in layouts]
        self.drawing = Canvas(sum(heights) + LEGEND, self.inks, scale)
        counters = Counters(traces, in_nodes, self.inks, scale)
        self.panels = []
        top = 0
        for trace, plan, extent in zip(traces, layouts, heights, strict=True):
            heading = title if title is not None and len(traces) == 1 else title_of(trace)
            self.panels.append(Panel(self.drawing, counters, trace, plan, scales, top, heading))
            top += extent
        draw_legend(self.drawing, top)

    @property
    def canvas(self) -> Indices:
        """Palette indices of the present frame, (height, width)."""
        return self.drawing.pixels

    @property
    def colours(self) -> bytes:
        """The palette as GIF files hold it."""
        return self.inks.table

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


def draw_legend(canvas: Canvas, top: int) -> None:
    """Draw what the looks mean."""
    x, scale, theme = float(MARGIN), canvas.scale, canvas.inks.theme
    ground = canvas.inks.index(theme.background)
    for name, look in LEGEND_ITEMS:
        sprite = node_sprite(look, 10.0, canvas.inks, scale)
        size = sprite.shape[0] / scale
        target = round(x * scale), round((top + 17 - size / 2) * scale)
        canvas.put(np.where(sprite == TRANSPARENT, ground, sprite).astype(np.uint8), *target)
        x += size + 2
        x += canvas.text(x, top + 9, name, "Regular", 12, theme.muted) + 8
