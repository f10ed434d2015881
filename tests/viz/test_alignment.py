"""Several traces on one time axis: meeting, waiting, ending; slow frames, high strips."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import tinyckpt as tc
import viz
from tests.random_dags import training_graphs
from tests.viz.raster.test_animations import decoded
from tinyckpt.core.schedule import EVALUATIONS
from viz.picture_layout import LEAST, STRIP, sheet_of, sheets_of
from viz.raster.picture import Picture
from viz.raster.text_cache import words_of
from viz.scene import Scene, Style, results_of, scene_of
from viz.time_axis import Span, by_progress, frame_steps, recomputations
from viz.vector.svg import svg_still

POLICIES = ("store_all", "sqrt_n", "recompute_all")


def traces_of(name: str, *policies: str) -> list[tc.Trace]:
    graph = tc.networks.network_from_text(name)[0]
    return [tc.replay(tc.plan(graph, policy)) for policy in policies]


def scene_by(align: str | None, traces: list[tc.Trace], theme: str = "light") -> Scene:
    return scene_of(traces, Style(theme), Span(every=1, align=align))


def first_evaluations(trace: tc.Trace) -> list[int]:
    """Return the steps of first evaluations."""
    first: dict[int, int] = {}
    for place, step in enumerate(trace.steps):
        if isinstance(step, EVALUATIONS):
            first.setdefault(step.operator, place)
    return sorted(first.values())


def test_shorter_trace_waits_until_the_other_has_recomputed() -> None:
    one, other = traces_of("chain:3", "store_all", "recompute_all")
    shown = by_progress([one, other], [frame_steps(one), frame_steps(other)])
    # Store-all is at the free before its gradient while the other computes f1 and f2 again.
    again = other.steps.index(other.steps[0], 1)
    waiting = {a for a, b in zip(*shown, strict=True) if again <= b < first_evaluations(other)[5]}
    assert waiting == {first_evaluations(one)[5] - 1}


@given(training_graphs())
def test_first_evaluations_meet_and_every_frame_has_a_tick(case: Any) -> None:
    graph, _ = case
    traces = [tc.replay(tc.plan(graph, policy)) for policy in POLICIES]
    frames = [frame_steps(trace) for trace in traces]
    shown = by_progress(traces, frames)
    assert len(set(map(len, shown))) == 1
    for own, steps in zip(shown, frames, strict=True):
        assert list(dict.fromkeys(own)) == steps
        assert all(before <= after for before, after in pairwise(own))
    for together in zip(*map(first_evaluations, traces), strict=True):
        ticks = {own.index(step) for own, step in zip(shown, together, strict=True)}
        assert len(ticks) == 1


def test_default_is_progress_for_whole_traces_of_one_graph() -> None:
    traces = traces_of("chain:5", "store_all", "sqrt_n")
    equal = [*traces_of("chain:5", "store_all"), *traces_of("chain:5", "sqrt_n")]
    several = [*traces_of("chain:5", "store_all"), *traces_of("chain:4", "sqrt_n")]

    def is_by_progress(traces: list[tc.Trace], **options: Any) -> bool:
        rows = scene_of(traces, Style(), Span(**options)).rows
        return len({len(row.shown) for row in rows}) == 1

    assert is_by_progress(traces)
    assert is_by_progress(equal)
    assert is_by_progress(traces, align="progress")
    assert not is_by_progress(traces, align="step")
    assert not is_by_progress(traces, first=3)
    assert not is_by_progress(several)


def test_impossible_alignments_are_refused(tmp_path: Path) -> None:
    traces, path = traces_of("chain:5", "store_all", "sqrt_n"), tmp_path / "a.gif"
    with pytest.raises(tc.OptionError, match="align 'time': expected progress, step"):
        viz.gif(traces, path, align="time")
    with pytest.raises(tc.OptionError, match="align 'progress': first and last count steps"):
        viz.gif(traces, path, align="progress", last=4)
    other = traces_of("chain:4", "store_all")
    with pytest.raises(tc.OptionError, match="align 'progress': the traces are of several graphs"):
        viz.gif([*traces, *other], path, align="progress")


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        (("store_all", "sqrt_n"), [{"waits while √n checkpointing recomputes"}, set()]),
        (
            POLICIES,
            [
                {"waits while recompute all recomputes", "waits while the others recompute"},
                {"waits while recompute all recomputes"},
                set(),
            ],
        ),
    ],
)
def test_panel_says_for_whom_it_waits(policies: Any, expected: list[set[str]]) -> None:
    traces = traces_of("chain:9", *policies)
    picture = Picture(scene_by(None, traces))
    muted = words_of("Regular", 12, picture.inks.theme.muted, picture.inks)
    told: list[set[str]] = [set() for _ in traces]
    for tick, _ in zip(picture.scene.steps, picture.play(), strict=True):
        cursors = {panel.cursor for panel in picture.panels if tick < panel.row.end}
        assert len(cursors) <= 1  # on one axis
        for panel, said in zip(picture.panels, told, strict=True):
            if panel.line.words is muted:
                said.add(panel.line.whole)
                assert panel.lights.below == []
    assert told == expected


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("policies", [("sqrt_n",), ("store_all", "sqrt_n"), POLICIES])
def test_first_recomputation_is_four_times_as_slow(tmp_path: Path, policies: Any) -> None:
    traces = traces_of("chain:16", *policies)
    cases: list[tuple[dict[str, Any], int | None]]
    cases = [({}, 250), ({"seconds": 20}, None), ({"fps": 5}, 200)]
    for options, usual in cases:
        delays = decoded(viz.gif(traces, tmp_path / "a.gif", width=320, **options))[1]
        scene = scene_of(traces, Style(width=320), Span(most=72 if not options else 1500))
        if options == {"fps": 5}:
            assert set(delays[1:-1]) == {usual}
        elif usual:
            assert {delays[frame] for frame in scene.slow} == {4 * usual}
            assert {d for f, d in enumerate(delays[1:-1], 1) if f not in scene.slow} == {usual}
        else:
            assert sum(delays) == pytest.approx(20_000, abs=20)
            fast = [d for f, d in enumerate(delays[1:-1], 1) if f not in scene.slow]
            assert {delays[f] // max(fast) for f in scene.slow} <= {3, 4}
    again = [next(recomputations(trace)) for trace in traces if trace.recomputations]
    begins = [row.shown.index(a) for row, a in zip(scene.rows[-len(again) :], again, strict=True)]
    assert {scene.steps.index(tick) for tick in begins} <= scene.slow
    assert len(scene.slow) <= 4 * len(begins)


def test_short_animation_has_no_slow_frames(tmp_path: Path) -> None:
    trace = traces_of("chain:16", "sqrt_n")
    delays = decoded(viz.gif(trace, tmp_path / "a.gif", width=320, seconds=2, every=1))[1]
    assert sum(delays) == pytest.approx(2000, abs=20)
    assert max(delays[1:-1]) <= 30


@pytest.mark.parametrize("name", ["chain:16", "chain:64", "mlp:6x8", "unet"])
@pytest.mark.parametrize("design", [{}, {"width": 320}, {"scale": 2}, {"arrange": "side by side"}])
def test_memory_strips_take_a_quarter_of_the_height(name: str, design: dict[str, Any]) -> None:
    traces = traces_of(name, *POLICIES)
    for count in (1, 2, 3):
        if "arrange" in design or count < 3 or name != "unet":
            sheet = sheet_of(scene_of(traces[:count], Style(**design)))
            strips = {panel.top: panel.strip for panel in sheet.panels}
            assert len(set(strips.values())) == 1
            assert LEAST <= sum(strips.values()) / sheet.height < LEAST + 0.005
            assert min(strips.values()) >= STRIP


def test_ended_panel_says_its_result_and_leaves_its_graph_to_the_strips() -> None:
    traces = traces_of("chain:9", *POLICIES)
    picture = Picture(scene_by("step", traces))
    whole = picture.sheets[0]
    assert len(picture.sheets) == 3  # the last is not early: it ends with the animation
    assert sum((sheet.ticks for sheet in picture.sheets), ()) == picture.scene.steps
    bold = words_of("SemiBold", 14, picture.inks.theme.ink, picture.inks)
    drawn: list[int] = []
    for tick, canvas in zip(picture.scene.steps, picture.play(), strict=True):
        ended = [tick > row.end for row in picture.scene.rows]
        panels = [panel.place for panel in picture.panels]
        assert [not panel.plan.cells for panel in panels] == ended
        for before, panel, gone in zip(whole.panels, panels, ended, strict=True):
            assert panel.strip >= before.strip + (30 if any(ended) else 0)
            graph = panel.strip_top - panel.top - panel.header.height
            assert graph == 22 if gone else graph > 100
        assert len({panel.strip for panel in panels}) == 1
        bottom = panels[-1].strip_top + panels[-1].strip
        assert abs(bottom - whole.panels[-1].strip_top - whole.panels[-1].strip) < len(panels)
        for drawing, trace, gone in zip(picture.panels, traces, ended, strict=True):
            if gone:
                assert drawing.line.shown == bold.line(results_of(trace, True)[:1], 748)
        if any(ended) and tick % 9 == 0:
            fresh = Picture(replace(picture.scene, steps=(tick,)))
            next(fresh.play())
            assert np.array_equal(canvas, fresh.canvas)
            drawn.append(tick)
    assert len(drawn) > 5


def test_panels_side_by_side_keep_their_graphs() -> None:
    scene = scene_of(traces_of("chain:9", *POLICIES), Style(arrange="side by side"), Span())
    (sheet,) = sheets_of(scene)
    assert all(panel.plan.cells for panel in sheet.panels)
    assert sheet.ticks == scene.steps


def test_svg_still_has_the_panels_of_the_animation() -> None:
    traces = traces_of("chain:9", "store_all", "recompute_all")
    scene = scene_of(traces, Style())
    ended, both = (svg_still(scene, step) for step in (60, 20))
    result = results_of(traces[0], True)[0]
    assert result in ended
    assert result not in both
    assert ended.count(">f3<") == both.count(">f3<") - 1 == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_cursor_at_the_end_is_whole(theme: str) -> None:
    picture = Picture(scene_by(None, traces_of("chain:9", "store_all", "sqrt_n"), theme))
    for canvas in picture.play():
        last = canvas
    ink = picture.inks.index(picture.inks.theme.ink)
    for panel in picture.panels:
        x, y, strip = panel.strips[0]
        high, wide = strip.past.shape
        assert (last[y + 14 : y + high, x + wide - 2 : x + wide] == ink).all()
