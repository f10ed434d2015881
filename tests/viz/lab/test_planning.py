"""Planner of the lab page against Python: equal step by step, on random graphs and networks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_of_views, graphs_with_updates, training_graphs, with_once
from tests.viz.lab.lab_driver import Case, engine, expected, planned_by_page
from tinyckpt.core.cuts import retaining_order
from tinyckpt.core.schedule import EVALUATIONS
from tinyckpt.planner.model.vectorised_lowering import checkpoints_of_order

pytestmark = pytest.mark.browser
GRAPHS = st.one_of(
    training_graphs().map(lambda drawn: drawn[0]),
    training_graphs().flatmap(lambda drawn: with_once(drawn[0])),
    graphs_of_views(),
    graphs_with_updates().map(lambda drawn: drawn[0]),
)


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    page = engine(browser)
    yield page
    page.close()


def forward_values(graph: tc.Graph) -> list[int]:
    return [
        node.id
        for node in graph.data
        if node.producer is not None and node.producer < graph.forward_count
    ]


def is_legal(graph: tc.Graph) -> bool:
    """Whether a graph has any legal schedule: none if a result aliases an updated value."""
    try:
        tc.replay(tc.plan(graph))
    except tc.ScheduleError:
        return False
    return True


def case_of(graph: tc.Graph, keeps: list[list[int]]) -> tuple[Case, list[list[Any]]]:
    """Return sets of saved values and an order without reuse, and Python's account of each."""
    order = retaining_order(graph, keeps[0], reuse=False)
    lowered = tc.from_order(graph, order, checkpoints=checkpoints_of_order(graph, order))
    schedules = [*(tc.plan(graph, "retain", keep=keep) for keep in keeps), lowered]
    return (graph, keeps, [order]), [expected(schedule) for schedule in schedules]


def test_page_plans_and_replays_random_graphs_as_python(page: Any) -> None:
    cases, wanted = [], []

    @settings(max_examples=examples(200))
    @given(GRAPHS, st.data())
    def drawn(graph: tc.TrainingGraph, data: st.DataObject) -> None:
        assume(is_legal(graph))
        values = forward_values(graph)
        sets = st.sets(st.sampled_from(values)) if values else st.just(set())
        case, python = case_of(graph, [sorted(data.draw(sets))])
        cases.append(case)
        wanted.append(python)

    drawn()
    # All at once: a call of the browser for each would take most of the time.
    for case, found, python in zip(cases, planned_by_page(page, cases), wanted, strict=True):
        assert found == python, f"keep={case[1]} of\n{case[0]}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "network",
    ["chain:1", "chain:16", "residual:4x8", "branching:2x8", "unet", "resnet50:1",
     "transformer:2x16", "vit", "lenet5"],
)  # fmt: skip
def test_page_plans_networks_as_python(page: Any, network: str) -> None:
    graph = tc.networks.network_from_text(network)[0]
    values = forward_values(graph)
    drawn = np.random.default_rng(len(values)).permutation(values).tolist()
    third = len(values) // 3
    case, python = case_of(graph, [sorted(drawn[:third]), sorted(drawn[third:]), [], values])
    assert planned_by_page(page, [case]) == [python]


def test_page_plans_graph_documents_as_python(page: Any) -> None:
    graph = tc.load_graph(Path(tc.__file__).parent / "data" / "graphs" / "resnet50.json")
    case, python = case_of(graph, [forward_values(graph)[::3]])
    assert planned_by_page(page, [case]) == [python]


def test_page_lowers_policy_orders_as_python(page: Any) -> None:
    graph = tc.networks.chain(16)
    for policy in ("store_all", "sqrt_n", "revolve", "chen_recursive", "recompute_all"):
        schedule = tc.plan(graph, policy)
        order = [step.operator for step in schedule.steps if isinstance(step, EVALUATIONS)]
        ((found,),) = planned_by_page(page, [(graph, [], [order])])
        assert found[:2] == expected(schedule)[:2], policy
        assert found[9] == checkpoints_of_order(graph, order)
