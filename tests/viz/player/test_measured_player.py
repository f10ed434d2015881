"""Measured memory over planned memory: position on every axis and scale, and texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
import viz
from tests.snapshots import event, listed, pickled, segment, snapshot
from tests.viz.conftest import Open, assert_accessible
from tests.viz.player.player_driver import code_of, seek, until
from viz.player.measured import MOST_MOMENTS, downsampled

BASE = 300_000
# What is measured while each step is done; how high the line is in each column, above the ground.
HELD = """() => Array.from(player.panels[0].model.verbs,
    (_, step) => player.panels[0].measured.at(step))"""
HIGH = """() => {
    const { strip, measured } = player.panels[0];
    const { width, height } = measured.blocks;
    const copy = new OffscreenCanvas(width, height);
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(measured.blocks, 0, 0);
    const { data } = context.getImageData(0, 0, width, height);
    const dark = (x, y) => data[4 * (y * width + x) + 3] > 200 && data[4 * (y * width + x)] < 100;
    return Array.from({ length: width }, (_, x) => {
        const rows = Array.from({ length: height }, (_, y) => y).filter(y => dark(x, y));
        return rows.length ? height - (rows[0] + rows.at(-1) + 1) / 2 : -1; }); }"""
# The step of each column, and how high its live memory is on the scale.
PLANNED = """() => {
    const { strip, model } = player.panels[0];
    const high = step => Math.min(strip.scale.at(model.live[step]), 1) * strip.room;
    return [Array.from(strip.columns), Array.from(strip.columns, high)]; }"""


def run_of(trace: tc.Trace) -> dict[str, Any]:
    """Return the snapshot of a run exactly as planned, at one FLOP per second."""
    events, now = [], 0
    for position, step in enumerate(trace.steps):
        if isinstance(step, tc.Compute):
            if events:
                events.append(event("free_requested", events[-1]["addr"], 0, now))
            events.append(event("alloc", 2**40 + position, trace.live_bytes[position], now))
            now += trace.graph.operators[step.operator].flops
    events.append(event("alloc", 2**60, 0, now))  # the end
    return snapshot(events, segments=[segment(0, 2**30, [(BASE, "active_allocated")])])


def timed_steps(trace: tc.Trace) -> set[int]:
    """Return the steps with a duration."""
    operators = trace.graph.operators
    return {
        position for position, step in enumerate(trace.steps)
        if isinstance(step, tc.Compute) and operators[step.operator].flops
    }  # fmt: skip


@pytest.fixture(scope="module")
def trace() -> tc.Trace:
    """Return a schedule whose operators take different times and memory."""
    graph = tc.networks.network_from_text("mlp:5x8")[0]
    return tc.replay(tc.plan(graph, "sqrt_n"))


@pytest.fixture
def measured(trace: tc.Trace, tmp_path: Path) -> Any:
    return tc.load_measured(pickled(tmp_path, run_of(trace)))


@pytest.fixture
def written(trace: tc.Trace, measured: Any, tmp_path: Path) -> Path:
    return viz.player(trace, tmp_path / "player.html", measured=measured)


@pytest.mark.browser
def test_measured_line_equals_the_plan_on_every_axis_and_is_described(
    trace: tc.Trace, written: Path, open_page: Open, measured: Any
) -> None:
    """At every evaluation with a duration, the line is at the plan's live memory, to the byte."""
    page = open_page(written)
    found = page.evaluate(HELD)
    timed = timed_steps(trace)
    assert len(timed) > 20
    assert {step: found[step] for step in timed} == {step: trace.live_bytes[step] for step in timed}
    assert page.evaluate("() => player.scales.highest") == trace.peak_bytes
    # It follows axis, scale and zoom.
    page.evaluate("() => player.scales.extent.set(0, player.scales.extent.whole)")
    for axis in ("FLOPs", "evaluation", "step"):
        page.select_option("#axis", axis)
        for scale in page.evaluate("() => player.kinds"):
            page.select_option("#scale", scale)
            for share in ((0, 1), (0.2, 0.5), (0.4, 0.45)):
                page.evaluate(
                    "([a, b]) => player.scales.extent.set(a * player.scales.extent.whole, "
                    "b * player.scales.extent.whole)",
                    share,
                )
                high = np.array(page.evaluate(HIGH))
                steps, planned = (np.array(column) for column in page.evaluate(PLANNED))
                assert len(high) == len(planned) > 500
                # Where a step that takes time has columns of its own, and away from where it ends.
                alone = [
                    x for x in range(2, len(high) - 2)
                    if steps[x] in timed and len(set(steps[x - 2 : x + 3])) == 1
                ]  # fmt: skip
                assert len(alone) > 10, (axis, scale, share)
                np.testing.assert_allclose(high[alone], planned[alone], atol=1.6)
    # It is described in text.
    page.evaluate("() => player.scales.extent.set(0, player.scales.extent.whole)")
    page.select_option("#scale", index=0)
    words = page.inner_text("#measured")
    assert "Measured: run.pickle, device 0 of a PyTorch snapshot; its" in words
    assert "laid along the schedule's FLOPs, ends aligned." in words
    assert "without the 293 KiB that the plan does not count" in words
    assert page.locator(".legend.of-ledger [data-if=measured]").is_visible()
    assert "peak = measured 12.8 KiB" in page.inner_text(".strip")
    label = page.get_attribute(".strip canvas", "aria-label")
    assert label.endswith("measured peak 12.8 KiB")
    seek(page, 30)
    own = page.evaluate("() => player.panels[0].measured.text(player.panels[0].measured.at(30))")
    assert page.inner_text(".strip .number").endswith(f"measured {own}")
    page.hover(".strip canvas", position={"x": 300, "y": 60})
    assert "measured " in page.inner_text("#tip").splitlines()[-1]
    assert "measured" in page.inner_text(".legend.of-ledger")
    # What the plan does not count is shown on request.
    seek(page, 20)
    highest, without = page.evaluate("() => player.scales.highest"), page.evaluate(HELD)
    before = page.evaluate(HIGH)
    page.focus("#measured input")
    page.keyboard.press("Space")
    assert not page.evaluate("() => player.playing")
    assert not page.is_checked("#measured input")
    assert page.evaluate("() => player.scales.highest") == highest + BASE
    lines = page.evaluate("() => player.panels[0].strip.lines")
    (peak,) = [line["amount"] for line in lines if line["name"] == "measured"]
    said = page.evaluate("peak => player.panels[0].measured.text(peak)", peak)
    label = page.get_attribute(".strip canvas", "aria-label")
    assert label.endswith(f"; measured peak {said}")
    assert label.count("measured peak") == 1
    assert page.evaluate(HELD) == [held + BASE for held in without]
    assert page.evaluate(HIGH) != before
    page.click("#measured label")
    assert page.evaluate("() => player.scales.highest") == highest
    assert page.evaluate(HIGH) == before


