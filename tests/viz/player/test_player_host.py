"""Player with offloading: values that move to host memory and back."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import tinyckpt as tc
from tests.viz.conftest import assert_accessible
from tests.viz.layout.test_levels import views_and_moves
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import (
    LOOKS,
    PRESS,
    all_looks,
    code_of,
    expected_counters,
    seek,
    written,
)
from tinyckpt.base.units import size_text
from viz.captions import Captions
from viz.scene import moves
from viz.theme import font

NETWORKS = {
    "chain:9": {"bandwidth": 512},
    "residual:3x8": {"bandwidth": 512, "engines": 1},
    "unet": {},
}


def trace_of(network: str, policy: str = "offload") -> tc.Trace:
    options = NETWORKS[network] if policy == "offload" else {}
    graph = tc.networks.network_from_text(network)[0]
    return tc.replay(tc.plan(graph, policy, **options))


# The file, without a browser ---------------------------------------------------------------------


def test_host_scripts_are_only_on_pages_with_offload(tmp_path: Path) -> None:
    plain = written(tmp_path, [trace_of("chain:9", "sqrt_n")]).read_text(encoding="utf-8")
    assert "function addStripes" not in code_of(plain)
    assert ".stripes" not in plain
    both = [trace_of("chain:9", "sqrt_n"), trace_of("chain:9")]
    page = code_of(written(tmp_path, both).read_text(encoding="utf-8"))
    assert page.count("function addStripes") == 1
    assert page.index("function addStripes") < page.index("class Player")


# The page in a browser ---------------------------------------------------------------------------

STRIPED = """() => [...document.querySelectorAll(".graph .node")].map(node => {
    const stripes = node.querySelector(".stripes");
    return getComputedStyle(stripes).visibility === "visible" && stripes.getAttribute("d") !== "";
})"""


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.browser
@pytest.mark.parametrize("network", [*NETWORKS, "by hand"])
def test_node_states_include_host_memory(network: str, player: Player) -> None:
    trace = views_and_moves() if network == "by hand" else trace_of(network)
    assert moves(trace)
    looks = all_looks(trace)
    page = player([trace], view="graph")
    pressed = page.evaluate(PRESS, ["ArrowRight", len(trace.steps)])
    for step, (shown, counters) in enumerate(pressed):
        assert shown == [looks[step + 1]], step
        (expected,) = expected_counters([trace], step)
        assert counters == [[*expected, size_text(trace.host[step])]], step
    for step in (len(trace.steps) // 3, len(trace.steps) // 2):
        seek(page, step)
        assert page.evaluate(LOOKS) == [looks[step + 1]]
        assert page.evaluate(STRIPED) == ["on the host" in look for look in looks[step + 1]]


CAPTIONS = """times => Array.from({length: times}, () => {
    document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}));
    const caption = document.querySelector(".caption");
    return caption.title || caption.textContent; })"""
LANE = """() => player.panels.map(panel => panel.timeline.lanes.map(lane =>
    [Array.from(lane.model.live), lane.model.strip_lines[0].words, lane.scales.highest]))"""


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.browser
@pytest.mark.parametrize("network", NETWORKS)
def test_caption_and_lane_show_transfers(network: str, player: Player) -> None:
    trace = trace_of(network)
    page = player([trace], view="graph")
    assert page.inner_text(".caption") == ""
    captions = [Captions(trace).text(step) for step in range(len(trace.steps))]
    assert page.evaluate(CAPTIONS, len(trace.steps)) == captions
    most = max(trace.host)
    assert page.evaluate(LANE) == [[[list(trace.host), f"most {size_text(most)}", most]]]
    assert page.inner_text(".lane .line") == f"most {size_text(most)}"
    label = page.get_attribute(".lane canvas", "aria-label")
    assert label.endswith(f"most {size_text(most)} at step {trace.host.index(most)}")


@pytest.mark.browser
def test_compared_policies_have_host_counters_and_one_lane(player: Player) -> None:
    traces = [trace_of("chain:9", "store_all"), trace_of("chain:9")]
    page = player(traces, "#step=20", view="graph")
    amounts = page.locator("[data-counter=host]").all_inner_texts()
    assert amounts == ["0 B", size_text(traces[1].host[20])]
    assert [len(lanes) for lanes in page.evaluate(LANE)] == [0, 1]
    page.select_option("#axis", "evaluation")
    box = page.locator(".lane canvas").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 1, box["y"] + 30)
    last = max(trace.evaluations for trace in traces) - 1
    assert page.evaluate("player.tick") == last


@pytest.mark.browser
def test_saved_frame_includes_the_host_lane(player: Player) -> None:
    trace = trace_of("chain:9")
    step = next(place for place, taken in enumerate(trace.steps) if isinstance(taken, tc.Fetch))
    page = player([trace], f"#step={step}", view="graph")
    with page.expect_download() as download:
        page.click("#svg")
    root = ElementTree.fromstring(Path(download.value.path()).read_bytes())
    said = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert Captions(trace).text(step) in said
    assert said.count("on the host") == 3  # the counter, the lane, the legend
    assert f"most {size_text(max(trace.host))}" in said
    places = {text.text: text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    entries = [places[name] for name in ("kept", "on the host", "dropped", "reads")]
    assert all(float(entry.get("x", 0)) < 750 for entry in entries)  # the legend has two rows
    assert len({entry.get("y") for entry in entries}) == 2
    (counter,) = (text for text in said if text and text.startswith("step"))
    subtitle = next(text for text in said if text and text.startswith("chain of 9"))
    wide = font("Regular", 12).getlength(subtitle)
    assert 26 + wide < float(places[counter].get("x", 0))


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_host_page_is_accessible(theme: Any, width: int, player: Player) -> None:
    size = {"width": width, "height": 900}
    page = player(
        [trace_of("residual:3x8"), trace_of("residual:3x8", "sqrt_n")],
        "#step=50",
        view="graph",
        color_scheme=theme,
        viewport=size,
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert_accessible(page, minor=True)
