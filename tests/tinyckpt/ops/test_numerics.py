"""Numerical accuracy of the kernels over the whole range of each dtype, in ulp.

The reference is evaluated in extended precision (``np.longdouble``), from the same arguments.
"""

import math
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.ops import kernels_activation as kernels
from tinyckpt.ops import special_functions as special
from tinyckpt.ops.kernels_elementwise import KERNELS

log_sigmoid, log_sigmoid_vjp, sigmoid_vjp = (
    KERNELS[name].function for name in ("log_sigmoid", "log_sigmoid_vjp", "sigmoid_vjp")
)
Long = np.longdouble
# Beyond these the functions below are 0 or x.
RANGES = {"float16": 24, "float32": 110, "float64": 760}
wide = pytest.mark.skipif(
    np.finfo(Long).nmant <= np.finfo(np.float64).nmant, reason="longdouble is no longer here"
)


def everywhere(dtype: str) -> Any:
    """Return points over the whole range, more of them around 0, and both zeros."""
    top = RANGES[dtype]
    near = np.geomspace(1e-7, top, 20_001)
    points = [np.linspace(-top, top, 100_001), np.linspace(-3, 3, 50_001), near, -near, [0.0, -0.0]]
    return np.concatenate(points).astype(dtype)


def units(found: Any, expected: Any, scale: Any = None) -> float:
    """Return the largest error in units in the last place, of the expected value or of a scale."""
    dtype = found.dtype
    size = np.maximum(np.abs(expected if scale is None else scale), Long(np.finfo(dtype).tiny))
    return float(np.max(np.abs(found.astype(Long) - expected) / np.spacing(size.astype(dtype))))


def halves(x: Any) -> tuple[Any, Any]:
    """Return sigmoid(x) and sigmoid(-x), which adds up to 1, as long numbers."""
    e = np.exp(-np.abs(x.astype(Long)))
    return np.where(x >= 0, 1, e) / (1 + e), np.where(x < 0, 1, e) / (1 + e)


@wide
@pytest.mark.parametrize("dtype", RANGES)
def test_sigmoid_and_silu_are_accurate_to_4_ulp(dtype: str) -> None:
    x = everywhere(dtype)
    long, (s, rest) = x.astype(Long), halves(x)
    log = np.minimum(long, 0) - np.log1p(np.exp(-np.abs(long)))
    assert units(kernels.sigmoid(np, x), s) <= 4
    assert units(kernels.silu(np, x), long * s) <= 4
    assert units(log_sigmoid(np, x), log) <= 4
    # NumPy's exp of float32 itself is off by up to 2.6 units.
    most = 5 if dtype == "float32" else 4
    ones = np.ones_like(x)
    terms = np.maximum(s, np.abs(s * long * rest))  # they cancel where silu has its minimum
    assert units(kernels.silu_vjp(np, x, ones), s * (1 + long * rest), terms) <= most
    assert (
        units(
            log_sigmoid_vjp(np, log_sigmoid(np, x), ones),
            rest,
        )
        <= most
    )
    y = kernels.sigmoid(np, x)
    assert units(sigmoid_vjp(np, y, ones), y.astype(Long) * (1 - y.astype(Long))) <= 4


@wide
@pytest.mark.parametrize(
    ("dtype", "least"), [("float16", -3.5), ("float32", -12), ("float64", -36)]
)
def test_gelu_keeps_relative_accuracy_in_negative_tail(dtype: str, least: float) -> None:
    # Where results are normal numbers. The recurrence of 28 terms costs a few units anywhere.
    x = np.concatenate([np.linspace(least, 6, 20_001), np.linspace(-3, 3, 10_001)]).astype(dtype)
    long = x.astype(Long)
    z = -long / np.sqrt(Long(2))
    density = np.exp(-long * long / 2) / np.sqrt(2 * Long(np.pi))
    rounded = z.astype(np.float64)
    cdf = np.array([math.erfc(value) / 2 for value in rounded]).astype(Long)
    cdf -= (z - rounded) * np.exp(-z * z) / np.sqrt(Long(np.pi))
    terms = np.maximum(cdf, np.abs(long * density))
    assert units(special.normal_cdf(np, x), cdf) <= 12
    assert units(kernels.gelu(np, x), cdf * long) <= 12
    assert units(kernels.gelu_vjp(np, x, np.ones_like(x)), cdf + long * density, terms) <= 12


