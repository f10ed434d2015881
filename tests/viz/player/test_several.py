"""Several policies on a page: one open, the others a row each."""

from typing import Any

import pytest

from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import POLICIES, TICK, go_to, seek, traces_of, until
from viz.scene import count_text, live_of

pytestmark = pytest.mark.browser

ROWS = """() => [...document.querySelectorAll(".panel.compact")].map(panel => [
    panel.querySelector(".title").textContent, panel.querySelector(".brief").textContent,
    panel.querySelector(".spark b").textContent])"""
OPEN = """() => [...document.querySelectorAll(".panel:not(.compact) .title")].map(
    title => title.textContent)"""
# Where the cursors of open ledgers and of rows are, in pixels of the screen.
CURSORS = """() => [...player.visible.map(({ledger}) => {
        const box = ledger.plot.getBoundingClientRect();
        return box.left + ledger.layers.now / ledger.layers.ratio; }),
    ...player.rows.map(({spark}) => { const box = spark.cursor.getBoundingClientRect();
        return (box.left + box.right) / 2; })]"""
TITLES = ["store all", "√n checkpointing", "recompute all"]
HEIGHT = "document.querySelector('main').scrollHeight - document.querySelector('main').clientHeight"


def opened(player: Player, fragment: str = "", **options: Any) -> Any:
    return player("chain:16", fragment, policies=POLICIES, **options)


def test_one_policy_is_open_and_the_others_are_rows_that_open(player: Player) -> None:
    page = opened(player)
    page.select_option("#axis", "step")
    traces = traces_of("chain:16", POLICIES)
    for step in (0, 17, 40, 64, 200):
        seek(page, step)
        rows = []
        for title, trace in list(zip(TITLES, traces, strict=True))[1:]:
            live = live_of(trace, in_nodes=True)
            now = live[min(step, len(live) - 1)]
            costs = f"{count_text(trace.evaluations)} evaluations · peak {max(live)} values"
            rows.append([title, costs, f"{now} value{'' if now == 1 else 's'}"])
        assert page.evaluate(ROWS) == rows, step
        first, *others = page.evaluate(CURSORS)
        # Each at its own end, once it has come to it.
        for trace, other in zip(traces[1:], others, strict=True):
            if step < min(len(trace.steps), len(traces[0].steps)):
                assert other == pytest.approx(first, abs=1.01)
    # Rows follow the axis and what is in sight of it.
    go_to(page, "#step=20")
    page.select_option("#axis", "evaluation")
    assert max(page.evaluate(CURSORS)) - min(page.evaluate(CURSORS)) < 1.01
    page.evaluate("player.scales.extent.set(0, player.scales.extent.whole / 4)")
    assert max(page.evaluate(CURSORS)) - min(page.evaluate(CURSORS)) < 1.01
    # One is opened by mouse, keys and link.
    go_to(page, "#step=20")
    assert page.evaluate(OPEN) == TITLES[:1]
    page.click(".panel:nth-child(3) .curve")
    assert page.evaluate(OPEN) == TITLES[2:]
    page.click(".panel:nth-child(2) .solo")
    assert page.evaluate(OPEN) == TITLES[1:2]
    page.keyboard.press("ArrowUp")
    assert page.evaluate(OPEN) == TITLES[:1]
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    assert page.evaluate(OPEN) == TITLES[2:]
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == "recompute all is open; show all"
    page.keyboard.press("Enter")
    assert page.evaluate(OPEN) == TITLES
    page.keyboard.press("2")
    assert page.evaluate(OPEN) == TITLES[1:2]
    label = page.get_attribute(".panel:nth-child(3) .solo", "aria-label")
    assert label == "Open recompute all: 153 evaluations · peak 3 values"
    assert page.evaluate(TICK) == 20
    until(page, "location.hash", "#step=20&alone=2")
    page.keyboard.press("0")
    until(page, "location.hash", "#step=20&alone=0")
    again = opened(player, "#step=20&alone=3", has_touch=True)
    assert again.evaluate(OPEN) == TITLES[2:]
    again.tap(".panel:nth-child(1)")
    assert again.evaluate(OPEN) == TITLES[:1]
    # The page says whose step it shows.
    page = opened(player, "#step=40&alone=0")
    assert page.locator("#whose option").all_inner_texts() == TITLES
    assert page.input_value("#whose") == "0"
    said = page.inner_text("#filling-total")
    page.select_option("#whose", "1")
    assert page.inner_text("#filling-total") != said
    assert page.locator(".panel.chosen .title").all_inner_texts() == TITLES[1:2]
    assert page.input_value("#policy") == "1"
    page.click(".panel:nth-child(3) .title")
    assert page.input_value("#whose") == "2"
    assert page.inner_text("#filling-total") == "3 of 3 values"
    page.keyboard.press("1")
    page.select_option("#whose", "1")  # whom it is about is open, too
    assert page.evaluate(OPEN) == TITLES[1:2]
    alone = player("chain:16", policies=POLICIES[:1])
    assert alone.is_hidden("#whose")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("size", "key"), [((1280, 800), "2"), ((2560, 1440), "c")])
def test_three_policies_fit_the_screen(size: tuple[int, int], key: str, player: Player) -> None:
    width, height = size
    page = opened(player, "#step=20", viewport={"width": width, "height": height})
    page.keyboard.press(key)
    assert page.evaluate(HEIGHT) <= 0
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for part in (".legend.of-ledger", "#play", ".caption >> visible=true"):
        box = page.locator(part).first.bounding_box()
        assert box["y"] + box["height"] <= height
    if key == "c":
        tops = page.evaluate("player.panels.map(p => p.element.getBoundingClientRect().top)")
        assert len(set(tops)) == 1
        page.keyboard.press("c")
        assert page.evaluate(OPEN) == TITLES[:1]


def compared(page: Any) -> list[int]:
    """Return the pair whose difference is open, from 0."""
    ids: list[int] = page.evaluate("player.difference.models.map(({id}) => id)")
    return ids


@pytest.mark.nightly
@pytest.mark.parametrize("keys", ["0v", "31v"])
def test_policies_outside_the_pair_are_redrawn_after_a_difference(
    keys: str, player: Player
) -> None:
    traces = traces_of("chain:16", (*POLICIES, "greedy"))
    page = player(traces, "#step=20")
    for key in keys:
        page.keyboard.press(key)
    assert compared(page) == [0, 1]
    page.set_viewport_size({"width": 1000, "height": 700})  # those outside have no size
    page.locator(".difference .rail-row").first.click()
    assert page.input_value("#axis") == "progress"
    page.keyboard.press("4")
    assert compared(page) == [0, 3]
    page.evaluate("player.differences.close(); player.setSolo(-1)")
    # All are drawn again, with their own selection.
    page.evaluate("player.choose(player.panels[3], 2)")
    assert page.locator(".panel .rail-row[aria-pressed=true]").count() == 1
    assert page.evaluate("player.panels.every(({ledger}) => ledger.layers.fits)")


def test_minimap_shows_the_higher_of_two_curves(player: Player) -> None:
    drawn = """() => { const {minimap} = player.navigation, {width, height} = minimap.canvas;
        const {data} = minimap.curve.getContext("2d").getImageData(0, 0, width, height);
        return [...data].join(); }"""
    page = opened(player, "#progress=20&difference=1-2")
    first = page.evaluate(drawn)
    page.click(".which button")  # the same two, turned round
    assert page.evaluate(drawn) == first
    page.keyboard.press("3")
    assert page.evaluate(drawn) != first
