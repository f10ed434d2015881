"""The link between the device and the host: how long a copy takes, and which copies wait."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import inf
from numbers import Rational

import numpy as np

from tinyckpt.base.errors import ScheduleError

Number = int | float | Fraction
MOST_ENGINES = 2
LEAST, MOST = 1e-30, 1e30  # so that times are numbers, whatever is moved


@dataclass(frozen=True, slots=True)
class Link:
    """What moves values between the device's memory and the host's.

    A copy of b bytes takes ``latency + b / bandwidth``. A GPU's own engines do it, while its cores
    compute: with one engine the copies of both directions stand in one line; with two, those to the
    host stand in one and those back in another, each at the full bandwidth, as on PCI Express. More
    engines than directions move nothing more.

    Attributes:
        bandwidth: bytes for each unit of cost, in each direction: bytes a second, where costs are
            in seconds. 0 where nothing can be moved; infinite where that takes the latency alone.
        latency: units of cost that each copy takes besides.
        engines: 1 or 2.

    Raises:
        ScheduleError: if one of them is not legal.

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
                value = value.item()  # NumPy's own integers overflow
                object.__setattr__(self, name, value)
            is_number = isinstance(value, Rational | float) and not isinstance(value, bool)
            if not is_number or value != value or value < 0:
                raise ScheduleError(f"link: {name}={value!r:.80}; it must be a number of 0 or more")
            if 0 < value < inf and not LEAST <= value <= MOST:
                raise ScheduleError(
                    f"link: {name}={value!r:.80}; legal are 0 and from {LEAST} to {MOST}"
                )
        if self.latency == inf:
            raise ScheduleError("link: latency=inf; it must be finite; a bandwidth may be 0")
        if isinstance(self.engines, np.integer):
            object.__setattr__(self, "engines", int(self.engines))
        if type(self.engines) is not int or not 1 <= self.engines <= MOST_ENGINES:
            raise ScheduleError(
                f"link: engines={self.engines!r:.80}; legal are 1, for both directions, and 2"
            )

    def duration(self, nbytes: int) -> Fraction:
        """Return the units of cost that a copy takes, exactly.

        Raises:
            ScheduleError: if the bandwidth is 0, and there is something to move.
        """
        if nbytes == 0 or self.bandwidth == inf:
            return Fraction(self.latency)
        if self.bandwidth == 0:
            raise ScheduleError(f"link: {nbytes:,} bytes cannot be moved at a bandwidth of 0")
        return Fraction(self.latency) + nbytes / Fraction(self.bandwidth)


def checked_link(link: object) -> Link:
    """Return a link, or raise a ScheduleError that says what one is."""
    if not isinstance(link, Link):
        raise ScheduleError(f"link={link!r:.80}; give a Link, such as tc.Link(bandwidth=25e9)")
    return link
