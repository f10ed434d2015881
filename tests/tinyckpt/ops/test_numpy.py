"""NumPy's habits: every name of the table gives NumPy's values, dtypes and shapes, on Vars too."""

import importlib.util
import inspect
import pickle
import re
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests import strict
from tests.conftest import lacking
from tests.numpy_examples import ALIASES, EXAMPLES
from tests.tinyckpt.ops.test_ops import check_gradient
from tinyckpt.ops.numpy_names import ACCUMULATIONS, FUNCTIONS, INSTEAD, REDUCTIONS, UFUNCS
from tinyckpt.tree import leaves

ROOT = Path(__file__).parents[3]


def found(module: Any, name: str) -> Any:
    """Return what a module has by a dotted name, or None."""
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def values(result: Any) -> list[Any]:
    """Return the arrays of a result of NumPy's."""
    return [
        np.asarray(array) for array in (result if isinstance(result, list | tuple) else [result])
    ]


def computed(function: Any, *args: Any, backend: Any = "numpy") -> list[Any]:
    """Return what a function being traced computes; the two accounts of memory agree."""
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
def test_values_dtypes_and_shapes_are_numpys(name: str) -> None:
    example = EXAMPLES[name]
    if found(np, name) is None:
        lacking(f"a NumPy that has {name}")
    expected = values(example.call(np, *example.args))
    same(computed(partial(example.call, np), *example.args), expected)
    if callable(found(tc, name)):
        same(computed(partial(example.call, tc), *example.args), expected)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_name_runs_where_numpy_arrays_are_refused(name: str) -> None:
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
def test_methods_are_those_that_arrays_have(name: str) -> None:
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
def test_arguments_of_methods_that_are_not_supported_are_named(use: Any, message: str) -> None:
    with pytest.raises(tc.GraphError, match=message):
        tc.build(use, tc.Spec((2, 3)))
    for legal in (lambda x: x.mean(0, None, None, True), lambda x: x.argsort(kind="stable")):
        assert tc.build(legal, tc.Spec((2, 3))).outputs


def test_indices_of_small_integers_and_nan_among_medians() -> None:
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
# NumPy takes booleans as numbers, each function in its own way; here, arithmetic refuses them.
NOT_FOR_BOOLEANS = {
    "add", "floor_divide", "fmod", "maximum", "minimum", "multiply", "power", "remainder",
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FLOATING)
def test_integers_are_computed_in_the_floats_that_numpy_takes(name: str, dtype: str) -> None:
    x = np.array([0, 1], dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x)
    (found,) = computed(getattr(np, name), x)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=8 * np.finfo(expected.dtype).eps)


def numpys(name: str, *args: Any) -> Any:
    """Return what NumPy's function makes of arrays and numbers, or None if it refuses."""
    function = partial(np.where, np.array([True, False])) if name == "where" else getattr(np, name)
    try:
        with np.errstate(all="ignore"):
            return function(*args)
    except TypeError:
        return None


@pytest.mark.parametrize("name", ARITHMETIC)
def test_dtypes_of_two_operands_are_numpys(name: str) -> None:
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
def test_reductions_of_integers_are_numpys(dtype: str) -> None:
    x = np.array([[1, 0, 2], [3, 1, 1]], dtype)
    for name in ("sum", "prod", "cumsum", "cumprod", "mean", "std", "min", "max", "argmax", "any"):
        (found,) = computed(getattr(np, name), x)
        expected = np.asarray(getattr(np, name)(x))
        # NumPy adds up uint8 as uint64, which graphs do not have.
        assert found.dtype == (np.int64 if expected.dtype == np.uint64 else expected.dtype), name
        np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_numpys_own_numbers_keep_their_dtype_and_pythons_take_that_of_the_array() -> None:
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
def test_other_dtypes_are_numpys_through_every_name(name: str, dtype: str) -> None:
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


# What is refused ----------------------------------------------------------------------------------

