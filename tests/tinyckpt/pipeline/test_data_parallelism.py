"""Data-parallel replicas: collectives against a reference simulator; mismatches are refused."""

from fractions import Fraction

import pytest

from tests.tinyckpt.pipeline.reference_simulator import (
    lanes_of,
    refused,
)
from tinyckpt.base.errors import OptionError
from tinyckpt.pipeline import (
    PipelineCosts,
    data_parallel,
    gpipe,
    interleaved,
    one_f_one_b,
    replay_pipeline,
)


def test_collectives_of_one_stage_by_zero_stage() -> None:
    kinds = [
        [action.kind for action in data_parallel(gpipe(1, 2), 2, zero=zero).actions(1)]
        for zero in range(4)
    ]
    assert kinds[0] == [
        "forward", "forward", "backward", "backward", "all_reduce", "update",
    ]  # fmt: skip
    assert kinds[1] == [
        "forward", "forward", "backward", "backward", "reduce_scatter", "update", "gather_updated",
    ]  # fmt: skip
    assert kinds[2] == [
        "forward", "forward", "backward", "reduce_scatter", "backward", "reduce_scatter", "update",
        "gather_updated",
    ]  # fmt: skip
    forward = ["gather_forward", "forward", "free_forward"]
    backward = ["gather_backward", "backward", "free_backward", "reduce_scatter"]
    assert kinds[3] == [*forward, *forward, *backward, *backward, "update"]


def test_collective_takes_its_duration_on_all_devices() -> None:
    plain = replay_pipeline(one_f_one_b(3, 4)).makespan
    for zero, times in ((0, 2), (1, 2), (2, 4 + 1), (3, 3 * 4)):
        pipeline = data_parallel(one_f_one_b(3, 4), 5, zero)
        trace = replay_pipeline(pipeline, PipelineCosts(collective=Fraction(1, 1000)))
        assert trace.busy == (12,) * 15
        # At most what the first device does together; some of it while it waits anyway.
        assert plain < trace.makespan <= plain + Fraction(3 * times, 1000)
    slow = one_f_one_b(1, 2)
    costs = PipelineCosts(forward=3, collective=7)
    assert replay_pipeline(data_parallel(slow, 2, 1), costs).makespan == 2 * 5 + 2 * 7
    assert replay_pipeline(data_parallel(slow, 2, 3), costs).makespan == 2 * 5 + 2 * 3 * 7


def test_mismatched_collectives_are_refused_by_name() -> None:
    pipeline = data_parallel(interleaved(1, 1), 3, zero=1)
    lanes = lanes_of(pipeline)
    lanes[1][4:7], lanes[1][7:10] = lanes[1][7:10], lanes[1][4:7]
    assert refused(pipeline, lanes) == (
        "device 1, step 4: replicas have different collectives: device 1 does its "
        "reduce scatter of stage 3, micro-batch 0 at step 4, and device 0 does its reduce scatter "
        "of stage 0, micro-batch 0 at step 4"
    )


def test_missing_gather_or_reduction_is_refused() -> None:
    pipeline = data_parallel(gpipe(1, 1), 2, zero=3)
    lanes = lanes_of(pipeline)
    late = [[lane[1], lane[0], *lane[2:]] for lane in lanes]
    assert refused(pipeline, late) == (
        "device 0, step 0: forward of stage 0, micro-batch 0: needs the gather forward, which "
        "comes at step 1"
    )
    soon = [[*lane[:3], lane[3], lane[5], lane[4], *lane[6:]] for lane in lanes]
    assert refused(pipeline, soon) == (
        "device 0, step 4: free backward of stage 0, micro-batch 0: needs the backward, which "
        "comes at step 5"
    )
    unreduced = [[*lane[:6], lane[7], lane[6]] for lane in lanes]
    assert refused(pipeline, unreduced) == (
        "device 0, step 6: update of stage 0: needs the reduce scatter, which comes at step 7"
    )
    held = [[action for action in lane if action.kind != "free_forward"] for lane in lanes]
    assert refused(pipeline, held) == (
        "device 0, step 7: the device ends without the free forward of stage 0, micro-batch 0"
    )
    assert refused(data_parallel(gpipe(1, 1), 2, zero=1), lanes) == (
        "device 0, step 0: gather forward of stage 0, micro-batch 0: there is none with 2 replicas "
        "and zero=1"
    )


def test_stale_parameter_in_a_replica_is_refused() -> None:
    pipeline = data_parallel(gpipe(1, 2), 2, zero=0)
    lanes = lanes_of(pipeline)
    early = [[*lane[:3], *lane[4:], lane[3]] for lane in lanes]
    assert refused(pipeline, early) == (
        "device 0, step 3: all reduce of stage 0: its gradients are not complete before step 5"
    )
    alone = [lanes[0], [*lanes[1][:3], lanes[1][5], lanes[1][3], lanes[1][4]]]
    assert refused(pipeline, alone) == (
        "device 1, step 3: update of stage 1: needs the all reduce, which comes at step 5"
    )


def test_deadlock_between_replicas_is_refused() -> None:
    pipeline = data_parallel(gpipe(2, 1), 2, zero=3)
    lanes = lanes_of(pipeline)
    # Device 0 gathers before it sends, and its replica only after it has got something back; both
    # in the same order.
    assert [action.kind for action in lanes[2][4:6]] == ["recv_cotangent", "gather_backward"]
    swapped = [list(lane) for lane in lanes]
    swapped[0][2:6] = [lanes[0][2], lanes[0][5], lanes[0][3], lanes[0][4]]
    text = refused(pipeline, swapped)
    assert text.startswith(
        "device 0, step 3: gather backward of stage 0, micro-batch 0: a deadlock"
    )
    assert "waits for device 2, step 4: recv cotangent of stage 2, micro-batch 0" in text


def test_replica_counts_out_of_range_are_refused() -> None:
    with pytest.raises(OptionError, match="zero=4; ZeRO has 1, 2 and 3"):
        data_parallel(gpipe(1, 1), 2, zero=4)
    with pytest.raises(OptionError, match="replicas=0; it must be an integer of 1 or more"):
        data_parallel(gpipe(1, 1), 0)
    with pytest.raises(OptionError, match="gpipe has 2 replicas already"):
        data_parallel(data_parallel(gpipe(1, 1), 2), 2)
    with pytest.raises(OptionError, match=r"more than the limit of .*; use fewer micro-batches"):
        data_parallel(gpipe(4, 1000), 10_000)
    assert lanes_of(data_parallel(gpipe(2, 3), 1, zero=3)) == lanes_of(gpipe(2, 3))
