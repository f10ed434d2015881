"""Measured memory over time: from PyTorch's memory snapshots, or from a list of (seconds, bytes).

Out: a ``Measured``, a step function of bytes over seconds, which ``viz.player`` and ``viz.lab``
draw over a plan's predicted memory. Not included: the owner of each allocation; stack traces are
ignored.

A list is JSON, ``[[0.0, 1024], [0.5, 4096]]``, or CSV, one sample per line, with or without a
heading: seconds, never decreasing, and the bytes allocated from then on.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tinyckpt.base.errors import FormatError, OptionError
from tinyckpt.base.files import checked_path
from tinyckpt.base.units import size_text
from tinyckpt.documents.json_reader import Reader, read_bytes
from tinyckpt.documents.torch_snapshots import read_snapshot

MOST_SAMPLES = 1_000_000  # of a list; pages draw at most a tenth as many
PICKLE = 0x80  # the first byte of every pickle since protocol 2
Unit = Literal["seconds", "events"]


@dataclass(frozen=True, slots=True, repr=False)
class Measured:
    """Measured memory: a step function of allocated bytes over time.

    Attributes:
        source: the name of the file.
        what: a description, such as ``device 0 of a PyTorch snapshot``.
        unit: of ``times``: ``seconds``, or ``events`` where a snapshot has no times.
        times: from 0 on, never decreasing.
        bytes: allocated from each of these times on, earlier allocations included.
        base: bytes subtracted for a comparison with a plan: allocations from before the recording,
            such as parameters, which a plan does not count.

    >>> run = Measured("run.csv", "a list", "seconds", (0.0, 1.0, 2.0), (100, 300, 100))
    >>> run.peak, run.less().peak, run.between(0.5, 1.5).times
    (300, 200, (0.0, 0.5, 1.0))
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
        """The peak, in bytes, minus ``base``."""
        return max(0, max(self.bytes) - self.base)

    def less(self, base: int | None = None) -> Measured:
        """Return a copy with another base, in bytes; by default the bytes at the start.

        Raises:
            OptionError: if it is not a number of bytes.
        """
        if base is not None and (isinstance(base, bool) or not isinstance(base, int) or base < 0):
            raise OptionError(f"base: {base!r} must be a number of bytes, 0 or more")
        return replace(self, base=self.bytes[0] if base is None else base)

    def between(self, begin: float, end: float) -> Measured:
        """Return an interval, such as one training step: times from 0, the base its first bytes.

        Args:
            begin, end: in the unit of ``times``.

        Raises:
            OptionError: if the interval is empty or outside the recording.
        """
        if not 0 <= begin < end or begin >= self.times[-1]:
            raise OptionError(
                f"between {begin:g} and {end:g}: it must begin before it ends, within 0 to "
                f"{self.times[-1]:g} {self.unit}"
            )
        first = bisect_right(self.times, begin) - 1
        last = bisect_right(self.times, end)
        times = [max(0.0, time - begin) for time in self.times[first:last]]
        amounts = list(self.bytes[first:last])
        times.append(min(end, self.times[-1]) - begin)
        amounts.append(amounts[-1])
        return replace(self, times=tuple(times), bytes=tuple(amounts), base=amounts[0])


def load_measured(path: str | os.PathLike[str], *, device: int | None = None) -> Measured:
    """Read measured memory: a PyTorch snapshot, or a list of (seconds, bytes) as JSON or CSV.

    A snapshot is the file that ``torch.cuda.memory._dump_snapshot`` writes after
    ``torch.cuda.memory._record_memory_history()``. Nothing in the file is executed. An allocation
    counts its requested bytes, from its event until its free is requested; memory allocated before
    the first event counts throughout. ``base`` is the bytes at the start, since a plan does not
    count earlier allocations; ``less`` sets another.

    Args:
        path: of the file.
        device: a device of the snapshot; needed where several have events.

    Raises:
        FormatError: if the file cannot be read, is damaged, or is none of these; says where.
        OptionError: if there is no such device, or one must be chosen.

    >>> import pathlib, tempfile, tinyckpt as tc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "run.csv"
    ...     _ = path.write_text("seconds,bytes\\n0.0,1024\\n0.5,4096\\n")
    ...     run = tc.load_measured(path)
    >>> run.times, run.bytes, run.base
    ((0.0, 0.5), (1024, 4096), 1024)
    """
    name = checked_path(path).name
    content = read_bytes(path, ": record fewer events (max_entries=100000)")
    if content[:1] == bytes([PICKLE]):
        # Only here: its table of opcodes takes a hundredth of the time to import tinyckpt.
        from tinyckpt.documents.safe_unpickler import read_pickle

        found = read_snapshot(path, read_pickle(content, path), device)
        what = f"device {found.device} of a PyTorch snapshot"
        unit: Unit = "seconds" if found.timed else "events"
        return Measured(name, what, unit, found.times, found.bytes).less()
    if device is not None:
        raise OptionError(f"device {device}: {path} is a list, which has no devices")
    times, amounts = read_samples(Reader(path), content)
    return Measured(name, "a list of seconds and bytes", "seconds", times, amounts).less()


def read_samples(reader: Reader, content: bytes) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Parse a list of pairs: times, from 0 on, and bytes."""
    # A bound before parsing: each sample has a line, or a bracket, of its own.
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
    times, amounts = [], []
    for where, row in rows:
        time, amount = reader.row(row, 2, where)
        times.append(reader.number(time, f"{where}[0]"))
        amounts.append(int(reader.number(amount, f"{where}[1]")))
        if len(times) > 1 and times[-1] < times[-2]:
            reader.fail(f"{where}[0]", f"{times[-1]:g} is before {times[-2]:g}: time goes on")
    return tuple(time - times[0] for time in times), tuple(amounts)


def json_rows(reader: Reader, text: str) -> Sequence[tuple[str, Any]]:
    """Return the entries of a JSON list, each with its location for errors."""
    rows = reader.check(reader.parse(text), list, "measured")
    return [(f"measured[{i}]", row) for i, row in enumerate(rows)]


def csv_rows(reader: Reader, text: str) -> Sequence[tuple[str, list[float]]]:
    """Return the lines of a CSV table as numbers, each with its location; a heading is skipped."""
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
