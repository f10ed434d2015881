"""Dynamic loss scaling: 16-bit gradients neither underflow nor overflow unnoticed."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.base.tree import leaves


@pytest.mark.parametrize("count", [1, 2, 4])
def test_loss_scale_saves_gradients_from_underflow(count: int) -> None:
    def faint(params: Any, x: Any) -> Any:
        return tc.mean(params["w"].astype("float32") * x) * 2e-8  # float16 begins at 6e-8

    optimizer = tc.clipped(tc.with_master_weights(tc.sgd(1.0)), 1.0)
    moved = {}
    for scale in (None, tc.LossScale()):
        step = tc.train_step(faint, optimizer, loss_scale=scale, micro_batches=count)
        state = step.init({"w": np.zeros(1, np.float16)})
        state, _ = step(state, np.ones((4, 1), np.float32))
        (moved[scale],) = state["optimizer"]["master"]["w"].tolist()
    assert moved[None] == 0
    assert moved[tc.LossScale()] == pytest.approx(-2e-8, rel=1e-3)


def test_gradients_waiting_for_loss_scale_stay_in_16_bits() -> None:
    def linear(params: Any, x: Any) -> Any:
        for w in params:
            x = x @ w
        return tc.sum(x.astype("float32"))

    step = tc.train_step(linear, tc.with_master_weights(tc.sgd(1.0)), loss_scale=tc.LossScale())
    state = step.init([tc.Spec((64, 64), "float16")] * 16)
    ledger = tc.ledger(step.schedule(state, tc.Spec((2, 64), "float16")))
    assert max(ledger.held["gradients"]) == 16 * 2 * 64 * 64
    assert max(ledger.held["updates"]) < 8 * 4 * 64 * 64


def test_overflow_changes_only_the_scale() -> None:
    def steep(params: Any, x: Any) -> Any:
        return tc.sum(params["w"] * x)

    scale = tc.LossScale(initial=2.0**4, growth_interval=2)
    step = tc.train_step(steep, tc.adam(0.5), loss_scale=scale)
    state = step.init({"w": np.ones(2, np.float16)})
    large = np.full(2, 30000, np.float16)
    before = [leaf.copy() for leaf in leaves([state["parameters"], state["optimizer"]])]
    state, _ = step(state, large)  # 16 * 30,000 is more than float16 has
    assert (int(state["step"]), float(state["scale"]), int(state["good_steps"])) == (0, 8.0, 0)
    for leaf, old in zip(leaves([state["parameters"], state["optimizer"]]), before, strict=True):
        np.testing.assert_array_equal(leaf, old)
    small = np.ones(2, np.float16)
    state, _ = step(state, small)
    state, _ = step(state, small)
    assert (int(state["step"]), float(state["scale"]), int(state["good_steps"])) == (2, 16.0, 0)


def test_overflow_in_a_micro_batch_is_not_carried_on() -> None:
    def summing(params: Any, total: Any, x: Any) -> Any:
        return tc.sum(params * x), total + tc.sum(x)

    step = tc.train_step(summing, tc.sgd(0.1), carry=True, micro_batches=4,
                         loss_scale=tc.LossScale())  # fmt: skip
    for place, carried in enumerate((0.0, 1.0, 2.0, 3.0)):
        state = step.init(np.ones((), np.float32), np.zeros((), np.float32))
        x = np.ones(4, np.float32)
        x[place] = np.inf
        state, _ = step(state, x)
        assert float(state["carried"]) == carried
        assert (int(state["step"]), float(state["parameters"])) == (0, 1.0)
        assert float(state["scale"]) == tc.LossScale().initial / 2
    state, _ = step(state, np.ones(4, np.float32))
    assert (float(state["carried"]), int(state["step"])) == (7.0, 1)


@pytest.mark.parametrize("largest", [2.0**24, 40.0])
def test_loss_scale_never_exceeds_its_largest(largest: float) -> None:
    def flat(params: Any, x: Any) -> Any:
        return tc.sum(params["w"] * x)

    scale = tc.LossScale(initial=largest / 4, growth_interval=1, largest=largest)
    step = tc.train_step(flat, tc.sgd(0.1), loss_scale=scale)
    state = step.init({"w": np.ones(2, np.float32)})
    found = []
    for _ in range(4):
        state, _ = step(state, np.ones(2, np.float32))
        found.append(float(state["scale"]))
    assert found == [largest / 2, largest, largest, largest]
    assert state["scale"].dtype == np.float32


@pytest.mark.parametrize("smallest", [1.0, 2.0**-3])
def test_loss_scale_never_falls_below_its_smallest(smallest: float) -> None:
    def flat(params: Any, x: Any) -> Any:
        return tc.sum(params["w"] * x)

    scale = tc.LossScale(initial=4.0, smallest=smallest)
    step = tc.train_step(flat, tc.sgd(0.5), loss_scale=scale)
    state = step.init({"w": np.ones(2, np.float32)})
    for _ in range(160):  # 2**2 * 2**-160 is 0 in float32
        state, _ = step(state, np.full(2, np.nan, np.float32))
    assert (float(state["scale"]), int(state["step"])) == (smallest, 0)
    state, _ = step(state, np.ones(2, np.float32))
    np.testing.assert_array_equal(state["parameters"]["w"], np.full(2, 0.5, np.float32))
    assert int(state["step"]) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"initial": 0},
        {"initial": float("inf")},
        {"initial": 2.0**25},
        {"initial": 0.5},
        {"initial": "much"},
        {"smallest": 0},
        {"smallest": 2.0**25},
        {"smallest": float("nan")},
        {"growth_interval": 0},
        {"largest": 2.0**127},
        {"largest": "much"},
    ],
)
def test_illegal_loss_scale_is_refused(options: Any) -> None:
    with pytest.raises(tc.OptionError, match=f"{next(iter(options))}="):
        tc.LossScale(**options)
