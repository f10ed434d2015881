"""Mutation of legal pipelines: one changed action is refused, by device and step."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tinyckpt.pipeline.reference_simulator import (
    Lanes,
    lanes_of,
    refused,
    replicated,
    with_lanes,
)
from tinyckpt.base.errors import ScheduleError
from tinyckpt.pipeline import Action, Pipeline, gpipe, replay_pipeline
from tinyckpt.pipeline.program import KINDS, OF_THE_BATCH

NAMED = r"^device \d+, step \d+: "


def taken(draw: st.DrawFn, lanes: Lanes) -> tuple[list[Action], int]:
    lane = draw(st.sampled_from([lane for lane in lanes if lane]))
    return lane, draw(st.integers(0, len(lane) - 1))


def dropped(draw: st.DrawFn, like: Pipeline, lanes: Lanes) -> bool:
    lane, step = taken(draw, lanes)
    gone = lane.pop(step)
    same = [action for own in lanes for action in own if action.kind == gone.kind]
    of_stage = [action for action in same if action.stage == gone.stage]
    # Without any update, and in a stage without any recomputation, a pipeline is legal.
    return bool(of_stage if gone.kind == "recompute" else same or gone.kind != "update")


def repeated(draw: st.DrawFn, like: Pipeline, lanes: Lanes) -> bool:
    lane, step = taken(draw, lanes)
    lane.insert(draw(st.integers(0, len(lane))), lane[step])
    return True


def moved(draw: st.DrawFn, like: Pipeline, lanes: Lanes) -> bool:
    lane, step = taken(draw, lanes)
    others = [own for own in lanes if own is not lane]
    if not others:
        return False
    other = draw(st.sampled_from(others))
    other.insert(draw(st.integers(0, len(other))), lane.pop(step))
    return True


def renamed(draw: st.DrawFn, like: Pipeline, lanes: Lanes) -> bool:
    lane, step = taken(draw, lanes)
    old = lane[step]
    kind = draw(st.sampled_from(KINDS))
    stage = draw(st.sampled_from([old.stage, draw(st.integers(0, like.stages - 1))]))
    number = 0 if kind in OF_THE_BATCH else draw(st.integers(0, like.micro_batches - 1))
    if (new := Action(kind, stage, number)) == old:
        return False
    if old.kind == "recompute" or (old.kind, kind) == ("update", "recompute"):
        return False  # as in ``dropped``
    lane[step] = new
    return True


def early(draw: st.DrawFn, like: Pipeline, lanes: Lanes) -> bool:
    lane, _ = taken(draw, lanes)
    updates = [action for action in lane if action.kind == "update"]
    if not updates:
        return False
    own = draw(st.sampled_from(updates))
    kinds = ("forward", "backward", "backward_weight")
    work = [n for n, each in enumerate(lane) if each.stage == own.stage and each.kind in kinds]
    lane.remove(own)
    lane.insert(draw(st.sampled_from(work)), own)
    return True


@pytest.mark.parametrize("mutation", [dropped, repeated, moved, renamed, early])
def test_one_mutated_action_is_refused(mutation: Any) -> None:
    message = ".*is done again later; each action is done once" if mutation is repeated else ""

    @given(replicated(), st.data())
    def found(pipeline: Pipeline, data: st.DataObject) -> None:
        lanes = lanes_of(pipeline)
        if mutation(data.draw, pipeline, lanes):
            with pytest.raises(ScheduleError, match=NAMED + message):
                replay_pipeline(with_lanes(pipeline, lanes))

    found()


def test_recompute_after_its_backward_is_refused() -> None:
    pipeline = gpipe(2, 2)
    lanes = lanes_of(pipeline)
    lanes[1][lanes[1].index(Action("backward", 1, 1))] = Action("recompute", 1, 0)
    assert refused(pipeline, lanes) == (
        "device 1, step 4: backward of stage 1, micro-batch 0: needs the recompute, which comes at "
        "step 6"
    )
