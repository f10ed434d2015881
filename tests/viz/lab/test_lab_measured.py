"""Lab with measured memory: the measured line stays while the schedule changes."""

from pathlib import Path

import pytest

import tinyckpt as tc
import viz
from tests.snapshots import listed
from tests.viz.conftest import Open
from tests.viz.lab.lab_driver import LAYER, STATE, at_work


@pytest.mark.nightly
@pytest.mark.browser
def test_measurement_stays_when_the_schedule_changes(tmp_path: Path, open_page: Open) -> None:
    pairs = [(0, 10_000), (1, 14_000), (2, 19_999), (3, 10_000)]
    measured = tc.load_measured(listed(tmp_path, pairs))
    path = viz.lab(tc.networks.chain(16), tmp_path / "lab.html", measured=measured, time_limit=1)
    page = at_work(open_page(path, "#step=20"))
    highest = "() => player.scales.highest"
    assert page.evaluate(highest) == 9999  # more than store-all's 9 216
    assert "peak 4.5 KiB" in page.inner_text("#lab-now")  # in bytes, as what was measured
    held = "() => [0, 20, player.models[0].count - 1].map(s => player.panels[0].measured.at(s))"
    before = page.evaluate(held)
    page.focus(".frontier .handle")
    for key in ("Home", "End", "ArrowLeft"):
        page.keyboard.press(key)
        assert (
            page.evaluate("() => document.querySelectorAll('.strip canvas.measured').length") == 1
        )
        assert page.evaluate(highest) == 9999
    page.click("#measured label")
    assert page.evaluate(highest) == 19_999
    page.focus(".frontier .handle")
    page.keyboard.press("Home")
    assert page.evaluate(highest) == 19_999
    page.click("#measured label")
    page.click(LAYER["ledger"].format(5))
    assert page.evaluate(STATE).startswith("keep=")
    assert page.evaluate(held)[0] == before[0] == 0
