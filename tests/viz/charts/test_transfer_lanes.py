"""Offload timeline charts: compute and copy lanes over time, and device memory below."""

from fractions import Fraction
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
import viz
from tests.conftest import examples
from tests.random_dags import training_graphs
from tests.tinyckpt.core.test_schedule_mutations import with_moves
from tests.tinyckpt.planner.offload.test_simulate import BOTH
from viz.charts.offload_memory import memory_over_time
from viz.charts.residency import EvaluationKind
from viz.charts.timeline import timeline_figure
from viz.charts.transfer_lanes import downsampled, lanes_figure, lanes_of, merged_spans
from viz.memory_curve import memory_bands
from viz.scene import scene_of
from viz.theme import DARK, LIGHT


def offloaded(network: str, bandwidth: int, **options: Any) -> tc.Timeline:
    graph = tc.networks.network_from_text(network)[0]
    schedule = tc.plan(graph, "offload", bandwidth=bandwidth, **options)
    return tc.timed(schedule, tc.Link(bandwidth, **options))


@st.composite
def timelines(draw: Any) -> tc.Timeline:
    """Generate a timeline of any policy, with some values offloaded."""
    graph, _ = draw(training_graphs())
    schedule = tc.plan(graph, draw(st.sampled_from(("store_all", "sqrt_n", "recompute_all"))))
    moved = tc.Schedule(graph, with_moves(schedule, draw), "drawn")
    bandwidth = draw(st.sampled_from((3, 16, 97, 1000, 10**9)))
    latency = draw(st.sampled_from((0, 1, Fraction(1, 3))))
    link = tc.Link(bandwidth, latency, draw(st.sampled_from((1, 2))))
    return tc.timed(moved, link)


# As data -----------------------------------------------------------------------------------------


def test_lanes_match_golden_text() -> None:
    # f1 f2 >f1 f3 >f2 l b3 -f3 -l <f2 b2 -f2 -b3 <f1 b1: a copy takes two evaluations.
    lanes = lanes_of(tc.timed(BOTH, tc.Link(256)))
    assert lanes.out == ((2, 4), (4, 6))
    assert lanes.back == ((6, 8), (9, 11))
    assert lanes.stalls == ((5, 8), (9, 11))
    assert [begin for (begin, _), _ in lanes.evaluations] == [0, 1, 2, 3, 4, 8, 11]
    assert [kind for _, kind in lanes.evaluations] == 3 * [EvaluationKind.FORWARD] + 4 * [
        EvaluationKind.BACKWARD
    ]
    assert lanes.end == 12


def test_memory_falls_only_when_a_copy_has_ended() -> None:
    curve = memory_over_time(tc.timed(BOTH, tc.Link(256)))
    assert [f"{begin}: {' '.join(str(n // 512) for n in row)}" for begin, row in curve] == [
        "0: 1 0 0 0 0 0",
        "1: 2 0 0 0 0 0",
        "2: 2 0 0 0 0 1",  # f3 is computed from f2, f1 is on its way
        "3: 1 0 1 0 0 2",  # f2, too, though its copy has not begun
        "4: 1 0 2 0 0 1",
        "5: 0 0 1 0 0 1",  # computation waits for f2, which comes back from 6 on
        "6: 1 0 1 0 0 0",
        "8: 1 0 2 0 0 0",
        "9: 1 0 1 0 0 0",
        "11: 1 0 1 1 0 0",
        "12: 0 0 0 1 0 0",
    ]


@pytest.mark.long
@settings(max_examples=examples(100))
@given(timelines())
def test_lanes_and_memory_are_those_of_the_timeline(timeline: tc.Timeline) -> None:
    lanes, curve = lanes_of(timeline), memory_over_time(timeline)
    assert sum(end - begin for begin, end in lanes.stalls) == timeline.stalled
    assert sum(end - begin for (begin, end), _ in lanes.evaluations) == timeline.computing
    moved = {tc.Offload: lanes.out, tc.Fetch: lanes.back}
    for kind, spans in moved.items():
        assert list(spans) == [
            (timeline.begin[place], timeline.end[place])
            for place, step in enumerate(timeline.schedule.steps)
            if isinstance(step, kind)
        ]
    assert [begin for begin, _ in curve] == sorted(begin for begin, _ in curve)
    assert all(nbytes >= 0 for _, row in curve for nbytes in row)
    assert max(sum(row) for _, row in curve) <= timeline.peak_bytes
    trace = timeline.trace
    assert sum(curve[-1][1]) == trace.live_bytes[-1] - trace.workspace[-1]
    assert curve[-1][1][4] == 0  # nothing is on its way any more
    rows: dict[
        Fraction, list[int]
    ] = {}  # what is held when an evaluation begins: the first row of those at that time
    for begin, row in curve:
        rows.setdefault(begin, []).append(sum(row))
    for place, step in enumerate(timeline.schedule.steps):
        if isinstance(step, tc.Compute | tc.Update):
            assert timeline.memory[place] in rows[timeline.begin[place]]


@settings(max_examples=examples(40))
@given(timelines())
def test_memory_with_instant_copies_equals_the_trace(timeline: tc.Timeline) -> None:
    at_once = tc.timed(timeline.schedule, tc.Link(inf))
    rows: dict[Fraction, list[Any]] = {}
    for begin, row in memory_over_time(at_once):
        rows.setdefault(begin, []).append(row[:-1])
        assert row[-1] == 0
    bands = memory_bands(at_once.trace, False).T.tolist()
    for place, step in enumerate(at_once.schedule.steps):
        if isinstance(step, tc.Compute | tc.Update):
            assert tuple(bands[place]) in rows[at_once.begin[place]]


