"""Deadlines and size limits of searches: wall-clock seconds, and the length of a schedule.

A search gets a ``Clock``, which it polls; when time is up it raises OutOfTimeError, and its caller
falls back to the best result so far (an anytime algorithm). ``Pace`` predicts whether
non-interruptible work fits into the remaining time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import inf, isnan
from time import perf_counter
from typing import Any, TypeVar

from tinyckpt.base.errors import PolicyOptionError, ScheduleError

# A step takes about 300 bytes while it is planned and replayed: an entry of the order, of its live
# ranges and of their sort keys, a pointer in the schedule, seven numbers of the trace. So ten
# million steps take 3 GB; an evaluation is two steps: itself and the free that follows.
MOST_STEPS = 10_000_000
MOST_EVALUATIONS = MOST_STEPS // 2
DEFAULT_SECONDS = 60.0  # time limit of a policy that searches

T = TypeVar("T")


class OutOfTimeError(Exception):
    """A search's deadline has passed; caught by the caller that set the deadline.

    If it would pass, its text says what would take how long.
    """


class Clock:
    """A deadline: the seconds that a search may take, counted from construction."""

    def __init__(self, seconds: float = inf) -> None:
        self.seconds, self.begin = seconds, perf_counter()
        self.end = self.begin + seconds

    def spent(self) -> float:
        """Return the seconds since construction."""
        return perf_counter() - self.begin

    def left(self) -> float:
        """Return the remaining seconds, at least 0."""
        return max(0.0, self.end - perf_counter())

    def check(self) -> None:
        """Raise an OutOfTimeError if the deadline has passed."""
        if perf_counter() >= self.end:
            raise OutOfTimeError


NO_DEADLINE = Clock()


class Pace:
    """Predicted duration of work that cannot be interrupted, from its slowest rate so far.

    Before any work has been noted the prediction is 0.
    """

    def __init__(self) -> None:
        self.seconds = 0.0  # per evaluation, in the slowest schedule so far

    def check(self, clock: Clock, evaluations: float) -> None:
        """Raise an OutOfTimeError if a schedule of this many evaluations would be late."""
        if not self.allows(clock, evaluations):
            raise OutOfTimeError

    def allows(self, clock: Clock, evaluations: float) -> bool:
        """Whether a schedule of this many evaluations is predicted to meet the deadline."""
        left = clock.left()
        return left > 0 and left >= self.seconds * evaluations

    def note(self, seconds: float, evaluations: int) -> None:
        """Record that a schedule of this many evaluations took some seconds."""
        self.seconds = max(self.seconds, seconds / max(evaluations, 1))


def memoised(make: Callable[[Clock], T]) -> Callable[[Clock], T]:
    """Memoise a function of a clock: the first call computes the result, later calls return it.

    If the first call runs out of time, nothing is stored, and the next call starts over.
    """
    result: list[T] = []

    def get(clock: Clock) -> T:
        if not result:
            result.append(make(clock))
        return result[0]

    return get


def checked_seconds(seconds: object) -> float:
    """Return a time limit as a float, or raise a PolicyOptionError."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        what = "is NaN" if isinstance(seconds, float) and isnan(seconds) else f"= {seconds!r:.80}"
        raise PolicyOptionError(f"time_limit {what}; it must be a number of seconds, 0 or more")
    return float(seconds)


def check_length(evaluations: float, what: str) -> None:
    """Raise a ScheduleError if a schedule would have too many evaluations."""
    if evaluations > MOST_EVALUATIONS:
        raise ScheduleError(length_error_text(evaluations, what))


def listed_order(order: Any) -> list[Any]:
    """Return an order of evaluations as a list.

    Raises:
        ScheduleError: if it is no sequence, or has too many evaluations, as an endless iterator.
    """
    try:
        found = list(islice(order, MOST_EVALUATIONS + 1))
    except TypeError as error:
        raise ScheduleError(f"order={order!r:.80}; expected the ids of operators") from error
    check_length(len(found), "this order")
    return found


def length_error_text(evaluations: float, what: str) -> str:
    """Format the error about a schedule's length, with the limit."""
    return (
        f"{what} would be a schedule of about {evaluations:,.0f} evaluations; the limit is "
        f"{MOST_EVALUATIONS:,} evaluations ({MOST_STEPS:,} steps)"
    )
