"""Beam search for topological orders: legal, exact peaks, optimal on small graphs, in time."""

import gc
from itertools import permutations
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyckpt as tc
from tests.layered_graphs import forward_graph, layered_graph
from tests.random_dags import graphs_of_views, graphs_with_updates, training_graphs
from tinyckpt.base import deadline as limits
from tinyckpt.base.deadline import Clock, OutOfTimeError
from tinyckpt.core.costs import evaluations
from tinyckpt.planner.heuristics.beam_toposort import (
    BEAM_WIDTHS,
    COPIES_PER_EXPANSION,
    MAX_EXPANSIONS,
    BlockDependencies,
    PartialOrder,
    affordable_widths,
    beam_search_order,
    expansions_of,
    successor,
)
from tinyckpt.planner.model.liveness import Problem


def problem_of(graph: tc.Graph) -> Problem:
    return Problem(graph, evaluations(graph))


def lowest_peak(problem: Problem) -> float:
    """Return the lowest peak of all topological orders, by exhaustive search."""
    best = inf
    for order in permutations(range(len(problem.graph.operators))):
        place = {operator: position for position, operator in enumerate(order)}
        if all(
            place[data] < place[operator.id]
            for operator in problem.graph.operators
            for data in operator.inputs
        ):
            best = min(best, problem.peak(order))
    return best


@st.composite
def small_graphs(draw: st.DrawFn, largest: int = 5) -> tc.Graph:
    count = draw(st.integers(1, largest))
    reads = [
        sorted(draw(st.sets(st.integers(0, index - 1), max_size=3))) if index else []
        for index in range(count)
    ]
    return forward_graph("small", reads, [draw(st.integers(1, 9)) for _ in range(count)])


@given(small_graphs())
def test_beam_as_wide_as_all_sets_finds_lowest_peak(graph: tc.Graph) -> None:
    # Five operators have 32 subsets: a beam of 32 states is exhaustive.
    problem = problem_of(graph)
    assert problem.peak(beam_search_order(BlockDependencies(problem), 32)) == lowest_peak(problem)


def walked(blocks: BlockDependencies, order: list[int]) -> PartialOrder:
    """Return the beam's state after an order, by its own transitions."""
    state = blocks.start
    for operator in order:
        made, workspace = blocks.makes[operator]
        live = state.live + made
        peak = max(state.peak, live + workspace)
        live -= blocks.useless[operator]
        live -= sum(size for block, size in blocks.reads[operator] if state.unread[block] == 1)
        assert operator in state.ready
        state = successor(blocks, peak, live, 0, state, operator)
    return state


@pytest.mark.long
@given(st.one_of(training_graphs().map(lambda drawn: drawn[0]), graphs_of_views(),
                 graphs_with_updates().map(lambda drawn: drawn[0])))  # fmt: skip
def test_beam_state_peak_equals_replay(graph: tc.TrainingGraph) -> None:
    problem = problem_of(graph)
    blocks = BlockDependencies(problem)
    for order in (beam_search_order(blocks, 10), list(range(len(graph.operators)))):
        assert sorted(order) == list(range(len(graph.operators)))
        trace = tc.replay(tc.from_order(graph, order))
        assert trace.peak_bytes == problem.peak(order) == walked(blocks, order).peak


def test_beam_order_lowers_peak_of_layered_graph() -> None:
    problem = problem_of(layered_graph(100))
    assert problem.peak(beam_search_order(BlockDependencies(problem), 50)) < problem.peak(
        range(100)
    )


def test_beam_widths_shrink_with_work_of_graph() -> None:
    # A chain has one ready operator at each step, and each operator computes one value.
    chain = BlockDependencies(problem_of(forward_graph("chain", [[], [0], [1], [2]], [1] * 4)))
    assert expansions_of(chain) == 4 + 4 * 8 // COPIES_PER_EXPANSION
    # Operators without predecessors are all expanded in each step.
    wide = BlockDependencies(problem_of(forward_graph("wide", [[]] * 100, [1] * 100)))
    assert expansions_of(wide) == 100 * 101 // 2 + 100 * 200 // COPIES_PER_EXPANSION
    for count in (100, 1000):  # the layered graphs of the papers
        assert affordable_widths(BlockDependencies(problem_of(layered_graph(count)))) == list(
            BEAM_WIDTHS
        )
    # As many operators, but more expansions: a beam as wide would take ten minutes.
    broad = BlockDependencies(problem_of(forward_graph("broad", [[]] * 1000, [1] * 1000)))
    assert affordable_widths(broad) == [
        width for width in BEAM_WIDTHS if width * expansions_of(broad) <= MAX_EXPANSIONS
    ]
    assert affordable_widths(broad) == [10]


def test_beam_checks_deadline_for_each_state(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks, now = BlockDependencies(problem_of(layered_graph(100))), [0.0]
    beam_search_order(blocks, 100)

    def tick() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(limits, "perf_counter", tick)
    with pytest.raises(OutOfTimeError):
        beam_search_order(blocks, 100, Clock(1000.0))  # some 9,000 states are expanded


def test_final_state_keeps_no_predecessor_states_alive() -> None:
    blocks = BlockDependencies(problem_of(layered_graph(100)))
    state = walked(blocks, beam_search_order(blocks, 10))
    gc.collect()
    # type() and not isinstance(): other modules' objects may raise on isinstance().
    held = [each for each in gc.get_objects() if type(each) is PartialOrder]
    assert len([each for each in held if len(each.unread) == len(state.unread)]) <= 2