X = tc.Spec((2, 3))


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x: x[[0, 2]], r"index of float64\[2,3\]: index 2 is out of range; legal are -2"),
        (lambda x: x[:, [-4]], "index -4 is out of range; legal are -3 to 2"),
        (lambda x: x[[0.5]], "an index of dtype float64; give integers"),
        (lambda x: x[x > 0], r"an index of booleans, bool\[2,3\].*use tc\.where"),
        (lambda x: x[np.array([True, False])], r"an index of booleans, bool\[2\].*use tc\.where"),
        (lambda x: x[[0], [1], [2]], r"3 indices for float64\[2,3\], which has 2 axes"),
        (lambda x: x["a"], "index 'a': legal are integers, slices, None, Ellipsis and arrays"),
        (lambda x: tc.take(x, 3, axis=1), r"take from float64\[2,3\]: index 3 is out of range"),
        (lambda x: tc.take_along_axis(x, [0], 1), "must have as many axes"),
        (lambda x: np.add(x, x, out=np.ones((2, 3))), r"np\.add: out= is not supported: values"),
        (lambda x: np.exp(x, where=x > 0), r"np\.exp: where= is not supported: choose with tc"),
        (lambda x: np.exp(x, dtype="float32"), r"np\.exp: dtype= is not supported: convert with x"),
        (lambda x: np.sum(x, dtype="float32"), r"np\.sum: dtype= is not supported: convert with x"),
        (lambda x: np.sum(x, where=x > 0), r"np\.sum: where= is not supported"),
        (lambda x: np.max(x, initial=0.0), r"np\.max: initial= is not supported.*tc\.maximum"),
        (lambda x: np.take(x, [0], mode="clip"), r"np\.take: mode= is not supported"),
        (lambda x: np.ravel(x, order="F"), r"np\.ravel: order= is not supported"),
        (lambda x: np.average(x, returned=True), r"np\.average: returned= is not supported"),
        (lambda x: np.add.reduceat(x, [0]), r"np\.add\.reduceat: accumulations are there for add"),
        (lambda x: np.subtract.reduce(x), r"np\.subtract\.reduce: reductions are there for add"),
        (lambda x: np.maximum.accumulate(x), r"np\.maximum\.accumulate: accumulations are"),
        (lambda x: np.add.at(x, [0], 1.0), r"np\.add\.at: a write in place"),
        (lambda x: np.linalg.svd(x), r"np\.linalg\.svd: there are no matrix decompositions"),
        (lambda x: np.fft.fft(x), r"np\.fft\.fft: it is not among NumPy's functions"),
        (lambda x: np.unique(x), r"np\.unique: how many elements it has is not known.*tc\.where"),
        (lambda x: np.where(x > 0), "where: give the condition and both choices"),
        (lambda x: np.pad(x, 1, mode="mean"), "mode 'mean'; legal are constant, edge, reflect"),
        (lambda x: np.array([x, x]), r"conversion to an array of x.*tc\.stack or tc\.concat"),
        (lambda x: x.sum().item(), r"item\(\) of sum_1.*keep it a Var"),
        (lambda x: x.tolist(), r"tolist\(\) of x"),
        (lambda x: x.sort(), r"sort\(\) in place of x.*use tc\.sort"),
        (lambda x: x.fill(0), r"fill\(\) in place of x"),
        (lambda x: x.nonzero(), r"nonzero\(\) of x.*tc\.where"),
        (lambda x: x & x, r"bitwise_and: needs integers or booleans, got float64\[2,3\].*compare"),
        (lambda x: x.astype("int64") ** -1, "integers have no negative powers"),
        (lambda x: tc.einsum("ij,jk,kl->il", x, x, x), "3 operands; one or two are legal"),
        (lambda x: tc.einsum("ij->ik", x), "every label of the result must be one of an operand"),
        (lambda x: tc.einsum("ijk->i", x), "'ijk' describes 3 axes of 2"),
        (lambda x: tc.einsum("ij,ij->ij", x, x.T), "the axes 'i' have 2 and 3 elements"),
        (lambda x: tc.einsum("ii", x), "have 2 and 3"),
        (lambda x: tc.einsum(x, [0, 1]), "begin with the subscripts as a string"),
        (lambda x: tc.tensordot(x, x, 1), "tensordot: the axes 1 of"),
        (lambda x: tc.linalg.norm(x, 2, axis=(0, 1)), "legal are 'fro', 1, -1, inf and -inf"),
        (lambda x: tc.linalg.norm(x, "nuc", axis=0), "norm of vectors: ord 'nuc'"),
        (lambda x: tc.var(x, ddof=6), "6 elements of .* at ddof=6; more are needed"),
        (lambda x: tc.squeeze(x, 0), r"squeeze: axis 0 of float64\[2,3\] is not of length 1"),
        (lambda x: tc.repeat(x, [1, 2], axis=1), "give one number of 0 or more, or 3"),
        (lambda x: tc.roll(x, 1, axis=2), "axis 2 is out of range for 2 axes"),
    ],
)  # fmt: skip
def test_what_is_refused_says_what_is_legal(function: Any, match: str) -> None:
    with pytest.raises(tc.GraphError, match=match):
        tc.build(function, X)


# NumPy's protocols --------------------------------------------------------------------------------


def test_methods_of_ufuncs_are_answered() -> None:
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


def test_an_ordinary_numpy_function_is_built_as_it_is() -> None:
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
def test_logarithms_of_sums_are_right_at_both_ends(dtype: str) -> None:
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


