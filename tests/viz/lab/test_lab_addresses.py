"""Memory by address in the lab: of every schedule that it plans, and only where all is shown."""

from typing import Any

import pytest

from tests.viz.lab.conftest import OpenLab
from tests.viz.lab.lab_driver import STATE
from tests.viz.player.player_driver import go_to
from tests.viz.player.test_addresses import NOTE, PLACED, overlapping

pytestmark = pytest.mark.browser
LIVE = """() => { const { live, count } = player.models[0];
    const sums = new Array(count).fill(0);
    for (const { begin, end, amount } of player.panels[0].strip.placed.rectangles)
        for (let step = begin; step < end; step++) sums[step] += amount;
    return [sums, Array.from(live)]; }"""


def checked(page: Any) -> None:
    """Check that rectangles do not overlap, and are all that is live at every step."""
    rectangles, height = page.evaluate(PLACED)
    assert overlapping(rectangles) == []
    sums, live = page.evaluate(LIVE)
    assert sums == live
    assert height >= max(live)
    assert page.evaluate(NOTE).startswith(f"Buffer {height / max(live):.2f} ")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("network", ["chain:16", "unet"])
def test_addresses_follow_the_budget_and_what_is_kept_by_hand(network: str, lab: OpenLab) -> None:
    page = lab(network, "#step=9&more=1&y=address")
    assert page.input_value("#scale") == "address"
    checked(page)
    shown = set()
    for share in ("30 %", "60 %", "100 %"):
        page.fill("#lab-budget", share)
        page.keyboard.press("Enter")
        checked(page)
        shown.add(page.evaluate(STATE))
    assert len(shown) > 1  # two may be one: on a busy machine the search finds few points
    page.evaluate("() => player.take(player.offers.keeping([]))")
    checked(page)
    # What PyTorch would reserve is not known of a schedule that the page plans.
    assert "PyTorch" not in page.evaluate(NOTE)


def test_first_screen_stays_stacked(lab: OpenLab) -> None:
    page = lab("chain:16", "#step=9&y=address")
    assert page.evaluate("() => player.scales.kind") == "linear"
    assert page.is_hidden(".note")
    page.keyboard.press("y")
    page.keyboard.press("y")
    page.keyboard.press("y")
    assert page.evaluate("() => player.scales.kind") != "address"
    go_to(page, "#step=9&more=1&y=address")
    assert page.is_visible(".note")
    assert page.is_visible(".budget-line")
    page.click("#lab-more")
    assert page.evaluate("() => player.scales.kind") == "linear"
    assert page.is_hidden(".note")
