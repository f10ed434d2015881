"""Double clicks and toggles in the lab: a second click undoes or continues the first."""

import pytest

from tests.viz.lab.conftest import OpenLab
from tests.viz.lab.lab_driver import LAYER, SHOWN, STATE, workbench
from tests.viz.player.player_driver import until

pytestmark = pytest.mark.browser

CLICKED = "() => performance.now() - player.flipped.at > 500"  # so that two are not one


@pytest.mark.nightly
def test_double_click_expands_a_group_without_changes(lab: OpenLab) -> None:
    page = workbench(lab, "resnet18:1")
    page.select_option("#lab-policy", "sqrt_n")
    state = page.evaluate(STATE)
    page.hover(LAYER["ledger"].format(1))
    assert page.inner_text("#tip").splitlines()[-1] == "twice to open"
    page.click(LAYER["ledger"].format(1))
    assert page.evaluate(STATE) != state
    title = page.evaluate("() => player.panels[0].view.title")
    until(page, "() => performance.now() - player.flipped.at > 500")
    before = page.evaluate(STATE)
    page.dblclick(LAYER["ledger"].format(2))
    assert page.evaluate(STATE) == before
    assert page.evaluate("() => player.panels[0].view.title") != title
    assert page.is_enabled("#lab-undo")


def test_layer_toggled_twice_saves_what_the_policy_did_and_counts_for_a_challenge(
    lab: OpenLab,
) -> None:
    page = workbench(lab, "chain:16")
    for policy in ("sqrt_n", "store_all"):
        page.select_option("#lab-policy", policy)
        steps = page.evaluate(SHOWN)
        for _ in range(2):
            page.click(LAYER["ledger"].format(7))
            until(page, CLICKED)
        # The same values, without the policy's name: they were picked by hand.
        assert page.evaluate(STATE).startswith("keep=")
        assert page.evaluate(SHOWN) == steps
        assert page.input_value("#lab-policy") == ""
    # What is kept by hand counts, even if a policy keeps the same.
    page.click("#lab-challenge")
    page.evaluate("() => player.take(player.offers.within(player.asked.budget))")
    assert "This one was planned" in page.inner_text("#lab-asked")
    for _ in range(2):
        page.click(LAYER["ledger"].format(7))
        until(page, CLICKED)
    assert "Done" in page.inner_text("#lab-asked")


@pytest.mark.nightly
def test_group_toggled_twice_restores_its_saved_values(lab: OpenLab) -> None:
    page = workbench(lab, "transformer:4x64")
    page.select_option("#lab-policy", "sqrt_n")
    states, said = [page.evaluate(STATE)], []
    for _ in range(4):
        page.click(LAYER["ledger"].format(2))
        until(page, CLICKED)
        states.append(page.evaluate(STATE))
        said.append(page.inner_text("#lab-said"))
    back = [i for i in range(1, 3) if " dropped: " in said[i] and " kept: " in said[i + 1]]
    assert back
    assert all(states[i + 2] == states[i] != states[i + 1] for i in back)
