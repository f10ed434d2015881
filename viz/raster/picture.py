"""Raster animation: traces side by side, step by step, with frame selection (thinning) and legend.

Traces and a ``Design`` come in, a stream of ``Change`` rectangles comes out, for encoders; or one
frame for a still.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.errors import OptionError

from ..memory_curve import peak_step, scales_of
from ..node_style import arrow_sizes
from ..picture_layout import PLAIN, Design, Item, sheet_of
from ..picture_parts import headings
from ..scene import SEEN, NodeLook, count_text, frame_steps
from ..theme import THEMES, Theme
from .canvas import Canvas, Change
from .panel import PanelPicture, draw_arrow
from .sprites import TRANSPARENT, Indices, Inks, inks_of, layer, node_sprite

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

ARROW = 20  # pixels: length of the legend's arrow, and height of its sprite
MOST_FRAMES = 1500  # a minute at 25 frames per second: long enough to watch, and files stay small


def select_frames(
    moments: Sequence[int],
    peaks: Collection[int],
    first: int | None,
    last: int | None,
    every: int | None,
    most: int = MOST_FRAMES,
    seen: Collection[int] = (),
) -> tuple[list[int], str]:
    """Select the steps that have a frame; also return a note on the steps left out.

    The first of the range, its last and the peaks within it are always included. If there are more
    than ``most``, only those of ``seen`` are used, and of these evenly many.

    Args:
        moments: ascending, from -1, the moment before the first step, to the last step.
        peaks: the steps of the peaks.
        first, last: the range; its ends look as in stills of these steps.
        every: take every n-th frame; None for as many as leave about ``most``.
        most: frames.
        seen: the steps that evaluate or transfer something.

    Raises:
        OptionError: if the range is empty or leaves the trace, or ``every`` is not positive.
    """
    end = moments[-1]
    for step in (first, last):
        if step is not None and (not isinstance(step, int) or not 0 <= step <= end):
            raise OptionError(f"step {step!r} is out of range: expected 0 to {end}")
    if first is not None and last is not None and first > last:
        raise OptionError(f"no steps from {first} to {last}: the range ends before it begins")
    if every is not None and (not isinstance(every, int) or every < 1):
        raise OptionError(f"every {every!r}: expected a positive integer")
    begin = 0 if first is None else bisect_right(moments, first) - 1
    stop = len(moments) if last is None else bisect_right(moments, last)
    shown = list(moments[begin:stop])
    ends = {shown[0], shown[-1], *(set(peaks) & set(shown))}
    if every is not None:
        return sorted({*shown[::every], *ends}), f"{ordinal(every)} frame" if every > 1 else ""
    if len(shown) <= most:
        return shown, ""
    kept = [step for step in shown if step in seen]
    stride = -(-len(kept) // max(most - len(ends), 1))
    words = "every evaluation" if stride == 1 else f"{ordinal(stride)} evaluation"
    return sorted({*kept[::stride], *ends}), words


def ordinal(number: int) -> str:
    """Return "every n-th" in words.

    >>> ordinal(2), ordinal(3), ordinal(11), ordinal(22)
    ('every 2nd', 'every 3rd', 'every 11th', 'every 22nd')
    """
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"every {count_text(number)}{ending or 'th'}"


class Picture:
    """Traces drawn in step; ``play`` yields the picture frame by frame.

    Attributes:
        moments: the candidate steps of frames; -1 is the moment before the first step.
        steps: the selected ones; pictures of an animation are ``noted``: they name the selection if
            some are left out.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        design: Design = PLAIN,
        *,
        first: int | None = None,
        last: int | None = None,
        every: int | None = None,
        most: int = MOST_FRAMES,
        noted: bool = False,
    ) -> None:
        sheet = sheet_of(traces, design)
        names = headings(traces, design.title)
        scales = scales_of(traces)
        self.inks = inks_of(THEMES[design.theme])
        self.moments = sorted({-1, *(step for trace in traces for step in frame_steps(trace))})
        peaks = peak_step(traces, scales.in_nodes)
        seen = {place for t in traces for place, s in enumerate(t.steps) if isinstance(s, SEEN)}
        self.steps, note = select_frames(self.moments, peaks, first, last, every, most, seen)
        self.drawing = Canvas(sheet.pixels, self.inks, sheet.scale)
        self.panels = [
            PanelPicture(self.drawing, trace, place, scales, name, note if noted else "")
            for trace, place, name in zip(traces, sheet.panels, names, strict=True)
        ]
        draw_legend(self.drawing, sheet.legend)

    @property
    def canvas(self) -> Indices:
        """Palette indices of the current frame, (height, width)."""
        return self.drawing.pixels

    def play(self) -> Iterator[Indices]:
        """Yield the canvas at every frame; it is the same array, changed in place."""
        moving = [panel.frames(self.steps) for panel in self.panels]
        for step in self.steps:
            for panel, stream in zip(self.panels, moving, strict=True):
                panel.draw(next(stream))
                if step < 0:
                    panel.draw_card()
            yield self.canvas

    def changes(self) -> Iterator[Change]:
        """Yield the change of every frame; the first is the whole picture."""
        for _ in self.play():
            yield self.drawing.change()

    def show(self, step: int) -> None:
        """Draw the frame of a still: the last selected one at or before a step.

        Raises:
            OptionError: if the step is out of range.
        """
        (at,), _ = select_frames(self.moments, (), step, step, None)
        for panel in self.panels:
            panel.draw(next(panel.frames([at])))

    def rgb(self) -> Any:
        """Return the current frame in colours, (height, width, 3)."""
        return self.inks.colours[self.canvas]


def draw_legend(canvas: Canvas, items: Sequence[Item]) -> None:
    """Draw the legend."""
    scale, theme = canvas.scale, canvas.inks.theme
    for item in items:
        icon = legend_icon(item.look, theme, scale)
        left = round(item.x * scale - icon.shape[1] / 2)
        picture = np.where(icon == TRANSPARENT, canvas.ground, icon).astype(np.uint8)
        canvas.put(picture, left, round(item.y * scale - icon.shape[0] / 2))
        canvas.text(item.words, item.y - 8, item.name, "Regular", 12, theme.muted)


def arrow_sprite(inks: Inks, scale: float) -> Indices:
    """Return the sprite of the legend's arrow."""

    def paint(draw: Any, factor: float) -> None:
        head, line = arrow_sizes(ARROW)
        ends = ((1.0, ARROW / 2), (ARROW - 1.0, ARROW / 2))
        draw_arrow(draw, ends, factor, head, line, inks.theme.edge)

    shape = (round(ARROW * scale), round(ARROW * scale))
    sprite = inks.match(layer(shape, inks.theme.background, scale, paint))
    sprite[sprite == inks.index(inks.theme.background)] = TRANSPARENT
    return sprite


@lru_cache(maxsize=256)
def legend_icon(look: NodeLook | None, theme: Theme, scale: float) -> Indices:
    """Return the sprite of a legend's node, trimmed at its sides."""
    inks = inks_of(theme)
    sprite = (
        arrow_sprite(inks, scale) if look is None else node_sprite(look, (10.0, 10.0), inks, scale)
    )
    columns = np.flatnonzero((sprite != TRANSPARENT).any(axis=0))
    return sprite[:, columns[0] : columns[-1] + 1]
