"""Offload-and-recompute DP: plans are legal, within the budget, bitwise equal, near the optima."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tests.tinyckpt.planner.exact.chain_table import LEAST
from tinyckpt.base.deadline import Clock, OutOfTimeError
from tinyckpt.base.tree import leaves
from tinyckpt.core.lowering import from_order
from tinyckpt.planner.offload import offload_dp as priced
from tinyckpt.planner.offload.offload_dp import priced_plans
from tinyckpt.planner.portfolio.plan_with_host import HostRequest, fastest_known
from tinyckpt.storage.offload_steps import insert_offloads

BYTES = 512
GAPS = {4: Fraction(11, 10), 5: Fraction(13, 12)}  # of the makespan to the least


@settings(max_examples=examples(10))
@given(training_graphs(6))
def test_offload_dp_plans_are_bitwise_equal(case: Any) -> None:
    graph, args = case
    costs = tc.cost.flops(graph)
    expected = tc.run(tc.plan(graph, "store_all"), *args)
    for plan in list(priced_plans(graph, costs))[:4]:
        schedule = insert_offloads(from_order(graph, plan.order), plan.moved)
        assert plan.cost == sum(costs.operators[index] for index in plan.order)
        found = tc.run(schedule, *args)
        assert found.trace.peak_bytes == tc.replay(schedule).peak_bytes
        results = [leaves((result.value, result.gradients)) for result in (expected, found)]
        for one, other in zip(*results, strict=True):
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize("n", [2, 5, 16])
def test_higher_link_price_moves_fewer_states(n: int) -> None:
    graph = tc.networks.chain(n)
    plans = list(priced_plans(graph, tc.cost.evaluations(graph)))
    assert len(set(plans)) == len(plans)
    assert all(0 < len(plan.moved) < n for plan in plans)
    spread = {len(plan.moved) for plan in plans}
    assert n == 2 or len(spread) > 1


def test_offload_dp_plans_are_deterministic() -> None:
    graph = tc.networks.chain(12)
    costs = tc.cost.evaluations(graph)
    assert list(priced_plans(graph, costs)) == list(priced_plans(graph, costs, Clock(60)))
    with pytest.raises(OutOfTimeError):
        list(priced_plans(graph, costs, Clock(0)))


def test_offload_dp_caps_total_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = tc.networks.chain(12)
    costs = tc.cost.evaluations(graph)
    every = list(priced_plans(graph, costs))
    monkeypatch.setattr(priced, "MAX_PRICED_EVALUATIONS", 100)
    some = list(priced_plans(graph, costs))
    assert 0 < len(some) < len(every)
    assert sum(len(plan.order) for plan in some) <= 100


def test_graphs_without_chain_have_no_offload_dp_plans() -> None:
    for graph in (tc.networks.chain(1), tc.build(lambda x: tc.tanh(x), tc.Spec((2,)))):
        costs = tc.cost.evaluations(graph)
        assert all(plan.moved for plan in priced_plans(graph, costs))


@pytest.mark.long
@pytest.mark.parametrize("n", [4, 5])
def test_known_schedules_are_near_optima_without_astar(n: int) -> None:
    # The largest gap is on the page docs/offload.md.
    graph = tc.networks.chain(n)
    costs = tc.cost.evaluations(graph)
    worst = Fraction(1)
    for of, least in LEAST.items():
        _, engines, host, evaluation, copy = of
        if of[0] != n or host is not None or not copy or engines == 1:
            continue
        link = tc.Link(Fraction(BYTES * evaluation, copy), engines=engines)
        for nodes, ticks in enumerate(least, 3):
            line, is_whole = fastest_known(HostRequest(graph, costs, link, nodes * BYTES), Clock())
            assert is_whole
            assert line.peak_bytes <= nodes * BYTES
            assert line.makespan >= Fraction(ticks, evaluation)
            worst = max(worst, line.makespan / Fraction(ticks, evaluation))
    assert worst == GAPS[n]
