"""Pipeline player: its data, and in a browser the state at every moment."""

import json
import random
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
import viz
from tests.viz.conftest import Open, assert_accessible
from tests.viz.player.player_driver import code_of, traces_of, until
from tinyckpt.pipeline import (
    Footprint,
    PipelineCosts,
    PipelineTrace,
    data_parallel,
    gpipe,
    interleaved,
    one_f_one_b,
    replay_pipeline,
    v_half,
    zb_h1,
)
from viz.charts.pipeline_lanes import lane_of, memory_text
from viz.player.page import asset
from viz.player.pipelines import page_data

COUNTERS = """() => [...document.querySelectorAll(".panel:not([hidden])")].map(
    panel => [...panel.querySelectorAll("[data-counter]")].map(dd => dd.textContent))"""
# At each of several times: what the devices do and hold, the time, and the counters.
AT = f"""times => times.map(time => {{ player.seekTime(time); const held = [...player.visible].map(
    ({{model}}) => [...Array(model.devices).keys()].map(device => [
        model.runningAt(device, player.time), model.heldAt(device, player.time)]));
    return [held, player.time, ({COUNTERS})()]; }})"""


# The data, without a browser ---------------------------------------------------------------------


def unpacked(packed: dict[str, Any]) -> list[Any]:
    content = packed["bytes"]
    if packed["type"] == "texts":
        return list(json.loads(content))
    return np.cumsum(np.frombuffer(content, "<i4" if packed["type"] == "int32" else "<f8")).tolist()


def test_page_blocks_equal_the_replay() -> None:
    trace = replay_pipeline(zb_h1(2, 3, "late"), PipelineCosts(communication=Fraction(1, 3)))
    (data,) = page_data([trace], None)["traces"]
    moments = unpacked(data["moments"])
    assert moments == sorted(set(moments))
    assert (moments[0], moments[-1]) == (0, float(trace.makespan))
    first = unpacked(data["first"])
    for device in range(2):
        lane, own = lane_of(trace, device), slice(first[device], first[device + 1])
        assert unpacked(data["kind"])[own] == lane.kind.tolist()
        assert unpacked(data["micro_batch"])[own] == lane.micro_batch.tolist()
        begin = [moments[place] for place in unpacked(data["begin"])[own]]
        assert begin == [time / trace.unit for time in lane.begin.tolist()]
        assert unpacked(data["during"])[own] == lane.held[1:-1:2].tolist()
        assert unpacked(data["after"])[own] == lane.held[2:-1:2].tolist()


@pytest.mark.parametrize(
    ("devices", "micro_batches", "most"),
    [(4, 8, 120), pytest.param(8, 2000, 160, marks=pytest.mark.nightly)],
)
def test_pipeline_page_is_small(devices: int, micro_batches: int, most: int) -> None:
    page = viz.player(replay_pipeline(one_f_one_b(devices, micro_batches))).html
    assert len(page) <= most * 1024
    assert "class PipelineModel" in (scripts := code_of(page))
    assert "class GraphView" not in scripts  # of pages of graphs


def test_unplayable_pipelines_are_refused(tmp_path: Path) -> None:
    trace, path = replay_pipeline(gpipe(2, 2)), tmp_path / "p.html"
    graph = tc.replay(tc.plan(tc.networks.chain(3)))
    for wrong, options, why in (
        (trace, {"labels": "name"}, "labels and group are for graphs; a pipeline has devices"),
        (trace, {"theme": "blue"}, "unknown theme 'blue'; known are auto, light, dark"),
        ([trace, graph], {}, "expected a replayed pipeline or several, got a Trace"),
        (gpipe(2, 2), {}, "expected a trace or several, got a Pipeline"),
        (replay_pipeline(gpipe(200, 2)), {}, "on 200 devices; a page holds at most 100,000 on 128"),
        (replay_pipeline(gpipe(100, 600)), {}, r"120,100 .* have fewer micro-batches or stages"),
    ):  # fmt: skip
        with pytest.raises(tc.OptionError, match=why):
            viz.player(wrong, path, **options)  # type: ignore[call-overload]
    with pytest.raises(tc.OptionError, match=r"must end in \.html"):
        viz.player(trace, tmp_path / "p.gif")
    assert not list(tmp_path.iterdir())


