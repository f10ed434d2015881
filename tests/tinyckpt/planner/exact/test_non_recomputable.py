"""Operators evaluated only once, against exhaustion: bounds, heuristics and the exact planner."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples, require, with_fixtures
from tests.random_dags import with_once
from tests.tinyckpt.planner.exact.test_optimal import (
    abstract_graphs,
    check,
    drawn_budget,
    exhaustive,
    models_only,
)
from tinyckpt.base.spec import Spec
from tinyckpt.core.costs import Costs, evaluations
from tinyckpt.core.graph import Graph
from tinyckpt.planner.model.cost_models import cost_of, custom
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import cost_bound, smallest_budget

__all__ = ["models_only"]  # a fixture


@pytest.fixture
def _solver() -> None:
    require("ortools")


@st.composite
def chains_with_once(draw: st.DrawFn, longest: int = 5) -> tuple[Graph, Costs]:
    """Draw a short chain with ``once`` marks, sizes and costs: there, less memory costs more."""
    layers = draw(st.integers(3, longest))
    chain = tc.networks.chain(layers)
    count = len(chain.operators)
    sizes = draw(st.lists(st.integers(1, 4), min_size=len(chain.data), max_size=len(chain.data)))
    data = [
        replace(node, spec=Spec(size, "uint8"), nbytes=size)
        for node, size in zip(chain.data, sizes, strict=True)
    ]
    marks = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=3))
    operators = [replace(operator, once=operator.id in marks) for operator in chain.operators]
    graph = replace(chain, data=tuple(data), operators=tuple(operators), constants={})
    costs = draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    return graph, custom(graph, costs)


@st.composite
def graphs_with_once(draw: st.DrawFn, largest: int = 10) -> tuple[Graph, Costs]:
    """Draw any small graph with ``once`` marks, views included, and costs."""
    plain, costs = draw(abstract_graphs(largest, views=True))
    return draw(with_once(plain)), costs


CASES = st.one_of(chains_with_once(), graphs_with_once())
SMALLER = st.one_of(chains_with_once(3), graphs_with_once(8))
WITHIN_A_TEST = with_fixtures(15)


@pytest.mark.long
@settings(max_examples=examples(150))
@given(CASES, st.data())
def test_lower_bound_with_once_never_exceeds_exhaustive_optimum(case: Any, data: Any) -> None:
    graph, costs = case
    budget = drawn_budget(graph, costs, data.draw)
    optimum = exhaustive(graph, costs, budget)
    assert cost_bound(Problem(graph, costs), budget) <= optimum
    if optimum < inf:
        assert smallest_budget(Problem(graph, costs)) <= budget


@pytest.mark.long
@settings(max_examples=examples(15))
@given(chains_with_once(), st.data())
def test_plan_with_once_is_optimal_on_short_chains(case: Any, data: Any) -> None:
    graph, costs = case
    budget = drawn_budget(graph, costs, data.draw)
    optimum = exhaustive(graph, costs, budget)
    if optimum == inf:
        assert cost_bound(Problem(graph, costs), budget) == inf
        with pytest.raises(tc.BudgetError):
            tc.plan(graph, costs=costs, budget=budget)
    else:
        assert cost_of(tc.plan(graph, costs=costs, budget=budget), costs) == optimum
        for online in ("greedy", "dtr"):
            assert cost_of(tc.plan(graph, online, costs=costs, budget=budget), costs) >= optimum


@pytest.mark.long
@settings(max_examples=examples(40))
@given(CASES, st.data())
@pytest.mark.usefixtures("_solver")
def test_optimal_policy_with_once_equals_exhaustive_optimum(case: Any, data: Any) -> None:
    check(*case, drawn_budget(*case, data.draw))


@WITHIN_A_TEST
@given(SMALLER, st.data())
@pytest.mark.usefixtures("_solver", "models_only")
def test_cp_models_with_once_equal_exhaustive_optimum(case: Any, data: Any) -> None:
    check(*case, drawn_budget(*case, data.draw), proves=False)


@WITHIN_A_TEST
@given(SMALLER, st.data())
@pytest.mark.usefixtures("_solver")
def test_build_order_optimum_with_once_equals_exhaustive_optimum(case: Any, data: Any) -> None:
    check(*case, drawn_budget(*case, data.draw), "build", proves=False)


@pytest.mark.long
def test_once_operators_raise_least_evaluations() -> None:
    plain = tc.networks.chain(6)
    nodes = range(3, 9)

    def fewest(*names: str) -> list[float]:
        """Return the fewest evaluations by exhaustion; check that the bound is nearly as high."""
        marked = [replace(o, once=o.name in names) for o in plain.operators]
        graph = replace(plain, operators=tuple(marked))
        least = [exhaustive(graph, evaluations(graph), count * 512) for count in nodes]
        bounds = [tc.lower_bound(graph, count * 512) for count in nodes]
        assert all(
            low == high or (low, high) == (18, 23) for low, high in zip(bounds, least, strict=True)
        )
        return least

    assert fewest() == [28, 18, 16, 15, 14, 13]
    assert fewest("f1") == [inf, 23, 16, 15, 14, 13]
    assert fewest("f2", "f4") == [inf, inf, 16, 15, 14, 13]
    assert fewest("l", "b6") == [28, 18, 16, 15, 14, 13]  # nobody would evaluate them again
