"""Player on a phone: touch targets, stepping, scrolling, pinching, nothing clipped."""

from pathlib import Path
from typing import Any

import pytest

import viz
from tests.viz.conftest import Open
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import SMALL, TICK, traces_of, until, written

pytestmark = pytest.mark.browser

PHONES = {"small": (360, 640), "tall": (390, 844), "across": (844, 390)}
# Of words upon a line of a strip through which another one goes, whether that is behind them.
CROSSED = """() => [...document.querySelectorAll(".strip .limit span")].flatMap(words => {
    const box = words.getBoundingClientRect();
    return [...document.querySelectorAll(".strip .limit")]
        .map(line => line.getBoundingClientRect().top + 0.5)
        .filter(y => box.top + 1 < y && y < box.bottom - 1)
        .map(y => document.elementFromPoint((box.left + box.right) / 2, y) === words); })"""
OVERLAPPING = """() => { const boxes = [...document.querySelectorAll(".rail-row")]
        .map(row => row.getBoundingClientRect()).sort((a, b) => a.top - b.top);
    return boxes.filter((box, i) => i && box.top < boxes[i - 1].bottom - 0.5).length; }"""


class Finger:
    """One or two touches on a page."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.devtools = page.context.new_cdp_session(page)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        given = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]
        self.devtools.send(
            "Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": given}
        )

    def drag(self, part: str, across: float, down: float = 0) -> None:
        """Touch the centre of an element and move."""
        box = self.page.locator(part).first.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.touch("Start", (x, y))
        for turn in range(1, 9):
            self.touch("Move", (x + turn / 8 * across, y + turn / 8 * down))
        self.touch("End")


def phone(open_page: Open, path: Path, name: str, fragment: str = "") -> Any:
    width, height = PHONES[name]
    viewport = {"width": width, "height": height}
    return open_page(path, fragment, viewport=viewport, has_touch=True, is_mobile=True)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("network", "name"),
    [("chain:16", "tall"), ("chain:256", "small"), ("unet", "small"), ("resnet50", "across")],
)
def test_touch_targets_are_large_enough(
    tmp_path: Path, open_page: Open, network: str, name: str
) -> None:
    path = written(tmp_path, traces_of(network, ("sqrt_n",)), "ledger")
    page = phone(open_page, path, name, "#step=40")
    page.locator("#tools-open").tap()
    for front in ("ledger", "graph"):
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONES[name][0]
        assert page.evaluate(SMALL) == []
        assert page.evaluate(OVERLAPPING) == 0
        if front == "ledger":
            page.locator(".rail-row").nth(2).tap()
            rows = page.locator(".rail-row").count()
            assert rows == page.evaluate(
                "(([a, b]) => b - a)(player.panels[0].ledger.window.range)"
            )
            page.locator("#filling-list .row").first.scroll_into_view_if_needed()
            page.locator("#filling-list .row").first.tap()
            page.locator("#front").tap()


@pytest.mark.parametrize("network", ["chain:16", "resnet50"])
def test_first_screen_names_its_subject_and_tools_open_at_a_touch(
    tmp_path: Path, open_page: Open, network: str
) -> None:
    path = written(tmp_path, traces_of(network, ("sqrt_n",)), "ledger")
    phones = [*PHONES.values(), (320, 568)]
    for width, height in phones:
        viewport = {"width": width, "height": height}
        page = open_page(path, viewport=viewport, has_touch=True, is_mobile=True)
        title = page.locator("h1").bounding_box()
        assert network in page.inner_text("h1")
        assert title["width"] >= 120
        assert title["y"] + title["height"] <= 72
        tools = page.locator("#tools")
        assert tools.is_hidden()
        for is_open in (True, False, True):
            page.locator("#tools-open").tap()
            assert tools.is_visible() == is_open
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(SMALL) == []
        page.locator("#search-open").tap()
        page.wait_for_selector("#search-input", state="visible")
    page = open_page(path, viewport={"width": 1280, "height": 800})
    assert page.is_hidden("#tools-open")
    assert page.is_visible("#tools")


def test_node_touch_target_is_24_pixels(tmp_path: Path, open_page: Open) -> None:
    path = written(tmp_path, traces_of("chain:16", ("sqrt_n",)), "graph")
    page = phone(open_page, path, "small", "#step=40")
    for cell in (3, 20):
        disc = page.locator(f".graph .node[data-cell='{cell}'] .disc")
        disc.scroll_into_view_if_needed()
        box = disc.bounding_box()
        assert min(box["width"], box["height"]) >= 24
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for by in (0, 11, -11):
            page.touchscreen.tap(x, y + by)
            assert page.evaluate("player.chosen.selected") == cell


def test_touch_scrolls_rows_and_steps(tmp_path: Path, open_page: Open) -> None:
    path = written(tmp_path, traces_of("chain:256", ("sqrt_n",)), "ledger")
    page = phone(open_page, path, "small", "#step=40")
    finger = Finger(page)
    before = page.evaluate("player.panels[0].ledger.window.range")
    finger.drag(".ledger .plot", 0, 160)  # as a page moves: what is above comes down
    until(page, f"player.panels[0].ledger.window.range[0] > {before[0] + 3}")
    assert page.evaluate(TICK) == 40
    assert page.evaluate("scrollY") == 0
    for part in (".ledger .plot", ".rail-row", ".panel .heading"):
        finger.drag(part, -70)
        assert page.evaluate(TICK) == 41
        finger.drag(part, 70)
        assert page.evaluate(TICK) == 40
        assert page.evaluate("player.chosen.selected") == -1  # it was no tap
    # A part of time is moved upon what shows time, and beside it a finger still steps.
    page.evaluate("player.navigation.set(20, 120)")
    until(page, "player.scales.extent.from", 20)
    finger.drag(".ledger .plot", -70)
    until(page, "player.scales.extent.from > 25")
    assert page.evaluate(TICK) == 40
    finger.drag(".panel .heading", -70)
    assert page.evaluate(TICK) == 41


# A finger that leaves the screen in motion leaves the graph scrolling: twelve frames at one place.
AT_REST = """() => new Promise(done => {
    let last = null, still = 0;
    const look = () => {
        const now = document.querySelector(".holder").scrollLeft;
        still = now === last ? still + 1 : 0;
        last = now;
        if (still === 12) done(); else requestAnimationFrame(look);
    };
    look();
})"""


def test_touch_steps_through_a_graph(tmp_path: Path, open_page: Open) -> None:
    path = written(tmp_path, traces_of("chain:16", ("sqrt_n",)), "graph")
    page = phone(open_page, path, "across", "#step=40")
    Finger(page).drag(".graph", -80)
    assert page.evaluate(TICK) == 41
    Finger(page).drag(".timeline", 40)  # which scrubs
    assert page.evaluate(TICK) > 41
    # A graph that is wider than the screen moves itself, and follows what is computed.
    page = phone(open_page, path, "small", "#step=40")
    left = page.evaluate("document.querySelector('.holder').scrollLeft")
    Finger(page).drag(".holder", -100)
    until(page, f"document.querySelector('.holder').scrollLeft > {left + 50}")
    assert page.evaluate(TICK) == 40
    page.evaluate(AT_REST)
    page.evaluate("player.seek(0)")
    box = page.locator(".graph .halo").bounding_box()
    assert 0 <= box["x"] < box["x"] + box["width"] <= 360


def test_bar_is_touchable_anywhere_in_its_row(tmp_path: Path, open_page: Open) -> None:
    path = written(tmp_path, traces_of("chain:16", ("sqrt_n",)), "ledger")
    page = phone(open_page, path, "tall", "#step=40")
    page.evaluate("document.querySelector('.ledger').scrollIntoView({ block: 'center' })")
    plot = page.locator(".ledger .plot").bounding_box()
    x = page.evaluate("player.panels[0].ledger.x(30) / player.panels[0].ledger.layers.ratio")
    for row in (3, 7):
        name = page.locator(f".rail-row[data-row='{row}']").bounding_box()
        for y in (name["y"] + 1, name["y"] + name["height"] - 1):
            page.touchscreen.tap(plot["x"] + x, y)
            assert page.inner_text("#node-title") == f"f{row + 1}"
            page.locator("#node-close").tap()


def test_tooltip_is_at_the_touch(tmp_path: Path, open_page: Open) -> None:
    path = written(tmp_path, traces_of("chain:16", ("sqrt_n",)), "ledger")
    page = phone(open_page, path, "small", "#step=40")
    page.locator(".rail-row").nth(3).tap()
    box = page.locator("#node").bounding_box()
    foot = page.locator("footer").bounding_box()
    assert page.evaluate("scrollY") == 0
    assert 0 <= box["y"] < box["y"] + box["height"] <= foot["y"]
    page.locator("#node-close").tap()
    assert page.is_hidden("#node")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [320, 360, 640, 1280])
def test_strip_line_labels_do_not_overlap(width: int, player: Player) -> None:
    page = player("transformer:12x768", viewport={"width": width, "height": 740})
    boxes = [words.bounding_box() for words in page.locator(".strip .limit span").all()]
    assert len(boxes) > 1
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            beside = max(one["x"], other["x"]) + 1 >= min(
                one["x"] + one["width"], other["x"] + other["width"]
            )
            above = max(one["y"], other["y"]) + 2 >= min(
                one["y"] + one["height"], other["y"] + other["height"]
            )
            assert beside or above


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [320, 640])
def test_strip_lines_do_not_cross_labels(width: int, player: Player) -> None:
    page = player("mlp:8x64", viewport={"width": width, "height": 740})
    page.add_style_tag(content=".limit, .limit span { pointer-events: auto !important; }")
    assert page.evaluate(CROSSED) == [True]


# The boxes of all cells of the ledger's table that leave it, and what a screen reader is told.
TABLE = """() => { const scroll = document.querySelector("#as-table .scroll");
    const box = scroll.getBoundingClientRect();
    const cells = [...scroll.querySelectorAll("tbody :is(th, td)")];
    return { out: cells.filter(cell => cell.getBoundingClientRect().right > box.right + 0.5).length,
        wide: scroll.scrollWidth - scroll.clientWidth, cells: cells.length,
        named: cells.filter(cell => cell.dataset.head).length,
        roles: [...new Set(cells.map(cell => cell.role))] }; }"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("policies", [("sqrt_n",), ("store_all", "sqrt_n")])
def test_table_of_the_ledger_is_a_list_that_fits(
    policies: tuple[str, ...], tmp_path: Path, open_page: Open
) -> None:
    path = viz.player(traces_of("mlp:3x8", policies), tmp_path / "player.html")
    page = phone(open_page, path, "small")
    page.click("#as-table summary")
    page.wait_for_selector("#as-table tbody tr")
    found = page.evaluate(TABLE)
    assert found["cells"] > 30
    assert found == {
        "out": 0, "wide": 0, "cells": found["cells"], "named": found["cells"],
        "roles": ["rowheader", "cell"],
    }  # fmt: skip
    shown = "cell => getComputedStyle(cell, '::before').content"
    heads = page.locator("#as-table tbody tr").first.locator("td")
    assert heads.first.evaluate(shown) == '"forward"'
    # Below the picture there is room for columns, beside it there is none.
    for width, head in ((900, "none"), (1280, '"forward"'), (3840, '"forward"')):
        page.set_viewport_size({"width": width, "height": 800})
        now = page.evaluate(TABLE)
        assert (now["out"], now["wide"]) == (0, 0)
        assert heads.first.evaluate(shown) == head
