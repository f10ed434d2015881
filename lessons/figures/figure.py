"""One published figure: the claim, the number that the engine counts, and whether they agree."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tinyckpt as tc

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the page.

    Attributes:
        claim: the published statement.
        source: its publication.
        counted: the value counted on a graph.
        measured: the value measured in a process, where it fits; may be empty.
        comes_out: whether the count confirms the claim; computed, never written by hand.
        why: the verdict in a sentence.
    """

    claim: str
    source: str
    counted: str
    comes_out: bool
    why: str
    measured: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the figure's row."""
        verdict = "**Yes.**" if self.comes_out else "**No.**"
        return self.claim, self.source, self.counted, self.measured, f"{verdict} {self.why}"


def rows(header: Sequence[str], body: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *body]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def table(figures: Sequence[Figure]) -> str:
    """Return the table of some figures."""
    header = ("claim", "source", "counted", "measured", "confirmed?")
    return rows(header, [figure.cells for figure in figures])


def percent(share: float, digits: int = 1) -> str:
    """Return a share as text: ``70.2 %``."""
    return f"{100 * share:.{digits}f} %"


def mib(nbytes: float, digits: int = 1) -> str:
    """Return bytes as text: ``1,010.3 MiB``."""
    return f"{nbytes / MIB:,.{digits}f} MiB"


def gib(nbytes: float) -> str:
    """Return bytes as text: ``25.1 GiB``."""
    return f"{nbytes / 2**30:,.1f} GiB"


def measured(schedule: tc.Schedule, *args: Any) -> str:
    """Run the program of a schedule; compare its tracemalloc peak with the counted one.

    The text is the same in every run, unless the two differ by 1 % or more.
    """
    program = tc.compile(schedule)
    program(*args)  # warm up: import caches and other one-time allocations
    gc.collect()
    tracemalloc.start()
    program(*args)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    counted = tc.replay(schedule).peak_bytes
    if abs(peak - counted) < 0.01 * counted:
        return "within 1 %"
    return f"{mib(peak)} instead of {mib(counted)}"
