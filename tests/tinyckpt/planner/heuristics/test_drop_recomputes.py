"""Redundant recomputation elimination: equal to a plain reference, and range maxima are exact."""

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import graphs_of_views, training_graphs
from tinyckpt.base.deadline import Clock
from tinyckpt.core.costs import evaluations, flops
from tinyckpt.planner.heuristics.drop_recomputes import (
    RangeMaximum,
    drop_redundant_recomputes,
    range_maxima,
)
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.heuristics.greedy import SCORES
from tinyckpt.planner.model.liveness import Problem


def struck_out_plainly(problem: Problem, order: list[int], budget: int) -> list[int]:
    """Drop redundant recomputations until none is left, on a plain array: the reference."""
    positions = np.asarray(order, np.int64)
    spans, live = problem.flat.spans(positions), problem.live(positions)
    ends = problem.block_ends(spans, len(positions)) if problem.view_levels else spans.end
    made: dict[int, list[tuple[int, int, int]]] = {}
    for index in np.flatnonzero(np.diff(spans.data, prepend=-1) == 0).tolist():
        data, begin = int(spans.data[index]), int(spans.begin[index])
        stop = begin if problem.root[data] == data else int(ends[index]) + 1
        size = int(problem.size[problem.root[data]])
        made.setdefault(begin, []).append((int(spans.end[index - 1]) + 1, stop, size))
    kept = np.ones(len(positions), bool)
    for place in sorted(made, key=lambda place: (-problem.cost[order[place]], place)):
        if len(made[place]) < len(problem.graph.operators[order[place]].outputs):
            continue
        raised = live.copy()
        for first, stop, size in made[place]:
            raised[first:stop] += size
        if all(raised[first:stop].max(initial=0) <= budget for first, stop, _ in made[place]):
            live, kept[place] = raised, False
    shorter: list[int] = positions[kept].tolist()
    return shorter if kept.all() else struck_out_plainly(problem, shorter, budget)


@pytest.mark.long
@settings(max_examples=examples(150))
@given(
    st.one_of(graphs_of_views(), training_graphs(30).map(lambda case: case[0])),
    st.integers(30, 95), st.integers(0, 30), st.sampled_from([evaluations, flops]),
)  # fmt: skip
def test_pruned_equals_plain_reference_on_random_graphs(
    graph: tc.TrainingGraph, percent: int, more: int, costs: Any
) -> None:
    problem = Problem(graph, costs(graph))
    largest = problem.peak(range(len(graph.operators)))
    with contextlib.suppress(tc.BudgetError):
        order = Eviction(problem, largest * percent // 100, SCORES["cost / memory"]).run()
        budget = largest * (percent + more) // 100
        assert drop_redundant_recomputes(problem, order, budget) == struck_out_plainly(
            problem, order, budget
        )


def test_pruned_drops_nothing_after_deadline() -> None:
    graph = tc.networks.chain(30)
    problem = Problem(graph, evaluations(graph))
    order = Eviction(problem, 8 * 512, SCORES["cost / memory"]).run()
    assert drop_redundant_recomputes(problem, order, 32 * 512, Clock(0)) == order
    assert len(drop_redundant_recomputes(problem, order, 32 * 512)) == len(graph.operators)


ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 9)), max_size=12)


@settings(max_examples=examples(300))
@given(st.lists(st.integers(0, 20), min_size=1, max_size=60), ranges)
def test_range_maxima_equal_numpy_after_additions(
    numbers: list[int], places: list[tuple[int, int, int]]
) -> None:
    values = np.array(numbers)
    pairs = [(min(a, b, len(values)), min(max(a, b), len(values)), by) for a, b, by in places]
    first = np.array([a for a, _, _ in pairs], np.int64)
    stop = np.array([b for _, b, _ in pairs], np.int64)
    expected = [int(values[a:b].max(initial=0)) for a, b, _ in pairs]
    assert range_maxima(values, first, stop).tolist() == expected
    blocks = RangeMaximum(values)
    for a, b, by in pairs:
        blocks.add(a, b, by)
        values[a:b] += by
        for left, right, _ in pairs:
            assert blocks.most(left, right) == values[left:right].max(initial=0)
