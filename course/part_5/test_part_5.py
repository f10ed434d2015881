"""Part 5 is solved when these tests pass."""

from itertools import pairwise
from math import comb, inf

import numpy as np
import pytest
from example_chains import counts, joined, names
from example_losses import chain, residual
from part_1 import differentiate
from part_2 import free_after_last_use, run
from part_5 import fewest_advances, longest, reversal, revolve

X = np.random.default_rng(0).normal(size=(8, 8))


def text(actions):
    """Return actions as text: "1 2 (2) 1 (1) (0)" advances to 1 and to 2, and visits 2."""
    return " ".join(f"({state})" if verb == "back" else str(state) for verb, state in actions)


def test_5_1_table_of_the_page():
    table = fewest_advances(5, 2)
    assert [table[length, 1][0] for length in range(1, 6)] == [0, 1, 3, 6, 10]
    assert [table[length, 2][0] for length in range(1, 6)] == [0, 1, 2, 4, 6]
    assert table[5, 2] == (6, 2)


def test_5_1_without_slots_one_state_can_be_visited():
    table = fewest_advances(3, 1)
    assert table[1, 0] == (0, 0)
    assert table[2, 0][0] == table[3, 0][0] == inf


def test_5_1_figures_of_the_paper():
    table = fewest_advances(100, 10)
    asked = [(10, 2), (10, 3), (20, 3), (50, 5), (56, 5), (100, 5), (100, 10)]
    assert joined(table[length, s][0] for length, s in asked) == "20 15 45 122 140 316 222"


def test_5_1_table_has_its_closed_form():
    table = fewest_advances(40, 6)
    for s in range(1, 7):
        for length in range(1, 41):
            r = next(r for r in range(length) if comb(s + r, s) >= length)
            expected = r * length - comb(s + r, r - 1) if r else 0
            assert table[length, s][0] == expected, f"t({length}, {s})"


def test_5_2_longest_is_a_binomial_coefficient():
    for s in range(8):
        for times in range(8):
            assert longest(s, times) == comb(s + times, s)


def test_5_2_one_state_more_costs_as_many_advances_as_its_step_takes():
    table = fewest_advances(30, 3)
    for (_, before), (length, after) in pairwise((n, table[n, 3][0]) for n in range(1, 31)):
        times = after - before
        assert longest(3, times - 1) < length <= longest(3, times)


def test_5_3_reversal_of_the_page():
    assert text(reversal(5, 2)) == "1 2 3 4 (4) 3 (3) (2) 1 (1) (0)"


def test_5_3_one_slot_advances_from_the_first_state_each_time():
    assert text(reversal(4, 1)) == "1 2 3 (3) 1 2 (2) 1 (1) (0)"
    assert text(reversal(1, 1)) == "(0)"


def test_5_3_slots_for_all_states_advance_once():
    assert text(reversal(4, 4)) == "1 2 3 (3) (2) (1) (0)"


def test_5_3_every_state_is_visited_with_the_fewest_advances():
    table = fewest_advances(30, 5)
    for s in (1, 2, 3, 5):
        actions = reversal(30, s)
        visited = (state for verb, state in actions if verb == "back")
        assert joined(visited) == joined(range(29, -1, -1))
        assert sum(verb == "advance" for verb, _ in actions) == table[30, s][0]


def test_5_3_long_chains_need_no_recursion():
    assert len(reversal(1100, 1)) == 1100 * 1099 // 2 + 1100


def test_5_4_order_of_the_page():
    graph = chain(4)
    assert names(graph, revolve(graph, 2)) == "f1 f2 f3 f4 l b4 f3 b3 b2 f1 b1"


def test_5_4_evaluations_of_eight_layers_are_the_fewest():
    graph = chain(8)
    found = [counts(graph, revolve(graph, slots)) for slots in range(1, 9)]
    # Found by exhaustive search.
    assert joined(evaluations for evaluations, _ in found) == "45 26 22 21 20 19 18 17"
    assert joined(peak for _, peak in found) == "3 4 5 6 7 8 9 10"


def test_5_4_evaluations_of_a_hundred_layers():
    graph = chain(100)
    assert counts(graph, revolve(graph, 5)) == (421, 7)
    assert counts(graph, revolve(graph, 10)) == (326, 12)


def test_5_4_more_slots_than_states_are_store_all():
    graph = chain(4)
    assert names(graph, revolve(graph, 99)) == "f1 f2 f3 f4 l b4 b3 b2 b1"


def test_5_4_gradient_is_the_same_to_the_last_bit():
    graph = chain(9)
    saved, again = (
        run(graph, free_after_last_use(graph, revolve(graph, slots)), [X])[0][0]
        for slots in (10, 2)
    )
    assert np.array_equal(saved, again), "the gradients with 10 slots and with 2 differ"


def test_5_4_other_graphs_and_no_slots_are_refused():
    with pytest.raises(ValueError, match="chain"):
        revolve(differentiate(residual, parameters=3, inputs=1), 2)
    with pytest.raises(ValueError, match="slot"):
        revolve(chain(4), 0)
