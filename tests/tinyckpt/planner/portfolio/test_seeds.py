"""Seeds: the caller's schedules and saved sets are among the candidates of that caller's search."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs, with_once
from tinyckpt.base.deadline import NO_DEADLINE
from tinyckpt.planner.model.cost_models import cost_of
from tinyckpt.planner.model.cost_models import given as given_costs
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.portfolio.search import Search
from tinyckpt.planner.portfolio.seeds import seed_points


def test_frontier_costs_no_more_than_seed_set() -> None:
    graph = tc.networks.residual_mlp(4, 32).graph()
    keep = [node.id for node in graph.data if node.producer is not None][::3]
    keep = [data for data in keep if (graph.data[data].producer or 0) < graph.forward_count]
    given = tc.replay(tc.plan(graph, "retain", keep=keep))
    without = tc.frontier(graph, time_limit=0)
    assert all(p.peak > given.peak_bytes or p.cost > given.evaluations for p in without.points)
    found = tc.frontier(graph, time_limit=0, seeds=[keep])
    assert (given.peak_bytes, given.evaluations) in [(p.peak, p.cost) for p in found.points]
    schedule = tc.plan(graph, budget=given.peak_bytes, time_limit=0, seeds=[keep])
    assert schedule.policy == "retain"
    assert (
        tc.frontier(graph, time_limit=0).points == without.points
    )  # seeds do not leak into other requests
    with pytest.raises(tc.PolicyOptionError, match="seeds: 'nothing' is not a forward value"):
        tc.frontier(graph, seeds=[["nothing"]])


@pytest.mark.parametrize("seeds", [3, None, "f1", b"f1"])
def test_seeds_must_be_collection_of_sets(seeds: Any) -> None:
    for graph in (tc.networks.chain(16), tc.networks.residual_mlp(2, 8).graph()):
        with pytest.raises(tc.PolicyOptionError, match="expected sets"):
            tc.plan(graph, budget=0.5, seeds=seeds)
    with pytest.raises(tc.PolicyOptionError, match="seeds: 'nope' is not a forward value"):
        tc.plan(tc.networks.chain(16), budget=0.5, seeds=[["nope"]])


def drawn_order(graph: tc.Graph, drawn: random.Random) -> list[int]:
    """Return an order that evaluates some operators again, at random."""
    order: list[int] = []
    for operator in range(len(graph.operators)):
        while operator and drawn.random() < 0.3:
            order.append(drawn.randrange(operator))
        order.append(operator)
    return order


@given(st.data(), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(40))
def test_frontier_costs_no_more_than_seed_schedule(data: st.DataObject, seed: int) -> None:
    graph = data.draw(with_once(data.draw(training_graphs())[0]))
    schedule = tc.from_order(graph, drawn_order(graph, random.Random(seed)))
    found = tc.frontier(graph, time_limit=0, seeds=[schedule])
    assert found.within(tc.replay(schedule).peak_bytes).cost <= cost_of(
        schedule, given_costs(graph)
    )


@pytest.mark.parametrize("turn", [1, -1])
def test_each_seed_schedule_counts_without_time(turn: int) -> None:
    graph = tc.networks.chain(9)
    given = [tc.plan(graph, policy) for policy in ("sqrt_n", "recompute_all", "store_all")][::turn]
    found = tc.frontier(graph, time_limit=0, seeds=given)
    for schedule in given:
        cost = found.within(tc.replay(schedule).peak_bytes).cost
        assert cost <= cost_of(schedule, given_costs(graph))


def test_checkpoints_of_seed_schedule_are_tried_as_set() -> None:
    graph = tc.networks.residual_mlp(4, 32).graph()
    keep = [node.id for node in graph.data if node.producer in range(graph.forward_count)][::3]
    seed = tc.from_order(graph, range(len(graph.operators)), checkpoints=keep)
    of_schedule, of_set = (
        [(p.peak, p.cost) for p in tc.frontier(graph, time_limit=0, seeds=[given]).points]
        for given in (seed, keep)
    )
    # Without time for more, a schedule is all that there is of it.
    assert of_schedule == [(p.peak, p.cost) for p in tc.frontier(graph, time_limit=0).points]
    search = Search(Problem(graph, given_costs(graph)))
    found = seed_points(graph, [seed], search.point, NO_DEADLINE)
    assert of_set != of_schedule
    assert set(of_set) - set(of_schedule) <= {(p.peak, p.cost) for p in found}
    assert [p.policy for p in found] == ["order", "retain", "retain"]


def test_seeds_of_other_graphs_or_with_host_are_rejected() -> None:
    graph = tc.networks.transformer(1, 8, 2, 4, 1, 11).graph()
    other = tc.networks.transformer(1, 8, 2, 4, 2, 11).graph()
    with pytest.raises(tc.PolicyOptionError, match="is not of the graph"):
        tc.frontier(graph, seeds=[tc.plan(other)])
    offloaded = tc.plan(graph, "saveable", rule="offload_dot_with_no_batch_dims")
    with pytest.raises(tc.PolicyOptionError, match="moves values to the host; expected"):
        tc.plan(graph, budget=0.5, seeds=[offloaded])
    broken = replace(tc.plan(graph), steps=tc.plan(graph).steps[1:])
    with pytest.raises(tc.ScheduleError, match="step 0"):
        tc.plan(graph, budget=0.5, seeds=[broken])


def test_many_seeds_respect_time_limit() -> None:
    graph = tc.networks.chain(300)
    found = tc.frontier(graph, time_limit=0, seeds=[[index] for index in range(1, 301)])
    assert sum(point.policy == "retain" for point in found.points) <= 1
