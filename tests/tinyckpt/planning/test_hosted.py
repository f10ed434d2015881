"""Plans with a host: what is known of them, and that more of anything is never slower."""

from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.tree import leaves

CHAIN = tc.networks.chain(4)
LONG = tc.networks.chain(12)  # too long to be searched


def test_a_plan_says_what_it_is() -> None:
    plan = tc.plan_with_host(CHAIN, tc.Link(512, engines=1), budget="1.5 KiB")
    assert plan.note == "9 evaluations, 0 of them recomputations; 3 values moved; 3 stalled"
    assert str(plan.certificate) == (
        "optimal within 1.5 KiB among schedules that evaluate backward operators once and move "
        "forward values, results not: 12 evaluations"
    )
    assert plan.options == {"budget": 1536, "bandwidth": 512, "latency": 0, "engines": 1}
    assert tc.timed(plan, tc.Link(512, engines=1), budget=1536).makespan == 12


@pytest.mark.parametrize("graph", [CHAIN, LONG])
def test_without_bandwidth_it_is_the_best_on_one_device(graph: tc.TrainingGraph) -> None:
    for nodes in (3, 4, 6):
        plan = tc.plan_with_host(graph, tc.Link(0), budget=nodes * 512)
        best = tc.plan(graph, budget=nodes * 512)
        assert plan.certificate is not None
        assert plan.certificate.status == "optimal"
        assert tc.replay(plan).evaluations == tc.replay(best).evaluations


@pytest.mark.parametrize("graph", [CHAIN, LONG])
def test_with_all_bandwidth_nothing_is_recomputed(graph: tc.TrainingGraph) -> None:
    for nodes in (3, 4, 6):
        plan = tc.plan_with_host(graph, tc.Link(inf), budget=nodes * 512)
        assert tc.replay(plan).recomputations == 0
        assert plan.certificate is not None
        assert plan.certificate.status == "optimal"


def test_more_is_never_slower_in_graphs_that_are_not_searched() -> None:
    before = [inf] * 4
    for bandwidth in (0, 100, 256, 512, inf):
        link = tc.Link(bandwidth)
        spans = []
        for nodes in (3, 5, 8, 12):
            plan = tc.plan_with_host(LONG, link, budget=nodes * 512)
            line = tc.timed(plan, link, budget=nodes * 512)
            assert line.peak_bytes <= nodes * 512
            assert plan.certificate is not None
            assert plan.certificate.lower_bound <= plan.certificate.cost == float(line.makespan)
            spans.append(float(line.makespan))
        assert spans == sorted(spans, reverse=True)
        assert all(own <= earlier for own, earlier in zip(spans, before, strict=True))
        before = spans


def test_the_host_has_a_budget_too() -> None:
    for graph in (CHAIN, LONG):
        plan = tc.plan_with_host(graph, tc.Link(inf), budget=2048, host_budget=512)
        assert max(tc.replay(plan).host) <= 512
        assert plan.options["host_budget"] == 512


def test_budgets_that_cannot_be() -> None:
    with pytest.raises(tc.BudgetError, match=r"no schedule of chain:4 is within 1\.0 KiB"):
        tc.plan_with_host(CHAIN, tc.Link(1), budget=1024)
    with pytest.raises(tc.BudgetError, match=r"nothing was found within 1\.0 KiB"):
        tc.plan_with_host(LONG, tc.Link(1), budget=1024)
    with pytest.raises(tc.ScheduleError, match="counted in bytes"):
        tc.plan_with_host(CHAIN, tc.Link(1), budget="4 nodes")


@settings(max_examples=examples(15))
@given(training_graphs(6), st.sampled_from((0, 50, inf)))
def test_executed_to_the_bit(case: Any, bandwidth: float) -> None:
    graph, args = case
    budget = tc.replay(tc.plan(graph, "store_all")).peak_bytes * 4 // 5
    try:
        plan = tc.plan_with_host(graph, tc.Link(bandwidth), budget=budget, time_limit=0.5)
    except tc.BudgetError:
        return
    assert tc.timed(plan, tc.Link(bandwidth), budget=budget).peak_bytes <= budget
    stored, moved = tc.run(tc.plan(graph), *args), tc.run(plan, *args)
    results = [leaves((result.value, result.gradients)) for result in (stored, moved)]
    for before, after in zip(*results, strict=True):
        assert np.asarray(before).tobytes() == np.asarray(after).tobytes()
