"""Rotor and the offload DP on chains longer than their tables: cuts spread over the whole chain."""

from collections.abc import Callable

import pytest

import tinyckpt as tc
from tinyckpt.core.costs import evaluations
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.planner.chain_dp.revolve import advances
from tinyckpt.planner.model.cost_models import in_nodes
from tinyckpt.planner.offload.offload_dp import priced_plans
from tinyckpt.storage.offload_steps import insert_offloads


def equal(n: int) -> Graph:
    return tc.networks.chain(n, 1)


def ascending(n: int) -> Graph:
    def widening(x: tc.Var) -> tc.Var:
        for _ in range(n):
            x = tc.tanh(tc.pad(x, (0, 8)))
        return tc.sum(x)

    return tc.differentiate(tc.build(widening, tc.Spec(8)), value=False)


def descending(n: int) -> Graph:
    def narrowing(x: tc.Var) -> tc.Var:
        for _ in range(n):
            x = tc.tanh(x[8:])
        return tc.sum(x)

    return tc.differentiate(tc.build(narrowing, tc.Spec(8 * n + 8)), value=False)


def uneven(n: int) -> Graph:
    def bumpy(x: tc.Var) -> tc.Var:
        for layer in range(n):
            x = tc.tanh(tc.pad(x, (0, layer * 37 % 64 + 1)))[: 8 + layer * 7919 % 100]
        return tc.sum(x)

    return tc.differentiate(tc.build(bumpy, tc.Spec(8)), value=False)


def peak(schedule: tc.Schedule) -> int:
    return tc.replay(schedule).peak_bytes


def check_within_every_budget(graph: Graph) -> None:
    """Plan for half, a quarter and a tenth of store-all's peak, and for sqrt_n's peak."""
    most, least = peak(tc.plan(graph, "store_all")), peak(tc.plan(graph, "sqrt_n"))
    for budget in {max(most // part, least) for part in (2, 4, 10)} | {least}:
        trace = tc.replay(tc.plan(graph, "rotor", budget=budget, time_limit=600))
        assert trace.peak_bytes <= budget
        assert trace.peak_bytes > 0.9 * budget  # what may be held is used


@pytest.mark.long
@pytest.mark.parametrize(
    "n", [405, *(pytest.param(n, marks=pytest.mark.nightly) for n in (395, 1_000))]
)
def test_rotor_near_optimum_at_half_memory_beyond_table_length(n: int) -> None:
    graph = tc.networks.chain(n)
    costs = in_nodes(evaluations(graph))
    trace = tc.replay(tc.plan(graph, "rotor", costs=costs, budget=n // 2 + 1))
    assert trace.peak_nodes <= n // 2 + 1
    optimum = n + 1 + advances(n + 1, n // 2 - 1)
    assert trace.evaluations <= 1.01 * optimum


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "n",
    [
        pytest.param(n, marks=pytest.mark.long if n == 100 else pytest.mark.nightly)
        for n in (100, 250, 395, 405, 1_000, 2_000)
    ],
)
@pytest.mark.parametrize("make", [equal, ascending, descending, uneven])
def test_rotor_meets_each_budget_that_sqrt_n_meets(make: Callable[[int], Graph], n: int) -> None:
    check_within_every_budget(make(n))


@pytest.mark.long
def test_offloaded_states_are_spread_over_long_chain() -> None:
    # Of 100 cuts at one end, the other end's 300 values would be one stage, held at once.
    graph = equal(400)
    plans = list(priced_plans(graph, evaluations(graph)))
    moved = [insert_offloads(from_order(graph, plan.order), plan.moved) for plan in plans[-20:]]
    assert min(map(peak, moved)) <= 16 * 8


def test_rotor_smallest_peak_comes_from_whole_table_if_half_has_no_plan() -> None:
    graph = tc.networks.branching(3, 8).graph()
    most = peak(tc.plan(graph, "store_all"))
    with pytest.raises(tc.BudgetError, match=r"the smallest peak it finds is 8\.0 KiB") as caught:
        tc.plan(graph, "rotor", budget=most * 2 // 5)
    smallest = caught.value.smallest
    assert smallest is not None
    assert smallest < most
    assert peak(tc.plan(graph, "rotor", budget=smallest)) == smallest
    assert peak(tc.plan(graph, "rotor")) == smallest
