"""Video encoders: MP4 (H.264) and WebM (VP9) with variable frame times, by imageio's PyAV plugin.

Frames are encoded one after the other, so that memory use does not grow with their number, except
for the window of some 50 whole frames that an encoder keeps. Video is lossy, as its colours have
half the resolution. Each frame has its own presentation time; only the last frame is written twice,
to end the video.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tinyckpt.base.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .canvas import Change

CENTISECONDS = 100  # ticks of a film's clock in a second
CODECS = {
    # H.264: nearly lossless, about as fast as the frames are drawn. Without B-frames packets
    # come in the order of the frames.
    "mp4": ("libx264", {"crf": "18", "preset": "veryfast", "tune": "animation", "bf": "0"}),
    # VP9: with a bit rate of 0 the quality alone decides the file's size.
    "webm": (
        "libvpx-vp9",
        {"crf": "24", "b": "0", "deadline": "realtime", "cpu-used": "6", "row-mt": "1"},
    ),
}


@dataclass(frozen=True, slots=True)
class Film:
    """Properties common to all frames of a file.

    Attributes:
        width, height: in pixels.
        colours: the palette, uint8, (colours, 3).
        delays: the delay of each frame, in centiseconds; two bytes each.
    """

    width: int
    height: int
    colours: Any
    delays: Sequence[int]

    @property
    def unchanged(self) -> int:
        """Index of an unchanged pixel: one that no colour has."""
        return len(self.colours)


def write_mp4(file: BinaryIO, film: Film, changes: Iterable[Change]) -> None:
    """Write an MP4 (H.264).

    Raises:
        BackendError: if PyAV is not installed, or cannot encode it.
    """
    write_film(file, film, changes, "mp4")


def write_webm(file: BinaryIO, film: Film, changes: Iterable[Change]) -> None:
    """Write a WebM (VP9).

    Raises:
        BackendError: if PyAV is not installed, or cannot encode it.
    """
    write_film(file, film, changes, "webm")


def write_film(file: BinaryIO, film: Film, changes: Iterable[Change], form: str) -> None:
    """Write a video in a container, with the codec that belongs to it."""
    try:
        import av
    except ImportError as error:
        raise BackendError(
            f"{form} needs av (PyAV), which is not installed: pip install 'tinyckpt[mp4]'"
        ) from error
    import imageio.v3 as iio

    try:
        video = iio.imopen(file, "w", plugin="pyav", container=form, extension=f".{form}")
        try:
            write_frames(video, film, changes, *CODECS[form])
            video.close()
        except BaseException:
            abandon(video)
            raise
    except (av.FFmpegError, ValueError) as error:
        if isinstance(
            error.__context__, OSError
        ):  # an error of the file itself, raised again on closing it
            raise error.__context__ from None
        raise BackendError(f"PyAV cannot write this {form}: {error}") from error


def write_frames(
    video: Any, film: Film, changes: Iterable[Change], codec: str, options: dict[str, str]
) -> None:
    """Write all frames with their presentation times."""
    video.init_video_stream(codec, fps=CENTISECONDS, pixel_format="yuv420p")
    # imageio has no codec options; without them encoding is slower and colours are coarser.
    stream = getattr(video, "_video_stream", None)
    if stream is not None:
        stream.options = options
    # Chroma subsampling needs even sizes: an odd width repeats its last column.
    margin = ((0, film.height % 2), (0, film.width % 2), (0, 0))
    canvas = np.zeros((film.height, film.width), np.uint8)
    now = 0
    frame = None
    for change, delay in zip(changes, film.delays, strict=True):
        height, width = change.pixels.shape
        box = canvas[change.top : change.top + height, change.left : change.left + width]
        np.copyto(box, change.pixels, where=change.pixels != film.unchanged)
        frame = np.pad(film.colours[canvas], margin, mode="edge")
        video.frames_written = now  # imageio's clock
        video.write_frame(frame)
        now += delay
    if frame is not None and now > video.frames_written:
        # Players end at the last frame's begin: so it is written again at its end.
        video.frames_written = now - 1
        video.write_frame(frame)


def abandon(video: Any) -> None:
    """Close a failed video: otherwise imageio would try again, and fail, in its destructor."""
    container = getattr(video, "_container", None)
    video._video_stream = video._container = None
    with suppress(Exception):
        if container is not None:
            container.close()
    video.close()
