"""Plans whose first evaluations come in the graph's own order: ``plan(order="given")``."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.layered_graphs import forward_graph, layered_graph
from tests.random_dags import training_graphs
from tinyckpt.planner.heuristics.local_search import LocalSearch
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.vectorised_lowering import eliminate_dead_recomputations

# Value 0 is large and read late: evaluated late, it needs no recomputation.
READS, SIZES = [[], [], [1], [2], [0, 3]], [50, 10, 10, 10, 1]


def evaluated(schedule: tc.Schedule) -> list[int]:
    """Return the operators as they are evaluated."""
    return [step.operator for step in schedule.steps if isinstance(step, tc.Compute)]


def is_given(order: list[int]) -> bool:
    """Whether the first evaluations are in ascending order."""
    firsts = list(dict.fromkeys(order))
    return firsts == sorted(firsts)


def test_given_order_recomputes_what_free_order_evaluates_late() -> None:
    graph = forward_graph("late", READS, SIZES)
    assert sorted(evaluated(tc.plan(graph, budget=61))) == [0, 1, 2, 3, 4]
    schedule = tc.plan(graph, budget=61, order="given")
    assert evaluated(schedule) == [0, 1, 2, 3, 0, 4]
    assert tc.replay(schedule).peak_bytes == 61


@pytest.mark.long
@settings(max_examples=examples(15))
@given(training_graphs(), st.integers(40, 100))
def test_given_order_is_kept_within_budget(case: Any, percent: int) -> None:
    graph, _ = case
    try:
        schedule = tc.plan(graph, budget=f"{percent} %", order="given", time_limit=2)
    except tc.BudgetError:
        return
    stored = tc.replay(tc.plan(graph)).peak_bytes
    assert is_given(evaluated(schedule))
    assert tc.replay(schedule).peak_bytes <= stored * percent // 100
    assert schedule.certificate.lower_bound <= schedule.certificate.cost


@pytest.mark.long
@settings(max_examples=examples(20))
@given(st.integers(0, 99), st.integers(70, 95))
def test_local_search_keeps_given_order(seed: int, percent: int) -> None:
    graph = layered_graph(40, seed)
    problem = Problem(graph, tc.cost.given(graph)).in_build_order()
    budget = problem.peak(range(40)) * percent // 100
    order = LocalSearch(problem, budget, seed).within(range(40), 0.3)
    if order is not None:
        assert is_given(order)
        assert problem.peak(order) <= budget


def test_first_evaluation_stays_although_dead() -> None:
    graph = forward_graph("late", READS, SIZES)
    order = [0, 1, 2, 3, 0, 4]
    assert eliminate_dead_recomputations(graph, order) == [1, 2, 3, 0, 4]
    assert eliminate_dead_recomputations(graph, order, keep_first=True) == order
    twice = [0, 1, 0, 2, 3, 0, 4]
    assert eliminate_dead_recomputations(graph, twice, keep_first=True) == order


def test_seed_in_another_order_is_no_plan_in_given_order() -> None:
    graph = forward_graph("late", READS, SIZES)
    late = tc.from_order(graph, [1, 2, 3, 0, 4])
    assert tc.replay(tc.plan(graph, budget=61, order="given", seeds=[late])).evaluations == 6


def test_unknown_order_is_refused() -> None:
    with pytest.raises(tc.PolicyOptionError, match="order='late'; expected 'free' or 'given'"):
        tc.plan(tc.networks.chain(3), budget="4 nodes", order="late")
