"""Greedy offline eviction: victims equal a full scan, plans stay within budget, runs end."""

import contextlib
from math import inf
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_of_views, training_graphs, with_once
from tinyckpt.base.deadline import Clock, OutOfTimeError
from tinyckpt.core.costs import Costs, evaluations, flops
from tinyckpt.core.graph import DataNode, Operator
from tinyckpt.networks.registry import network_from_text
from tinyckpt.planner.heuristics import eviction
from tinyckpt.planner.heuristics.backward_order import least_growth_order
from tinyckpt.planner.heuristics.budget_grid import BudgetGrid
from tinyckpt.planner.heuristics.drop_recomputes import drop_redundant_recomputes
from tinyckpt.planner.heuristics.dtr import HEURISTICS
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.heuristics.eviction_heuristics import Score
from tinyckpt.planner.heuristics.eviction_queue import LinearScan
from tinyckpt.planner.heuristics.greedy import SCORES, GreedyPlans, greedy_orders, greedy_settings
from tinyckpt.planner.model.cost_models import traffic
from tinyckpt.planner.model.liveness import Problem


def test_greedy_stays_within_budget_when_view_outlives_recomputed_base() -> None:
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
def test_pruned_order_stays_within_budget(
    graph: tc.TrainingGraph, percent: int, score: str
) -> None:
    problem = Problem(graph, tc.cost.evaluations(graph))
    budget = problem.peak(range(len(graph.operators))) * percent // 100
    try:
        order = Eviction(problem, budget, SCORES[score]).run()
    except tc.BudgetError:
        return
    shorter = drop_redundant_recomputes(problem, order, budget)
    assert problem.peak(shorter) <= budget
    assert len(shorter) <= len(order)
    assert tc.replay(tc.from_order(graph, shorter)).peak_bytes <= budget


class ScoresAll(LinearScan):
    """Full scan: all evictable values are scored, by definition."""

    def lowest(self) -> int:
        run, best, lowest = self.run, -1, inf
        for data, is_weighty in enumerate(run.weighty):
            if is_weighty and run.may_go(data):
                where = np.array([data]) if self.score.falls else data
                divisor = float(np.ravel(self.score.divisor(run, where))[0])
                score = self.score.cost(run, data, inf)[0] / divisor if divisor > 0 else inf
                if score <= lowest:  # ties: the highest id
                    best, lowest = data, score
        return best


def check_who_goes(graph: tc.Graph, costs: Costs, score: Score, percent: int) -> None:
    """Check that a run's order equals that of a run with a full scan."""
    problem = Problem(graph, costs)
    budget = problem.peak(range(len(graph.operators))) * percent // 100
    orders = []
    for kind in (None, ScoresAll):
        run = Eviction(problem, budget, score, least_growth_order(problem), anchors=True)
        if kind is not None:
            run.victims = kind(run)
        with contextlib.suppress(tc.BudgetError):
            run.run()
        orders.append(run.order)
    assert orders[0] == orders[1]


ALL_SCORES = [*SCORES.values(), *HEURISTICS.values()]


@pytest.mark.long
@settings(max_examples=examples(150))
@given(st.one_of(graphs_of_views(), training_graphs(40).map(lambda case: case[0])), st.data())
def test_victims_equal_full_scan_on_random_graphs(graph: tc.TrainingGraph, data: Any) -> None:
    costs = data.draw(st.sampled_from([evaluations, flops, traffic]))(graph)
    score = data.draw(st.sampled_from(ALL_SCORES))
    graph = data.draw(st.sampled_from([graph, data.draw(with_once(graph))]))
    check_who_goes(graph, costs, score, data.draw(st.integers(20, 95)))


@pytest.mark.long
@pytest.mark.parametrize("name", ["transformer:4x256", "residual:12x16", "unet:1", "chain:60"])
@pytest.mark.parametrize("score", range(len(ALL_SCORES)))
def test_victims_equal_full_scan_on_networks(name: str, score: int) -> None:
    graph = network_from_text(name)[0]
    check_who_goes(graph, flops(graph), ALL_SCORES[score], 75)


def test_eviction_raises_when_deadline_has_passed() -> None:
    graph = tc.networks.chain(200)
    problem = Problem(graph, evaluations(graph))
    with pytest.raises(OutOfTimeError):
        Eviction(problem, 50 * 512, SCORES["cost / memory"], deadline=Clock(0)).run()


def far_readers(count: int) -> tc.Graph:
    """Return a forward-only graph with long dependences: operators read random earlier values."""
    random = Random(count)
    reads = [sorted(random.sample(range(index), min(index, 3))) for index in range(count)]
    data = [
        DataNode(index, f"v{index}", tc.Spec(1, "uint8"), "activation", 1, index)
        for index in range(count)
    ]
    operators = [
        Operator(index, f"o{index}", "o", tuple(some), (index,), "forward")
        for index, some in enumerate(reads)
    ]
    return tc.Graph(f"far:{count}", tuple(data), tuple(operators), (), None, count - 1)


def test_thrashing_run_raises_budget_error(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = far_readers(200)  # one operator's inputs take 5.6 evaluations per operator to recompute
    problem = Problem(graph, evaluations(graph))
    budget = problem.peak(range(200)) // 3
    monkeypatch.setattr(eviction, "LONGEST_FOR_ONE", 6)
    assert len(Eviction(problem, budget, SCORES["cost / memory"]).run()) == 8980
    monkeypatch.setattr(eviction, "LONGEST_FOR_ONE", 5)
    run = Eviction(problem, budget, SCORES["cost / memory"])
    with pytest.raises(tc.BudgetError, match="almost all evaluations are recomputations"):
        run.run()
    assert len(run.order) < 8980


def test_settings_include_anchors_even_with_time_for_one_run() -> None:
    for name, modes in (("transformer:2x64", [False, True]), ("chain:8", [False])):
        problem = Problem(graph := network_from_text(name)[0], evaluations(graph))
        highest = problem.peak(range(len(graph.operators)))
        sweep = GreedyPlans(problem, BudgetGrid((highest // 2,), 1, highest))
        assert [anchors for *_, anchors in sweep.settings] == modes


def test_run_far_more_expensive_than_best_is_given_up() -> None:
    graph = tc.networks.transformer(20, 32, 1, 64, 4, 101).graph()
    problem = Problem(graph, flops(graph))
    budget = problem.peak(range(len(graph.operators))) * 4 // 10
    both = greedy_settings(problem)[:2]
    assert [anchors for *_, anchors in both] == [False, True]
    found = list(greedy_orders(problem, budget, both))
    # Without anchors, recomputing a layer recomputes the layers before it.
    assert [label for _, label, _ in found] == ["cost / (memory sqrt(distance)), with anchors"]
    assert len(found[0][2]) - len(graph.operators) == 542
    best = Eviction(problem, budget, *both[1][1:], cost_limit=found[0][0] * 1.1).run()
    assert drop_redundant_recomputes(problem, best, budget) == found[0][2]
    with pytest.raises(tc.BudgetError, match="cost above"):
        Eviction(problem, budget, *both[0][1:], cost_limit=found[0][0] * 1.1).run()
