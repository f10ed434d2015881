"""Groups: what is cut where, that nothing is lost, and that a level is what is resident."""

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tests.viz.scoped_graphs import scoped_graph
from viz.boxes import filled_pixels
from viz.dot import Cell, cells_of_parts, links_of, shortened
from viz.draw import Picture
from viz.geometry import WIDTH, Layout
from viz.groups import MOST_ALONE, MOST_CELLS, overview, views_of
from viz.memory import LEVELS
from viz.parts import LONGEST_CHAIN, MOST, SMALL, Part, between
from viz.scene import Fill, Look, State, frame_steps, frames
from viz.sprites import label_coverage

LARGE = (
    "resnet50",
    "unet",
    "mobilenet",
    "vgg16_bn",
    "transformer:12x64",
    "mlp:100x64",
    "chain:1000",
)


def graph_named(name: str) -> tc.Graph:
    return tc.networks.network_from_text(name)[0]


def labels_of(plan: Layout) -> list[str]:
    return [cell.label for cell in plan.cells if not cell.backward]


# What is cut where -------------------------------------------------------------------------------


def test_networks_are_cut_where_a_reader_expects_it() -> None:
    assert labels_of(overview(graph_named("resnet50"))) == [
        "stage1", *(f"block{n}" for depth in (3, 4, 6, 3) for n in range(1, depth + 1)), "output",
    ]  # fmt: skip
    assert labels_of(overview(graph_named("unet"))) == [
        "down1", "down2", "down3", "down4", "bottom", "up4", "up3", "up2", "up1", "output",
    ]  # fmt: skip
    # The first operator of the transformer stands outside of any scope, and for itself.
    layers = [f"layer{n}" for n in range(1, 13)]
    assert labels_of(overview(graph_named("transformer:12x64"))) == ["view", *layers, "output"]
    assert labels_of(overview(graph_named("mlp:100x64")))[2:5] == [
        "layer9\u201312",
        "13\u201316",
        "17\u201320",
    ]
    chain = labels_of(overview(graph_named("chain:1000")))
    assert (chain[0], chain[-1]) == ("f1\u201332", "f961\u20131000")


def test_blocks_stand_below_the_name_of_their_stage() -> None:
    plan = overview(graph_named("resnet50"))
    assert [heading.text for heading in plan.headings] == [
        "stage2", "stage3", "stage4", "stage4", "stage5",
    ]  # fmt: skip


def test_groups_of_one_name_are_told_apart_where_there_are_no_headings() -> None:
    def loss(x: Any) -> Any:
        across = []
        for half in ("encoder", "decoder"):
            for number in range(1, 4):
                with tc.scope(f"{half}/stage{number}"):
                    for _ in range(10):
                        x = tc.tanh(x) * 0.5 + x
                    across.append(x)
            x = x + across[0]
        return tc.sum(x)

    graph = tc.differentiate(tc.build(loss, tc.Spec(3)))
    assert labels_of(overview(graph)) == [
        "e/stage1", "e/stage2", "e/stage3", "+", "d/stage1", "d/stage2", "d/stage3", "181\u2013182",
    ]  # fmt: skip


def test_small_graphs_and_chains_of_moderate_length_show_every_operator() -> None:
    for graph in (tc.networks.chain(LONGEST_CHAIN), graph_named("residual:12x8")):
        (only,) = views_of(graph)
        assert not any(cell.group for cell in only.layout.cells)
        assert only.opens == {}
    assert any(cell.group for cell in overview(tc.networks.chain(LONGEST_CHAIN + 1)).cells)


def test_one_scope_around_everything_is_looked_into() -> None:
    def loss(x: Any) -> Any:
        with tc.scope("model"):
            for number in range(8):
                with tc.scope(f"part{number}"):
                    for _ in range(12):
                        x = tc.tanh(x) + x
        return tc.sum(x)

    graph = tc.differentiate(tc.build(loss, tc.Spec(3)))
    assert labels_of(overview(graph)) == [*(f"part{n}" for n in range(8)), "Σ"]


