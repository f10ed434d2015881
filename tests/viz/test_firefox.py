"""Player and lab in a stock Firefox: behaviour that may differ between browsers.

The tests in Chromium cover the pages in detail; these check that another engine shows the same.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import tinyckpt as tc
import viz
from tests.conftest import lacking, require
from tests.viz.firefox import Firefox, Tab, firefox_path, running
from tests.viz.lab.lab_driver import SHOWN, STATE, counters, steps_of
from tests.viz.player.player_driver import (
    COUNTERS,
    LOOKS,
    expected_counters,
    expected_looks,
    traces_of,
)

pytestmark = pytest.mark.browser
POLICIES = ("store_all", "sqrt_n")
SIGHT = "() => [player.scales.extent.from, player.scales.extent.to, player.scales.extent.whole]"
TICK = "() => player.tick"
Shown = Callable[..., Tab]


@pytest.fixture(scope="session")
def firefox() -> Iterator[Firefox]:
    """Return a Firefox; skip without one, and fail in CI, which installs one."""
    require("websockets")
    program = firefox_path()
    if program is None:
        lacking("Firefox (apt-get install firefox-esr)")
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder, running(program, folder) as own:
        yield own


@pytest.fixture
def open_tab(firefox: Firefox) -> Iterator[Shown]:
    """Return a function that opens a page; pages must not log errors or use the network."""
    tabs = []

    def opened(*place: object, **options: object) -> Tab:
        tabs.append(firefox.open(*place, **options))  # type: ignore[arg-type]
        return tabs[-1]

    yield opened
    for tab in tabs:
        tab.close()
    said = firefox.complaints[:]
    firefox.complaints.clear()
    assert said == []


def test_driver_reports_console_and_requests(firefox: Firefox, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(
        """<!doctype html><html data-ready="true"><meta http-equiv="Content-Security-Policy"
        content="default-src 'none'; script-src 'unsafe-inline'">
        <script>addEventListener("load", () => fetch("http://127.0.0.1:8/").catch(() => {
            console.error("said"); throw new Error("thrown"); }));</script>""",
        encoding="utf-8",
    )
    tab = firefox.open(path)
    tab.evaluate("() => new Promise(resolve => setTimeout(resolve, 200))")
    tab.close()
    said = " ".join(firefox.complaints)
    firefox.complaints.clear()
    assert "error: said" in said
    assert "Error: thrown" in said
    assert "blocked the loading of a resource (connect-src) at http://127.0.0.1:8/" in said


@pytest.mark.sampled(1)
@pytest.mark.parametrize("network", ["chain:9", "residual:4x8"])
def test_every_step_matches_python(network: str, tmp_path: Path, open_tab: Shown) -> None:
    traces = traces_of(network, POLICIES)
    opening = {"view": "graph", "show": "all", "stop": "start"}
    tab = open_tab(viz.player(traces, tmp_path / "player.html", **opening))
    last = max(len(trace.steps) for trace in traces) - 1
    for step in range(last + 1):
        tab.press("ArrowRight")
        assert tab.evaluate(COUNTERS) == expected_counters(traces, step)
        assert tab.evaluate(LOOKS) == expected_looks(traces, step)
    tab.press("Home")
    assert tab.evaluate(TICK) == -1
    tab.press("p")
    assert tab.evaluate(TICK) == traces[0].peak_step


@pytest.mark.nightly
def test_blocks_add_up_to_live_memory(tmp_path: Path, open_tab: Shown) -> None:
    (trace,) = traces_of("residual:4x8", ("sqrt_n",))
    tab = open_tab(viz.player(trace, tmp_path / "player.html"))
    sums = tab.evaluate(
        """() => Array.from({ length: player.ticks }, (_, step) => {
            player.seek(step);
            const sum = player.filling.items.reduce((all, { amount }) => all + amount, 0);
            return sum * player.models[0].unit; })"""
    )
    assert sums == list(trace.live_bytes)


def test_time_axis_drags_zooms_and_loops(tmp_path: Path, open_tab: Shown) -> None:
    (trace,) = traces_of("chain:16", ("sqrt_n",))
    tab = open_tab(viz.player(trace, tmp_path / "player.html"))
    left, top, wide, high = tab.evaluate(
        """() => { const { left, top, width, height } =
            document.querySelector(".strip .plot").getBoundingClientRect();
            return [left, top, width, height]; }"""
    )
    middle = (left + wide / 2, top + high / 2)
    tab.drag((left + 5, middle[1]), middle)
    tick = tab.evaluate(TICK)
    assert abs(tick - len(trace.steps) / 2) < 2
    assert tab.evaluate(COUNTERS) == expected_counters([trace], tick)
    tab.wheel(middle, -200)
    tab.until("() => player.scales.extent.isWhole", False)
    begin, end, whole = tab.evaluate(SIGHT)
    assert end - begin < whole
    tab.press("d")
    tab.until(f"() => player.scales.extent.from > {begin}")
    tab.press("z")
    tab.until("() => player.scales.extent.isWhole")
    tab.press("l")
    assert tab.evaluate("() => player.navigation.loop") == {"from": 0, "to": len(trace.steps) - 1}
    map_left, map_top = tab.middle("#minimap")
    tab.drag((map_left - 80, map_top), (map_left + 80, map_top))
    tab.until("() => player.scales.extent.isWhole", False)
    x, y = tab.middle("#scrub")
    tab.drag((x, y), (x + 150, y))
    assert tab.evaluate(TICK) > len(trace.steps) / 2


def test_rows_are_selectable_with_details(tmp_path: Path, open_tab: Shown) -> None:
    (trace,) = traces_of("chain:16", ("sqrt_n",))
    tab = open_tab(viz.player(trace, tmp_path / "player.html"), "#step=30")
    tab.click(".rail-row[data-row='4']")
    assert tab.evaluate("() => document.getElementById('node-title').textContent") == "f5"
    _, y = tab.middle(".rail-row[data-row='7']")
    tab.hover((tab.middle(".ledger canvas")[0], y))
    tab.until("() => document.getElementById('tip').textContent.startsWith('f8')")
    tab.click("#filling-list .bar[aria-pressed]")
    assert tab.evaluate("() => player.chosen.value") >= 0
    tab.press("Escape")
    tab.press("/")
    for key in "f12":
        tab.press(key)
    tab.until("() => document.querySelectorAll('#search-list .row').length > 0")
    tab.press("Escape")
    tab.click("#front")
    assert tab.evaluate("() => document.documentElement.dataset.front") == "graph"
    tab.click("#theme")
    assert tab.evaluate("() => getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_lab_responds_to_drag_and_click(tmp_path: Path, open_tab: Shown) -> None:
    graph = tc.networks.chain(16)
    tab = open_tab(viz.lab(graph, tmp_path / "lab.html", network="chain:16", show="sqrt_n"))
    tab.evaluate("() => player.setMore(true)")
    assert tab.evaluate(SHOWN) == steps_of(tc.plan(graph, "sqrt_n"))
    handle = tab.middle(".frontier .handle")
    x, y = tab.evaluate(
        """() => { const { x, y } = document.querySelector(".frontier").getBoundingClientRect();
            return [x + player.plot.x(5000), y + 60]; }"""
    )
    tab.drag(handle, ((handle[0] + x) / 2, y), (x, y))
    tab.until(STATE, "budget=4608")
    best = tc.replay(tc.plan(graph, budget="9 nodes"))
    tab.until("() => !player.due")
    tab.evaluate("() => player.seek(player.ticks - 1)")
    assert counters(tab)["evaluations"] == f"{best.evaluations} / {best.evaluations}"
    assert counters(tab)["peak"] == str(best.peak_nodes)
    tab.press("ArrowLeft")
    assert tab.evaluate(STATE) == "budget=4096"
    tab.press("Control+z")
    tab.press("Control+z")
    assert tab.evaluate(STATE) == "policy=sqrt_n"
    tab.click(".rail-row[data-row='2']")
    kept = tab.evaluate("() => player.choice.keep")
    assert tab.evaluate(SHOWN) == steps_of(tc.plan(graph, "retain", keep=kept))
    tab.click("#lab-python")
    found: dict[str, tc.Schedule] = {}
    exec(tab.evaluate("() => document.getElementById('lab-text').value"), found)
    assert steps_of(found["schedule"]) == tab.evaluate(SHOWN)


@pytest.mark.long
def test_widget_steps_through_its_story(tmp_path: Path, open_tab: Shown) -> None:
    path = viz.widget(tc.frontier(tc.networks.chain(16)), tmp_path / "widget.html")
    text = path.read_text(encoding="utf-8").replace("<html", "<html data-ready=true", 1)
    link = '<a href="#" data-ckpt-budget="50 %" data-ckpt-stop="end">the end at half</a>'
    path.write_text(text.replace("<main>", f"<main><p>{link}</p>", 1), encoding="utf-8")
    tab = open_tab(path)
    shown = (
        "w => w.moments.length && [w.place === w.stops['first recomputation'], w.caption !== '']"
    )
    assert tab.evaluate(f"() => ({shown})(document.querySelector('tiny-ckpt'))") == [True, True]
    tab.click("a")
    state = "(w => [w.traceData.rows[w.row].peak, w.place === w.stops.end])"
    assert tab.evaluate(f"() => {state}(document.querySelector('tiny-ckpt'))") == [9, True]
    colours = """() => { const { shadowRoot } = document.querySelector("tiny-ckpt");
        const tile = shadowRoot.querySelector(".row:last-child .marks rect.gradient");
        return [getComputedStyle(tile).fill, shadowRoot.querySelectorAll(".row").length]; }"""
    fill, rows = tab.evaluate(colours)
    assert (fill.startswith("rgb("), rows) == (True, 2)


@pytest.mark.nightly
def test_demo_pages_work(demo: Path, open_tab: Shown) -> None:
    pages = sorted(demo.rglob("*.html"))
    assert pages
    for path in pages:
        tab = open_tab(path, size=(1000, 700))
        tab.press("End")
        assert tab.evaluate("() => [player.tick, player.ticks - 1]")[0] > 0
        assert tab.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
