"""Animations (GIF, APNG, WebP, MP4, WebM), stills (PNG, SVG) and raw frames of traces.

The public entry points, each in one direction: traces and options become a scene, with the frames
that are shown; ``frame_times`` says for how long; ``raster`` draws and encodes them one after the
other, ``vector`` writes SVG. Memory use does not depend on the number of frames.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyckpt.base.display import DrawnPath
from tinyckpt.base.errors import OptionError
from tinyckpt.base.files import replacing, suffix_of, temporary_path, write_atomically

from .frame_times import LASTS, check_times, frame_delays, frame_limit
from .layout.check_label_options import Grouping, Labels
from .progress import with_bar
from .raster.encode import ENCODERS, SUFFIXES, Encoder
from .raster.picture import Picture
from .raster.video import Film
from .scene import Style, scene_of
from .time_axis import Span
from .vector.svg import svg_still

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

STILLS = (".png", ".svg")


def gif(
    traces: Trace | Sequence[Trace],
    path: str | os.PathLike[str] | None = None,
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
    align: str | None = None,
    format: str | None = None,
    title: str | Sequence[str] | None = None,
    progress: bool = False,
) -> Path:
    """Write traces as an animation, aligned by progress and on shared scales.

    There is a title frame before the first step, one frame per evaluation and one for the frees
    after it; the last one gives the totals. Each has a caption. Frames are written as they are
    drawn: memory use does not grow with their number.

    The default is 4 frames per second and at most 30 seconds; the first four frames of each trace's
    first recomputation are shown four times as long, unless ``fps`` is given. A trace of more than
    72 frames is thinned: to the frames of evaluations, or to every n-th of them, and the picture
    says so. ``seconds``, ``fps`` and ``every`` override this; ``seconds`` allows up to 25 frames
    per second.

    Args:
        traces: one trace, or several to compare.
        path: of the file; it is replaced only once the new one is complete. Without it the file is
            a temporary one: the result displays itself in a notebook.
        theme: ``light`` or ``dark``.
        scale: 1 for 800 pixels of width, 2 for 1600, 3 for 2400.
        width: in pixels, from 320 to 3840, instead of a scale.
        aspect: width to height, such as ``16:9``; without it, the height follows from the content.
        arrange: ``stacked`` or ``side by side``; with an aspect ratio the default is the larger of
            the two, else stacked.
        labels: labels of operators: ``name`` or ``symbol``; a mapping from an operator's id or name
            to a text; or a function of an operator that returns a text or None. By default, and
            where those give none: the name given by ``tc.name``, or the operator's own if that is
            short, or the symbol of its kind. Scopes are headings above.
        group: operators that share a node: ``scope``, ``operator`` (no groups), or a function of a
            forward operator that returns its group's name or None; neighbours of one name share a
            node. The default depends on the size of the graph.
        fps: frames per second, from 0.01 to 50, all alike, whatever the duration; a trace is
            thinned to about 1,500 frames.
        seconds: duration, from 1 to 600.
        hold: seconds that the first and the last frame are shown, one number or two; never shorter
            than the others. By default 1.5 and 2.
        first, last: the first and the last step shown, from 0; by default the whole trace.
        every: draw every n-th frame, 1 for all. The first, the last, the peaks and the first
            recomputations are always drawn.
        align: of several traces: ``progress``, so that they meet wherever an operator is evaluated
            for the first time, and the others wait while one recomputes; or ``step``. By default
            progress, for whole traces of one graph. A trace that has ended long before the others
            leaves the room of its graph to the memory strips.
        format: ``gif``, ``apng``, ``webp``, or ``mp4`` or ``webm``, which need the extra ``mp4``;
            by default from the suffix of the path (``.png`` is an animated PNG).
        title: replaces the policy's name; for several traces, one title for each.
        progress: whether to show a progress bar on a terminal.

    Raises:
        OptionError: if an option is out of range.
        FormatError: if the file cannot be written.
        BackendError: if a package is missing.

    >>> from tempfile import TemporaryDirectory
    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> graph = tc.networks.chain(4)
    >>> traces = [tc.replay(tc.plan(graph, policy)) for policy in ("store_all", "sqrt_n")]
    >>> with TemporaryDirectory() as folder:
    ...     viz.gif(traces, f"{folder}/chain.gif").name
    'chain.gif'
    """
    if path is None:
        path = temporary_path(f".{format or 'gif'}")
    name, encoder = encoder_of(path, format)
    check_times(fps, seconds, hold)
    style = Style(theme, title, labels, group, scale, width, aspect, arrange)
    span = Span(first, last, every, frame_limit(fps, seconds, hold), True, align)
    scene = scene_of(traces, style, span)
    delays = frame_delays(len(scene.steps), scene.slow, fps, seconds, hold)
    picture = Picture(scene)
    high, wide = picture.canvas.shape
    if max(high, wide) > encoder.largest:
        raise OptionError(
            f"{wide} by {high} pixels are too many for {name}, which holds {encoder.largest}: "
            f"draw fewer traces, or at a smaller scale"
        )
    film = Film(wide, high, picture.inks.colours, delays)
    changes = picture.changes()
    if progress:
        changes = with_bar(changes, len(delays), "drawing", "frame")
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
    align: str | None = None,
    title: str | Sequence[str] | None = None,
) -> Iterator[Any]:
    """Yield the frames of an animation one by one, for other tools.

    Each is a new array of colours, uint8 (height, width, 3), as imageio and others take it; the
    height is even, as video codecs need, and so is the width unless an odd one is requested. The
    options are those of ``gif``; a long trace is thinned to about 700 frames. The first is the
    title frame.

    Raises:
        OptionError: if an option is out of range.
        BackendError: if a package is missing.

    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> trace = tc.replay(tc.plan(tc.networks.chain(2)))
    >>> next(viz.frames(trace, width=640)).shape[1:]
    (640, 3)
    """
    style = Style(theme, title, labels, group, scale, width, aspect, arrange)
    span = Span(first, last, every, frame_limit(None, LASTS, None), True, align)
    picture = Picture(scene_of(traces, style, span))
    return (picture.rgb() for _ in picture.play())


def encoder_of(path: str | os.PathLike[str], name: str | None) -> tuple[str, Encoder]:
    """Return the encoder of a format; without a name, that of the path's suffix.

    Raises:
        OptionError: if there is none.
    """
    if name is None:
        suffix = suffix_of(path)
        if suffix not in SUFFIXES:
            raise OptionError(f"{path}: the name must end in one of {', '.join(SUFFIXES)}")
        name = SUFFIXES[suffix]
    if not isinstance(name, str) or name not in ENCODERS:
        raise OptionError(f"unknown format {name!r}; known are {', '.join(ENCODERS)}")
    return name, ENCODERS[name]


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
    """Write one step as a PNG or SVG picture; by default the last one.

    Args:
        traces: one trace, or several to compare.
        path: ends in ``.png`` or ``.svg``; the file is replaced only once the new one is complete.
        step: its number, from 0; a shorter trace stays at its end.
        theme, scale, width, aspect, arrange, labels, group, title: as in ``gif``.

    Raises:
        OptionError: if an option is out of range, or the suffix is another.
        FormatError: if the file cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> trace = tc.replay(tc.plan(tc.networks.chain(4), "sqrt_n"))
    >>> with TemporaryDirectory() as folder:
    ...     viz.save_still(trace, f"{folder}/step.svg", step=8).name
    'step.svg'
    """
    suffix = suffix_of(path)
    if suffix not in STILLS:
        raise OptionError(f"{path}: the name of a still must end in one of {', '.join(STILLS)}")
    style = Style(theme, title, labels, group, scale, width, aspect, arrange)
    scene = scene_of(traces, style, Span(step, step, 1, align="step"))
    if suffix == ".svg":
        write_atomically(path, svg_still(scene, step).encode())
        return DrawnPath(path)
    import imageio.v3 as iio

    picture = Picture(replace(scene, steps=scene.steps[-1:]))
    next(picture.play())
    write_atomically(path, iio.imwrite("<bytes>", picture.rgb(), extension=".png"))
    return DrawnPath(path)
