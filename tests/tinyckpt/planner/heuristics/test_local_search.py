"""Local search over orders: each move, within the budget, in time, deterministic per seed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyckpt as tc
from tests.layered_graphs import forward_graph, layered_graph
from tests.random_dags import training_graphs, with_once
from tests.tinyckpt.planner.heuristics.test_beam_toposort import problem_of, small_graphs
from tinyckpt.base.deadline import Clock, OutOfTimeError
from tinyckpt.planner.heuristics.local_search import LocalSearch, Move, apply_move
from tinyckpt.planner.model.cost_models import given as given_costs
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import smallest_budget


def test_unread_value_is_evaluated_later_at_no_cost() -> None:
    # o0 is large, read last, and has no inputs whose live ranges a later evaluation would extend.
    graph = forward_graph("late", [[], [], [1], [2], [0, 3]], [50, 10, 10, 10, 1])
    problem = problem_of(graph)
    assert problem.peak(range(5)) == 70
    assert LocalSearch(problem, 61).within(range(5)) == [1, 2, 3, 0, 4]


def test_operator_that_frees_memory_is_evaluated_earlier() -> None:
    # o3 is the only reader of the two large values; o2 has no inputs.
    graph = forward_graph("early", [[], [], [], [0, 1], [2, 3]], [40, 40, 20, 1, 1])
    problem = problem_of(graph)
    assert problem.peak(range(5)) == 101
    order = LocalSearch(problem, 81).within(range(5))
    assert order is not None
    assert (len(order), problem.peak(order)) == (5, 81)


def test_value_is_evicted_and_recomputed_before_next_reader() -> None:
    # o1 is read at the beginning and at the end; its input is small and resident throughout.
    reads = [[], [0], [1], [2], [3], [0, 1, 4]]
    graph = forward_graph("again", reads, [1, 50, 10, 60, 5, 1])
    problem = problem_of(graph)
    assert problem.peak(range(6)) == 1 + 50 + 10 + 60
    assert LocalSearch(problem, 72).within(range(6)) == [0, 1, 2, 3, 4, 1, 5]


def test_recomputation_recomputes_its_inputs_too() -> None:
    # o1 and o2 are too large to stay until o2's last reader.
    reads = [[], [0], [1], [2], [3], [4], [0, 2, 5]]
    graph = forward_graph("chain", reads, [1, 50, 50, 10, 90, 5, 1])
    problem = problem_of(graph)
    assert LocalSearch(problem, 110).within(range(7)) == [0, 1, 2, 3, 4, 5, 1, 2, 6]


def test_changed_inserts_operators_and_deletes_evaluation() -> None:
    assert apply_move([0, 1, 2, 3], Move(0.0, 1, [7, 8])) == [0, 7, 8, 1, 2, 3]
    assert apply_move([0, 1, 2, 3], Move(0.0, 1, [3], 3)) == [0, 3, 1, 2]


@pytest.mark.long
@given(st.one_of(small_graphs(12), training_graphs().map(lambda drawn: drawn[0])), st.data())
def test_orders_are_legal_and_within_budget_on_random_graphs(
    graph: tc.Graph, data: st.DataObject
) -> None:
    if data.draw(st.booleans()):
        graph = data.draw(with_once(graph))
    problem = problem_of(graph)
    count = len(graph.operators)
    lowest = smallest_budget(problem)
    budget = data.draw(st.integers(lowest, max(lowest, problem.peak(range(count)))))
    search = LocalSearch(problem, budget)
    order = search.within(range(count))
    if order is None:
        return
    for _ in range(3):
        trace = tc.replay(tc.from_order(graph, order))
        assert trace.peak_bytes == problem.peak(order) <= budget
        order = search.shaken(order) or order


def test_non_recomputable_operator_is_not_recomputed() -> None:
    # As above, but o1 is non-recomputable: no move helps.
    reads = [[], [0], [1], [2], [3], [0, 1, 4]]
    graph = forward_graph("once", reads, [1, 50, 10, 60, 5, 1])
    operators = [replace(operator, once=operator.id == 1) for operator in graph.operators]
    problem = problem_of(replace(graph, operators=tuple(operators)))
    assert LocalSearch(problem, 72).within(range(6)) is None


def test_layered_graph_fits_four_fifths_of_peak_at_low_cost() -> None:
    # Eviction alone finds nothing here: it recomputes almost everything.
    graph = layered_graph(100)
    problem = Problem(graph, given_costs(graph))
    budget = problem.peak(range(100)) * 4 // 5
    order = LocalSearch(problem, budget).within(range(100))
    assert order is not None
    assert problem.peak(order) <= budget
    assert problem.cost_of(order) < 1.02 * sum(problem.cost)
    assert LocalSearch(problem, budget).within(range(100)) == order


def test_search_ends_at_infeasible_budget() -> None:
    graph = layered_graph(30)
    problem = problem_of(graph)
    assert LocalSearch(problem, smallest_budget(problem)).within(range(30)) is None


def test_search_raises_when_deadline_has_passed() -> None:
    problem = problem_of(layered_graph(100))
    with pytest.raises(OutOfTimeError):
        LocalSearch(problem, 1000, deadline=Clock(0.0)).within(range(100))
