"""Blocks: ways through them that hold what they say, and plans of real networks."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_of_views, training_graphs
from tinyckpt.core.costs import evaluations, flops, in_nodes
from tinyckpt.networks import network_from_text
from tinyckpt.planner.chain_dp.block_options import Ways
from tinyckpt.planner.chain_dp.rockmate_dp import SWEEPS, RockmatePlans, block_cuts
from tinyckpt.planner.model.chain_stages import stages
from tinyckpt.planner.model.liveness import Problem


@pytest.mark.long
@settings(max_examples=examples(30))
@given(
    st.one_of(training_graphs().map(lambda case: case[0]), graphs_of_views()),
    st.sampled_from([evaluations, flops]),
    st.booleans(),
)
def test_every_plan_of_a_drawn_graph_is_legal(graph: tc.Graph, unit: Any, in_values: bool) -> None:
    costs = in_nodes(unit(graph)) if in_values else unit(graph)
    problem = Problem(graph, costs)
    sweep = RockmatePlans(problem)
    for which, half in SWEEPS:
        for plan in sweep.plans(which, half):
            schedule = tc.from_order(graph, plan.order)
            trace = tc.replay(schedule)
            peak = trace.peak_nodes if in_values else trace.peak_bytes
            assert peak == problem.peak(plan.order)


def test_the_ways_cost_and_hold_what_they_say() -> None:
    graph = network_from_text("transformer:2x64")[0]
    costs = flops(graph)
    problem = Problem(graph, costs)
    parts = stages(problem.flat, block_cuts(problem))
    ways = Ways(problem, parts, range(len(graph.operators)))
    for stage, through in zip(parts, ways.through, strict=True):
        backward = sum(costs.operators[i] for i in stage.backward)
        for way in through:
            assert set(stage.backward) <= set(way.back) | unread(graph)
            cost = sum(costs.operators[i] for i in (*way.record, *way.back)) - backward
            assert way.cost == cost
            waits = {problem.root[data] for data in (*way.saved, *stage.cut)}
            assert sum(costs.data[root] for root in waits) >= way.held


def unread(graph: tc.Graph) -> set[int]:
    """Return the operators whose results nothing reads."""
    outputs = set(graph.outputs)
    return {
        operator.id
        for operator in graph.operators
        if not any(graph.consumers[data] or data in outputs for data in operator.outputs)
    }


def test_layers_that_are_alike_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    made = Ways.made
    monkeypatch.setattr(
        Ways, "made", lambda self, block: looked_at.append(block) or made(self, block)
    )
    counts = []
    for layers in (4, 12):
        looked_at.clear()
        graph = network_from_text(f"transformer:{layers}x64")[0]
        problem = Problem(graph, flops(graph))
        parts = stages(problem.flat, block_cuts(problem))
        ways = Ways(problem, parts, range(len(graph.operators)))
        assert len(ways.through) == len(parts) > 2 * layers
        counts.append(len(looked_at))
    assert counts[0] == counts[1]


def test_a_transformer_pays_hardly_more_than_the_bound() -> None:
    graph = network_from_text("transformer:12x768")[0]
    costs = flops(graph)
    schedule = tc.plan(graph, "blocks", budget=0.5, costs=costs)
    assert 2 * tc.replay(schedule).peak_bytes <= tc.replay(tc.plan(graph)).peak_bytes
    assert tc.cost.cost_of(schedule, costs) <= 1.04 * tc.lower_bound(graph, 0.5, costs)


def test_what_does_not_fit_names_the_smallest_peak() -> None:
    graph = network_from_text("transformer:2x64")[0]
    with pytest.raises(tc.BudgetError, match=r"blocks finds nothing within .*; the smallest") as e:
        tc.plan(graph, "blocks", budget=0.05)
    assert e.value.smallest is not None
    tc.plan(graph, "blocks", budget=e.value.smallest)
