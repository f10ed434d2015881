"""ReGELU2 and ReSiLU2: exact forward pass, step-function gradient, two saved bits per element."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn

import tinyckpt as tc
from tests import strict
from tests.conftest import examples
from tests.measured import check_workspace
from tinyckpt.ops import gelu_silu_fits as fits
from tinyckpt.ops.kernels_approximate_activations import pack_bits, unpack_bits
from tinyckpt.planner.model.saved_values import saved_values

FLOATS = ("float16", "float32", "float64")
# Where the step function is the derivative itself: this far out gelu is 0 or x, and so is silu.
FAR = np.array([[-50.0, 48.0, 60.0], [-70.0, 45.0, -44.0]])
# Collected in cases.py, for the checks that every primitive goes through.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "regelu2": (tc.regelu2, (FAR,)),
    "regelu2 squared": (lambda x: tc.regelu2(x, fit="symmetric") ** 2, (FAR,)),
    "regelu2 tanh": (lambda x: tc.regelu2(x, True) ** 2, (FAR,)),
    "regelu2 0-d": (tc.regelu2, (np.array(44.0),)),
    "regelu2 of transposed": (lambda x: tc.regelu2(x.T).reshape(-1) ** 2, (FAR,)),
    "resilu2": (tc.resilu2, (FAR,)),
    "resilu2 squared": (lambda x: tc.resilu2(x, fit="symmetric") ** 2, (FAR,)),
}
# name -> (function by its fit, what it computes exactly, the fits).
KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, fits.Fit]]] = {
    "regelu2": (tc.regelu2, tc.gelu, fits.GELU),
    "regelu2 tanh": (partial(tc.regelu2, approximate=True), partial(tc.gelu, approximate=True),
                     fits.GELU),
    "resilu2": (tc.resilu2, tc.silu, fits.SILU),
}  # fmt: skip
WITH_FITS = [(kind, fit) for kind in KINDS for fit in ("published", "symmetric")]


def slope_by_definition(fit: fits.Fit, x: Any) -> Any:
    """Return the sum of the weights whose breakpoint is below x, in float64, element by element."""
    found = np.zeros(x.shape)
    for weight, point in zip(fit.weights, fit.breakpoints, strict=True):
        found += np.where(x.astype(np.float64) > point, weight, 0.0)
    return found


def gradient(function: Callable[..., Any], x: Any, weights: Any) -> Any:
    return tc.grad(lambda x: tc.sum(function(x) * weights))(x)


def around(fit: fits.Fit, dtype: str) -> Any:
    """Return the numbers of a dtype at and beside every breakpoint, and others."""
    near = []
    for point in fit.breakpoints:
        number = np.asarray(point, dtype)
        for _ in range(2):
            number = np.nextafter(number, np.asarray(-np.inf, dtype))
        for _ in range(5):
            near.append(number)
            number = np.nextafter(number, np.asarray(np.inf, dtype))
    others = [-np.inf, -100.0, -4.0, -1.0, -0.0, 0.0, 0.001, 2.0, 5.0, 100.0]
    return np.array([*near, *others], dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("kind", "fit"), WITH_FITS)
def test_gradient_equals_step_function_at_and_next_to_every_breakpoint(
    kind: str, fit: str, dtype: str
) -> None:
    function, _, known = KINDS[kind]
    x = around(known[fit], dtype)
    slopes = slope_by_definition(known[fit], x)
    assert len(set(slopes.round(12))) == 4
    weights = np.linspace(-2, 2, x.size).astype(dtype)
    with np.errstate(invalid="ignore"):  # exactly computed, -inf times 0
        found = gradient(partial(function, fit=fit), x, weights)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, slopes.astype(dtype) * weights)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", KINDS)
def test_forward_equals_exact_activation_bitwise(kind: str, dtype: str) -> None:
    function, exact, known = KINDS[kind]
    x = np.concatenate([np.linspace(-9, 9, 1001).astype(dtype), around(known["published"], dtype)])
    x = x[x > -np.inf]
    expected = tc.jit(exact)(x)
    for fit in known:
        found = tc.jit(partial(function, fit=fit))(x)
        assert found.tobytes() == expected.tobytes()
    x = x[: x.size // 6 * 6].reshape(2, 3, -1)
    found, expected = (tc.jit(lambda x, f=f: f(x.T))(x) for f in (function, exact))
    assert np.array_equal(found, expected)


@settings(max_examples=examples(50))
@given(
    x=drawn.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        drawn.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
        elements=st.floats(-10, 10, width=16),
    ),
    kind=st.sampled_from(sorted(KINDS)),
    fit=st.sampled_from(["published", "symmetric"]),
    transposed=st.booleans(),
)
def test_random_arrays_of_any_shape_and_layout_match_step_function(
    x: Any, kind: str, fit: str, transposed: bool
) -> None:
    function, exact, known = KINDS[kind]
    x = x.T if transposed else x
    graph = tc.differentiate(tc.build(lambda x: tc.half_squared_norm(function(x, fit=fit)), x))
    (codes,) = [node for node in saved_values(graph) if node.spec.dtype == np.uint8]
    assert codes.nbytes == -(-x.size // 4)
    result = tc.run(tc.plan(graph), x)
    assert result.trace == tc.replay(tc.plan(graph))
    y = tc.jit(exact)(x)
    slopes = slope_by_definition(known[fit], x).astype(x.dtype)
    np.testing.assert_array_equal(result.gradients, slopes * y)
    elsewhere = tc.run(tc.plan(graph), x, backend=strict.BACKEND)
    assert np.array_equal(strict.asnumpy(elsewhere.gradients), result.gradients)


@pytest.mark.parametrize("kind", KINDS)
def test_backward_reads_only_codes_and_cotangent(kind: str) -> None:
    function, _, _ = KINDS[kind]
    graph = tc.differentiate(
        tc.build(lambda x: tc.sum(function(x * 2.0)), tc.Spec((7, 3), "float16"))
    )
    (kept,) = saved_values(graph)
    assert (kept.spec, kept.nbytes) == (tc.Spec(6, "uint8"), 6)
    readers = [op for op in graph.operators if op.kind == f"{kind.split()[0]}_vjp"]
    assert [len(operator.inputs) for operator in readers] == [2]


@pytest.mark.parametrize("kind", KINDS)
def test_nan_counts_as_below_all_breakpoints(kind: str) -> None:
    function, _, _ = KINDS[kind]
    x = np.array([np.nan, 1.0, -np.nan])
    value = tc.jit(function)(x)
    assert np.isnan(value).tolist() == [True, False, True]
    assert gradient(function, x, 1.0)[[0, 2]].tolist() == [0.0, 0.0]
    # As everywhere, a NaN loss gives a NaN cotangent.
    assert np.isnan(tc.grad(lambda x: tc.sum(function(x) ** 2))(x)).tolist() == [True, False, True]


@pytest.mark.parametrize("size", [9, 2**12, 2**12 + 3, 2**20 + 9, 5 * 2**18 - 1])
def test_results_do_not_depend_on_span_length(size: int) -> None:
    x = np.random.default_rng(0).uniform(-5, 5, size).astype("float32")
    found = gradient(tc.regelu2, x, np.float32(3))
    slopes = slope_by_definition(fits.GELU["published"], x).astype("float32")
    np.testing.assert_array_equal(found, slopes * np.float32(3))


@pytest.mark.long
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(509, 513), (3, 5)])
def test_declared_workspace_equals_measured_workspace(shape: tuple[int, ...], dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(dtype) * 0.01
    kinds = set()
    for function, _, _ in KINDS.values():
        for layout in (lambda x: x, lambda x: x.T):
            operators = check_workspace(lambda x, f=function, v=layout: f(v(x)), x)
            kinds |= {operator.kind for operator in operators}
    assert kinds >= {"regelu2", "resilu2", "regelu2_vjp", "resilu2_vjp"}


def test_second_derivative_equals_that_of_step_function() -> None:
    x = np.array([-4.0, -1.0, 0.5, 4.0])

    def slope(x: Any) -> Any:
        return tc.sum(tc.gradients(tc.sum(tc.regelu2(x)), x) * x)

    steps = slope_by_definition(fits.GELU["published"], x)
    np.testing.assert_allclose(tc.grad(slope)(x), steps, rtol=1e-15)  # d(step * x), step constant


@pytest.mark.parametrize(("known", "name"), [(fits.GELU, "gelu"), (fits.SILU, "silu")])
def test_symmetric_fit_minimises_squared_error(known: dict[str, fits.Fit], name: str) -> None:
    # Gauss-Legendre quadrature, piece by piece: each fit is smooth between its breakpoints.
    def error(fit: fits.Fit) -> float:
        nodes, weights = np.polynomial.legendre.leggauss(60)
        ends = [-60.0, -20.0, *fit.breakpoints, 20.0, 60.0]
        total = 0.0
        for low, high in pairwise(ends):
            x = (high - low) / 2 * nodes + (high + low) / 2
            linear = sum(
                a * np.maximum(x - c, 0)
                for a, c in zip(fit.weights, fit.breakpoints, strict=True)
            )  # fmt: skip
            exact = tc.jit(tc.gelu if name == "gelu" else tc.silu)(x)
            total += float(((exact - linear) ** 2 * weights).sum()) * (high - low) / 2
        return total

    best = known["symmetric"]
    weight, point = best.weights[0], best.breakpoints[2]
    least = error(best)
    assert least == pytest.approx({"gelu": 0.00950694, "silu": 0.0399413}[name], abs=1e-7)
    published = {"gelu": 0.00950934, "silu": 0.0399438}[name]
    assert error(known["published"]) == pytest.approx(published, abs=1e-7)
    h = 1e-4
    for by_weight, by_point in ((h, 0), (0, h)):
        there, back = (
            error(fits.symmetric(weight + sign * by_weight, point + sign * by_point))
            for sign in (1, -1)
        )
        assert there > least < back
        assert abs(there - back) / (2 * h) < 1e-6


@pytest.mark.parametrize("known", [fits.GELU, fits.SILU])
def test_every_fit_equals_x_at_plus_infinity(known: dict[str, fits.Fit]) -> None:
    for fit in known.values():
        assert sum(fit.weights) == pytest.approx(1, abs=1e-15)
        moments = [a * c for a, c in zip(fit.weights, fit.breakpoints, strict=True)]
        assert sum(moments) == pytest.approx(0, abs=1e-8)


def test_slopes_equal_published_values() -> None:
    found = [np.round(fits.slopes_of(name, "published"), 7).tolist() for name in fits.FITS]
    assert found == [[0, -0.0492226, 1.0487406, 1], [0, -0.0406036, 1.0403219, 1]]


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packing_places_each_code_at_its_bits_and_round_trips(bits: int) -> None:
    flags = np.random.default_rng(0).integers(0, 2**bits, 24).astype("uint8")
    codes = pack_bits(np, flags, bits)
    assert (codes.dtype, codes.size) == (np.uint8, 24 * bits // 8)
    assert np.array_equal(unpack_bits(np, codes, bits), flags)
    for i, flag in enumerate(flags):
        place = bits * (i % (8 // bits))
        assert (codes[i * bits // 8] >> place) & (2**bits - 1) == flag


def test_invalid_fit_or_dtype_raises() -> None:
    with pytest.raises(tc.GraphError, match=r"regelu2: fit='publised' \(did you mean published"):
        tc.build(lambda x: tc.regelu2(x, fit="publised"), np.ones(3))
    match = "resilu2: fit=None; expected one of published, symmetric"
    with pytest.raises(tc.GraphError, match=match):
        tc.build(lambda x: tc.resilu2(x, fit=None), np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(tc.GraphError, match="regelu2: needs floating-point arrays, got int64"):
        tc.build(tc.regelu2, np.arange(3))
