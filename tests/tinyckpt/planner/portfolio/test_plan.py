"""``plan`` with budgets: peak within the budget, cost monotone in it, lower bounds valid."""

import dataclasses
from math import inf, isqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.base.tree import leaves
from tinyckpt.core.costs import evaluations, flops
from tinyckpt.networks import network_from_text
from tinyckpt.planner.model.binomial_bound import fewest_evaluations, uniform_chain
from tinyckpt.planner.model.cost_models import in_nodes
from tinyckpt.planner.model.vectorised_lowering import eliminate_dead_recomputations


def test_plan_is_certified_optimal_on_chains_at_every_budget() -> None:
    for n in (8, 16):
        graph = tc.networks.chain(n)
        for budget in range(3, n + 3):
            schedule = tc.plan(graph, budget=f"{budget} nodes")
            trace = tc.replay(schedule)
            assert trace.peak_nodes <= budget
            assert trace.evaluations == fewest_evaluations(n, budget)
            assert schedule.certificate is not None
            assert schedule.certificate.status == "optimal"
            assert schedule.certificate.gap == 0


def test_uniform_chain_is_recognised() -> None:
    graph = tc.networks.chain(5)
    assert uniform_chain(graph, evaluations(graph)) == (5, 512)
    uneven = tc.cost.custom(graph, [*range(1, 12)])
    assert uniform_chain(graph, uneven) is None
    other = tc.differentiate(tc.build(lambda x: tc.half_squared_norm(tc.tanh(x)), tc.Spec(3)))
    assert uniform_chain(other, evaluations(other)) is None


def test_source_sizes_do_not_affect_chain_bounds() -> None:
    graph = tc.networks.chain(6)
    heavy = dataclasses.replace(graph.data[0], spec=tc.Spec(8192), nbytes=65536)
    graph = dataclasses.replace(graph, data=(heavy, *graph.data[1:]))
    for budget in range(3, 9):
        assert tc.lower_bound(graph, 512 * budget) == fewest_evaluations(6, budget)
        certificate = tc.plan(graph, budget=512 * budget).certificate
        assert certificate is not None
        assert (certificate.status, certificate.budget) == ("optimal", 512 * budget)


def test_plan_rejects_schedule_above_budget() -> None:
    graph = tc.networks.chain(16)

    def deaf(graph: tc.Graph, costs: tc.Costs, budget: int) -> tc.Schedule:
        return tc.plan(graph)

    with pytest.raises(tc.BudgetError, match="planned a peak of 18 nodes, which is more than the"):
        tc.plan(graph, deaf, budget="4 nodes")
    with pytest.raises(tc.ScheduleError, match="takes no budget; give it a keyword"):
        tc.plan(graph, lambda graph, costs: tc.plan(graph), budget="4 nodes")
    with pytest.raises(tc.BudgetError, match="revolve planned a peak of 12 nodes"):
        tc.plan(graph, "revolve", slots=10, budget="4 nodes")
    forward = tc.build(lambda x: tc.tanh(tc.sin(x)), tc.Spec(4))
    for policy in ("revolve", "rotor", "chen_budget", "greedy", "dtr"):
        with pytest.raises(tc.BudgetError):
            tc.plan(forward, policy, budget=1)
    nothing = tc.build(lambda x: x, tc.Spec(()))
    for policy in ("revolve", "rotor", "chen_budget", "greedy", "dtr"):
        assert len(tc.plan(nothing, policy, budget=0)) == 0
    assert "0 evaluations" in str(tc.explain(tc.plan(nothing)))


def test_offloading_schedule_has_no_certificate() -> None:
    graph = tc.networks.transformer(1, 8, 2, 4, 1, 11).graph()
    schedule = tc.plan(graph, "saveable", rule="offload_dot_with_no_batch_dims")
    assert any(isinstance(step, tc.Offload) for step in schedule.steps)
    with pytest.raises(tc.ScheduleError, match="moves values to the host has no certificate"):
        tc.certify(schedule)
    explanation = tc.explain(schedule, time_limit=0.2)
    assert explanation.certificate is None
    assert "no bound on the optimum is known" in str(explanation)


def layers_and_an_early_view(p: Any, x: Any) -> Any:
    h, early = x, None
    for layer in range(8):
        h = tc.tanh(h @ p)
        early = h if layer == 2 else early
    return tc.mean(h * h), early.T  # type: ignore[attr-defined]


@pytest.mark.long
@pytest.mark.parametrize("policy", ["dtr", "greedy", "rotor", "revolve", "chen_budget"])
def test_view_as_result_keeps_storage_within_budget(policy: str) -> None:
    specs = tc.Spec((8, 8)), tc.Spec((16, 8))
    graph = tc.differentiate(tc.build(layers_and_an_early_view, *specs))
    largest = tc.replay(tc.plan(graph)).peak_bytes
    for percent in range(50, 100, 5):
        budget = largest * percent // 100
        try:
            schedule = tc.plan(graph, policy, budget=budget)
        except tc.BudgetError:
            continue
        assert tc.replay(schedule).peak_bytes <= budget


