"""The planning request: a call of ``plan`` parses its budget and flattens its graph once."""

from typing import Any

import pytest

import tinyckpt as tc
from tinyckpt.base.deadline import Clock
from tinyckpt.planner.model import budget as budgets
from tinyckpt.planner.model.liveness import FlatGraph, Problem, problem_of
from tinyckpt.planner.model.plan_request import PlanRequest


def in_build_order(graph: tc.Graph, costs: tc.Costs, budget: int) -> list[int]:
    return [operator.id for operator in graph.operators]


POLICIES = (None, "greedy", "dtr", "blocks", "rotor", "revolve", "chen_budget", in_build_order)
CALLS: list[tuple[Any, dict[str, str]]] = [(policy, {}) for policy in POLICIES]
CALLS.append((None, {"order": "given"}))


@pytest.mark.sampled(8)
@pytest.mark.long
@pytest.mark.parametrize("budget", [1.0, "100 %", "9 MiB", "9 MiB total", "999 nodes"])
@pytest.mark.parametrize(("policy", "options"), CALLS)
def test_plan_builds_problem_and_parses_budget_once(
    policy: Any, options: dict[str, str], budget: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = tc.networks.residual_mlp(2, 4).graph()
    built: list[tc.Graph] = []
    parsed: list[Any] = []
    build, parse = Problem.__init__, budgets.parse_written_budget

    def counted(problem: Problem, graph: tc.Graph, *options: Any) -> None:
        built.append(graph)
        build(problem, graph, *options)

    def noted(budget: Any, forms: str) -> Any:
        parsed.append(budget)
        return parse(budget, forms)

    monkeypatch.setattr(Problem, "__init__", counted)
    monkeypatch.setattr(budgets, "parse_written_budget", noted)
    schedule = tc.plan(graph, policy, budget=budget, **options)
    assert schedule.certificate is not None
    # Others are of the same graph with its operators in another order.
    assert [found for found in built if found is graph] == [graph]
    assert parsed == [budget]


def test_problem_is_shared_while_in_use() -> None:
    graph, other = tc.networks.chain(3), tc.networks.chain(3)
    problem = problem_of(graph, tc.cost.evaluations(graph))
    assert problem_of(graph, tc.cost.evaluations(graph)) is problem
    assert problem_of(graph, tc.cost.flops(graph)) is not problem
    assert problem_of(other, tc.cost.evaluations(other)) is not problem
    assert isinstance(problem.flat, FlatGraph)


def test_request_reserves_time_for_bound_only_within_budget() -> None:
    graph = tc.networks.chain(3)
    problem = problem_of(graph, tc.cost.evaluations(graph))
    for budget, share in ((None, 1.0), (9 * 512, 0.9)):
        request = PlanRequest(graph, problem.costs, budget, Clock(1e6), (), problem)
        assert request.seconds_to_search() == pytest.approx(share * 1e6, rel=1e-3)
    assert PlanRequest(graph, problem.costs, 1, Clock(0), (), problem).seconds_to_search() == 0
