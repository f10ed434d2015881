"""The vjp of relu selects by bit mask: results are bitwise the cotangent's, or zero."""

import numpy as np
import pytest

from tinyckpt.ops import kernels_activation as kernels


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_relu_vjp_is_bitwise_cotangent_or_zero(dtype: str) -> None:
    y = np.array([[0.0, 1.0, -0.0, np.inf, np.nan]] * 6, dtype)
    column = np.array([[np.inf], [-np.inf], [np.nan], [-0.0], [5e-324], [-2.0]]).astype(dtype)
    for g in (np.broadcast_to(column, y.shape), np.repeat(column, y.shape[1], axis=1)):
        found, expected = kernels.relu_vjp(np, y, g), np.where(y > 0, g, 0).astype(dtype)
        assert found.tobytes() == expected.tobytes()
        assert found.dtype == dtype


def test_relu_vjp_of_scalar() -> None:
    found = kernels.relu_vjp(np, np.array(2.0), np.array(-3.0))
    assert (found.shape, found.item()) == ((), -3.0)
