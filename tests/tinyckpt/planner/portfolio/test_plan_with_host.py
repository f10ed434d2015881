"""Planning with a host: certificates, monotonicity in budget and bandwidth, and time limits."""

from fractions import Fraction
from itertools import count
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tests.tinyckpt.planner.exact.test_optimal import abstract_graphs
from tinyckpt.base import deadline as limits
from tinyckpt.base.tree import leaves
from tinyckpt.core.costs import Costs
from tinyckpt.planner.exact import offload_astar as hosted
from tinyckpt.planner.model.binomial_bound import fewest_evaluations
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import smallest_budget
from tinyckpt.planner.offload import offload_saved_values as saving
from tinyckpt.planner.portfolio import offload_candidates as candidates
from tinyckpt.planner.portfolio import plan_with_host as planning

CHAIN = tc.networks.chain(4)
LONG = tc.networks.chain(12)  # too long to be searched


def test_plan_with_host_reports_note_certificate_and_options() -> None:
    plan = tc.plan_with_host(CHAIN, tc.Link(512, engines=1), budget="1.5 KiB")
    assert plan.note == "10 evaluations, 1 of them recomputations; 2 values moved; 2 stalled"
    assert str(plan.certificate) == (
        "optimal within 1.5 KiB among schedules that evaluate backward operators once and move "
        "no results: 12 evaluations"
    )
    assert plan.options == {"budget": 1536, "bandwidth": 512, "latency": 0, "engines": 1}
    assert tc.timed(plan, tc.Link(512, engines=1), budget=1536).makespan == 12


@pytest.mark.parametrize("graph", [CHAIN, LONG])
def test_plan_with_host_with_infinite_bandwidth_recomputes_nothing(graph: tc.TrainingGraph) -> None:
    for nodes in (3, 4, 6):
        plan = tc.plan_with_host(graph, tc.Link(inf), budget=nodes * 512)
        assert tc.replay(plan).recomputations == 0
        assert plan.certificate is not None
        assert plan.certificate.status == "optimal"


def test_plan_with_host_respects_host_budget() -> None:
    for graph in (CHAIN, LONG):
        plan = tc.plan_with_host(graph, tc.Link(inf), budget=2048, host_budget=512)
        assert max(tc.replay(plan).host) <= 512
        assert plan.options["host_budget"] == 512


def test_plan_with_host_rejects_infeasible_budgets() -> None:
    for graph in (CHAIN, LONG):
        with pytest.raises(
            tc.BudgetError, match=r"is within 1\.0 KiB; any needs at least 1\.5 KiB"
        ):
            tc.plan_with_host(graph, tc.Link(1), budget=1024)
    with pytest.raises(tc.ScheduleError, match="counted in bytes"):
        tc.plan_with_host(CHAIN, tc.Link(1), budget="4 nodes")


LARGER = [pytest.param(n, marks=pytest.mark.nightly) for n in (33, 64)]


@pytest.mark.parametrize("n", [1, 2, 5, 9, 16, *LARGER])
def test_chains_without_bandwidth_equal_revolve_at_every_budget(n: int) -> None:
    graph = tc.networks.chain(n)
    for nodes in range(3, n + 3):
        plan = tc.plan_with_host(graph, tc.Link(0), budget=nodes * 512, time_limit=inf)
        assert tc.replay(plan).evaluations == fewest_evaluations(n, nodes)
        assert plan.certificate is not None
        assert plan.certificate.status == "optimal"


@pytest.mark.long
@settings(max_examples=examples(8))
@given(training_graphs(6), st.integers(0, 60))
def test_infinite_bandwidth_recomputes_nothing_if_offloading_suffices(case: Any, more: int) -> None:
    graph = case[0]
    moved = tc.replay(tc.plan(graph, "offload"))
    plan = tc.plan_with_host(graph, tc.Link(inf), budget=moved.peak_bytes + more)
    assert tc.replay(plan).recomputations == 0
    assert plan.certificate is not None
    assert plan.certificate.cost <= moved.evaluations


def grid_of(graph: tc.Graph, costs: Costs | None, budgets: list[int], links: list[tc.Link]) -> None:
    """Check plans for ascending budgets and links: certificates, peaks, and monotone makespans."""
    before = [inf] * len(budgets)
    for link in links:
        spans = []
        for budget in budgets:
            try:
                plan = tc.plan_with_host(graph, link, budget=budget, costs=costs, time_limit=inf)
            except tc.BudgetError:
                spans.append(inf)
                continue
            line = tc.timed(plan, link, costs, budget=budget)
            known = plan.certificate
            assert known is not None
            assert line.peak_bytes <= budget
            assert known.lower_bound <= known.cost == float(line.makespan)
            assert "cut short" not in plan.note
            spans.append(float(line.makespan))
        assert spans == sorted(spans, reverse=True), link
        assert all(own <= earlier for own, earlier in zip(spans, before, strict=True)), link
        before = spans


