"""The caption in the player: Python's words at every step, cut where there is no room, and then
whole as a tip and for those who listen."""

from typing import Any

import pytest

import tinyckpt as tc
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import POLICIES, seek, traces_of, until
from viz.captions import Captions, short, whole

pytestmark = pytest.mark.browser

# Scripts are modules: what they say is asked of what they show.
SHOWN = """() => { const panel = player.panels[0]; const all = [];
    for (let step = -1; step < panel.model.count; step++) {
        player.show(step);
        all.push(player.panels.map(({caption}) => caption.title || caption.textContent));
    } return all; }"""


def expected(traces: list[tc.Trace], name: Any = whole) -> list[list[str]]:
    captions = [Captions(trace) for trace in traces]
    return [
        [said.text(min(step, len(said.trace.steps) - 1), name) for said in captions]
        for step in range(-1, len(traces[0].steps))
    ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("network", "policy"),
    [
        (network, policy)
        for network in ("chain:16", "residual:3x8", "unet:1")
        for policy in ("sqrt_n", "recompute_all", "offload")
        if (network, policy) != ("unet:1", "recompute_all")  # some thousand steps
    ],
)
def test_captions_equal_python_at_every_step(network: str, policy: str, player: Player) -> None:
    traces = traces_of(network, (policy,))
    page = player(traces)
    assert page.evaluate(SHOWN) == expected(traces)


def test_each_policy_has_its_own_caption(player: Player) -> None:
    traces = sorted(traces_of("chain:9", POLICIES), key=lambda trace: -len(trace.steps))
    page = player(traces, view="graph")
    page.keyboard.press("0")  # all of them, none folded
    assert page.evaluate(SHOWN) == expected(traces)


def test_narrow_caption_abbreviates_and_tooltip_is_complete(player: Player) -> None:
    def function(x: tc.Var) -> Any:
        with tc.scope("a_scope_with_a_name_that_takes_some_room"):
            for layer in range(4):
                with tc.scope(f"layer_number_{layer}"):
                    x = tc.name(tc.tanh(x), f"hidden_values_of_{layer}")
        return tc.sum(x)

    graph = tc.differentiate(tc.build(function, tc.Spec(8)))
    trace = tc.replay(tc.plan(graph, "recompute_all"))
    captions = Captions(trace)
    step = max(range(len(trace.steps)), key=lambda step: len(captions.text(step)))
    page = player([trace], f"#step={step}")
    shown = page.inner_text(".caption")
    assert shown == captions.text(step, short) or captions.clauses(step, short)[-1] == shown
    assert page.get_attribute(".caption", "title") == captions.text(step)
    overflow = "e => e.scrollWidth > e.clientWidth"
    assert not page.locator(".caption").evaluate(overflow)
    until(page, "document.getElementById('status').textContent !== ''")
    assert captions.text(step) in page.inner_text("#status")
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_timeout(100)
    assert not page.locator(".caption").evaluate(overflow)
    assert page.inner_text(".caption").endswith(captions.clauses(step, short)[-1][-5:]) or "…" in (
        page.inner_text(".caption")
    )
    seek(page, -1)
    assert page.get_attribute(".caption", "title") == ""
