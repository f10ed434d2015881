"""Offloaded values in every picture: looks, lanes, counters, legend."""

from dataclasses import replace
from itertools import pairwise
from math import hypot
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tests.tinyckpt.core.test_schedule_mutations import with_moves
from tests.viz.layout.test_levels import cut_at
from tests.viz.test_theme import LEAST_OUTLINE, contrast
from tinyckpt.base.units import size_text
from tinyckpt.codegen.in_place import forward_in_place
from viz.captions import Captions
from viz.layout.drawn_nodes import cells_of, cells_of_parts
from viz.layout.partition import Part
from viz.node_looks import CellLooks, Fill, NodeLook, checkpoints_of
from viz.node_memory import LABEL_BAND, LEVELS
from viz.node_style import STRIPE, node_colours, outline_of, stripes
from viz.picture_layout import LEGEND_ITEMS, sheet_of
from viz.raster.canvas import inks_of
from viz.raster.memory_strip import strip_of
from viz.raster.picture import Picture
from viz.scene import COUNTERS, Style, frames, moves, scene_of, subtitles_of
from viz.strip_layout import HEAD
from viz.theme import THEMES, Theme
from viz.time_axis import Span, frame_steps
from viz.vector.svg import svg_still

RESIDENT = (Fill.KEPT, Fill.RECOMPUTED, Fill.GRADIENT)


def offloaded(graph: tc.Graph, **options: Any) -> tc.Trace:
    return tc.replay(tc.plan(graph, "offload", **options))


@st.composite
def moved(draw: Any) -> tc.Trace:
    """Generate a trace of any policy with some values offloaded, and maybe operators in place."""
    graph, _ = draw(training_graphs())
    policy = draw(st.sampled_from(("store_all", "sqrt_n", "recompute_all", "offload")))
    schedule = tc.plan(graph, policy)
    drawn = tc.Schedule(graph, with_moves(schedule, draw), "drawn")
    return tc.replay(forward_in_place(drawn) if draw(st.booleans()) else drawn)


def on_host_at(trace: tc.Trace, step: int) -> set[int]:
    """Return the values in host memory after a step, by the last transfer of each."""
    there: dict[int, bool] = {}
    for taken in trace.steps[: step + 1]:
        if isinstance(taken, tc.Offload | tc.Fetch):
            there[taken.data] = isinstance(taken, tc.Offload)
    return {data for data, out in there.items() if out}


# As data -----------------------------------------------------------------------------------------


def test_offloaded_chain_frames_match_golden_text() -> None:
    trace = offloaded(tc.networks.chain(3), bandwidth=512)
    state = CellLooks(trace, cells_of(trace.graph))
    lines = ["not yet " * 7]
    for step in range(len(trace.steps)):
        state.take(step)
        lines.append(" | ".join(str(state.look(cell)) for cell in state.cells[:3]))
    assert lines[1:] == [
        "kept computing | not yet | not yet*",
        "kept | kept computing | not yet*",
        "on the host | kept | not yet*",
        "on the host | kept | kept* computing",
        "on the host | on the host | kept*",
        "on the host | on the host | kept*",
        "on the host | kept | kept*",
        "on the host | kept | kept*",
        "on the host | kept | dropped*",
        "on the host | kept | dropped*",
        "kept | kept | dropped*",
        "kept | kept | dropped*",
        "kept | dropped | dropped*",
        "kept | dropped | dropped*",
        "kept | dropped | dropped*",
        "dropped | dropped | dropped*",
        "dropped | dropped | dropped*",
    ]


def test_only_values_saved_on_the_device_have_a_ring() -> None:
    trace = offloaded(tc.networks.chain(16), bandwidth=512)
    assert len(trace.schedule.checkpoints) == 16
    assert [trace.graph.data[data].name for data in checkpoints_of(trace)] == ["f16"]
    kept = tc.replay(tc.plan(tc.networks.chain(16), "sqrt_n"))
    assert checkpoints_of(kept) == list(kept.schedule.checkpoints)
    assert (moves(trace), moves(kept)) == (True, False)


