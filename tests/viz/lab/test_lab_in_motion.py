"""What a drag or playing costs a frame in the lab, and that nothing in sight is out of date."""

from typing import Any

import pytest

from tests.viz.lab.conftest import OpenLab
from tests.viz.player.player_driver import until

pytestmark = pytest.mark.browser
MOST_LAYOUTS = 3  # of all frames together: nothing is measured while it is dragged or played
# Words and lists, which change ten times a second, are not due.
DRAGS = """() => { const { points } = player.offers;
    player.saying.last = player.listing.last = performance.now() + 1e6;
    for (const point of points) { player.drag(point, false); player.present(); }
    return points.length; }"""
PLAYS = """() => { player.seek(-1); player.playing = true;
    player.saying.last = player.listing.last = performance.now() + 1e6;
    for (let tick = 0; tick < 30; tick++) player.show(tick);
    return 30; }"""
SLOW_LISTS = """slow => { player.table.show = () => {
        const begin = performance.now();
        while (performance.now() - begin < slow); };
    player.listing.now();
    return player.listing.pause; }"""
DRAG = "at => player.drag(player.offers.points[at], false)"
KEY = "at => player.offers.points[at].key"
WAITS = "() => player.panels[0].ledger.layers.past === null"
# What the first screen shows, pixels included; and the ledger below it.
SEEN = """() => [...document.querySelectorAll(
        ".callout, .panel .caption, .panel .title, #filling-title, #filling-list .bar, #marks span")
    ].map(element => element.textContent).concat(
    ["aria-valuenow", "aria-valuetext"].map(name =>
        document.querySelector(".budget-line").getAttribute(name)),
    document.getElementById("scrub").getAttribute("aria-valuetext"),
    document.getElementById("scrub").max,
    [".budget-line", ".stored", ".phases .loss", "#marks i:nth-of-type(2)"].map(part => {
        const { left, bottom } = document.querySelector(part).getBoundingClientRect();
        return `${left.toFixed(2)} ${bottom.toFixed(2)}`; }),
    [...document.querySelectorAll(".strip canvas")].map(canvas => canvas.toDataURL()))"""
LEDGER = """() => [...document.querySelectorAll(".rail-row")].map(
        row => row.getAttribute("aria-label")).concat(
    getComputedStyle(document.querySelector(".ledger canvas")).visibility,
    document.querySelector(".ledger canvas").toDataURL())"""


def layouts(page: Any, script: str) -> int:
    """Return how many layouts a script forces."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def count() -> int:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(int(one["value"]) for one in metrics if one["name"] == "LayoutCount")

    before = count()
    assert page.evaluate(script) > MOST_LAYOUTS + 1
    return count() - before


@pytest.mark.parametrize("script", [DRAGS, PLAYS], ids=["drag", "play"])
def test_frames_in_motion_force_no_layout(script: str, lab: OpenLab) -> None:
    page = lab("chain:16")
    page.wait_for_selector(".bars.acts .act")
    assert layouts(page, script) <= MOST_LAYOUTS


def test_lists_that_take_long_change_seldom_in_motion(lab: OpenLab) -> None:
    page = lab("chain:16")
    assert page.evaluate(SLOW_LISTS, 30) >= 300
    assert page.evaluate(SLOW_LISTS, 150) == 1000  # and not once in longer


@pytest.mark.sampled(1)
@pytest.mark.parametrize("network", ["chain:16", "resnet50"])
def test_dragged_page_shows_what_a_fresh_one_does(network: str, lab: OpenLab) -> None:
    page = lab(network)
    page.evaluate(DRAG, 0)
    page.evaluate(DRAG, 2)
    fresh = lab(network, f"#{page.evaluate(KEY, 2)}")
    wanted = fresh.evaluate(SEEN)
    until(page, SEEN, wanted)  # and nothing is settled
    assert page.evaluate("player.isMoving")


def test_ledger_out_of_sight_waits_and_is_drawn_when_it_comes_into_sight(lab: OpenLab) -> None:
    page = lab("chain:16")
    until(page, "() => player.panels[0].isSeen", False)
    page.evaluate(DRAG, 2)
    until(page, WAITS, True)
    fresh = lab("chain:16", f"#{page.evaluate(KEY, 2)}")
    until(fresh, WAITS, False)  # nothing moves
    for each in (page, fresh):
        each.evaluate("document.querySelector('.ledger').scrollIntoView()")
    until(page, LEDGER, fresh.evaluate(LEDGER))
    page.evaluate(DRAG, 0)  # in sight, it follows
    other = lab("chain:16", f"#{page.evaluate(KEY, 0)}")
    until(page, LEDGER, other.evaluate(LEDGER))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("end", ["drag", "back", "pause", "resize"])
def test_ledger_out_of_sight_is_drawn_when_all_rests(end: str, lab: OpenLab) -> None:
    page = lab("chain:16")
    until(page, "() => player.panels[0].isSeen", False)
    begin = page.evaluate("player.choice.key")
    size = page.viewport_size
    if end in ("pause", "resize"):
        page.evaluate("() => { player.playing = true; player.show(20); player.show(21); }")
    else:
        page.evaluate(DRAG, 2)
    until(page, WAITS, True)
    if end == "resize":
        page.set_viewport_size({"width": 1000, "height": 700})
        until(page, "() => player.panels[0].strip.layers.fits", True)
        assert page.evaluate(WAITS)
    if end == "drag":
        page.evaluate("() => player.drag(player.offers.points[2], true)")
    elif end == "back":
        page.evaluate("() => player.drag(player.settled, false)")
        page.evaluate("() => player.drag(player.choice, true)")
    else:
        page.evaluate("() => player.pause()")
    assert not page.evaluate(WAITS)
    fresh = lab("chain:16", "#step=21" if end in ("pause", "resize") else "#" + (
        begin if end == "back" else page.evaluate(KEY, 2)))  # fmt: skip
    if end == "resize":
        fresh.set_viewport_size({"width": 1000, "height": 700})
    until(page, LEDGER, fresh.evaluate(LEDGER))
    page.set_viewport_size(size)
