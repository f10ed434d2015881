"""Reference simulator of a pipeline, independent of replay; Hypothesis draws of pipelines."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import strategies as st

from tinyckpt.base.errors import ScheduleError
from tinyckpt.pipeline import (
    PIPELINES,
    Action,
    Pipeline,
    PipelineCosts,
    PipelineTrace,
    data_parallel,
    replay_pipeline,
)
from tinyckpt.pipeline.custom_pipeline import pipeline_of
from tinyckpt.pipeline.program import COLLECTIVES, KINDS

Lanes = list[list[Action]]
TOGETHER = {KINDS[kind] for kind in COLLECTIVES}


def lanes_of(pipeline: Pipeline) -> Lanes:
    return [pipeline.actions(device) for device in range(pipeline.devices)]


def with_lanes(whole: Pipeline, lanes: Sequence[Sequence[Action]]) -> Pipeline:
    places = whole.device_of.tolist()
    return pipeline_of(whole.name, places, whole.micro_batches, lanes, whole.replicas, whole.zero)


def refused(pipeline: Pipeline, lanes: Sequence[Sequence[Action]]) -> str:
    with pytest.raises(ScheduleError) as error:
        replay_pipeline(with_lanes(pipeline, lanes))
    return str(error.value)


def simulated(pipeline: Pipeline, costs: PipelineCosts) -> list[list[Any]] | None:
    """When each action begins, by asking each device in turn what it can do; None for never."""
    depth, devices = pipeline.stages // pipeline.replicas, pipeline.devices // pipeline.replicas
    table, way, unit = costs.scaled(depth)
    arrives: dict[Action, Any] = {}
    there: dict[tuple[int, int], list[Any]] = {}  # by device of a replica, and which in turn
    lanes = lanes_of(pipeline)
    at, clock, meetings = [0] * len(lanes), [0] * len(lanes), [0] * len(lanes)
    starts: list[list[Any]] = [[] for _ in lanes]
    came = [False] * len(lanes)
    moved = True
    while moved:
        moved = False
        for device, lane in enumerate(lanes):
            while at[device] < len(lane):
                action = lane[at[device]]
                kind, stage, micro_batch = action
                took = table[KINDS.index(kind), stage % depth].item()
                if kind.startswith("recv"):
                    if action not in arrives:
                        break
                    clock[device] = max(clock[device], arrives[action])
                if kind in TOGETHER:
                    all_clocks = there.setdefault((device % devices, meetings[device]), [])
                    if not came[device]:
                        came[device] = moved = True
                        all_clocks.append(clock[device])
                    if len(all_clocks) < pipeline.replicas:
                        break
                    clock[device] = max(all_clocks) + took
                    meetings[device] += 1
                    came[device], took = False, 0
                starts[device].append(Fraction(clock[device], unit))
                if kind.startswith("send"):
                    to = stage + (1 if kind == "send_activation" else -1)
                    arrived = Action(kind.replace("send", "recv"), to, micro_batch)
                    arrives[arrived] = clock[device] + int(way)
                clock[device] += took
                at[device] += 1
                moved = True
    return starts if all(map(lambda n, lane: n == len(lane), at, lanes)) else None


costs = st.builds(
    PipelineCosts,
    *[st.fractions(0, 5, max_denominator=4)] * 4,
    communication=st.fractions(0, 9, max_denominator=4),
    update=st.integers(0, 3),
    collective=st.fractions(0, 9, max_denominator=4),
)


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    devices = draw(st.integers(1, 5))
    recompute = draw(st.sampled_from([None, "early", "late"]))
    name = draw(st.sampled_from(sorted(PIPELINES)))
    groups = draw(st.integers(1, 3)) * devices
    count = groups if name == "interleaved" else draw(st.integers(1, 9))
    return PIPELINES[name](devices, count, recompute=recompute)


@st.composite
def replicated(draw: st.DrawFn) -> Pipeline:
    pipeline = draw(pipelines())
    replicas = draw(st.sampled_from([1, 1, 2, 3]))
    return data_parallel(pipeline, replicas, draw(st.integers(0, 3)))


@st.composite
def swapped(draw: st.DrawFn, pipelines: st.SearchStrategy[Pipeline]) -> Pipeline:
    """A pipeline of which some actions stand before those that they followed."""
    pipeline = draw(pipelines)
    lanes = lanes_of(pipeline)
    for _ in range(draw(st.integers(1, 4))):
        lane = draw(st.sampled_from(lanes))
        step = draw(st.integers(0, len(lane) - 2))
        lane[step], lane[step + 1] = lane[step + 1], lane[step]
    return with_lanes(pipeline, lanes)


def replayed(pipeline: Pipeline, costs: PipelineCosts) -> PipelineTrace:
    """What replay says, which begins each action when the slow machine does."""
    trace = replay_pipeline(pipeline, costs)
    expected = simulated(pipeline, costs)
    assert expected is not None
    for device, starts in enumerate(expected):
        assert [trace.start(device, step) for step in range(len(starts))] == starts
    return trace


def runs_or_is_refused(pipeline: Pipeline, costs: PipelineCosts) -> None:
    """Assert that replay agrees with the slow machine, and says where nothing goes on."""
    try:
        replay_pipeline(pipeline, costs)
    except ScheduleError as error:
        assert str(error).startswith("device ")  # noqa: PT017
        if "deadlock" in str(error):
            assert simulated(pipeline, costs) is None
    else:
        replayed(pipeline, costs)