def test_group_shows_its_share_in_host_memory() -> None:
    graph = tc.networks.chain(4)
    cells = cells_of_parts(graph, [Part(0, 2, "f1-2", "f1-2"), Part(2, 4)], range(4, 9))
    state = CellLooks(offloaded(graph), cells)
    looks = []
    for step in range(len(state.trace.steps)):
        state.take(step)
        looks.append(str(state.look(cells[0])))
    assert list(dict.fromkeys(looks)) == [
        "kept 4/8 computing", "kept 8/8 computing", "kept 4/8, 4/8 on the host",
        "on the host 8/8", "on the host 4/8", "kept 4/8", "dropped",
    ]  # fmt: skip


@pytest.mark.long
@settings(max_examples=examples(60))
@given(moved(), st.sets(st.integers(1, 99), max_size=4))
def test_looks_match_memory_location(trace: tc.Trace, cuts: set[int]) -> None:
    graph = trace.graph
    states = [CellLooks(trace, cells_of(graph)), CellLooks(trace, cut_at(graph, cuts))]
    shown: list[dict[int, NodeLook]] = [{}, {}]
    for step in range(len(trace.steps)):
        resident, there = trace.resident_at(step), on_host_at(trace, step)
        for state, looks in zip(states, shown, strict=True):
            state.take(step)
            looks.update(state.changes())
            assert sum(state.memory.waiting_bytes) == trace.host[step]
            for cell in state.cells:
                look, waiting = looks[cell.id], there & set(cell.data)
                if not cell.group:
                    assert look.hosted == 0
                    held = bool(resident & set(cell.data))
                    assert (look.fill in RESIDENT) == held
                    assert (look.fill is Fill.ON_HOST) == bool(waiting and not held)
                    continue
                assert (look.hosted > 0) == bool(waiting)
                total = sum(graph.data[data].nbytes for data in cell.data)
                if waiting and total:
                    share = sum(graph.data[data].spec.nbytes for data in waiting) / total
                    least = LEVELS if share >= 1 else max(1, min(7, round(LEVELS * share)))
                    assert look.hosted == least
                if look.fill is Fill.ON_HOST:
                    assert (look.level, look.kept) == (0, 0)


def test_every_transfer_has_a_frame_and_a_caption() -> None:
    graph = tc.networks.chain(3)
    trace = offloaded(graph, bandwidth=512)
    shown = frames(trace, cells_of(graph), frame_steps(trace), in_nodes=True)
    said = Captions(trace)
    assert [f"{f.step}: {said.text(f.step)} | {f.live} {f.host}" for f in shown] == [
        "-1:  | 0 0 B",
        "0: f1 is computed | 1 0 B",
        "1: f2 is computed from f1 | 2 0 B",
        "2: f1 goes to the host (512 B) | 1 512 B",
        "3: f3 is computed from f2 | 2 512 B",
        "4: f2 goes to the host (512 B) | 1 1.0 KiB",
        "5: l reads f3 | 2 1.0 KiB",
        "6: f2 comes back from the host (512 B) | 3 512 B",
        "7: b3 reads f3 and l | 4 512 B",
        "9: b3 reads f3 and l; f3 and l are freed (1.0 KiB) | 2 512 B",
        "10: f1 comes back from the host (512 B) | 3 0 B",
        "11: b2 reads f2 and b3 | 4 0 B",
        "13: b2 reads f2 and b3; f2 and b3 are freed (1.0 KiB) | 2 0 B",
        "14: b1 reads f1 and b2 | 3 0 B",
        "16: b1 reads f1 and b2; f1 and b2 are freed (1.0 KiB) | 1 0 B",
    ]


def test_subtitle_counts_offloaded_values() -> None:
    moved_once = subtitles_of(offloaded(tc.networks.chain(16), bandwidth=512))
    assert moved_once[0].startswith("chain of 16 layers · 15 on the host · 33 evaluations = 1.00")


# Counters, lanes and the legend ------------------------------------------------------------------


def test_host_counter_lane_and_legend_exist_only_with_offload() -> None:
    graph = tc.networks.chain(16)
    kept, moving = tc.replay(tc.plan(graph, "store_all")), offloaded(graph)
    plain, both = sheet_of(scene_of([kept], Style())), sheet_of(scene_of([kept, moving], Style()))
    assert [panel.moves for panel in (*plain.panels, *both.panels)] == [False, False, True]
    assert plain.panels[0].header.names == COUNTERS
    assert {panel.header.names for panel in both.panels} == {(*COUNTERS, "on the host")}
    names = [item.name for item in both.legend if item.name not in dict(LEGEND_ITEMS)]
    assert names == ["on the host"]
    assert "on the host" not in [item.name for item in plain.legend]


