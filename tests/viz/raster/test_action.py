"""Transient highlights in animations: reads, frees, captions, title card, totals."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.viz.raster.test_animations import trace_of
from tinyckpt.base.units import size_text
from viz.captions import Captions
from viz.layout.geometry import MARGIN
from viz.picture_layout import CAPTION, sheet_of
from viz.raster.canvas import Canvas
from viz.raster.highlights import MOST_TAGS
from viz.raster.picture import Picture
from viz.raster.text_cache import TextLine, words_of
from viz.raster.title_card import sizes_of
from viz.scene import Style, lines_of_card, results_of, scene_of, thinned_text
from viz.theme import THEMES
from viz.time_axis import Span, select_frames


def frames_of(trace: tc.Trace, **options: Any) -> dict[int, Any]:
    """Return the palette indices of every frame by its step."""
    picture = Picture(scene_of([trace], Style(**options), Span(every=1)))
    return {
        step: canvas.copy()
        for step, canvas in zip(picture.scene.steps, picture.play(), strict=True)
    }


def cell_of(trace: tc.Trace, operator: int) -> int:
    (panel,) = sheet_of(scene_of([trace])).panels
    return next(cell.id for cell in panel.plan.cells if operator in cell.operators)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("scale", [1, 2])
def test_reads_are_highlighted_for_one_frame(theme: str, scale: int) -> None:
    trace = trace_of("chain:6")
    picture = Picture(scene_of([trace], Style(theme, scale=scale), Span(every=1)))
    next(picture.play())
    (panel,) = picture.panels
    inks = picture.inks
    halo, ink = inks.index(inks.theme.halo), inks.index(inks.theme.ink)
    frames = frames_of(trace, theme=theme, scale=scale)
    (x0, y0), (x1, _) = (panel.plan.centres[cell] for cell in (1, 2))
    left, top = panel.graph_left + (x0 + 15) * scale, panel.graph_top + y0 * scale
    right = panel.graph_left + (x1 - 15) * scale
    # Between the rings of both.
    gap = (slice(round(top - 2 * scale), round(top + 2 * scale)),
           slice(round(left + 4 * scale), round(right - 6 * scale)))  # fmt: skip
    ring = (slice(round(top), round(top) + 1), slice(round(left), round(left + 2.5 * scale)))
    step = next(s for s, one in enumerate(trace.steps) if getattr(one, "operator", 0) == 2)
    assert np.isin([halo, ink], frames[step][gap]).all()
    assert halo in frames[step][ring]
    for other in (-1, *(s for s in frames if s > step)):
        again = any(getattr(trace.steps[other], "operator", None) in (1, 2) for _ in [0])
        if other > 0 and not again:
            assert halo not in frames[other][gap], other


@pytest.mark.parametrize("theme", THEMES)
def test_freed_bytes_are_shown_for_one_frame(theme: str) -> None:
    trace = trace_of("chain:6")
    picture = Picture(scene_of([trace], Style(theme), Span(every=1)))
    ink = picture.inks.index(picture.inks.theme.ink)
    frees = [s for s, taken in enumerate(trace.steps) if isinstance(taken, tc.Free)]
    for step, canvas in zip(picture.scene.steps, picture.play(), strict=True):
        (panel,) = picture.panels
        told = [frame for frame in (panel.last,) if frame is not None]
        ghosts = told[0].freed
        assert bool(ghosts) == (step in frees)
        assert all(nbytes == 512 for nbytes in ghosts.values())
        for cell in panel.plan.cells:
            top, bottom, left, right = panel.boxes[cell.id]
            band = canvas[bottom : bottom + 6] if cell.backward else canvas[top - 6 : top]
            if step >= 0:
                assert (ink in band[:, left + 6 : right - 6]) == (cell.id in ghosts), (step, cell)


@pytest.mark.sampled(5)
@pytest.mark.long
@pytest.mark.parametrize("network", ["chain:16", "mlp:4x8", "residual:2x4"])
@pytest.mark.parametrize(
    "options",
    [{}, {"width": 400}, {"width": 1280, "aspect": "16:9"}, {"scale": 2}, {"scale": 3}],
)
def test_freed_bytes_near_the_caption_are_not_clipped(
    network: str, options: dict[str, Any]
) -> None:
    trace = trace_of(network)
    picture = Picture(scene_of([trace], Style(**options), Span()))
    ground = picture.inks.index(picture.inks.theme.background)
    for step, canvas in zip(picture.scene.steps, picture.play(), strict=True):
        (panel,) = picture.panels
        assert panel.last is not None
        told = [nbytes for nbytes in panel.last.freed.values() if nbytes][:MOST_TAGS]
        tags = panel.lights.below[len(panel.lights.below) - len(told) :]
        for nbytes, ((top, bottom, left, right), _) in zip(told, tags, strict=True):
            words, _ = panel.lights.tags.word(f"\N{MINUS SIGN}{size_text(nbytes)}")
            high = np.flatnonzero((words != ground).any(axis=1))[-1] + 1
            shown = canvas[top:bottom, left:right]
            assert np.array_equal(shown[:high], words[:high]) or step < 0


def test_consecutive_frees_are_one_frame_and_add_up() -> None:
    trace = trace_of("residual:2x4")
    picture = Picture(scene_of([trace], span=Span(every=1)))
    most = 0
    for step, _ in zip(picture.scene.steps, picture.play(), strict=True):
        (panel,) = picture.panels
        assert panel.last is not None
        if step < 0 or not isinstance(trace.steps[step], tc.Free):
            continue
        first = step
        while isinstance(trace.steps[first - 1], tc.Free):
            first -= 1
        before = trace.live_bytes[first - 1] - trace.workspace[first - 1]
        assert sum(panel.last.freed.values()) == before - trace.live_bytes[step]
        most = max(most, step - first + 1)
    assert most > 1


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"width": 400}, {"theme": "dark", "scale": 2}])
def test_caption_pixels_do_not_depend_on_the_previous_caption(options: dict[str, Any]) -> None:
    trace = trace_of("residual:2x4")
    picture = Picture(scene_of([trace], Style(**options), Span(every=1)))
    next(picture.play())
    (panel,) = picture.panels
    top, bottom, left, right = panel.line.box
    assert bottom - top == round(CAPTION * picture.drawing.scale)
    theme = picture.inks.theme
    captions = Captions(trace)
    for step, canvas in zip(picture.scene.steps, picture.play(), strict=True):
        if step < 0 or step == len(trace.steps) - 1:
            continue
        fresh = Canvas(canvas.shape, picture.inks)
        TextLine(fresh, panel.line.box).write(
            words_of("Regular", 12, theme.ink, picture.inks), captions.texts(step)
        )
        expected = fresh.pixels[top:bottom, left:right]
        assert (expected != fresh.ground).any()
        assert np.array_equal(canvas[top:bottom, left:right], expected), step
        if step > 40:
            break


@pytest.mark.parametrize("traces", [["sqrt_n"], ["store_all", "sqrt_n"]])
def test_first_frame_is_a_title_card_and_last_has_totals(traces: list[str]) -> None:
    shown = [trace_of("chain:9", policy) for policy in traces]
    picture = Picture(scene_of(shown, span=Span()))
    for step, canvas in zip(picture.scene.steps, picture.play(), strict=True):
        if step >= 0:
            continue
        for panel in picture.panels:
            lines = lines_of_card(panel.row.trace, panel.row.title, True, "")
            assert lines[0] == panel.row.title
            assert "× store-all" in lines[2]  # noqa: RUF001
            room = panel.strips[0][2].past.shape[1]
            assert sizes_of(lines, room, panel.strips[0][1] - panel.place.top)[0] >= 40
            (x, y, strip) = panel.strips[0]
            wide = canvas[y : y + strip.past.shape[0], x : x + strip.past.shape[1]]
            assert np.array_equal(wide, strip.past)
    assert "× store-all, peak " in results_of(shown[-1], True)[0]  # noqa: RUF001
    theme = picture.inks.theme
    for panel, trace in zip(picture.panels, shown, strict=True):
        words = words_of("SemiBold", 14, theme.ink, picture.inks)
        assert panel.line.shown == words.line(results_of(trace, True)[:1], 748)


def test_omitted_frames_are_announced() -> None:
    trace = trace_of("chain:16", "recompute_all")
    scene = scene_of([trace], span=Span(most=72, noted=True))
    assert scene.note == "every 3rd evaluation"
    evaluations = [step for step in scene.steps if step >= 0][:-1]
    assert all(hasattr(trace.steps[step], "operator") for step in evaluations)
    gaps = np.diff([trace.evaluations_so_far[step] for step in evaluations])
    assert set(gaps.tolist()) <= {1, 2, 3}  # fewer beside the peak
    moments = [-1, *range(9)]
    steps, thinned = select_frames(moments, (), Span(most=8), {0, 2, 4, 6})
    assert (steps, thinned_text(*thinned)) == ([-1, 0, 2, 4, 6, 8], "every evaluation")
    assert scene_of([trace], span=Span(every=4, noted=True)).note == "every 4th frame"
    assert scene_of([trace_of("chain:4")], span=Span(noted=True)).note == ""


@pytest.mark.parametrize("width", [320, 800])
def test_highlights_stay_within_margins(width: int) -> None:
    trace = trace_of("chain:40")
    picture = Picture(scene_of([trace], Style(width=width), Span(every=1)))
    scale = picture.drawing.scale
    for step, canvas in zip(picture.scene.steps, picture.play(), strict=True):
        if step % 7 == 0:
            assert (canvas[:, : round((MARGIN - 14) * scale)] == picture.drawing.ground).all()


@pytest.mark.sampled(8)
@pytest.mark.long
@pytest.mark.parametrize("network", ["chain:16", "chain:64", "mlp:6x8", "residual:4x8", "lenet5:8"])
@pytest.mark.parametrize(
    "options", [{}, {"width": 320}, {"theme": "dark", "scale": 2}, {"group": "operator"}]
)
def test_byte_labels_cover_no_name_and_no_other_node(network: str, options: dict[str, Any]) -> None:
    trace = trace_of(network)
    picture = Picture(scene_of([trace], Style(**options), Span(every=1)))
    playing = picture.play()
    next(playing)  # the title card covers the graph
    next(playing)
    (panel,) = picture.panels
    plan, scale, lights = panel.plan, panel.scale, panel.lights
    covered = np.zeros(picture.canvas.shape, bool)  # what no label may cover
    for heading in plan.headings:
        bottom = panel.graph_top + round(heading.y * scale) - round(2 * scale)
        left, right = (panel.graph_left + round(x * scale) for x in (heading.left, heading.right))
        name = slice(bottom - round(12 * scale), bottom), slice(left, right)
        covered[name] = picture.canvas[name] != picture.drawing.ground
        assert covered[name].any()
    for top, bottom, left, right in panel.boxes:
        margin = round(8 * scale)
        covered[top + margin : bottom - margin, left + margin : right - margin] = True
    told = 0
    for _ in playing:
        labels = [box for box, _ in lights.below if box[1] - box[0] == lights.tags.height]
        told += len(labels)
        for top, bottom, left, right in labels:
            assert not covered[top:bottom, left:right].any(), panel.last
    assert told > 20
