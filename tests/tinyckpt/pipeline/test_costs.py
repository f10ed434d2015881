"""Cost model of pipelines: exact integer durations, footprints, and refused values."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.tinyckpt.pipeline.reference_simulator import costs
from tests.tinyckpt.pipeline.test_replay import pipelines
from tinyckpt.base.errors import OptionError, ScheduleError
from tinyckpt.pipeline import (
    Footprint,
    Pipeline,
    PipelineCosts,
    gpipe,
    one_f_one_b,
    replay_pipeline,
)


def test_costs_and_footprints_may_differ_by_stage() -> None:
    pipeline = gpipe(2, 3)
    trace = replay_pipeline(pipeline, PipelineCosts(forward=[1, 4], communication=0.5))
    assert trace.busy == (9.0, 18.0)
    assert trace.makespan == 1 + 0.5 + 18 + 0.5 + 2
    sizes = [Footprint(forward=7, held=5, backward=6), Footprint(3, 2, backward=4)]
    assert replay_pipeline(pipeline, None, sizes).peaks == (17, 8)
    with pytest.raises(OptionError, match="3 footprints; the pipeline has 2 stages"):
        replay_pipeline(pipeline, None, [Footprint()] * 3)
    with pytest.raises(OptionError, match=r"costs=3; expected tinyckpt.pipeline.PipelineCosts\("):
        replay_pipeline(pipeline, 3)  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match=r"expected a Pipeline, .* got a int"):
        replay_pipeline(3)  # type: ignore[arg-type]


@given(pipelines(), costs)
def test_huge_costs_with_common_measure_are_exact(pipeline: Pipeline, costs: PipelineCosts) -> None:
    measure = 12 * 10**40 + 12
    large = PipelineCosts(
        costs.forward * measure, costs.backward_input * measure, costs.backward_weight * measure,
        costs.recompute * measure, costs.communication * measure, costs.update * measure,
    )  # fmt: skip
    trace, small = replay_pipeline(pipeline, large), replay_pipeline(pipeline, costs)
    assert trace.makespan == small.makespan * measure
    assert trace.busy == tuple(busy * measure for busy in small.busy)
    assert trace.bubble == small.bubble
    step = len(pipeline.actions(0)) - 1
    assert trace.start(0, step) == small.start(0, step) * measure


def test_huge_costs_without_common_measure_become_floats() -> None:
    # The FLOPs of 96 layers, and of 4,096 micro-batches; nothing but 1 divides them all.
    costs = PipelineCosts(10**18 + 7, [10**18 + k * k for k in range(4)], 10**18 + 1)
    trace = replay_pipeline(one_f_one_b(4, 4096), costs)
    assert isinstance(trace.makespan, float)
    assert trace.makespan == pytest.approx(3e18 * 4099, rel=1e-12)
    assert float(trace.bubble) == pytest.approx(3 / 4099, rel=1e-9)
    assert replay_pipeline(gpipe(2, 1), PipelineCosts(2**59 + 1)).makespan == 2 * 2**59 + 6


def test_bubble_is_never_negative() -> None:
    for cost in (0.1, 1 / 3, 1e-300, 5e-324, 1e300):
        for count in range(1, 40):
            bubble = replay_pipeline(gpipe(1, count), PipelineCosts(cost, cost, cost)).bubble
            assert f"{bubble:.1%}" == "0.0%"
    assert str(replay_pipeline(gpipe(1, 7), PipelineCosts(0.0, 0, 0))).count(" 0.0%") == 1


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"forward": -1}, "forward: -1; a cost is a finite number of 0 or more"),
        ({"forward": float("nan")}, "forward: nan; a cost is"),
        ({"communication": float("inf")}, "communication: inf; a cost is"),
        ({"update": [0, "x"]}, "update: 'x'; a cost is"),
        ({"update": None}, "update: None; a cost is"),
        ({"collective": 10**400}, "add up to more than 1.8e.308, the most that a float holds"),
        ({"forward": 10**5000}, "add up to more than 1.8e.308"),
        ({"forward": -(10**5000)}, "forward: int of very many digits; a cost is"),
        ({"forward": 1e308}, "add up to more than 1.8e.308"),
        ({"forward": [1, 2, 3]}, "forward has 3 costs; the pipeline has 2 stages"),
    ],
)
def test_illegal_costs_are_refused(wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        replay_pipeline(gpipe(2, 3), PipelineCosts(**wrong))


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (Footprint(held=-1), "stage 0, footprint: held=-1; it must be an integer of 0 or more"),
        (Footprint(1, 2.5), "stage 0, footprint: held=2.5; it must be"),  # type: ignore[arg-type]
        ([Footprint(), Footprint(weight=2**61)], "3 micro-batches hold more than 4,611,686,018,42"),
        ([Footprint(2**300)] * 2, "3 micro-batches hold more than"),
    ],
)
def test_illegal_footprints_are_refused(wrong: Any, what: str) -> None:
    with pytest.raises(OptionError, match=what):
        replay_pipeline(gpipe(2, 3), None, wrong)


def test_numpy_costs_are_accepted() -> None:
    costs = PipelineCosts(np.array([1, 2]), np.int64(1), np.float32(1))  # type: ignore[arg-type]
    assert replay_pipeline(gpipe(2, 1), costs).makespan == 7.0
