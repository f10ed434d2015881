"""From traces to a file: an animation, and a still as PNG."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from tinyckpt.display import Drawn
from tinyckpt.errors import OptionError
from tinyckpt.files import replacing, write_atomically
from viz.progress import with_bar
from viz.raster.encode import ENCODERS, SUFFIXES, Encoder, Film
from viz.raster.picture import Picture
from viz.sheet import as_list
from viz.vector.svg import svg_still

if TYPE_CHECKING:
    from tinyckpt.trace import Trace

# A frame of a GIF or PNG lasts at most 655 seconds; viewers show at most 50 frames a second.
SLOWEST, FASTEST = 0.01, 50  # frames a second
LONGEST_HOLD = 600  # seconds
HOLD = (0.5, 1.5)  # seconds that the first and the last frame stay
STILLS = (".png", ".svg")


def gif(
    traces: Trace | Sequence[Trace],
    path: str | os.PathLike[str],
    *,
    theme: str = "light",
    scale: int = 1,
    fps: float = 8.0,
    hold: float | tuple[float, float] = HOLD,
    first: int | None = None,
    last: int | None = None,
    every: int | None = None,
    format: str | None = None,
    title: str | Sequence[str] | None = None,
    progress: bool = False,
) -> Path:
    """Write traces as an animation, stacked and in step on shared scales.

    There is a frame before the first step, one for each evaluation and one for what is freed
    behind it. Frames are written as they are drawn: memory does not grow with their number.

    Args:
        traces: one trace, or several to compare.
        path: of the file; it is replaced only once the new one is complete.
        theme: ``light`` or ``dark``.
        scale: 1 for 800 pixels of width, 2 for 1600, 3 for 2400.
        fps: frames a second, from 0.01 to 50.
        hold: seconds that the first and the last frame stay, one number or two; they stay no
            shorter than the others.
        first, last: the steps to begin and to end with, from 0; the whole trace without them.
        every: draw every one of so many frames, 1 for all; without it, a long trace is thinned to
            about 1,500 frames. The first, the last and those of the peaks are drawn in any case.
        format: ``gif``, ``apng``, ``webp`` or ``mp4``, which needs the extra of this name; without
            it, what the path ends in (``.png`` is an animated PNG).
        title: in place of the policy's name; for several traces, as many titles.
        progress: whether to show a bar on a terminal.

    Raises:
        OptionError: if an option is out of range.
        FormatError: if the file cannot be written.
        BackendError: if a package is missing.
    """
    name, encoder = encoder_of(path, format)
    check_times(fps, hold)
    picture = Picture(as_list(traces), theme, scale, title, first=first, last=last, every=every)
    height, width = picture.canvas.shape
    if max(height, width) > encoder.largest:
        raise OptionError(
            f"{width} by {height} pixels are too many for {name}, which holds {encoder.largest}: "
            f"draw fewer traces, or at a smaller scale"
        )
    count = len(picture.steps)
    film = Film(width, height, picture.inks.colours, delays_of(count, fps, hold))
    changes = picture.changes()
    if progress:
        changes = with_bar(changes, count, "drawing", "frame")
    with replacing(path) as file:
        encoder.write(file, film, changes)
    return Drawn(path)


def encoder_of(path: str | os.PathLike[str], name: str | None) -> tuple[str, Encoder]:
    """Return the encoder of a format, or the one that a path's suffix stands for.

    Raises:
        OptionError: if there is none.
    """
    if name is None:
        suffix = Path(path).suffix.lower()
        if suffix not in SUFFIXES:
            raise OptionError(f"{path}: the name must end in one of {', '.join(SUFFIXES)}")
        name = SUFFIXES[suffix]
    if name not in ENCODERS:
        raise OptionError(f"unknown format {name!r}; known are {', '.join(ENCODERS)}")
    return name, ENCODERS[name]


def check_times(fps: float, hold: float | tuple[float, float]) -> None:
    """Raise an OptionError unless the speed and the holds are within their ranges."""
    if not isinstance(fps, int | float) or not SLOWEST <= fps <= FASTEST:
        raise OptionError(f"fps {fps!r}: legal are {SLOWEST} to {FASTEST}")
    holds = hold if isinstance(hold, tuple) else (hold, hold)
    if len(holds) != 2 or not all(
        isinstance(seconds, int | float) and 0 <= seconds <= LONGEST_HOLD for seconds in holds
    ):
        raise OptionError(
            f"hold {hold!r}: legal are one number of seconds, or a pair, from 0 to {LONGEST_HOLD}"
        )


def delays_of(count: int, fps: float, hold: float | tuple[float, float]) -> list[int]:
    """Return how long each frame stays, in centiseconds.

    Each ends at the centisecond next to where it should, so that errors do not add up.

    >>> delays_of(5, 30, (0, 1))
    [3, 4, 3, 3, 100]
    """
    ends = [round(100 * frame / fps) for frame in range(count + 1)]
    delays = [end - begin for begin, end in pairwise(ends)]
    holds = hold if isinstance(hold, tuple) else (hold, hold)
    for frame, seconds in zip((0, -1), holds, strict=True):
        delays[frame] = max(delays[frame], round(100 * seconds))
    return delays


def save_still(
    traces: Trace | Sequence[Trace],
    path: str | os.PathLike[str],
    step: int | None = None,
    *,
    theme: str = "light",
    scale: int = 1,
    title: str | Sequence[str] | None = None,
) -> Path:
    """Write one frame as PNG or SVG: at a step, or at the end if none is given.

    Args:
        traces: one trace, or several to compare.
        path: ends in ``.png`` or ``.svg``; the file is replaced only once the new one is complete.
        step: its number, from 0; a shorter trace stays at its end.
        theme, title: as in ``gif``.
        scale: of a PNG, as in ``gif``.

    Raises:
        OptionError: if an option is out of range, or the suffix is another.
        FormatError: if the file cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in STILLS:
        raise OptionError(f"{path}: the name of a still must end in one of {', '.join(STILLS)}")
    if suffix == ".svg":
        write_atomically(path, svg_still(traces, step, theme, title).encode())
        return Drawn(path)
    picture = Picture(as_list(traces), theme, scale, title)
    picture.show(picture.moments[-1] if step is None else step)
    image = Image.fromarray(picture.canvas)
    image.putpalette(picture.inks.table)
    content = io.BytesIO()
    image.save(content, "PNG")
    write_atomically(path, content.getvalue())
    return Drawn(path)
