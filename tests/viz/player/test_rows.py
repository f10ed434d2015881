"""Ledgers with more rows than fit: legible heights, scrolling."""

from itertools import pairwise
from typing import Any

import pytest

from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import choose_largest, go_to, seek, traces_of, until

pytestmark = pytest.mark.browser

NAMES = ".rail-row .name"
# How many names are not beside their bars.
MISPLACED = """() => { const {ledger} = player.panels[0];
    const plot = ledger.plot.getBoundingClientRect();
    return [...document.querySelectorAll(".rail-row")].filter(element => {
        const box = element.getBoundingClientRect(), row = Number(element.dataset.row);
        const middle = plot.top + (ledger.top(row) + ledger.rowHeight / 2) / ledger.layers.ratio;
        return Math.abs((box.top + box.bottom) / 2 - middle) > 1; }).length; }"""


def names(page: Any) -> list[str]:
    found: list[str] = page.locator(NAMES).all_inner_texts()
    return found


@pytest.mark.nightly
def test_rows_of_a_long_chain_are_legible_scrolled_and_aligned(player: Player) -> None:
    page = player("chain:256")
    assert page.get_attribute("#rows", "aria-pressed") == "false"
    assert page.evaluate("player.panels[0].ledger.rowHeight") < 3
    page.keyboard.press("r")
    assert page.get_attribute("#rows", "aria-pressed") == "true"
    assert page.evaluate("player.panels[0].ledger.rowHeight") == 24
    shown = names(page)
    assert "f1" in shown  # the first are lowest, and in sight at first
    assert shown == sorted(shown, key=lambda name: -int(name[1:]))
    assert len(shown) == page.evaluate("(([a, b]) => b - a)(player.panels[0].ledger.window.range)")
    # The wheel goes through rows here, and zooms with Ctrl.
    plot = page.locator(".ledger .plot").bounding_box()
    page.mouse.move(plot["x"] + plot["width"] / 2, plot["y"] + plot["height"] / 2)
    page.mouse.wheel(0, -2400)
    until(page, "player.panels[0].ledger.window.range[0] > 90")
    assert "f1" not in names(page)
    assert page.evaluate(MISPLACED) == 0
    assert page.evaluate("player.scales.extent.isWhole")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    until(page, "player.scales.extent.isWhole", False)
    until(page, "location.hash.includes('rows=each')")
    page.click("#rows")
    assert page.evaluate("player.panels[0].ledger.rowHeight") < 3
    page.evaluate("location.hash = 'step=3&rows=each'")
    until(page, "player.panels[0].ledger.rowHeight", 24)
    page.evaluate("location.hash = 'step=4'")
    until(page, "player.panels[0].ledger.rowHeight < 3")
    # The row that is computed, or chosen, is scrolled into view.
    go_to(page, "#step=-1")
    page.keyboard.press("r")
    (trace,) = traces_of("chain:256", ("sqrt_n",))
    for layer in (200, 3, 128):
        seek(
            page,
            next(i for i, step in enumerate(trace.steps) if f"f{layer}" in names_of(trace, step)),
        )
        assert f"f{layer}" in names(page)
        assert page.evaluate(MISPLACED) == 0
        # Its bar is where its name is: at the cursor it is being evaluated.
        assert page.locator(f".rail-row[data-row='{layer - 1}'] [data-look$=' computing']").count()
    choose_largest(page)
    assert page.locator(".rail-row[aria-pressed='true']").count() == 1
    # A scrollbar takes as much room from the strip.
    go_to(page, "#step=-1")
    page.evaluate("document.querySelector('.ledger').style.scrollbarWidth = 'auto'")
    page.keyboard.press("r")
    lefts = page.evaluate("""() => [".ledger .plot", ".strip .plot"].map(part => {
        const box = document.querySelector(part).getBoundingClientRect();
        return [box.left, box.right]; })""")
    assert lefts[0] == pytest.approx(lefts[1], abs=0.5)


def names_of(trace: Any, step: Any) -> str:
    operator = getattr(step, "operator", None)
    return "" if operator is None else f" {trace.graph.operators[operator].name} "


def test_keyboard_reaches_all_rows(player: Player) -> None:
    page = player("chain:64")
    page.keyboard.press("r")
    page.locator(".rail-row[tabindex='0']").focus()
    for row in range(1, 65):
        page.keyboard.press("ArrowUp")
        focused = page.evaluate("document.activeElement.dataset.row")
        assert focused == str(row)
        inside = page.evaluate("""() => { const rail = document.querySelector(".rail");
            const [a, b] = [rail, document.activeElement].map(e => e.getBoundingClientRect());
            return a.top <= b.top + 1 && b.bottom <= a.bottom + 1 && rail.scrollTop === 0; }""")
        assert inside
    # What scrolls away keeps the keyboard, and the tab key finds a row that is in sight.
    page.evaluate("document.querySelector('.ledger').scrollTop = 1e6")
    until(page, "player.panels[0].ledger.window.range[0]", 0)
    assert page.evaluate("document.activeElement.dataset.row") == "64"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("player.panels[0].ledger.window.range[1]") >= 64


def test_few_rows_do_not_scroll(player: Player) -> None:
    page = player("chain:4")
    assert page.is_hidden("#rows")
    page.keyboard.press("r")
    assert page.evaluate("player.scales.single") is False


def test_all_checkpoint_rows_are_named(player: Player) -> None:
    size = {"width": 2560, "height": 1300}
    page = player("chain:256", viewport=size)
    page.keyboard.press("p")
    ringed = page.locator(".rail-row .ring").count()
    assert ringed == page.evaluate("player.models[0].checkpoints.length")
    tops = page.evaluate(
        "[...document.querySelectorAll('.rail-row')].map(row => parseFloat(row.style.top))"
    )
    assert all(below - above >= 12.9 for above, below in pairwise(tops))
