"""Part 4 is solved when these tests pass."""

import re
from math import inf

import numpy as np
import pytest
from example_chains import joined, names
from example_losses import chain, mlp, residual
from part_1 import Graph, differentiate, tanh
from part_2 import free_after_last_use, run
from part_3 import store_all
from part_4 import Simulation, evicting_order, make_room, neighborhood, score, sizes_of

X = np.random.default_rng(0).normal(size=(8, 8))  # 512 bytes


def ones(graph):
    """Return a size of one byte for each value that an operator computes."""
    return {operator.output: 1 for operator in graph.operators}


def simulation(live, budget=4):
    """Return four layers when f1 to f4 have been computed, and some of them evicted."""
    graph = chain(4)  # x is value 0, f1 to f4 are values 1 to 4
    accessed = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4}
    return Simulation(graph, ones(graph), budget, [0, 1, 2, 3], set(live), accessed)


def test_4_1_sizes_of_a_chain_are_equal():
    graph = chain(4)
    assert sizes_of(graph, [X]) == {operator.output: 512 for operator in graph.operators}


def test_4_1_sizes_of_unequal_values():
    graph = differentiate(mlp, parameters=1, inputs=1)
    sizes = sizes_of(graph, [np.ones((3, 2)), np.ones((5, 3))])
    # matmul, tanh and their cotangents of 5 x 2, the loss, the gradient of 3 x 2.
    assert [sizes[op.output] for op in graph.operators] == [80, 80, 8, 80, 80, 48]


def test_4_2_value_between_live_ones_costs_its_own_operator():
    assert neighborhood(simulation({1, 2, 3, 4}), 2) == {1}


def test_4_2_evicted_values_that_it_is_computed_from_are_in_the_neighborhood():
    assert neighborhood(simulation({3, 4}), 3) == {0, 1, 2}
    assert neighborhood(simulation({1, 3, 4}), 3) == {1, 2}


def test_4_2_evicted_values_that_are_computed_from_it_are_in_the_neighborhood():
    assert neighborhood(simulation({1, 4}), 1) == {0, 1, 2}
    assert neighborhood(simulation({2, 4}), 2) == {0, 1, 2}


def test_4_2_values_that_have_not_been_computed_do_not_count():
    # l and b4 read f4, and come later.
    assert neighborhood(simulation({1, 2, 3, 4}), 4) == {3}


def test_4_2_neighborhood_ends_at_live_values_on_all_branches():
    graph = Graph()
    x = graph.source()
    a = tanh(x)
    b, c = tanh(a), tanh(a)
    d = b + c
    e = tanh(d)
    accessed = dict.fromkeys([x.id, a.id, b.id, c.id, d.id, e.id], 0)
    state = Simulation(graph, ones(graph), 9, [0, 1, 2, 3, 4], {a.id, c.id, e.id}, accessed)
    # b and d are computed from a and evicted, c and e are live.
    assert neighborhood(state, a.id) == {0, 1, 3}


def test_4_3_score_falls_with_bytes_and_staleness():
    state = simulation({1, 2, 3, 4})
    assert [score(state, data) for data in (1, 2, 3)] == [1 / 3, 1 / 2, 1]
    state.sizes[1] = 5
    assert score(state, 1) == 1 / 15


def test_4_3_score_counts_the_neighborhood():
    assert score(simulation({3, 4}), 3) == 3


def test_4_3_score_of_what_was_accessed_just_now_is_infinite():
    assert score(simulation({1, 2, 3, 4}), 4) == inf


def test_4_4_nothing_is_evicted_while_there_is_room():
    state = simulation({2, 3, 4})
    make_room(state, 4, {4})
    assert state.live == {2, 3, 4}


def test_4_4_value_with_the_lowest_score_is_evicted():
    state = simulation({1, 2, 3, 4})
    make_room(state, 4, {4})
    assert state.live == {2, 3, 4}


def test_4_4_scores_are_computed_anew_after_each_eviction():
    state = simulation({1, 2, 3, 4}, budget=3)
    # Without f1, f2 costs two evaluations: 2/2. f3 costs 1/1: of two equal scores, the higher id.
    make_room(state, 4, {4})
    assert state.live == {2, 4}


def test_4_4_budget_that_the_pinned_values_exceed_is_refused():
    with pytest.raises(ValueError, match="budget") as caught:
        make_room(simulation({2, 4}, budget=2), 4, {2, 4})
    # Operator 4; three bytes at once; a budget of two.
    assert {"4", "3", "2"} <= {*re.findall(r"\d+", str(caught.value))}


def test_4_5_example_of_the_page():
    graph = chain(4)
    order = evicting_order(graph, 4, ones(graph))
    assert names(graph, order) == "f1 f2 f3 f4 l b4 f3 b3 b2 f1 b1"


def test_4_5_evaluations_of_sixteen_layers():
    graph = chain(16)
    found = [len(evicting_order(graph, budget, ones(graph))) for budget in (3, 4, 5, 6, 7, 9, 18)]
    assert joined(found) == "153 95 55 48 44 42 33"


def test_4_5_nothing_is_recomputed_if_everything_fits():
    for graph in (chain(5), differentiate(residual, parameters=4, inputs=1)):
        order = evicting_order(graph, len(graph.operators), ones(graph))
        assert joined(order) == joined(store_all(graph))


def test_4_5_budget_below_three_values_is_refused():
    for n in (1, 4):
        with pytest.raises(ValueError, match="budget"):
            evicting_order(chain(n), 2, ones(chain(n)))


def test_4_5_machine_stays_within_the_budget_and_no_bit_differs():
    graph = differentiate(residual, parameters=6, inputs=1)
    random = np.random.default_rng(1)
    arrays = [*(random.normal(size=(4, 4)) / 2 for _ in range(6)), random.normal(size=(32, 4))]
    sizes = sizes_of(graph, arrays)
    expected, trace = run(graph, free_after_last_use(graph, store_all(graph)), arrays)
    peak = max(trace.live_bytes)
    evaluations = []
    for tenths in (10, 8, 7, 6):
        steps = free_after_last_use(graph, evicting_order(graph, peak * tenths // 10, sizes))
        results, trace = run(graph, steps, arrays)
        assert max(trace.live_bytes) <= peak * tenths // 10
        assert all(map(np.array_equal, results, expected)), "a gradient differs from store-all's"
        evaluations.append(trace.evaluations)
    assert evaluations == [42, 48, 52, 53]
