"""Player of timelines: lanes of computation and copies over time."""

from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given

import tinyckpt as tc
import viz
from tests.conftest import with_fixtures
from tests.viz.charts.test_transfer_lanes import offloaded, timelines
from tests.viz.conftest import assert_accessible
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import code_of, go_to, seek
from viz.charts.transfer_lanes import lanes_of
from viz.player.data import TICKS

# The file, without a browser ---------------------------------------------------------------------


def test_time_scripts_are_only_on_pages_with_timelines() -> None:
    timeline = offloaded("chain:4", 256)
    page = code_of(viz.player([timeline, timeline.trace]).html)
    assert page.count("class TimeLane") == page.count("class HostLane") == 1
    assert page.index("class Timeline") < page.index("class TimeLane") < page.index("class Player")
    assert "class TimeLane" not in code_of(viz.player(timeline.trace).html)
    kept = tc.timed(tc.plan(timeline.schedule.graph, "store_all"), tc.Link(1))
    assert "class TimeLane" in code_of(viz.player(kept).html)


def test_timelines_in_different_units_are_refused(tmp_path: Path) -> None:
    timeline = offloaded("chain:4", 256)
    costs = tc.cost.flops(timeline.schedule.graph)
    other = tc.timed(timeline.schedule, tc.Link(256), costs)
    with pytest.raises(tc.OptionError, match="timelines in evaluations, FLOPs: expected a common"):
        viz.player([timeline, other])
    with pytest.raises(tc.OptionError, match=r"got a Timeline; its \.trace is one, and viz\.time"):
        viz.gif(timeline, tmp_path / "x.gif")
    assert not list(tmp_path.iterdir())


# The page in a browser ---------------------------------------------------------------------------

BOXES = f"""() => player.panels.map(panel => panel.timeline.lanes.at(-1).boxes({TICKS}, 74, 1)
    .map(box => [box.step, Math.round(box.left), box.ink]))"""
STALLS = "() => player.panels.map(panel => panel.timeline.lanes.at(-1).stalls)"
OVER = "() => Math.round(player.panels[0].timeline.lanes.at(-1).over * 1e9)"


def ticks(moment: Fraction, longest: Fraction) -> int:
    return round(moment * TICKS / longest) if longest else 0


def check_lanes(timeline: tc.Timeline, page: Any) -> None:
    """Check a page's lanes against its only timeline."""
    lanes = lanes_of(timeline)
    names = {0: "ink", 1: "gradient", 2: "recomputing"}
    kinds = iter([names[kind] for _, kind in lanes.evaluations])
    expected = [
        [place, ticks(timeline.begin[place], lanes.end), "kept" if moves else next(kinds)]
        for place, step in enumerate(timeline.schedule.steps)
        if (moves := isinstance(step, tc.Offload | tc.Fetch))
        or isinstance(step, tc.Compute | tc.Update)
    ]
    assert page.evaluate(BOXES) == [expected]
    stalls = [[ticks(moment, lanes.end) for moment in span] for span in lanes.stalls]
    assert page.evaluate(STALLS) == [stalls]


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.browser
@pytest.mark.parametrize("network", ["chain:9", "residual:3x8"])
def test_page_lanes_equal_the_timeline(network: str, player: Player) -> None:
    timeline = offloaded(network, 256)
    page = player(timeline)
    check_lanes(timeline, page)
    assert page.evaluate(OVER) == 0
    now, end = Fraction(0), lanes_of(timeline).end
    for place, step in enumerate(timeline.schedule.steps):
        seek(page, place)
        now = timeline.end[place] if isinstance(step, tc.Compute) else now
        assert page.evaluate(OVER) == ticks(now, end)
    words = f"time: {float(timeline.makespan):.6g} evaluations, {float(timeline.stalled):.6g} of"
    assert page.inner_text(".times .what").startswith(words)
    names = page.locator(".times .row-name").all_inner_texts()
    assert names == ["compute", "to the host", "back"]


@pytest.mark.nightly
@pytest.mark.browser
@with_fixtures(8)
@given(timeline=timelines())
def test_lanes_of_random_timelines_match(timeline: tc.Timeline, player: Player) -> None:
    page = player(timeline)
    check_lanes(timeline, page)
    page.keyboard.press("End")
    page.close()


@pytest.mark.browser
def test_click_on_a_lane_seeks_its_step_and_a_saved_frame_has_the_lanes(player: Player) -> None:
    timeline = offloaded("chain:9", 256)
    page = player(timeline)
    box = page.locator(".times canvas").bounding_box()
    end = lanes_of(timeline).end
    steps = timeline.schedule.steps
    for kind, lane in ((tc.Compute, 0), (tc.Offload, 1), (tc.Fetch, 2)):
        place = [place for place, step in enumerate(steps) if isinstance(step, kind)][3]
        middle = (timeline.begin[place] + timeline.end[place]) / 2 / end
        page.mouse.click(box["x"] + float(middle) * box["width"], box["y"] + 24 + 20 * lane)
        assert page.evaluate("player.tick") == place
    stalled = lanes_of(timeline).stalls[0]
    middle = sum(stalled) / 2 / end
    page.mouse.click(box["x"] + float(middle) * box["width"], box["y"] + 24)
    after = timeline.begin.index(stalled[1], page.evaluate("player.tick"))
    assert steps[page.evaluate("player.tick")] == steps[after]  # what waits
    go_to(page, "#step=20")
    with page.expect_download() as download:
        page.click("#svg")
    root = ElementTree.fromstring(Path(download.value.path()).read_bytes())
    said = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"compute", "to the host", "back"} <= set(said)


@pytest.mark.sampled(1)
@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_timeline_page_is_accessible(theme: Any, width: int, player: Player) -> None:
    size = {"width": width, "height": 900}
    page = player(offloaded("residual:3x8", 256), "#step=50", color_scheme=theme, viewport=size)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.keyboard.press("t")  # drawn anew in the other colours
    assert_accessible(page, minor=True)
