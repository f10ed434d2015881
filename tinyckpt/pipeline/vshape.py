"""V-shaped pipelines: two stages a device, folded so that the first device also has the last stage.

A *building block* says when the four passes of one micro-batch (forward down and up again, backward
down and up again) take place on each device, at a unit of time each. Micro-batches follow each
other 6 units apart, so that a device does F, F, B, B, W, W in 6 units. How long a micro-batch stays
decides how many are there at once: that is the dial, and every device turns out to hold the same.

``v_min`` sends each pass on at once; ``v_half`` lets every second one wait a unit on each device,
so that the order also fits passes that do not take the same.

The block gives each device the order of its passes. Then all begin as early as they can, without
holding more, and what time is left goes to W: so nothing waits for a place in a pattern in which
the first and the last micro-batches leave it alone. With F, B and W of a unit each and no time for
messages, the bubble is, in units, for K > 1 devices and M micro-batches:

- ``v_min``: 4 K - 5; or 4 K - 3 if 3 divides K and M > 1. The paper's estimate is 4 K.
- ``v_half``: 3 K - 3 for even K, 3 K - 4 for odd, if M > K/2. The paper's estimate is 3 K.

That is of 6 a micro-batch. In flight are, counted by stage, of which a device has two, at most
2 floor((K + 4)/3) and 2 floor((K + 2)/2), and so many from half as many micro-batches on.

Source: Qi et al., "Pipeline parallelism with controllable memory", NeurIPS 2024, arXiv 2405.15362,
section 3: blocks, and repeating, squeezing and reordering them. How W fill the time is found here
by a rule of its own, in ``scheduled``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyckpt.pipeline.limits import checked_size
from tinyckpt.pipeline.program import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    Integers,
    Lane,
    Pipeline,
    Recompute,
    with_messages,
)

# Units from one micro-batch to the next: two stages, each with F, B and W.
INTERVAL = 6
LEAD = 4  # micro-batches for each device, after which a pipeline repeats itself up to its end
NEVER = 2**62
Block = Callable[[int, int], tuple[int, int, int, int]]


def v_min(devices: int, micro_batches: int, recompute: Recompute | None = None) -> Pipeline:
    """Return the V-shaped pipeline with the fewest micro-batches in flight: about K/3.

    >>> print(v_min(2, 2))
    device 0: F0.0 F0.3 B0.3 F1.0 W0.3 B0.0 W0.0 F1.3 B1.3 W1.3 B1.0 W1.0
    device 1: F0.1 F0.2 B0.2 B0.1 F1.1 F1.2 W0.2 W0.1 B1.2 B1.1 W1.2 W1.1
    """
    return repeated("v-min", least_block, devices, micro_batches, recompute, (4, 3))


def v_half(devices: int, micro_batches: int, recompute: Recompute | None = None) -> Pipeline:
    """Return the V-shaped pipeline with about K/2 micro-batches in flight, and less of a bubble."""
    return repeated("v-half", half_block, devices, micro_batches, recompute, (2, 2))


def least_block(devices: int, device: int) -> tuple[int, int, int, int]:
    """Return when a device does the four passes of a micro-batch that never waits.

    On their ways down (F of the first stages, B of the last ones) device k comes k units after
    device 0; on their ways up, k units before it. The first two start an even number of units
    apart, as do the other two, at an odd distance from the first: so a way down meets none up. Two
    the same way meet if they start a multiple of 6 apart, which 2K is if 3 divides K: then the way
    back begins 2 later.
    """
    wait = 2 if devices % 3 == 0 else 0
    turn = 2 * devices + wait
    return device, 2 * devices - 1 - device, turn + device, turn + 2 * devices - 1 - device


def half_block(devices: int, device: int) -> tuple[int, int, int, int]:
    """Return when a device does the four passes, if each way down waits a unit on every device.

    The ways down start 3K - 1 units apart and must not meet, nor those up: if K is even, they
    begin 3 later.
    """
    wait = 3 if devices % 2 == 0 else 0
    turn = 3 * devices - 1 + wait
    up = 3 * devices - 2 - device
    return 2 * device, up, turn + 2 * device, turn + up + 1


def repeated(
    name: str,
    block: Block,
    devices: int,
    micro_batches: int,
    recompute: Recompute | None,
    flight: tuple[int, int],
) -> Pipeline:
    """Return the pipeline that repeats a building block for every micro-batch.

    Args:
        name: of the pipeline.
        block: when a device does its four passes of a micro-batch, from the first one's begin.
        devices, micro_batches, recompute: as in the pipelines.
        flight: a and b of floor((K + a)/b), the micro-batches that a device may hold of a stage.
    """
    checked_size(
        name, recompute, halved=True, devices=devices, micro_batches=micro_batches, chunks=2
    )
    # What is in the middle repeats itself, so only the beginning and the end are looked for.
    few = min(micro_batches, LEAD * devices + LEAD)
    each = np.arange(few)[:, None]
    times = [
        (np.array(block(devices, device)) + INTERVAL * each).reshape(-1)
        for device in range(devices)
    ]
    orders = np.argsort(np.array(times), axis=1)
    passes, numbers = orders % 4, orders // 4
    starts, weights = scheduled(passes, numbers, 2 * ((devices + flight[0]) // flight[1]))
    lanes = (
        stretched(lane(device, devices, *own), micro_batches - few)
        for device, own in enumerate(zip(passes, numbers, starts, weights, strict=True))
    )
    down = np.arange(devices, dtype=np.int32)
    return with_messages(name, np.append(down, down[::-1]), micro_batches, lanes, recompute)


def scheduled(passes: Integers, numbers: Integers, most: int) -> tuple[Integers, Integers]:
    """Return when the devices do their passes, and their W, if they wait for nothing else.

    In each unit of time, a device does the next of its passes, if what that reads is there, and if
    it may hold one more; or else a W, the oldest first; or else it is idle.

    Args:
        passes: what each device does in which order, (devices, count): 0 and 1 for F on the way
            down and up, 2 and 3 for B.
        numbers: of which micro-batch.
        most: how many a device holds.

    Returns:
        Times of the passes, and of the W, which are in the order of the B.
    """
    devices, count = passes.shape
    every = np.arange(devices)
    # Who is next on the way of a micro-batch: the pass, and the device. Nobody is after the last.
    steps = np.array([1, -1, 1, -1])[:, None]
    turns = (every + steps < 0) | (every + steps == devices)
    next_pass = np.arange(4)[:, None] + turns
    next_device = np.where(turns, every, every + steps)
    ready = np.full((5, devices, count // 4), NEVER)
    ready[0, 0] = 0
    # Behind the last pass there is one that is never ready.
    passes = np.pad(passes, ((0, 0), (0, 1)), constant_values=4)
    numbers = np.pad(numbers, ((0, 0), (0, 1)))
    at, held, waiting, done = (np.zeros(devices, np.int64) for _ in range(4))
    starts = np.zeros((devices, count), np.int64)
    weights = np.zeros((devices, count // 2), np.int64)
    time, left = 0, weights.size
    awake = np.zeros(1, np.int64)  # those that did something just now, or were sent something
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


def lane(
    device: int, devices: int, passes: Integers, numbers: Integers, starts: Integers,
    weights: Integers,
) -> Lane:  # fmt: skip
    """Return what one device does, by the times of its passes, and of the W of its B."""
    is_backward = passes >= 2
    kind = np.where(is_backward, BACKWARD_INPUT, FORWARD)
    # The way back begins with the stage that the way forth ended with.
    is_down = (passes == 0) | (passes == 3)
    stage = np.where(is_down, device, 2 * devices - 1 - device)
    order = np.argsort(np.append(starts, weights))
    return Lane(
        np.append(kind, np.full(len(weights), BACKWARD_WEIGHT))[order].astype(np.int8),
        np.append(stage, stage[is_backward])[order].astype(np.int32),
        np.append(numbers, numbers[is_backward])[order].astype(np.int32),
    )


def stretched(few: Lane, more: int) -> Lane:
    """Return a lane with as many micro-batches more in its middle, which repeats itself."""
    if not more:
        return few
    kind, stage, number = few
    again = (
        (kind[:-INTERVAL] == kind[INTERVAL:])
        & (stage[:-INTERVAL] == stage[INTERVAL:])
        & (number[:-INTERVAL] + 1 == number[INTERVAL:])
    )
    # Where as many actions as a micro-batch has come again with the next one.
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