@pytest.mark.browser
def test_measured_line_is_in_every_strip_and_theme(written: Path, open_page: Open) -> None:
    page = open_page(written, "#view=graph")
    until(page, "() => player.panels[0].measured.bands.width > 500")
    high = page.evaluate(HIGH.replace("measured.blocks", "measured.bands"))
    assert len(set(high)) > 10
    assert min(high) >= 0
    for theme in ("light", "dark"):
        page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
        assert_accessible(page, minor=True)


@pytest.mark.nightly
@pytest.mark.browser
def test_each_policy_has_its_own_measurement_or_none(
    trace: tc.Trace, measured: Any, tmp_path: Path, open_page: Open
) -> None:
    other = tc.replay(tc.plan(trace.graph, "store_all"))
    lines = (
        "() => player.panels.map(panel => panel.element.querySelectorAll('canvas.measured').length)"
    )
    path = tmp_path / "two.html"
    cases: list[tuple[Any, list[int], int]] = [
        ([None, measured], [0, 2], 1),
        ([measured, measured.less(0)], [2, 2], 2),
        (measured, [2, 2], 1),
    ]
    for given, drawn, said in cases:
        page = open_page(viz.player([other, trace], path, measured=given))
        assert page.evaluate(lines) == drawn
        assert page.locator("#measured p").count() == said
        for axis in page.evaluate("() => player.axes"):
            page.select_option("#axis", axis)
        page.keyboard.press("2")
        page.keyboard.press("w")
        page.click("#front")


@pytest.mark.browser
@pytest.mark.parametrize(
    ("pairs", "kind"), [([(0, 0), (1, 100)], "log"), ([(0, 0), (1, 10**9)], "log")]
)
def test_scale_covers_measured_and_planned_memory(
    trace: tc.Trace, tmp_path: Path, open_page: Open, pairs: Sequence[Any], kind: str
) -> None:
    measured = tc.load_measured(listed(tmp_path, pairs))
    page = open_page(viz.player(trace, tmp_path / "far.html", measured=measured))
    assert page.evaluate("() => player.scales.kind") == kind
    assert page.evaluate("() => player.scales.highest") == max(trace.peak_bytes, pairs[-1][1])


@pytest.mark.browser
def test_events_without_times_are_spread_over_steps(
    trace: tc.Trace, tmp_path: Path, open_page: Open
) -> None:
    run = run_of(trace)
    for each in run["device_traces"][0]:
        del each["time_us"]
    measured = tc.load_measured(pickled(tmp_path, run))
    page = open_page(viz.player(trace, tmp_path / "player.html", measured=measured))
    assert "events laid along the schedule's steps, ends aligned" in page.inner_text("#measured")


@pytest.mark.nightly
def test_downsampled_measurement_keeps_its_peak(trace: tc.Trace, tmp_path: Path) -> None:
    held = np.random.default_rng(0).integers(0, 10**6, 3 * MOST_MOMENTS)
    held[1234] = 10**7
    places = downsampled(held)
    assert len(places) <= MOST_MOMENTS
    assert places[0] == 0
    assert places[-1] == len(held) - 1
    assert held[places].max() == 10**7
    assert list(downsampled(held[:7])) == list(range(7))
    measured = tc.load_measured(listed(tmp_path, [(i, int(h)) for i, h in enumerate(held)]))
    page = viz.player(trace, tmp_path / "long.html", measured=measured)
    assert page.stat().st_size < 2**20


def test_page_without_measurements_contains_no_trace_of_them(trace: tc.Trace) -> None:
    assert "class MeasuredLine" not in code_of(viz.player(trace).html)


def test_bad_measurement_raises_one_clear_error(
    trace: tc.Trace, measured: Any, tmp_path: Path
) -> None:
    for given, said in (
        ("run.pickle", r"measured: str; give what tc.load_measured\(path\) returns"),
        (7, r"measured: int; give what tc.load_measured\(path\) returns"),
        ([measured] * 2, "measured: 2 for 1 traces; give one for all, or each"),
        (tc.load_measured(listed(tmp_path, [(0, 2**60)])), "run.json has more bytes than a page"),
    ):
        with pytest.raises(tc.OptionError, match=said):
            viz.player(trace, measured=given)
