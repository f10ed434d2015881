"""PyTorch's memory snapshots: from a device's events to the bytes that were held over time.

Comes in: what ``torch.cuda.memory._snapshot`` returns, out of a file that anybody may have written:
``device_traces``, a list of events a device, and ``segments`` with the blocks of the end. Looked at
are ``alloc`` and ``free_requested``; segments that the allocator takes and gives back, frees that
are completed later, out-of-memory events and snapshots are other accounts of the same memory. An
allocation counts with the bytes that were asked for, without the allocator's rounding, so that the
sum is what a plan counts.

Recording may begin late, pause, or forget its oldest events (``max_entries``). Whatever is freed
and was never allocated was there from the start, and so were blocks in use that no event is about;
whoever allocates where something is has freed it unseen.

Source: the types in the docstring of ``torch.cuda.memory._snapshot``, PyTorch 2.0 to 2.9; the page
that plays files reads them likewise, in viz/lab/assets/snapshots.js.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinyckpt.base.errors import FormatError, OptionError
from tinyckpt.documents.reader import LARGEST, Reader

RECORD = "call torch.cuda.memory._record_memory_history() before what is to be measured"
MICROSECONDS = 1e-6
MOST_EVENTS = 10_000_000  # of one device
MOST_BLOCKS = 1_000_000  # of one device, over all of its segments


@dataclass(frozen=True, slots=True)
class BytesOverTime:
    """What a device held: bytes from each moment on, and whether moments are in seconds."""

    device: int
    timed: bool
    times: tuple[float, ...]
    bytes: tuple[int, ...]


def read_snapshot(path: object, content: Any, device: int | None) -> BytesOverTime:
    """Return what a device held.

    Raises:
        FormatError: if the data is no snapshot, has no events, or is damaged; says where.
        OptionError: if there is no such device, or one must be chosen.
    """
    reader = Reader(str(path))
    if isinstance(content, list):
        raise FormatError(f"{path}: it has segments and no events: {RECORD}")
    if not isinstance(content, dict):
        raise FormatError(f"{path}: it holds {type(content).__name__}, which is no memory snapshot")
    if "device_traces" not in content:
        raise FormatError(f"{path}: it has no device_traces, so it is no memory snapshot")
    traces = reader.check(content["device_traces"], list, "device_traces")
    for i, trace in enumerate(traces):
        reader.check(trace, list, f"device_traces[{i}]")
    chosen = chosen_device(path, [len(trace) for trace in traces], device)
    if len(traces[chosen]) > MOST_EVENTS:
        reader.fail(f"device_traces[{chosen}]", f"more than {MOST_EVENTS} events; record fewer")
    ends = in_use(reader, content.get("segments", []), chosen)
    return held_over(reader, traces[chosen], ends, chosen)


def chosen_device(path: object, counts: list[int], device: int | None) -> int:
    """Return the device that is asked for, or the only one that has events."""
    busy = [i for i, count in enumerate(counts) if count]
    if not busy:
        raise FormatError(f"{path}: it has no events: {RECORD}")
    legal = ", ".join(map(str, busy))
    if device is None and len(busy) > 1:
        raise OptionError(f"{path}: devices {legal} have events; choose one, device={busy[0]}")
    if device is not None and (isinstance(device, bool) or device not in busy):
        raise OptionError(f"{path}: device {device!r} has no events; those that have are {legal}")
    return busy[0] if device is None else device


def in_use(reader: Reader, segments: Any, device: int) -> dict[int, int]:
    """Return the bytes at each address that are in use at the end.

    Blocks are counted before they are looked at: a short file may give one long list of them to
    many segments.
    """
    found: dict[int, int] = {}
    count = 0
    for i, segment in enumerate(reader.check(segments, list, "segments")):
        at = f"segments[{i}]"
        if reader.count(reader.given(segment, "device", int, 0, at), f"{at}.device") != device:
            continue
        address = reader.count(reader.given(segment, "address", int, 0, at), f"{at}.address")
        blocks = reader.get(segment, "blocks", list, at)
        count += len(blocks)
        if count > MOST_BLOCKS:
            reader.fail(f"{at}.blocks", f"more than {MOST_BLOCKS} blocks of device {device}")
        for k, block in enumerate(blocks):
            place = f"{at}.blocks[{k}]"
            size = reader.count(reader.get(block, "size", int, place), f"{place}.size", LARGEST)
            own = reader.count(reader.given(block, "address", int, address, place), place)
            if reader.get(block, "state", str, place) == "active_allocated":
                wanted = reader.given(block, "requested_size", int, size, place)
                found[own] = reader.count(wanted, f"{place}.requested_size", LARGEST)
            address = own + size  # older snapshots say where a segment is, and no more
    return found


def held_over(
    reader: Reader, events: list[Any], ends: dict[int, int], device: int
) -> BytesOverTime:
    """Return what was held after each event."""
    alive: dict[int, int] = {}
    touched: set[int] = set()
    before = 0  # what was there from the start
    changes: list[int] = []
    moments: list[int] = []
    for i, event in enumerate(events):
        action = event.get("action") if type(event) is dict else None
        if action not in ("alloc", "free_requested"):
            if type(action) is not str:
                event = reader.check(event, dict, f"device_traces[{device}][{i}]")
                reader.get(event, "action", str, f"device_traces[{device}][{i}]")
            continue
        address, size, moment = fields_of(reader, event, device, i)
        known = alive.pop(address, None)
        if action == "alloc":
            alive[address] = size
            change = size - (known or 0)
        elif known is None and address in touched:
            change = 0  # both ends of an allocation: one unseen, and this one
        elif known is None:
            change = -size
            before += size
        else:
            change = -known
        touched.add(address)
        changes.append(change)
        moments.append(moment)
    if not changes:
        raise FormatError(f"{reader.path}: device {device} allocates nothing: {RECORD}")
    before += sum(size for address, size in ends.items() if address not in touched)
    return staircase(reader, device, before, changes, moments)


def fields_of(reader: Reader, event: dict[str, Any], device: int, i: int) -> tuple[int, int, int]:
    """Return address, bytes and time of an event; time is -1 where it has none."""
    address, size, moment = event.get("addr"), event.get("size"), event.get("time_us", -1)
    if (
        type(address) is type(size) is type(moment) is int
        and 0 <= address < LARGEST
        and 0 <= size < LARGEST
        and -1 <= moment < LARGEST
    ):
        return address, size, moment
    at = f"device_traces[{device}][{i}]"
    reader.count(reader.get(event, "addr", int, at), f"{at}.addr", LARGEST)
    reader.count(reader.get(event, "size", int, at), f"{at}.size", LARGEST)
    reader.count(reader.given(event, "time_us", int, 0, at), f"{at}.time_us", LARGEST)
    raise AssertionError("one of the three is not legal")


def staircase(
    reader: Reader, device: int, before: int, changes: list[int], moments: list[int]
) -> BytesOverTime:
    """Return levels from changes, over seconds where events have times that differ."""
    timed = min(moments) >= 0 and max(moments) > moments[0]
    times, held = [0.0], [before]
    first = latest = moments[0]
    for i, (change, moment) in enumerate(zip(changes, moments, strict=True)):
        latest = max(latest, moment)  # threads write events a little out of order
        times.append((latest - first) * MICROSECONDS if timed else float(i + 1))
        held.append(held[-1] + change)
    if max(held) >= LARGEST:
        reader.fail(f"device_traces[{device}]", "more bytes are held than any machine has")
    return BytesOverTime(device, timed, tuple(times), tuple(held))
