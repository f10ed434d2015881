"""Cost model of the device-host link: latency, bandwidth, and copy engines."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import inf
from numbers import Rational

import numpy as np

from tinyckpt.base.errors import ScheduleError

Number = int | float | Fraction
MOST_ENGINES = 2  # copy engines: one for each direction; more move nothing more
# Bytes per unit of cost, and units of cost: within these, no float of a time over- or underflows.
# Doubled: more links are accepted.
MIN_MAGNITUDE, MAX_MAGNITUDE = 1e-30, 1e30


@dataclass(frozen=True, slots=True)
class Link:
    """The link that copies values between the memories of the device and the host.

    A copy of b bytes takes ``latency + b / bandwidth``. A GPU's copy engines do it, overlapped with
    computation: with one engine the copies of both directions share one queue; with two, each
    direction has its own queue at the full bandwidth, as on PCI Express. More engines than
    directions move nothing more.

    Attributes:
        bandwidth: bytes per unit of cost, in each direction: bytes per second, where costs are in
            seconds. 0 where nothing can be moved; infinite where a copy takes the latency alone.
        latency: units of cost added to each copy.
        engines: 1 or 2.

    Raises:
        ScheduleError: if one of them is invalid.

    >>> import tinyckpt as tc
    >>> print(tc.Link(bandwidth=256, latency=1).duration(512))
    3
    """

    bandwidth: Number
    latency: Number = 0
    engines: int = MOST_ENGINES

    def __post_init__(self) -> None:
        for name in ("bandwidth", "latency"):
            value = getattr(self, name)
            if isinstance(value, np.generic):
                value = value.item()  # NumPy's integers overflow
                object.__setattr__(self, name, value)
            is_number = isinstance(value, Rational | float) and not isinstance(value, bool)
            if not is_number or value != value or value < 0:
                raise ScheduleError(f"link: {name}={value!r:.80}; it must be a number of 0 or more")
            if 0 < value < inf and not MIN_MAGNITUDE <= value <= MAX_MAGNITUDE:
                raise ScheduleError(
                    f"link: {name}={value!r:.80}; expected 0, or a number from {MIN_MAGNITUDE} to "
                    f"{MAX_MAGNITUDE}"
                )
        if self.latency == inf:
            raise ScheduleError("link: latency=inf; it must be finite; a bandwidth may be 0")
        if isinstance(self.engines, np.integer):
            object.__setattr__(self, "engines", int(self.engines))
        if type(self.engines) is not int or not 1 <= self.engines <= MOST_ENGINES:
            raise ScheduleError(
                f"link: engines={self.engines!r:.80}; expected 1, shared by both directions, or 2"
            )

    def duration(self, nbytes: int) -> Fraction:
        """Return the duration of a copy, in units of cost, exactly.

        Raises:
            ScheduleError: if the bandwidth is 0, and there is something to move.
        """
        if nbytes == 0 or self.bandwidth == inf:
            return Fraction(self.latency)
        if self.bandwidth == 0:
            raise ScheduleError(f"link: {nbytes:,} bytes cannot be moved at a bandwidth of 0")
        return Fraction(self.latency) + nbytes / Fraction(self.bandwidth)


def checked_link(link: object) -> Link:
    """Check that a link is a Link; raise a ScheduleError otherwise."""
    if not isinstance(link, Link):
        raise ScheduleError(f"link={link!r:.80}; expected a Link, such as tc.Link(bandwidth=25e9)")
    return link
