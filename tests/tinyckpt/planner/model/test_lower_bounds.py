"""Lower bounds under a deadline: a bound cut short is valid, and the search stops in time."""

from contextlib import suppress
from itertools import count

import pytest

import tinyckpt as tc
from tinyckpt.base import deadline as limits
from tinyckpt.base.deadline import NO_DEADLINE, Clock, OutOfTimeError
from tinyckpt.core.costs import flops
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import (
    DependenceGraph,
    flow_bound,
    golden_section_max,
    needed_operators,
)


def test_golden_section_search_stops_at_deadline() -> None:
    prices: list[float] = []

    def value_at(price: float) -> float:
        prices.append(price)
        return 1 - (price - 0.25) ** 2

    assert golden_section_max(value_at, -1.0, 2.0, NO_DEADLINE) > 1 - 1e-9
    assert len(prices) == 26
    prices.clear()
    assert 0 < golden_section_max(value_at, -1.0, 2.0, Clock(0)) <= 1
    assert len(prices) == 1


def test_bound_cut_short_by_deadline_is_no_higher(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = tc.networks.residual_mlp(8, 16).graph()
    problem = Problem(graph, flops(graph))
    known = DependenceGraph(problem, needed_operators(graph))
    budget = problem.peak(range(len(graph.operators))) // 2
    for moment in known.moments():
        with pytest.raises(OutOfTimeError):
            known.bound(moment, budget, Clock(0))
        for seconds in range(3, 12):
            with monkeypatch.context() as patched, suppress(OutOfTimeError):
                ticks = count()  # each check of the deadline takes one second
                patched.setattr(limits, "perf_counter", lambda ticks=ticks: next(ticks))
                hurried = known.bound(moment, budget, Clock(seconds))
                assert 0 <= hurried <= known.bound(moment, budget)


def test_bound_without_time_is_cost_of_every_operator_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = tc.networks.residual_mlp(8, 16).graph()
    costs, looks = flops(graph), 0
    budget = Problem(graph, costs).peak(range(len(graph.operators))) // 2
    once = sum(costs.operators)
    assert flow_bound(Problem(graph, costs), budget) > once

    def now() -> float:
        nonlocal looks
        looks += 1
        return float(looks)

    # The deadline is checked per operator of the graph, and each check takes one second.
    monkeypatch.setattr(limits, "perf_counter", now)
    assert flow_bound(Problem(graph, costs), budget, Clock(10.0)) == once
    assert looks == 11
