"""Pipeline schedules: GPipe, 1F1B (PipeDream-Flush), interleaved 1F1B, and zero-bubble ZB-H1.

All of them are synchronous: they flush the pipeline before the parameters change, so that each
computes the same gradient as one device with gradient accumulation. They differ in the time that
devices are idle (the bubble) and in the micro-batches in flight. With K devices, M micro-batches,
messages that take no time, and durations F of a forward, B of a backward of inputs and W of one of
weights that are the same everywhere, a device is idle for exactly

- ``gpipe``: (K-1) (F+B+W), with M in flight. All forwards, then all backwards.
  Huang et al., "GPipe", NeurIPS 2019, arXiv 1811.06965.
- ``one_f_one_b``: (K-1) (F+B+W), with min(K-k, M) in flight on device k. A backward as soon as one
  is possible. Narayanan et al., SC 2021, arXiv 2104.04473, section 2.2 (PipeDream-Flush).
- ``interleaved``: (K-1) (F+B+W), of one of its v > 1 stages per device (virtual stages, chunks), so
  a v-th of the bubble of 1F1B. In flight, counted by stage, min(2 (K-1-k) + (v-1) K + 1, v M). With
  v = 1 it is 1F1B. The same paper, figure 4.
- ``zb_h1``: (K-1) (F+B-W), if W takes no more than F nor than B, and M >= K; min(K, M) in flight in
  any case. Backwards are split into B and W, and W, which nothing waits for, is delayed by k
  micro-batches on device k. Qi et al., "Zero bubble pipeline parallelism", ICLR 2024,
  arXiv 2401.10241, section 2.

``v_schedules`` has two more. The automatic schedule searches of these papers are not implemented.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.pipeline.program import Integers, Kind, Lane, Pipeline, Recompute, with_messages
from tinyckpt.pipeline.simulator_memory_limit import check_counts
from tinyckpt.pipeline.v_schedules import v_half, v_min


def gpipe(devices: int, micro_batches: int, recompute: Recompute | None = None) -> Pipeline:
    """GPipe schedule: on each device all forwards, then all backwards (Huang et al. 2019).

    Args:
        devices: as many as stages.
        micro_batches: number of micro-batches of a batch.
        recompute: as in ``with_messages``; GPipe's own is ``"early"``.

    >>> print(gpipe(2, 3))
    device 0: F0 F1 F2 B0 B1 B2
    device 1: F0 F1 F2 B0 B1 B2
    """
    check_counts("gpipe", recompute, devices=devices, micro_batches=micro_batches)
    each = np.arange(micro_batches, dtype=np.int32)
    lane = sorted_lane([(Kind.FORWARD, each), (Kind.BACKWARD, each + micro_batches)])
    lanes = (Lane(lane.kind, lane.stage + device, lane.micro_batch) for device in range(devices))
    return with_messages("gpipe", one_stage_per_device(devices), micro_batches, lanes, recompute)


def one_f_one_b(devices: int, micro_batches: int, recompute: Recompute | None = None) -> Pipeline:
    """1F1B schedule: forwards and backwards alternate, so that fewer micro-batches are in flight.

    >>> print(one_f_one_b(2, 3))
    device 0: F0 F1 B0 F2 B1 B2
    device 1: F0 B0 F1 B1 F2 B2
    """
    check_counts("1f1b", recompute, devices=devices, micro_batches=micro_batches)
    lanes = (
        sorted_lane(time_slots(micro_batches, min(devices - 1 - device, micro_batches)), device)
        for device in range(devices)
    )
    return with_messages("1f1b", one_stage_per_device(devices), micro_batches, lanes, recompute)


def interleaved(
    devices: int, micro_batches: int, chunks: int = 2, recompute: Recompute | None = None
) -> Pipeline:
    """Interleaved 1F1B schedule: each device has several stages, K apart (virtual pipeline stages).

    Args:
        devices: K; device k has stages k, k + K, k + 2 K, and so on.
        micro_batches: a multiple of the devices.
        chunks: stages per device; with one it is 1F1B, for any number of micro-batches.
        recompute: as in ``with_messages``.

    >>> print(interleaved(2, 2))
    device 0: F0.0 F1.0 F0.2 F1.2 B0.2 B1.2 B0.0 B1.0
    device 1: F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 B0.1 B1.1
    """
    check_counts(
        "interleaved", recompute, devices=devices, micro_batches=micro_batches, chunks=chunks
    )
    if chunks > 1 and micro_batches % devices:
        raise OptionError(
            f"interleaved: {micro_batches} micro-batches on {devices} devices; it needs a multiple "
            f"of {devices}, such as {-(-micro_batches // devices) * devices}"
        )
    # K micro-batches go through a chunk before the next chunk begins: chunk and micro-batch of the
    # n-th forward of a device.
    count = micro_batches * chunks
    group, inside = np.divmod(np.arange(count), devices * chunks)
    chunk, among = np.divmod(inside, devices)
    micro_batch = group * devices + among

    def lane(device: int) -> Lane:
        # Warm-up forwards: with one chunk as many as in 1F1B; with several, twice as many per
        # device distance, so that no device is idle when the first cotangents come back.
        turn_ahead = (1 if chunks == 1 else 2) * (devices - 1 - device)
        ahead = min(turn_ahead + (chunks - 1) * devices, count)
        turn = sorted_lane(time_slots(count, ahead))
        numbers = turn.micro_batch  # n, of the n-th forward or the n-th backward
        own = np.where(turn.kind == Kind.FORWARD, chunk[numbers], chunks - 1 - chunk[numbers])
        stage = (own * devices + device).astype(np.int32)
        return Lane(turn.kind, stage, micro_batch[numbers].astype(np.int32))

    device_of = np.tile(one_stage_per_device(devices), chunks)
    return with_messages(
        "interleaved", device_of, micro_batches, map(lane, range(devices)), recompute
    )


def zb_h1(devices: int, micro_batches: int, recompute: Recompute | None = None) -> Pipeline:
    """ZB-H1 zero-bubble schedule: 1F1B with split backwards, that of the weights delayed.

    >>> print(zb_h1(2, 3))
    device 0: F0 F1 B0 W0 F2 B1 W1 B2 W2
    device 1: F0 B0 F1 B1 W0 F2 B2 W1 W2
    """
    check_counts("zb-h1", recompute, halved=True, devices=devices, micro_batches=micro_batches)

    def lane(device: int) -> Lane:
        (_, forward), (_, backward) = time_slots(
            micro_batches, min(devices - 1 - device, micro_batches)
        )
        # Device k delays a backward of weights until k more backwards of inputs are done, or all.
        behind = np.minimum(np.arange(micro_batches) + device, micro_batches - 1)
        return sorted_lane(
            [
                (Kind.FORWARD, forward),
                (Kind.BACKWARD_INPUT, backward),
                (Kind.BACKWARD_WEIGHT, backward[behind]),
            ],
            device,
        )

    lanes = map(lane, range(devices))
    return with_messages("zb-h1", one_stage_per_device(devices), micro_batches, lanes, recompute)


def time_slots(count: int, ahead: int) -> list[tuple[int, Integers]]:
    """Return the time slots of forwards and backwards in 1F1B, by micro-batch.

    Args:
        count: number of forwards, and of backwards.
        ahead: warm-up forwards before the steady state of one forward and one backward.
    """
    each = np.arange(count, dtype=np.int64)
    forward = np.where(each < ahead, each, 2 * each - ahead)
    backward = np.where(each < count - ahead, 2 * each + ahead + 1, each + count)
    return [(Kind.FORWARD, forward), (Kind.BACKWARD, backward)]


def sorted_lane(times: list[tuple[int, Integers]], stage: int = 0) -> Lane:
    """Sort actions of one stage by time into a lane; ties keep the order of the arguments.

    Args:
        times: for each kind of action the time slot of every micro-batch.
        stage: of all actions.
    """
    kind = np.concatenate([np.full(len(column), kind, np.int8) for kind, column in times])
    micro_batch = np.concatenate([np.arange(len(column), dtype=np.int32) for _, column in times])
    order = np.argsort(np.concatenate([column for _, column in times]), kind="stable")
    return Lane(kind[order], np.full(len(kind), stage, np.int32), micro_batch[order])


def one_stage_per_device(devices: int) -> Integers:
    """Return the device of every stage, with one stage per device."""
    return np.arange(devices, dtype=np.int32)


PIPELINES: dict[str, Callable[..., Pipeline]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zb-h1": zb_h1,
    "v-min": v_min,
    "v-half": v_half,
}
