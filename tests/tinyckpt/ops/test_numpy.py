"""NumPy compatibility: values, dtypes and shapes of every name in the dispatch tables, on Vars."""

import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests import strict
from tests.conftest import lacking
from tests.numpy_examples import EXAMPLES, found
from tests.tinyckpt.ops.test_derivatives import check_gradient
from tinyckpt.base.tree import leaves


def values(result: Any) -> list[Any]:
    """Return the arrays of a result of NumPy's."""
    return [
        np.asarray(array) for array in (result if isinstance(result, list | tuple) else [result])
    ]


def computed(function: Any, *args: Any, backend: Any = "numpy") -> list[Any]:
    """Run a traced function; assert that replay and execution agree on memory."""
    schedule = tc.plan(tc.build(function, *args))
    with np.errstate(all="ignore"):
        result = tc.run(schedule, *args, backend=backend, check_nan=False)
    assert result.trace == tc.replay(schedule)
    return leaves(result.value)


def same(result: list[Any], expected: list[Any], rtol: float = 1e-13) -> None:
    """Check values, dtypes and shapes."""
    assert len(result) == len(expected)
    for array, other in zip(result, expected, strict=True):
        assert (array.dtype, array.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(array, other, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", EXAMPLES)
def test_values_dtypes_and_shapes_match_numpy(name: str) -> None:
    example = EXAMPLES[name]
    if found(np, name) is None:
        lacking(f"a NumPy that has {name}")
    expected = values(example.call(np, *example.args))
    same(computed(partial(example.call, np), *example.args), expected)
    if callable(found(tc, name)):
        same(computed(partial(example.call, tc), *example.args), expected)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_name_runs_on_strict_non_numpy_arrays(name: str) -> None:
    example = EXAMPLES[name]
    if found(np, name) is None:
        lacking(f"a NumPy that has {name}")
    expected = values(example.call(np, *example.args))
    arrays = computed(partial(example.call, np), *example.args, backend=strict.BACKEND)
    same([strict.asnumpy(array) for array in arrays], expected)


class Methods:
    """NumPy, but for one function, which is called as a method of its first argument."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name != self.name:
            return getattr(np, name)
        return lambda x, *args, **options: getattr(x, name)(*args, **options)


PROPERTIES = {"real"}
AS_METHODS = [n for n in EXAMPLES if hasattr(np.ndarray, n) and n not in PROPERTIES]


@pytest.mark.parametrize("name", AS_METHODS)
def test_var_methods_match_ndarray_methods(name: str) -> None:
    example = EXAMPLES[name]
    if name in ("astype", "transpose", "reshape", "sort"):
        assert callable(getattr(tc.Var, name))
        return
    call = partial(example.call, Methods(name))
    same(computed(call, *example.args), values(call(*example.args)))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x: x.sum(dtype="float32"), r"np\.sum: dtype= is not supported: convert with"),
        (lambda x: x.mean(0, np.float32), r"np\.mean: dtype= is not supported"),
        (lambda x: x.var(0, np.float64), r"np\.var: dtype= is not supported"),
        (lambda x: x.max(initial=0.0), r"np\.max: initial= is not supported: combine"),
        (lambda x: x.reshape(6, order="F"), "arrays are in C order: transpose first"),
        (lambda x: tc.sum(x, 0, "yes"), "keepdims is 'yes'; it must be True or False"),
    ],
)
def test_unsupported_method_arguments_are_named(use: Any, message: str) -> None:
    with pytest.raises(tc.GraphError, match=message):
        tc.build(use, tc.Spec((2, 3)))
    for legal in (lambda x: x.mean(0, None, None, True), lambda x: x.argsort(kind="stable")):
        assert tc.build(legal, tc.Spec((2, 3))).outputs


def test_uint8_indices_and_nan_medians_match_numpy() -> None:
    x = np.arange(300.0)
    assert computed(lambda x: x[np.array([1, 200], np.uint8)], x)[0].tolist() == [1.0, 200.0]
    assert np.isnan(computed(np.median, np.array([1.0, np.nan, 3.0]))[0])
    columns = np.array([[1.0, np.nan], [3.0, 2.0]])
    same(computed(lambda x: np.median(x, axis=0), columns), [np.median(columns, axis=0)])


# Dtypes -------------------------------------------------------------------------------------------

DTYPES = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool")
FLOATING = [
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "sin", "cos", "tan",
    "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arctanh", "deg2rad",
    "rad2deg", "rint", "fabs",
]  # fmt: skip
ARITHMETIC = [
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "power",
    "maximum", "minimum", "arctan2", "hypot", "logaddexp", "copysign", "heaviside", "greater",
    "less_equal", "equal", "logical_and", "logical_xor", "where",
]  # fmt: skip
# NumPy treats booleans as numbers, each function in its own way; here, arithmetic rejects them.
NOT_FOR_BOOLEANS = {
    "add", "floor_divide", "fmod", "maximum", "minimum", "multiply", "power", "remainder",
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FLOATING)
def test_integer_inputs_promote_to_numpys_float_dtype(name: str, dtype: str) -> None:
    x = np.array([0, 1], dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x)
    (found,) = computed(getattr(np, name), x)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=8 * np.finfo(expected.dtype).eps)


def numpys(name: str, *args: Any) -> Any:
    """Return the result of NumPy's function on arrays and numbers, or None if it raises."""
    function = partial(np.where, np.array([True, False])) if name == "where" else getattr(np, name)
    try:
        with np.errstate(all="ignore"):
            return function(*args)
    except TypeError:
        return None


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_binary_dtype_promotion_matches_numpy(name: str) -> None:
    compared = 0
    arrays = [np.array([1, 2], dtype) for dtype in DTYPES]
    others: list[Any] = [*arrays, 2, 1.5, np.float32(2), np.float64(2), np.int8(2)]
    for x in arrays:
        for y in others:
            kinds = {np.asarray(operand).dtype.kind for operand in (x, y)}
            if kinds == {"b"} and name in NOT_FOR_BOOLEANS:
                continue
            expected = numpys(name, x, y)
            if expected is None or expected.dtype.name not in DTYPES:
                continue
            if isinstance(y, np.ndarray):
                (found,) = computed(partial(numpys, name), x, y)
            else:
                (found,) = computed(lambda x, y=y: numpys(name, x, y), x)
            assert found.dtype == expected.dtype, (name, x.dtype, y)
            np.testing.assert_allclose(
                found.astype(float), expected.astype(float), rtol=2e-3 if x.itemsize < 4 else 1e-6
            )
            compared += 1
    assert compared > 50


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "bool"])
def test_integer_reductions_match_numpy(dtype: str) -> None:
    x = np.array([[1, 0, 2], [3, 1, 1]], dtype)
    for name in ("sum", "prod", "cumsum", "cumprod", "mean", "std", "min", "max", "argmax", "any"):
        (found,) = computed(getattr(np, name), x)
        expected = np.asarray(getattr(np, name)(x))
        # NumPy accumulates uint8 as uint64, which graphs do not have.
        assert found.dtype == (np.int64 if expected.dtype == np.uint64 else expected.dtype), name
        np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_numpy_scalars_keep_dtype_and_python_scalars_are_weak() -> None:
    x = np.ones(2, "float32")
    strong, weak, power, chosen = computed(
        lambda x: [
            x * np.float64(2), x * 2.0, x ** np.float64(2), np.where(x > 0, np.zeros(1, "f4"), 1.5),
        ],
        x,
    )  # fmt: skip
    assert [a.dtype.name for a in (strong, weak, power, chosen)] == [
        "float64", "float32", "float64", "float32",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "reciprocal"])
