"""Cost models: numbers of any kind are normalised, everything else raises one clear error."""

from dataclasses import replace
from fractions import Fraction
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.core.costs import evaluations
from tinyckpt.planner.model.cost_models import cost_of, custom

POLICIES = ("greedy", "dtr", "rotor", "revolve", "chen_budget", "sqrt_n", "knapsack")


@pytest.fixture(scope="module")
def residual() -> tc.TrainingGraph:
    """Return one graph for all kinds of numbers: what is searched for one, all others find."""
    return tc.networks.residual_mlp(3, 8, 64).graph()


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize("kind", [np.int8, np.int32, np.uint8, np.float16, np.float32, Fraction])
def test_costs_of_any_type_become_python_numbers(kind: Any, residual: tc.TrainingGraph) -> None:
    graph = residual
    numbers = [7 + operator.id % 90 for operator in graph.operators]
    plain = custom(graph, numbers)
    costs = custom(graph, [kind(number) for number in numbers])
    assert set(map(type, costs.operators)) <= {int, float}
    assert costs == plain
    for policy in (*POLICIES, None):
        options = {} if policy in ("sqrt_n", "knapsack") else {"budget": 0.95}
        certificates = [
            tc.certify(tc.plan(graph, policy, costs=each, **options), each)
            for each in (costs, plain)
        ]
        assert certificates[0] == certificates[1]


def test_sizes_of_any_integer_type_become_python_integers() -> None:
    graph = tc.networks.chain(40)
    sizes = tuple(np.int16(1000) for _ in graph.data)
    costs = tc.Costs((1,) * len(graph.operators), sizes, (np.int8(0),) * len(graph.operators))
    assert tc.plan(graph, "greedy", costs=costs, budget=20_000).certificate is not None
    assert {type(size) for size in (*costs.data, *costs.workspace)} == {int}


def test_costs_are_accepted_by_operator_name() -> None:
    graph = tc.networks.chain(2)
    named = {operator.name: operator.id for operator in graph.operators}
    assert custom(graph, named).operators == (0, 1, 2, 3, 4)
    with pytest.raises(
        tc.ScheduleError, match="'loss' is not an operator of chain:2; keys are operator names"
    ):
        custom(graph, {**named, "loss": 1})
    with pytest.raises(
        tc.ScheduleError, match="1 of 5 operators of chain:2 have no cost, such as l"
    ):
        custom(graph, {name: 1 for name in named if name != "l"})


@pytest.mark.parametrize(("times", "unit"), [(1, "FLOPs"), (2, "cost")])
def test_given_costs_equal_to_flops_have_unit_flops(times: int, unit: str) -> None:
    graph = tc.networks.mlp(2, 4).graph()
    measured = [replace(each, cost=float(times * each.flops)) for each in graph.operators]
    assert tc.cost.given(replace(graph, operators=tuple(measured))).unit == unit


@pytest.mark.parametrize("wrong", [nan, inf, -1, 1e300, 10**400, "1", None, True, 1j, [1]])
def test_invalid_cost_is_refused(wrong: Any) -> None:
    graph = tc.networks.chain(2)
    with pytest.raises(tc.ScheduleError, match="finite number"):
        custom(graph, [1, 1, wrong, 1, 1])
    with pytest.raises(tc.ScheduleError, match="costs: that of operator"):
        tc.Costs((1, 1, wrong, 1, 1), (8,) * 6, (0,) * 5)


@pytest.mark.parametrize("wrong", [-1, 0.5, nan, "8", None, True, 2**60, 2**63, 10**30])
def test_invalid_size_is_refused(wrong: Any) -> None:
    for data, workspace in (((8, wrong), (0,)), ((8, 8), (wrong,))):
        with pytest.raises(
            tc.ScheduleError, match=r"a size in|planners support less than 1,152,921"
        ):
            tc.Costs((1,), data, workspace)


@pytest.mark.long
@settings(max_examples=examples(40))
@given(training_graphs(largest=8), st.data())
def test_plans_exist_for_costs_of_any_magnitude(case: Any, data: Any) -> None:
    graph, _ = case
    magnitude = st.sampled_from([0, 5e-324, 1e-310, 1e-30, 1, 3.7, 10**15 + 1, 1e30, 9.9e299])
    costs = custom(graph, [data.draw(magnitude) for _ in graph.operators])
    policy = data.draw(st.sampled_from([*POLICIES, None]))
    options = {} if policy in ("sqrt_n", "knapsack") else {"budget": 0.8}
    try:
        schedule = tc.plan(graph, policy, costs=costs, **options)
    except tc.BudgetError as error:
        assert "smallest peak" in str(error) or "needs" in str(error)  # noqa: PT017
        return
    certificate = tc.certify(schedule, costs)
    assert certificate.lower_bound <= certificate.cost == cost_of(schedule, costs)


