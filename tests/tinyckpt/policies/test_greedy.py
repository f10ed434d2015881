"""Eviction with foresight: what it strikes out afterwards leaves the peak within the budget."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_of_views
from tinyckpt.analysis.liveness import Problem
from tinyckpt.orders.eviction import Eviction
from tinyckpt.policies.greedy import SCORES, pruned


def test_a_view_that_stays_holds_a_second_block_once_its_base_is_made_again() -> None:
    def loss(x: Any) -> Any:
        h = x * 0.5
        r = h.T[::-1]
        return tc.sum(r * r * h)

    graph = tc.differentiate(tc.build(loss, tc.Spec((4, 4))))
    largest = tc.replay(tc.plan(graph)).peak_bytes
    trace = tc.replay(tc.plan(graph, "greedy", budget=0.9))
    assert trace.peak_bytes <= 0.9 * largest


@settings(max_examples=examples(150))
@given(graphs_of_views(), st.integers(50, 95), st.sampled_from(sorted(SCORES)))
def test_what_is_pruned_stays_within_the_budget(
    graph: tc.TrainingGraph, percent: int, score: str
) -> None:
    problem = Problem(graph, tc.cost.evaluations(graph))
    budget = problem.peak(range(len(graph.operators))) * percent // 100
    try:
        order = Eviction(problem, budget, SCORES[score]).run()
    except tc.BudgetError:
        return
    shorter = pruned(problem, order, budget)
    assert problem.peak(shorter) <= budget
    assert len(shorter) <= len(order)
    assert tc.replay(tc.from_order(graph, shorter)).peak_bytes <= budget
