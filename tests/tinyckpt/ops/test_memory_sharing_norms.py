"""Memory-sharing norms (MS-LayerNorm, MS-RMSNorm): equal to plain norms, saving the output."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.measured import check_workspace
from tinyckpt.core.tracing import apply_all
from tinyckpt.planner.model.saved_values import saved_values

R = np.random.default_rng(31)


def normal(*shape: int) -> Any:
    return R.normal(size=shape)


def statistic(kind: str, x: Any) -> Any:
    """Return the second output, which only derivatives of derivatives differentiate."""
    return apply_all(
        tc.PRIMITIVES[kind], x, axes=(1,), epsilon=0.1, centred=kind == "ms_layer_norm"
    )[1]


# Collected in cases.py, for the checks that every primitive goes through.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "ms_layer_norm": (lambda x, w: tc.ms_layer_norm(x) @ w, (normal(3, 4), normal(4, 2))),
    "ms_layer_norm large epsilon": (
        lambda x: tc.ms_layer_norm(x, epsilon=0.5) ** 2, (normal(3, 4),),
    ),
    "ms_layer_norm all axes": (lambda x: tc.ms_layer_norm(x, axes=(0, 1)) ** 3, (normal(2, 3),)),
    "ms_layer_norm first axis": (lambda x: tc.ms_layer_norm(x, axes=0) ** 2, (normal(4, 2),)),
    "ms_layer_norm of transposed": (lambda x: tc.ms_layer_norm(x.T) ** 2, (normal(4, 3),)),
    "ms_layer_norm statistic": (
        lambda x: statistic("ms_layer_norm", x) ** 2 + tc.sum(tc.ms_layer_norm(x) ** 3, 1),
        (normal(3, 4),),
    ),
    "ms_layer_norm statistic alone": (lambda x: statistic("ms_layer_norm", x), (normal(3, 4),)),
    "ms_rms_norm": (lambda x, w: tc.ms_rms_norm(x) @ w, (normal(3, 4), normal(4, 2))),
    "ms_rms_norm no epsilon": (lambda x: tc.ms_rms_norm(x, epsilon=0) ** 2, (normal(3, 4),)),
    "ms_rms_norm of transposed": (lambda x: tc.ms_rms_norm(x.T, axes=(1, 0)) ** 2, (normal(3, 4),)),
    "ms_rms_norm statistic": (lambda x: statistic("ms_rms_norm", x), (normal(3, 4),)),
}  # fmt: skip
PAIRS = {"layer": (tc.ms_layer_norm, tc.layer_norm), "rms": (tc.ms_rms_norm, tc.rms_norm)}


@settings(max_examples=examples(60))
@given(
    kind=st.sampled_from(sorted(PAIRS)),
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    axis=st.integers(-1, 0),
    epsilon=st.sampled_from([1e-12, 1e-6, 1e-5, 0.5]),
    size=st.sampled_from([1.0, 100.0]),
    seed=st.integers(0, 9),
)
def test_values_and_gradients_equal_plain_norms(
    kind: str, shape: list[int], axis: int, epsilon: float, size: float, seed: int
) -> None:
    sharing, plain = PAIRS[kind]
    generator = np.random.default_rng(seed)
    x, weights = (size * generator.normal(size=shape) for _ in "xw")
    found, expected = (
        tc.value_and_grad(
            lambda x, norm=norm: tc.sum(norm(x, axes=axis, epsilon=epsilon) * weights)
        )(x)
        for norm in (sharing, plain)
    )
    assert found[0].tobytes() == expected[0].tobytes()
    scale = max(1e-3, float(np.abs(expected[1]).max()))
    if shape[axis] > 1 or epsilon == 0.5:  # else a number is divided by its own size
        np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-10 * scale)


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 0.5])
@pytest.mark.parametrize("kind", PAIRS)
def test_ms_norm_gradients_are_exact_for_any_epsilon(kind: str, epsilon: float) -> None:
    sharing, plain = PAIRS[kind]
    x, weights = R.normal(3.0, 2.0, size=(64, 48)), normal(64, 48)
    found, expected = (
        tc.grad(lambda x, norm=norm: tc.sum(norm(x, epsilon=epsilon) * weights))(x)
        for norm in (sharing, plain)
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_ms_norm_saves_output_and_one_number_per_row(kind: str, dtype: str) -> None:
    sharing, _ = PAIRS[kind]
    x, w = tc.Spec((6, 4), dtype), tc.Spec((4, 4), dtype)
    graph = tc.differentiate(tc.build(lambda x, w: tc.sum(sharing(x * 2) @ w), x, w), (0, 1))
    y, rstd = saved_values(graph)
    assert (y.spec, rstd.spec) == (x, tc.Spec(6, np.result_type(dtype, "float32")))
    readers = {graph.operators[reader].kind for reader in graph.consumers[y.id]}
    assert readers == {"matmul", "ms_norm_vjp"}


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_declared_workspace_equals_measured_workspace(dtype: str) -> None:
    x = (normal(512, 1024) * 0.01).astype(dtype)
    for norm in (tc.ms_layer_norm, tc.ms_rms_norm):
        operators = []
        for view in (lambda x: x, lambda x: x.T, lambda x: x.reshape(-1, 2)):
            operators += check_workspace(lambda x, n=norm, v=view: 0.001 * n(v(x)), x)
        operators += check_workspace(lambda x, n=norm: 0.001 * n(x, axes=0), x)
        assert "ms_norm_vjp" in {operator.kind for operator in operators}


def test_invalid_arguments_raise() -> None:
    with pytest.raises(tc.GraphError, match="ms_rms_norm: epsilon=-1; it must be a number of 0 or"):
        tc.build(lambda x: tc.ms_rms_norm(x, epsilon=-1), np.ones(3))
    with pytest.raises(tc.GraphError, match="has no elements to normalise"):
        tc.build(tc.ms_layer_norm, np.ones((0, 3)))
    with pytest.raises(tc.GraphError, match="needs floating-point"):
        tc.build(tc.ms_layer_norm, np.arange(3))
