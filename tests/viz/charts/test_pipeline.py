"""Pipeline charts, as data and as matplotlib artists, not pixels."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
import viz
from tests.viz.charts.test_charts import legend_of, texts
from tests.viz.test_theme import LEAST_CONTRAST, contrast
from tinyckpt.pipeline import (
    PIPELINES,
    Footprint,
    PipelineCosts,
    PipelineTrace,
    gpipe,
    interleaved,
    one_f_one_b,
    replay_pipeline,
    v_half,
    zb_h1,
)
from viz.charts.pipeline import pipeline_figure
from viz.charts.pipeline_gantt import COARSER, ODD, label_on, looks_of
from viz.charts.pipeline_lanes import counters_of, subtitles_of
from viz.theme import DARK, LIGHT, Theme, blend


def boxes_of(axis: Any, label: str) -> list[tuple[float, float]]:
    """Return begin and end of the boxes of a label, device by device."""
    paths = [
        path
        for boxes in axis.collections
        if boxes.get_label() == label
        for path in boxes.get_paths()
    ]
    found = [path.get_extents() for path in paths]
    return [(box.x0, box.x1) for box in sorted(found, key=lambda box: (round(box.y0), box.x0))]


def test_tick_labels_of_huge_times_do_not_overlap() -> None:
    trace = replay_pipeline(one_f_one_b(4, 6), PipelineCosts(10**18 + 7, 10**18, 10**18 + 1))
    axis = pipeline_figure([trace], LIGHT).axes[-1]
    axis.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in axis.get_xticklabels() if label.get_text()]
    assert len(boxes) > 2
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_pipeline_figure_shows_blocks_bubbles_and_curves() -> None:
    trace = replay_pipeline(one_f_one_b(2, 3))
    lanes, curves = pipeline_figure([trace], LIGHT).axes
    assert boxes_of(lanes, "forward") == [(0, 1), (1, 2), (6, 7), (1, 2), (4, 5), (7, 8)]
    assert boxes_of(lanes, "backward") == [(4, 6), (7, 9), (10, 12), (2, 4), (5, 7), (8, 10)]
    assert boxes_of(lanes, "idle") == [(2, 4), (9, 10), (0, 1), (10, 12)]
    said = texts(lanes)
    assert said[:8] == [
        "1F1B", "2 devices, 3 micro-batches; peaks 2, 1 in flight", "2 in flight", "highest peak",
        "25.0 %", "bubble", "12", "makespan",
    ]  # fmt: skip
    assert said[8:10] == ["25 % idle", "25 % idle"]
    assert said[10:] == ["0", "1", "0", "2", "1", "2", "0", "0", "1", "1", "2", "2"]
    assert texts(curves) == [
        "micro-batches in flight on each device; a row is 2 high", "peak 2", "peak 1",
    ]  # fmt: skip
    peaks = [line.get_xydata()[0] for line in curves.lines if line.get_label() == "peak"]
    assert [float(x) for x, _ in peaks] == [1, 1]
    figure = pipeline_figure([trace], DARK)
    assert legend_of(figure.legends[0]) == ["forward", "backward", "idle: the bubble"]


def test_compared_schedules_share_time_and_memory_scales() -> None:
    traces = [replay_pipeline(make(4, 8, "early")) for make in (gpipe, one_f_one_b, zb_h1)]
    figure = pipeline_figure(traces, LIGHT)
    longest = max(trace.makespan for trace in traces)
    assert {axis.get_xlim() for axis in figure.axes} == {(0, longest)}
    captions = [texts(axis)[0] for axis in figure.axes[1::2]]
    assert captions == ["micro-batches in flight on each device; a row is 8 high"] * 3
    assert [axis.get_title("left") for axis in figure.axes[::2]] == [
        "GPipe, recomputing", "1F1B, recomputing", "ZB-H1, recomputing",
    ]  # fmt: skip
    assert legend_of(figure.legends[0]) == [
        "forward", "recomputation", "backward, backward (inputs)", "backward (weights)",
        "idle: the bubble",
    ]  # fmt: skip


def test_each_stage_of_a_device_has_a_row() -> None:
    trace = replay_pipeline(v_half(2, 2))
    lanes = pipeline_figure([trace], LIGHT).axes[0]
    assert texts(lanes)[1] == "4 stages on 2 devices, 2 micro-batches; peaks 3, 4 by stage"
    assert [label.get_text() for label in lanes.get_yticklabels()] == ["0", "3", "1", "2"]
    assert lanes.get_ylabel() == "stage"
    tops: dict[float, int] = {}
    for boxes in lanes.collections:
        if boxes.get_label() == "forward":
            for path in boxes.get_paths():
                top = round(float(path.get_extents().y0), 3)
                tops[top] = tops.get(top, 0) + 1
    assert tops == {-0.39: 2, 0.0: 2, 0.61: 2, 1.0: 2}
    assert len(boxes_of(lanes, "other stages")) == len(trace.pipeline.device_of) * 2 * 3


def test_messages_are_arrows_if_there_is_room() -> None:
    def arrows(trace: PipelineTrace, width: float) -> int:
        lanes = pipeline_figure([trace], LIGHT, width).axes[0]
        return sum(getattr(text, "arrow_patch", None) is not None for text in lanes.texts)

    few = replay_pipeline(one_f_one_b(3, 4), PipelineCosts(communication=1))
    assert arrows(few, 8) == 2 * 2 * 4
    assert arrows(replay_pipeline(one_f_one_b(3, 99)), 8) == 0
    assert arrows(replay_pipeline(gpipe(1, 4)), 8) == 0


def real(name: str, schedule: str = "1f1b", way: float = 0) -> PipelineTrace:
    graph = tc.networks.network_from_text(name)[0]
    own = PIPELINES[schedule](4, 8)
    cuts = tc.pipeline.partition(graph, own.stages)
    stages = tc.pipeline.plan_stages(tc.pipeline.stages_of(graph, cuts))
    paid = tc.pipeline.pipeline_costs(own, stages, tc.cost.flops, way)
    return replay_pipeline(own, paid, [stage.footprint for stage in stages])


def test_bytes_and_flops_have_units() -> None:
    trace = real("mlp:8x512")
    assert counters_of(trace) == [
        ("makespan", "1.2111 GFLOPs"), ("bubble", "36.0 %"), ("highest peak", "6.9 MiB"),
    ]  # fmt: skip
    assert subtitles_of(trace)[0] == "4 devices, 8 micro-batches; peaks 6.9, 5.3, 5.0, 2.4 MiB"
    figure = pipeline_figure([trace], LIGHT)
    assert figure.axes[-1].get_xlabel() == "time, GFLOPs"
    assert texts(figure.axes[1])[0].startswith("memory of micro-batches on each device; a row is ")


def test_idle_share_near_100_percent_is_not_rounded_up() -> None:
    costs = PipelineCosts(forward=[1, 999], backward_input=0, backward_weight=0)
    lanes = pipeline_figure([replay_pipeline(gpipe(2, 1), costs)], LIGHT).axes[0]
    assert [text for text in texts(lanes) if text.endswith("idle")] == ["99.9 % idle", "0.1 % idle"]
    assert all(boxes.get_linewidth()[0] > 0 for boxes in lanes.collections)


def widths() -> list[tuple[float, Theme, list[PipelineTrace]]]:
    few = [replay_pipeline(gpipe(2, 4, "early")), replay_pipeline(v_half(2, 4))]
    many = [replay_pipeline(interleaved(8, 32)), replay_pipeline(zb_h1(8, 32))]
    return list(product((3, 640 / 150, 8, 1920 / 150), (LIGHT, DARK), (few, many)))


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize(("width", "colours", "traces"), widths())
def test_texts_are_inside_and_do_not_overlap(
    width: float, colours: Theme, traces: list[PipelineTrace]
) -> None:
    figure = pipeline_figure(traces, colours, width)
    figure.canvas.draw()
    inside = figure.bbox
    for lanes, curves in zip(figure.axes[::2], figure.axes[1::2], strict=True):
        title = [part for part in (lanes._left_title, *lanes.texts[:7]) if part.get_text()]
        words = [*title, *curves.texts]
        found = [(word.get_text(), word.get_window_extent()) for word in words]
        for _, box in found:
            assert inside.x0 <= box.x0 < box.x1 <= inside.x1
            assert inside.y0 <= box.y0 < box.y1 <= inside.y1
        for (one, box), (other, beside) in product(found, found):
            assert one == other or not box.padded(-1).overlaps(beside.padded(-1)), (one, other)
    key = figure.legends[0].get_window_extent()
    assert inside.x0 <= key.x0 < key.x1 <= inside.x1


def test_many_devices_and_blocks_are_drawn_as_utilisation() -> None:
    for many in (one_f_one_b(40, 50), one_f_one_b(3, 500)):
        trace = replay_pipeline(many)
        lanes, curves = pipeline_figure([trace], LIGHT).axes
        assert [image.get_label() for image in lanes.images] == ["shares"]
        assert lanes.images[0].get_array().shape == (many.devices, 1000, 3)
        assert not lanes.collections
        assert curves.get_xlabel() == "time (colours mix by their share of it)"
        assert len([area for area in curves.patches if area.get_label() == "held"]) <= 16
    assert texts(pipeline_figure([replay_pipeline(one_f_one_b(40, 50))], LIGHT).axes[1])[0] == (
        "micro-batches in flight on one of each 3 devices, with the highest peak; a row is 40 high"
    )


def test_neighbours_of_a_kind_are_joined_where_a_file_must_be_small() -> None:
    trace = replay_pipeline(one_f_one_b(2, 3))
    lanes, curves = pipeline_figure([trace], LIGHT, detail=COARSER[0]).axes
    assert boxes_of(lanes, "forward") == [(0, 2), (6, 7), (1, 2), (4, 5), (7, 8)]
    assert boxes_of(lanes, "backward") == [(4, 6), (7, 9), (10, 12), (2, 4), (5, 7), (8, 10)]
    assert boxes_of(lanes, "idle") == [(2, 4), (9, 10), (0, 1), (10, 12)]
    assert curves.get_xlabel() == "time (neighbours of a kind are joined)"
    # Stages in rows of their own are joined row by row.
    folded = replay_pipeline(v_half(2, 3))
    lanes = pipeline_figure([folded], LIGHT, detail=COARSER[0]).axes[0]
    apart = pipeline_figure([folded], LIGHT).axes[0]
    for label in ("forward", "backward (weights)"):
        wide = [sum(b - a for a, b in boxes_of(axis, label)) for axis in (lanes, apart)]
        assert wide[0] == wide[1]
    # Ever fewer columns, in which colours mix.
    for detail in COARSER[1:]:
        lanes, curves = pipeline_figure([trace], LIGHT, detail=detail).axes
        image = lanes.images[0].get_array()
        assert image.shape == (2, detail.columns, 3)
        assert len(np.unique(image.reshape(-1, 3), axis=0)) <= (detail.inks or 0)
        assert curves.get_xlabel() == "time (colours mix by their share of it)"


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_micro_batch_numbers_have_contrast_on_every_fill(colours: Theme) -> None:
    for name, look in looks_of(colours).items():
        for strength in (1, ODD) if name != "update" else ():
            fill = blend(look.fill, colours.background, strength)
            assert contrast(label_on(fill), fill) >= LEAST_CONTRAST


def test_incomparable_pipelines_are_refused(tmp_path: Any) -> None:
    trace = replay_pipeline(gpipe(2, 3))
    path = tmp_path / "p.png"
    for wrong, why in (
        (gpipe(2, 3), r"expected a replayed pipeline .* got a Pipeline; replay_pipeline\(pipe"),
        (tc.replay(tc.plan(tc.networks.chain(3))), "got a Trace"),
        ([], "nothing to draw"),
        (replay_pipeline(gpipe(1, 1), PipelineCosts(0, 0, 0)), "in which something takes time"),
        ([trace] * 9, "9 pipelines; at most 8 fit in one picture"),
        ([trace, replay_pipeline(gpipe(2, 3), PipelineCosts(measure="FLOPs"))],
         "the pipelines' costs are '' and 'FLOPs', which have no common axis"),
        ([trace, replay_pipeline(gpipe(2, 3), None, Footprint())],
         "some of the pipelines were replayed with footprints, and some without"),
    ):  # fmt: skip
        with pytest.raises(tc.OptionError, match=why):
            viz.pipeline(wrong, path)  # type: ignore[arg-type]
    with pytest.raises(tc.OptionError, match="give one for each chart, of which there are 2"):
        viz.pipeline([trace, trace], path, title=["a"])
    assert not path.exists()
