"""Eviction with foresight: what it strikes out afterwards leaves the peak within the budget."""

import contextlib
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_of_views, training_graphs
from tinyckpt.analysis.limits import Clock, OutOfTimeError
from tinyckpt.analysis.liveness import Problem
from tinyckpt.cost import Costs, evaluations, flops, traffic
from tinyckpt.networks.named import network_from_text
from tinyckpt.orders.backward import frugal_sequence
from tinyckpt.orders.eviction import Eviction
from tinyckpt.orders.scores import Score
from tinyckpt.orders.victims import Scan
from tinyckpt.policies.dtr import HEURISTICS
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


class ScoresAll(Scan):
    """All values that may go are scored, as the definition says."""

    def lowest(self) -> int:
        run, best, lowest = self.run, -1, inf
        for data, is_weighty in enumerate(run.weighty):
            if is_weighty and run.may_go(data):
                where = np.array([data]) if self.score.falls else data
                divisor = float(np.ravel(self.score.divisor(run, where))[0])
                score = self.score.cost(run, data, inf)[0] / divisor if divisor > 0 else inf
                if score <= lowest:  # of equals the latest
                    best, lowest = data, score
        return best


def check_who_goes(graph: tc.Graph, costs: Costs, score: Score, percent: int) -> None:
    """Check that the order of a run is that of the run that scores all."""
    problem = Problem(graph, costs)
    budget = problem.peak(range(len(graph.operators))) * percent // 100
    orders = []
    for kind in (None, ScoresAll):
        run = Eviction(problem, budget, score, frugal_sequence(problem), anchors=True)
        if kind is not None:
            run.victims = kind(run)
        with contextlib.suppress(tc.BudgetError):
            run.run()
        orders.append(run.order)
    assert orders[0] == orders[1]


ALL_SCORES = [*SCORES.values(), *HEURISTICS.values()]


@settings(max_examples=examples(150))
@given(st.one_of(graphs_of_views(), training_graphs(40).map(lambda case: case[0])), st.data())
def test_who_goes_is_as_if_all_were_scored(graph: tc.TrainingGraph, data: Any) -> None:
    costs = data.draw(st.sampled_from([evaluations, flops, traffic]))(graph)
    score = data.draw(st.sampled_from(ALL_SCORES))
    check_who_goes(graph, costs, score, data.draw(st.integers(20, 95)))


@pytest.mark.parametrize("name", ["transformer:4x256", "residual:12x16", "unet:1", "chain:60"])
@pytest.mark.parametrize("score", range(len(ALL_SCORES)))
def test_who_goes_is_the_same_in_networks(name: str, score: int) -> None:
    graph = network_from_text(name)[0]
    check_who_goes(graph, flops(graph), ALL_SCORES[score], 75)


def test_a_clock_ends_a_run() -> None:
    graph = tc.networks.chain(200)
    problem = Problem(graph, evaluations(graph))
    with pytest.raises(OutOfTimeError):
        Eviction(problem, 50 * 512, SCORES["cost / memory"], limit=Clock(0)).run()
