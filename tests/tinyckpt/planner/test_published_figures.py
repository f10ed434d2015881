"""Planners against their papers: closed forms and published figures, as exact integers."""

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tinyckpt.base.spec import Spec
from tinyckpt.base.tree import leaves
from tinyckpt.core.costs import evaluations, flops
from tinyckpt.core.graph import DataNode, Graph, Operator
from tinyckpt.core.schedule import step_text
from tinyckpt.planner.chain_dp.revolve import advances, reversal
from tinyckpt.planner.heuristics.dtr import HEURISTICS
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.model.cost_models import in_nodes, measured, traffic
from tinyckpt.planner.model.liveness import Problem

# n, slots, t(n, slots) by Griewank and Walther's formula.
PAIRS = [
    (5, 2, 6), (10, 2, 20), (10, 3, 15), (20, 3, 45), (50, 5, 122), (56, 5, 140), (100, 5, 316),
    (100, 10, 222), (250, 10, 672), (1000, 10, 3636), (1000, 32, 2405),
]  # fmt: skip
# The optimum on chain(8) for budgets of 3 to 10 nodes, proven by exhaustive search.
CHAIN_8 = {3: 45, 4: 26, 5: 22, 6: 21, 7: 20, 8: 19, 9: 18, 10: 17}


def optimum(n: int, budget: int) -> int:
    """Return the fewest evaluations of chain(n) within a budget of live nodes."""
    return (n + 1) + advances(n + 1, budget - 2)


@pytest.mark.parametrize(("n", "slots", "expected"), PAIRS)
def test_revolve_advances_equal_griewank_walther_closed_form(
    n: int, slots: int, expected: int
) -> None:
    actions = list(reversal(n, slots))
    assert advances(n, slots) == expected
    assert sum(a.last - a.first for a in actions if a.verb == "advance") == expected


def check_slots(n: int, slots: int) -> int:
    """Run the actions on a toy machine; return the number of states written."""
    held, state, written, reversed_to = [], -1, 0, n
    for action in reversal(n, slots):
        while held and held[-1] > action.first:
            held.pop()
        if action.verb == "keep":
            held.append(action.first)
            written += 1
            assert len(held) <= slots
        elif action.verb == "advance":
            assert action.first == held[-1]
            state = action.last
        else:
            assert action.first == reversed_to - 1
            assert action.first in (state, held[-1])
            reversed_to -= 1
    assert reversed_to == 0
    return written


@pytest.mark.parametrize(("n", "slots", "_"), PAIRS)
def test_revolve_never_stores_more_states_than_slots(n: int, slots: int, _: int) -> None:
    check_slots(n, slots)


def fewest_writes(most: int, slots: int) -> list[list[int]]:
    """Return the fewest writes of all optimal schedules by exhaustive search, for all lengths."""
    table = [[0] * (most + 1) for _ in range(slots + 1)]
    for s in range(2, slots + 1):
        for n in range(3, most + 1):
            best = advances(n, s)
            table[s][n] = min(
                1 + table[s - 1][n - k] + table[s][k]
                for k in range(1, n)
                if k + advances(n - k, s - 1) + advances(k, s) == best
            )
    return table


def test_revolve_writes_fewest_states_among_optimal_schedules() -> None:
    assert check_slots(100, 10) == 55
    table = fewest_writes(60, 8)
    for slots in range(2, 9):
        for n in range(3, 61):
            # The initial state is written too; exhaustive search may also leave slots unused.
            fewest = min(table[s][n] for s in range(2, slots + 1)
                         if advances(n, s) == advances(n, slots))  # fmt: skip
            assert check_slots(n, slots) == 1 + fewest, (n, slots)


@pytest.mark.parametrize("policy", ["revolve", "rotor"])
@pytest.mark.parametrize("n", [4, 8, 9, 16])
def test_chain_planners_are_optimal_on_uniform_chains_at_every_budget(policy: str, n: int) -> None:
    graph = tc.networks.chain(n)
    costs = in_nodes(evaluations(graph))
    for budget in range(3, n + 3):
        trace = tc.replay(tc.plan(graph, policy, costs=costs, budget=budget))
        assert trace.evaluations == optimum(n, budget)
        assert trace.peak_nodes <= budget
    with pytest.raises(tc.BudgetError, match=r"3 nodes") as caught:
        tc.plan(graph, policy, costs=costs, budget=2)
    assert caught.value.smallest == 3