def test_other_dtypes_match_numpy_for_every_name(name: str, dtype: str) -> None:
    example = EXAMPLES[name]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # casts of NaN
        args = [arg.astype(dtype) if arg.dtype.kind == "f" else arg for arg in example.args]
        try:
            expected = values(example.call(np, *args))
        except (AttributeError, TypeError):
            lacking(f"a NumPy that has {name} of {dtype}")
    eps = float(np.finfo(dtype if dtype.startswith("f") else "float64").eps)
    result = computed(partial(example.call, np), *args)
    same([a.astype(float) for a in result], [a.astype(float) for a in expected], 8 * eps)
    assert [a.dtype for a in result] == [a.dtype for a in expected]


# NumPy's protocols --------------------------------------------------------------------------------


def test_ufunc_methods_are_dispatched() -> None:
    x, y = np.random.default_rng(0).normal(size=(3, 2)), np.arange(4.0)
    for function in (
        lambda x, y: np.add.reduce(x),
        lambda x, y: np.add.reduce(x, axis=1, keepdims=True),
        lambda x, y: np.multiply.reduce(x, axis=None),
        lambda x, y: np.maximum.reduce(x, 1),
        lambda x, y: np.logical_or.reduce(x > 0),
        lambda x, y: np.add.accumulate(x),
        lambda x, y: np.multiply.accumulate(x, axis=1),
        lambda x, y: np.subtract.outer(x, y),
        lambda x, y: np.sum(a=x, axis=0, out=None),
        lambda x, y: np.clip(x, a_min=-0.5, a_max=None),
        lambda x, y: np.clip(x, min=0.0, max=0.5),
        lambda x, y: np.std(x, axis=0, correction=1),
        lambda x, y: np.pad(x, 1, "constant", constant_values=2.0),
        lambda x, y: np.repeat(x, repeats=2, axis=0),
        lambda x, y: np.einsum("ij,k->kji", x, y, optimize=True),
        lambda x, y: np.ravel(x, order="C"),
        lambda x, y: np.concatenate((x, x), axis=None),
        lambda x, y: y[:3] @ x + y[0] * x[1],
        lambda x, y: x.round(1) + (+x) // 0.3 + x % 0.3 + 2 // (x * x + 1) + 2 % (x * x + 1),
        lambda x, y: x.mT.squeeze().std(axis=0).reshape(-1),
    ):
        same(computed(function, x, y), values(function(x, y)))


