"""Local search from the best plan at the requested budget: ``plan(improve=True)``."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.base.deadline import Clock
from tinyckpt.networks import network_from_text
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.model.liveness import problem_of
from tinyckpt.planner.model.plan_request import PlanRequest
from tinyckpt.planner.portfolio import local_improvement
from tinyckpt.planner.portfolio.local_improvement import EVICTIONS


@pytest.mark.nightly
def test_improved_plan_costs_less_within_same_budget() -> None:
    graph = tc.networks.branching(4, 8).graph()
    costs = tc.cost.flops(graph)
    plain = tc.plan(graph, budget="80 %", costs=costs)
    better = tc.plan(graph, budget="80 %", costs=costs, improve=True, time_limit=60)
    assert tc.cost.cost_of(better, costs) < tc.cost.cost_of(plain, costs)
    assert tc.replay(better).peak_bytes <= tc.replay(tc.plan(graph)).peak_bytes * 80 // 100
    assert better.certificate.cost == tc.cost.cost_of(better, costs)
    assert better.certificate.lower_bound == plain.certificate.lower_bound
    assert "recomputations, after local search" in better.note


@pytest.mark.long
@settings(max_examples=examples(15))
@given(training_graphs(), st.integers(40, 100), st.sampled_from(["free", "given"]))
def test_improved_plan_never_costs_more(case: Any, percent: int, order: str) -> None:
    graph, _ = case
    costs = tc.cost.flops(graph)
    request: dict[str, Any] = {"budget": f"{percent} %", "costs": costs, "order": order}
    try:
        plain = tc.plan(graph, **request, time_limit=1)
    except tc.BudgetError:
        return
    better = tc.plan(graph, **request, time_limit=2, improve=True)
    assert tc.replay(better).peak_bytes <= plain.certificate.budget
    assert better.certificate.lower_bound <= better.certificate.cost <= plain.certificate.cost
    evaluated = [step.operator for step in better.steps if isinstance(step, tc.Compute)]
    firsts = list(dict.fromkeys(evaluated))
    assert order == "free" or firsts == sorted(firsts)


@pytest.mark.parametrize("share", [0.5, 0.65, 0.8])
def test_improvement_begins_with_knapsacks_and_evictions_within_this_very_budget(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = network_from_text("residual:8x16")[0]
    problem = problem_of(graph, tc.cost.flops(graph))
    budget = int(share * problem.peak(range(len(graph.operators))))
    costs = list[float]()
    for _, score in EVICTIONS:
        with suppress(tc.BudgetError):
            costs.append(problem.cost_of(Eviction(problem, budget, score).run()))
    for part in range(8):
        saved = tc.plan(graph, "knapsack", activation_memory_budget=part / 8, costs=problem.costs)
        if tc.replay(saved).peak_bytes <= budget:
            costs.append(tc.cost.cost_of(saved, problem.costs))
    request = PlanRequest(graph, problem.costs, budget, Clock(60.0), (), problem)
    worst = tc.certify(tc.plan(graph, "recompute_all"), problem.costs)
    monkeypatch.setattr(local_improvement, "MAX_VAIN_ROUNDS", 0)  # no rounds follow
    unbound = replace(worst, lower_bound=0.0)  # that of another budget would end the search
    given = replace(tc.plan(graph, "recompute_all"), certificate=unbound)
    found = local_improvement.improved(given, request)
    assert tc.replay(found).peak_bytes <= budget
    assert tc.cost.cost_of(found, problem.costs) <= min(costs) < worst.cost
    assert found.policy in ("dtr", "greedy", "knapsack")


def test_graph_with_updates_is_planned_as_before() -> None:
    def step(w: Any, x: Any) -> Any:
        h = tc.tanh(x @ w)
        return tc.assign(w, w - tc.tanh(h) @ h)

    graph = tc.build(step, tc.Spec((4, 4)), tc.Spec((4, 4)))
    plain = tc.plan(graph, budget="100 %")
    assert tc.plan(graph, budget="100 %", improve=True).steps == plain.steps


def test_improve_is_true_or_false() -> None:
    with pytest.raises(tc.PolicyOptionError, match="improve='yes'; expected True or False"):
        tc.plan(tc.networks.chain(4), budget=0.8, improve="yes")
