"""Data of pipeline charts: blocks, bubbles, messages, memory curves, utilisation."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.tinyckpt.pipeline.reference_simulator import costs
from tests.tinyckpt.pipeline.test_replay import pipelines
from tinyckpt.pipeline import (
    Action,
    Footprint,
    Pipeline,
    PipelineCosts,
    data_parallel,
    gpipe,
    one_f_one_b,
    replay_pipeline,
    zb_h1,
)
from tinyckpt.pipeline.custom_pipeline import pipeline_of
from tinyckpt.pipeline.program import KINDS, LETTERS, Kind
from viz.charts.pipeline import corners_of
from viz.charts.pipeline_lanes import (
    DeviceLane,
    highest_peaks,
    lane_of,
    messages_of,
    ready_of,
    shares_of,
    subtitles_of,
    title_of,
)


def text_of(lane: DeviceLane) -> str:
    """Return a lane as text: kind, micro-batch, begin and end of each block; bubbles."""
    entries = [
        (begin, end, f"{LETTERS[kind]}{micro_batch}")
        for kind, micro_batch, begin, end in zip(
            lane.kind, lane.micro_batch, lane.begin, lane.end, strict=True
        )
        if kind in LETTERS
    ]
    entries += [(begin, end, "idle") for begin, end in lane.idle]
    return ", ".join(f"{what} {begin}-{end}" for begin, end, what in sorted(entries))


def test_lanes_match_published_figures() -> None:
    trace = replay_pipeline(one_f_one_b(2, 3))
    assert [text_of(lane_of(trace, device)) for device in (0, 1)] == [
        "F0 0-1, F1 1-2, idle 2-4, B0 4-6, F2 6-7, B1 7-9, idle 9-10, B2 10-12",
        "idle 0-1, F0 1-2, B0 2-4, F1 4-5, B1 5-7, F2 7-8, B2 8-10, idle 10-12",
    ]
    halves = replay_pipeline(zb_h1(2, 2, "late"), PipelineCosts(communication=2))
    assert text_of(lane_of(halves, 1)) == (
        "idle 0-3, F0 3-4, R0 4-5, B0 5-6, F1 6-7, R1 7-8, B1 8-9, W0 9-10, W1 10-11, idle 11-14"
    )
    assert title_of(halves) == "ZB-H1, recomputing"
    assert messages_of(halves).tolist() == [[1, 0, 3, 1], [2, 0, 4, 1], [6, 1, 8, 0], [9, 1, 11, 0]]


def curve_of(lane: DeviceLane) -> list[tuple[Any, Any]]:
    return list(zip(lane.times.tolist(), lane.held.tolist(), strict=True))


def test_memory_curves_equal_device_memory() -> None:
    sizes = Footprint(forward=5, held=3, backward=9)
    trace = replay_pipeline(gpipe(1, 2), PipelineCosts(backward_weight=0, update=1), sizes)
    assert curve_of(lane_of(trace, 0)) == [
        (0, 0), (0, 5), (1, 3), (1, 8), (2, 6), (2, 12), (3, 3), (3, 9), (4, 0), (4, 0), (5, 0),
        (5, 0),
    ]  # fmt: skip
    times, held = corners_of(lane_of(trace, 0))
    assert list(zip(times, held, strict=True)) == [(0, 5), (1, 8), (2, 12), (3, 9), (4, 0), (5, 0)]
    # What takes no time, but holds more than before and after, is seen.
    free = replay_pipeline(gpipe(1, 2), PipelineCosts(forward=0), sizes)
    times, held = corners_of(lane_of(free, 0))
    assert (0, 8) in set(zip(times, held, strict=True))
    assert max(held) == free.peaks[0]


sizes_of = st.builds(Footprint, *[st.integers(0, 9)] * 8)


@settings(max_examples=examples(60))
@given(pipelines(), costs, sizes_of)
def test_blocks_and_bubbles_fill_every_lane(
    pipeline: Pipeline, costs: PipelineCosts, sizes: Footprint
) -> None:
    trace = replay_pipeline(pipeline, costs, sizes)
    shown, idle = [], Fraction(0)
    for device in range(pipeline.devices):
        lane = lane_of(trace, device)
        assert set(lane.stage.tolist()) <= set(lane.stages)
        shown += list(zip(lane.kind, lane.stage, lane.micro_batch, strict=True))
        spans = list(zip(lane.begin.tolist(), lane.end.tolist(), strict=True))
        assert all(begin <= end for begin, end in spans)
        # In order, blocks and bubbles are next to each other, from 0 to the makespan.
        every = sorted([span for span in spans if span[0] < span[1]] + list(map(tuple, lane.idle)))
        assert all(one[1] == other[0] for one, other in pairwise(every))
        if every:
            assert (every[0][0], Fraction(every[-1][1], trace.unit)) == (0, trace.makespan)
        idle += Fraction(int((lane.idle[:, 1] - lane.idle[:, 0]).sum()), trace.unit)
        assert max(lane.held) == trace.peaks[device]
        own, work = trace.lane(device), trace.lane(device).kind <= Kind.UPDATE
        assert lane.held[1:-1:2].tolist() == own.during[work].tolist()
        assert lane.held[2::2].tolist() == own.after[work].tolist()
        assert lane.held[-1] == 0
    assert idle == trace.makespan * pipeline.devices - sum(trace.busy)
    work = pipeline.kind <= Kind.UPDATE
    columns = (pipeline.kind[work], pipeline.stage[work], pipeline.micro_batch[work])
    assert sorted(shown) == sorted(zip(*columns, strict=True))


@settings(max_examples=examples(30))
@given(pipelines(), costs, st.floats(0.1, 10))
def test_rounding_errors_make_no_bubbles(
    pipeline: Pipeline, costs: PipelineCosts, scale: float
) -> None:
    exact = replay_pipeline(pipeline, costs)
    trace = replay_pipeline(
        pipeline,
        PipelineCosts(
            *(float(cost) * scale for cost in (costs.forward, costs.backward_input)),  # type: ignore[arg-type]
            *(float(cost) * scale for cost in (costs.backward_weight, costs.recompute)),  # type: ignore[arg-type]
            communication=float(costs.communication) * scale,
            update=float(costs.update) * scale,  # type: ignore[arg-type]
        ),
    )
    for device in range(pipeline.devices):
        lane, expected = lane_of(trace, device), lane_of(exact, device)
        assert len(lane.idle) == len(expected.idle)
        assert ((lane.end > lane.begin) == (expected.end > expected.begin)).all()


@settings(max_examples=examples(30))
@given(pipelines(), costs, st.integers(1, 5), st.integers(1, 40))
def test_utilisation_shares_add_up_to_busy_time(
    pipeline: Pipeline, costs: PipelineCosts, rows: int, columns: int
) -> None:
    trace = replay_pipeline(pipeline, costs)
    if not trace.makespan:
        return
    rows = min(rows, pipeline.devices)
    own = float(trace.makespan * trace.unit)
    shares = shares_of(trace, rows, columns, own)
    assert shares.min() >= -1e-9
    assert shares.sum(axis=2).max() <= 1 + 1e-9
    members = np.bincount(np.arange(pipeline.devices) * rows // pipeline.devices)
    busy = (shares.sum(axis=(1, 2)) * members).sum() * own / columns
    assert busy == pytest.approx(float(sum(trace.busy) * trace.unit))


def test_many_devices_are_represented_by_the_highest_peaks() -> None:
    trace = replay_pipeline(one_f_one_b(10, 20))
    assert highest_peaks(trace, 16) == list(range(10))
    assert highest_peaks(trace, 3) == [0, 4, 7]
    assert [trace.peaks[device] for device in (0, 4, 7)] == [10, 6, 3]


def test_downsampled_curve_keeps_its_peak() -> None:
    trace = replay_pipeline(one_f_one_b(3, 5000))
    times, held = corners_of(lane_of(trace, 0))
    assert len(times) == len(held) == 1001
    assert (max(held), times[-1]) == (3, float(trace.makespan))
    assert (held[:-1] >= 1).all()


@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("make", [gpipe, zb_h1])
def test_replicas_wait_for_collectives(make: Any, zero: int) -> None:
    costs = PipelineCosts(forward=[1, 3], communication=1, collective=2, update=1)
    trace = replay_pipeline(data_parallel(make(2, 3), 2, zero), costs)
    assert subtitles_of(trace)[0].startswith("2 replicas on 4 devices, 3 micro-batches each; ")
    read, taken = ready_of(trace)
    idle = Fraction(0)
    for device in range(4):
        lane = lane_of(trace, device)
        count = len(lane.kind)
        free = np.append(0, lane.end[:-1])
        expected = np.maximum(free, np.maximum(read[:count], taken[:count]))
        assert lane.begin.tolist() == expected.tolist()
        read, taken = read[count:], taken[count:]
        idle += Fraction(int((lane.idle[:, 1] - lane.idle[:, 0]).sum()), trace.unit)
    assert idle == trace.makespan * 4 - sum(trace.busy)
    found = messages_of(trace)
    assert {(source < 2) == (target < 2) for _, source, _, target in found} == {True}


def test_device_without_actions_is_one_bubble() -> None:
    actions = [Action("forward", 0), Action("backward", 0)]
    trace = replay_pipeline(pipeline_of("mine", [0], 1, [actions, []]))
    lane = lane_of(trace, 1)
    assert (lane.stages, lane.idle.tolist(), curve_of(lane)) == ((), [[0, 3]], [(0, 0), (3, 0)])


@settings(max_examples=examples(60))
@given(pipelines(), costs)
def test_block_begins_when_device_and_inputs_are_ready(
    pipeline: Pipeline, costs: PipelineCosts
) -> None:
    trace = replay_pipeline(pipeline, costs)
    ready = np.maximum(*ready_of(trace))
    for device in range(pipeline.devices):
        lane = lane_of(trace, device)
        free = np.append(0, lane.end[:-1])
        own, ready = ready[: len(free)], ready[len(free) :]
        assert lane.begin.tolist() == np.maximum(free, own).tolist()


def test_recomputation_waits_for_a_message_received_before_it() -> None:
    for recompute, waits in (("late", True), ("early", False)):
        trace = replay_pipeline(gpipe(2, 1, recompute))
        assert [KINDS[kind] for kind in lane_of(trace, 0).kind] == [
            "forward", "recompute", "backward", "update",
        ]  # fmt: skip
        read, taken = ready_of(trace)
        assert (taken > read).tolist() == [False, waits] + [False] * 6
