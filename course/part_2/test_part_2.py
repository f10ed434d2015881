"""Part 2 is solved when these tests pass."""

import numpy as np
import pytest
from example_chains import joined, names_of
from example_losses import chain, mlp
from part_1 import differentiate
from part_2 import free_after_last_use, run

X = np.random.default_rng(0).normal(size=(8, 8))  # 512 bytes


def numbered(graph, text):
    """Return the steps that a text names: "f1 f2 -f1" computes f1 and f2, and frees f1."""
    values = {name: op.output for name, op in zip(names_of(graph), graph.operators, strict=True)}
    return [
        ("free", values[word[1:]]) if word[0] == "-" else ("compute", names_of(graph).index(word))
        for word in text.split()
    ]


def check_steps(graph, steps, text):
    """Compare steps with those that a text names; pytest shows both as text."""
    outputs = {op.output: name for name, op in zip(names_of(graph), graph.operators, strict=True)}
    words = [
        f"-{outputs.get(index, index)}" if verb == "free" else names_of(graph)[index]
        for verb, index in steps
    ]
    expected = numbered(graph, text)
    assert steps == expected, f"steps are\n  {' '.join(words)}\nexpected\n  {text}"


def test_2_1_each_value_is_freed_after_its_last_use():
    graph = chain(2)
    steps = free_after_last_use(graph, [0, 1, 2, 3, 4])
    check_steps(graph, steps, "f1 f2 l b2 -f2 -l b1 -f1 -b2")


def test_2_1_value_that_is_computed_again_is_freed_in_between():
    graph = chain(2)
    steps = free_after_last_use(graph, [0, 1, 2, 3, 0, 4])
    check_steps(graph, steps, "f1 f2 -f1 l b2 -f2 -l f1 b1 -f1 -b2")


def test_2_1_result_that_is_computed_twice_is_freed_in_between():
    graph = chain(1)
    check_steps(graph, free_after_last_use(graph, [0, 1, 2, 2]), "f1 l b1 -b1 b1 -f1 -l")


def test_2_1_results_and_sources_of_store_all_are_never_freed():
    graph = differentiate(mlp, parameters=2, inputs=1)
    freed = [data for verb, data in free_after_last_use(graph, range(11)) if verb == "free"]
    assert not {*freed} & {*graph.results, *graph.sources}
    assert len(freed) == len({*freed}) == 11 - 3


def test_2_1_value_that_nothing_reads_is_freed_at_once():
    graph = chain(1)
    # f1 is computed twice, and the first time for nothing.
    check_steps(graph, free_after_last_use(graph, [0, 0, 1, 2]), "f1 -f1 f1 l b1 -f1 -l")


def test_2_2_run_returns_the_results():
    graph = chain(2)
    steps = numbered(graph, "f1 f2 l b2 -f2 -l b1 -f1 -b2")
    (gradient,), _ = run(graph, steps, [X])
    one, two = np.tanh(X), np.tanh(np.tanh(X))
    expected = (1 - one * one) * ((1 - two * two) * two)
    assert np.allclose(gradient, expected), f"{gradient}\nexpected\n{expected}"


def test_2_2_run_counts_evaluations_values_and_bytes():
    graph = chain(2)
    _, trace = run(graph, numbered(graph, "f1 f2 l b2 -f2 -l b1 -f1 -b2"), [X])
    assert trace.evaluations == 5
    assert joined(trace.live_values) == "1 2 3 4 3 2 3 2 1"
    assert joined(trace.live_bytes) == "512 1024 1536 2048 1536 1024 1536 1024 512"


def test_2_2_recomputation_is_an_evaluation_and_takes_less_memory():
    graph = chain(2)
    _, trace = run(graph, numbered(graph, "f1 f2 -f1 l b2 -f2 -l f1 b1 -f1 -b2"), [X])
    assert trace.evaluations == 6
    assert max(trace.live_values) == 3


def test_2_2_run_counts_the_bytes_of_unequal_values():
    graph = differentiate(mlp, parameters=1, inputs=1)
    steps = free_after_last_use(graph, range(6))
    _, trace = run(graph, steps, [np.ones((3, 2)), np.ones((5, 3))])
    # Two products of 5 x 2, a loss of one element, and a gradient of 3 x 2.
    assert joined(trace.live_bytes) == "80 160 80 88 168 248 168 88 136 56"


def test_2_2_gradient_is_the_same_to_the_last_bit_with_recomputation():
    graph = chain(2)
    saved = run(graph, free_after_last_use(graph, [0, 1, 2, 3, 4]), [X])[0][0]
    again = run(graph, free_after_last_use(graph, [0, 1, 2, 3, 0, 4]), [X])[0][0]
    assert np.array_equal(saved, again), "the gradients of both orders differ"


def test_2_2_reading_a_value_that_is_not_live_is_an_error():
    graph = chain(2)
    with pytest.raises(ValueError, match="step 3"):
        run(graph, numbered(graph, "f1 f2 -f2 l b2 b1"), [X])


def test_2_2_computing_a_value_that_is_live_is_an_error():
    graph = chain(2)
    with pytest.raises(ValueError, match="step 1"):
        run(graph, numbered(graph, "f1 f1 f2 l b2 b1"), [X])


def test_2_2_freeing_a_value_that_is_not_live_is_an_error():
    graph = chain(2)
    with pytest.raises(ValueError, match="step 2"):
        run(graph, numbered(graph, "f1 -f1 -f1"), [X])


def test_2_2_ending_without_a_result_is_an_error():
    graph = chain(2)
    with pytest.raises(ValueError, match="result"):
        run(graph, numbered(graph, "f1 f2 l b2 b1 -b1"), [X])