@pytest.mark.long
@settings(max_examples=examples(150))
@given(training_graphs(), st.sampled_from(["dtr", "greedy", "rotor", "revolve", "chen_budget"]),
       st.integers(30, 100), st.booleans())  # fmt: skip
def test_budgeted_policies_stay_within_budget_or_raise(
    case: Any, policy: str, percent: int, in_values: bool
) -> None:
    graph, _ = case
    costs = in_nodes(flops(graph)) if in_values else flops(graph)
    try:
        schedule = tc.plan(graph, policy, budget=f"{percent} %", costs=costs)
    except tc.BudgetError as error:
        message = str(error)
    else:
        message = ""
        certificate = schedule.certificate
        assert certificate is not None
        trace = tc.replay(schedule)
        assert (trace.peak_nodes if in_values else trace.peak_bytes) <= certificate.budget
        assert certificate.lower_bound <= certificate.cost
    assert "planned a peak of" not in message  # planners know themselves what does not fit


@pytest.mark.long
def test_policies_leave_no_dead_recomputation() -> None:
    for graph in (tc.networks.resnet50(1, 32), tc.networks.transformer(2, 8, 2, 4, 1, 11).graph()):
        for policy in ("revolve", "chen_recursive", "rotor"):
            schedule = tc.plan(graph, policy)
            order = [s.operator for s in schedule.steps if isinstance(s, tc.Compute)]
            assert eliminate_dead_recomputations(graph, order) == order


def test_plan_rejects_invalid_time_limits() -> None:
    graph = tc.networks.residual_mlp(2, 4).graph()
    for wrong in (-1, float("nan"), None, "5", True):
        with pytest.raises(tc.ScheduleError, match="number of seconds, 0 or more"):
            tc.plan(graph, budget=0.9, time_limit=wrong)


def test_equivalent_budget_spellings_give_same_peak() -> None:
    graph = tc.networks.chain(16)  # store-all: 18 values of 512 bytes
    for budget in (
        "4608 B", "4.5 KiB", "9 nodes", 4608, 0.5, "50 %", "0.00461 MB", "4608", np.int64(4608),
        np.float32(0.5),
    ):  # fmt: skip
        assert tc.replay(tc.plan(graph, budget=budget)).peak_bytes == 4608
    for wrong in (
        "much",
        "3 pounds",
        -1,
        1.5,
        True,
        "120 %",
        "3.5 nodes",
        "",
        float("nan"),
        "9" * 400 + " B",
    ):
        with pytest.raises(tc.BudgetError, match="expected '64 MiB'"):
            tc.plan(graph, budget=wrong)


@pytest.mark.long
def test_infeasible_budget_error_names_smallest_peak() -> None:
    graph = tc.networks.chain(16)
    with pytest.raises(tc.BudgetError, match="the smallest peak found is 3 nodes, which is proven"):
        tc.plan(graph, budget="2 nodes")
    with pytest.raises(tc.BudgetError) as caught:
        tc.plan(graph, budget=1024)
    assert (caught.value.smallest, caught.value.proven) == (1536, True)
    assert tc.lower_bound(graph, 1024) == inf
    assert tc.replay(tc.plan(graph, budget=1536)).peak_bytes == 1536


def test_plan_budget_requires_policy_that_takes_one() -> None:
    graph = tc.networks.residual_mlp(4, 8, 64).graph()
    for policy in ("revolve", "rotor", "dtr", "greedy", "chen_budget"):
        schedule = tc.plan(graph, policy, budget=0.7)
        assert tc.replay(schedule).peak_bytes <= 0.7 * tc.replay(tc.plan(graph)).peak_bytes
        assert schedule.policy == policy
        assert schedule.certificate is not None
        assert schedule.certificate.lower_bound <= schedule.certificate.cost
    with pytest.raises(
        tc.ScheduleError, match=r"the policy sqrt_n takes no budget; .* one of chen_budget"
    ):
        tc.plan(graph, "sqrt_n", budget=0.5)
    with pytest.raises(tc.ScheduleError, match="has no option 'effort'; it has time_limit, prog"):
        tc.plan(graph, budget=0.5, effort=3)


def test_certificate_reads_as_sentence() -> None:
    graph = tc.networks.chain(16)
    assert str(tc.plan(graph, budget="9 nodes").certificate) == (
        "optimal: no schedule within 9 nodes costs less than 42 evaluations"
    )
    assert tc.certify(tc.plan(graph, "sqrt_n")).status == "optimal"
    network = tc.networks.residual_mlp(4, 8, 64).graph()
    text = str(tc.certify(tc.plan(network, "sqrt_n")))
    assert text.startswith("heuristic: ")
    assert "above the optimum" in text


