"""Part 3 is solved when these tests pass."""

import numpy as np
from example_chains import counts, names
from example_losses import chain, gated, residual
from part_1 import differentiate, half_squared_norm, tanh
from part_3 import (
    crossing,
    cuts_of,
    keeping_order,
    recompute_all,
    sqrt_n,
    stages_of,
    store_all,
    value_and_gradient,
)

X = np.random.default_rng(0).normal(size=(8, 8))


def test_3_1_nothing_is_kept_and_nothing_is_reused():
    graph = chain(4)
    order = keeping_order(graph, (), reuse=False)
    # l and b4 find f4 at hand: the output of the last operator, then an input of it.
    assert names(graph, order) == "f1 f2 f3 f4 l b4 f1 f2 f3 b3 f1 f2 b2 f1 b1"


def test_3_1_nothing_is_kept_and_recomputed_values_are_reused():
    graph = chain(4)
    order = keeping_order(graph, (), reuse=True)
    assert names(graph, order) == "f1 f2 f3 f4 l b4 f1 f2 f3 b3 b2 b1"


def test_3_1_recomputation_begins_at_the_last_kept_value():
    graph = chain(4)
    kept = [graph.operators[1].output]  # f2
    order = keeping_order(graph, kept, reuse=True)
    assert names(graph, order) == "f1 f2 f3 f4 l b4 f3 b3 b2 f1 b1"


def test_3_1_results_are_never_recomputed():
    graph = chain(4)
    graph.results.append(graph.operators[1].output)  # f2, beside the gradient
    order = keeping_order(graph, (), reuse=False)
    assert names(graph, order) == "f1 f2 f3 f4 l b4 f3 b3 b2 f1 b1"


def test_3_1_recomputation_starts_from_resident_values_and_not_from_those_at_hand():
    for layers, evaluations in ((2, 54), (9, 747)):  # from those at hand: 50 and 603
        graph = differentiate(gated, parameters=layers, inputs=1)
        assert len(keeping_order(graph, (), reuse=False)) == evaluations


def test_3_2_store_all_evaluates_once():
    for n in (1, 4, 16):
        assert counts(chain(n), store_all(chain(n))) == (2 * n + 1, n + 2)


def test_3_2_recompute_all_takes_three_values():
    for n in (1, 4, 16):
        expected = (n * (n + 1) // 2 + n + 1, 3)
        assert counts(chain(n), recompute_all(chain(n))) == expected


def test_3_3_one_value_crosses_a_cut_of_a_chain():
    graph = chain(4)
    for cut in range(3):
        assert crossing(graph, cut) == {graph.operators[cut].output}


def test_3_3_several_values_cross_a_cut_within_a_residual_block():
    graph = differentiate(residual, parameters=2, inputs=1)
    # matmul tanh add matmul tanh add: the sum crosses on its own, and beside a block's values.
    matmul, tanh_1, add, product, *_ = (operator.output for operator in graph.operators)
    for cut, expected in enumerate([{matmul}, {tanh_1}, {add}, {add, product}]):
        assert crossing(graph, cut) == expected


def test_3_4_stages_are_what_the_backward_pass_reads():
    graph = differentiate(residual, parameters=2, inputs=1)
    # The output of a matmul is read by no rule.
    kinds = " ".join(graph.operators[index].kind for index in stages_of(graph))
    assert kinds == "tanh add tanh add"
    assert stages_of(chain(5)) == [0, 1, 2, 3, 4]


def test_3_5_cuts_of_a_chain_are_at_equal_distances():
    assert cuts_of(chain(1)) == []
    assert cuts_of(chain(16)) == [3, 7, 11]
    assert cuts_of(chain(8)) == [2, 4]


def test_3_5_cuts_are_operators_and_not_places_among_the_stages():
    assert cuts_of(differentiate(residual, parameters=2, inputs=1)) == [2]  # place 1 of 1 2 4 5


def test_3_5_halves_are_rounded_to_the_even_integer():
    # k is 4, and the cuts follow stages 4.5, 9 and 13.5.
    assert cuts_of(chain(18)) == [3, 8, 13]


def test_3_5_cut_moves_by_at_most_half_a_segment():
    def blocks_of_four(weights, x):
        for w in weights:
            x = x + tanh(tanh(tanh(tanh(x @ w))))
        return half_squared_norm(x)

    graph = differentiate(blocks_of_four, parameters=3, inputs=1)
    # Fifteen stages, of which 1 to 5, 10 and 15 are crossed by one value: k is 4, and cuts move by
    # one stage at most. Cut 2 stays after stage 8, two from 10; cut 3 moves from 11 to 10.
    assert cuts_of(graph) == [stages_of(graph)[stage - 1] for stage in (4, 8, 10)]


def test_3_5_cut_moves_to_where_one_value_crosses():
    graph = differentiate(residual, parameters=9, inputs=1)
    # Eighteen stages, tanh and add by turns, in four segments: cut 1 would follow stage 4, which is
    # an add; cut 2 stage 9, a tanh, and moves back to stage 8; cut 3 stage 14, an add.
    assert cuts_of(graph) == [stages_of(graph)[stage - 1] for stage in (4, 8, 14)]


def test_3_5_cut_stays_where_several_values_cross_everywhere():
    def two_branches(weights, x):
        y = x
        for w in weights:
            x, y = tanh(x @ w), tanh(y @ w)
        return half_squared_norm(x * y)

    graph = differentiate(two_branches, parameters=4, inputs=1)
    (first, second) = cuts_of(graph)
    stages = stages_of(graph)
    assert (first, second) == (stages[2], stages[5])


def test_3_6_sqrt_n_recomputes_each_segment_but_the_last_once():
    graph = chain(4)
    assert names(graph, sqrt_n(graph)) == "f1 f2 f3 f4 l b4 b3 b2 f1 b1"


def test_3_6_sqrt_n_has_its_closed_form_on_squares():
    for k in (1, 2, 3, 4, 10):
        n = k * k
        assert counts(chain(n), sqrt_n(chain(n))) == (2 * n + 1 + (k - 1) ** 2, 2 * k + 1)


def test_3_6_sqrt_n_on_other_lengths():
    assert counts(chain(8), sqrt_n(chain(8))) == (20, 7)


def test_3_6_gradients_are_the_same_to_the_last_bit_under_each_policy():
    random = np.random.default_rng(1)
    weights = [random.normal(size=(8, 8)) / 3 for _ in range(9)]
    found = [
        value_and_gradient(residual, p, weights, X) for p in (store_all, recompute_all, sqrt_n)
    ]
    for value, gradient, _ in found[1:]:
        assert value == found[0][0]
        assert all(map(np.array_equal, gradient, found[0][1])), "a gradient differs"
    peaks = [max(trace.live_values) for _, _, trace in found]
    assert peaks == [21, 12, 14]
