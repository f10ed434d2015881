"""Memory that was measured, over time: from PyTorch's snapshots, or from a list of (time, bytes).

Goes out: a ``Measured``, a staircase of bytes over seconds, which ``viz.player`` and ``viz.lab``
draw over what was planned. What is not in it: who held what; stacks are not looked at.

A list is JSON, ``[[0.0, 1024], [0.5, 4096]]``, or CSV, a line each, with a heading or without:
seconds, never going back, and the bytes that are held from then on.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tinyckpt.base.errors import FormatError, OptionError
from tinyckpt.base.units import size_text
from tinyckpt.documents.pickles import read_pickle
from tinyckpt.documents.reader import Reader, read_bytes
from tinyckpt.documents.snapshots import read_snapshot

MOST_SAMPLES = 1_000_000  # of a list; pages draw a tenth of them
PICKLE = 0x80  # with which every pickle since protocol 2 begins
Unit = Literal["seconds", "events"]


@dataclass(frozen=True, slots=True, repr=False)
class Measured:
    """Memory that was measured: from each moment to the next so many bytes were held.

    Attributes:
        source: the name of the file.
        what: what it is, such as ``device 0 of a PyTorch snapshot``.
        unit: what ``times`` count: ``seconds``, or ``events`` where a snapshot has no times.
        times: from 0 on, never going back.
        bytes: held from each of these moments on, with everything that was there before.
        base: how many of these bytes are left out where this is compared with a plan: what was
            there before, such as parameters, which a plan does not count.
    """

    source: str
    what: str
    unit: Unit
    times: tuple[float, ...]
    bytes: tuple[int, ...]
    base: int = 0

    def __repr__(self) -> str:
        left = f", less {size_text(self.base)}" if self.base else ""
        return (
            f"<Measured {self.source}: {self.what}; {len(self.times):,} moments in "
            f"{self.times[-1]:.4g} {self.unit}, peak {size_text(self.peak)}{left}>"
        )

    @property
    def peak(self) -> int:
        """The most bytes that were held at once, less ``base``."""
        return max(0, max(self.bytes) - self.base)

    def less(self, base: int | None = None) -> Measured:
        """Return the same with another base, in bytes; by default what is held at its start.

        Raises:
            OptionError: if it is not a number of bytes.
        """
        if base is not None and (isinstance(base, bool) or not isinstance(base, int) or base < 0):
            raise OptionError(f"base: {base!r} must be a number of bytes, 0 or more")
        return replace(self, base=self.bytes[0] if base is None else base)

    def between(self, begin: float, end: float) -> Measured:
        """Return a part, such as one training step: its times from 0, its base what it starts with.

        Args:
            begin, end: in what ``times`` count.

        Raises:
            OptionError: if there is no such part.
        """
        if not 0 <= begin < end or begin >= self.times[-1]:
            raise OptionError(
                f"between {begin:g} and {end:g}: it must begin before it ends, within 0 to "
                f"{self.times[-1]:g} {self.unit}"
            )
        first = bisect_right(self.times, begin) - 1
        last = bisect_right(self.times, end)
        times = [max(0.0, time - begin) for time in self.times[first:last]]
        held = list(self.bytes[first:last])
        times.append(min(end, self.times[-1]) - begin)
        held.append(held[-1])
        return replace(self, times=tuple(times), bytes=tuple(held), base=held[0])


def load_measured(path: str | os.PathLike[str], *, device: int | None = None) -> Measured:
    """Read what was measured: PyTorch's snapshot, or a list of (seconds, bytes) as JSON or CSV.

    A snapshot is what ``torch.cuda.memory._dump_snapshot`` writes after
    ``torch.cuda.memory._record_memory_history()``. Nothing of the file is executed. An allocation
    counts with the bytes that were asked for, from its event until its free is requested; what was
    there before the first event counts throughout. ``base`` is what is held at the start, since a
    plan does not count what is there before; ``less`` has another.

    Args:
        path: of the file.
        device: which device of a snapshot; needed where several have events.

    Raises:
        FormatError: if the file cannot be read, is damaged, or is none of these; says where.
        OptionError: if there is no such device, or one must be chosen.
    """
    name = Path(path).name
    content = read_bytes(path, ": record fewer events (max_entries=100000)")
    if content[:1] == bytes([PICKLE]):
        found = read_snapshot(path, read_pickle(content, path), device)
        what = f"device {found.device} of a PyTorch snapshot"
        unit: Unit = "seconds" if found.timed else "events"
        return Measured(name, what, unit, found.times, found.bytes).less()
    if device is not None:
        raise OptionError(f"device {device}: {path} is a list, which has no devices")
    times, held = read_samples(Reader(path), content)
    return Measured(name, "a list of seconds and bytes", "seconds", times, held).less()


def read_samples(reader: Reader, content: bytes) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return the times, from 0 on, and the bytes of a list of pairs."""
    # Before anything is made of it: each moment has a line, or a bracket, of its own.
    if max(content.count(b"\n"), content.count(b"[")) > MOST_SAMPLES + 2:
        raise FormatError(
            f"{reader.path}: more than {MOST_SAMPLES:,} moments; at most that many are read"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FormatError(
            f"{reader.path} is neither a pickle of a PyTorch snapshot nor a list as text"
        ) from None
    rows = json_rows(reader, text) if text.lstrip()[:1] in ("[", "{") else csv_rows(reader, text)
    if not rows:
        raise FormatError(f"{reader.path}: it has no moments; expected pairs of seconds and bytes")
    if len(rows) > MOST_SAMPLES:
        raise FormatError(
            f"{reader.path}: {len(rows):,} moments; at most {MOST_SAMPLES:,} are read"
        )
    times, held = [], []
    for where, row in rows:
        time, amount = reader.row(row, 2, where)
        times.append(reader.number(time, f"{where}[0]"))
        held.append(int(reader.number(amount, f"{where}[1]")))
        if len(times) > 1 and times[-1] < times[-2]:
            reader.fail(f"{where}[0]", f"{times[-1]:g} is before {times[-2]:g}: time goes on")
    return tuple(time - times[0] for time in times), tuple(held)


def json_rows(reader: Reader, text: str) -> Sequence[tuple[str, Any]]:
    """Return the entries of a JSON list, each with where it is."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"{reader.path} is not a complete JSON document ({error}); was the file cut short?"
        ) from error
    rows = reader.check(content, list, "measured")
    return [(f"measured[{i}]", row) for i, row in enumerate(rows)]


def csv_rows(reader: Reader, text: str) -> Sequence[tuple[str, list[float]]]:
    """Return the lines of a table as numbers, each with where it is; a heading is left out."""
    rows: list[tuple[str, list[float]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        cells = [cell.strip().strip('"') for cell in line.split(",")]
        try:
            rows.append((f"line {number}", [float(cell) for cell in cells]))
        except ValueError:
            if not rows and number == 1 and len(cells) == 2:
                continue
            reader.fail(
                f"line {number}", f"{line[:80]!r}: expected seconds,bytes, such as 0.5,4096"
            )
    return rows