@pytest.mark.long
def test_frontier_costs_fall_as_peaks_rise() -> None:
    graph = tc.networks.residual_mlp(3, 8, 64).graph()
    frontier = tc.frontier(graph, time_limit=60)
    assert tc.frontier(graph, time_limit=60).points == frontier.points
    peaks = [point.peak for point in frontier.points]
    costs = [point.cost for point in frontier.points]
    assert peaks == sorted(set(peaks))
    assert costs == sorted(set(costs), reverse=True)
    assert frontier.complete
    assert costs[-1] == len(graph.operators)
    for point in frontier.points[:: max(1, len(peaks) // 6)]:
        trace = tc.replay(tc.from_order(graph, point.order.tolist()))
        assert (trace.peak_bytes, trace.evaluations) == (point.peak, point.cost)
    assert "found by" in str(frontier)
    half = frontier.schedule("60 %")
    assert tc.replay(half).peak_bytes <= 0.6 * peaks[-1]
    with pytest.raises(tc.BudgetError, match="this frontier counts memory in bytes"):
        frontier.schedule("9 nodes")


@pytest.mark.long
def test_value_and_grad_with_budget_is_bitwise_equal() -> None:
    network = tc.networks.residual_mlp(3, 8, 64)
    arrays = network.arrays()
    value, gradients = tc.value_and_grad(network.loss, budget="70 %")(*arrays)
    expected, others = tc.value_and_grad(network.loss)(*arrays)
    assert value == expected
    for ours, theirs in zip(leaves(gradients), leaves(others), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.long
def test_explain_reports_cheaper_schedule_in_same_memory() -> None:
    graph = tc.networks.residual_mlp(2, 8, 64).graph()
    wasteful = tc.plan(graph, "recompute_all")
    assert "Within the same memory " in str(tc.explain(wasteful, time_limit=60))


@pytest.mark.long
def test_interrupted_frontier_returns_points_found() -> None:
    graph = tc.networks.residual_mlp(2, 8, 64).graph()
    calls = []

    def interrupt(policy: str, points: int) -> None:
        calls.append(policy)
        if len(calls) == 3:
            raise KeyboardInterrupt

    frontier = tc.frontier(graph, flops(graph), progress=interrupt)
    assert not frontier.complete
    assert len(calls) == 3
    assert tc.frontier(graph, flops(graph), time_limit=60).complete  # asked again, it goes on
    assert tc.replay(frontier.schedule(10**9)).recomputations == 0


@pytest.mark.long
def test_frontier_without_time_has_store_all_only() -> None:
    graph = tc.networks.residual_mlp(2, 8, 64).graph()
    frontier = tc.frontier(graph, time_limit=0)
    assert not frontier.complete
    assert len(frontier.points) == 1
    more = tc.frontier(graph, time_limit=60)
    assert more.complete
    assert len(more.points) > 1


@pytest.mark.long
@settings(max_examples=examples(12))
@given(training_graphs(), st.sampled_from([evaluations, flops]), st.booleans())
def test_plan_cost_never_rises_with_budget_on_random_graphs(
    case: Any, unit: Any, in_values: bool
) -> None:
    graph, arguments = case
    costs = in_nodes(unit(graph)) if in_values else unit(graph)
    store_all = tc.replay(tc.plan(graph))
    largest = store_all.peak_nodes if in_values else store_all.peak_bytes
    before = inf
    for share in (0.2, 0.4, 0.55, 0.7, 0.85, 1.0):
        budget = int(share * largest)
        bound = tc.lower_bound(graph, budget, costs)
        try:
            schedule = tc.plan(graph, budget=budget, costs=costs, time_limit=3)
        except tc.BudgetError as error:
            smallest = error.smallest
        else:
            smallest = None
        if smallest is not None:
            assert smallest > budget
            assert before == inf
            continue
        trace = tc.replay(schedule)
        assert (trace.peak_nodes if in_values else trace.peak_bytes) <= budget
        assert schedule.certificate is not None
        cost = schedule.certificate.cost
        assert bound <= cost <= before
        before = cost
    assert before == sum(costs.operators)
    result = tc.run(schedule, *arguments, check_nan=False)
    assert result.trace == trace


def test_plan_near_optimum_on_long_chain() -> None:
    graph = tc.networks.chain(2000)
    root = isqrt(2000)
    schedule = tc.plan(graph, budget=f"{2 * root} nodes", time_limit=8)
    trace = tc.replay(schedule)
    assert trace.peak_nodes <= 2 * root
    assert trace.evaluations <= 1.01 * fewest_evaluations(2000, 2 * root)
    assert np.array_equal(trace.schedule.steps[:1], [tc.Compute(0)])


@pytest.mark.long
def test_lower_bound_finds_best_moment_of_long_graph() -> None:
    graph = network_from_text("residual:300x8")[0]
    bound = tc.lower_bound(graph, 0.5, flops(graph))
    assert bound == 27753303.0  # a sample and a finer one alone end at 27731520


@pytest.mark.parametrize("budget", ["50 %", None, [], float("nan")])
def test_point_of_frontier_is_chosen_by_a_number(budget: Any) -> None:
    frontier = tc.frontier(tc.networks.chain(4), nodes=True)
    with pytest.raises(tc.BudgetError, match="expected a number"):
        frontier.within(budget)
