"""PyTorch memory snapshots: from a device's alloc and free events to allocated bytes over time.

In: the value of ``torch.cuda.memory._snapshot``, from an untrusted file: ``device_traces``, a list
of events per device, and ``segments`` with the blocks at the end. The events ``alloc`` and
``free_requested`` are used; the allocator's segments, completed frees, out-of-memory events and
snapshots account for the same memory in other ways, and are ignored. An allocation counts its
requested bytes, without the allocator's rounding, so that the sum is comparable to a plan's.

Recording may begin late, pause, or drop its oldest events (``max_entries``). A block that is freed
without an allocation event was allocated before the start, and so was a block in use that no event
mentions; an allocation at an address in use implies a free that was not recorded.

Source: the types in the docstring of ``torch.cuda.memory._snapshot``, PyTorch 2.0 to 2.9; the lab
page has the same reader in viz/lab/assets/snapshots.js.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinyckpt.base.errors import FormatError, OptionError
from tinyckpt.documents.json_reader import LARGEST, Reader

RECORD = "call torch.cuda.memory._record_memory_history() before what is to be measured"
MICROSECONDS = 1e-6
MOST_EVENTS = 10_000_000  # of one device
MOST_BLOCKS = 1_000_000  # of one device, over all of its segments


@dataclass(frozen=True, slots=True)
class BytesOverTime:
    """Allocated bytes of a device, from each time on; ``timed`` if times are in seconds."""

    device: int
    timed: bool
    times: tuple[float, ...]
    bytes: tuple[int, ...]


def read_snapshot(path: object, content: Any, device: int | None) -> BytesOverTime:
    """Return the allocated bytes of a device over time.

    Raises:
        FormatError: if the data is not a snapshot, has no events, or is damaged; says where.
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
    ends = bytes_in_use(reader, content.get("segments", []), chosen)
    return accumulate(reader, traces[chosen], ends, chosen)


def chosen_device(path: object, counts: list[int], device: int | None) -> int:
    """Return the requested device, or the only one with events."""
    busy = [i for i, count in enumerate(counts) if count]
    if not busy:
        raise FormatError(f"{path}: it has no events: {RECORD}")
    legal = ", ".join(map(str, busy))
    if device is None and len(busy) > 1:
        raise OptionError(f"{path}: devices {legal} have events; choose one, device={busy[0]}")
    if device is not None and (isinstance(device, bool) or device not in busy):
        raise OptionError(f"{path}: device {device!r} has no events; those that have are {legal}")
    return busy[0] if device is None else device


def bytes_in_use(reader: Reader, segments: Any, device: int) -> dict[int, int]:
    """Return the bytes in use at the end of the recording, by address.

    Blocks are counted before they are read: a short file may share one long list of blocks between
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
            entry = f"{at}.blocks[{k}]"
            size = reader.count(reader.get(block, "size", int, entry), f"{entry}.size", LARGEST)
            own = reader.count(reader.given(block, "address", int, address, entry), entry)
            if reader.get(block, "state", str, entry) == "active_allocated":
                requested = reader.given(block, "requested_size", int, size, entry)
                found[own] = reader.count(requested, f"{entry}.requested_size", LARGEST)
            address = own + size  # older snapshots have the address of the segment only
    return found


def accumulate(
    reader: Reader, events: list[Any], ends: dict[int, int], device: int
) -> BytesOverTime:
    """Accumulate the events of a device to the allocated bytes after each one."""
    alive: dict[int, int] = {}
    touched: set[int] = set()
    before = 0  # bytes allocated before the first event
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
            change = 0  # the free of an allocation that was not recorded: both cancel
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
    return step_function(reader, device, before, changes, moments)


def fields_of(reader: Reader, event: dict[str, Any], device: int, i: int) -> tuple[int, int, int]:
    """Return address, bytes and time of an event; the time is -1 where it has none."""
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


def step_function(
    reader: Reader, device: int, before: int, changes: list[int], moments: list[int]
) -> BytesOverTime:
    """Integrate changes to a step function, over seconds if events have different times."""
    timed = min(moments) >= 0 and max(moments) > moments[0]
    times, totals = [0.0], [before]
    first = latest = moments[0]
    for i, (change, moment) in enumerate(zip(changes, moments, strict=True)):
        latest = max(latest, moment)  # threads record events slightly out of order
        times.append((latest - first) * MICROSECONDS if timed else float(i + 1))
        totals.append(totals[-1] + change)
    if max(totals) >= LARGEST:
        reader.fail(f"device_traces[{device}]", "more bytes are held than any machine has")
    return BytesOverTime(device, timed, tuple(times), tuple(totals))
