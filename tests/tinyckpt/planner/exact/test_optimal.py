"""The exact planner against exhaustion: a search over all states that shares no code with it."""

import heapq
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf, isinf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples, require, with_fixtures
from tests.tinyckpt.planner.test_published_figures import CHAIN_8
from tinyckpt.base.spec import Spec
from tinyckpt.core.costs import Costs, evaluations, flops
from tinyckpt.core.graph import DataNode, Graph, Operator
from tinyckpt.documents.verifier import check_graph
from tinyckpt.networks.cnn_graphs import vgg16
from tinyckpt.planner.exact import benders as stage_solver
from tinyckpt.planner.exact import optimal
from tinyckpt.planner.exact.optimal import BUILD_ORDER_SCOPE, plan_optimal
from tinyckpt.planner.model.cost_models import custom, in_nodes
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import cost_bound

WITH_BUDGET = {"revolve", "rotor", "dtr", "greedy"}
HEURISTICS = ["store_all", "recompute_all", "sqrt_n", "revolve", "rotor", "dtr", "greedy"]


@pytest.fixture(autouse=True)
def _solver() -> None:
    require("ortools")


# All schedules, by exhaustion --------------------------------------------------------------------


def cheapest(start: Any, is_goal: Callable[[Any], bool], moves: Callable[[Any], Any]) -> float:
    """Return the least cost from start to a goal, by Dijkstra; infinite if there is no path."""
    best = {start: 0.0}
    heap = [(0.0, 0, start)]
    while heap:
        spent, _, state = heapq.heappop(heap)
        if spent > best[state]:
            continue
        if is_goal(state):
            return spent
        for cost, after in moves(state):
            if spent + cost < best.get(after, inf):
                best[after] = spent + cost
                heapq.heappush(heap, (spent + cost, len(best), after))
    return inf


def exhaustive(graph: Graph, costs: Costs, budget: int, build_order: bool = False) -> float:
    """Return the least cost of all schedules by the rules of ``replay``.

    A state is the block of each value, 0 if it is not there; how many operators have had their
    first evaluation, if that must be in build order; and which have had their only one, of those
    that may not be evaluated twice. A view is in the block that its base had.
    """
    size, count = costs.data, len(graph.operators)
    views = costs.memory_unit == "bytes"
    base: list[int | None] = [node.view_of if views else None for node in graph.data]
    owner = list(range(len(graph.data)))  # the value whose memory a value shares; sources weigh 0
    for node in graph.data:
        parent = base[node.id]
        if parent is not None:
            owner[node.id] = owner[parent]
    weight = [0 if graph.data[own].is_source else size[own] for own in owner]
    results = [data for data in graph.outputs if not graph.data[data].is_source]

    def memory(blocks: tuple[int, ...]) -> int:
        return sum({block: weight[data] for data, block in enumerate(blocks) if block}.values())

    def canonical(blocks: list[int]) -> tuple[int, ...]:
        names: dict[int, int] = {0: 0}
        return tuple(names.setdefault(block, len(names)) for block in blocks)

    def moves(state: tuple[int, tuple[int, ...], int]) -> Iterator[tuple[float, Any]]:
        firsts, blocks, spent = state
        for data, block in enumerate(blocks):
            if block:
                yield 0.0, (firsts, canonical([*blocks[:data], 0, *blocks[data + 1 :]]), spent)
        for index in range(count):
            operator = graph.operators[index]
            if build_order and index > firsts:
                break
            if spent >> index & 1:
                continue
            if any(not blocks[d] and not graph.data[d].is_source for d in operator.inputs):
                continue
            if any(blocks[data] for data in operator.outputs):
                continue
            after, new = list(blocks), max(blocks) + 1
            for data in operator.outputs:
                parent = base[data]
                is_new = parent is None or graph.data[parent].is_source
                after[data] = new if is_new else blocks[parent or 0]
                new += is_new
            made = canonical(after)
            if memory(made) + costs.workspace[index] <= budget:
                begun = max(firsts, index + 1) if build_order else 0
                yield costs.operators[index], (begun, made, spent | operator.once << index)

    def is_goal(state: tuple[int, tuple[int, ...]]) -> bool:
        return all(state[1][data] for data in results) and (not build_order or state[0] == count)

    return cheapest((0, (0,) * len(graph.data), 0), is_goal, moves)


