"""Part 0 is solved when these tests pass."""

import math
from random import Random

from part_0 import backward, evaluate, forward, residuals, reverse

# a = w * x, b = a + w, loss = b * b. Values: w is 0, x is 1, a is 2, b is 3, the loss is 4.
TAPE = [("multiply", 0, 1), ("add", 2, 0), ("multiply", 3, 3)]


def random_tape(seed, inputs=3, entries=12):
    """Return a tape whose entries read any earlier values."""
    draw = Random(seed)
    return [
        (draw.choice(["add", "multiply"]), draw.randrange(known), draw.randrange(known))
        for known in range(inputs, inputs + entries)
    ]


def test_0_1_forward_computes_the_example():
    assert forward(3.0, 1.0) == (3.0, 6.0, 36.0)
    assert forward(2.0, -3.0) == (-6.0, -4.0, 16.0)


def test_0_2_backward_adds_up_both_contributions_to_w():
    assert backward(3.0, 1.0, 3.0, 6.0) == (24.0, 36.0)
    assert backward(2.0, -3.0, -6.0, -4.0) == (16.0, -16.0)


def test_0_3_evaluate_returns_inputs_and_results():
    assert evaluate(TAPE, [3.0, 1.0]) == [3.0, 1.0, 3.0, 6.0, 36.0]
    assert evaluate([], [5.0]) == [5.0]


def test_0_3_evaluate_leaves_the_list_of_inputs_alone():
    inputs = [3.0, 1.0]
    evaluate(TAPE, inputs)
    assert inputs == [3.0, 1.0]


def test_0_4_reverse_returns_a_cotangent_for_each_value():
    assert reverse(TAPE, [3.0, 1.0, 3.0, 6.0, 36.0]) == [24.0, 36.0, 12.0, 12.0, 1.0]


def test_0_4_cotangent_of_a_value_that_nothing_reads_is_0():
    # The second input and the first result lead nowhere.
    assert reverse([("add", 0, 1), ("multiply", 0, 0)], [3.0, 5.0, 8.0, 9.0]) == [6, 0, 0, 1]


def test_0_4_reverse_agrees_with_the_derivative_of_random_tapes():
    for seed in range(20):
        tape, inputs = random_tape(seed), [0.5, -0.75, 0.25]
        cotangents = reverse(tape, evaluate(tape, inputs))[:3]
        for place in range(3):
            # The complex step: an imaginary part too small to change the real one.
            moved = [value + 1e-30j * (at == place) for at, value in enumerate(inputs)]
            slope = complex(evaluate(tape, moved)[-1]).imag / 1e-30
            assert math.isclose(cotangents[place], slope, rel_tol=1e-12, abs_tol=1e-12), (
                f"the cotangent of input {place} is {cotangents[place]}; expected {slope}, "
                f"for random_tape({seed}) = {tape} and the inputs {inputs}"
            )


def test_0_5_residuals_of_the_example_leave_a_out():
    assert residuals(TAPE) == {0, 1, 3}
    assert residuals([("add", 0, 1), ("add", 2, 2)]) == set()


def test_0_5_reverse_reads_nothing_but_residuals():
    for seed in range(20):
        tape = random_tape(seed)
        values = evaluate(tape, [0.5, -0.75, 0.25])
        saved = residuals(tape)
        forgotten = [value if at in saved else math.nan for at, value in enumerate(values)]
        found, expected = reverse(tape, forgotten), reverse(tape, values)
        assert found == expected, (
            f"with nan for all values but {saved}, cotangents are {found}; expected {expected}, "
            f"for random_tape({seed}) = {tape}"
        )