def test_pipeline_page_has_every_id_its_scripts_use() -> None:
    page = viz.player(replay_pipeline(gpipe(2, 2))).html
    asked = set(re.findall(r'byId\("([\w-]+)"\)', asset("pipeline.js") + asset("playback.js")))
    assert asked
    assert {name for name in asked if f'id="{name}"' not in page} == set()


# The page in a browser ---------------------------------------------------------------------------


def expected(trace: PipelineTrace, time: Fraction) -> list[tuple[int, int]]:
    """Return each device's active block, by index or -1, and its memory."""
    found, first = [], 0
    for device in range(trace.pipeline.devices):
        lane = lane_of(trace, device)
        running, held = -1, 0
        spans = zip(lane.begin.tolist(), lane.end.tolist(), strict=True)
        for place, (begin, end) in enumerate(spans):
            if Fraction(begin, trace.unit) <= time:
                during = time < Fraction(end, trace.unit)
                running = first + place if during else -1
                held = int(lane.held[2 * place + (1 if during else 2)])
        found.append((running, held))
        first += len(lane.kind)
    return found


def idle_share(trace: PipelineTrace, time: Fraction) -> Fraction:
    spans = [
        (Fraction(begin, trace.unit), Fraction(end, trace.unit))
        for device in range(trace.pipeline.devices)
        for begin, end in lane_of(trace, device).idle.tolist()
    ]
    idle = sum((max(min(time, end) - begin, Fraction(0)) for begin, end in spans), Fraction(0))
    return idle / (time * trace.pipeline.devices) if time else Fraction(0)


def schedules() -> list[PipelineTrace]:
    size = Footprint(5000, 3000, 4000, 4500, 7000, 6000, 2000, 2500)
    return [
        replay_pipeline(data_parallel(gpipe(2, 4, "early"), 2), PipelineCosts(collective=3), size),
        replay_pipeline(one_f_one_b(3, 5), PipelineCosts(communication=Fraction(1, 2)), size),
        replay_pipeline(v_half(2, 3), PipelineCosts(forward=[1, 3, 2, 1], update=2), size),
    ]


@pytest.mark.long
@pytest.mark.browser
def test_page_state_equals_the_replay_at_every_moment(tmp_path: Path, open_page: Open) -> None:
    traces = schedules()
    page = open_page(viz.player(traces, tmp_path / "p.html"))
    moments = sorted(
        {
            Fraction(time, trace.unit)
            for trace in traces
            for device in range(trace.pipeline.devices)
            for time in lane_of(trace, device).times.tolist()
        }
    )
    drawn = random.Random(0)
    longest = moments[-1]
    times = [*moments, *(Fraction(drawn.randrange(997), 997) * longest for _ in range(20))]
    seen = page.evaluate(AT, list(map(float, times)))
    for time, (found, at, told) in zip(times, seen, strict=True):
        # A tick is a number that may be a hair before or behind what is asked for.
        assert at == pytest.approx(float(time))
        shown = Fraction(at)
        assert found == [[list(each) for each in expected(trace, shown)] for trace in traces]
        for trace, counters in zip(traces, told, strict=True):
            now = min(shown, Fraction(trace.makespan))
            busy = sum(running >= 0 for running, _ in expected(trace, shown))
            assert counters[1] == f"{busy} / {trace.pipeline.devices}"
            assert float(counters[2].split()[0]) == pytest.approx(
                100 * float(idle_share(trace, now)), abs=0.051
            )
    assert [counters[3] for counters in page.evaluate(COUNTERS)] != []
    page.keyboard.press("End")
    assert [counters[3] for counters in page.evaluate(COUNTERS)] == [
        memory_text(trace, max(trace.peaks)) for trace in traces
    ]


def test_transport_is_a_players_with_words_of_its_own() -> None:
    whole = re.compile(r'<div class="transport">.*?</div>', re.DOTALL)
    pipeline, trace = (
        whole.findall(viz.player(shown).html)[0]
        for shown in (replay_pipeline(one_f_one_b(2, 3)), traces_of("chain:4", ("sqrt_n",)))
    )
    assert 'aria-label="Back to the last change"' in pipeline
    for own, other in (("Back to the last change", "Step back"), ("To the next change", "Step")):
        assert pipeline.count(own) == 2
        pipeline = pipeline.replace(own, other)
    assert pipeline == trace


