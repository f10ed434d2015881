"""V-shaped zero-bubble schedules V-Min and V-Half, with bounded activation memory; Qi et al. 2024.

Each device has two stages, folded in a V so that the first device also has the last stage. A
*building block* gives the time of the four passes of one micro-batch (forward down and up the V,
backward down and up) on each device, one unit of time each. Micro-batches follow each other at
intervals of 6 units, so that a device runs F, F, B, B, W, W in each. The lifespan of a micro-batch
determines how many are in flight: it controls the memory, which is the same on every device.

``v_min`` passes each micro-batch on at once; ``v_half`` delays every second pass by a unit on each
device, so that the order also suits passes of different durations.

The block determines the order of the passes on each device. Then every pass starts as early as it
can without more micro-batches in flight, and idle time goes to W (list scheduling): so no pass
keeps to its slot in the repeating pattern where the first or the last micro-batches leave that
empty. With F, B and W of a unit each and no communication time, the bubble is, in units, for K > 1
devices and M micro-batches:

- ``v_min``: 4 K - 5; or 4 K - 3 if 3 divides K and M > 1. The paper's estimate is 4 K.
- ``v_half``: 3 K - 3 for even K, 3 K - 4 for odd, if M > K/2. The paper's estimate is 3 K.

A micro-batch takes 6 units on each device. In flight, counted by stage, of which a device has two,
are at most 2 floor((K + 4)/3) and 2 floor((K + 2)/2), reached with half as many micro-batches.

Source: Qi et al., "Pipeline parallelism with controllable memory", NeurIPS 2024, arXiv 2405.15362,
section 3: building blocks, and repeating, squeezing and reordering them. The rule by which W fill
idle time, in ``list_schedule``, is this project's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyckpt.pipeline.program import Integers, Kind, Lane, Pipeline, Recompute, with_messages
from tinyckpt.pipeline.simulator_memory_limit import check_counts

# Units of time from one micro-batch to the next: two stages, each with F, B and W.
INTERVAL = 6
LEAD = 4  # micro-batches per device after which the schedule is periodic up to its cool-down
NEVER = 2**62
Block = Callable[[int, int], tuple[int, int, int, int]]


def v_min(devices: int, micro_batches: int, recompute: Recompute | None = None) -> Pipeline:
    """V-Min schedule: the V-shaped pipeline with the fewest micro-batches in flight, about K/3.

    >>> print(v_min(2, 2))
    device 0: F0.0 F0.3 B0.3 F1.0 W0.3 B0.0 W0.0 F1.3 B1.3 W1.3 B1.0 W1.0
    device 1: F0.1 F0.2 B0.2 B0.1 F1.1 F1.2 W0.2 W0.1 B1.2 B1.1 W1.2 W1.1
    """
    return repeat_block("v-min", v_min_block, devices, micro_batches, recompute, (4, 3))


def v_half(devices: int, micro_batches: int, recompute: Recompute | None = None) -> Pipeline:
    """V-Half schedule: about K/2 micro-batches in flight, with a smaller bubble than V-Min.

    >>> print(v_half(2, 2))
    device 0: F0.0 F0.3 F1.0 B0.3 W0.3 F1.3 B0.0 B1.3 W0.0 W1.3 B1.0 W1.0
    device 1: F0.1 F0.2 F1.1 F1.2 B0.2 B0.1 W0.2 W0.1 B1.2 B1.1 W1.2 W1.1
    """
    return repeat_block("v-half", v_half_block, devices, micro_batches, recompute, (2, 2))


def v_min_block(devices: int, device: int) -> tuple[int, int, int, int]:
    """Building block of V-Min: the times of a device's four passes, without any waiting.

    In a pass down the V (F of the first stages, B of the last ones) device k comes k units after
    device 0; in a pass up, k units before it. The two downs start an even number of units apart,
    as do the two ups, at an odd distance from the downs: so a down and an up never collide on a
    device. Two passes in the same direction collide if they start a multiple of 6 apart, which 2K
    is if 3 divides K: then the backward begins 2 units later.
    """
    wait = 2 if devices % 3 == 0 else 0
    turn = 2 * devices + wait
    return device, 2 * devices - 1 - device, turn + device, turn + 2 * devices - 1 - device


def v_half_block(devices: int, device: int) -> tuple[int, int, int, int]:
    """Building block of V-Half: each pass down the V waits one unit on every device.

    The two passes down start 3K - 1 units apart and must not collide, nor the two up: if K is
    even, the backward begins 3 units later.
    """
    wait = 3 if devices % 2 == 0 else 0
    turn = 3 * devices - 1 + wait
    up = 3 * devices - 2 - device
    return 2 * device, up, turn + 2 * device, turn + up + 1


def repeat_block(
    name: str,
    block: Block,
    devices: int,
    micro_batches: int,
    recompute: Recompute | None,
    flight: tuple[int, int],
) -> Pipeline:
    """Build a pipeline by repeating a building block for every micro-batch.

    Args:
        name: of the pipeline.
        block: from (devices, device) to the times of a device's four passes of a micro-batch.
        devices, micro_batches, recompute: as for ``v_min``.
        flight: a and b of floor((K + a)/b), the limit of micro-batches in flight in a stage.
    """
    check_counts(
        name, recompute, halved=True, devices=devices, micro_batches=micro_batches, chunks=2
    )
    # The schedule is periodic in its middle, so only warm-up and cool-down are computed.
    few = min(micro_batches, LEAD * devices + LEAD)
    each = np.arange(few)[:, None]
    times = [
        (np.array(block(devices, device)) + INTERVAL * each).reshape(-1)
        for device in range(devices)
    ]
    orders = np.argsort(np.array(times), axis=1)
    passes, numbers = orders % 4, orders // 4
    starts, weights = list_schedule(passes, numbers, 2 * ((devices + flight[0]) // flight[1]))
    lanes = (
        extend_period(lane_of_device(device, devices, *own), micro_batches - few)
        for device, own in enumerate(zip(passes, numbers, starts, weights, strict=True))
    )
    down = np.arange(devices, dtype=np.int32)
    return with_messages(name, np.append(down, down[::-1]), micro_batches, lanes, recompute)


def list_schedule(passes: Integers, numbers: Integers, most: int) -> tuple[Integers, Integers]:
    """List scheduling of passes in a given order on each device, with W filling idle time.

    In each unit of time, a device runs the next of its passes, if its input has arrived and the
    number in flight allows it; or else the oldest pending W; or else it is idle.

    Args:
        passes: the order of passes on each device, array (devices, count): 0 and 1 for F down and
            up the V, 2 and 3 for B.
        numbers: their micro-batches, likewise.
        most: limit of (stage, micro-batch) pairs in flight on a device.

    Returns:
        Times of the passes, and of the W, which are in the order of the B.
    """
    devices, count = passes.shape
    every = np.arange(devices)
    # Successor of a pass on a device: pass and device; pass 4 is the end.
    steps = np.array([1, -1, 1, -1])[:, None]
    turns = (every + steps < 0) | (every + steps == devices)
    next_pass = np.arange(4)[:, None] + turns
    next_device = np.where(turns, every, every + steps)
    ready = np.full((5, devices, count // 4), NEVER)
    ready[0, 0] = 0
    # A sentinel after the last pass, which is never ready: pass 4 with ready time NEVER.
    passes = np.pad(passes, ((0, 0), (0, 1)), constant_values=4)
    numbers = np.pad(numbers, ((0, 0), (0, 1)))
    at, held, waiting, done = (np.zeros(devices, np.int64) for _ in range(4))
    starts = np.zeros((devices, count), np.int64)
    weights = np.zeros((devices, count // 2), np.int64)
    time, left = 0, weights.size
    awake = np.zeros(1, np.int64)  # devices that ran or received something in the last unit
    while left:
        one, number = passes[awake, at[awake]], numbers[awake, at[awake]]
        may = (one >= 2) | (held[awake] < most)
        goes = (ready[one, awake, number] <= time) & may
        own, rest = awake[goes], awake[~goes & (waiting[awake] > 0)]
        one, number = one[goes], number[goes]
        starts[own, at[own]] = time
        weights[rest, done[rest]] = time
        after, receiver = next_pass[one, own], next_device[one, own]
        ready[after, receiver, number] = np.where(after < 4, time + 1, NEVER)
        at[own] += 1
        held[own] += one < 2
        waiting[own] += one >= 2
        done[rest] += 1
        waiting[rest] -= 1
        held[rest] -= 1
        left -= len(rest)
        awake = np.unique(np.concatenate([own, rest, receiver[after < 4]]))
        time += 1
    return starts, weights


def lane_of_device(
    device: int, devices: int, passes: Integers, numbers: Integers, starts: Integers,
    weights: Integers,
) -> Lane:  # fmt: skip
    """Build the lane of one device from the times of its passes and of its W."""
    is_backward = passes >= 2
    kind = np.where(is_backward, Kind.BACKWARD_INPUT, Kind.FORWARD)
    # The backward begins in the stage in which the forward ended.
    is_down = (passes == 0) | (passes == 3)
    stage = np.where(is_down, device, 2 * devices - 1 - device)
    order = np.argsort(np.append(starts, weights))
    return Lane(
        np.append(kind, np.full(len(weights), Kind.BACKWARD_WEIGHT))[order].astype(np.int8),
        np.append(stage, stage[is_backward])[order].astype(np.int32),
        np.append(numbers, numbers[is_backward])[order].astype(np.int32),
    )


def extend_period(few: Lane, more: int) -> Lane:
    """Insert more micro-batches into the periodic middle of a lane."""
    if not more:
        return few
    kind, stage, number = few
    again = (
        (kind[:-INTERVAL] == kind[INTERVAL:])
        & (stage[:-INTERVAL] == stage[INTERVAL:])
        & (number[:-INTERVAL] + 1 == number[INTERVAL:])
    )
    # A period: as many actions as a micro-batch has, all repeated for the next micro-batch.
    (places,) = (np.convolve(again, np.ones(INTERVAL, int), "valid") == INTERVAL).nonzero()
    end = int(places[len(places) // 2]) + INTERVAL
    inside = slice(end - INTERVAL, end)
    added = np.repeat(np.arange(1, more + 1, dtype=np.int32), INTERVAL)
    return Lane(
        np.concatenate([kind[:end], np.tile(kind[inside], more), kind[end:]]),
        np.concatenate([stage[:end], np.tile(stage[inside], more), stage[end:]]),
        np.concatenate(
            [number[:end], np.tile(number[inside], more) + added, number[end:] + np.int32(more)]
        ),
    )
