"""Master weights: 16-bit parameters with a wider copy that is updated."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.conftest import require
from tests.tinyckpt.training.test_train_step import PARAMETERS, X, Y, arrays, loss, trained
from tinyckpt.base.tree import leaves, map_leaves


def test_master_weights_keep_updates_that_16_bits_lose() -> None:
    halves = map_leaves(lambda p: p.astype(np.float16), PARAMETERS)

    def half_loss(params: Any, x: Any, y: Any) -> Any:
        return loss(params, x, y).astype("float32")

    step = tc.train_step(half_loss, tc.with_master_weights(tc.sgd(1e-5)))
    state = trained(step, 40, X.astype(np.float16), Y.astype(np.float16), parameters=halves)
    assert [leaf.dtype.name for leaf in leaves(state["parameters"])] == ["float16"] * 2
    master = state["optimizer"]["master"]
    assert (arrays(master) != arrays(halves)).all()  # each step is below the spacing of float16
    np.testing.assert_array_equal(
        arrays(state["parameters"]), arrays(map_leaves(lambda m: m.astype(np.float16), master))
    )


@pytest.mark.parametrize("dtype", ["int8", "float16", "complex64", None])
def test_master_weights_of_other_dtypes_are_refused(dtype: Any) -> None:
    with pytest.raises(tc.OptionError, match=r"dtype=.*; master weights are float32 or float64"):
        tc.with_master_weights(tc.sgd(0.1), dtype)


def test_parameters_may_be_stored_as_bfloat16() -> None:
    require("ml_dtypes")
    dtype = tc.Spec((), "bfloat16").dtype

    def wide_loss(params: Any, x: Any, y: Any) -> Any:
        return loss(map_leaves(lambda p: p.astype("float32"), params), x, y)

    batch = X.astype(np.float32), Y.astype(np.float32)
    stored = map_leaves(lambda p: p.astype(dtype), PARAMETERS)
    for count in (1, 2):
        step = tc.train_step(wide_loss, tc.with_master_weights(tc.adam(0.05)), micro_batches=count)
        state = trained(step, 3, *batch, parameters=stored)
        assert {leaf.dtype for leaf in leaves(state["parameters"])} == {dtype}
        master = state["optimizer"]["master"]
        np.testing.assert_array_equal(
            arrays(state["parameters"]), arrays(map_leaves(lambda m: m.astype(dtype), master))
        )
        assert (np.abs(arrays(master) - arrays(stored)) > 0.05).all()
