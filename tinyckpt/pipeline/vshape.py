"""V-shaped pipelines: two stages a device, folded so that the first device also has the last stage.

A *building block* says when the four passes of one micro-batch (forward down and up again, backward
down and up again) take place on each device, at a unit of time each. Micro-batches follow each
other 6 units apart, so that a device does F, F, B, B, W, W in 6 units; and the two W take what the
other four leave free. How long a micro-batch stays decides how many are there at once: that is the
dial, and every device turns out to hold the same.

``v_min`` sends each pass on at once; ``v_half`` lets every second one wait a unit on each device,
so that the order also fits passes that do not take the same.

Source: Qi et al., "Pipeline parallelism with controllable memory", NeurIPS 2024, arXiv 2405.15362,
section 3: blocks, and repeating and squeezing them. Not done here: the last part of the paper's
way, which moves passes of the first and last micro-batches forward where devices are idle. It
changes no peak. The bubbles are, in units, with 6 a micro-batch: 4 K - 5 of ``v_min``, or 4 K - 3
if 3 divides K, against the published estimate of 4 K; and 7 K / 2 - 2 of ``v_half``, or
7 (K - 1) / 2 if K is odd, against 3 K, which takes that last part.
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
Block = Callable[[int, int], tuple[int, int, int, int]]


def v_min(devices: int, micro_batches: int, recompute: Recompute | None = None) -> Pipeline:
    """Return the V-shaped pipeline with the fewest micro-batches in flight: about K/3.

    >>> print(v_min(2, 2))
    device 0: F0.0 F0.3 B0.3 W0.3 F1.0 B0.0 W0.0 F1.3 B1.3 W1.3 B1.0 W1.0
    device 1: F0.1 F0.2 B0.2 B0.1 F1.1 F1.2 W0.2 W0.1 B1.2 B1.1 W1.2 W1.1
    """
    return repeated("v-min", least_block, devices, micro_batches, recompute)


def v_half(devices: int, micro_batches: int, recompute: Recompute | None = None) -> Pipeline:
    """Return the V-shaped pipeline with about K/2 micro-batches in flight, and less of a bubble."""
    return repeated("v-half", half_block, devices, micro_batches, recompute)


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
    name: str, block: Block, devices: int, micro_batches: int, recompute: Recompute | None
) -> Pipeline:
    """Return the pipeline that repeats a building block for every micro-batch."""
    checked_size(
        name, recompute, halved=True, devices=devices, micro_batches=micro_batches, chunks=2
    )
    lanes = (
        lane(block(devices, device), devices, device, micro_batches) for device in range(devices)
    )
    down = np.arange(devices, dtype=np.int32)
    return with_messages(name, np.append(down, down[::-1]), micro_batches, lanes, recompute)


def lane(times: tuple[int, int, int, int], devices: int, device: int, micro_batches: int) -> Lane:
    """Return what one device does: the four passes of each micro-batch, and W in between."""
    each = np.arange(micro_batches, dtype=np.int64)
    starts = np.array(times)[:, None] + INTERVAL * each
    stages = np.array([device, 2 * devices - 1 - device], np.int32)
    stage = np.repeat(np.array([stages[0], stages[1], stages[1], stages[0]]), micro_batches)
    kind = np.repeat(
        np.array([FORWARD, FORWARD, BACKWARD_INPUT, BACKWARD_INPUT], np.int8), micro_batches
    )
    micro_batch = np.tile(each, 4).astype(np.int32)
    start = starts.reshape(-1)
    backward = np.flatnonzero(kind == BACKWARD_INPUT)
    backward = backward[np.argsort(start[backward])]
    weights = free_times(start, start[backward])
    every = np.concatenate([start, weights])
    order = np.argsort(every)
    return Lane(
        np.append(kind, np.full(len(backward), BACKWARD_WEIGHT, np.int8))[order],
        np.append(stage, stage[backward])[order],
        np.append(micro_batch, micro_batch[backward])[order],
    )


def free_times(taken: Integers, ready: Integers) -> Integers:
    """Return a free unit of time for each of some jobs, in turn, each after it is ready.

    Args:
        taken: units of time that are not free.
        ready: units after which the jobs may be done, ascending.
    """
    horizon = int(taken.max()) + len(ready) + 1
    is_free = np.ones(horizon + 1, bool)
    is_free[taken] = False
    free = np.flatnonzero(is_free)
    # Job j has the first free unit after it is ready, or the one behind that of job j - 1: of what
    # is free, number max over i <= j of (first for i) + (j - i).
    number = np.arange(len(ready))
    return free[np.maximum.accumulate(np.searchsorted(free, ready) - number) + number]