def test_boxes_closer_than_a_pixel_are_merged() -> None:
    spans = [(Fraction(place), Fraction(place + 1)) for place in range(5000)]
    assert merged_spans(spans, 5000.0) == [(0.0, 5000.0)]
    assert len(merged_spans(spans[:100], 5000.0)) == 100
    apart = [(Fraction(20 * place), Fraction(20 * place + 1)) for place in range(200)]
    assert len(merged_spans(apart, 4000.0)) == 200
    curve = [(Fraction(place), (place % 7, 0, 0, 0, 0)) for place in range(5000)]
    shown = downsampled(curve, 5000.0)
    assert len(shown) == 1000
    assert [row[0] for _, row in shown[:3]] == [4, 6, 6]


# As charts ---------------------------------------------------------------------------------------


def texts(axis: Any) -> list[str]:
    return [axis.get_title("left"), *(text.get_text() for text in axis.texts)]


def test_timeline_is_drawn_against_time() -> None:
    timeline = offloaded("chain:16", 256)
    figure = lanes_figure([timeline], LIGHT, 8.0)
    upper, lower = figure.axes
    assert texts(upper) == [
        "offload",
        "63 evaluations, 30 of them stalled · 7.5 KiB to the host, 7.5 KiB back",
    ]
    assert texts(lower)[1:] == ["peak 9.5 KiB, at 17"]
    assert [label.get_text() for label in upper.get_yticklabels()] == [
        "back", "to the host", "compute",
    ]  # fmt: skip
    assert [axis.get_xlim() for axis in (upper, lower)] == [(0, 63), (0, 63)]
    assert (lower.get_xlabel(), lower.get_ylabel()) == ("time in evaluations", "live KiB")
    stalls = len(lanes_of(timeline).stalls)
    assert [len(axis.patches) for axis in (upper, lower)] == [stalls, stalls]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "forward", "backward, gradients", "results", "kept, copies", "stall",
        "on its way to the host",
    ]  # fmt: skip


def test_compared_timelines_share_scales() -> None:
    slow, fast = offloaded("chain:16", 256), offloaded("chain:16", 512)
    figure = lanes_figure([slow, fast], DARK, 8.0)
    assert len(figure.axes) == 4
    assert {axis.get_xlim() for axis in figure.axes} == {(0, 63)}
    assert len({axis.get_ylim() for axis in figure.axes[1::2]}) == 1
    assert "33 evaluations, nothing stalled" in texts(figure.axes[2])[1]
    titles = [axis.get_title("left") for axis in figure.axes[::2]]
    assert titles == [f"offload, bandwidth {n}, latency 0, engines 2" for n in (256, 512)]


@pytest.mark.parametrize("width", [3.0, 8.0, 20.0])
def test_texts_do_not_overlap(width: float) -> None:
    figure = lanes_figure([offloaded("residual:3x8", 256)], LIGHT, width)
    figure.canvas.draw()
    upper, lower = figure.axes
    legend = figure.legends[0].get_window_extent()
    label = lower.xaxis.label.get_window_extent()
    assert legend.y1 <= label.y0
    assert legend.y0 >= 0
    assert label.y1 <= lower.get_window_extent().y0
    assert lower.get_window_extent().y1 < upper.get_window_extent().y0
    for axis in (upper, lower):
        for tick in axis.get_yticklabels():
            assert tick.get_window_extent().x0 >= 0


def test_timelines_without_a_common_axis_are_refused(tmp_path: Path) -> None:
    timeline = offloaded("chain:4", 512)
    graph = timeline.schedule.graph
    flops = tc.timed(timeline.schedule, tc.Link(512), tc.cost.flops(graph))
    for items, words in (
        ([timeline, timeline.trace], "give traces, or timelines of tc.timed, not both"),
        ([timeline, flops], "timelines in evaluations, FLOPs: expected a common unit"),
    ):
        with pytest.raises(tc.OptionError, match=words):
            viz.timeline(items, tmp_path / "x.png")
    assert not list(tmp_path.iterdir())


# In steps, of traces -----------------------------------------------------------------------------


def test_offloading_trace_has_a_host_lane() -> None:
    moving = offloaded("chain:16", 512).trace
    kept = tc.replay(tc.plan(moving.graph, "store_all"))
    figure = timeline_figure(scene_of([kept, moving, kept]), LIGHT)
    titles = [axis.get_title("left") for axis in figure.axes]
    assert titles == ["store all", "offload", "", "store all"]
    lane = figure.axes[2]
    assert lane.get_ylabel() == "host KiB"
    corners = lane.collections[0].get_paths()[0].vertices.tolist()
    for step, nbytes in enumerate(moving.host):
        assert [step, nbytes / 1024] in corners
    figure.canvas.draw()
    above, own, below = (figure.axes[place].get_window_extent() for place in (1, 2, 3))
    assert below.y1 < own.y0 < own.y1 < above.y0
    assert above.y0 - own.y1 < own.height / 4
    assert {axis.get_ylim() for axis in (figure.axes[0], *figure.axes[1::2])} == {
        figure.axes[0].get_ylim()
    }
    (legend,) = (axis.get_legend() for axis in figure.axes if axis.get_legend())
    assert [text.get_text() for text in legend.get_texts()] == [
        "kept", "gradients", "results", "on the host",
    ]  # fmt: skip
    assert len(timeline_figure(scene_of([kept, kept]), LIGHT).axes) == 2


@pytest.mark.long
def test_timeline_accepts_an_iterator(tmp_path: Path) -> None:
    timeline = offloaded("chain:4", 512)
    for name, item in (("trace", timeline.trace), ("timeline", timeline)):
        path = viz.timeline((each for each in (item, item)), tmp_path / f"{name}.png")
        assert path.exists()
