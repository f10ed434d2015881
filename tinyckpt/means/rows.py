"""What weighing the means found: one row for each, as data, as a table, as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import isfinite
from numbers import Real
from typing import Any

from tinyckpt.base.units import size_text
from tinyckpt.core.schedule import Schedule
from tinyckpt.means.case import Gradients
from tinyckpt.planner.offload.link import Link
from tinyckpt.planner.portfolio.table import table

TEXTS: dict[Gradients, str] = {
    "bitwise": "exact, bit for bit",
    "rounded": "exact but for rounding",
    "unproven": "exact",
    "approximate": "approximate:",
}


@dataclass(frozen=True, slots=True)
class Row:
    """What one of the means takes; where it does not apply, why.

    Attributes:
        name: as in ``MEANS``.
        why: why there is nothing to say; empty where there is, and else all numbers are None.
        peak: bytes, on the device that holds most: what is counted is what schedules hold, and
            gradients that micro-batches add up.
        share: of store-all's peak.
        fits: whether the peak is within the budget.
        times: what a step takes by the model, all devices' time together, as times store-all's.
        measured: what a step took here, as times store-all's in the same run; None where it was
            not run.
        gradients: ``bitwise`` equal to store-all's; equal but ``rounded``; so if the
            loss is a mean over samples, ``unproven``; or ``approximate``.
        sense: in what sense they are approximate, or why they may be.
        not_run: why it was not run here, where others were, or might have been.
        error: how far they were off here: a norm, as a share of the gradients'.
        takes: what it takes besides, in a few words.
        host_bytes: the most that is on the host.
        devices: how many it takes.
        schedules: what was planned.
    """

    name: str
    why: str = ""
    peak: int | None = None
    share: float | None = None
    fits: bool | None = None
    times: float | None = None
    measured: float | None = None
    gradients: Gradients | None = None
    sense: str = ""
    error: float | None = None
    not_run: str = ""
    takes: str = ""
    host_bytes: int = 0
    devices: int = 1
    schedules: tuple[Schedule, ...] = field(default=(), repr=False, compare=False)

    @property
    def is_exact(self) -> bool:
        """Whether gradients are known to be those of the network, but for rounding."""
        return self.gradients in ("bitwise", "rounded")

    def cells(self, budget: int) -> list[str]:
        """Return the row of the printed table, under HEADER."""
        if self.peak is None:
            return [self.name, "", "", "", "", "", "", "", self.why]
        assert self.gradients is not None
        assert self.share is not None
        gradients = TEXTS[self.gradients]
        return [
            self.name,
            size_beside(self.peak, budget),
            f"{100 * self.share:.1f} %",
            "yes" if self.fits else "no",
            f"{self.times:.3f}",
            "" if self.measured is None else f"{self.measured:.2f}",
            "" if self.error is None else f"{self.error:.1g}",
            f"{gradients} {self.sense}".strip(),
            self.takes,
        ]


HEADER = (
    "means", "peak", "of store-all's", "fits", "x time", "x measured", "off by", "gradients",
    "takes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Weighing:
    """All means, weighed on one network.

    Attributes:
        name: the network's.
        budget: in bytes.
        unit: of costs.
        link: of the copies; None if none is known.
        rows: one for each of ``MEANS``.
        note: why nothing was measured; empty if it was.
    """

    name: str
    budget: int
    unit: str
    link: Link | None
    rows: tuple[Row, ...]
    note: str = ""

    def row(self, name: str) -> Row:
        """Return the row of a means."""
        return next(row for row in self.rows if row.name == name)

    def __str__(self) -> str:
        alike = [row for row in self.rows if row.peak and is_alike(row.peak, self.budget)]
        budget = size_text(self.budget) + (f", {self.budget:,} B" if alike else "")
        head = f"{self.name} within {budget}; time in {self.unit}"
        if self.link is not None:
            head += f", copies at {float(self.link.bandwidth):.4g} bytes for each"
        columns = list(zip(HEADER, *(row.cells(self.budget) for row in self.rows), strict=True))
        header, *rows = zip(*(c for c in columns if any(c[1:])), strict=True)
        lines = [head, table(header, rows)]
        if self.note:
            return "\n".join([*lines, self.note])
        return "\n".join([*lines, *(f"not run: {each}" for each in self.left_out())])

    def left_out(self) -> list[str]:
        """Return the reasons for which some means were not run, each with their names."""
        names: dict[str, list[str]] = {}
        for row in self.rows:
            if row.not_run:
                names.setdefault(row.not_run, []).append(row.name)
        return [f"{', '.join(own)}: {reason}" for reason, own in names.items()]

    def document(self) -> dict[str, Any]:
        """Return the data as JSON has them, schedules left out; null for what is infinite."""
        names = [each.name for each in fields(Row) if each.name != "schedules"]
        link = None
        if self.link is not None:
            link = {
                "bandwidth": in_json(self.link.bandwidth),
                "latency": in_json(self.link.latency),
                "engines": self.link.engines,
            }
        return {
            "network": self.name,
            "budget": self.budget,
            "unit": self.unit,
            "link": link,
            "note": self.note,
            "rows": [{name: in_json(getattr(row, name)) for name in names} for row in self.rows],
        }


def in_json(value: Any) -> Any:
    """Return a value as JSON has it, which has no number that is not finite."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    if not isinstance(value, int):
        value = float(value)
    return value if isinstance(value, int) or isfinite(value) else None


def is_alike(amount: int, other: int) -> bool:
    """Whether two amounts of bytes are not the same, and read so."""
    return amount != other and size_text(amount) == size_text(other)


def size_beside(amount: int, other: int) -> str:
    """Return bytes as people read them, or all of them where another amount would read alike."""
    return f"{amount:,} B" if is_alike(amount, other) else size_text(amount)
