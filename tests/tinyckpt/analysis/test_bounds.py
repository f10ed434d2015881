"""Lower bounds and the clock: what is found by then is true, and nothing more is looked for."""

import tinyckpt as tc
from tinyckpt.analysis.bounds import Dependencies, highest, necessary
from tinyckpt.analysis.limits import ENDLESS, Clock
from tinyckpt.analysis.liveness import Problem
from tinyckpt.cost import flops


def test_the_search_for_a_price_looks_at_the_clock() -> None:
    prices: list[float] = []

    def value_at(price: float) -> float:
        prices.append(price)
        return 1 - (price - 0.25) ** 2

    assert highest(value_at, -1.0, 2.0, ENDLESS) > 1 - 1e-9
    assert len(prices) == 26
    prices.clear()
    assert 0 < highest(value_at, -1.0, 2.0, Clock(0)) <= 1
    assert len(prices) == 2


def test_a_bound_that_was_cut_short_is_no_higher() -> None:
    graph = tc.networks.residual_mlp(8, 16).graph()
    problem = Problem(graph, flops(graph))
    known = Dependencies(problem, necessary(graph))
    budget = problem.peak(range(len(graph.operators))) // 2
    for moment in known.moments():
        assert 0 <= known.bound(moment, budget, Clock(0)) <= known.bound(moment, budget)
