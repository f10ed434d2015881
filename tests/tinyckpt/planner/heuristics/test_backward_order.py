"""The backward half in another order: found once for a problem, by clocks that may run down."""

import pytest
from hypothesis import given, settings

import tinyckpt as tc
from tests.random_dags import graphs_of_views
from tinyckpt.base.deadline import Clock, OutOfTimeError, made_once
from tinyckpt.core.costs import flops
from tinyckpt.core.graph import check_graph
from tinyckpt.planner.heuristics.backward_order import (
    frugal_problem,
    frugal_sequence,
    reordered,
    translated,
)
from tinyckpt.planner.model.liveness import Problem


@settings(max_examples=30, deadline=None)
@given(graph=graphs_of_views())
def test_a_reordered_graph_is_the_same_in_another_order(graph: tc.TrainingGraph) -> None:
    problem = Problem(graph, flops(graph))
    sequence, other = frugal_sequence(problem), frugal_problem(problem)
    names = [graph.operators[index].name for index in sequence]
    assert [operator.name for operator in other.graph.operators] == names
    check_graph(other.graph)
    everything = range(len(sequence))
    assert other.peak(everything) == problem.peak(translated(everything, sequence))
    back = [sequence.index(index) for index in everything]
    again = reordered(other.graph, back)
    assert (again.data, again.operators) == (graph.data, graph.operators)


def test_what_a_clock_cut_short_is_begun_anew_and_what_is_done_is_kept() -> None:
    graph = tc.networks.residual_mlp(4, 16).graph()
    problem = Problem(graph, flops(graph))
    for search in (frugal_sequence, frugal_problem):
        with pytest.raises(OutOfTimeError):
            search(problem, Clock(0))
    other = frugal_problem(problem)
    assert frugal_problem(problem, Clock(0)) is other
    sequence = frugal_sequence(problem, Clock(0))
    sequence.clear()  # the caller's own
    assert len(frugal_sequence(problem)) == len(graph.operators)


def test_a_thing_is_made_by_the_first_clock_that_does_not_run_down() -> None:
    def make(clock: Clock) -> object:
        clock.check()
        return object()

    get = made_once(make)
    with pytest.raises(OutOfTimeError):
        get(Clock(0))
    assert get(Clock()) is get(Clock(0))