def test_logsumexp_of_infinities_is_numpys() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 0.0], [-np.inf, 1.0]])
    (found,) = computed(lambda x: tc.logsumexp(x, 1), x)
    np.testing.assert_array_equal(found, [-np.inf, np.inf, 1.0])


def test_conventions_where_there_is_no_derivative() -> None:
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


def test_where_elu_is_not_its_exponential_nothing_overflows() -> None:
    gradient = tc.grad(lambda x: tc.sum(tc.elu(x)))(np.array([1e4, -1e4]))
    assert gradient.tolist() == [1.0, 0.0]


# Names --------------------------------------------------------------------------------------------


def numpy_functions() -> dict[str, Any]:
    """Return NumPy's functions that take arrays, by name."""
    submodules = [f"{m}.{name}" for m in ("linalg", "fft") for name in found(np, m).__all__]
    names = {name: found(np, name) for name in (*np.__all__, *submodules)}
    return {
        name: function
        for name, function in names.items()
        if isinstance(function, np.ufunc) or hasattr(function, "_implementation")
    }


def hints(message: str) -> set[str]:
    """Return the names of tinyckpt in a message."""
    return set(re.findall(r"\btc\.([\w.]*\w)", message))


def refusal(function: Any) -> str:
    """Return what a Var answers to one of NumPy's functions, if it refuses, else nothing."""

    def use(x: Any) -> Any:
        if isinstance(function, np.ufunc):
            x.__array_ufunc__(function, "__call__", *[x] * function.nin)
        else:
            x.__array_function__(function, (tc.Var,), (x,), {})
        return x

    try:
        tc.build(use, tc.Spec((2, 2)))
    except (tc.GraphError, TypeError) as error:
        return str(error)
    return ""


def test_what_an_error_recommends_is_there() -> None:
    messages = {name: refusal(function) for name, function in numpy_functions().items()}
    recommended = {hint for message in messages.values() for hint in hints(message)}
    assert len(recommended) > 15
    assert [hint for hint in recommended if not callable(found(tc, hint))] == []
    for name, message in messages.items():
        if message.startswith("np.") and name not in INSTEAD:
            assert "docs/numpy.md" in message, name


def test_every_hint_in_the_source_names_what_is_there() -> None:
    sources = (ROOT / "tinyckpt").rglob("*.py")
    named = set().union(*(hints(path.read_text(encoding="utf-8")) for path in sources))
    assert len(named) > 30
    assert sorted(name for name in named if found(tc, name) is None) == []


def test_the_tables_are_of_numpys_names_and_complete() -> None:
    functions = numpy_functions()
    newer = {"cumulative_prod", "cumulative_sum", "matvec", "unstack", "vecmat"}  # since 2.1, 2.2
    answered = set(UFUNCS) | set(FUNCTIONS)
    assert answered - set(functions) <= newer
    assert not answered & set(INSTEAD)
    assert set(INSTEAD) <= set(functions) | {"cross"}
    assert set(REDUCTIONS) | set(ACCUMULATIONS) <= set(UFUNCS)
    plain = {"iscomplexobj", "isrealobj", "ndim", "shape", "size"}  # no arrays come out
    assert answered - plain == set(EXAMPLES)
    assert set(ALIASES.values()) <= set(EXAMPLES)
    assert len(EXAMPLES) >= 120
    for alias, name in ALIASES.items():
        assert found(np, alias) in (found(np, name), None)


def test_the_page_of_names_is_up_to_date() -> None:
    path = ROOT / "docs" / "numpy_table.py"
    spec = importlib.util.spec_from_file_location("numpy_table", path)
    assert spec is not None
    assert spec.loader is not None
    writer: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    written = (ROOT / "docs" / "numpy.md").read_text(encoding="utf-8")
    assert writer.page() == written, "run python docs/numpy_table.py"


def test_modules_are_not_attributes_of_the_package() -> None:
    import tinyckpt.trace as module
    from tinyckpt import trace

    assert trace is module is importlib.import_module("tinyckpt.trace")
    assert trace.Trace is tc.Trace
    assert pickle.loads(pickle.dumps(tc.Spec((2,)))) == tc.Spec((2,))
    # In a process of its own: whoever imports one later, such as another test, sets it again.
    code = (
        "import types, tinyckpt as tc; "
        "print(*(name for name in dir(tc) if isinstance(getattr(tc, name), types.ModuleType)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["checkpoint_policies", "cost", "linalg", "networks"]
    with pytest.raises(AttributeError, match=r"tinyckpt\.trace is a module.*np\.trace\(x\) works"):
        tc.trace  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'cross'; instead of np\.cross: write"):
        tc.cross  # noqa: B018
    assert not hasattr(tc, "table")
    assert inspect.signature(tc.sum).parameters.keys() == {"x", "axis", "keepdims"}
