"""Rockmate's dynamic program: cost of block options, legal plans, near-optimal transformers."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from benchmarks.leaderboard.instances import graph_of, instance_of
from tests.conftest import examples
from tests.random_dags import graphs_of_views, training_graphs
from tinyckpt.base.deadline import NO_DEADLINE, Clock, OutOfTimeError
from tinyckpt.core.costs import evaluations, flops
from tinyckpt.core.cuts import separators
from tinyckpt.core.graph import producer_of
from tinyckpt.networks import network_from_text
from tinyckpt.planner.chain_dp.block_options import BlockOptions
from tinyckpt.planner.chain_dp.rockmate_dp import SWEEPS, RockmatePlans, block_cuts
from tinyckpt.planner.model.chain_stages import stages
from tinyckpt.planner.model.cost_models import given as given_costs
from tinyckpt.planner.model.cost_models import in_nodes
from tinyckpt.planner.model.liveness import Problem


@pytest.mark.long
@settings(max_examples=examples(30))
@given(
    st.one_of(training_graphs().map(lambda case: case[0]), graphs_of_views()),
    st.sampled_from([evaluations, flops]),
    st.booleans(),
)
def test_rockmate_plans_are_legal_on_random_graphs(
    graph: tc.Graph, unit: Any, in_values: bool
) -> None:
    costs = in_nodes(unit(graph)) if in_values else unit(graph)
    problem = Problem(graph, costs)
    sweep = RockmatePlans(problem)
    for which, half in SWEEPS:
        for plan in sweep.plans(which, half):
            schedule = tc.from_order(graph, plan.order)
            trace = tc.replay(schedule)
            peak = trace.peak_nodes if in_values else trace.peak_bytes
            assert peak == problem.peak(plan.order)


def test_block_options_state_true_cost_and_memory() -> None:
    graph = network_from_text("transformer:2x64")[0]
    costs = flops(graph)
    problem = Problem(graph, costs)
    parts = stages(problem.flat, block_cuts(problem))
    options = BlockOptions(problem, parts, range(len(graph.operators)))
    options.enumerate(NO_DEADLINE)
    for stage, through in zip(parts, options.through, strict=True):
        backward = sum(costs.operators[i] for i in stage.backward)
        for option in through:
            assert set(stage.backward) <= set(option.back) | unread(graph)
            cost = sum(costs.operators[i] for i in (*option.record, *option.back)) - backward
            assert option.cost == cost
            waits = {problem.root[data] for data in (*option.saved, *stage.cut)}
            assert sum(costs.data[root] for root in waits) >= option.saved_memory


def unread(graph: tc.Graph) -> set[int]:
    """Return the operators whose results nothing reads."""
    outputs = set(graph.outputs)
    return {
        operator.id
        for operator in graph.operators
        if not any(graph.consumers[data] or data in outputs for data in operator.outputs)
    }


@pytest.mark.long
def test_identical_blocks_are_examined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    examined = []
    enumerate_options = BlockOptions.enumerate_options
    monkeypatch.setattr(
        BlockOptions,
        "enumerate_options",
        lambda self, block: examined.append(block) or enumerate_options(self, block),
    )
    counts = []
    for layers in (4, 12):
        examined.clear()
        graph = network_from_text(f"transformer:{layers}x64")[0]
        problem = Problem(graph, flops(graph))
        parts = stages(problem.flat, block_cuts(problem))
        options = BlockOptions(problem, parts, range(len(graph.operators)))
        options.enumerate(NO_DEADLINE)
        assert len(options.through) == len(parts) > 2 * layers
        counts.append(len(examined))
    assert counts[0] == counts[1]


def test_options_that_take_longer_than_there_is_time_are_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = list[Any]()
    monkeypatch.setattr(
        BlockOptions, "enumerate_options", lambda self, block: begun.append(block) or ([], [])
    )
    graph = graph_of(instance_of("joint-llama", None))
    problem = Problem(graph, given_costs(graph))
    parts = stages(problem.flat, ())  # one block
    assert max(len(part.forward) + len(part.backward) for part in parts) > 1700
    options = BlockOptions(problem, parts, range(len(problem.graph.operators)))
    with pytest.raises(OutOfTimeError):
        options.enumerate(Clock(30.0))
    assert not begun
    options.enumerate(NO_DEADLINE)
    assert len(begun) == len(options.first)


def test_layers_that_share_values_are_cut_alike() -> None:
    graph = graph_of(instance_of("joint-llama", None))  # all layers read a rotary embedding
    problem = Problem(graph, given_costs(graph))
    assert max_apart(graph, separators(graph)) > 500
    parts = stages(problem.flat, block_cuts(problem))
    options = BlockOptions(problem, parts, range(len(graph.operators)))
    assert len(parts) > 2 * 16  # attention and MLP of each layer
    assert len(options.first) < 10
    assert max(len(part.backward) for part in parts) < 60  # of 1160


def max_apart(graph: tc.Graph, values: list[int]) -> int:
    """Return the largest number of forward operators between the producers of some values."""
    places = sorted(producer_of(graph, data) for data in values)
    return max(b - a for a, b in pairwise([-1, *places, graph.forward_count]))


@pytest.mark.nightly
def test_blocks_cost_near_lower_bound_on_transformer() -> None:
    graph = network_from_text("transformer:12x768")[0]
    costs = flops(graph)
    schedule = tc.plan(graph, "blocks", budget=0.5, costs=costs)
    assert 2 * tc.replay(schedule).peak_bytes <= tc.replay(tc.plan(graph)).peak_bytes
    assert tc.cost.cost_of(schedule, costs) <= 1.04 * tc.lower_bound(graph, 0.5, costs)


@pytest.mark.long
def test_blocks_infeasible_budget_names_smallest_peak() -> None:
    graph = network_from_text("transformer:2x64")[0]
    with pytest.raises(tc.BudgetError, match=r"blocks finds nothing within .*; the smallest") as e:
        tc.plan(graph, "blocks", budget=0.05)
    assert e.value.smallest is not None
    tc.plan(graph, "blocks", budget=e.value.smallest)
