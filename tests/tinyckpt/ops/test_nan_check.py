"""NaN and float16 overflow detection: the origin is named, legitimate infinities are not."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc

MASK = np.array([True, False])


def run(function: Any, *args: Any) -> Any:
    with np.errstate(all="ignore"):
        return tc.run(tc.plan(tc.build(function, *args)), *args).value


def test_infinite_input_is_not_an_overflow() -> None:
    x = np.array([np.inf, 1], np.float16)
    assert run(lambda x: x, x).tolist() == [np.inf, 1]
    assert run(lambda x: x[::-1] * 2.0, x).tolist() == [2, np.inf]


def test_masked_scores_are_not_reported_as_overflow() -> None:
    def weights(x: Any) -> Any:
        return tc.exp(tc.where(MASK, -np.inf, x))

    x = np.array([1, 2], np.float16)
    assert run(weights, x)[0] == 0
    with pytest.raises(tc.BackendError, match="float16 overflow, first from step 3: multiply_1"):
        run(lambda x: weights(x) * np.array(60000, np.float16), x)
    step = tc.train_step(
        lambda x, scale: tc.sum(weights(x).astype("float32")), tc.sgd(0.1), check_nan=True
    )
    _, value = step(step.init(x), np.ones(1))
    assert value == pytest.approx(np.exp(2), rel=1e-3)


def test_nan_is_located_with_parameter_updates() -> None:
    def update(w: Any, x: Any) -> Any:
        return tc.assign(w, w - x), tc.sum(tc.log(w))

    with pytest.raises(tc.BackendError, match=r"NaN, first from step .: log_1, a log of w"):
        run(update, np.array([-1.0, 1.0]), np.array([-3.0, 0.0]))