def test_binomial_closed_form_equals_exhaustive_search_on_chain_8() -> None:
    assert {b: optimum(8, b) for b in CHAIN_8} == CHAIN_8


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "budget", "expected"),
    [(100, 7, 421), (100, 12, 326), (1000, 64, 2939), (10000, 16, 56130)],
)
def test_revolve_is_optimal_on_long_chains(n: int, budget: int, expected: int) -> None:
    trace = tc.replay(tc.plan(tc.networks.chain(n), "revolve", slots=budget - 2))
    assert (trace.evaluations, trace.peak_nodes) == (expected, budget)
    assert optimum(n, budget) == expected


@pytest.mark.parametrize("k", [2, 3, 4, 8, 10, 20])
def test_sqrt_n_and_recompute_all_are_optimal_at_their_own_peaks(k: int) -> None:
    n = k * k
    for policy in ("sqrt_n", "recompute_all"):
        trace = tc.replay(tc.plan(tc.networks.chain(n), policy))
        assert trace.evaluations == optimum(n, trace.peak_nodes)


@pytest.mark.parametrize(
    ("n", "p", "evaluated", "better"), [(7, 3, 20, 19), (15, 4, 48, 43), (1023, 10, 6144, 4779)]
)
def test_chen_recursive_costs_equal_closed_form(
    n: int, p: int, evaluated: int, better: int
) -> None:
    trace = tc.replay(tc.plan(tc.networks.chain(n), "chen_recursive"))
    assert trace.evaluations == p * 2 ** (p - 1) + n + 1 == evaluated
    assert trace.peak_nodes == p + 2
    # In the same memory Revolve's optimum needs fewer evaluations.
    assert optimum(n, p + 2) == better


def test_chen_recursive_trades_memory_for_cost_with_larger_k() -> None:
    peaks, counts = [], []
    for k in (1, 2, 3, 9):
        trace = tc.replay(tc.plan(tc.networks.chain(99), "chen_recursive", k=k))
        peaks.append(trace.peak_nodes)
        counts.append(trace.evaluations)
    assert peaks == sorted(peaks)
    assert counts == sorted(counts, reverse=True)


@pytest.mark.long
def test_chen_budget_stays_within_budget_or_raises_smallest_peak() -> None:
    graph = tc.networks.chain(100)
    costs = in_nodes(evaluations(graph))
    smallest = tc.replay(tc.plan(graph, "chen_budget", costs=costs))
    assert smallest.peak_nodes <= 21
    for budget in range(smallest.peak_nodes, 103, 7):
        trace = tc.replay(tc.plan(graph, "chen_budget", costs=costs, budget=budget))
        assert trace.peak_nodes <= budget
        assert trace.evaluations <= 300
    with pytest.raises(tc.BudgetError, match=f"smallest peak it finds is {smallest.peak_nodes}"):
        tc.plan(graph, "chen_budget", costs=costs, budget=smallest.peak_nodes - 1)


def linear(n: int) -> Graph:
    """Return the linear network of the DTR paper, appendix A: b_i reads f_{i-1} and b_{i+1}.

    f_1 and b_n read nothing, b_1 reads b_2 alone, and there is no loss: 2n operators.
    """
    spec = Spec(())
    data, operators = [], []
    for index in range(2 * n):
        forward = index < n
        layer = index + 1 if forward else 2 * n - index
        if forward:
            inputs = [index - 1] if index else []
        else:
            inputs = [layer - 2] if 1 < layer < n else []
            inputs += [index - 1] if layer < n else []
        name = f"{'f' if forward else 'b'}{layer}"
        role: Any = "activation" if forward else "cotangent"
        phase: Any = "forward" if forward else "backward"
        data.append(DataNode(index, name, spec, role, 8, index))
        operators.append(Operator(index, name, "layer", tuple(inputs), (index,), phase))
    return Graph(f"linear:{n}", tuple(data), tuple(operators), (), None, 2 * n - 1)


def rematerialisations(n: int, heuristic: str) -> int:
    graph = linear(n)
    budget = ceil(2 * n**0.5)
    problem = Problem(graph, in_nodes(evaluations(graph)))
    order = Eviction(problem, budget, HEURISTICS[heuristic]).run()
    assert problem.peak(order) <= budget
    return len(order) - 2 * n


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "expected"), [(16, 8), (64, 49), (100, 80), (256, 230), (400, 360), (1000, 957)]
)
def test_dtr_rematerialisations_equal_authors_simulator(n: int, expected: int) -> None:
    assert rematerialisations(n, "dtr") == expected


@pytest.mark.nightly
@pytest.mark.parametrize(("n", "expected"), [(100, 355), (1000, 26196)])
def test_lru_rematerialises_far_more_than_dtr(n: int, expected: int) -> None:
    assert rematerialisations(n, "lru") == expected


