"""Presentation mode (full screen, large text, stops, clicker keys, pointer) and printing."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.viz.conftest import Open, assert_accessible
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import TICK, traces_of, until, written
from tinyckpt.pipeline import one_f_one_b, replay_pipeline

pytestmark = pytest.mark.browser

FULL = "Boolean(document.fullscreenElement)"
STOPS = "[...document.querySelectorAll('#stops button')].map(button => button.innerText)"
CURRENT = "document.querySelector('#stops [aria-current]')?.innerText ?? ''"
# What can be read of the page, and in letters smaller than 19 pixels.
SMALL_LETTERS = """() => { const walker = document.createTreeWalker(document.body, 4), found = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const element = node.parentElement, box = element.getBoundingClientRect();
        if (!node.data.trim() || !box.width) continue;
        if (element.closest(".unseen, h1, script, svg")) continue;
        if (Number.parseFloat(getComputedStyle(element).fontSize) < 19) found.push(node.data);
    } return found; }"""
CUT_OFF = """() => [...document.querySelectorAll(
    "main, main .panel, footer, #stops button")].filter(element => {
        const box = element.getBoundingClientRect();
        return box.bottom > innerHeight + 1 || box.right > innerWidth + 1
            || element.scrollWidth > element.clientWidth + 1; }).map(e => e.className || e.id)"""


def presented(player: Player, network: str, policy: str = "sqrt_n", **options: Any) -> Any:
    options = {"viewport": {"width": 1280, "height": 720}} | options
    page = player(network, "#step=40", policies=(policy,), **options)
    page.keyboard.press("f")
    until(page, FULL)
    page.wait_for_timeout(100)
    return page


@pytest.mark.parametrize(
    "network", ["chain:16", pytest.param("resnet50", marks=pytest.mark.nightly)]
)
def test_presentation_has_large_text_and_no_controls(network: str, player: Player) -> None:
    page = presented(player, network)
    assert page.evaluate(SMALL_LETTERS) == []
    assert page.evaluate(CUT_OFF) == []
    assert page.locator(".panel > header").bounding_box()["y"] < 40  # no empty band above
    for part in (".tools", "aside", ".time", ".speed"):
        assert page.is_hidden(part)
    assert page.locator(".caption:visible").count() == 1
    rows = page.locator(".rail-row").all()
    tops = [row.bounding_box()["y"] for row in rows]
    assert all(below - above > 19 for above, below in pairwise(tops))
    page.keyboard.press("g")
    assert page.evaluate(CUT_OFF) == []
    page.keyboard.press("Escape")
    until(page, FULL, expected=False)
    assert page.is_visible(".tools")
    assert page.evaluate("document.activeElement.id") == "present"
    assert page.evaluate("player.scales.large") == 1


@pytest.mark.nightly
def test_presented_policies_share_one_caption(tmp_path: Path, open_page: Open) -> None:
    for policies in (("store_all", "sqrt_n"), ("store_all", "sqrt_n", "recompute_all")):
        path = written(tmp_path, traces_of("chain:8", policies), "ledger")
        page = open_page(path, "#step=9", viewport={"width": 1920, "height": 1080})
        page.click("#present")
        until(page, FULL)
        assert page.locator(".caption:visible").count() == 1
        assert page.evaluate(CUT_OFF) == []


def test_presented_difference_keeps_its_caption(player: Player) -> None:
    page = player(
        "chain:8",
        "#step=9",
        policies=("store_all", "sqrt_n"),
        viewport={"width": 1280, "height": 720},
    )
    page.keyboard.press("v")
    page.keyboard.press("f")
    until(page, FULL)
    assert page.locator(".difference .caption").is_visible()
    assert page.locator(".caption:visible").count() == 1
    assert page.evaluate(CUT_OFF) == []


def test_stops_include_only_phases_of_the_schedule(player: Player) -> None:
    page = presented(player, "chain:4", "store_all")
    assert page.evaluate(STOPS) == ["1 start", "2 peak", "3 end"]
    page.keyboard.press("4")
    assert page.evaluate("player.tick") == page.evaluate("player.ticks - 1")


def test_presentation_has_stops_a_black_screen_and_a_pointer(player: Player) -> None:
    page = presented(player, "chain:16")
    for key in ("b", "."):
        page.keyboard.press(key)
        assert page.locator("#dark").bounding_box() == {
            "x": 0,
            "y": 0,
            "width": 1280,
            "height": 720,
        }
        page.keyboard.press("PageDown")  # which only ends it
        assert page.is_hidden("#dark")
        assert page.evaluate(TICK) == 40
    assert page.is_hidden("#laser")
    page.mouse.move(500, 300)
    box = page.locator("#laser").bounding_box()
    assert (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) == (500, 300)
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.ledger canvas')).cursor") == "none"
    )
    assert page.is_hidden("#tip")
    page.keyboard.press("f")
    assert page.is_hidden("#laser")
    page.mouse.move(600, 300)
    assert page.is_hidden("#laser")
    (trace,) = traces_of("chain:16", ("sqrt_n",))
    until(page, FULL, expected=False)  # a browser leaves the full screen in its own time
    page.keyboard.press("f")
    until(page, FULL)
    assert page.evaluate(STOPS) == ["1 start", "2 peak", "3 first recomputation", "4 end"]
    again = page.evaluate("player.models[0].computes[player.models[0].again.indexOf(1)]")
    steps = [-1, trace.peak_step, again, len(trace.steps) - 1]
    assert steps == sorted(steps)
    assert trace.evaluations_so_far[again] > 16
    for number, step in enumerate(steps, 1):
        page.keyboard.press(str(number))
        assert page.evaluate(TICK) == step
        assert page.evaluate(CURRENT).startswith(str(number))
    page.keyboard.press("PageDown")
    assert page.evaluate(TICK) == steps[-1]
    for step in (*steps[2::-1], steps[0]):
        page.keyboard.press("PageUp")
        assert page.evaluate(TICK) == step
    page.keyboard.press("ArrowRight")
    assert page.evaluate(TICK) == 0
    page.keyboard.press("PageUp")  # to where this chapter begins
    assert page.evaluate(TICK) == -1
    page.locator("#stops button").nth(2).click()
    assert page.evaluate(TICK) == again
    # Playing pauses at the next stop, and then goes on.
    page.keyboard.press("1")
    page.evaluate("document.activeElement.blur(); player.speed = 1000")
    for step in steps[1:]:
        page.keyboard.press("Space")
        until(page, "player.playing", expected=False)
        assert page.evaluate(TICK) == step


def test_touch_has_a_pointer_and_search_keeps_its_keys(player: Player) -> None:
    phone = {"viewport": {"width": 844, "height": 390}, "has_touch": True, "is_mobile": True}
    page = player("chain:16", "#step=40", **phone)
    page.keyboard.press("/")
    page.keyboard.type("f1b.")
    assert page.input_value("#search-input") == "f1b."
    page.keyboard.press("Escape")
    page.locator("#tools-open").tap()
    page.locator("#present").tap()
    until(page, FULL)
    devtools = page.context.new_cdp_session(page)
    for kind, x in (("Start", 300), ("Move", 330), ("Move", 350)):
        point = {"x": x, "y": 80}
        devtools.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": [point]})
    middle = "Math.round((box => box.x + box.width / 2)(laser.getBoundingClientRect()) / 2)"
    until(
        page, f"() => {{ const laser = document.getElementById('laser'); return {middle}; }}", 175
    )
    devtools.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    for _ in range(12):  # a tap so soon after a touch may be taken as its second
        if page.locator("#present-end").is_visible():
            page.locator("#present-end").tap()
            page.wait_for_timeout(400)
    page.wait_for_selector(".tools", state="visible")


def test_presentation_fills_the_window_without_full_screen(player: Player) -> None:
    page = player("chain:16")
    page.evaluate("document.documentElement.requestFullscreen = undefined")
    page.keyboard.press("f")
    assert page.is_hidden(".tools")
    assert page.evaluate("document.body.clientHeight") == 800
    page.keyboard.press("Escape")
    assert page.is_visible(".tools")


def test_pipelines_can_be_presented(player: Player) -> None:
    trace = replay_pipeline(one_f_one_b(4, 8))
    page = player(trace, viewport={"width": 1280, "height": 720})
    high = page.locator(".lanes").bounding_box()["height"]
    page.keyboard.press("f")
    until(page, FULL)
    assert page.locator(".lanes").bounding_box()["height"] > high
    assert page.evaluate("player.panels[0].lanes.large") > 1.4  # the letters too
    names = ["1 start", "2 peak", "3 first backward", "4 end"]
    assert page.evaluate(STOPS) == names
    seen = []
    for number in range(1, 5):
        page.keyboard.press(str(number))
        seen.append(page.evaluate("player.time"))
    assert seen == sorted(seen)
    assert seen[-1] == float(trace.makespan)
    # A block is still found where it is drawn.
    x, y, wide, tall = page.evaluate("player.panels[0].lanes.boxOf(2)")
    box, large = (
        page.locator(".lanes").bounding_box(),
        page.evaluate("player.panels[0].lanes.large"),
    )
    page.mouse.click(box["x"] + large * (x + wide / 2), box["y"] + large * (y + tall / 2))
    assert page.evaluate("player.panels[0].lanes.selected") == 2


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_presenting_meets_accessibility_rules(scheme: str, player: Player) -> None:
    page = presented(player, "chain:256", color_scheme=scheme)
    page.keyboard.press("r")
    assert_accessible(page, minor=True)


# Paper -------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("front", ["ledger", "graph"])
def test_printed_page_is_light_and_shows_the_step(player: Player, front: str) -> None:
    page = player("chain:16", "#step=40", view=front, color_scheme="dark")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(ground)
    corner = """() => { const canvas = [...document.querySelectorAll("main canvas")].find(
            canvas => canvas.clientWidth && canvas.matches("[role=img]"));
        const pixel = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
        pixel.drawImage(canvas, 3 - canvas.width, -1);
        return Array.from(pixel.getImageData(0, 0, 1, 1).data); }"""
    assert max(page.evaluate(corner)[:3]) < 80
    page.emulate_media(media="print")
    until(page, "document.documentElement.classList.contains('printing')")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert min(page.evaluate(corner)[:3]) > 200
    assert page.evaluate(TICK) == 40
    for part in (".tools", "aside", "footer"):
        assert page.is_hidden(part)
    for part in (".title", ".caption"):
        assert page.is_visible(part)
    sheet = page.evaluate("""() => [...document.querySelectorAll("main, .panel, .legend")].map(
        e => e.getBoundingClientRect()).filter(box => box.width).map(
        box => [box.right <= 941, box.bottom <= 681])""")
    assert all(all(inside) for inside in sheet)
    page.emulate_media(media="screen")
    until(page, "document.documentElement.classList.contains('printing')", expected=False)
    assert page.evaluate(ground) == dark
    assert max(page.evaluate(corner)[:3]) < 80
    assert page.is_visible("footer")


@pytest.mark.nightly
@pytest.mark.parametrize("network", ["chain:256", "resnet50"])
def test_printed_page_is_one_sheet_wide(player: Player, network: str) -> None:
    page = player(
        network,
        "#step=40",
        policies=("store_all", "sqrt_n"),
        viewport={"width": 390, "height": 844},
    )
    paper = page.pdf(prefer_css_page_size=True)
    assert paper.count(b"/Type /Page\n") == 1
    (box,) = {part.split(b"]")[0] for part in paper.split(b"/MediaBox [")[1:]}
    _, _, wide, high = map(float, box.split())
    assert wide > high
    assert paper.count(b"/Subtype /Image") >= 4  # ledgers and strips