@pytest.mark.long
def test_makespan_never_rises_with_resources_on_long_chain() -> None:
    links = [tc.Link(bandwidth) for bandwidth in (0, 100, 256, 512, inf)]
    grid_of(LONG, None, [nodes * 512 for nodes in (3, 5, 8, 12)], links)


@pytest.mark.long
@settings(max_examples=examples(8))
@given(abstract_graphs(8), st.integers(0, 2), st.integers(1, 2))
def test_makespan_never_rises_with_resources_on_searched_graphs(
    case: Any, latency: int, engines: int
) -> None:
    graph, costs = case
    least = smallest_budget(Problem(graph, costs))
    links = [tc.Link(bandwidth, latency, engines) for bandwidth in (0, 1, Fraction(5, 2), inf)]
    grid_of(graph, costs, [least, least + 1, least + 2, least + 4], links)


@pytest.mark.long
@settings(max_examples=examples(5))
@given(training_graphs(4), st.integers(1, 2))
def test_makespan_never_rises_with_resources_on_larger_graphs(case: Any, engines: int) -> None:
    graph = case[0]
    peak = tc.replay(tc.plan(graph, "store_all")).peak_bytes
    links = [tc.Link(bandwidth, 0, engines) for bandwidth in (0, 40, 300, inf)]
    grid_of(graph, None, [peak * part // 10 for part in (5, 6, 8, 9)], links)


@pytest.mark.nightly
@pytest.mark.parametrize("limit", [0, 0.02, 0.5])
@pytest.mark.parametrize("graph", [tc.networks.chain(8), LONG, tc.networks.mlp(4, 8).graph()])
def test_plan_with_host_respects_time_limit(
    graph: tc.Graph, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A clock that goes on by a millisecond whenever someone looks at it.
    clock = count(0, 0.001)
    for module, name in (
        (limits, "perf_counter"),
        (planning, "monotonic"),
        (hosted, "monotonic"),
    ):
        monkeypatch.setattr(module, name, lambda: next(clock))
    budget = tc.replay(tc.plan(graph, "store_all")).peak_bytes * 7 // 10
    begin = next(clock)
    plan = tc.plan_with_host(graph, tc.Link(200), budget=budget, time_limit=limit)
    assert next(clock) - begin <= limit + 0.05
    assert tc.timed(plan, tc.Link(200), budget=budget).peak_bytes <= budget
    if limit == 0:
        assert plan.note.endswith("; the search was cut short, more time may find more")


@pytest.mark.long
@settings(max_examples=examples(15))
@given(training_graphs(6), st.sampled_from((0, 50, inf)))
def test_offloaded_run_is_bitwise_equal(case: Any, bandwidth: float) -> None:
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


@pytest.mark.parametrize("host_budget", ["3 nodes", "2 KiB total"])
def test_host_budget_must_be_bytes(host_budget: str) -> None:
    with pytest.raises(tc.BudgetError, match="expected bytes, such as '4 GiB'"):
        tc.plan_with_host(CHAIN, tc.Link(1), budget=1536, host_budget=host_budget)


class Passes:
    """A clock that advances by a second for each pass over a schedule."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        made = ("run_policy", "replay", "hoist_fetches", "offload_order")
        moved = ("insert_offloads", "replay", "hoist_fetches")
        for module, name in (
            *((candidates, name) for name in made),
            *((planning, name) for name in ("replay", "timed")),
            *((saving, name) for name in moved),
        ):
            monkeypatch.setattr(module, name, self.counted(getattr(module, name)))
        monkeypatch.setattr(limits, "perf_counter", lambda: self.now)

    def counted(self, real: Any) -> Any:
        def function(*args: Any, **options: Any) -> Any:
            self.now += 1
            return real(*args, **options)

        return function


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("seconds", [0, 5, pytest.param(60, marks=pytest.mark.nightly)])
def test_no_pass_over_long_schedule_begins_without_time(
    seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = tc.networks.chain(100)
    passes = Passes(monkeypatch)
    plan = tc.plan_with_host(graph, tc.Link(256), budget="50%", time_limit=seconds)
    assert passes.now <= max(seconds, 2)  # a schedule is made, and timed, in any case
    assert plan.note.endswith("more time may find more")
    free = tc.plan_with_host(graph, tc.Link(256), budget="50%", time_limit=inf)
    assert free.certificate is not None
    assert plan.certificate is not None
    assert free.certificate.cost <= plan.certificate.cost
    assert "more time" not in free.note


def test_expired_time_limit_tries_smallest_peak_only() -> None:
    # Nothing is within the budget without copies, and no time is left for any with them.
    graph = tc.networks.mlp(4, 8).graph()
    peak = tc.replay(tc.plan(graph, "store_all")).peak_bytes
    least = tc.replay(tc.plan(graph, "offload")).peak_bytes
    for budget in (least, (least + peak) // 2):
        plan = tc.plan_with_host(graph, tc.Link(200), budget=budget, time_limit=0)
        assert tc.timed(plan, tc.Link(200), budget=budget).peak_bytes <= budget
