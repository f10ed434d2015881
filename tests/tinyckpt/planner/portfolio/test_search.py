"""Portfolio search: dominates every policy, monotone in the budget, independent of history."""

import os
from bisect import bisect_right
from contextlib import suppress
from dataclasses import replace
from math import inf
from threading import Event, Thread
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from benchmarks.leaderboard.instances import graph_of, instance_of
from tests.conftest import PROFILE, examples
from tests.random_dags import graphs_of_views, training_graphs
from tinyckpt.base.deadline import NO_DEADLINE, Clock
from tinyckpt.core.costs import evaluations, flops
from tinyckpt.core.graph import DataNode, Operator
from tinyckpt.networks import branching, network_from_text
from tinyckpt.planner.chain_dp.rockmate_dp import RockmatePlans
from tinyckpt.planner.model.cost_models import in_nodes
from tinyckpt.planner.model.liveness import Problem, problem_of
from tinyckpt.planner.portfolio import search as portfolio
from tinyckpt.planner.portfolio.resolve_policy import options_of
from tinyckpt.planner.portfolio.search import Search

PATIENT = 1000.0  # seconds: nothing here is cut by the time
LARGER = ["unet:8"] if PROFILE == "deep" else []
# No solver is in the portfolio, and all that it compares stays on the device.
SINGLE = [name for name in tc.POLICIES if name not in ("optimal", "offload")]


def cost_of_single(policy: str, graph: tc.Graph, costs: tc.Costs, budget: int) -> float:
    """Return the cost of a policy with default options within a budget; infinite if none."""
    try:
        if "budget" in options_of(tc.POLICIES[policy]):
            schedule = tc.plan(graph, policy, budget=budget, costs=costs)
        else:
            schedule = tc.plan(graph, policy, costs=costs)
    except tc.BudgetError:
        return inf
    trace = tc.replay(schedule)
    peak = trace.peak_nodes if costs.memory_unit == "nodes" else trace.peak_bytes
    return tc.cost.cost_of(schedule, costs) if peak <= budget else inf


def check_dominance(graph: tc.Graph, costs: tc.Costs, budgets: list[int]) -> None:
    """Check that the portfolio costs no more than any policy, nor than a smaller budget."""
    before = inf
    found = Search(Problem(graph, costs)).run(PATIENT)
    assert found.complete
    for budget in sorted(budgets):
        singles = {policy: cost_of_single(policy, graph, costs, budget) for policy in SINGLE}
        cost = inf
        if budget < found.points[0].peak:
            with pytest.raises(tc.BudgetError, match=r"no schedule of .* was found within"):
                found.schedule(budget)
        else:
            certificate = found.schedule(budget).certificate
            assert certificate is not None
            cost = certificate.cost
        assert cost <= before
        assert cost <= min(singles.values()), singles
        before = cost


