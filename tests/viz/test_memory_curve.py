"""Bands of the memory curve against their definition and the trace's live memory."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tests.viz.blocks import blocks_held
from tests.viz.layout.test_levels import views_and_moves
from tinyckpt.base.tree import leaves
from viz.layout.drawn_nodes import cells_of
from viz.memory_curve import BANDS, memory_bands
from viz.node_looks import Activity, CellLooks, Fill, NodeLook
from viz.node_memory import LEVELS
from viz.node_style import node_colours
from viz.scene import counts_nodes, scene_of
from viz.strip_layout import strip_lines
from viz.theme import LIGHT

POLICIES = ("store_all", "sqrt_n", "recompute_all", "greedy")


def defined(trace: tc.Trace) -> list[list[int]]:
    """Return the bands by their definition: a block belongs to the value it was allocated for."""
    graph, rows = trace.graph, []
    results = set()  # roots of the gradients that are results
    for data in leaves(graph.gradients):
        while (base := graph.data[data].view_of) is not None:
            data = base
        results.add(data)
    for workspace, blocks in zip(trace.workspace, blocks_held(trace), strict=True):
        row = [0, 0, 0, 0, workspace]
        for owner, _, again in blocks:
            producer = graph.data[owner].producer
            assert producer is not None
            band = 2 + (owner in results) if producer >= graph.forward_count else int(again)
            row[band] += graph.data[owner].spec.nbytes
        rows.append(row)
    return [list(band) for band in zip(*rows, strict=True)]


@pytest.mark.long
@settings(max_examples=examples(60))
@given(training_graphs(), st.sampled_from(POLICIES))
def test_bands_match_their_definition_and_add_up(case: Any, policy: str) -> None:
    trace = tc.replay(tc.plan(case[0], policy))
    bands = memory_bands(trace, False)
    assert bands.sum(axis=0).tolist() == list(trace.live_bytes)
    assert bands.tolist() == defined(trace)


@pytest.mark.parametrize("trace", [views_and_moves()], ids=["views and moves"])
def test_view_keeps_its_base_in_the_kept_band(trace: tc.Trace) -> None:
    bands = memory_bands(trace, False)
    assert bands.sum(axis=0).tolist() == list(trace.live_bytes)
    assert bands.tolist() == defined(trace)
    # The old base beneath its view is kept, the new one is recomputed; and the view moves out.
    assert bands[:2, 3].tolist() == [64, 64]
    assert bands[:2, 4].tolist() == [0, 64]


def test_bands_of_a_chain_match_golden_numbers() -> None:
    trace = tc.replay(tc.plan(tc.networks.chain(4), "sqrt_n"))
    kept, recomputed, gradients, results, workspace = memory_bands(trace, True).tolist()
    assert "".join(map(str, kept)) == "1212333222111000000"
    assert "".join(map(str, recomputed)) == "0000000000000001100"
    assert "".join(map(str, gradients)) == "0000012212212211110"
    assert "".join(map(str, results)) == "0000000000000000111"
    assert set(workspace) == {0}


@settings(max_examples=examples(25))
@given(training_graphs(), st.sampled_from(POLICIES))
def test_band_is_nonempty_iff_nodes_have_its_fill(case: Any, policy: str) -> None:
    graph, _ = case
    if any(node.view_of is not None for node in graph.data):
        return  # a view is a node without memory of its own
    trace = tc.replay(tc.plan(graph, policy))
    bands, state = memory_bands(trace, False), CellLooks(trace, cells_of(graph))
    for step in range(len(trace.steps)):
        state.take(step)
        looks = [state.look(cell) for cell in state.cells]
        fills = {node_colours(replace(look, activity=Activity.NONE), LIGHT)[0] for look in looks}
        for fill, band in zip(BANDS.values(), bands[:4], strict=False):
            assert (getattr(LIGHT, fill) in fills) == bool(band[step]), (step, fill)


def test_bands_share_the_fill_of_their_nodes() -> None:
    assert all(hasattr(LIGHT, fill) for fill in BANDS.values())
    looks = [NodeLook(fill) for fill in (Fill.KEPT, Fill.RECOMPUTED, Fill.GRADIENT)]
    looks.append(NodeLook(Fill.GRADIENT, results=LEVELS))
    nodes = [node_colours(look, LIGHT)[0] for look in looks]
    assert [getattr(LIGHT, fill) for fill in BANDS.values()] == [*nodes, LIGHT.workspace]


def test_trace_of_views_is_counted_in_bytes() -> None:
    graph = tc.build(lambda x: x.T, tc.Spec((1, 1)))
    trace = tc.replay(tc.plan(graph))
    assert trace.peak_nodes == 1
    assert not counts_nodes([trace])
    assert memory_bands(trace, False).sum() == 0


# Lines across a curve ----------------------------------------------------------------------------


def lines(traces: list[tc.Trace]) -> list[list[str]]:
    return [[line.words for line in row.memory.limits] for row in scene_of(traces).rows]


def test_curve_has_lines_for_budget_and_store_all() -> None:
    graph = tc.networks.chain(16)
    kept = tc.replay(tc.plan(graph, "store_all"))
    planned = tc.replay(tc.plan(graph, budget="10 nodes"))
    free = tc.replay(tc.plan(graph, "sqrt_n"))
    assert lines([kept, planned, free]) == [
        ["peak 18 values = 9.0 KiB"],
        ["peak 10 values = 5.0 KiB", "budget 10", "store all 18"],
        ["peak 9 values = 4.5 KiB", "store all 18"],
    ]
    assert lines([planned]) == [["peak 10 values = 5.0 KiB", "budget 10"]]
    other = tc.replay(tc.plan(tc.networks.chain(4), "store_all"))
    assert lines([free, other])[0] == ["peak 9 values = 4.5 KiB"]  # another graph's store-all


def test_budget_far_above_the_peak_is_not_drawn() -> None:
    graph = tc.networks.chain(4)
    trace = tc.replay(tc.plan(graph, budget="7 nodes"))
    assert (trace.peak_nodes, scene_of([trace]).highest) == (6, 7)
    assert lines([trace]) == [["peak 6 values = 3.0 KiB", "budget 7"]]
    far = replace(trace.schedule, certificate=None, options={"budget": 99, "memory_unit": "nodes"})
    assert scene_of([tc.replay(far)]).highest == 6
    assert lines([tc.replay(far)]) == [["peak 6 values = 3.0 KiB"]]
    # A budget in another unit than the curve is no line of it.
    other = replace(far, options={"budget": 6, "memory_unit": "bytes"})
    assert lines([tc.replay(other)]) == [["peak 6 values = 3.0 KiB"]]


def test_labels_of_near_lines_stand_side_by_side() -> None:
    graph = tc.networks.chain(16)
    traces = [tc.replay(tc.plan(graph, *how)) for how in (("store_all",), ("sqrt_n",))]
    near = tc.replay(tc.plan(graph, budget="10 nodes"))
    scene = scene_of([*traces, near])
    _, free, planned = (row.memory for row in scene.rows)
    assert [line.beside for line in strip_lines(planned)] == [(), (0,), ()]
    assert [line.beside for line in strip_lines(free)] == [(), ()]
    # In a strip that is as high as a screen there is room below each other.
    assert [line.beside for line in strip_lines(planned, 800)] == [(), (0,), ()]
    tight = scene_of([traces[0], tc.replay(tc.plan(graph, budget="16 nodes"))]).rows[1].memory
    assert [line.beside for line in strip_lines(tight)] == [(), (0,), (0, 1)]
    assert [line.beside for line in strip_lines(tight, 400)] == [(), (0,), ()]
