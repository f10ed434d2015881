"""Explainer animation: gradient checkpointing below store-all, aligned by progress, in 13 seconds.

One row of numbered tiles per trace, a tank with a high-water mark, a bar of work; slow at the first
recomputation, and at the end a card with the result. ``story`` has the moments, ``drawing`` the
marks. For any chain, and any network whose scopes or operators group into 32 tiles.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tinyckpt.base.display import DrawnPath
from tinyckpt.base.errors import OptionError
from tinyckpt.base.files import replacing, suffix_of, write_atomically

from ..gif import encoder_of
from ..raster.video import Film
from ..scene import SCALES, is_integer, stop_of, what_of
from ..theme import THEMES, check_theme
from .drawing import HEIGHT, WIDTH, Painter, Patch, end_card, heading_of, picture, svg_of
from .story import Story, story_of

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

# Seconds of the phases: the forward pass, the turn, the first recomputation, the end card; and of
# the rest, at least, and per moment.
FORWARD, TURN, FIRST, CARD, REST, EACH = 1.5, 1.0, 4.0, 3.0, 3.5, 0.15
LONGEST = 25.0  # seconds
STILLS = {".svg", ".png"}


def explainer(
    traces: Trace | Sequence[Trace],
    path: str | os.PathLike[str],
    *,
    theme: str = "light",
    scale: int = 1,
    format: str | None = None,
    stop: str = "first recomputation",
    command: str | None = None,
) -> Path:
    """Write the explanation of gradient checkpointing as an animation, or as a still picture.

    Above is a step of training that keeps everything, below it the same step under a policy. The
    row that is ahead waits while the other recomputes. 13 seconds for a short chain, at most 25.

    Args:
        traces: a trace, which is compared with store-all of its graph; or two traces of one graph.
        path: of the file, ``.gif``, ``.apng``, ``.webp``, ``.mp4`` or ``.webm``; a still picture
            is written to a name in ``.svg`` or ``.png``.
        theme: ``light`` or ``dark``.
        scale: 1 for 800 by 450 pixels, 2 or 3 for as many times that.
        format: of an animation, if the name's suffix does not say it.
        stop: the moment of a still: ``start``, ``peak``, ``first recomputation``, ``end``, or
            ``card``, the end card.
        command: that made the picture, for the end card.

    Raises:
        OptionError: if there is nothing to compare, or an option is out of range.
        FormatError: if the file cannot be written.
        BackendError: if a package is missing.

    >>> from tempfile import TemporaryDirectory
    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> trace = tc.replay(tc.plan(tc.networks.chain(16), "sqrt_n"))
    >>> with TemporaryDirectory() as folder:
    ...     viz.explainer(trace, f"{folder}/chain.svg").name
    'chain.svg'
    """
    check_theme(theme)
    if not is_integer(scale) or scale not in SCALES:
        raise OptionError(f"scale {scale!r}: expected 1, 2 or 3")
    stop = stop_of(stop, "card")
    suffix = suffix_of(path) if format is None else ""
    encoder = None if suffix in STILLS else encoder_of(path, format)[1]
    story, colours = story_of(traces), THEMES[theme]
    card = [end_card(story, footer_of(story, command), colours)]
    if encoder is None:
        still = card if stop == "card" else picture(story, story.at(stop), colours)
        if suffix == ".svg":
            title = f"{what_of(story.traces[1])}: {heading_of(story, 1)}"
            write_atomically(path, svg_of(still, title, colours).encode())
            return DrawnPath(path)
        import imageio.v3 as iio

        painter = Painter(colours, scale)
        painter.show(still)
        write_atomically(path, iio.imwrite("<bytes>", painter.rgb(), extension=".png"))
        return DrawnPath(path)

    def pictures() -> Iterator[Sequence[Patch]]:
        for place in range(len(story.moments)):
            yield picture(story, place, colours)
        yield card

    painter = Painter(colours, scale)
    film = Film(WIDTH * scale, HEIGHT * scale, painter.inks.colours, delays_of(story))
    with replacing(path) as file:
        encoder.write(file, film, painter.changes(pictures()))
    return DrawnPath(path)


def footer_of(story: Story, command: str | None) -> str:
    """Return the last line of the end card."""
    count, noun = len(story.tiles), story.noun
    size = f"{count} {noun}{'s' if count > 1 else ''}"
    if command:
        return f"{size}. {command}"
    what = what_of(story.traces[1])  # of a chain, this is its size
    return f"{what}, by tinyckpt" if what.endswith(size) else f"{what}, {size}, by tinyckpt"


def delays_of(story: Story) -> list[int]:
    """Return the delay of every moment, and of the end card, in centiseconds.

    >>> import tinyckpt as tc
    >>> story = story_of(tc.replay(tc.plan(tc.networks.chain(16), "sqrt_n")))
    >>> sum(delays_of(story))
    1300
    """
    phases = [moment.phase for moment in story.moments]
    seconds = {"forward": FORWARD, "turn": TURN, "first": FIRST if "first" in phases else 0.0}
    most = LONGEST - CARD - sum(seconds.values())
    seconds["backward"] = min(max(REST, EACH * phases.count("backward")), most)
    ends = [0.0]
    for phase in phases:
        ends.append(ends[-1] + 100 * seconds[phase] / phases.count(phase))
    ends.append(ends[-1] + 100 * CARD)
    return [round(end) - round(begin) for begin, end in pairwise(ends)]
