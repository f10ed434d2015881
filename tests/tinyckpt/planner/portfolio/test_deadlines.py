"""Time limits: what they are of, and what is said when they are up."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

import tinyckpt as tc
from tinyckpt.base import deadline as limits
from tinyckpt.base.deadline import Clock, OutOfTimeError, Pace
from tinyckpt.core.costs import evaluations, flops
from tinyckpt.core.cuts import expected_length
from tinyckpt.planner.chain_dp import chen_budget
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.portfolio import pareto as points
from tinyckpt.planner.portfolio import plan as planning
from tinyckpt.planner.portfolio.candidates import as_it_is
from tinyckpt.planner.portfolio.pareto import certificate_of

WAYS = ("greedy", "dtr", "blocks", "rotor", "chen_budget", "revolve")


class Watch:
    """A clock that goes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(limits, "perf_counter", lambda: self.now)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.mark.long
def test_there_may_be_no_end_to_the_time() -> None:
    graph = tc.networks.residual_mlp(4, 16).graph()
    for way in WAYS:
        schedule = tc.plan(graph, way, budget=0.8, time_limit=inf)
        assert schedule.steps == tc.plan(graph, way, budget=0.8).steps
    endless = tc.plan(graph, budget=0.8, time_limit=inf)
    assert tc.frontier(graph).complete
    assert tc.plan(graph, budget=0.8).certificate == endless.certificate


@pytest.mark.parametrize("way", [None, *WAYS])
def test_what_a_budget_is_takes_of_the_time(
    way: str | None, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = tc.networks.residual_mlp(4, 16).graph()
    parse_budget = planning.parse_budget

    def slowly(*arguments: Any) -> Any:
        watch.now += 3.0
        return parse_budget(*arguments)

    monkeypatch.setattr(planning, "parse_budget", slowly)
    with pytest.raises(tc.BudgetError, match=r"in the time given|found nothing in 3 s"):
        tc.plan(graph, way, budget=0.5, time_limit=3)


def test_a_policy_without_a_clock_is_not_begun_where_another_took_longer_than_is_left(
    watch: Watch,
) -> None:
    graph = tc.networks.residual_mlp(8, 16).graph()
    problem, pace = Problem(graph, flops(graph)), Pace()
    begun = []

    def plan_slowly(graph: tc.Graph, costs: tc.Costs) -> tc.Schedule:
        begun.append(watch.now)
        watch.now += 2.0
        return tc.plan(graph, costs=costs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(tc.POLICIES, "sqrt_n", replace(tc.POLICIES["sqrt_n"], plan=plan_slowly))
        attempts = as_it_is(problem, "sqrt_n", {}, pace)
        clock = Clock(5.0)
        assert [len(list(attempts(clock))) for _ in range(2)] == [1, 1]
        with pytest.raises(OutOfTimeError):
            list(attempts(clock))  # one second is left
    assert begun == [0.0, 2.0]
    # A schedule that is so many times as long takes so many times as long.
    length = expected_length(graph) / len(graph.operators)
    assert length > 1
    with pytest.raises(OutOfTimeError):
        list(as_it_is(problem, "recompute_all", {}, pace)(Clock(1.99 * length)))
    assert len(list(as_it_is(problem, "recompute_all", {}, pace)(Clock(2.01 * length)))) == 1


def test_chen_budget_begins_no_size_that_it_has_no_time_for(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = tc.networks.residual_mlp(8, 16).graph()
    sizes = []
    segmented_order = chen_budget.segmented_order

    def slowly(*arguments: Any) -> Any:
        sizes.append(watch.now)
        watch.now += 2.0
        return segmented_order(*arguments)

    everything = tc.plan(graph, "chen_budget")
    monkeypatch.setattr(chen_budget, "segmented_order", slowly)
    tc.plan(graph, "chen_budget", time_limit=7)
    assert sizes == [0.0, 2.0, 4.0]
    with pytest.raises(tc.BudgetError, match="found nothing in 7 s"):
        # What three sizes do not find, all of them do.
        tc.plan(graph, "chen_budget", budget=tc.replay(everything).peak_bytes, time_limit=7)


@pytest.mark.long
def test_the_bound_of_a_schedule_of_a_frontier_is_looked_for_within_its_time_limit() -> None:
    graph = tc.networks.residual_mlp(8, 16).graph()
    found = tc.frontier(graph)
    patient, hurried = found.schedule(0.7), found.schedule(0.7, time_limit=0)
    assert hurried.steps == patient.steps
    assert patient.certificate is not None
    assert hurried.certificate is not None
    assert hurried.certificate.lower_bound == len(graph.operators)
    assert hurried.certificate.lower_bound < patient.certificate.lower_bound
    with pytest.raises(tc.PolicyOptionError, match="time_limit = -1"):
        found.schedule(0.7, time_limit=-1)


def test_no_bound_is_looked_for_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, graph = tc.networks.chain(16), tc.networks.residual_mlp(8, 16).graph()
    closed_form = certificate_of(chain, evaluations(chain), inf, 9 * 512, Clock(0))
    assert closed_form.lower_bound == 42

    def never(*arguments: Any) -> Any:
        raise AssertionError("the time is up")

    monkeypatch.setattr(points, "cost_bound", never)
    costs = flops(graph)
    assert certificate_of(graph, costs, inf, 1, Clock(0)).lower_bound == sum(costs.operators)
