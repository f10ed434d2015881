"""Shared axis of the player's ledger, strip and lanes, and its visible range."""

from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate

import pytest

from tests.viz.charts.test_transfer_lanes import offloaded
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import traces_of, until
from tinyckpt.core.schedule import EVALUATIONS
from viz.charts.transfer_lanes import lanes_of
from viz.player.data import TICKS

pytestmark = pytest.mark.browser

POLICIES = ("sqrt_n", "recompute_all")

PLACES = "() => Array.from(player.panels[0].ledger.places)"
# What is seen of ledger and strip at step 25 of a part, which is drawn as a whole or as it moves.
PIXELS = """isMoving => { const {ledger, strip} = player.panels[0];
    player.scales.extent.set(0, 5); player.seek(20); player.scales.extent.set(10, 30);
    if (!isMoving) player.redraw();
    player.seek(25);
    const seen = ({past, future, now}) => (hash, pixel, i) =>
        (31 * hash + (i % past.width < now ? pixel : future.pixels[i])) | 0;
    return [ledger, strip].map(({layers}) => layers.past.pixels.reduce(seen(layers), 7)); }"""
CURSOR = """() => player.panels.map(({ledger, strip}) => [ledger.layers.now, strip.layers.now])"""


def test_ledger_and_strip_share_every_axis(player: Player) -> None:
    trace, other = traces_of("residual:3x8", POLICIES)
    graph = trace.graph
    page = player([trace, other], "#step=30")
    weights = {
        "step": lambda step: 1,
        "evaluation": lambda step: int(isinstance(step, EVALUATIONS)),
        "FLOPs": lambda step: (
            graph.operators[step.operator].flops if isinstance(step, EVALUATIONS) else 0
        ),
    }
    assert page.locator("#axis option").all_inner_texts() == [*weights, "progress"]
    for axis, weight in weights.items():
        page.select_option("#axis", axis)
        places = [0, *accumulate(map(weight, trace.steps))]
        assert page.evaluate(PLACES) == places
        whole = max(places[-1], sum(map(weight, other.steps)))
        width = page.evaluate("player.panels[0].ledger.layers.past.width")
        step = page.evaluate("player.panels[0].step")
        for first, second in page.evaluate(CURSOR):
            assert first == second
        assert page.evaluate(CURSOR)[0][0] == int(places[step + 1] / whole * width + 0.5)
    until(page, "location.hash.startsWith('#FLOPs=')")


def test_policies_are_aligned_by_flops(player: Player) -> None:
    traces = traces_of("residual:3x8", ("store_all", *POLICIES))
    page = player(traces)
    page.select_option("#axis", "FLOPs")
    shown = page.evaluate("""() => Array.from({length: player.ticks}, (_, tick) => {
        player.show(tick); return player.panels.map(panel => panel.step); })""")
    operators = traces[0].graph.operators
    places = [
        [0, *accumulate(operators[s.operator].flops if isinstance(s, EVALUATIONS) else 0
                        for s in trace.steps)]
        for trace in traces
    ]  # fmt: skip
    longest = max(range(len(traces)), key=lambda at: places[at][-1])
    computes = [at for at, s in enumerate(traces[longest].steps) if isinstance(s, EVALUATIONS)]
    for tick, place in enumerate(computes):
        now = places[longest][place + 1]
        expected = [min(bisect_right(own, now) - 2, len(own) - 2) for own in places]
        expected[longest] = place
        assert shown[tick] == expected, tick
    assert page.evaluate("player.scrub?.max ?? document.getElementById('scrub').max") == str(
        len(computes) - 1
    )


def test_zoomed_axis_is_shared_by_all_views(player: Player) -> None:
    (trace,) = traces_of("chain:9", ("sqrt_n",))
    page = player([trace], "#step=20")
    page.evaluate("player.scales.extent.set(10, 30)")
    width = page.evaluate("player.panels[0].ledger.layers.past.width")
    assert page.evaluate(CURSOR) == [[int(11 / 20 * width + 0.5)] * 2]
    # While it moves, only what is seen is drawn; once time goes on, all of it.
    assert page.evaluate(PIXELS, True) == page.evaluate(PIXELS, False)
    columns = page.evaluate("Array.from(player.panels[0].strip.columns)")
    assert [columns[0], columns[-1]] == [10, 29]
    page.evaluate("player.scales.extent.set(-5, 1e9)")
    assert page.evaluate("[player.scales.extent.from, player.scales.extent.to]") == [
        0, len(trace.steps),
    ]  # fmt: skip


def test_time_axis_exists_for_timelines(player: Player) -> None:
    timeline = offloaded("chain:9", 256)
    page = player(timeline, "#step=30")
    assert page.locator("#axis option").all_inner_texts()[-1] == "time"
    page.select_option("#axis", "time")
    end = lanes_of(timeline).end
    places, now = [], Fraction(0)
    for place, step in enumerate(timeline.schedule.steps):
        evaluates = isinstance(step, EVALUATIONS)
        now = max(now, timeline.begin[place]) if evaluates else now
        places.append(now)
        now = max(now, timeline.end[place]) if evaluates else now
    expected = [round(moment * TICKS / end) for moment in [*places, end]]
    assert page.evaluate(PLACES) == expected
    over = page.evaluate(
        "player.panels[0].timeline.lanes.map(lane => lane.nowAt?.(1000) ?? lane.over)"
    )
    cursor = page.evaluate("player.panels[0].ledger.x(player.panels[0].ledger.places[31])")
    width = page.evaluate("player.panels[0].ledger.layers.past.width")
    assert over[0] == pytest.approx(1000 * cursor / width, abs=1)
    assert over[1] == pytest.approx(cursor / width, abs=0.002)
