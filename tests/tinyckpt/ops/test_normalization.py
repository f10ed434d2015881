"""Normalisation: values against the formulae, statistics, dtypes, and errors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.base.tree import leaves

R = np.random.default_rng(23)


def normal(*shape: int) -> Any:
    return R.normal(size=shape)


def outputs_of(kind: str, *operands: Any, axes: Any, parameter_axes: Any) -> Any:
    """Return all outputs of a normalisation, its statistics too."""
    return tc.apply_all(
        tc.PRIMITIVES[kind], *operands,
        axes=axes, parameter_axes=parameter_axes, epsilon=0.1, centred=kind != "rms_norm",
    )  # fmt: skip


def squares(values: Any) -> Any:
    return sum(tc.sum(value * value) for value in values)


# Collected in cases.py, for derivatives, workspace and strict arrays.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "layer_norm": (tc.layer_norm, (normal(3, 4), normal(4), normal(4))),
    "layer_norm plain": (lambda x: tc.layer_norm(x) ** 2, (normal(3, 4),)),
    "layer_norm scale": (tc.layer_norm, (normal(2, 3, 4), normal(4))),
    "layer_norm shift": (lambda x, b: tc.layer_norm(x, None, b), (normal(2, 4), normal(4))),
    "layer_norm all axes": (
        lambda x, s, b: tc.layer_norm(x, s, b, axes=(0, 1)),
        (normal(2, 3), normal(2, 3), normal(2, 3)),
    ),
    "layer_norm first axis": (
        lambda x, s: tc.layer_norm(x, s, axes=0) ** 2, (normal(4, 2), normal(4)),
    ),
    "layer_norm of transposed": (
        lambda x, s, b: tc.layer_norm(x.T, s, b).reshape(-1), (normal(4, 3), normal(4), normal(4)),
    ),
    "layer_norm statistics": (
        lambda x, s: squares(outputs_of("layer_norm", x, s, axes=(1,), parameter_axes=(1,))),
        (normal(3, 4), normal(4)),
    ),
    "layer_norm statistics alone": (
        lambda x, s, b: squares(
            outputs_of("layer_norm", x, s, b, axes=(1,), parameter_axes=(1,))[1:]
        ) + tc.sum(s * b),
        (normal(3, 4), normal(4), normal(4)),
    ),
    "rms_norm": (tc.rms_norm, (normal(3, 4), normal(4))),
    "rms_norm plain": (lambda x: tc.rms_norm(x) ** 2, (normal(3, 4),)),
    "rms_norm of transposed": (lambda x: tc.rms_norm(x.T, axes=(1, 0)) ** 2, (normal(3, 4),)),
    "rms_norm statistics": (
        lambda x, s: squares(outputs_of("rms_norm", x, s, axes=(1,), parameter_axes=(1,))),
        (normal(3, 4), normal(4)),
    ),
    "rms_norm statistics alone": (
        lambda x: squares(outputs_of("rms_norm", x, axes=(1,), parameter_axes=(1,))[1:]),
        (normal(3, 4),),
    ),
    "group_norm": (
        lambda x, *rest: tc.group_norm(x, 2, *rest), (normal(2, 4, 3), normal(4), normal(4)),
    ),
    "group_norm plain": (lambda x: tc.group_norm(x, 3) ** 2, (normal(2, 6),)),
    "group_norm of transposed": (
        lambda x, s: tc.group_norm(x.T, 1, s) ** 2, (normal(2, 2, 2, 3), normal(2)),
    ),
    "group_norm shift": (lambda x, b: tc.group_norm(x, 2, None, b), (normal(2, 4, 2), normal(4))),
    "batch_norm": (lambda *args: tc.batch_norm(*args)[0], (normal(5, 3), normal(3), normal(3))),
    "batch_norm of images": (
        lambda *args: tc.batch_norm(*args)[0] ** 2, (normal(2, 3, 2, 2), normal(3), normal(3)),
    ),
    "batch_norm mean and variance": (
        lambda *args: squares(tc.batch_norm(*args)), (normal(4, 2, 3), normal(2), normal(2)),
    ),
    "batch_norm variance": (
        lambda x: tc.batch_norm(x, np.ones(2), np.ones(2))[2], (normal(4, 2),),
    ),
    "moved_statistics": (
        lambda m, v, x: sum(
            tc.moved_statistics(m, v, *tc.batch_norm(x, np.ones(2), np.ones(2))[1:], 4)
        ),
        (normal(2), normal(2) ** 2, normal(4, 2)),
    ),
    "batch_norm_inference": (
        tc.batch_norm_inference,
        (normal(4, 2, 3), normal(2), normal(2), normal(2), normal(2) ** 2 + 0.5),
    ),
}  # fmt: skip

LARGE = (512, 1024)


def of_many_shapes(x: Any, scale: Any, shift: Any) -> list[Any]:
    pairs = x.reshape(2, -1)
    ones = tc.ones(pairs.shape[1], x.dtype)
    results = [
        tc.layer_norm(x, scale, shift), tc.layer_norm(x), tc.layer_norm(x.reshape(-1, 2)),
        tc.layer_norm(x.T, axes=0), tc.layer_norm(x, 0 * x, x, axes=(0, 1)),
        tc.layer_norm(x[:, 0], x[:, 1]), tc.batch_norm(x, scale, shift)[0],
        tc.batch_norm(x.reshape(4, 1024, -1), scale, shift)[0],
        tc.batch_norm(pairs, ones, pairs[0])[0], tc.rms_norm(x, scale), tc.rms_norm(x),
        tc.rms_norm(x.reshape(-1, 2)), tc.group_norm(x.reshape(4, 1024, -1), 8, scale, shift),
        tc.group_norm(x, 1, scale), tc.group_norm(x.T, 16),
    ]  # fmt: skip
    return [0.01 * result for result in results]  # sums of their squares must not pass 65,504


LARGE_CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    f"normalized {dtype}": (
        of_many_shapes,
        tuple(normal(*shape).astype(dtype) for shape in (LARGE, LARGE[1:], LARGE[1:])),
    )
    for dtype in ("float16", "float32", "float64")
}


def computed(function: Any, *args: Any) -> Any:
    """Run a traced function; assert that replay and execution agree on memory."""
    schedule = tc.plan(tc.build(function, *args))
    result = tc.run(schedule, *args)
    assert result.trace == tc.replay(schedule)
    return result.value


def by_formula(x: Any, axes: Any, epsilon: float = 1e-5) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


@pytest.mark.parametrize("axes", [-1, 0, (1,), (0, 2), (-1, -2), (0, 1, 2)])
def test_layer_norm_equals_formula_over_any_axes(axes: Any) -> None:
    x = R.normal(3.0, 2.0, size=(3, 4, 5))
    positions = sorted(np.atleast_1d(axes) % 3)
    scale, shift = (normal(*(x.shape[axis] for axis in positions)) for _ in "ab")
    broadcast = tuple(n if axis in positions else 1 for axis, n in enumerate(x.shape))
    expected = by_formula(x, tuple(positions))
    found = computed(lambda x: tc.layer_norm(x, axes=axes), x)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    found = computed(lambda *args: tc.layer_norm(*args, axes=axes), x, scale, shift)
    expected = expected * scale.reshape(broadcast) + shift.reshape(broadcast)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("axes", [-1, (0, 2)])
def test_rms_norm_equals_formula(axes: Any) -> None:
    x = R.normal(3.0, 2.0, size=(3, 4, 5))
    expected = x / np.sqrt((x * x).mean(axes, keepdims=True) + 1e-6)
    found = computed(lambda x: tc.rms_norm(x, axes=axes), x)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize("shape", [(2, 6), (3, 6, 4), (1, 6, 2, 3)])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm_equals_formula(shape: tuple[int, ...], groups: int) -> None:
    x, scale, shift = R.normal(3.0, 2.0, size=shape), normal(6), normal(6)
    parts = x.reshape(shape[0], groups, -1)
    ends = (-1, *[1] * (x.ndim - 2))
    expected = by_formula(parts, 2).reshape(shape) * scale.reshape(ends) + shift.reshape(ends)
    found = computed(lambda x, *rest: tc.group_norm(x, groups, *rest), x, scale, shift)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 5), (1, 2, 2), (2, 1)])
def test_batch_norm_returns_batch_statistics(shape: tuple[int, ...]) -> None:
    x, scale, shift = R.normal(5.0, 2.0, size=shape), normal(shape[1]), normal(shape[1])
    y, mean, variance = computed(tc.batch_norm, x, scale, shift)
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    ends = (-1, *[1] * (x.ndim - 2))
    expected = by_formula(x, axes) * scale.reshape(ends) + shift.reshape(ends)
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(mean, x.mean(axes), rtol=1e-14)
    np.testing.assert_allclose(variance, x.var(axes), rtol=1e-12, atol=1e-15)
    again = computed(tc.batch_norm_inference, x, scale, shift, mean, variance)
    np.testing.assert_allclose(again, y, rtol=1e-12, atol=1e-12)


def test_running_statistics_are_updated_once_under_recomputation() -> None:
    def loss(params: Any, running: Any, x: Any) -> Any:
        new = []
        for (weight, scale, shift), (mean, var) in zip(params, running, strict=True):
            x, *statistics = tc.batch_norm(x @ weight, scale, shift)
            new.append(tc.moved_statistics(mean, var, *statistics, count=x.shape[0]))
            x = tc.relu(x)
        return tc.mean(x * x), new

    params = [(normal(4, 4), np.ones(4), np.zeros(4)) for _ in range(6)]
    running = [(np.zeros(4), np.ones(4)) for _ in params]
    x = normal(8, 4)
    graph = tc.differentiate(tc.build(loss, params, running, x))
    seen = set()
    for policy in ("store_all", "recompute_all", "sqrt_n"):
        result = tc.run(tc.plan(graph, policy), params, running, x)
        assert (result.trace.recomputations > 0) == (policy != "store_all")
        seen.add(b"".join(a.tobytes() for a in leaves([result.value, result.gradients])))
        mean, var = result.value[1][0]
        first = x @ params[0][0]
        np.testing.assert_allclose(mean, 0.1 * first.mean(0), rtol=1e-12)
        np.testing.assert_allclose(var, 0.9 + 0.1 * first.var(0, ddof=1), rtol=1e-12)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("dtype", "wide"), [("float16", "float32"), ("float32", "float32"), ("float64", "float64")]
)
def test_saved_statistics_have_at_least_32_bits(dtype: str, wide: str) -> None:
    x = tc.Spec((4, 6), dtype)

    def loss(x: Any, scale: Any, shift: Any) -> Any:
        return tc.mean(tc.layer_norm(x, scale, shift)) + tc.mean(
            tc.batch_norm(x, scale, shift)[0].astype(dtype)
        )

    graph = tc.differentiate(tc.build(loss, x, tc.Spec(6, dtype), tc.Spec(6, dtype)), wrt=(0, 1, 2))
    for kind in ("layer_norm", "batch_norm"):
        (operator,) = (op for op in graph.operators if op.kind == kind)
        specs = [graph.data[output].spec for output in operator.outputs]
        assert [str(spec.dtype) for spec in specs] == [dtype, wide, wide]
        # The adjoints read x, scale, mean and rstd; y is not saved.
        for adjoint in (op for op in graph.operators if op.kind.startswith(f"{kind}_")):
            assert set(operator.outputs[1:]) <= set(adjoint.inputs)
            assert operator.outputs[0] not in adjoint.inputs


@pytest.mark.parametrize("parameters", ["float16", "float32"])
def test_float16_normalisation_computes_in_float32(parameters: str) -> None:
    # Squares of 300 would overflow 65,504, and so would sums.
    x = (300 * normal(4, 4096)).astype("float16")
    scale = np.ones(4096, parameters)
    found = computed(tc.layer_norm, x, scale)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, by_formula(x.astype(float), 1), rtol=1e-3, atol=1e-3)
    weights = R.normal(size=x.shape)
    loss = lambda x, s: tc.sum(tc.layer_norm(x, s).astype("float64") * weights)  # noqa: E731
    narrow = tc.grad(loss, wrt=(0, 1))(x, scale)
    exact = tc.grad(loss, wrt=(0, 1))(x.astype(float), scale.astype(float))
    assert [g.dtype for g in narrow] == [np.float16, parameters]
    for gradient, expected in zip(narrow, exact, strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=2e-3, atol=2e-3 * abs(expected).max())


def test_constant_row_normalises_to_zero_with_finite_gradient() -> None:
    x = np.full((2, 4), 7.0)
    assert computed(tc.layer_norm, x).tolist() == np.zeros((2, 4)).tolist()
    weights = normal(2, 4)
    gradient = tc.grad(lambda x: tc.sum(tc.layer_norm(x) * weights))(x)
    centred = weights - weights.mean(1, keepdims=True)
    np.testing.assert_allclose(gradient, centred / np.sqrt(1e-5), rtol=1e-9)


def test_normalisation_flops_equal_formula() -> None:
    def loss(x: Any, scale: Any, shift: Any) -> Any:
        results = [
            tc.batch_norm(x, scale, shift)[0], tc.layer_norm(x, scale, shift),
            tc.rms_norm(x, scale),
        ]  # fmt: skip
        return sum(map(tc.sum, results))

    graph = tc.differentiate(tc.build(loss, tc.Spec((5, 3)), tc.Spec(3), tc.Spec(3)), (0, 1, 2))
    flops = {op.kind: op.flops / 15 for op in graph.operators if "norm" in op.kind}
    assert flops == {
        "batch_norm": 8, "batch_norm_input_vjp": 9, "batch_norm_scale_vjp": 4,
        "layer_norm": 8, "layer_norm_input_vjp": 10, "layer_norm_scale_vjp": 4,
        "rms_norm": 4, "rms_norm_input_vjp": 7, "rms_norm_scale_vjp": 3,
    }  # fmt: skip


ONES = np.ones((2, 4))
WRONG: list[tuple[Callable[..., Any], str]] = [
    (lambda x: tc.layer_norm(x, np.ones(3)), r"scale is float64\[3\]; for .* float64\[4\]$"),
    (lambda x: tc.layer_norm(x, np.ones(4), np.ones((1, 4))), r"shift is float64\[1,4\]; for"),
    (lambda x: tc.layer_norm(x, np.ones(4, "float32")), "its dtype must be float64"),
    (lambda x: tc.layer_norm(x, np.ones(4, int)), "needs floating-point arrays"),
    (lambda x: tc.layer_norm(x > 0), "needs floating-point arrays"),
    (lambda x: tc.layer_norm(x[:0]), r"float64\[0,4\] has no elements to normalise; give a batch"),
    (lambda x: tc.layer_norm(x[:, :0]), r"float64\[2,0\] has no elements to normalise"),
    (lambda x: tc.layer_norm(x, axes=2), "axis 2 is out of range for 2 axes"),
    (lambda x: tc.layer_norm(x, axes=()), r"over the axes \(\); expected at least one axis"),
    (lambda x: tc.layer_norm(x, axes=(0, -2)), "name an axis twice"),
    (lambda x: tc.layer_norm(x, epsilon=-1e-5), "epsilon=-1e-05; it must be a number of 0 or more"),
    (lambda x: tc.layer_norm(x, epsilon="no"), "epsilon='no'; it must be a number of 0 or more"),
    (lambda x: tc.rms_norm(x, np.ones(3)), r"scale is float64\[3\]; for .* float64\[4\]$"),
    (lambda x: tc.rms_norm(x[:0]), r"float64\[0,4\] has no elements to normalise"),
    (lambda x: tc.group_norm(x, 3), r"groups=3 for float64\[2,4\]; they must divide the 4 chan"),
    (lambda x: tc.group_norm(x, 0), "groups=0 for .* must divide the 4 channels"),
    (lambda x: tc.group_norm(x, 2.0), "groups=2.0 for .* must divide the 4 channels"),
    (lambda x: tc.group_norm(x[0], 2), r"float64\[4\] has no channels"),
    (lambda x: tc.group_norm(x[:0], 2), "has no elements to normalise"),
    (lambda x: tc.group_norm(x, 2, np.ones(2)), r"scale is float64\[2\]; .* must be \(4,\)"),
    (lambda x: tc.group_norm(x, 2, None, x), r"shift is float64\[2,4\]; .* must be \(4,\)"),
    (lambda x: tc.batch_norm(x, np.ones(2), np.ones(2)), r"scale is float64\[2\]; for .*\[4\]$"),
    (lambda x: tc.batch_norm(x[0], np.ones(4), np.ones(4)), r"float64\[4\] has no channels; it mu"),
    (lambda x: tc.batch_norm(x[:0], np.ones(4), np.ones(4)), "no elements to normalise"),
    (
        lambda x: tc.batch_norm_inference(x, *[np.ones(4)] * 3, np.ones(1)),
        r"variance is float64\[1\]; for float64\[2,4\] its shape must be \(4,\)",
    ),
    (lambda x: tc.moved_statistics(x, x, x, x, count=1), "count=1; an unbiased variance takes 2"),
    (lambda x: tc.moved_statistics(x, x, x, x, count=2.5), "count=2.5; an unbiased variance"),
    (
        lambda x: tc.moved_statistics(x[0], x[0], x[1], x[1], 2, momentum=1.5),
        "momentum=1.5; it must be a number from 0 to 1",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("function", "match"), WRONG)
def test_invalid_normalisation_arguments_raise(function: Any, match: str) -> None:
    with pytest.raises(tc.GraphError, match=match):
        tc.build(function, ONES)