@pytest.mark.browser
def test_steps_advance_to_the_next_change(tmp_path: Path, open_page: Open) -> None:
    costs = PipelineCosts(forward=Fraction(1, 3), communication=Fraction(1, 7))
    trace = replay_pipeline(one_f_one_b(2, 3), costs)
    page = open_page(viz.player(trace, tmp_path / "p.html"), "#time=0")
    moments = unpacked(page_data([trace], None)["traces"][0]["moments"])
    forwards = [page.evaluate("player.time")]
    for _ in range(len(moments)):
        page.keyboard.press("ArrowRight")
        forwards.append(page.evaluate("player.time"))
    assert forwards == [*moments, moments[-1]]
    for moment in reversed(moments[:-1]):
        page.keyboard.press("ArrowLeft")
        assert page.evaluate("player.time") == moment
    page.keyboard.press("p")
    assert page.evaluate("player.time") == page.evaluate("player.models[0].peakTime")
    (counters,) = page.evaluate(COUNTERS)
    assert counters[3] == "2 in flight"
    until(page, "location.hash.startsWith('#time=')")


def click(page: Any, time: float, device: int, panel: int = 0) -> None:
    """Click into a device's lane."""
    x, y = page.evaluate(
        """([time, device, panel]) => { const { lanes } = player.panels[panel];
        const box = lanes.canvas.getBoundingClientRect();
        return [box.left + lanes.x(time), box.top + lanes.laneTop(device) + 3]; }""",
        [time, device, panel],
    )
    page.mouse.click(x, y)


@pytest.mark.browser
def test_block_tooltip_names_action_and_wait(tmp_path: Path, open_page: Open) -> None:
    trace = replay_pipeline(
        one_f_one_b(2, 3), PipelineCosts(communication=1), Footprint(2048, 1024, backward=4096)
    )
    page = open_page(viz.player(trace, tmp_path / "p.html"))
    click(page, 4.5, 1)  # F0 1-2 is there at 2: 2-3, B0 3-5
    assert page.inner_text("#node-title") == "backward of micro-batch 0"
    facts = page.locator("#node-facts dd").all_inner_texts()
    assert facts == [
        "0", "1", "1", "3", "5, after 2", "4.0 KiB meanwhile, 0 B after it",
        "for its forward, on this device: there at 3, as the device was free",
    ]  # fmt: skip
    page.mouse.move(0, 0)
    click(page, 2.5, 1)
    waits = "for the forward of stage 0, from device 0: there at 2; the device was idle from 0"
    assert page.locator("#node-facts dd").last.inner_text() == waits
    assert waits in page.inner_text("#tip")
    assert page.inner_text("#steps .row:first-child").endswith("forward of micro-batch 0")
    page.keyboard.press("Escape")
    assert page.is_hidden("#node")
    click(page, 1, 1)  # nothing but the bubble: time goes there
    assert page.evaluate("player.time") == pytest.approx(1, abs=0.02)
    assert "idle" in page.inner_text("#tip")
    page.locator("#steps .row").nth(3).click()
    assert page.is_visible("#node")
    chosen = page.inner_text("#node-title")
    page.focus(".lanes")
    page.keyboard.press("ArrowUp")
    assert page.inner_text("#node-title") != chosen
    assert page.locator("#node-facts dd").nth(1).inner_text() == "0"


@pytest.mark.nightly
@pytest.mark.browser
def test_playback_ends_and_one_schedule_can_be_isolated(tmp_path: Path, open_page: Open) -> None:
    traces = [replay_pipeline(gpipe(2, 4)), replay_pipeline(zb_h1(2, 4))]
    path = viz.player(traces, tmp_path / "p.html")
    page = open_page(path, "#time=0", reduced_motion="no-preference")
    page.select_option("#speed", index=6)
    page.click("#play")
    until(page, "player.time", float(traces[0].makespan))
    page.wait_for_selector("#play[data-playing=false]")
    said = "The end: 20.0 % of all devices' time was idle. GPipe, time 15 of 15: device 0 "
    until(page, f'document.getElementById("status").textContent.startsWith("{said}")')
    page.keyboard.press("2")
    assert page.locator(".panel:visible").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".panel:visible").count() == 2
    assert open_page(tmp_path / "p.html", "#time=7").evaluate("player.time") == 7


