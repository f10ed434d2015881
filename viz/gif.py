"""From traces to a file: an animation, a still, or frames for other tools."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyckpt.base.display import DrawnPath
from tinyckpt.base.errors import OptionError
from tinyckpt.base.files import replacing, write_atomically

from .arrange import Design
from .layout.naming import Grouping, Labels
from .progress import with_bar
from .raster.encode import ENCODERS, SUFFIXES, Encoder
from .raster.film import Film
from .raster.picture import MOST_FRAMES, Picture
from .sheet import as_list
from .vector.svg import svg_still

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

# A frame of a GIF or PNG lasts at most 655 seconds; viewers show at most 50 frames a second.
SLOWEST, FASTEST = 0.01, 50  # frames a second
SHORTEST, LONGEST = 1, 600  # seconds that somebody may ask for
LONGEST_HOLD = 600  # seconds
HOLD = (1.5, 2.0)  # seconds that the first and the last frame stay
FPS = 4.0  # frames a second, where the whole is not too long for it: so that words can be read
MOST_UNASKED = 72  # frames: what is longer is thinned, and files stay small enough for any page
LASTS = 30.0  # seconds at most, where nothing else is asked for
SMOOTH = 25  # frames a second, beyond which a trace is rather thinned
STILLS = (".png", ".svg")


def gif(
    traces: Trace | Sequence[Trace],
    path: str | os.PathLike[str],
    *,
    theme: str = "light",
    scale: int = 1,
    width: int | None = None,
    aspect: str | None = None,
    arrange: str | None = None,
    labels: Labels = None,
    group: Grouping = None,
    fps: float | None = None,
    seconds: float | None = None,
    hold: float | tuple[float, float] | None = None,
    first: int | None = None,
    last: int | None = None,
    every: int | None = None,
    format: str | None = None,
    title: str | Sequence[str] | None = None,
    progress: bool = False,
) -> Path:
    """Write traces as an animation, in step on shared scales.

    There is a frame before the first step, which says what this is, one for each evaluation and one
    for what is freed behind it; the last says what it took. Each says in words what happens.
    Frames are written as they are drawn: memory does not grow with their number.

    It shows 4 frames a second, and lasts 30 seconds at most. Of a trace that has more than 72
    frames, those of evaluations alone are shown, or every so many of them, and it says so.
    ``seconds``, ``fps`` and ``every`` ask for something else: ``seconds`` for up to 25 frames a
    second.

    Args:
        traces: one trace, or several to compare.
        path: of the file; it is replaced only once the new one is complete.
        theme: ``light`` or ``dark``.
        scale: 1 for 800 pixels of width, 2 for 1600, 3 for 2400.
        width: in pixels, from 320 to 3840, instead of a scale.
        aspect: width to height, such as ``16:9``; without it, as high as it needs to be.
        arrange: ``stacked`` or ``side by side``; with an aspect, what is larger; else stacked.
        labels: what operators are called: ``name`` or ``symbol``; a mapping from an operator's id
            or name to a text; or a function of an operator that returns a text or None. Without it,
            and where those say nothing: the name that ``tc.name`` gave, or its own if that is
            short, or its kind's symbol. Scopes stand above.
        group: what shares a node: ``scope``, ``operator`` (nothing does), or a function of a
            forward operator that returns its group's name or None; neighbours of one name share a
            node. Without it, as the size of the graph asks for.
        fps: frames a second, from 0.01 to 50, however long it takes; a trace is thinned to about
            1,500 frames.
        seconds: how long it lasts, from 1 to 600.
        hold: seconds that the first and the last frame stay, one number or two; they stay no
            shorter than the others. 1.5 and 2 without it.
        first, last: the steps to begin and to end with, from 0; the whole trace without them.
        every: draw every one of so many frames, 1 for all. The first, the last and those of the
            peaks are drawn in any case.
        format: ``gif``, ``apng``, ``webp``, or ``mp4`` or ``webm``, which need the extra ``mp4``;
            without it, what the path ends in (``.png`` is an animated PNG).
        title: in place of the policy's name; for several traces, as many titles.
        progress: whether to show a bar on a terminal.

    Raises:
        OptionError: if an option is out of range.
        FormatError: if the file cannot be written.
        BackendError: if a package is missing.
    """
    name, encoder = encoder_of(path, format)
    check_times(fps, seconds, hold)
    design = Design(theme, title, labels, group, scale, width, aspect, arrange)
    shown = {"first": first, "last": last, "every": every}
    most = most_frames(fps, seconds, hold)
    picture = Picture(as_list(traces), design, **shown, most=most, noted=True)
    high, wide = picture.canvas.shape
    if max(high, wide) > encoder.largest:
        raise OptionError(
            f"{wide} by {high} pixels are too many for {name}, which holds {encoder.largest}: "
            f"draw fewer traces, or at a smaller scale"
        )
    count = len(picture.steps)
    speed = fps if fps is not None else speed_of(count, seconds, hold)
    delays = delays_of(count, speed, holds_of(hold, seconds))
    film = Film(wide, high, picture.inks.colours, delays)
    changes = picture.changes()
    if progress:
        changes = with_bar(changes, count, "drawing", "frame")
    with replacing(path) as file:
        encoder.write(file, film, changes)
    return DrawnPath(path)


def frames(
    traces: Trace | Sequence[Trace],
    *,
    theme: str = "light",
    scale: int = 1,
    width: int | None = None,
    aspect: str | None = None,
    arrange: str | None = None,
    labels: Labels = None,
    group: Grouping = None,
    first: int | None = None,
    last: int | None = None,
    every: int | None = None,
    title: str | Sequence[str] | None = None,
) -> Iterator[Any]:
    """Yield the frames of an animation, one after the other, for tools of your own.

    Each is a new array of colours, uint8 (height, width, 3), as imageio and others take it; the
    height is even, as films ask, and so is the width unless an odd one is asked for. The options
    are those of ``gif``; a long trace is thinned to about 700 frames. The first says what this is.

    Raises:
        OptionError: if an option is out of range.
        BackendError: if a package is missing.

    >>> import tinyckpt as tc, viz
    >>> trace = tc.replay(tc.plan(tc.networks.chain(2)))
    >>> [frame.shape for frame in viz.frames(trace, width=640)][0][1:]
    (640, 3)
    """
    design = Design(theme, title, labels, group, scale, width, aspect, arrange)
    shown = {"first": first, "last": last, "every": every}
    most = most_frames(None, LASTS, None)
    picture = Picture(as_list(traces), design, **shown, most=most, noted=True)
    return (picture.rgb() for _ in picture.play())


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


def check_times(
    fps: float | None, seconds: float | None, hold: float | tuple[float, float] | None
) -> None:
    """Raise an OptionError unless speed, length and holds are within their ranges."""
    if fps is not None and not is_within(fps, SLOWEST, FASTEST):
        raise OptionError(f"fps {fps!r}: legal are {SLOWEST} to {FASTEST}")
    if seconds is not None and not is_within(seconds, SHORTEST, LONGEST):
        raise OptionError(f"seconds {seconds!r}: legal are {SHORTEST} to {LONGEST}")
    if fps is not None and seconds is not None:
        raise OptionError(f"fps {fps} and seconds {seconds}: give one of them")
    holds = hold if isinstance(hold, tuple) else (hold, hold)
    if hold is not None and not (
        len(holds) == 2 and all(is_within(value, 0, LONGEST_HOLD) for value in holds)
    ):
        raise OptionError(
            f"hold {hold!r}: legal are one number of seconds, or a pair, from 0 to {LONGEST_HOLD}"
        )
    if hold is not None and seconds is not None and sum(pair(hold)) > seconds / 2:
        raise OptionError(
            f"hold {hold!r}: the first and the last frame take more than half of {seconds} seconds"
        )


def is_within(number: Any, least: float, most: float) -> bool:
    """Whether something is a number within a range."""
    return (
        isinstance(number, int | float) and not isinstance(number, bool) and least <= number <= most
    )


def pair(hold: float | tuple[float, float]) -> tuple[float, float]:
    """Return the seconds that the first and the last frame stay."""
    return hold if isinstance(hold, tuple) else (hold, hold)


def holds_of(
    hold: float | tuple[float, float] | None, seconds: float | None
) -> tuple[float, float]:
    """Return the seconds that the first and the last frame stay: less in a short animation."""
    if hold is not None:
        return pair(hold)
    share = min(1.0, (LASTS if seconds is None else seconds) / (4 * sum(HOLD)))
    return (share * HOLD[0], share * HOLD[1])


def most_frames(
    fps: float | None, seconds: float | None, hold: float | tuple[float, float] | None
) -> int:
    """Return to how many frames a long trace is thinned."""
    if fps is not None:
        return MOST_FRAMES
    if seconds is None:
        return MOST_UNASKED
    return max(2, int(SMOOTH * (seconds - sum(holds_of(hold, seconds)))))


def speed_of(count: int, seconds: float | None, hold: float | tuple[float, float] | None) -> float:
    """Return the frames a second with which so many frames last as long as they are to.

    Raises:
        OptionError: if there are too many for the seconds that somebody asked for.
    """
    less, more = sorted(holds_of(hold, seconds))
    # Within rounding to centiseconds. A frame between the first and the last stays for a delay; and
    # where that is longer than a hold, so do these.
    lasts = (LASTS if seconds is None else seconds) - 0.02
    delay = lasts
    if count > 1:
        delay = lasts / count
        if delay < more:
            delay = (lasts - more) / (count - 1)
        if delay < less:
            delay = (lasts - more - less) / max(count - 2, 1)
    if seconds is None:
        return min(max(FPS, 1 / max(delay, 1 / FASTEST)), FASTEST)
    if delay < 1 / FASTEST:
        raise OptionError(
            f"seconds {seconds}: {count:,} frames are too many for it; leave every out, or draw "
            f"a part of the trace"
        )
    return 1 / delay


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
    width: int | None = None,
    aspect: str | None = None,
    arrange: str | None = None,
    labels: Labels = None,
    group: Grouping = None,
    title: str | Sequence[str] | None = None,
) -> Path:
    """Write one frame as PNG or SVG: at a step, or at the end if none is given.

    Args:
        traces: one trace, or several to compare.
        path: ends in ``.png`` or ``.svg``; the file is replaced only once the new one is complete.
        step: its number, from 0; a shorter trace stays at its end.
        theme, scale, width, aspect, arrange, labels, group, title: as in ``gif``.

    Raises:
        OptionError: if an option is out of range, or the suffix is another.
        FormatError: if the file cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in STILLS:
        raise OptionError(f"{path}: the name of a still must end in one of {', '.join(STILLS)}")
    design = Design(theme, title, labels, group, scale, width, aspect, arrange)
    if suffix == ".svg":
        write_atomically(path, svg_still(traces, step, design).encode())
        return DrawnPath(path)
    import imageio.v3 as iio

    picture = Picture(as_list(traces), design)
    picture.show(picture.moments[-1] if step is None else step)
    write_atomically(path, iio.imwrite("<bytes>", picture.rgb(), extension=".png"))
    return DrawnPath(path)
