"""Random traces, with moves to the host: captions, blocks, looks, highlights and lanes."""

import pytest
from hypothesis import given

import tinyckpt as tc
from tests.conftest import with_fixtures
from tests.viz.player import test_action, test_captions, test_ledger
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import PRESS, all_looks
from tests.viz.player.test_player_host import LANE
from tests.viz.test_host import moved
from viz.layout.drawn_nodes import cells_of
from viz.layout.views import views_of
from viz.scene import counts_nodes, live_of, moves


@pytest.mark.long
@pytest.mark.browser
@with_fixtures(10, least=2)
@given(trace=moved())
def test_random_traces_are_shown_as_python_replays_them(trace: tc.Trace, player: Player) -> None:
    page = player([trace])
    assert page.evaluate(test_captions.SHOWN) == test_captions.expected([trace])
    assert page.evaluate(test_ledger.SUMS) == [list(live_of(trace, counts_nodes([trace])))]
    page.keyboard.press("End")
    page.close()
    page = player([trace], view="graph")
    looks = all_looks(trace)
    for step, (shown, _) in enumerate(page.evaluate(PRESS, ["ArrowRight", len(trace.steps)])):
        assert shown == [looks[step + 1]], step
    if moves(trace):
        assert page.evaluate(LANE)[0][0][0] == list(trace.host)
    if len(views_of(trace.graph)[0].layout.cells) == len(cells_of(trace.graph)):
        assert page.evaluate(test_action.SHOWN) == test_action.expected(trace)
    page.close()
