"""Data of a pipeline chart: per device, compute blocks, bubbles, messages and memory over time.

A replayed pipeline comes in, columns of plain numbers go out, for ``pipeline`` and the player.
Times are those of the trace: integers in units of 1/``unit``, or floats. On every device, blocks
and bubbles alternate from 0 to the makespan, so that every moment is accounted for exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.base.units import size_text
from tinyckpt.pipeline.program import COLLECTIVES, KINDS, Kind

from ..scene import count_text, one_line

if TYPE_CHECKING:
    from tinyckpt.pipeline import PipelineTrace

MOST_SCHEDULES = 8  # in one picture: more are too small to be compared
# Kinds of work that take time, in the order of a legend. The full backward and the input gradient
# share a colour: the stage before waits for either.
WORK = {
    "forward": (Kind.FORWARD,),
    "recomputation": (Kind.RECOMPUTE,),
    "backward": (Kind.BACKWARD,),
    "backward (inputs)": (Kind.BACKWARD_INPUT,),
    "backward (weights)": (Kind.BACKWARD_WEIGHT,),
    "update": (Kind.UPDATE,),
}
TITLES = {
    "gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "interleaved 1F1B", "zb-h1": "ZB-H1",
    "v-min": "V-Min", "v-half": "V-Half",
}  # fmt: skip
ROUNDING = 1e-12  # relative tolerance of times in floats
FEW = 8  # peaks that fit a line of text
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))


@dataclass(frozen=True, slots=True, eq=False)
class DeviceLane:
    """One device over time.

    Attributes:
        device: its number.
        stages: the stages on it, in order.
        kind, stage, micro_batch, begin, end: columns with an entry per block: an action that takes
            time, or would if it had a cost.
        idle: begin and end of each bubble, (bubbles, 2).
        times, held: corners of its memory curve: from each time on the amount, until the next.
            Where two times are equal, an action takes no time.
    """

    device: int
    stages: tuple[int, ...]
    kind: Any
    stage: Any
    micro_batch: Any
    begin: Any
    end: Any
    idle: Any
    times: Any
    held: Any


def lane_of(trace: PipelineTrace, device: int) -> DeviceLane:
    """Return the lane of one device of a replayed pipeline."""
    own = trace.lane(device)
    is_work = own.kind <= Kind.UPDATE
    makespan = ticks_of(trace)
    begin, end = own.start[is_work], (own.start + own.duration)[is_work]
    if isinstance(makespan, float):
        moments, places = moments_of(np.concatenate([begin, end, [0, makespan]]))
        begin, end, (_, makespan) = np.split(moments[places], [len(begin), 2 * len(begin)])
    gaps = np.stack([np.append(0, end), np.append(begin, makespan)], axis=1)
    # The memory of an action from its begin to its end; then what remains, until the next one.
    times = np.stack([begin, end], axis=1).reshape(-1)
    held = np.stack([own.during[is_work], own.after[is_work]], axis=1).reshape(-1)
    return DeviceLane(
        device,
        tuple(np.flatnonzero(trace.pipeline.device_of == device).tolist()),
        own.kind[is_work],
        own.stage[is_work],
        own.micro_batch[is_work],
        begin,
        end,
        gaps[gaps[:, 1] > gaps[:, 0]],
        np.concatenate([[0], times, [makespan]]).astype(times.dtype),
        np.concatenate([[0], held, held[-1:] if len(held) else [0]]),
    )


def moments_of(times: Any) -> tuple[Any, Any]:
    """Return the distinct times, ascending, and for each time its index among them.

    Floats that differ by rounding errors are one moment: the end of a block is the begin of the
    next.
    """
    moments, places = np.unique(times, return_inverse=True)
    if moments.dtype.kind != "f":
        return moments, places
    is_new = np.append(True, np.diff(moments) > ROUNDING * moments[-1])
    return moments[is_new], (np.cumsum(is_new) - 1)[places]


def ticks_of(trace: PipelineTrace) -> Any:
    """Return the makespan in the unit of the starts."""
    if isinstance(trace.makespan, float):
        return trace.makespan
    return int(trace.makespan * trace.unit)


def messages_of(trace: PipelineTrace) -> Any:
    """Return every message between devices: send time, source, arrival time, target; (n, 4)."""
    own = trace.pipeline
    way = trace.costs.communication * trace.unit
    rows = []
    for kind, towards in ((Kind.SEND_ACTIVATION, 1), (Kind.SEND_COTANGENT, -1)):
        sends = np.flatnonzero(own.kind == kind)
        stage, sent = own.stage[sends], trace.starts[sends].astype(float)
        devices = own.device_of[stage], own.device_of[stage + towards]
        rows.append(np.stack([sent, devices[0], sent + float(way), devices[1]], axis=1))
    return np.concatenate(rows)


def ready_of(trace: PipelineTrace) -> tuple[Any, Any]:
    """Return for every block when its inputs are ready, and what its device receives before it.

    A value from the same device is ready when it is computed, one from another device when its
    message has arrived. Where a device receives a message before a block that does not read it, or
    takes part in a collective with its replicas, the block waits for that too.

    Returns:
        Columns with an entry per block, device by device; -1 where there is none.
    """
    own = trace.pipeline
    kind, stage, micro_batch = own.kind, own.stage, own.micro_batch
    ends = trace.starts + trace.durations[kind, stage]
    exact = int if ends.dtype.kind == "i" else float
    way = ends.dtype.type(exact(trace.costs.communication * trace.unit))
    done = np.full((len(KINDS), own.stages, own.micro_batches), -1, ends.dtype)
    done[kind, stage, micro_batch] = ends
    back = np.maximum(done[Kind.BACKWARD], done[Kind.BACKWARD_INPUT])
    there = np.full_like(done, -1)
    there[Kind.FORWARD, 1:] = done[Kind.FORWARD, :-1]
    there[Kind.RECOMPUTE] = done[Kind.FORWARD]
    there[Kind.BACKWARD, :-1] = back[1:]
    depth = own.stages // own.replicas  # a replica begins with the first stage, ends with the last
    there[Kind.FORWARD, ::depth] = -1
    there[Kind.BACKWARD, depth - 1 :: depth] = done[Kind.FORWARD, depth - 1 :: depth]
    for message, result, towards in (
        (Kind.SEND_ACTIVATION, Kind.FORWARD, 1),
        (Kind.SEND_COTANGENT, Kind.BACKWARD, -1),
    ):
        sends = np.flatnonzero(kind == message)
        there[result, stage[sends] + towards, micro_batch[sends]] = trace.starts[sends] + way
    there[Kind.BACKWARD_INPUT], there[Kind.BACKWARD_WEIGHT] = there[Kind.BACKWARD], back
    there[Kind.UPDATE] = np.maximum(back, done[Kind.BACKWARD_WEIGHT]).max(axis=1, keepdims=True)
    there[Kind.RECV_ACTIVATION] = there[Kind.FORWARD]
    there[Kind.RECV_COTANGENT] = there[Kind.BACKWARD]
    came = there[kind, stage, micro_batch]
    blocks = np.flatnonzero(kind <= Kind.UPDATE)
    is_recv = (kind == Kind.RECV_ACTIVATION) | (kind == Kind.RECV_COTANGENT)
    # The actions after the previous block (which may be of another device), up to each block.
    since = np.append(0, blocks[:-1] + 1)
    messages = np.where(is_recv, came, came.dtype.type(-1))
    together = np.isin(kind, COLLECTIVES)
    messages[together] = trace.starts[together]  # a collective begins when it is over
    return came[blocks], np.maximum.reduceat(messages, since) if len(blocks) else messages


def blocks_of(trace: PipelineTrace) -> int:
    """Return the largest number of blocks of a device."""
    own = trace.pipeline
    bounds = own.first.tolist()
    counts = [
        int(np.count_nonzero(own.kind[begin:end] <= Kind.UPDATE)) for begin, end in pairwise(bounds)
    ]
    return max(counts, default=0)


def shares_of(trace: PipelineTrace, rows: int, columns: int, makespan: float) -> Any:
    """Return utilisation: the share of each kind of work per row and column; (rows, columns, work).

    Args:
        trace: of the pipeline.
        rows: each aggregates adjacent devices.
        columns: of equal time.
        makespan: where the last column ends.
    """
    devices = trace.pipeline.devices
    edges = np.linspace(0, makespan, columns + 1)
    shares = np.zeros((rows, columns, len(WORK)))
    members = np.zeros(rows)
    for device in range(devices):
        lane = lane_of(trace, device)
        row = device * rows // devices
        members[row] += 1
        for number, kinds in enumerate(WORK.values()):
            among = np.isin(lane.kind, kinds)
            shares[row, :, number] += covered(lane.begin[among], lane.end[among], edges)
    return shares / members[:, None, None]


def covered(begin: Any, end: Any, edges: Any) -> Any:
    """Return the share of each interval between edges that some spans cover."""
    if not len(begin):
        return np.zeros(len(edges) - 1)
    at = np.stack([begin, end], axis=1).reshape(-1)
    done = np.cumsum(np.stack([np.zeros(len(begin)), end - begin], axis=1).reshape(-1))
    return np.diff(np.interp(edges, at, done)) / np.diff(edges)


def highest_peaks(trace: PipelineTrace, most: int) -> list[int]:
    """Return the device of the highest peak in each of at most ``most`` runs of devices."""
    devices = trace.pipeline.devices
    rows = min(most, devices)
    bounds = [-(-row * devices // rows) for row in range(rows + 1)]
    return [
        max(range(begin, end), key=lambda device: (trace.peaks[device], -device))
        for begin, end in pairwise(bounds)
    ]


# Texts --------------------------------------------------------------------------------------------


def as_pipelines(traces: Any) -> list[PipelineTrace]:
    """Return one replayed pipeline or several as a list, if one picture can show them.

    Raises:
        OptionError: says why not.
    """
    found = list(traces) if isinstance(traces, Sequence) else [traces]
    for trace in found:
        if not hasattr(trace, "bubble"):
            raise OptionError(
                f"expected a replayed pipeline or several, got a {type(trace).__name__}; "
                "replay_pipeline(pipeline) makes one"
            )
    if not found or not all(len(trace.pipeline) and trace.makespan for trace in found):
        raise OptionError(
            "nothing to draw: give at least one pipeline, in which something takes time"
        )
    if len(found) > MOST_SCHEDULES:
        raise OptionError(f"{len(found)} pipelines; at most {MOST_SCHEDULES} fit in one picture")
    measures = sorted({trace.costs.measure for trace in found})
    if len(measures) > 1:
        raise OptionError(
            f"the pipelines' costs are {' and '.join(map(repr, measures))}, which have no common "
            "axis; replay them with costs in one measure"
        )
    if len({trace.footprints is None for trace in found}) > 1:
        raise OptionError(
            "some of the pipelines were replayed with footprints, and some without: bytes and "
            "micro-batches have no common axis"
        )
    return found


def title_of(trace: PipelineTrace) -> str:
    """Return the name of the schedule as a heading, and whether stages are recomputed."""
    name = TITLES.get(trace.pipeline.name, one_line(trace.pipeline.name))
    return f"{name}, recomputing" if (trace.pipeline.kind == Kind.RECOMPUTE).any() else name


def subtitles_of(trace: PipelineTrace) -> list[str]:
    """Return the sizes and the largest memory of a device: the longest form first."""
    own = trace.pipeline
    sizes = f"{counted(own.devices, 'device')}, {counted(own.micro_batches, 'micro-batch')}"
    if own.replicas > 1:
        sizes = f"{counted(own.replicas, 'replica')} on {sizes} each"
    elif own.stages > own.devices:
        sizes = f"{counted(own.stages, 'stage')} on {sizes}"
    peaks = f"peak {memory_text(trace, max(trace.peaks))}"
    if len(set(trace.peaks)) == 1:
        each = f"{peaks} on every device" if own.devices > 1 else peaks
    elif own.devices <= FEW:
        # Name the unit once, where all have the same.
        texts = [memory_text(trace, peak) for peak in trace.peaks]
        units = {text.partition(" ")[2] for text in texts}
        if len(units) == 1:
            texts = [text.partition(" ")[0] for text in texts]
        each = f"peaks {', '.join(texts)} {units.pop() if len(units) == 1 else ''}".rstrip()
    else:
        each = f"{peaks} on device {trace.peaks.index(max(trace.peaks))}"
    return [f"{sizes}; {each}", f"{sizes}; {peaks}", peaks]


def counters_of(trace: PipelineTrace) -> list[tuple[str, str]]:
    """Return the counters of a picture: names and texts."""
    return [
        ("makespan", time_text(trace, trace.makespan)),
        ("bubble", f"{100 * float(trace.bubble):.1f} %"),
        ("highest peak", memory_text(trace, max(trace.peaks))),
    ]


def counted(count: int, what: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "device"), counted(2, "micro-batch")
    ('1 device', '2 micro-batches')
    """
    plural = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"{count_text(count)} {what if count == 1 else plural}"


def memory_text(trace: PipelineTrace, amount: int) -> str:
    """Format a device's memory: bytes if there were footprints, else micro-batches in flight.

    Where a device has several stages, a micro-batch counts once in each of them.
    """
    if trace.footprints is not None:
        return size_text(amount)
    return f"{count_text(amount)} {'by stage' if trace.pipeline.folded else 'in flight'}"


def scale_of(trace: PipelineTrace, longest: float) -> tuple[float, str]:
    """Return the divisor of a pipeline's times, and the name of the resulting unit."""
    measure = one_line(trace.costs.measure)
    if measure in ("FLOPs", "bytes moved"):
        for factor, prefix in PREFIXES:
            if longest >= factor:
                return factor, f"{prefix}{measure}"
    return 1.0, measure


def time_text(trace: PipelineTrace, amount: Any) -> str:
    """Format a time of a pipeline."""
    factor, measure = scale_of(trace, float(trace.makespan))
    number = float(amount) / factor
    exact = number.is_integer() and abs(number) < 1e9
    return f"{count_text(int(number)) if exact else f'{number:.5g}'} {measure}".rstrip()
