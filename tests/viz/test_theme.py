"""Colour theme: distinguishable fills under colour blindness, contrast of text.

Colour blindness is simulated in linear sRGB by the matrices of G. M. Machado, M. M. Oliveira and L.
A. F. Fernandes, A Physiologically-based Model for Simulation of Color Vision Deficiency, 2009,
doi:10.1109/TVCG.2009.113, at severity 1.0. Differences are CIE76: the distance in CIELAB (D65).
They are measured between fills that carry a meaning by their colour alone. Rings, halos and hollow
nodes carry theirs by their shape: they are left out.
"""

from itertools import combinations, pairwise, product
from math import dist, pi
from typing import Any

import numpy as np
import pytest

from viz.charts.style import SERIES
from viz.node_looks import Fill, NodeLook
from viz.node_style import dash_lengths, dashes, is_dashed, node_colours
from viz.theme import DARK, LIGHT, THEMES, Theme

LEAST_DIFFERENCE = 18.0
LEAST_LIGHTNESS = 14.0  # steps of CIELAB's L*, of 100 from black to white
LEAST_OUTLINE = 3.0  # WCAG 2, for what is no text
LEAST_CONTRAST = 4.5  # WCAG 2, level AA, for text of any size
VISIONS = {
    "full": np.eye(3),
    "protanopia": np.array([
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ]),
    "deuteranopia": np.array([
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]),
    "tritanopia": np.array([
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ]),
}  # fmt: skip
XYZ_OF_SRGB = np.array([
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.0721750],
    [0.0193339, 0.1191920, 0.9503041],
])  # fmt: skip
# What a reader tells apart by colour, picture by picture.
FILLS = {
    "nodes": ("kept", "recomputed", "gradient", "recomputing", "not_yet"),
    "memory": ("kept", "recomputed", "gradient", "workspace", "panel"),
    "gradients": ("gradient", "staying", "kept", "recomputed", "recomputing", "panel"),
    "ledger": ("evaluation", "recomputing", "gradient", "kept", "recomputed", "panel"),
    "series": (*SERIES, "panel"),
    "frontier": ("kept", "recomputing", "impossible"),
}


def linear(colour: Any) -> Any:
    """Convert sRGB to linear light, each channel from 0 to 1."""
    share = np.array(colour) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def lab(light: Any) -> Any:
    """Return CIELAB of linear sRGB, against the white of the same space."""
    xyz = XYZ_OF_SRGB @ light / XYZ_OF_SRGB.sum(axis=1)
    cube = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * cube[1] - 16, 500 * (cube[0] - cube[1]), 200 * (cube[1] - cube[2])])


def difference(one: Any, other: Any, vision: Any) -> float:
    """Return the distance of two colours for a kind of vision."""
    seen = [lab(np.clip(vision @ linear(colour), 0, 1)) for colour in (one, other)]
    return float(np.linalg.norm(seen[0] - seen[1]))


def contrast(one: Any, other: Any) -> float:
    """Return the contrast ratio of WCAG 2."""
    light, dark = sorted((XYZ_OF_SRGB[1] @ linear(c) for c in (one, other)), reverse=True)
    return float((light + 0.05) / (dark + 0.05))


def test_colour_measures_match_published_values() -> None:
    black, white, red, green = (0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 255, 0)
    full = VISIONS["full"]
    assert lab(linear(red)) == pytest.approx([53.24, 80.09, 67.20], abs=0.05)
    assert difference(black, white, full) == pytest.approx(100, abs=0.01)
    assert contrast(black, white) == pytest.approx(21)
    # The contrast that the WCAG's own examples give for #777777 on white.
    assert contrast((0x77, 0x77, 0x77), white) == pytest.approx(4.48, abs=0.01)
    for vision in VISIONS.values():  # greys stay as they are
        assert difference((90, 90, 90), (90, 90, 90), vision) == 0
        assert vision.sum(axis=1) == pytest.approx([1, 1, 1], abs=1e-3)
    confused = difference(red, green, VISIONS["deuteranopia"])
    assert confused < difference(red, green, full) / 2


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("picture", FILLS)
@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_fills_are_distinguishable_for_every_vision(
    theme: Theme, picture: str, vision: str
) -> None:
    differences = {
        pair: difference(*(getattr(theme, name) for name in pair), VISIONS[vision])
        for pair in combinations(FILLS[picture], 2)
    }
    assert {pair: far for pair, far in differences.items() if far < LEAST_DIFFERENCE} == {}


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_resident_fills_are_distinguishable_in_grey(theme: Theme) -> None:
    grey = {
        name: float(lab(linear(getattr(theme, name)))[0])
        for name in ("kept", "recomputed", "gradient", "panel")
    }
    steps = {(a, b): abs(grey[a] - grey[b]) for a, b in combinations(grey, 2)}
    assert {pair: step for pair, step in steps.items() if step < LEAST_LIGHTNESS} == {}


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_non_resident_nodes_are_visible_and_differ_by_shape(theme: Theme) -> None:
    outlines = {}
    for fill, backward in product((Fill.DROPPED, Fill.NOT_YET), (False, True)):
        look = NodeLook(fill, backward=backward)
        outlines[fill, backward] = contrast(node_colours(look, theme)[1], theme.background)
        assert is_dashed(look) == (fill is Fill.NOT_YET)
    assert {look: ratio for look, ratio in outlines.items() if ratio < LEAST_OUTLINE} == {}


@pytest.mark.parametrize(("size", "corner"), [((30, 30), 15), ((10, 10), 5), ((60, 30), 6)])
def test_dashes_divide_a_rim_equally(size: tuple[float, float], corner: float) -> None:
    drawn, gap = dash_lengths(size, corner)
    rim = dashes(size, corner)
    length = 2 * sum(size) - (8 - 2 * pi) * corner
    assert len(rim) * (drawn + gap) == pytest.approx(length)
    for dash in rim:
        assert sum(dist(a, b) for a, b in pairwise(dash)) == pytest.approx(drawn, abs=0.6)
        for x, y in dash:
            assert abs(x) <= size[0] / 2 + 1e-9
            assert abs(y) <= size[1] / 2 + 1e-9


TEXTS = {
    "title": ("ink", "background"),
    "subtitle": ("muted", "background"),
    "on a panel": ("ink", "panel"),
    "small, on a panel": ("muted", "panel"),
    "on what is impossible": ("ink", "impossible"),
    "not yet": ("muted", "not_yet"),
    "kept": ("kept_label", "kept"),
    "recomputed": ("recomputed_label", "recomputed"),
    "gradient": ("gradient_label", "gradient"),
    "result": ("staying_label", "staying"),
    "recomputing": ("recomputing_label", "recomputing"),
}


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_text_has_contrast_on_its_background(theme: Theme) -> None:
    contrasts = {
        name: contrast(getattr(theme, text), getattr(theme, ground))
        for name, (text, ground) in TEXTS.items()
    }
    assert {name: ratio for name, ratio in contrasts.items() if ratio < LEAST_CONTRAST} == {}


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_palette_has_at_most_64_colours(theme: Theme) -> None:
    colours = theme.palette
    assert len(colours) == len(set(colours)) <= 64


def test_light_and_dark_mode_have_the_same_roles() -> None:
    assert (LIGHT.name, DARK.name) == ("light", "dark")
    assert contrast(LIGHT.background, (255, 255, 255)) == 1
    assert contrast(DARK.background, (255, 255, 255)) > 15