@st.composite
def abstract_graphs(draw: st.DrawFn, largest: int = 12, views: bool = False) -> tuple[Graph, Costs]:
    """Draw a graph without dead operators and costs: fan-out, several outputs, sizes, workspace."""
    count = draw(st.integers(2, largest))
    is_unit = draw(st.booleans())
    data = [DataNode(0, "x", Spec(1, "uint8"), "input", 1)]
    operators: list[Operator] = []
    backward = draw(st.integers(1, count))
    for index in range(count):
        recent = list(range(max(0, len(data) - 5), len(data)))
        inputs = tuple(sorted(draw(st.sets(st.sampled_from(recent), min_size=1, max_size=3))))
        view_of = inputs[-1] if views and draw(st.integers(0, 2)) == 0 else None
        outputs = []
        for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
            nbytes = draw(st.integers(1, 1 if is_unit else 5))
            spec = Spec(nbytes, "uint8")
            own = 0 if view_of is not None else nbytes
            name, role = f"d{len(data)}", "activation"
            node = DataNode(len(data), name, spec, role, own, index, view_of)  # type: ignore[arg-type]
            outputs.append(node.id)
            data.append(node)
        phase: Any = "forward" if index < backward else "backward"
        workspace = draw(st.sampled_from([0, 0, 1, 2]))
        operators.append(
            Operator(index, f"o{index}", "any", inputs, tuple(outputs), phase, workspace=workspace)
        )
    read = {d for operator in operators for d in operator.inputs}
    made = [node.id for node in data[1:]]
    # An operator nobody depends on would be dead: one of its outputs is a result.
    results = {
        operator.outputs[0] for operator in operators if not read.intersection(operator.outputs)
    }
    results |= draw(st.sets(st.sampled_from(made), max_size=2))
    graph = Graph("drawn", tuple(data), tuple(operators), (0,), tuple(sorted(results)))
    check_graph(graph)
    costs = [1 if is_unit else draw(st.integers(0, 9)) for _ in range(count)]
    return graph, custom(graph, costs)


def drawn_budget(graph: Graph, costs: Costs, draw: Any) -> int:
    """Draw a budget from the largest need of one operator to store-all's peak."""
    problem = Problem(graph, costs)
    most = problem.peak(range(len(graph.operators)))
    least = int(problem.needs().max())
    return int(draw(st.integers(least, max(least, most - 1))))


def peak_of(schedule: tc.Schedule, costs: Costs) -> int:
    """Return the peak as ``replay`` counts it."""
    trace = tc.replay(schedule)
    return trace.peak_nodes if costs.memory_unit == "nodes" else trace.peak_bytes


def check(
    graph: Graph, costs: Costs, budget: int, order: str = "free", proves: bool = True
) -> float:
    """Compare the planner, its certificate and the bound with exhaustion; return the optimum.

    The models alone may take too long to prove that no schedule is within the budget: ``proves``.
    """
    expected = exhaustive(graph, costs, budget, order == "build")
    assert cost_bound(Problem(graph, costs), budget) <= expected
    if isinf(expected):
        with pytest.raises(tc.BudgetError, match="which is proven" if proves else "no schedule"):
            plan_optimal(graph, costs, budget=budget, order=order, time_limit=60 if proves else 1)
        return expected
    schedule = plan_optimal(graph, costs, budget=budget, order=order)
    certificate = schedule.certificate
    assert certificate is not None
    assert certificate.cost == certificate.lower_bound == expected
    scoped = certificate.status == "optimal in its class"
    assert certificate.status == "optimal" or (scoped and order == "build")
    assert certificate.scope == (BUILD_ORDER_SCOPE if scoped else "")
    evaluated = [step.operator for step in schedule.steps if isinstance(step, tc.Compute)]
    assert Problem(graph, costs).cost_of(evaluated) == expected
    assert peak_of(schedule, costs) <= budget
    return expected


