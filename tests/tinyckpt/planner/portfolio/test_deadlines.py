"""Time limits of planners: no work begins that cannot end in time, and errors name the limit."""

import pickle
import re
from copy import copy
from dataclasses import replace
from math import inf
from typing import Any

import pytest

import tinyckpt as tc
from tinyckpt.base import deadline as limits
from tinyckpt.base.deadline import Clock, OutOfTimeError, Pace
from tinyckpt.core.costs import evaluations, flops
from tinyckpt.core.cuts import expected_length
from tinyckpt.planner.chain_dp import block_options, chen_budget
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.portfolio import pareto as points
from tinyckpt.planner.portfolio import plan as planning
from tinyckpt.planner.portfolio.candidates import policy_attempt
from tinyckpt.planner.portfolio.pareto import certificate_of
from viz.scene import subtitle_of

BUDGETED_POLICIES = ("greedy", "dtr", "blocks", "rotor", "chen_budget", "revolve")


class Watch:
    """A clock that the test advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(limits, "perf_counter", lambda: self.now)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.mark.long
def test_infinite_time_limit_equals_default_result() -> None:
    graph = tc.networks.residual_mlp(4, 16).graph()
    for policy in BUDGETED_POLICIES:
        schedule = tc.plan(graph, policy, budget=0.8, time_limit=inf)
        assert schedule.steps == tc.plan(graph, policy, budget=0.8).steps
    endless = tc.plan(graph, budget=0.8, time_limit=inf)
    assert tc.frontier(graph).complete
    assert tc.plan(graph, budget=0.8).certificate == endless.certificate


@pytest.mark.parametrize("policy", [None, *BUDGETED_POLICIES])
def test_parsing_budget_counts_against_time_limit(
    policy: str | None, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = tc.networks.residual_mlp(4, 16).graph()
    parse_budget = planning.parse_budget

    def slowly(*arguments: Any) -> Any:
        watch.now += 3.0
        return parse_budget(*arguments)

    monkeypatch.setattr(planning, "parse_budget", slowly)
    with pytest.raises(tc.BudgetError, match=r"in the time given|found nothing in 3 s"):
        tc.plan(graph, policy, budget=0.5, time_limit=3)


def test_policy_without_clock_is_skipped_if_predicted_too_slow(
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
        attempts = policy_attempt(problem, "sqrt_n", {}, pace)
        clock = Clock(5.0)
        assert [len(list(attempts(clock))) for _ in range(2)] == [1, 1]
        with pytest.raises(OutOfTimeError):
            list(attempts(clock))  # one second is left
    assert begun == [0.0, 2.0]
    # A schedule that is so many times as long takes so many times as long.
    length = expected_length(graph) / len(graph.operators)
    assert length > 1
    with pytest.raises(OutOfTimeError):
        list(policy_attempt(problem, "recompute_all", {}, pace)(Clock(1.99 * length)))
    assert len(list(policy_attempt(problem, "recompute_all", {}, pace)(Clock(2.01 * length)))) == 1


@pytest.mark.parametrize("seconds", [0.01, 4.0])
def test_blocks_says_what_would_take_too_long(seconds: float, watch: Watch) -> None:
    graph = tc.networks.residual_mlp(8, 16).graph()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(block_options, "ENUMERATION_SECONDS", 1.0)
        with pytest.raises(tc.BudgetError) as error:
            tc.plan(graph, "blocks", budget=0.5, time_limit=seconds)
    said = re.fullmatch(
        r"blocks would take about (\S+) s to enumerate what its blocks can save, and has (\S+) s "
        r"for it; give it more \(time_limit=\.\.\.\)",
        str(error.value),
    )
    assert said is not None, error.value
    assert float(said[2]) <= seconds < float(said[1])
    assert watch.now == 0.0  # it was not begun


def test_chen_budget_begins_no_size_without_time(
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
def test_frontier_schedule_bound_respects_time_limit() -> None:
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


def test_certificate_skips_bound_search_without_time(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, graph = tc.networks.chain(16), tc.networks.residual_mlp(8, 16).graph()
    closed_form = certificate_of(Problem(chain, evaluations(chain)), inf, 9 * 512, Clock(0))
    assert closed_form.lower_bound == 42

    def never(*arguments: Any) -> Any:
        raise AssertionError("the time is up")

    monkeypatch.setattr(points, "cost_bound", never)
    costs = flops(graph)
    assert certificate_of(Problem(graph, costs), inf, 1, Clock(0)).lower_bound == sum(
        costs.operators
    )


def test_certificate_is_computed_when_first_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, bound = [], points.cost_bound

    def counted(*arguments: Any) -> float:
        asked.append(arguments)
        return bound(*arguments)

    monkeypatch.setattr(points, "cost_bound", counted)
    graph = tc.networks.residual_mlp(2, 8).graph()
    planned = [tc.plan(graph, budget="90 %") for _ in range(5)]
    first, *others = [schedule.certificate for schedule in planned]
    assert (first.budget, first.memory_unit, asked) == (others[0].budget, "bytes", [])
    assert planned[0] == planned[1]
    assert subtitle_of(tc.replay(planned[0])).endswith("within 20.3 KiB")  # of a picture
    assert asked == []
    assert repr(first) == repr(first)
    assert len(asked) == 1
    for read in (lambda: others[0] == first, lambda: hash(others[1]) == hash(first),
                 lambda: pickle.loads(pickle.dumps(others[2])) == first,
                 lambda: copy(others[3]) == first):  # fmt: skip
        assert read()
    assert len(asked) == 5
    with pytest.raises(AttributeError, match="'bound'"):
        _ = first.bound
