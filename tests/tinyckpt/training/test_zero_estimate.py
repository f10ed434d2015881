"""ZeRO memory estimate from the graph of a step."""

from typing import Any

import pytest

import tinyckpt as tc
from tinyckpt.training.zero_estimate import sharded


def loss(params: Any, x: Any) -> Any:
    for w in params:
        x = tc.tanh(x @ w)
    return tc.half_squared_norm(x.astype("float32"))


def ledger_of(layers: int, width: int, optimizer: tc.Optimizer, dtype: str) -> tc.Ledger:
    step = tc.train_step(loss, optimizer, gradients="held")
    state = step.init([tc.Spec((width, width), dtype)] * layers)
    return tc.ledger(step.schedule(state, tc.Spec((1, width), dtype)))


def test_sharding_of_7_5_billion_parameters_equals_the_paper() -> None:
    ledger = ledger_of(75, 10_000, tc.with_master_weights(tc.adam(1e-3)), "float16")
    found = [sharded(ledger, 64, zero) for zero in range(4)]
    gigabytes = [f"{each.nbytes / 1e9:.1f}" for each in found]
    assert gigabytes == ["120.0", "31.4", "16.6", "1.9"]
    # Twice the parameters' bytes, and three times with ZeRO-3: section 7.
    parameters = 2 * 75 * 10**8
    assert [each.exchanged // parameters for each in found] == [2, 2, 2, 3]


def test_shards_are_rounded_up() -> None:
    ledger = ledger_of(1, 3, tc.adam(1e-3), "float32")
    whole = sharded(ledger, 1, 3)
    # 9 numbers of 4 bytes; two moments, and the number of steps.
    assert (whole.parameters, whole.gradients, whole.optimizer_state) == (36, 36, 72 + 8)
    assert whole.exchanged == 0
    third = sharded(ledger, 7, 3)
    assert (third.parameters, third.gradients, third.optimizer_state) == (6, 6, 12)
    for ranks in (1, 2, 5, 100):
        sizes = [sharded(ledger, ranks, zero).nbytes for zero in range(4)]
        assert sizes == sorted(sizes, reverse=True)


def test_illegal_sharding_is_refused() -> None:
    ledger = ledger_of(1, 3, tc.sgd(0.1), "float32")
    with pytest.raises(tc.OptionError, match="ranks=0; it must be an integer of 1 or more"):
        sharded(ledger, 0, 1)
    with pytest.raises(tc.OptionError, match="zero=4; ZeRO has 1, 2 and 3"):
        sharded(ledger, 2, 4)


def test_gradient_that_is_a_view_counts_as_gradient() -> None:
    def transposed(params: Any, x: Any) -> Any:
        for w in params:
            x = tc.tanh(x @ tc.transpose(w))
        return tc.half_squared_norm(x)

    step = tc.train_step(transposed, tc.adam(1e-3), gradients="held")
    state = step.init([tc.Spec((6, 6), "float32")] * 3)
    ledger = tc.ledger(step.schedule(state, tc.Spec((1, 6), "float32")))
    found = sharded(ledger, 3, 2)
    assert (found.parameters, found.gradients) == (3 * 144, 144)
    assert found.exchanged == 2 * 3 * 144
