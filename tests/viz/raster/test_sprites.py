"""Sprites of nodes: what was recomputed is hatched, and no stripe touches a letter."""

import numpy as np
import pytest

from viz.node_looks import Activity, Fill, NodeLook
from viz.node_memory import LEVELS
from viz.raster.canvas import TRANSPARENT, inks_of
from viz.raster.group_sprites import group_sprite
from viz.raster.sprites import label_coverage, node_sprite, with_label
from viz.theme import THEMES

SIZE = (30.0, 30.0)
HATCHED = [NodeLook(Fill.RECOMPUTED), NodeLook(Fill.RECOMPUTED, Activity.COMPUTING)]
PLAIN = [
    NodeLook(Fill.RECOMPUTED, Activity.RECOMPUTING), NodeLook(Fill.GRADIENT),
    NodeLook(Fill.DROPPED), NodeLook(Fill.NOT_YET),
]  # fmt: skip


@pytest.mark.parametrize("scale", [1.0, 2.0])
@pytest.mark.parametrize("theme", THEMES)
def test_stripes_cover_a_fifth_of_a_recomputed_node_and_nothing_else(
    theme: str, scale: float
) -> None:
    inks = inks_of(THEMES[theme], scale)
    stripe, fill = (inks.index(ink) for ink in (inks.theme.kept, inks.theme.recomputed))
    for look in HATCHED:
        sprite = node_sprite(look, SIZE, inks)
        striped, plain = (np.count_nonzero(sprite == index) for index in (stripe, fill))
        assert striped / (striped + plain) == pytest.approx(1 / 5, abs=0.04), look
    for look in PLAIN:
        assert not (node_sprite(look, SIZE, inks) == stripe).any(), look


@pytest.mark.parametrize("theme", THEMES)
def test_no_stripe_touches_a_letter(theme: str) -> None:
    inks = inks_of(THEMES[theme])
    stripe, look = inks.index(inks.theme.kept), HATCHED[0]
    coverage = label_coverage("f12", SIZE, 11, 1.0)
    sprite = with_label(node_sprite(look, SIZE, inks), look, coverage, inks)
    rows, columns = np.nonzero(coverage)
    assert len(rows) > 40
    for row, column in zip(rows, columns, strict=True):
        assert stripe not in sprite[row - 1 : row + 2, column - 1 : column + 2]
    assert (sprite == stripe).any()


def test_group_is_hatched_where_it_is_recomputed_and_solid_where_kept() -> None:
    inks = inks_of(THEMES["light"])
    look = NodeLook(Fill.RECOMPUTED, level=6, kept=2)
    sprite = group_sprite(look, "", 11, (80.0, 40.0), inks)
    inside = sprite[:, 20:70]
    stripe, fill = inks.index(inks.theme.kept), inks.index(inks.theme.recomputed)
    share = (inside == stripe).mean(axis=1)
    hatched = np.flatnonzero((inside == fill).any(axis=1))
    assert ((share[hatched] > 0.1) & (share[hatched] < 0.3)).all()
    solid = np.flatnonzero(share == 1)
    assert len(solid) >= 5
    assert solid.min() > hatched.max()
    assert TRANSPARENT in sprite


@pytest.mark.parametrize("theme", THEMES)
def test_result_gradients_are_dark_pink_below_those_on_their_way(theme: str) -> None:
    inks = inks_of(THEMES[theme])
    dark, pale = inks.index(inks.theme.staying), inks.index(inks.theme.gradient)
    look = NodeLook(Fill.GRADIENT, backward=True, level=6, results=2)
    rows = [
        np.flatnonzero((group_sprite(look, "", 11, (80.0, 40.0), inks)[:, 20:70] == ink).all(1))
        for ink in (dark, pale)
    ]
    assert len(rows[0]) >= 5
    assert len(rows[1]) >= 5
    assert rows[0].min() > rows[1].max()
    whole = NodeLook(Fill.GRADIENT, backward=True, level=6, results=LEVELS)
    for sprite in (
        group_sprite(whole, "", 11, (80.0, 40.0), inks),
        node_sprite(NodeLook(Fill.GRADIENT, backward=True, results=LEVELS), SIZE, inks),
    ):
        assert (sprite == dark).sum() > 100
        assert not (sprite == pale).any()
