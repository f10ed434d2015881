"""What a search may take: seconds, and the length of what it makes."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isnan
from time import perf_counter
from typing import TypeVar

from tinyckpt.base.errors import PolicyOptionError, ScheduleError

# A step takes some 300 bytes while it is planned and replayed: an entry of the order, of its
# spans and of what they are sorted by, a pointer in the schedule, seven numbers of the trace. So
# ten million steps take 3 GB, and an evaluation is two of them: it and the free that follows.
MOST_STEPS = 10_000_000
MOST_EVALUATIONS = MOST_STEPS // 2
DEFAULT_SECONDS = 60.0  # for a policy that searches, unless it is told otherwise

T = TypeVar("T")


class OutOfTimeError(Exception):
    """The time for a search is up; who set the clock knows what to do."""


class Clock:
    """Seconds that a search has, from when the clock is made."""

    def __init__(self, seconds: float = inf) -> None:
        self.seconds, self.begin = seconds, perf_counter()
        self.end = self.begin + seconds

    def spent(self) -> float:
        """Return the seconds since the clock was made."""
        return perf_counter() - self.begin

    def left(self) -> float:
        """Return the seconds that are left, 0 if none are."""
        return max(0.0, self.end - perf_counter())

    def check(self) -> None:
        """Raise an OutOfTimeError if the time is up."""
        if perf_counter() >= self.end:
            raise OutOfTimeError


ENDLESS = Clock()


class Pace:
    """How long work takes that looks at no clock, as told by such work before; none at first."""

    def __init__(self) -> None:
        self.seconds = 0.0  # of an evaluation, in the slowest schedule that was made

    def check(self, clock: Clock, evaluations: float) -> None:
        """Raise an OutOfTimeError if a schedule of so many would probably not be made in time."""
        if not self.allows(clock, evaluations):
            raise OutOfTimeError

    def allows(self, clock: Clock, evaluations: float) -> bool:
        """Whether a schedule of so many evaluations would probably be made in time."""
        left = clock.left()
        return left > 0 and left >= self.seconds * evaluations

    def note(self, seconds: float, evaluations: int) -> None:
        """Take note that a schedule of so many evaluations took some time."""
        self.seconds = max(self.seconds, seconds / max(evaluations, 1))


def made_once(make: Callable[[Clock], T]) -> Callable[[Clock], T]:
    """Return what gives the same thing whenever it is called, made by the first call.

    If the clock of that call runs down meanwhile, the next one begins anew.
    """
    made: list[T] = []

    def get(clock: Clock) -> T:
        if not made:
            made.append(make(clock))
        return made[0]

    return get


def checked_seconds(seconds: object) -> float:
    """Return a time limit, or raise a PolicyOptionError that says what one is."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        what = "is NaN" if isinstance(seconds, float) and isnan(seconds) else f"= {seconds!r:.80}"
        raise PolicyOptionError(f"time_limit {what}; it must be a number of seconds, 0 or more")
    return float(seconds)


def check_length(evaluations: float, what: str) -> None:
    """Raise a ScheduleError if a schedule of so many evaluations is too long to be made."""
    if evaluations > MOST_EVALUATIONS:
        raise ScheduleError(too_long(evaluations, what))


def too_long(evaluations: float, what: str) -> str:
    """Return the text that says how long a schedule would be, and how long one may be."""
    return (
        f"{what} would be a schedule of about {evaluations:,.0f} evaluations; those of more than "
        f"{MOST_EVALUATIONS:,} evaluations ({MOST_STEPS:,} steps) are not made"
    )