@settings(max_examples=examples(30))
@given(moved(), st.sampled_from([1, 2]))
def test_host_lane_height_equals_host_memory(trace: tc.Trace, scale: int) -> None:
    scene, inks, height = scene_of(trace), inks_of(THEMES["light"], scale), 40 * scale
    assert scene.host == max(trace.host)
    lane = strip_of(scene.rows[0].host, (height, len(trace.steps)), inks)
    kept = inks.index(inks.theme.kept)
    unit = (height - HEAD * scale) / max(scene.host, 1)
    tops = [0] * scale + [round(nbytes * unit) for nbytes in trace.host]
    for step, (before, top) in enumerate(zip(tops, tops[scale:], strict=False)):
        for layer in (lane.past, lane.future):
            rows = height - (layer[:, step] == kept).nonzero()[0]
            # On a step down there is a line from where it begins.
            assert max(rows, default=0) in {top, max(top, before)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("design", [Style(), Style(width=480), Style(aspect="16:9")])
def test_frame_pixels_do_not_depend_on_earlier_frames(theme: str, design: Style) -> None:
    traces = [offloaded(tc.networks.chain(6)), tc.replay(tc.plan(tc.networks.chain(6)))]
    design = replace(design, theme=theme)
    picture = Picture(scene_of(traces, design, Span()))
    for step, canvas in zip(picture.scene.steps, picture.play(), strict=True):
        if step % 5 == 0:
            fresh = Picture(replace(picture.scene, steps=(step,)))
            next(fresh.play())
            assert np.array_equal(canvas, fresh.canvas), step


def test_svg_still_shows_host_memory() -> None:
    trace = offloaded(tc.networks.chain(9), bandwidth=512)
    step = next(place for place, taken in enumerate(trace.steps) if isinstance(taken, tc.Fetch))
    root = ElementTree.fromstring(svg_still(scene_of(trace), step))
    said = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert Captions(trace).text(step) in said
    assert {"on the host", f"most {size_text(max(trace.host))}"} <= set(said)
    assert size_text(trace.host[step]) in said
    plain = svg_still(scene_of(tc.replay(tc.plan(trace.graph, "sqrt_n"))), 9)
    assert "on the host" not in plain


# How it looks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
@pytest.mark.parametrize("backward", [False, True])
def test_host_stripes_are_visible(theme: Theme, backward: bool) -> None:
    look = NodeLook(Fill.ON_HOST, backward=backward)
    fill, outline, label = node_colours(look, theme)
    assert fill == theme.background  # nothing is held here: it is hollow
    assert contrast(outline, fill) >= LEAST_OUTLINE
    assert contrast(label, fill) >= 4.5


@pytest.mark.parametrize("diameter", [10, 16, 20, 30])
def test_stripes_stay_within_a_disc_and_avoid_the_label(diameter: int) -> None:
    size = (float(diameter), float(diameter))
    lines = stripes(NodeLook(Fill.ON_HOST), size, diameter / 2)
    assert len(lines) >= 2
    assert [y for y, _ in lines] == sorted(-y for y, _ in lines)
    for y, reach in lines:
        assert reach > 1
        assert hypot(abs(y), reach) <= diameter / 2 - outline_of(size) + 0.01
        assert diameter < 20 or abs(y) - STRIPE / 2 >= LABEL_BAND / 2 * diameter - STRIPE
    for fill in set(Fill) - {Fill.ON_HOST}:
        assert stripes(NodeLook(fill), size, diameter / 2) == []


@pytest.mark.parametrize("height", [8, 12, 30, 44])
def test_group_stripes_grow_with_host_share(height: int) -> None:
    size = (60.0, float(height))
    for level in range(LEVELS):
        fill = Fill.KEPT if level else Fill.ON_HOST
        assert stripes(NodeLook(Fill.KEPT, level=level), size, 6) == []
        lines = [
            stripes(NodeLook(fill, level=level, hosted=hosted), size, min(6, height / 4))
            for hosted in range(1, LEVELS + 1 - level)
        ]
        for fewer, more in pairwise(lines):
            assert set(fewer) <= set(more) or len(fewer) == 1
        for some in lines:
            assert some  # one at least, however little there is
            assert all(abs(y) < height / 2 and 0 < reach < 30 for y, reach in some)
