"""The explainer: keep everything above gradient checkpointing, as an animation of 13 seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tinyckpt.base.display import DrawnPath
from tinyckpt.base.errors import OptionError
from tinyckpt.base.files import replacing, write_atomically

from ..raster.video import Film
from ..theme import THEMES
from .drawing import HEIGHT, WIDTH, Painter, Patch, end_card, picture, svg_of
from .story import Story, story_of

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

FORWARD, TURN, FIRST, END = 1.5, 1.0, 4.0, 3.0
REST, EACH, LONGEST = 3.5, 0.15, 25.0


def explainer(traces, path, *, theme="light", scale=1, stop="recomputation", command=None):
    from ..gif import encoder_of

    story = story_of(traces)
    inks = THEMES[theme]
    suffix = Path(path).suffix.lower()
    if suffix == ".svg":
        place = story.at(stop)
        write_atomically(path, svg_of(picture(story, place, inks), "x", inks).encode())
        return DrawnPath(path)
    if suffix == ".png":
        import imageio.v3 as iio

        painter = Painter(inks, scale)
        painter.show(
            [end_card(story, command or "", inks)]
            if stop == "card"
            else picture(story, story.at(stop), inks)
        )
        write_atomically(path, iio.imwrite("<bytes>", painter.rgb(), extension=".png"))
        return DrawnPath(path)
    _, encoder = encoder_of(path, None)
    painter = Painter(inks, scale)
    pictures = (picture(story, place, inks) for place in range(len(story.moments)))
    from itertools import chain

    every = chain(pictures, [[end_card(story, command or "", inks)]])
    film = Film(WIDTH * scale, HEIGHT * scale, painter.inks.colours, delays_of(story))
    with replacing(path) as file:
        encoder.write(file, film, painter.changes(every))
    return DrawnPath(path)


def delays_of(story: Story) -> list[int]:
    phases = [moment.phase for moment in story.moments]
    count = {phase: phases.count(phase) for phase in ("forward", "turn", "first", "backward")}
    fixed = {"forward": FORWARD, "turn": TURN, "first": FIRST if count["first"] else 0.0}
    most = LONGEST - END - sum(fixed.values())
    fixed["backward"] = min(max(REST, EACH * count["backward"]), most)
    ends, now = [0.0], 0.0
    for phase in phases:
        now += fixed[phase] / count[phase]
        ends.append(now)
    ends.append(now + END)
    return [round(100 * b) - round(100 * a) for a, b in zip(ends, ends[1:])]
