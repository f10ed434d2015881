"""Fill levels of groups: the resident share of bytes, and its drawing."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tests.viz.blocks import Block, blocks_held
from tinyckpt.base.tree import leaves
from viz.layout.drawn_nodes import Cell, cells_of, cells_of_parts
from viz.layout.partition import Part
from viz.layout.views import views_of
from viz.node_looks import CellLooks, Fill, NodeLook
from viz.node_memory import LEVELS
from viz.raster.group_sprites import filled_mask
from viz.raster.sprites import label_coverage
from viz.scene import frames
from viz.time_axis import frame_steps

# What is resident --------------------------------------------------------------------------------


def cut_at(graph: tc.Graph, cuts: set[int]) -> list[Cell]:
    """Return cells partitioned at these operators; groups are named after their positions."""
    bounds = sorted({0, graph.forward_count, *(cut % graph.forward_count for cut in cuts)})
    parts = [
        Part(a, b, f"{a}-{b}", f"{a}-{b}") if b - a > 1 else Part(a, b) for a, b in pairwise(bounds)
    ]
    return cells_of_parts(graph, parts, range(graph.forward_count, len(graph.operators)), 1)


def naive_kept(graph: tc.Graph, cell: Cell, blocks: set[Block], level: int) -> int:
    """Return the kept level by its definition, where some values are recomputed."""
    inside = {block for block in blocks if block[0] in cell.data}
    kept = sum(graph.data[owner].spec.nbytes for owner, _, again in inside if not again)
    total = sum(graph.data[data].nbytes for data in cell.data)
    return min(level - 1, max(1, round(LEVELS * kept / total))) if kept else 0


def naive_level(graph: tc.Graph, cell: Cell, blocks: set[Block], resident: frozenset[int]) -> int:
    """Return the level by its definition, from the set of resident values."""
    inside = set(cell.data)
    here = resident & inside
    live = sum(graph.data[owner].nbytes for owner, _, _ in blocks if owner in inside)
    total = sum(graph.data[data].nbytes for data in inside)
    if not here and not live:
        return 0
    if live >= total and (total or here == inside):
        return LEVELS
    share = live / total if total else len(here) / len(inside)
    return max(1, min(LEVELS - 1, round(LEVELS * share)))


@settings(max_examples=examples(60))
@given(training_graphs(), st.sets(st.integers(1, 99), max_size=4), st.sampled_from(
    ["sqrt_n", "recompute_all", "store_all"]
))  # fmt: skip
def test_level_equals_resident_share_of_bytes(case: Any, cuts: set[int], policy: str) -> None:
    graph, _ = case
    trace = tc.replay(tc.plan(graph, policy))
    cells = cut_at(graph, cuts)
    state = CellLooks(trace, cells)
    shown: dict[int, NodeLook] = {}
    times = [0] * len(graph.operators)
    for step, (taken, blocks) in enumerate(zip(trace.steps, blocks_held(trace), strict=True)):
        state.take(step)
        shown.update(state.changes())
        if isinstance(taken, tc.Compute):
            times[taken.operator] += 1
        resident = trace.resident_at(step)
        # Added up, what the cells hold is what the trace counts.
        assert sum(state.memory.bytes) == trace.live_bytes[step] - trace.workspace[step]
        for cell in cells:
            look = shown[cell.id]
            if not cell.group:
                assert look.level is None
                continue
            assert look.level == naive_level(graph, cell, blocks, resident)
            here = resident & set(cell.data)
            again = any(times[graph.data[data].producer] > 1 for data in here)
            if held := [block for block in blocks if block[0] in cell.data]:
                again = any(block[2] for block in held)
            if look.level and not cell.backward:
                assert look.fill is (Fill.RECOMPUTED if again else Fill.KEPT)
                kept = naive_kept(graph, cell, blocks, look.level) if again else 0
                assert look.kept == kept
            elif not look.level:
                assert look.fill in (Fill.DROPPED, Fill.NOT_YET)


def test_result_gradients_have_a_look_of_their_own() -> None:
    trace = tc.replay(tc.plan(tc.networks.network_from_text("mlp:2x4")[0], "store_all"))
    graph, state = trace.graph, CellLooks(trace, cells_of(trace.graph))
    results = set(leaves(graph.gradients))
    seen = set()
    for step in range(len(trace.steps)):
        state.take(step)
        for cell in state.cells:
            look = state.look(cell)
            if look.fill is Fill.GRADIENT:
                resident = trace.resident_at(step) & set(cell.data)
                assert look.results == (LEVELS if resident <= results else 0)
                seen.add(look.results)
            else:
                assert not look.results
    assert seen == {0, LEVELS}


def views_and_moves() -> tc.Trace:
    """Return a trace that recomputes a base while a view of the old one lives, and offloads one."""

    def function(x: tc.Var) -> Any:
        base = tc.tanh(x)
        view = tc.reshape(base, (8,))
        return tc.sum(view) + tc.sum(base)

    graph = tc.build(function, tc.Spec((2, 4)))
    base, view, first, second, _ = (operator.outputs[0] for operator in graph.operators)
    compute, free = tc.Compute, tc.Free
    steps = [
        compute(0), compute(1), free(base), compute(0), tc.Offload(view), tc.Fetch(view),
        compute(2), free(view), compute(3), free(base), compute(4), free(first), free(second),
    ]  # fmt: skip
    return tc.replay(tc.Schedule(graph, tuple(steps), "by hand"))


def test_cell_memory_adds_up_to_live_bytes() -> None:
    trace = views_and_moves()
    state = CellLooks(trace, cells_of(trace.graph))
    held = []
    for step in range(len(trace.steps)):
        state.take(step)
        held.append(sum(state.memory.bytes))
    assert held == [
        live - workspace for live, workspace in zip(trace.live_bytes, trace.workspace, strict=True)
    ]
    assert held[3] == 128  # the new base, and the old one beneath the view


def test_frames_of_a_grouped_chain_match_golden_text() -> None:
    graph = tc.networks.chain(4)
    parts = [Part(0, 2, "f1-2", "f1-2"), Part(2, 4, "f3-4", "f3-4")]
    cells = cells_of_parts(graph, parts, range(4, 9))
    trace = tc.replay(tc.plan(graph, "sqrt_n"))
    lines = []
    for frame in frames(trace, cells, frame_steps(trace), in_nodes=True):
        looks = ", ".join(f"{cells[i].label} {look}" for i, look in frame.changed.items())
        lines.append(f"{frame.step}: {looks} | {frame.live}")
    assert lines == [
        "-1: f1-2 not yet*, f3-4 not yet, l not yet, f3-4 not yet, f1-2 not yet | 0",
        "0: f1-2 kept 4/8* computing | 1",
        "1: f1-2 kept 8/8* computing | 2",
        "2: f1-2 kept 4/8* | 1",
        "3: f3-4 kept 4/8 computing | 2",
        "4: f3-4 kept 8/8 computing | 3",
        "5: f3-4 kept 8/8, l gradient computing | 4",
        "6: l gradient, f3-4 gradient 4/8 computing | 5",
        "8: f3-4 kept 4/8, l dropped, f3-4 gradient 4/8 | 3",
        "9: f3-4 gradient 8/8 computing | 4",
        "11: f3-4 dropped, f3-4 gradient 4/8 | 2",
        "12: f1-2 gradient 4/8 computing | 3",
        "14: f1-2 dropped*, f3-4 dropped, f1-2 gradient 4/8 | 1",
        "15: f1-2 recomputed 4/8* recomputing | 2",
        "16: f1-2 recomputed 4/8*, f1-2 gradient 8/8 computing | 3",
        "18: f1-2 dropped*, f1-2 gradient 4/8 | 1",
    ]


def test_steps_outside_a_view_do_not_change_it() -> None:
    graph = tc.networks.chain(1000)
    trace = tc.replay(tc.plan(graph, "sqrt_n"))
    inner = views_of(graph)[1].layout.cells
    shown = list(frames(trace, inner, frame_steps(trace), in_nodes=True))
    # Its 32 forward operators run twice and their adjoints once; most frames change nothing here.
    assert sum(bool(frame.changed) for frame in shown) < 200 < len(shown)


def test_partly_recomputed_group_shows_its_kept_level() -> None:
    graph = tc.networks.chain(4)
    cells = cells_of_parts(graph, [Part(0, 4, "f1-4", "f1-4")], range(4, 9))
    state = CellLooks(tc.replay(tc.plan(graph, "retain", keep=["f2"])), cells)
    looks = []
    for step in range(len(state.trace.steps)):
        state.take(step)
        looks.append(str(state.look(cells[0])))
    assert list(dict.fromkeys(looks)) == [
        "kept 2/8 computing", "kept 4/8 computing", "kept 2/8", "kept 6/8 computing", "kept 4/8",
        "recomputed 4/8, 2/8 kept recomputing", "recomputed 4/8, 2/8 kept", "dropped",
        "recomputed 2/8 recomputing", "recomputed 2/8",
    ]  # fmt: skip


def test_group_has_a_ring_if_a_checkpoint_leaves_it() -> None:
    graph = tc.networks.chain(6)
    parts = [Part(0, 3, "f1-3", "f1-3"), Part(3, 6, "f4-6", "f4-6")]
    cells = cells_of_parts(graph, parts, range(6, 13))
    for kept, ringed in (("f2", []), ("f3", [0]), ("f4", []), ("f6", [])):
        trace = tc.replay(tc.plan(graph, "retain", keep=[kept]))
        state = CellLooks(trace, cells)
        assert [cell.id for cell in cells if state.look(cell).checkpoint] == ringed


# How it looks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1, 2])
@pytest.mark.parametrize("label", ["", "block1", "output"])
def test_fill_rises_with_level_and_never_crosses_the_label(scale: int, label: str) -> None:
    box = (52.0, 30.0)
    covered = label_coverage(label, box, 10, scale) > 0
    filled = [filled_mask(level, covered.shape, box, scale) for level in range(LEVELS + 1)]
    assert not filled[0].any()
    assert filled[-1].all()
    for lower, higher in pairwise(filled):
        assert not (lower & ~higher).any()
    for pixels in filled:
        assert (pixels == pixels[:, :1]).all()  # the surface is level
        assert len(set(pixels[covered])) <= 1  # and runs through no letter
