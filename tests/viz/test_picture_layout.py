"""Page layout: everything is inside the picture at any width and aspect ratio."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from viz.layout.geometry import MARGIN
from viz.picture_layout import CAPTION, LANE, Sheet, legend_items, sheet_of
from viz.raster.picture import Picture
from viz.scene import NARROWEST, WIDEST, Style, moves, scene_of
from viz.theme import font
from viz.time_axis import Span

NETWORKS = ("chain:1", "chain:16", "chain:40", "mlp:6x8", "residual:4x8", "unet", "resnet50")


def trace_of(name: str, policy: str = "sqrt_n") -> tc.Trace:
    return tc.replay(tc.plan(tc.networks.network_from_text(name)[0], policy))


TRACES = {name: trace_of(name) for name in NETWORKS}
MOVING = {f"{name}, moved": trace_of(name, "offload") for name in ("chain:16", "unet")}
TRACES |= MOVING


def check_sheet(traces: Sequence[tc.Trace], sheet: Sheet) -> None:
    boxes = []
    for trace, panel in zip(traces, sheet.panels, strict=True):
        header, plan = panel.header, panel.plan
        assert plan.width == panel.width
        assert panel.top >= -0.01
        assert panel.left >= -0.01
        assert panel.left + panel.width <= sheet.width + 0.01
        above = CAPTION if panel.moves else 0
        assert panel.top + header.height + round(plan.height) + above <= panel.strip_top + 0.01
        assert panel.moves == moves(trace)
        assert header.room > 100
        spots = list(zip(header.counters, header.widths, strict=True))
        for (x, y), wide in spots:
            assert x >= MARGIN - 0.01
            assert x + wide <= panel.width - MARGIN + 0.01
            assert y + 34 <= header.height
        for ((x0, y0), w0), ((x1, y1), w1) in combinations(spots, 2):
            assert y0 != y1 or x0 + w0 < x1 or x1 + w1 < x0
        for cell, (x, y) in zip(plan.cells, plan.centres, strict=True):
            wide, high = plan.size(cell)
            assert wide / 2 <= x <= plan.width - wide / 2
            assert high / 2 <= y <= plan.height - high / 2
        bottom = panel.lane_top + LANE if panel.moves else panel.strip_top + panel.strip
        boxes.append((panel.left, panel.top, panel.width, bottom))
    for (x0, y0, w0, b0), (x1, y1, w1, b1) in combinations(boxes, 2):
        assert x0 + w0 <= x1 + 0.01 or x1 + w1 <= x0 + 0.01 or b0 <= y1 or b1 <= y0
    assert [item.name for item in sheet.legend] == [
        name for name, _ in legend_items(scene_of(traces).rows)
    ]
    face = font("Regular", 12)
    for item in sheet.legend:
        assert item.words + face.getlength(item.name) <= sheet.width - MARGIN + 1
        assert max(bottom for *_, bottom in boxes) < item.y < sheet.height
    high, wide = sheet.pixels
    assert high % 2 == 0
    assert abs(sheet.width * sheet.scale - wide) < 1
    assert -0.01 <= high - sheet.height * sheet.scale < 2.01


@pytest.mark.long
@settings(max_examples=examples(30))
@given(
    st.lists(st.sampled_from(list(TRACES)), min_size=1, max_size=3),
    st.one_of(st.none(), st.integers(NARROWEST, WIDEST)),
    st.sampled_from([None, "16:9", "4:3", "1:1", "9:16", "4:1"]),
    st.sampled_from([None, "stacked", "side by side"]),
)
def test_all_parts_are_within_the_sheet(
    names: list[str], width: int | None, aspect: str | None, arrange: str | None
) -> None:
    traces = [TRACES[name] for name in names]
    if arrange == "side by side" and width is not None:
        width = max(width, NARROWEST * len(traces))
    sheet = sheet_of(scene_of(traces, Style(width=width, aspect=aspect, arrange=arrange)))
    check_sheet(traces, sheet)
    if width is not None:
        assert sheet.pixels[1] == width
    if aspect is not None:
        across, down = map(int, aspect.split(":"))
        assert abs(sheet.pixels[0] - sheet.pixels[1] * down / across) <= 1
    elif arrange != "side by side":
        assert sheet.scale >= 1


@pytest.mark.sampled(3)
@pytest.mark.long
@pytest.mark.parametrize("width", [320, 801, 1280, 3839])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_have_the_requested_size(width: int, theme: str) -> None:
    picture = Picture(
        scene_of([TRACES["chain:16"], TRACES["mlp:6x8"]], Style(theme, width=width), Span(20, 20))
    )
    assert picture.canvas.shape[1] == width
    before = picture.canvas.copy()
    next(picture.play())
    assert (picture.canvas != before).any()
    # Nothing is drawn on the edges.
    for edge in (picture.canvas[0], picture.canvas[:, 0], picture.canvas[:, -1]):
        assert set(edge.tolist()) == {picture.drawing.ground}


def test_three_policies_fit_a_slide() -> None:
    traces: Any = [trace_of("chain:16", p) for p in ("store_all", "sqrt_n", "recompute_all")]
    sheet = sheet_of(scene_of(traces, Style(width=1280, aspect="16:9")))
    assert sheet.pixels == (720, 1280)
    assert sheet.scale > 0.85  # letters of 12 pixels are 10 at least
    beside = sheet_of(scene_of(traces, Style(width=1280, aspect="16:9", arrange="side by side")))
    assert len({panel.left for panel in beside.panels}) == 3
