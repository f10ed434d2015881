"""Graph partitioning for display: cuts, completeness of views, positions of groups."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.viz.layout.scoped_graphs import scoped_graph
from viz.layout.drawn_nodes import Cell, links_of
from viz.layout.geometry import WIDTH, Layout
from viz.layout.partition import LONGEST_CHAIN, MOST, SMALL, range_label
from viz.layout.views import MOST_ALONE, MOST_CELLS, overview, views_of

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
    return [label for cell, label in zip(plan.cells, plan.labels, strict=True) if not cell.backward]


# What is cut where -------------------------------------------------------------------------------


@pytest.mark.long
def test_networks_are_partitioned_by_layer() -> None:
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
        "layer13\u201316",
        "layer17\u201320",
    ]
    chain = labels_of(overview(graph_named("chain:1000")))
    assert (chain[0], chain[-1]) == ("f1\u201332", "f961\u20131000")


def test_blocks_have_their_stage_as_heading() -> None:
    plan = overview(graph_named("resnet50"))
    assert [heading.text for heading in plan.headings] == [
        "stage2", "stage3", "stage4", "stage4", "stage5",
    ]  # fmt: skip


def encoder_and_decoder(mixed: bool) -> tc.TrainingGraph:
    """Return a graph with stages of equal names, side by side or interleaved."""

    def loss(x: Any) -> Any:
        across = []
        halves = ("encoder", "decoder")
        order = [(h, n) for h in halves for n in (1, 2, 3)]
        for half, number in sorted(order, key=lambda pair: pair[1]) if mixed else order:
            with tc.scope(f"{half}/stage{number}"):
                for _ in range(10):
                    x = tc.tanh(x) * 0.5 + x
                across.append(x)
            x = x + across[0]
        return tc.sum(x)

    return tc.differentiate(tc.build(loss, tc.Spec(3)))


def test_groups_of_one_name_differ_by_heading_or_label() -> None:
    plan = overview(encoder_and_decoder(mixed=False))
    assert [heading.text for heading in plan.headings] == ["encoder", "decoder"]
    assert [label for label in labels_of(plan) if label != "+"] == [
        "stage1", "stage2", "stage3", "stage1", "stage2", "stage3", "185\u2013186",
    ]  # fmt: skip
    plan = overview(encoder_and_decoder(mixed=True))
    assert plan.headings == ()
    assert [label for label in labels_of(plan) if label != "+"] == [
        "e/stage1", "d/stage1", "e/stage2", "d/stage2", "e/stage3", "d/stage3", "185\u2013186",
    ]  # fmt: skip


def test_small_graphs_and_chains_of_moderate_length_show_every_operator() -> None:
    for graph in (tc.networks.chain(LONGEST_CHAIN), graph_named("residual:12x8")):
        (only,) = views_of(graph)
        assert not any(cell.group for cell in only.layout.cells)
        assert only.opens == {}
    assert any(cell.group for cell in overview(tc.networks.chain(LONGEST_CHAIN + 1)).cells)


def test_run_without_scope_is_titled_after_its_first_and_last_operators() -> None:
    def loss(x: Any) -> Any:
        for _ in range(60):
            x = tc.tanh(x) + x
        return tc.sum(x)

    plan = overview(tc.differentiate(tc.build(loss, tc.Spec(3))))
    titles = [cell.title for cell in plan.cells if not cell.backward]
    assert titles[0].startswith("tanh_1 to ")
    assert len(set(titles)) == len(titles)


def test_single_outer_scope_is_expanded() -> None:
    def loss(x: Any) -> Any:
        with tc.scope("model"):
            for number in range(8):
                with tc.scope(f"part{number}"):
                    for _ in range(12):
                        x = tc.tanh(x) + x
        return tc.sum(x)

    graph = tc.differentiate(tc.build(loss, tc.Spec(3)))
    assert labels_of(overview(graph)) == [*(f"part{n}" for n in range(8)), "loss"]


def test_graph_without_scopes_is_split_at_small_cuts() -> None:
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
def test_range_labels_match_golden_text(first: str, last: str, together: str) -> None:
    assert range_label(first, last) == together


# Nothing is lost ---------------------------------------------------------------------------------


def check_cells(graph: tc.Graph, cells: tuple[Cell, ...], operators: list[int]) -> None:
    """Check that cells contain these operators and their values, each once, in order."""
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
    """Check that views contain the group that they expand, and nothing is expanded twice."""
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


@pytest.mark.long
@settings(max_examples=examples(25))
@given(st.integers(1, 240), st.integers(0, 9999))
def test_views_partition_all_operators(count: int, seed: int) -> None:
    check_views(scoped_graph(count, seed))


@pytest.mark.parametrize("name", LARGE)
def test_every_group_of_a_network_expands(name: str) -> None:
    graph = graph_named(name)
    check_views(graph)
    for view in views_of(graph):
        assert set(view.opens) == {cell.id for cell in view.layout.cells if cell.group}


@pytest.mark.long
def test_very_long_chain_expands_up_to_the_cell_limit() -> None:
    graph = tc.networks.chain(20_000)
    views = views_of(graph)
    assert sum(len(view.layout.cells) for view in views) <= MOST_CELLS
    assert {view.parent for view in views} == {None, 0}
    first = views[views[0].opens[0]]
    assert first.opens == {}  # the level of single operators is left out
    assert first.layout.cells[0].group


def test_unpaired_backward_operators_share_cells() -> None:
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
def test_groups_do_not_overlap_and_stay_inside(name: str) -> None:
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


def test_wide_drawings_fold_with_arrows_inside() -> None:
    plan = overview(graph_named("residual:12x8"))
    rows = {round(y) for cell, (_, y) in zip(plan.cells, plan.centres, strict=True) if cell.id < 64}
    assert len(rows) >= 3
    assert plan.labelled
    for line in (*plan.arrows, *plan.faint):
        assert all(0 <= x <= WIDTH and 0 <= y <= plan.height for x, y in line)