@pytest.mark.parametrize("dtype", RANGES)
def test_activations_do_not_overflow_at_extremes(dtype: str) -> None:
    x = np.array([np.finfo(dtype).min, np.finfo(dtype).max], dtype)
    ones = np.ones_like(x)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert kernels.sigmoid(np, x).tolist() == [0.0, 1.0]
        assert kernels.silu(np, x).tolist() == [0.0, x[1]]
        assert log_sigmoid(np, x).tolist() == [x[0], 0.0]
        assert units(kernels.silu_vjp(np, x, ones), np.array([0, 1], Long)) <= 1
        assert log_sigmoid_vjp(np, log_sigmoid(np, x), ones).tolist() == [1.0, 0.0]
        assert kernels.gelu(np, x).tolist() == [0.0, x[1]]
        assert kernels.gelu_vjp(np, x, ones).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("dtype", RANGES)
def test_gelu_is_saturated_for_large_inputs(dtype: str) -> None:
    large = np.array([41, 100, 250, 300, 4095, 5000, 65504, np.finfo(dtype).max], dtype)
    ones = np.ones_like(large)
    with np.errstate(over="ignore"):  # of the cube, within tanh
        for name in ("gelu", "gelu_tanh"):
            forward, backward = getattr(kernels, name), getattr(kernels, f"{name}_vjp")
            assert np.array_equal(forward(np, large), large)
            assert np.array_equal(forward(np, -large), 0 * large)
            assert np.array_equal(backward(np, large, ones), ones)
            assert np.array_equal(backward(np, -large, ones), 0 * large)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_log_sigmoid_gradient_is_accurate_in_tails(dtype: str) -> None:
    x = np.array([-20.0, -36.0, -80.0], dtype)
    value, gradient = tc.value_and_grad(lambda x: tc.sum(tc.log(tc.sigmoid(x))))(x)
    np.testing.assert_allclose(gradient, 1 / (1 + np.exp(x)), rtol=4 * np.finfo(dtype).eps)
    assert float(value) == pytest.approx(-136.0, rel=1e-6)
    stable, gradient = tc.value_and_grad(lambda x: tc.sum(tc.log_sigmoid(x)))(10 * x)
    assert (float(stable), gradient.tolist()) == (-1360.0, [1.0, 1.0, 1.0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shift", [1e4, -1e4])
@pytest.mark.parametrize("name", ["cross_entropy", "softmax", "log_softmax"])
def test_cross_entropy_is_invariant_to_logit_shift(name: str, shift: float, dtype: str) -> None:
    generator = np.random.default_rng(0)
    # Multiples of 1/256: with the shift they are still numbers of float32.
    logits = (generator.integers(-2000, 2000, (16, 10)) / 256).astype(dtype)
    labels, weights = generator.integers(0, 10, 16), generator.normal(size=(16, 10)).astype(dtype)

    def loss(logits: Any) -> Any:
        if name == "cross_entropy":
            return tc.cross_entropy(logits, labels)
        return tc.sum(getattr(tc, name)(logits) * weights)

    def penalised(logits: Any) -> Any:
        return tc.sum(tc.gradients(loss(logits), logits) ** 2)

    for function in (loss, penalised):
        step = tc.value_and_grad(function)
        value, gradient = step(logits)
        moved, moved_gradient = step(logits + np.asarray(shift, dtype))
        assert moved == value
        assert np.array_equal(moved_gradient, gradient)


def test_cross_entropy_is_independent_of_layout_and_label_dtype() -> None:
    generator = np.random.default_rng(0)
    x, labels = generator.normal(size=(4, 3, 5)), generator.integers(0, 4, (5, 3))
    logits = x.T.reshape(5, 3, 4)
    expected = -np.log(np.take_along_axis(np.exp(logits), labels[..., None], -1)[..., 0]
                       / np.exp(logits).sum(axis=-1)).mean()  # fmt: skip
    for dtype in ("int64", "int32", "int8", "uint8"):
        step = tc.value_and_grad(lambda x, y: tc.cross_entropy(x.T, y))
        value, _ = step(x, labels.astype(dtype))
        assert float(value) == pytest.approx(expected, rel=1e-14)
    single = tc.value_and_grad(tc.cross_entropy)(np.zeros(4), np.array(2))
    assert float(single[0]) == pytest.approx(math.log(4))


def test_float16_mean_does_not_overflow() -> None:
    x = np.full((3, 30_000), 5.0, "float16")
    for axis, expected in ((None, x.mean()), (1, x.mean(axis=1))):
        value, gradient = tc.value_and_grad(lambda x, a=axis: tc.sum(tc.mean(x, axis=a)))(x)
        assert value.dtype == gradient.dtype == np.float16
        assert np.array_equal(value, np.sum(expected))
    np.testing.assert_allclose(gradient, 1 / 30_000, rtol=1e-2)


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
