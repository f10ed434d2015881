"""Backward order by least memory growth: reordering is reversible, and memoised past deadlines."""

import pytest
from hypothesis import given, settings

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_of_views
from tinyckpt.base.deadline import Clock, OutOfTimeError, memoised
from tinyckpt.core.costs import flops
from tinyckpt.documents.verifier import check_graph
from tinyckpt.planner.heuristics.backward_order import (
    least_growth_order,
    least_growth_problem,
    renumber_operators,
    to_original_order,
)
from tinyckpt.planner.model.liveness import Problem


@settings(max_examples=examples(30))
@given(graph=graphs_of_views())
def test_reordered_graph_has_same_peak_and_reorders_back(graph: tc.TrainingGraph) -> None:
    problem = Problem(graph, flops(graph))
    sequence, other = least_growth_order(problem), least_growth_problem(problem)
    names = [graph.operators[index].name for index in sequence]
    assert [operator.name for operator in other.graph.operators] == names
    check_graph(other.graph)
    everything = range(len(sequence))
    assert other.peak(everything) == problem.peak(to_original_order(everything, sequence))
    back = [sequence.index(index) for index in everything]
    again = renumber_operators(other.graph, back)
    assert (again.data, again.operators) == (graph.data, graph.operators)


def test_sequence_is_memoised_only_when_finished_before_deadline() -> None:
    graph = tc.networks.residual_mlp(4, 16).graph()
    problem = Problem(graph, flops(graph))
    for search in (least_growth_order, least_growth_problem):
        with pytest.raises(OutOfTimeError):
            search(problem, Clock(0))
    other = least_growth_problem(problem)
    assert least_growth_problem(problem, Clock(0)) is other
    sequence = least_growth_order(problem, Clock(0))
    sequence.clear()  # the caller's own
    assert len(least_growth_order(problem)) == len(graph.operators)


def test_made_once_retries_after_deadline_and_then_memoises() -> None:
    def make(clock: Clock) -> object:
        clock.check()
        return object()

    get = memoised(make)
    with pytest.raises(OutOfTimeError):
        get(Clock(0))
    assert get(Clock()) is get(Clock(0))