@pytest.mark.parametrize("heuristic", HEURISTICS)
def test_dtr_stays_within_budget_with_every_heuristic(heuristic: str) -> None:
    graph = tc.networks.residual_mlp(4, 8, 64).graph()
    budget = tc.replay(tc.plan(graph)).peak_bytes * 2 // 3
    trace = tc.replay(tc.plan(graph, "dtr", budget=budget, heuristic=heuristic))
    assert trace.peak_bytes <= budget
    assert trace.recomputations > 0


def test_dtr_rejects_infeasible_budget_and_unknown_heuristic() -> None:
    with pytest.raises(tc.BudgetError, match=r"within 2 nodes; .* smallest peak .* 3 nodes"):
        tc.plan(
            tc.networks.chain(4), "dtr", budget=2, costs=in_nodes(evaluations(tc.networks.chain(4)))
        )
    with pytest.raises(tc.ScheduleError, match="unknown heuristic 'best'; known: dtr, e_star"):
        tc.plan(tc.networks.chain(4), "dtr", heuristic="best")


def test_measured_and_traffic_costs_follow_their_definitions() -> None:
    network = tc.networks.mlp(2, 8, 4)
    graph = network.graph()
    run = tc.run(tc.plan(graph), *network.arrays(), timed=True)
    seconds = measured(run.trace)
    assert seconds.unit == "seconds"
    own = [
        s for step, s in zip(run.trace.steps, run.trace.seconds, strict=True)
        if isinstance(step, tc.Compute)
    ]  # fmt: skip
    assert list(seconds.operators) == own  # each is evaluated once: its mean is its time
    again = tc.replay(tc.from_order(tc.networks.chain(1), [0, 0, 1, 2]))
    verbs = [step_text(again.graph, step) for step in again.steps[:4]]
    assert verbs == [("compute", "f1"), ("free", "f1"), ("compute", "f1"), ("compute", "l")]
    timed = replace(again, seconds=tuple(2.0**place for place in range(len(again.steps))))
    assert measured(timed).operators[:2] == ((1 + 4) / 2, 8)  # the mean; frees are not counted
    with pytest.raises(tc.ScheduleError, match="run with timed=True"):
        measured(tc.replay(tc.plan(graph)))
    matmul = next(o for o in graph.operators if o.kind == "matmul")
    assert traffic(graph).operators[matmul.id] == 8 * (4 * 8 + 8 * 8 + 4 * 8)
    views = [o.id for o in graph.operators if graph.data[o.outputs[0]].view_of is not None]
    assert all(traffic(graph).operators[view] == 0 for view in views)


# ``optimal`` has tests of its own: on these graphs it takes seconds.
NAMED = [name for name in tc.POLICIES if name != "optimal"]


@pytest.mark.long
@settings(max_examples=examples(75))
@given(training_graphs(), st.sampled_from(NAMED), st.sampled_from([evaluations, flops, traffic]))
def test_every_policy_is_legal_and_bitwise_equal_on_random_graphs(
    case: Any, policy: str, unit: Any
) -> None:
    graph, arguments = case
    schedule = tc.plan(graph, policy, costs=unit(graph))
    result = tc.run(schedule, *arguments, check_nan=False)
    assert result.trace == tc.replay(schedule)
    expected = tc.run(tc.plan(graph), *arguments, check_nan=False)
    ours, theirs = (leaves(r.gradients) for r in (result, expected))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(ours, theirs, strict=True))


@settings(max_examples=examples(75))
@given(training_graphs(), st.data())
def test_liveness_memory_equals_replay_on_random_orders(case: Any, data: Any) -> None:
    graph, _ = case
    order = list(range(len(graph.operators)))
    for _ in range(data.draw(st.integers(0, 8))):
        at = data.draw(st.integers(0, len(order)))
        ready = [o.id for o in graph.operators if {graph.data[d].producer for d in o.inputs}
                 <= {None, *order[:at]}]  # fmt: skip
        order.insert(at, data.draw(st.sampled_from(ready)))
    trace = tc.replay(tc.from_order(graph, order))
    computes = [i for i, step in enumerate(trace.steps) if isinstance(step, tc.Compute)]
    live = Problem(graph, evaluations(graph)).live(order)
    assert live.tolist() == [trace.live_bytes[i] for i in computes]
    nodes = Problem(graph, in_nodes(evaluations(graph))).live(order)
    assert nodes.tolist() == [trace.nodes[i] for i in computes]
