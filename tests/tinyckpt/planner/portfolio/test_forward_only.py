"""Planning of forward-only graphs: reordering, local search, and budgets."""

import pytest
from hypothesis import given, settings

import tinyckpt as tc
from tests.conftest import examples
from tests.layered_graphs import forward_graph, layered_graph
from tests.tinyckpt.planner.heuristics.test_beam_toposort import (
    lowest_peak,
    problem_of,
    small_graphs,
)
from tinyckpt.base.deadline import NO_DEADLINE
from tinyckpt.planner.heuristics.budget_grid import build_budget_grid
from tinyckpt.planner.portfolio.forward_only import forward_attempts


@pytest.mark.long
@given(small_graphs())
@settings(max_examples=examples(30))
def test_reordering_avoids_recomputation_where_possible(graph: tc.Graph) -> None:
    budget = int(lowest_peak(problem_of(graph)))
    schedule = tc.plan(graph, budget=budget, time_limit=60)
    assert tc.replay(schedule).evaluations == len(graph.operators)
    assert schedule.certificate is not None
    assert schedule.certificate.status == "optimal"


def test_reordered_plan_notes_its_order() -> None:
    graph = forward_graph("late", [[], [], [1], [2], [0, 3]], [50, 10, 10, 10, 1])
    schedule = tc.plan(graph, budget=61)
    assert schedule.policy == "ahead"
    assert schedule.note.endswith("; every operator once, in another order; peak 61 B")


@pytest.mark.long
def test_local_search_meets_four_fifths_of_peak_on_layered_graph() -> None:
    # Eviction alone finds nothing below about nine tenths.
    graph = layered_graph(60, 1)
    problem = problem_of(graph)
    budget = problem.peak(range(60)) * 16 // 20
    attempts = forward_attempts(problem, build_budget_grid(problem))
    peaks = [
        problem.peak(candidate.order)
        for attempt, rank, _ in attempts
        if rank == 1
        for candidate in attempt(NO_DEADLINE)
    ]
    assert min(peaks) <= budget


def test_forward_attempts_do_not_depend_on_order_of_trials() -> None:
    graph = layered_graph(16, 2)
    problem = problem_of(graph)
    levels = build_budget_grid(problem)

    def orders(backwards: bool) -> list[list[tuple[int, ...]]]:
        attempts = [attempt for attempt, _, _ in forward_attempts(problem, levels)]
        step = -1 if backwards else 1
        found = [
            [tuple(each.order) for each in attempt(NO_DEADLINE)] for attempt in attempts[::step]
        ]
        return found[::step]

    assert orders(False) == orders(True)


def test_graphs_with_updates_have_no_forward_attempts() -> None:
    def step(x: tc.Var) -> tc.Var:
        return tc.assign(x, tc.tanh(x))

    graph = tc.build(step, tc.Spec((4,)))
    problem = problem_of(graph)
    assert graph.updates
    assert list(forward_attempts(problem, build_budget_grid(problem))) == []
