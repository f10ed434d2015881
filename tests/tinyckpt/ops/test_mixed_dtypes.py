"""Operands of two dtypes: values as in NumPy, derivatives by finite differences."""

import warnings
from collections.abc import Callable
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc

FLOATS, OTHERS = ["float64", "float32", "float16"], ["int64", "int32", "int8", "uint8", "bool"]
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3), (2, 3)), ((2, 3), (3,)), ((3,), ()), ((), (2, 1)), ((2, 1), (1, 3)), ((0, 3), (1,)),
]  # fmt: skip
BINARY = {
    name: getattr(np, name)
    for name in (
        "add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "fmax", "fmin",
        "remainder", "fmod", "floor_divide", "arctan2", "hypot", "logaddexp", "copysign",
        "heaviside",
    )
} | {
    "where": lambda x, y: np.where(np.array([True, False, True]), x, y),
    "clip from below": lambda x, y: np.clip(x, y, None),
    "clip from above": lambda x, y: np.clip(x, None, y),
    "join": lambda x, y: np.concatenate([x, y], axis=None),
    "outer": np.outer,
}  # fmt: skip
PYTHON = [2, 2.5, True]


def drawn(random: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Any:
    """Return non-integers for float dtypes: some operators jump at integers."""
    if dtype == "bool":
        return np.ones(shape, bool)
    if dtype not in FLOATS:
        return random.integers(1, 4, shape).astype(dtype)
    return np.asarray(random.integers(0, 3, shape) + random.uniform(0.55, 0.95, shape)).astype(
        dtype
    )


def check(function: Callable[..., Any], *operands: Any) -> None:
    """Check the value against NumPy, and both derivatives of each operand of floats."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.asarray(function(*operands))
        value = tc.jit(function)(*operands)
        assert (value.shape, value.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(
            value.astype(float), expected.astype(float), rtol=2e-3 if value.dtype == "f2" else 1e-6
        )
        weights = np.random.default_rng(0).uniform(0.5, 1.5, value.shape)
        coarse = any(getattr(operand, "dtype", None) == "float16" for operand in operands)
        tolerance = 2e-2 if coarse else 1e-4

        def loss(*operands: Any) -> tc.Var:
            return tc.sum(tc.astype(function(*operands), "float64") * weights)

        for place, operand in enumerate(operands):
            if getattr(operand, "dtype", np.dtype(bool)).kind != "f":
                continue
            slope = tc.grad(loss, wrt=place)
            found = slope(*operands)
            assert (found.shape, found.dtype) == (operand.shape, operand.dtype)
            fine = [o.astype(float) if getattr(o, "dtype", None) in FLOATS else o for o in operands]
            numeric = differences(lambda *o: np.sum(function(*o) * weights), fine, place)
            np.testing.assert_allclose(found, numeric, rtol=tolerance, atol=tolerance)
            bend = tc.grad(
                lambda *o, slope=slope: tc.sum(tc.astype(slope(*o), "float64") ** 2), wrt=place
            )
            assert bend(*operands).dtype == operand.dtype
            second = differences(lambda *o, slope=slope: np.sum(slope(*o) ** 2), fine, place)
            np.testing.assert_allclose(bend(*fine), second, rtol=1e-3, atol=1e-3)


def differences(function: Callable[..., Any], operands: list[Any], place: int) -> Any:
    """Return the derivative of a scalar by central differences."""
    slope = np.zeros(operands[place].shape)
    for element in np.ndindex(*slope.shape):
        values = []
        for step in (1e-6, -1e-6):
            moved = np.array(operands[place])
            moved[element] += step
            values.append(function(*operands[:place], moved, *operands[place + 1 :]))
        slope[element] = (values[0] - values[1]) / 2e-6
    return slope


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin", "clip from above"])
@pytest.mark.parametrize("dtypes", [("float32", "int64"), ("int8", "float16"), ("float64", "bool")])
def test_maximum_of_floats_and_integers_has_derivatives(name: str, dtypes: tuple[str, str]) -> None:
    random = np.random.default_rng(0)
    for shapes in SHAPES[:5]:
        check(BINARY[name], *(drawn(random, *pair) for pair in zip(dtypes, shapes, strict=True)))


@pytest.mark.long
@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
@pytest.mark.parametrize("number", [np.int64(2), np.float32(2.5), np.bool_(True), *PYTHON])
def test_maximum_of_array_and_number_has_derivatives(name: str, number: Any) -> None:
    random = np.random.default_rng(0)
    for dtype in FLOATS:
        check(lambda x: BINARY[name](x, number), drawn(random, dtype, (2, 3)))
        check(lambda x: BINARY[name](number, x), drawn(random, dtype, (2, 3)))


def test_maximum_tie_of_float_and_integer_halves_cotangent() -> None:
    x, y = np.array([1.0, 2.0, 3.0], "f4"), np.array([2, 2, 2])
    for function, expected in ((np.maximum, [0, 0.5, 1]), (np.minimum, [1, 0.5, 0])):
        slope = tc.grad(lambda x, y, function=function: tc.sum(function(x, y)))(x, y)
        assert slope.tolist() == expected


@pytest.mark.sampled(3)
@pytest.mark.long
@pytest.mark.parametrize("name", BINARY)
def test_mixed_dtype_operands_promote_as_in_numpy(name: str) -> None:
    random, shapes = np.random.default_rng(0), cycle(SHAPES)
    for one, other in product(FLOATS, [*FLOATS, *OTHERS]):
        for dtypes in ((one, other), (other, one)):
            pairs = zip(dtypes, next(shapes), strict=True)
            check(BINARY[name], *(drawn(random, *pair) for pair in pairs))
