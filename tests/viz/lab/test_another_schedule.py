"""Replacing a schedule in the lab: no state of the old one remains."""

from pathlib import Path

import pytest

import tinyckpt as tc
import viz
from tests.viz.conftest import Open
from tests.viz.lab.conftest import OpenLab
from tests.viz.lab.lab_driver import STATE, at_work, workbench
from tests.viz.player.player_driver import until
from tinyckpt.base.units import size_text

pytestmark = pytest.mark.browser
MARKED = """() => { const {ledger} = player.panels[0]; const {selected, step} = ledger;
    return selected.begin <= step && step < selected.end; }"""
HELD = """value => { const {model: {spans: {first, begins, ends}}, step} = player.panels[0];
    for (let i = first[value]; i < first[value + 1]; i++)
        if (begins[i] <= step && step < ends[i]) return true;
    return false; }"""
STEPS = "() => [...document.querySelectorAll('#node-facts .link')].map(link => link.textContent)"


@pytest.mark.nightly
def test_copy_lanes_disappear_with_an_offload_schedule(open_page: Open, tmp_path: Path) -> None:
    schedule = tc.plan(tc.networks.chain(9), "offload", bandwidth=512)
    tc.save_schedule(schedule, tmp_path / "offload.json")
    page = open_page(viz.empty_lab(tmp_path / "lab.html"))
    page.evaluate("() => document.documentElement.removeAttribute('data-ready')")
    page.set_input_files("#desk-files", str(tmp_path / "offload.json"))
    page.wait_for_selector("html[data-ready]")
    at_work(page)
    assert page.is_visible(".timeline.lane")
    dropped = page.evaluate(STATE)
    longer = "() => player.take(player.offers.points[0])"
    page.evaluate(longer)
    page.evaluate("() => player.seek(player.ticks - 1)")
    assert page.locator(".timeline.lane").count() == 0
    assert page.inner_text("[data-counter=host]") == "0 B"
    page.select_option("#axis", "FLOPs")
    page.evaluate("() => player.take(player.offers.points.at(-1))")
    assert page.locator(".ledger canvas").first.evaluate("canvas => canvas.width") > 0
    for _ in range(2):
        page.click("#lab-undo")
    assert page.evaluate(STATE) == dropped
    assert page.is_visible(".timeline.lane")
    page.evaluate("() => player.seekStep(player.models[0], player.models[0].peakStep)")
    held = page.evaluate("() => player.models[0].host[player.panels[0].step]")
    assert page.inner_text("[data-counter=host]") == size_text(held)


@pytest.mark.nightly
def test_marks_links_and_loop_follow_the_schedule(lab: OpenLab) -> None:
    page = workbench(lab, "chain:16", "#view=ledger")
    page.select_option("#axis", "evaluation")  # where a tick is another step of each schedule
    seen = 0
    for value in range(1, 17):
        page.evaluate("value => player.choose(player.panels[0], -1, value)", value)
        for peak in (18, 7, 5, 9):
            page.evaluate("() => player.seek(36)")
            page.evaluate("peak => player.take(player.offers.within(512 * peak))", peak)
            held = page.evaluate(HELD, value)
            assert not held or page.evaluate(MARKED), (value, peak)
            seen += held
    assert seen > 4
    # Links lead to the steps of the schedule that is shown.
    graph = tc.networks.chain(16)
    page.select_option("#axis", "step")
    page.evaluate("() => player.choose(player.panels[0], 2)")
    for kept in ([1, 4, 8], [1, 4, 8, 12], [4, 8, 12], [5, 9]):
        page.evaluate("values => player.take(player.offers.keeping(values))", kept)
        steps = tc.plan(graph, "retain", keep=kept).steps
        own = [i for i, step in enumerate(steps) if getattr(step, "operator", None) == 2]
        assert page.evaluate(STEPS) == [str(step) for step in own]
    # A loop ends where a shorter schedule does.
    page.select_option("#lab-policy", "recompute_all")
    page.evaluate("() => player.navigation.setLoop(30, player.ticks - 1)")
    page.select_option("#lab-policy", "store_all")
    last = page.evaluate("() => player.ticks - 1")
    assert page.evaluate("() => player.navigation.loop") == {"from": 30, "to": last}
    page.evaluate("() => player.seek(player.ticks - 2)")
    page.click("#play")
    until(page, "player.tick >= 30 && player.tick < 40")


def test_nodes_do_not_fade_during_a_budget_drag(lab: OpenLab) -> None:
    page = workbench(lab, "chain:16", reduced_motion="no-preference")
    page.evaluate("() => { player.seek(20); player.seek(21); }")
    stepped = "() => document.getElementById('panels').classList.contains('stepped')"
    assert page.evaluate(stepped)
    page.select_option("#lab-policy", "store_all")
    assert not page.evaluate(stepped)