def test_without_scopes_cuts_are_where_few_values_cross() -> None:
    def loss(x: Any) -> Any:
        for _ in range(12):
            branches = [tc.tanh(x * float(n)) for n in range(5)]
            x = branches[0] * branches[1] * branches[2] * branches[3] * branches[4]
        return tc.sum(x)

    graph = tc.differentiate(tc.build(loss, tc.Spec(3)))
    cuts = [cell.operators[0] for cell in overview(graph).cells if not cell.backward][1:]
    readers = {
        node.producer: max(
            (i for i in graph.consumers[node.id] if i < graph.forward_count), default=0
        )
        for node in graph.data
        if node.producer is not None and node.producer < graph.forward_count
    }

    def crossing(cut: int) -> int:
        return sum(made < cut <= last for made, last in readers.items())

    assert len(cuts) > 10
    # One value leaves each round; within a round, five do at the most.
    assert sorted(map(crossing, cuts))[len(cuts) // 2 - 1] == 1
    assert sum(map(crossing, range(1, graph.forward_count))) / graph.forward_count > 3


@pytest.mark.parametrize(
    ("first", "last", "together"),
    [
        ("layer1", "layer4", "layer1\u20134"),
        ("f9", "f10", "f9\u201310"),
        ("down4", "bottom", "down4\u2013bottom"),
        ("a1", "a1", "a1"),
        ("x", "x2", "x\u2013x2"),
    ],
)
def test_names_of_ranges(first: str, last: str, together: str) -> None:
    assert between(first, last) == together


def test_labels_are_short() -> None:
    found = {
        name: shortened(name)
        for name in ("attention", "layer13\u201316", "f12501\u201315625", "a" * 20)
    }
    assert found == {
        "attention": "attention",
        "layer13\u201316": "13\u201316",
        "f12501\u201315625": "12501…",
        "a" * 20: "aaaaaaaa…",
    }


# Nothing is lost ---------------------------------------------------------------------------------


def check_cells(graph: tc.Graph, cells: tuple[Cell, ...], operators: list[int]) -> None:
    """Check that cells hold these operators and their values, each once, in an order."""
    held = [operator for cell in cells for operator in cell.operators]
    assert sorted(held) == sorted(operators)
    made = [data for operator in operators for data in graph.operators[operator].outputs]
    assert sorted(data for cell in cells for data in cell.data) == sorted(made)
    assert [cell.id for cell in cells] == list(range(len(cells)))
    assert len(cells) <= max(2 * MOST + MOST_ALONE, SMALL, 2 * LONGEST_CHAIN + MOST_ALONE)
    for cell in cells:
        if not cell.backward:
            assert cell.operators == tuple(range(cell.operators[0], cell.operators[-1] + 1))
        if cell.mirror is not None:
            above = cells[cell.mirror]
            assert {graph.operators[i].adjoint_of for i in cell.operators} <= set(above.operators)
            assert cell.group == above.group
    # Values flow from smaller ids to larger ones, and so never in a circle.
    assert all(a < b for a, b in links_of(graph, cells) if not cells[b].backward)


def check_views(graph: tc.Graph) -> None:
    """Check that views hold what they are opened from, and nothing is opened twice."""
    views = views_of(graph)
    check_cells(graph, views[0].layout.cells, list(range(len(graph.operators))))
    assert views[0].title == ""
    assert views[0].parent is None
    assert sum(len(view.layout.cells) for view in views) <= 2 * len(graph.operators) + 2
    opened = [index for view in views for index in set(view.opens.values())]
    assert sorted(opened) == list(range(1, len(views)))
    for place, view in enumerate(views):
        cells = view.layout.cells
        for index in set(view.opens.values()):
            shown = [cell for cell in cells if view.opens.get(cell.id) == index]
            assert views[index].parent == place
            assert {cell.title for cell in shown} == {views[index].title} != {""}
            assert all(cell.group for cell in shown)
            inside = [operator for cell in shown for operator in cell.operators]
            check_cells(graph, views[index].layout.cells, inside)


@settings(max_examples=examples(25))
@given(st.integers(1, 240), st.integers(0, 9999))
def test_views_hold_everything_once(count: int, seed: int) -> None:
    check_views(scoped_graph(count, seed))


@pytest.mark.parametrize("name", LARGE)
def test_every_group_of_a_network_opens(name: str) -> None:
    graph = graph_named(name)
    check_views(graph)
    for view in views_of(graph):
        assert set(view.opens) == {cell.id for cell in view.layout.cells if cell.group}


def test_a_very_long_chain_opens_as_far_as_a_browser_can_hold() -> None:
    graph = tc.networks.chain(20_000)
    views = views_of(graph)
    assert sum(len(view.layout.cells) for view in views) <= MOST_CELLS
    assert {view.parent for view in views} == {None, 0}
    first = views[views[0].opens[0]]
    assert first.opens == {}  # the level of single operators is left out
    assert first.layout.cells[0].group


def test_backward_operators_that_are_no_adjoints_share_cells() -> None:
    spec = tc.Spec((2,), "float64")
    data = [tc.DataNode(0, "x", spec, "input", spec.nbytes)]
    operators = []
    for index in range(2000):
        backward = index >= 1000
        role, phase = ("cotangent", "backward") if backward else ("activation", "forward")
        data.append(tc.DataNode(index + 1, f"v{index}", spec, role, spec.nbytes, index))  # type: ignore[arg-type]
        operators.append(tc.Operator(index, f"o{index}", "o", (index,), (index + 1,), phase))  # type: ignore[arg-type]
    graph = tc.Graph("loose", tuple(data), tuple(operators), (0,), 2000)
    check_views(graph)
    loose = [cell for cell in overview(graph).cells if cell.backward]
    assert len(loose) == MOST_ALONE
    assert loose[0].label == "84 ops"


# Where it stands ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LARGE)
def test_groups_stand_apart_and_inside(name: str) -> None:
    for view in views_of(graph_named(name)):
        plan = view.layout
        sizes = [plan.size(cell) for cell in plan.cells]
        assert min(min(size) for size in sizes) >= 16
        for (x, y), (width, height) in zip(plan.centres, sizes, strict=True):
            assert width / 2 + 4 < x < WIDTH - width / 2 - 4
            assert height / 2 + 4 < y < plan.height - height / 2 - 4
        placed = list(zip(plan.centres, sizes, strict=True))
        for ((x0, y0), (w0, h0)), ((x1, y1), (w1, h1)) in combinations(placed, 2):
            assert abs(x0 - x1) >= (w0 + w1) / 2 or abs(y0 - y1) >= (h0 + h1) / 2


def test_wide_drawings_fold_and_their_arrows_stay_in_the_picture() -> None:
    plan = overview(graph_named("residual:12x8"))
    rows = {round(y) for cell, (_, y) in zip(plan.cells, plan.centres, strict=True) if cell.id < 64}
    assert len(rows) >= 3
    assert plan.labelled
    for line in (*plan.arrows, *plan.faint):
        assert all(0 <= x <= WIDTH and 0 <= y <= plan.height for x, y in line)
    mirrors = {cell.id for cell in plan.cells if cell.mirror is not None}
    assert len(plan.faint) == len(mirrors)


# What is resident --------------------------------------------------------------------------------


def cut_at(graph: tc.Graph, cuts: set[int]) -> list[Cell]:
    """Return cells that are cut at these operators; groups are named after their places."""
    bounds = sorted({0, graph.forward_count, *(cut % graph.forward_count for cut in cuts)})
    parts = [
        Part(a, b, f"{a}-{b}", f"{a}-{b}") if b - a > 1 else Part(a, b) for a, b in pairwise(bounds)
    ]
    return cells_of_parts(graph, parts, range(graph.forward_count, len(graph.operators)), 1)


def owner_of(graph: tc.Graph, data: int) -> int:
    view_of = graph.data[data].view_of
    while view_of is not None:
        data, view_of = view_of, graph.data[view_of].view_of
    return data


def naive_level(graph: tc.Graph, cell: Cell, resident: frozenset[int]) -> int:
    """Return the level by its definition, from the set of what is resident."""
    inside = set(cell.data)
    held = {owner_of(graph, data) for data in resident} & inside
    here = resident & inside
    total = sum(graph.data[data].nbytes for data in inside)
    share = sum(graph.data[data].nbytes for data in held) / total if total else None
    if share is None:
        share = len(here) / len(inside)
    if not here and not share:
        return 0
    return LEVELS if share == 1 else max(1, min(LEVELS - 1, round(LEVELS * share)))


@settings(max_examples=examples(60))
@given(training_graphs(), st.sets(st.integers(1, 99), max_size=4), st.sampled_from(
    ["sqrt_n", "recompute_all", "store_all"]
))  # fmt: skip
def test_a_level_is_the_share_of_bytes_that_is_resident(
    case: Any, cuts: set[int], policy: str
) -> None:
    graph, _ = case
    trace = tc.replay(tc.plan(graph, policy))
    cells = cut_at(graph, cuts)
    state = State(trace, cells)
    shown: dict[int, Look] = {}
    times = [0] * len(graph.operators)
    for step, taken in enumerate(trace.steps):
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
            assert look.level == naive_level(graph, cell, resident)
            here = resident & set(cell.data)
            again = any(times[graph.data[data].producer] > 1 for data in here)
            if look.level and not cell.backward:
                assert look.fill is (Fill.RECOMPUTED if again else Fill.KEPT)
            elif not look.level:
                assert look.fill in (Fill.DROPPED, Fill.NOT_YET)


def test_frames_of_a_chain_in_two_groups() -> None:
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


def test_what_happens_outside_of_a_view_does_not_touch_it() -> None:
    graph = tc.networks.chain(1000)
    trace = tc.replay(tc.plan(graph, "sqrt_n"))
    inner = views_of(graph)[1].layout.cells
    shown = list(frames(trace, inner, frame_steps(trace), in_nodes=True))
    # Its 32 forward operators run twice and their adjoints once; most frames change nothing here.
    assert sum(bool(frame.changed) for frame in shown) < 200 < len(shown)


# How it looks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1, 2])
def test_a_fill_rises_with_its_level_and_strikes_out_no_label(scale: int) -> None:
    box = (52.0, 30.0)
    for label in ("", "block1", "output"):
        coverage = label_coverage(label, box, 10, scale)
        filled = [filled_pixels(level, coverage, box, scale) for level in range(LEVELS + 1)]
        assert not filled[0].any()
        assert filled[-1].all()
        for lower, higher in pairwise(filled):
            assert (higher >= lower).all()
            assert higher.sum() > lower.sum()
        for pixels in filled:
            assert len(set(pixels[coverage > 0].tolist())) <= 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_drawing_what_changed_gives_the_same_pixels_as_drawing_all(theme: str) -> None:
    trace = tc.replay(tc.plan(graph_named("unet"), "sqrt_n"))
    picture = Picture([trace], theme)
    for step, canvas in zip([-1, *picture.steps], picture.play(), strict=True):
        if step >= 0 and step % 60 == 0:
            fresh = Picture([trace], theme)
            fresh.show(step)
            assert np.array_equal(canvas, fresh.canvas)
