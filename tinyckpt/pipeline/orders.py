"""The published pipelines: in which order each device takes its forwards and backwards.

All of them wait for a batch to end before the parameters change (a flush), so that each computes
the same gradient as one device with accumulation does. They differ in how long devices stand idle
(the bubble) and how many micro-batches each holds. With K devices, M micro-batches, messages that
take no time, and a forward F, a backward of inputs B and one of weights W that take the same
everywhere, a device stands idle for exactly

- ``gpipe``: (K-1) (F+B+W), with M in flight. All forwards, then all backwards.
  Huang et al., "GPipe", NeurIPS 2019, arXiv 1811.06965.
- ``one_f_one_b``: (K-1) (F+B+W), with min(K-k, M) in flight on device k. A backward as soon as
  there is one. Narayanan et al., SC 2021, arXiv 2104.04473, section 2.2 (PipeDream-Flush).
- ``interleaved``: (K-1) (F+B+W), of one of its v > 1 stages, so a v-th of what 1F1B has. In flight,
  counted by stage, min(2 (K-1-k) + (v-1) K + 1, v M). With v = 1 it is 1F1B. The same paper,
  figure 4.
- ``zb_h1``: (K-1) (F+B-W), if W takes no more than F nor than B, and M >= K; min(K, M) in flight in
  any case. Backwards in two halves, and what nobody waits for is put off by k micro-batches on
  device k. Qi et al., "Zero bubble pipeline parallelism", ICLR 2024, arXiv 2401.10241, section 2.

``vshape`` has two more. None of the searches for orders of these papers is done here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.pipeline.limits import checked_size
from tinyckpt.pipeline.program import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    Integers,
    Lane,
    Pipeline,
    Recompute,
    with_messages,
)
from tinyckpt.pipeline.vshape import v_half, v_min


def gpipe(devices: int, micro_batches: int, recompute: Recompute | None = None) -> Pipeline:
    """Return the pipeline in which each device does all forwards before the first backward.

    Args:
        devices: as many as stages.
        micro_batches: how many a batch is parted into.
        recompute: as in ``with_messages``; GPipe's own is ``"early"``.

    >>> print(gpipe(2, 3))
    device 0: F0 F1 F2 B0 B1 B2
    device 1: F0 F1 F2 B0 B1 B2
    """
    checked_size("gpipe", recompute, devices=devices, micro_batches=micro_batches)
    each = np.arange(micro_batches, dtype=np.int32)
    lane = in_order([(FORWARD, each), (BACKWARD, each + micro_batches)])
    lanes = (Lane(lane.kind, lane.stage + device, lane.micro_batch) for device in range(devices))
    return with_messages("gpipe", own_stages(devices), micro_batches, lanes, recompute)


def one_f_one_b(devices: int, micro_batches: int, recompute: Recompute | None = None) -> Pipeline:
    """Return the pipeline in which forwards and backwards take turns, so that fewer are in flight.

    >>> print(one_f_one_b(2, 3))
    device 0: F0 F1 B0 F2 B1 B2
    device 1: F0 B0 F1 B1 F2 B2
    """
    checked_size("1f1b", recompute, devices=devices, micro_batches=micro_batches)
    lanes = (
        in_order(turns(micro_batches, min(devices - 1 - device, micro_batches)), device)
        for device in range(devices)
    )
    return with_messages("1f1b", own_stages(devices), micro_batches, lanes, recompute)


def interleaved(
    devices: int, micro_batches: int, chunks: int = 2, recompute: Recompute | None = None
) -> Pipeline:
    """Return the 1F1B pipeline in which each device holds several stages, K apart.

    Args:
        devices: a K-th of the stages; device k holds stages k, k + K, k + 2 K, and so on.
        micro_batches: a multiple of the devices.
        chunks: stages a device; with one it is 1F1B, for any number of micro-batches.
        recompute: as in ``with_messages``.

    >>> print(interleaved(2, 2))
    device 0: F0.0 F1.0 F0.2 F1.2 B0.2 B1.2 B0.0 B1.0
    device 1: F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 B0.1 B1.1
    """
    checked_size(
        "interleaved", recompute, devices=devices, micro_batches=micro_batches, chunks=chunks
    )
    if chunks > 1 and micro_batches % devices:
        raise OptionError(
            f"interleaved: {micro_batches} micro-batches on {devices} devices; it needs a multiple "
            f"of {devices}, such as {-(-micro_batches // devices) * devices}"
        )
    # K micro-batches go through a chunk before they go through the next: what a device does n-th.
    count = micro_batches * chunks
    group, inside = np.divmod(np.arange(count), devices * chunks)
    chunk, among = np.divmod(inside, devices)
    micro_batch = group * devices + among

    def lane(device: int) -> Lane:
        # With one chunk a device has as many ahead as in 1F1B; with several, twice as many, so that
        # what comes back finds them all at work.
        turn_ahead = (1 if chunks == 1 else 2) * (devices - 1 - device)
        ahead = min(turn_ahead + (chunks - 1) * devices, count)
        turn = in_order(turns(count, ahead))
        numbers = turn.micro_batch  # the n-th forward, or the n-th backward
        own = np.where(turn.kind == FORWARD, chunk[numbers], chunks - 1 - chunk[numbers])
        stage = (own * devices + device).astype(np.int32)
        return Lane(turn.kind, stage, micro_batch[numbers].astype(np.int32))

    device_of = np.tile(own_stages(devices), chunks)
    return with_messages(
        "interleaved", device_of, micro_batches, map(lane, range(devices)), recompute
    )


def zb_h1(devices: int, micro_batches: int, recompute: Recompute | None = None) -> Pipeline:
    """Return the 1F1B pipeline whose backwards are halved, the weights' put off.

    >>> print(zb_h1(2, 3))
    device 0: F0 F1 B0 W0 F2 B1 W1 B2 W2
    device 1: F0 B0 F1 B1 W0 F2 B2 W1 W2
    """
    checked_size("zb-h1", recompute, halved=True, devices=devices, micro_batches=micro_batches)

    def lane(device: int) -> Lane:
        (_, forward), (_, backward) = turns(micro_batches, min(devices - 1 - device, micro_batches))
        # Device k puts a backward of weights off until k more of inputs are done, or all are.
        behind = np.minimum(np.arange(micro_batches) + device, micro_batches - 1)
        return in_order(
            [(FORWARD, forward), (BACKWARD_INPUT, backward), (BACKWARD_WEIGHT, backward[behind])],
            device,
        )

    lanes = map(lane, range(devices))
    return with_messages("zb-h1", own_stages(devices), micro_batches, lanes, recompute)


def turns(count: int, ahead: int) -> list[tuple[int, Integers]]:
    """Return when each forward and backward has its turn, if some forwards go ahead.

    Args:
        count: of forwards, and of backwards.
        ahead: forwards before the first turn of one forward and one backward.
    """
    each = np.arange(count, dtype=np.int64)
    forward = np.where(each < ahead, each, 2 * each - ahead)
    backward = np.where(each < count - ahead, 2 * each + ahead + 1, each + count)
    return [(FORWARD, forward), (BACKWARD, backward)]


def in_order(times: list[tuple[int, Integers]], stage: int = 0) -> Lane:
    """Return a lane of one stage: of each kind, the time of every micro-batch; sorted by time.

    Of what has the same time, what is given first comes first.
    """
    kind = np.concatenate([np.full(len(column), kind, np.int8) for kind, column in times])
    micro_batch = np.concatenate([np.arange(len(column), dtype=np.int32) for _, column in times])
    order = np.argsort(np.concatenate([column for _, column in times]), kind="stable")
    return Lane(kind[order], np.full(len(kind), stage, np.int32), micro_batch[order])


def own_stages(devices: int) -> Integers:
    """Return for every stage its device, if each device holds one."""
    return np.arange(devices, dtype=np.int32)


PIPELINES: dict[str, Callable[..., Pipeline]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zb-h1": zb_h1,
    "v-min": v_min,
    "v-half": v_half,
}
