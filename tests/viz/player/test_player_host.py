"""The player where values move to the host's memory and back."""

from pathlib import Path

import pytest

import tinyckpt as tc
from tests.viz.conftest import Open
from tests.viz.layout.test_levels import views_and_moves
from tests.viz.player.player_driver import (
    LOOKS,
    PRESS,
    all_looks,
    seek,
    written,
)
from viz.scene import moves

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


def test_only_pages_with_moves_have_what_they_need(tmp_path: Path) -> None:
    plain = written(tmp_path, [trace_of("chain:9", "sqrt_n")]).read_text(encoding="utf-8")
    assert "function addStripes" not in plain
    assert ".stripes" not in plain
    both = [trace_of("chain:9", "sqrt_n"), trace_of("chain:9")]
    page = written(tmp_path, both).read_text(encoding="utf-8")
    assert page.count("function addStripes") == 1
    assert page.index("function addStripes") < page.index("class Player")


# The page in a browser ---------------------------------------------------------------------------

STRIPED = """() => [...document.querySelectorAll(".graph .node")].map(node => {
    const stripes = node.querySelector(".stripes");
    return getComputedStyle(stripes).visibility === "visible" && stripes.getAttribute("d") !== "";
})"""


@pytest.mark.browser
@pytest.mark.parametrize("network", [*NETWORKS, "by hand"])
def test_every_node_says_where_its_value_is(network: str, tmp_path: Path, open_page: Open) -> None:
    trace = views_and_moves() if network == "by hand" else trace_of(network)
    assert moves(trace)
    looks = all_looks(trace)
    page = open_page(written(tmp_path, [trace]))
    for step, (shown, _) in enumerate(page.evaluate(PRESS, ["ArrowRight", len(trace.steps)])):
        assert shown == [looks[step + 1]], step
    for step in (len(trace.steps) // 3, len(trace.steps) // 2):
        seek(page, step)
        assert page.evaluate(LOOKS) == [looks[step + 1]]
        assert page.evaluate(STRIPED) == ["on the host" in look for look in looks[step + 1]]