@pytest.mark.nightly
@settings(max_examples=examples(8))
@given(
    st.one_of(training_graphs().map(lambda case: case[0]), graphs_of_views()),
    st.sampled_from([evaluations, flops]),
    st.booleans(),
    st.lists(st.integers(20, 100), min_size=2, max_size=2),
)
def test_portfolio_dominates_policies_on_random_graphs(
    graph: tc.Graph, unit: Any, in_values: bool, percents: list[int]
) -> None:
    costs = in_nodes(unit(graph)) if in_values else unit(graph)
    trace = tc.replay(tc.plan(graph))
    largest = trace.peak_nodes if in_values else trace.peak_bytes
    check_dominance(graph, costs, [largest * percent // 100 for percent in percents])


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("text", ["residual:4x8", "branching:3x8", *LARGER])
def test_portfolio_dominates_policies_on_networks(text: str) -> None:
    graph = network_from_text(text)[0]
    largest = tc.replay(tc.plan(graph)).peak_bytes
    shares = (40.7, 58.3, 81.9)
    check_dominance(graph, evaluations(graph), [int(largest * share / 100) for share in shares])


@pytest.mark.nightly
def test_budgets_between_levels_reach_known_costs() -> None:
    # Of the settings of greedy eviction, not the first is what meets so small a budget.
    schedule = tc.plan(network_from_text("unet:8")[0], budget=0.4, time_limit=PATIENT)
    assert tc.replay(schedule).evaluations <= 244
    graph = branching(6, 8, 128).graph()
    schedule = tc.plan(graph, budget=0.6, time_limit=PATIENT)
    assert tc.replay(schedule).evaluations <= 106


@pytest.mark.nightly
@settings(max_examples=examples(4))
@given(training_graphs(5), st.integers(20, 100))
def test_frontier_is_independent_of_request_history(case: Any, percent: int) -> None:
    graph, costs = case[0], flops(case[0])
    expected = Search(Problem(graph, costs)).run(PATIENT)
    assert expected.complete
    budget = tc.replay(tc.plan(graph)).peak_bytes * percent // 100
    in_parts = Search(Problem(graph, costs))
    for share in (0.0, 0.01, 0.02, PATIENT):
        found = in_parts.run(share, budget=budget)
    assert [repr(point) for point in found.points] == [repr(point) for point in expected.points]
    orders = zip(found.points, expected.points, strict=True)
    assert all(ours.order.tolist() == theirs.order.tolist() for ours, theirs in orders)


@pytest.mark.long
def test_failed_search_is_incomplete_and_resumable() -> None:
    graph = tc.networks.residual_mlp(2, 8, 64).graph()
    expected = tc.frontier(tc.networks.residual_mlp(2, 8, 64).graph(), time_limit=PATIENT)

    def fail(policy: str, points: int) -> None:
        if policy == "greedy":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tc.frontier(graph, progress=fail)
    assert not tc.frontier(graph, time_limit=0).complete
    again = tc.frontier(graph, time_limit=PATIENT)
    assert again.complete
    assert list(map(repr, again.points)) == list(map(repr, expected.points))


@pytest.mark.long
def test_concurrent_searches_agree() -> None:
    graph = tc.networks.residual_mlp(2, 8, 64).graph()
    found: list[str] = []

    def work(budget: float) -> None:
        found.append(str(tc.frontier(graph, time_limit=PATIENT)))
        schedule = tc.plan(graph, budget=budget, time_limit=PATIENT)
        found.append(f"{budget} {schedule.certificate}")

    threads = [Thread(target=work, args=(budget,)) for budget in (0.8, 0.9) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    assert len(set(found)) == 3


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are of POSIX")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_process_plans_while_thread_of_parent_searches() -> None:
    graph = tc.networks.residual_mlp(1, 8, 64).graph()
    begun, forked = Event(), Event()

    def progress(policy: str, points: int) -> None:
        begun.set()
        assert forked.wait(PATIENT)

    searching = Thread(target=tc.frontier, args=(graph,), kwargs={"progress": progress})
    searching.start()
    assert begun.wait(PATIENT)
    child = os.fork()
    if not child:  # the thread that searches is not in this process
        is_whole = False
        with suppress(BaseException):
            is_whole = tc.frontier(graph, time_limit=60).complete
        os._exit(not is_whole)
    forked.set()
    searching.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.long
def test_progress_callback_may_plan() -> None:
    graph = tc.networks.residual_mlp(1, 8, 64).graph()
    inner = []

    def progress(policy: str, points: int) -> None:
        if not inner:
            inner.append(tc.frontier(graph, time_limit=PATIENT))

    assert tc.frontier(graph, time_limit=PATIENT, progress=progress).complete
    assert inner[0].complete


@pytest.mark.parametrize("policy", ["greedy", "dtr", "rotor", "revolve", None])
def test_zero_time_limit_is_respected_by_every_policy(policy: str | None) -> None:
    graph = tc.networks.residual_mlp(40, 8, 64).graph()
    with pytest.raises(
        tc.BudgetError, match=r"in 0 s; give it more|only store_all was tried; give it more"
    ):
        tc.plan(graph, policy, budget=0.95, time_limit=0)


def test_long_search_respects_time_limit() -> None:
    graph = network_from_text("transformer:4x256")[0]
    begin = perf_counter()
    with pytest.raises(tc.BudgetError, match=r"within 321.6 MiB.*proven to be impossible"):
        tc.plan(graph, budget=0.3, time_limit=0.5)
    search = portfolio.search_of(problem_of(graph, evaluations(graph)))
    assert not search.complete
    assert search.spent <= perf_counter() - begin


def test_too_long_schedules_are_rejected_before_planning() -> None:
    graph = tc.networks.chain(5_000)
    with pytest.raises(tc.BudgetError, match="about 12,507,501 evaluations") as caught:
        tc.plan(graph, budget="3 nodes")
    assert caught.value.smallest is not None
    assert tc.lower_bound(graph, f"{caught.value.smallest} nodes") <= 5_000_000
    assert tc.lower_bound(graph, f"{caught.value.smallest - 1} nodes") > 5_000_000
    for policy, options in (("recompute_all", {}), ("revolve", {"slots": 1})):
        with pytest.raises(tc.ScheduleError, match=r"[\d,]+ evaluations; the limit is 5,000"):
            tc.plan(graph, policy, **options)


def crowded(count: int) -> tc.Graph:
    """Return a graph whose forward values are read much later, and again in the backward pass."""
    data = [DataNode(0, "x", tc.Spec(4), "input", 32)]
    operators = []
    for index in range(2 * count):
        forward = index < count
        reads = {index, max(0, index - count // 8)} if forward else {index, 2 * count - index}
        phase: Any = "forward" if forward else "backward"
        role: Any = "activation" if forward else "cotangent"
        data.append(DataNode(index + 1, f"v{index}", tc.Spec(4), role, 32, index))
        operators.append(Operator(index, f"o{index}", "o", tuple(reads), (index + 1,), phase))
    return tc.Graph(f"crowded:{count}", tuple(data), tuple(operators), (0,), None, 2 * count)


@pytest.mark.long
def test_graphs_with_too_many_crossing_values_have_no_stages() -> None:
    graph = crowded(16_000)
    with pytest.raises(
        tc.ScheduleError, match=r"crowded:16000: 14,001 values cross 12,001 cuts in"
    ):
        tc.plan(graph, "revolve")
    peak = tc.replay(tc.plan(graph, "sqrt_n")).peak_bytes
    tried: list[str] = []

    def stop_after_sqrt_n(policy: str, points: int) -> None:
        tried.append(policy)
        if policy == "sqrt_n":
            raise KeyboardInterrupt

    found = tc.frontier(graph, time_limit=PATIENT, progress=stop_after_sqrt_n)
    assert found.within(peak).policy == "sqrt_n"
    assert set(tried) <= {"store_all", "recompute_all", "sqrt_n"}  # the quick ones come first


@pytest.mark.nightly
def test_cut_search_still_matches_single_policies() -> None:
    graph = network_from_text("unet:8")[0]
    costs = tc.cost.given(graph)
    search = portfolio.search_of(problem_of(graph, costs))
    for number in search.undone():  # the quick ones alone
        search.do(number, NO_DEADLINE, None)
    search.spent = 1e9
    budget = tc.replay(tc.plan(graph)).peak_bytes * 7 // 10
    assert search.has_plan_within(budget)
    own, best = tc.plan(graph, "greedy", budget=budget), tc.plan(graph, budget=budget)
    assert tc.cost.cost_of(best, costs) <= tc.cost.cost_of(own, costs)


def nested_gradients() -> tc.Graph:
    """Return a graph without a backward pass, though with derivatives in it."""

    def loss(w: Any, x: Any) -> Any:
        h = x
        for _ in range(6):
            h = tc.tanh(h @ w)
        return tc.mean(h * h)

    return tc.build(lambda w, x: tc.value_and_grad(loss)(w, x), tc.Spec((8, 8)), tc.Spec((64, 8)))


def read_late() -> tc.Graph:
    """Return a forward-only graph that makes values early and reads them at its end."""

    def function(x: Any) -> Any:
        early = [tc.sin(x * float(number)) for number in range(1, 7)]
        h = x
        for _ in range(6):
            h = tc.tanh(h @ h)
        return sum((h * value for value in early), h)

    return tc.build(function, tc.Spec((8, 8)))


@pytest.mark.long
@pytest.mark.parametrize("make", [nested_gradients, read_late])
def test_forward_only_graphs_cost_no_more_than_single_policies(make: Any) -> None:
    graph = make()
    fitted = 0
    for share in (0.9, 0.75, 0.6, 0.5):
        costs = []
        for policy in ("greedy", "dtr"):
            with suppress(tc.BudgetError):
                costs.append(tc.replay(tc.plan(graph, policy, budget=share)).evaluations)
        if costs:
            fitted += 1
            assert tc.replay(tc.plan(graph, budget=share)).evaluations <= min(costs)
    assert fitted


@pytest.mark.long
def test_quick_tasks_run_within_any_time_limit() -> None:
    # A clock that ends the search after the planners that need no levels of memory.
    graph = tc.networks.residual_mlp(4, 32).graph()
    search = Search(Problem(graph, evaluations(graph)))

    def found(policy: str, points: int) -> None:
        if len(search.done) + 1 == len(search.tasks):
            raise KeyboardInterrupt

    assert not search.run(60.0, found).complete
    peaks = {point.policy: point.peak for point in search.points}
    assert min(peaks.values()) < tc.replay(tc.plan(graph)).peak_bytes
    # What was found does not fit: the time that it took is no reason not to search.
    search.spent = 1000.0
    before = len(search.done)
    search.run(60.0, budget=min(peaks.values()) - 1)
    assert len(search.done) > before


def test_tasks_at_requested_level_run_after_time_is_spent() -> None:
    graph = tc.networks.residual_mlp(4, 32).graph()
    search = Search(Problem(graph, evaluations(graph)))

    def stop(policy: str, points: int) -> None:
        if search.levels is not None:
            raise KeyboardInterrupt

    search.run(60.0, stop)
    assert search.levels is not None
    search.spent = 1000.0
    level = len(search.levels.budgets) // 2
    budget = max(search.levels.budgets[level], min(point.peak for point in search.points))
    search.run(60.0, budget=budget)
    wanted = max(0, bisect_right(search.levels.budgets, budget) - 1)
    own = {number for number, task in enumerate(search.tasks) if task.level == wanted}
    assert own
    assert own <= search.done
    assert not search.complete


def test_blocks_leave_time_to_others_where_they_do_not_repeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = list[float]()

    def plans(self: RockmatePlans, which: int, half: bool, clock: Clock, *_: float) -> Any:
        left.append(clock.left())
        raise KeyboardInterrupt

    monkeypatch.setattr(RockmatePlans, "plans", plans)
    instance = instance_of("joint-llama", None)  # 16 equal layers
    measured = tuple(cost + place for place, cost in enumerate(instance.costs))
    for costs in (instance.costs, measured):
        graph = graph_of(replace(instance, costs=costs))
        Search(Problem(graph, tc.cost.given(graph))).run(1000.0, budget=instance.peak // 2)
    repeating, distinct = left
    assert 900 < repeating <= 1000
    assert 450 < distinct <= 500