def test_plain_numpy_function_builds_unchanged() -> None:
    def layer_norm_and_attention(x: Any, w: Any) -> Any:
        x = (x - np.mean(x, axis=-1, keepdims=True)) / np.std(x, axis=-1, keepdims=True)
        scores = np.einsum("bid,bjd->bij", x @ w, x) / np.sqrt(x.shape[-1])
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
        weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
        weights /= np.sum(weights, axis=-1, keepdims=True)
        return np.sum(np.square(np.swapaxes(weights @ x, 0, 1)))

    x, w = np.random.default_rng(0).normal(size=(2, 5, 4)), np.eye(4) + 0.1
    value, _ = tc.value_and_grad(layer_norm_and_attention, wrt=1)(x, w)
    assert float(value) == pytest.approx(float(layer_norm_and_attention(x, w)), rel=1e-12)
    check_gradient(layer_norm_and_attention, (x, w), 1e-6)


# Numerics -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softplus_and_logsumexp_are_accurate_at_both_ends(dtype: str) -> None:
    eps, tiny = float(np.finfo(dtype).eps), float(np.finfo(dtype).tiny)
    largest = -np.log(tiny)
    x = np.concatenate([np.linspace(-largest, largest, 401), [0.0]]).astype(dtype)
    exact = np.logaddexp(np.longdouble(0), x.astype("longdouble"))
    slope = 1 / (1 + np.exp(-x.astype("longdouble")))
    value, gradient = (
        tc.run(tc.plan(tc.build(tc.softplus, x)), x).value,
        tc.grad(lambda x: tc.sum(tc.softplus(x)))(x),
    )
    np.testing.assert_allclose(value, exact.astype(dtype), rtol=4 * eps)
    np.testing.assert_allclose(gradient, slope.astype(dtype), rtol=8 * eps)
    for shift in (-largest, 0.0, largest):
        rows = (np.array([[0.0, 1.0, -2.0], [3.0, 3.0, 3.0]]) + shift).astype(dtype)
        wide = rows.astype("longdouble")
        top = wide.max(axis=1)
        exact = top + np.log(np.exp(wide - top[:, None]).sum(axis=1))
        (found,) = computed(lambda x: tc.logsumexp(x, 1), rows)
        np.testing.assert_allclose(found, exact.astype(dtype), rtol=4 * eps)
    small = (np.array([1e-3, 1.0, 30.0]) * np.sqrt(tiny)).astype(dtype)
    np.testing.assert_array_equal(computed(tc.log1p, small)[0], small)
    np.testing.assert_array_equal(computed(tc.expm1, small)[0], small)


def test_logsumexp_of_infinities_has_limit_values() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 0.0], [-np.inf, 1.0]])
    (found,) = computed(lambda x: tc.logsumexp(x, 1), x)
    np.testing.assert_array_equal(found, [-np.inf, np.inf, 1.0])


def test_derivative_conventions_at_nondifferentiable_points() -> None:
    at_0 = np.zeros(2)

    def slope(function: Any, x: Any = at_0) -> list[float]:
        gradient: Any = tc.grad(lambda x: tc.sum(function(x)))(x)
        return [float(g) for g in gradient]

    assert slope(tc.absolute) == slope(tc.sign) == slope(tc.relu) == slope(tc.sinc) == [0.0, 0.0]
    assert slope(lambda x: tc.maximum(x, 0.0)) == slope(lambda x: tc.minimum(x, 0.0)) == [0.5, 0.5]
    assert slope(tc.min) == slope(tc.max) == [0.5, 0.5]
    assert slope(lambda x: tc.clip(x, 0.0, 1.0)) == [0.5, 0.5]
    assert slope(tc.leaky_relu) == [0.01, 0.01]
    assert slope(tc.elu) == [1.0, 1.0]
    assert slope(tc.linalg.norm) == slope(lambda x: tc.linalg.norm(x, 3)) == [0.0, 0.0]
    for step in (tc.floor, tc.ceil, tc.trunc, tc.round, lambda x: x // 2.0):
        assert slope(step, np.array([1.0, 1.5])) == [0.0, 0.0]
    assert slope(lambda x: x % 1.0, np.array([1.0, 1.5])) == [1.0, 1.0]


def test_elu_positive_branch_does_not_overflow() -> None:
    gradient = tc.grad(lambda x: tc.sum(tc.elu(x)))(np.array([1e4, -1e4]))
    assert gradient.tolist() == [1.0, 0.0]
