"""Frame times of an animation: frame rate, duration, holds, and slow motion.

Numbers of seconds and frames come in, checked here; the delay of each frame goes out, before
anything is drawn.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import accumulate, pairwise
from typing import Any

from tinyckpt.base.errors import OptionError

from .time_axis import MOST_FRAMES

# A frame of a GIF or PNG lasts at most 655 seconds; viewers show at most 50 frames a second.
SLOWEST, FASTEST = 0.01, 50  # frames a second
SHORTEST, LONGEST = 1, 600  # seconds: the accepted durations
LONGEST_HOLD = 600  # seconds
HOLD = (1.5, 2.0)  # seconds that the first and the last frame are shown, by default
FPS = 4.0  # default frames per second, if the duration allows: slow enough to read the captions
MOST_UNASKED = (
    72  # frames of the default: longer traces are thinned, and files stay small enough for any page
)
LASTS = 30.0  # seconds: longest default duration
SLOWER = 4  # times as long is each frame of a trace's first recomputation shown, by default
SMOOTH = 25  # frames per second: beyond it a trace is thinned instead


def check_times(
    fps: float | None, seconds: float | None, hold: float | tuple[float, float] | None
) -> None:
    """Raise OptionError unless frame rate, duration and holds are within their ranges."""
    if fps is not None and not is_within(fps, SLOWEST, FASTEST):
        raise OptionError(f"fps {fps!r}: expected {SLOWEST} to {FASTEST}")
    if seconds is not None and not is_within(seconds, SHORTEST, LONGEST):
        raise OptionError(f"seconds {seconds!r}: expected {SHORTEST} to {LONGEST}")
    if fps is not None and seconds is not None:
        raise OptionError(f"fps {fps} and seconds {seconds}: give one of them")
    holds = hold if isinstance(hold, tuple) else (hold, hold)
    if hold is not None and not (
        len(holds) == 2 and all(is_within(value, 0, LONGEST_HOLD) for value in holds)
    ):
        raise OptionError(
            f"hold {hold!r}: expected a number of seconds, or a pair, from 0 to {LONGEST_HOLD}"
        )
    if hold is not None and seconds is not None and sum(hold_pair(hold)) > seconds / 2:
        raise OptionError(
            f"hold {hold!r}: the first and the last frame take more than half of {seconds} seconds"
        )


def is_within(number: Any, least: float, most: float) -> bool:
    """Whether a value is a number within a range."""
    return (
        isinstance(number, int | float) and not isinstance(number, bool) and least <= number <= most
    )


def hold_pair(hold: float | tuple[float, float]) -> tuple[float, float]:
    """Return the hold times of the first and the last frame, in seconds."""
    return hold if isinstance(hold, tuple) else (hold, hold)


def holds_of(
    hold: float | tuple[float, float] | None, seconds: float | None
) -> tuple[float, float]:
    """Return the hold times of the first and the last frame: shorter in short animations."""
    if hold is not None:
        return hold_pair(hold)
    share = min(1.0, (LASTS if seconds is None else seconds) / (4 * sum(HOLD)))
    return (share * HOLD[0], share * HOLD[1])


def frame_limit(
    fps: float | None, seconds: float | None, hold: float | tuple[float, float] | None
) -> int:
    """Return the number of frames to which a long trace is thinned."""
    if fps is not None:
        return MOST_FRAMES
    if seconds is None:
        return MOST_UNASKED
    return max(2, int(SMOOTH * (seconds - sum(holds_of(hold, seconds)))))


def speed_of(count: int, seconds: float | None, hold: float | tuple[float, float] | None) -> float:
    """Return the frame rate at which ``count`` frames have the requested duration.

    Raises:
        OptionError: if there are too many frames for the requested duration.
    """
    less, more = sorted(holds_of(hold, seconds))
    # Within rounding to centiseconds. A frame between the first and the last is shown for a delay;
    # where the delay is longer than a hold, so are the first and the last.
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
            f"seconds {seconds}: {count:,} frames are too many; omit every, or draw "
            f"a part of the trace"
        )
    return 1 / delay


def frame_delays(
    count: int,
    slow: Collection[int],
    fps: float | None,
    seconds: float | None,
    hold: float | tuple[float, float] | None,
) -> list[int]:
    """Return the delay of each frame: slow ones last longer, unless there is a given frame rate."""
    holds = holds_of(hold, seconds)
    if fps is not None:
        return delays_of(count, fps, holds)
    speed, as_many = speed_of(count, seconds, hold), count + (SLOWER - 1) * len(slow)
    if speed * (as_many - 2) > FASTEST * (count - 2):  # too short for slow motion
        return delays_of(count, speed, holds)
    return delays_of(count, speed_of(as_many, seconds, hold), holds, slow)


def delays_of(
    count: int, fps: float, hold: float | tuple[float, float], slow: Collection[int] = ()
) -> list[int]:
    """Return the delay of each frame in centiseconds; each of ``slow`` lasts SLOWER times as long.

    Each frame ends at the centisecond nearest to its exact time, so that rounding errors do not
    accumulate.

    >>> delays_of(5, 30, (0, 1))
    [3, 4, 3, 3, 100]
    >>> delays_of(5, 30, (0, 1), {2})
    [3, 4, 13, 3, 100]
    """
    lasts = (SLOWER if frame in slow else 1 for frame in range(count))
    ends = [round(100 * end / fps) for end in accumulate(lasts, initial=0)]
    delays = [end - begin for begin, end in pairwise(ends)]
    holds = hold if isinstance(hold, tuple) else (hold, hold)
    for frame, seconds in zip((0, -1), holds, strict=True):
        delays[frame] = max(delays[frame], round(100 * seconds))
    return delays