def test_document_with_overflowing_workspace_is_refused(tmp_path: Any) -> None:
    graph = tc.networks.chain(2)
    path = tmp_path / "graph.json"
    tc.save_graph(graph, path)
    text = path.read_text()
    for workspace in (2**63 - 1, 2**62):
        path.write_text(text.replace('"flops": 192', f'"flops": 192, "workspace": {workspace}', 1))
        assert str(workspace) in path.read_text()
        with pytest.raises(tc.FormatError, match="together have too many bytes"):
            tc.load_graph(path)


def test_default_costs_are_evaluations() -> None:
    graph = tc.networks.chain(3)
    assert cost_of(tc.plan(graph), evaluations(graph)) == 7


@pytest.mark.parametrize("wrong", [-5, float("nan"), np.float64("inf"), 10**301])
def test_flops_of_users_rule_are_validated(wrong: float) -> None:
    mine = tc.Primitive(
        "mine", lambda xp, x: x + 0, lambda x: (x,), flops=lambda inputs, outputs: wrong
    )
    graph = tc.build(lambda x: tc.apply(mine, x), tc.Spec(2))
    with pytest.raises(tc.ScheduleError, match=r"mine_1 is .*; it must be a finite number of 0"):
        tc.cost.flops(graph)


def test_flops_of_users_rule_become_python_numbers() -> None:
    mine = tc.Primitive(
        "mine", lambda xp, x: x + 0, lambda x: (x,), flops=lambda inputs, outputs: np.int64(7)
    )
    (cost,) = tc.cost.flops(tc.build(lambda x: tc.apply(mine, x), tc.Spec(2))).operators
    assert type(cost) is int
    assert cost == 7


@pytest.mark.parametrize("wrong", [3, "x", None, [], np.ones(3)])
def test_cost_models_name_arguments_of_another_kind(wrong: Any) -> None:
    graph = tc.networks.chain(2)
    of_graph = (tc.cost.evaluations, tc.cost.flops, tc.cost.given, tc.cost.traffic)
    for model in (*of_graph, lambda _: tc.cost.custom(wrong, [1.0])):
        with pytest.raises(tc.ScheduleError, match=r"expected a Graph, as .* makes; got a"):
            model(wrong)
    with pytest.raises(tc.ScheduleError, match="expected a Trace"):
        tc.cost.measured(wrong)
    with pytest.raises(tc.ScheduleError, match="expected a Schedule"):
        tc.cost.cost_of(wrong, tc.cost.flops(graph))
    costed = [lambda: tc.cost.cost_of(tc.plan(graph), wrong), lambda: tc.cost.in_nodes(wrong)]
    if wrong is not None:  # the graph's own costs
        costed.append(lambda: tc.timed(tc.plan(graph), tc.Link(1), wrong))
    for each in costed:
        with pytest.raises(tc.ScheduleError, match=r"expected a Costs, as .* makes; got a"):
            each()


@pytest.mark.parametrize("wrong", [3, "x", None, b"x"])
def test_custom_costs_are_one_number_per_operator(wrong: Any) -> None:
    with pytest.raises(tc.ScheduleError, match="expected one number per operator, or a dict"):
        tc.cost.custom(tc.networks.chain(2), wrong)


@pytest.mark.parametrize(
    ("field", "wrong", "match"),
    [
        ("operators", 7, "operators=7; expected one number for each"),
        ("operators", {"f1": 2}, "operators=.*; expected one number for each"),
        ("data", len, "data=.*; expected one number for each"),
        ("memory_unit", "GB", "memory_unit='GB'; expected 'bytes' or 'nodes'"),
        ("memory_unit", [], "memory_unit=.*; expected 'bytes' or 'nodes'"),
    ],
)
def test_field_of_wrong_type_is_refused(field: str, wrong: Any, match: str) -> None:
    with pytest.raises(tc.ScheduleError, match=match):
        replace(evaluations(tc.networks.chain(2)), **{field: wrong})