@pytest.mark.browser
def test_reduced_motion_steps_by_changes(tmp_path: Path, open_page: Open) -> None:
    trace = replay_pipeline(gpipe(2, 4))
    page = open_page(viz.player(trace, tmp_path / "p.html"))
    shown = page.evaluate(
        """() => { player.playing = true; const shown = [];
        for (let tick = 0; tick <= 6000; tick += 7) { player.show(tick); shown.push(player.time); }
        player.playing = false; return [...new Set(shown)]; }"""
    )
    assert shown == unpacked(page_data([trace], None)["traces"][0]["moments"])[:-1]


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_pipeline_page_is_accessible(
    theme: Any, width: int, tmp_path: Path, open_page: Open
) -> None:
    traces = [replay_pipeline(zb_h1(4, 8, "late")), replay_pipeline(interleaved(2, 4))]
    path = viz.player(traces, tmp_path / "p.html")
    size = {"width": width, "height": 900}
    page = open_page(path, "#time=9", color_scheme=theme, viewport=size)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    click(page, 0.5, 0)
    for act in (lambda: None, lambda: page.keyboard.press("?")):
        act()
        assert_accessible(page)


@pytest.mark.browser
@pytest.mark.parametrize(("width", "height"), [(390, 844), (800, 600), (1280, 800)])
def test_lanes_fill_the_window_and_nothing_overflows(
    width: int, height: int, tmp_path: Path, open_page: Open
) -> None:
    trace = replay_pipeline(one_f_one_b(4, 8), None, Footprint(123_457, backward=98_765))
    screen = {"width": width, "height": height}
    page = open_page(viz.player(trace, tmp_path / "p.html"), viewport=screen)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    lanes, foot = page.locator(".lanes").bounding_box(), page.locator("footer").bounding_box()
    assert lanes["y"] + lanes["height"] <= foot["y"] + 24
    assert lanes["width"] > 0.65 * width
    # Nothing but headings, the legend and the controls is above or below them.
    assert lanes["height"] > 0.45 * height


@pytest.mark.browser
def test_hostile_names_are_text_and_fallback_is_a_picture(tmp_path: Path, open_page: Open) -> None:
    name = "{{data}}<img src=x onerror='broken=1'>"
    own = replay_pipeline(replace(gpipe(2, 2), name=name))
    path = viz.player([own, own], tmp_path / "p.html")
    page = open_page(path)
    assert page.evaluate("window.broken") is None
    assert page.locator(".panel .title").first.inner_text() == name
    still = open_page(path, java_script_enabled=False)
    assert still.is_visible(".still img")
    assert still.evaluate("document.querySelector('.still img').naturalWidth") > 800
    assert [row.split("\t")[1:] for row in still.locator("tbody tr").all_inner_texts()] == [
        ["2", "2", "9", "33.3 %", "2 in flight"]
    ] * 2
    assert still.is_hidden("#play")


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1280])
def test_lane_texts_are_not_truncated(width: int, tmp_path: Path, open_page: Open) -> None:
    size = Footprint(2**29 + 5, 2**28, backward=2**30 - 9)
    traces = [
        replay_pipeline(gpipe(2, 3), None, size),
        replay_pipeline(one_f_one_b(2, 2), None, Footprint()),
    ]
    screen = {"width": width, "height": 800}
    page = open_page(viz.player(traces, tmp_path / "p.html"), viewport=screen)
    room, words = page.evaluate(
        """() => { const [{ lanes }] = player.panels;
        lanes.context.font = "11px Inter, system-ui, sans-serif";
        return [player.panels.map(panel => panel.lanes.right),
                player.scales.beside.map(words => lanes.context.measureText(words).width)]; }"""
    )
    assert max(words) + 8 <= room[0] == room[1]
    assert "peak 1.5 GiB" in page.evaluate("player.scales.beside")


@pytest.mark.browser
def test_replicas_have_their_own_micro_batches(tmp_path: Path, open_page: Open) -> None:
    trace = replay_pipeline(data_parallel(gpipe(2, 2), 2))
    page = open_page(viz.player(trace, tmp_path / "p.html"))
    # Of each device F0 F1 B0 B1 and the update: the two of its replica are alike.
    assert page.evaluate("player.models[0].alike(1)") == [1, 3, 6, 8]
    assert page.evaluate("player.models[0].alike(12)") == [10, 12, 15, 17]
    assert page.evaluate("player.models[0].alike(4)") == []
    waits = page.evaluate("[0, 5, 10].map(block => player.models[0].needs(block))")
    assert waits == ["", "the forward of stage 0, from device 0", ""]