@pytest.fixture
def models_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small problems reach the models, which the A* search would settle before."""
    monkeypatch.setattr(stage_solver, "DIRECT_STATES", 0)


WITHIN_A_TEST = with_fixtures(40)


@pytest.mark.long
@settings(max_examples=examples(60))
@given(abstract_graphs(), st.data())
def test_optimal_policy_equals_exhaustive_optimum(case: Any, data: Any) -> None:
    graph, costs = case
    budget = drawn_budget(graph, costs, data.draw)
    optimum = check(graph, costs, budget)
    for policy in HEURISTICS:
        budget_size = {"budget": budget} if policy in WITH_BUDGET else {}
        try:
            schedule = tc.plan(graph, policy, costs=costs, **budget_size)
        except tc.BudgetError:
            continue
        if peak_of(schedule, costs) <= budget:
            evaluated = [step.operator for step in schedule.steps if isinstance(step, tc.Compute)]
            assert Problem(graph, costs).cost_of(evaluated) >= optimum


@pytest.mark.long
@WITHIN_A_TEST
@given(abstract_graphs(9), st.data())
@pytest.mark.usefixtures("models_only")
def test_cp_models_equal_exhaustive_optimum(case: Any, data: Any) -> None:
    graph, costs = case
    check(graph, costs, drawn_budget(graph, costs, data.draw), proves=False)


@pytest.mark.long
@WITHIN_A_TEST
@given(abstract_graphs(9), st.data())
def test_build_order_optimum_equals_exhaustive_optimum(case: Any, data: Any) -> None:
    graph, costs = case
    check(graph, costs, drawn_budget(graph, costs, data.draw), "build", proves=False)


def has_view_of_one_of_several(graph: Graph) -> bool:
    """Whether a view shares storage made by an operator of several outputs.

    Then bounds may be too low, since two copies of that memory count once.
    """
    owner = list(range(len(graph.data)))
    for node in graph.data:
        if node.view_of is not None:
            owner[node.id] = owner[node.view_of]
            producer = graph.data[owner[node.id]].producer
            if producer is not None and len(graph.operators[producer].outputs) > 1:
                return True
    return False


@WITHIN_A_TEST
@given(abstract_graphs(6, views=True), st.data(), st.booleans())
def test_optimal_policy_keeps_storage_of_views_alive(case: Any, data: Any, direct: bool) -> None:
    graph, costs = case
    budget = drawn_budget(graph, costs, data.draw)
    with pytest.MonkeyPatch.context() as patch:
        if not direct:
            patch.setattr(stage_solver, "DIRECT_STATES", 0)
        if not has_view_of_one_of_several(graph):
            check(graph, costs, budget, proves=direct)
            return
        optimum = exhaustive(graph, costs, budget)
        message, certificate = "", None
        try:
            certificate = plan_optimal(graph, costs, budget=budget, time_limit=5).certificate
        except tc.BudgetError as error:
            message = str(error)
    if certificate is None:
        assert isinf(optimum) or "which is proven" not in message
        return
    assert certificate.lower_bound <= optimum <= certificate.cost
    assert certificate.status == "heuristic" or certificate.cost == optimum


@pytest.mark.long
@settings(max_examples=examples(15))
@given(abstract_graphs(8), st.data())
@pytest.mark.parametrize("largest", [10, 10**15])
def test_optimal_policy_is_exact_with_large_and_fractional_costs(
    largest: int, case: Any, data: Any
) -> None:
    graph, costs = case
    number = st.floats(0, 10) if largest == 10 else st.integers(0, 10**14)
    drawn = [data.draw(number) for _ in graph.operators]
    costs = replace(costs, operators=tuple(drawn))
    budget = drawn_budget(graph, costs, data.draw)
    optimum = exhaustive(graph, costs, budget)
    for states in (stage_solver.DIRECT_STATES, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stage_solver, "DIRECT_STATES", states)
            if isinf(optimum):
                with pytest.raises(tc.BudgetError):
                    plan_optimal(graph, costs, budget=budget, time_limit=1)
                continue
            certificate = plan_optimal(graph, costs, budget=budget).certificate
        assert certificate is not None
        assert certificate.lower_bound <= optimum * (1 + 1e-12)
        # Costs of many digits are rounded down in the models.
        assert certificate.cost == pytest.approx(optimum, rel=1e-12 if states else 1e-7)
        assert certificate.lower_bound == pytest.approx(optimum, rel=1e-12 if states else 1e-7)


@pytest.mark.parametrize("direct", [True, False])
def test_optimal_policy_on_chain_matches_known_optima(
    direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimal, "uniform_chain", lambda graph, costs: None)  # no closed form
    if not direct:
        monkeypatch.setattr(stage_solver, "DIRECT_STATES", 0)
        monkeypatch.setattr(optimal, "flow_bound", lambda problem, budget, deadline: 0.0)
    graph = tc.networks.chain(8)
    costs = in_nodes(evaluations(graph))
    found = {}
    for budget in CHAIN_8:
        certificate = plan_optimal(graph, costs, budget=budget).certificate
        assert certificate is not None
        assert certificate.status == "optimal"
        found[budget] = certificate.cost
    assert found == CHAIN_8
    with pytest.raises(tc.BudgetError, match="proven to be the smallest there is") as caught:
        plan_optimal(graph, costs, budget=2)
    assert (caught.value.smallest, caught.value.proven) == (3, True)


def test_longer_chain_is_certified_by_closed_form() -> None:
    graph = tc.networks.chain(40)
    schedule = tc.plan(graph, "optimal", budget="9 nodes", time_limit=1)
    assert str(schedule.certificate) == (
        "optimal: no schedule within 9 nodes costs less than 119 evaluations"
    )
    assert tc.replay(schedule).peak_nodes <= 9
    assert tc.replay(schedule).evaluations == 119  # 41 + t(41, 7), t = 3 * 41 - C(10, 2)


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize(
    ("unit", "budget", "free", "build"),
    [("nodes", 12, 41, 42), ("nodes", 11, 42, 45), ("bytes", 25030, 44, 45)],
)
def test_optimal_policy_on_residual_network_matches_known_optima(
    unit: str, budget: int, free: int, build: int
) -> None:
    graph = tc.networks.residual_mlp(3, 8).graph()
    costs = in_nodes(evaluations(graph)) if unit == "nodes" else evaluations(graph)
    for order, expected in (("free", free), ("build", build)):
        schedule = plan_optimal(graph, costs, budget=budget, order=order)
        certificate = schedule.certificate
        assert certificate is not None
        assert certificate.cost == certificate.lower_bound == expected
        assert certificate.status == ("optimal" if order == "free" else "optimal in its class")
        assert peak_of(schedule, costs) <= budget


@pytest.mark.long
def test_optimal_policy_with_view_of_multi_output_operator_is_within_budget() -> None:
    graph = vgg16(batch_normed=True)
    costs = flops(graph)
    budget = Problem(graph, costs).peak(range(len(graph.operators))) * 3 // 4
    schedule = plan_optimal(graph, costs, budget=budget, time_limit=2.0)
    assert peak_of(schedule, costs) <= budget
    certificate = schedule.certificate
    assert certificate is not None
    assert certificate.lower_bound <= certificate.cost


def test_interrupt_returns_incumbent_with_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(stage_solver, "solved", interrupted)
    monkeypatch.setattr(stage_solver, "DIRECT_STATES", 0)
    graph = tc.networks.residual_mlp(3, 8).graph()
    certificate = plan_optimal(graph, evaluations(graph), budget=25030).certificate
    assert certificate is not None
    assert certificate.status == "heuristic"
    assert certificate.lower_bound <= 44 <= certificate.cost
    with pytest.raises(KeyboardInterrupt):
        plan_optimal(graph, in_nodes(evaluations(graph)), budget=10)


def test_optimal_policy_rejects_invalid_options(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = tc.networks.chain(4)
    costs = evaluations(graph)
    with pytest.raises(tc.ScheduleError, match="order='any'; expected 'free' or 'build'"):
        plan_optimal(graph, costs, order="any")
    with pytest.raises(tc.ScheduleError, match="it must be more than 0 seconds"):
        plan_optimal(graph, costs, time_limit=0)
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(tc.BackendError, match=r"pip install 'tinyckpt\[optimal\]'"):
        plan_optimal(graph, costs)
