"""Progress axis: alignment of schedules that take different steps."""

from itertools import pairwise

import pytest
from hypothesis import given

import tinyckpt as tc
from tests.conftest import with_fixtures
from tests.viz.player.comparing import compared, evaluated, parts, progress
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import POLICIES, traces_of, until
from tinyckpt.core.schedule import EVALUATIONS

pytestmark = pytest.mark.browser

PLACES = """() => player.models.map(model => Array.from(model.places.get("progress")))"""
# By tick the step of each policy, and where the cursors of all that is open are.
SHOWN = """() => Array.from({length: player.ticks}, (_, tick) => { player.show(tick);
    const now = player.visible.flatMap(({ledger, strip}) => [ledger.layers.now, strip.layers.now]);
    return [player.panels.map(panel => panel.step), [...new Set(now)].length]; })"""


def check(traces: list[tc.Trace], page: object) -> None:
    """Check positions, and steps by tick, against Python."""
    own = progress(traces)
    for trace, places, expected in zip(traces, page.evaluate(PLACES), own, strict=True):
        kinds = [isinstance(step, EVALUATIONS) for step in trace.steps]
        assert [at for at, kind in zip(places, kinds, strict=False) if kind] == expected
        for (before, after), kind in zip(pairwise(places), kinds, strict=True):
            assert after >= before + kind
    for tick, (steps, cursors) in enumerate(page.evaluate(SHOWN)):
        for trace, places, step in zip(traces, own, steps, strict=True):
            begun = sum(place <= tick for place in places)
            assert (trace.evaluations_so_far[step] if step >= 0 else 0) == begun
            # Between its evaluations it has freed what it no longer wants.
            if step >= 0 and tick not in places and step + 1 < len(trace.steps):
                assert isinstance(trace.steps[step + 1], EVALUATIONS)
        if tick <= min(places[-1] for places in own):
            assert cursors == 1, tick


@pytest.mark.nightly
def test_progress_axis_aligns_first_evaluations(player: Player) -> None:
    traces = traces_of("residual:3x8", POLICIES)
    page = player(traces, "#progress=20&alone=0")
    assert page.locator("#axis option").all_inner_texts()[-1] == "progress"
    assert page.input_value("#axis") == "progress"
    for part, closed in parts(traces):
        if closed:
            assert len({evaluated(t)[own[-1]] for t, own in zip(traces, part, strict=True)}) == 1
    assert len({tuple(places[-1:]) for places in progress(traces)}) == 1
    check(traces, page)
    page.keyboard.press("End")
    page.keyboard.press("l")
    until(page, "location.hash.startsWith('#progress=')")
    assert page.evaluate("player.navigation.loopPlaces") == [0, page.evaluate("player.ticks")]


@with_fixtures(6, least=2)
@given(traces=compared(most=3))
def test_progress_axis_aligns_random_schedules(traces: list[tc.Trace], player: Player) -> None:
    page = player(traces, "#progress=0&alone=0")
    check(traces, page)
    page.close()


def test_different_graphs_have_no_progress_axis(player: Player) -> None:
    traces = [*traces_of("chain:4", ("sqrt_n",)), *traces_of("mlp:3x8", ("sqrt_n",))]
    page = player(traces)
    assert "progress" not in page.locator("#axis option").all_inner_texts()
    alone = player(traces[:1], "#progress=5")
    assert "progress" not in alone.locator("#axis option").all_inner_texts()
