"""Pipeline replay: start times against a reference simulator; illegal pipelines are refused."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tinyckpt.pipeline.reference_simulator import (
    Lanes,
    costs,
    lanes_of,
    pipelines,
    refused,
    replayed,
    replicated,
    runs_or_is_refused,
    swapped,
    with_lanes,
)
from tinyckpt.base.errors import OptionError, ScheduleError
from tinyckpt.pipeline import (
    Action,
    Footprint,
    Pipeline,
    PipelineCosts,
    gpipe,
    one_f_one_b,
    replay_pipeline,
    zb_h1,
)
from tinyckpt.pipeline.custom_pipeline import pipeline_of
from tinyckpt.pipeline.program import KINDS


@pytest.mark.long
@given(replicated(), costs)
def test_start_times_equal_reference_simulator(pipeline: Pipeline, costs: PipelineCosts) -> None:
    trace = replayed(pipeline, costs)
    whole = len(trace.busy) * trace.makespan
    assert trace.bubble == (1 - Fraction(sum(trace.busy)) / whole if whole else 0)


@given(swapped(replicated()), costs)
def test_swapped_actions_equal_reference_simulator_or_are_refused(
    pipeline: Pipeline, costs: PipelineCosts
) -> None:
    runs_or_is_refused(pipeline, costs)


def without(lanes: Lanes, action: Action) -> Lanes:
    return [[own for own in lane if own != action] for lane in lanes]


def test_missing_send_and_missing_recv_are_refused() -> None:
    pipeline = gpipe(3, 2)
    lanes = lanes_of(pipeline)
    assert refused(pipeline, without(lanes, Action("send_activation", 0, 1))) == (
        "device 1, step 3: recv activation of stage 1, micro-batch 1: its send activation is "
        "missing on the device of its neighbour"
    )
    assert refused(pipeline, without(lanes, Action("recv_cotangent", 0, 1))) == (
        "device 0, step 6: backward of stage 0, micro-batch 1: needs the recv cotangent, which is "
        "not there"
    )


def test_action_before_its_input_is_refused() -> None:
    pipeline = one_f_one_b(2, 2)
    lanes = lanes_of(pipeline)
    own = [Action("backward", 1, 0), *[a for a in lanes[1] if a != Action("backward", 1, 0)]]
    assert refused(pipeline, [lanes[0], own]) == (
        "device 1, step 0: backward of stage 1, micro-batch 0: needs the forward, which comes at "
        "step 2"
    )


def test_read_of_stale_parameter_is_refused() -> None:
    pipeline = one_f_one_b(2, 2)
    lanes = lanes_of(pipeline)
    lanes[1].insert(3, lanes[1].pop())
    assert refused(pipeline, lanes) == (
        "device 1, step 6: forward of stage 1, micro-batch 1: its parameters are stale: step 3 "
        "updated them, and a batch reads them as they were before"
    )
    pipeline = zb_h1(2, 2)
    lanes = lanes_of(pipeline)
    lanes[0].insert(-1, lanes[0].pop())
    assert refused(pipeline, lanes) == (
        "device 0, step 10: backward weight of stage 0, micro-batch 1: its gradient comes after "
        "the update of the stage, at step 9"
    )


def test_deadlock_error_names_the_cycle() -> None:
    # Device 0 wants the first cotangent before it sends the second activation; device 1 wants that
    # before it begins to go back.
    pipeline = gpipe(2, 2)
    lanes = lanes_of(pipeline)
    lanes[0] = lanes_of(one_f_one_b(2, 2))[1 - 1]
    eager = [Action("forward", 0, 0), Action("send_activation", 0, 0)]
    back = [Action("recv_cotangent", 0, 0), Action("backward", 0, 0)]
    rest = [action for action in lanes[0] if action not in (*eager, *back)]
    assert refused(pipeline, [[*eager, *back, *rest], lanes[1]]) == (
        "device 0, step 2: recv cotangent of stage 0, micro-batch 0: a deadlock, waits for "
        "device 1, step 2: recv activation of stage 1, micro-batch 1, waits for it"
    )


def test_unknown_actions_are_refused() -> None:
    with pytest.raises(ScheduleError, match=r"device 0, step 0: \('fly', 0, 0\) is not an action"):
        pipeline_of("mine", [0], 1, [[Action("fly", 0)]])
    for wrong in (
        None, ("forward", 0, 0), Action("forward", 0.0), Action("forward", 0, -1),
        Action(["forward"], 0), Action("forward", 1), Action("update", 0, 1),
    ):  # fmt: skip
        with pytest.raises(ScheduleError, match=r"device 0, step 0: .* is not an action; mine has"):
            pipeline_of("mine", [0], 2, [[wrong]])  # type: ignore[list-item]
    pipeline = gpipe(2, 1)
    lanes = lanes_of(pipeline)
    lanes[0].append(lanes[1].pop())
    assert refused(pipeline, lanes) == (
        "device 0, step 5: update of stage 1: that stage is on device 1"
    )


@given(pipelines())
def test_in_flight_count_is_independent_of_footprints(pipeline: Pipeline) -> None:
    sizes = [Footprint(9 + k, 5, 8, 7, 12, 11 + k, 3, 4) for k in range(pipeline.stages)]
    counted, weighed = replay_pipeline(pipeline), replay_pipeline(pipeline, None, sizes)
    assert weighed.in_flight == counted.in_flight == counted.peaks
    assert ("by stage" in str(counted)) == (pipeline.stages > pipeline.devices)
    assert "by stage" not in str(weighed)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (([0], 0, [[]]), "mine: micro-batches must be an integer from 1 to 2,147,483,647"),
        (([0], 2.0, [[]]), "mine: micro-batches must be an integer"),
        (([0], 10**5000, [[]]), "mine: micro-batches must be an integer"),
        (([0], 1, [[]], 0), "mine: replicas must be an integer"),
        (([0], 1, [[]], 1, 4), "mine: zero must be 0, 1, 2 or 3"),
        (
            ([], 1, [[]]),
            r"mine: device_of=\[\]; expected for each of one or more stages",
        ),
        (([1], 1, [[]]), r"mine: device_of=\[1\]; expected"),
        (([0.5], 1, [[]]), r"mine: device_of=\[0.5\]; expected"),
        (([0, 0], 1, [[], []], 2), "2 stages on 2 devices are not 2 replicas of a pipeline"),
        (([0, 1, 0], 1, [[], []], 2), "3 stages on 2 devices are not 2 replicas"),
    ],
)
def test_illegal_counts_are_refused(given: Any, what: str) -> None:
    with pytest.raises(OptionError, match=what):
        pipeline_of("mine", *given)


def test_slow_device_does_not_round_off_fast_device() -> None:
    trace = replay_pipeline(gpipe(2, 3), PipelineCosts([1e17, 1.0], [1e17, 1.0], [1e17, 1.0]))
    assert trace.lane(1).start.tolist()[-6:] == sorted(trace.lane(1).start.tolist()[-6:])
    assert trace.busy == (9e17, 9.0)
    slow = replay_pipeline(gpipe(2, 3), PipelineCosts([1.0, 1e17], [1.0, 1e17], [1.0, 1e17]))
    assert slow.start(0, 4) == 2.0


def test_stage_without_recomputation_frees_its_footprint() -> None:
    pipeline = gpipe(2, 2, recompute="late")
    lanes = lanes_of(pipeline)
    kept = [[a for a in lanes[0] if a.kind != "recompute"], lanes[1]]
    trace = replay_pipeline(with_lanes(pipeline, kept), None, Footprint(5, 2, 7, 7, 9))
    assert [trace.lane(device).after.tolist()[-1] for device in (0, 1)] == [0, 0]
    assert trace.peaks == (2 + 9, 2 + 9)


def test_memory_between_actions_counts_in_the_peak() -> None:
    assert replay_pipeline(gpipe(1, 2), None, Footprint(forward=1, held=4, backward=2)).peaks == (
        8,
    )


@given(pipelines(), costs, st.booleans())
def test_lanes_equal_the_replayed_pipeline(
    pipeline: Pipeline, costs: PipelineCosts, counted: bool
) -> None:
    sizes = [Footprint(9 + k, 5, 8, 7, 12, 11 + k, 3, 4) for k in range(pipeline.stages)]
    trace = replay_pipeline(pipeline, costs, None if counted else sizes)
    assert (trace.footprints is None) == counted
    for device in range(pipeline.devices):
        lane = trace.lane(device)
        assert [
            Action(KINDS[kind], stage, micro_batch)
            for kind, stage, micro_batch in zip(*map(list, lane[:3]), strict=True)
        ] == pipeline.actions(device)
        assert Fraction(int(lane.duration.sum()), trace.unit) == trace.busy[device]
        assert max(*lane.during, *lane.after) == trace.peaks[device]
        assert (lane.during >= 0).all()
        assert lane.after[-1] == 0
