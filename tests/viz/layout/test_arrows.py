"""Edge routing: exactly one arrow per read, with correct end points."""

from itertools import pairwise
from math import hypot
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tests.viz.layout.scoped_graphs import scoped_graph
from viz.layout.geometry import Layout
from viz.layout.node_placement import layout
from viz.layout.views import views_of

NETWORKS = (
    "chain:1", "chain:2", "chain:16", "chain:33", "chain:100", "mlp:3x8", "mlp:40x8",
    "residual:4x8", "residual:12x8", "branching:3x8", "unet", "resnet50", "transformer:2x64",
    "chain:1000",
)  # fmt: skip
NEAR = 8  # pixels


def check_arrows(graph: tc.Graph, plan: Layout) -> None:
    """Check that arrows equal reads of the operators, and where they begin and end."""
    reads = {
        (source.id, target.id)
        for target in plan.cells
        for source in plan.cells
        if source is not target
        and {i for o in target.operators for i in graph.operators[o].inputs} & set(source.data)
    }
    assert sorted((arrow.source, arrow.target) for arrow in plan.reads) == sorted(reads)
    for arrow in plan.reads:
        assert min(distance(plan, arrow.source, *line[0]) for line in arrow.lines) < NEAR
        assert min(distance(plan, arrow.target, *line[-1]) for line in arrow.lines) < NEAR


def distance(plan: Layout, cell: int, x: float, y: float) -> float:
    """Return the distance from a point to the rim of a cell's box."""
    (cx, cy), (width, height) = plan.centres[cell], plan.size(plan.cells[cell])
    return hypot(max(abs(x - cx) - width / 2, 0), max(abs(y - cy) - height / 2, 0))


@settings(max_examples=examples(40))
@given(training_graphs())
def test_arrows_of_random_graphs_equal_reads(case: Any) -> None:
    check_arrows(case[0], layout(case[0]))


@settings(max_examples=examples(10))
@given(st.integers(1, 240), st.integers(0, 9999))
def test_arrows_of_every_view_equal_reads(count: int, seed: int) -> None:
    graph = scoped_graph(count, seed)
    for view in views_of(graph):
        check_arrows(graph, view.layout)


@pytest.mark.parametrize("name", NETWORKS)
def test_arrows_of_networks_equal_reads(name: str) -> None:
    graph = tc.networks.network_from_text(name)[0]
    for view in views_of(graph)[:20]:
        check_arrows(graph, view.layout)


def named_reads(graph: tc.Graph) -> set[str]:
    """Return the edges between forward and backward pass in a picture, by operator names."""
    plan = layout(graph)
    names = [graph.operators[cell.operators[0]].name for cell in plan.cells]
    return {
        f"{names[arrow.source]} > {names[arrow.target]}"
        for arrow in plan.reads
        if plan.cells[arrow.source].backward != plan.cells[arrow.target].backward
    }


def test_loss_of_a_chain_has_its_arrow() -> None:
    assert named_reads(tc.networks.chain(3)) == {"f1 > b1", "f2 > b2", "f3 > b3", "f3 > l"}


def test_backward_operator_has_arrows_only_from_its_inputs() -> None:
    # As the second lesson says: tanh's adjoint reads its output, and a product's its input.
    def loss(params: Any, x: Any) -> Any:
        return tc.sum(tc.tanh(tc.tanh(x @ params["a"]) @ params["b"]))

    weights = {"a": tc.Spec((3, 3)), "b": tc.Spec((3, 2))}
    graph = tc.differentiate(tc.build(loss, weights, tc.Spec((4, 3))))
    assert named_reads(graph) == {
        "tanh_1 > tanh_1_vjp",
        "tanh_2 > tanh_2_vjp",
        "tanh_1 > matmul_2_vjp",
    }


def test_arrow_avoids_nodes_that_it_passes() -> None:
    # The adjoint of a bias takes the sum of the cotangent; that of the product reads past it.
    plan = layout(tc.networks.network_from_text("mlp:3x8")[0])
    past = [
        arrow
        for arrow in plan.reads
        if plan.cells[arrow.source].backward
        and abs(plan.centres[arrow.source][0] - plan.centres[arrow.target][0])
        > 1.5 * (plan.centres[1][0] - plan.centres[0][0])
    ]
    assert len(past) == 4
    for arrow in past:
        (line,) = arrow.lines
        assert max(y for _, y in line) < plan.height
        for (x0, y0), (x1, y1) in pairwise(line):
            for cell, (x, y) in zip(plan.cells, plan.centres, strict=True):
                if cell.id not in (arrow.source, arrow.target):
                    middle = ((x0 + x1) / 2, (y0 + y1) / 2)
                    assert hypot(middle[0] - x, middle[1] - y) > plan.diameter / 2
