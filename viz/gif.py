"""From pixels to a file: an animated GIF, and a still as PNG."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tinyckpt.errors import TinyckptError
from tinyckpt.files import write_atomically
from viz.draw import Picture, as_list
from viz.progress import with_bar

if TYPE_CHECKING:
    from tinyckpt.trace import Trace

FASTEST = 50  # frames a second; viewers show no more
HOLD = 1500  # milliseconds that the last frame stays


def gif(
    traces: Trace | Sequence[Trace],
    path: str | os.PathLike[str],
    *,
    theme: str = "light",
    scale: int = 1,
    fps: float = 8.0,
    title: str | None = None,
    progress: bool = False,
) -> Path:
    """Write traces as an animated GIF, stacked and in step on shared scales.

    There is a frame for each evaluation and one for what is freed behind it. A long trace is
    thinned to about 1,500 frames, its peak and its end among them.

    Args:
        traces: one trace, or several to compare.
        path: of the file; it is replaced only once the new one is complete.
        theme: ``light`` or ``dark``.
        scale: 1 for 800 pixels of width, 2 for 1600, 3 for 2400.
        fps: frames a second, above 0 and at most 50.
        title: in place of the policy's name, for one trace.
        progress: whether to show a bar on a terminal.

    Raises:
        TinyckptError: if an option is out of range, or the file cannot be written.
    """
    import imageio.v3 as iio

    if Path(path).suffix.lower() != ".gif":
        raise TinyckptError(f"{path}: the name of a GIF must end in .gif")
    if not isinstance(fps, int | float) or not 0 < fps <= FASTEST:
        raise TinyckptError(f"fps {fps!r}: legal are more than 0 and at most {FASTEST}")
    picture = Picture(as_list(traces), theme, scale, title)
    count = len(picture.steps) + 1
    duration = [max(20, round(1000 / fps))] * (count - 1) + [HOLD]
    frames = picture.play()
    if progress:
        frames = with_bar(frames, count, "drawing", "frame")
    stack = [canvas.copy() for canvas in frames]
    # With optimize, what did not change since the frame before is transparent: a fifth of the size.
    content = iio.imwrite(
        "<bytes>",
        stack,
        plugin="pillow",
        extension=".gif",
        mode="P",
        palette=picture.colours,
        duration=duration,
        loop=0,
        optimize=True,
    )
    write_atomically(path, content)
    return Path(path)


def save_still(
    traces: Trace | Sequence[Trace],
    path: str | os.PathLike[str],
    step: int | None = None,
    *,
    theme: str = "light",
    scale: int = 1,
    title: str | None = None,
) -> Path:
    """Write one frame as PNG: at a step, or at the end if none is given."""
    import imageio.v3 as iio

    picture = Picture(as_list(traces), theme, scale, title)
    picture.show(picture.steps[-1] if step is None else step)
    content = iio.imwrite("<bytes>", picture.rgb(), plugin="pillow", extension=".png")
    write_atomically(path, content)
    return Path(path)
