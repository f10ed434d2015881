"""Activation compression (tc.compressed): saved codes, unbiased gradients, exact recomputation."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn

import tinyckpt as tc
from lessons.figures.figure import measured
from tests import strict
from tests.conftest import examples
from tests.measured import check_workspace
from tests.tinyckpt.ops.test_quantisation import round_trip
from tinyckpt.base.tree import leaves
from tinyckpt.planner.model.saved_values import saved_values

R = np.random.default_rng(41)
FLOATS = ("float16", "float32", "float64")


def normal(*shape: int) -> Any:
    return R.normal(size=shape)


# Values that vjp rules read -----------------------------------------------------------------------


def layered(bits: int, group: int = 8, layers: int = 4) -> Callable[..., Any]:
    """Return a loss that saves codes of its layers' outputs."""

    def loss(w: Any, x: Any) -> Any:
        h = x
        for layer in range(layers):
            h = tc.compressed(tc.tanh(h @ w), bits, group, seed=layer)
        return tc.mean(h**2)

    return loss


def test_vjp_rules_read_code_for_compressed_inputs_and_outputs() -> None:
    x, w = normal(6, 4), normal(4, 3)
    key = {"bits": 2, "group": 8}

    def loss(w: Any, x: Any) -> Any:
        return tc.sum(tc.compressed(tc.tanh(x), **key, seed=5) @ w)

    gradients = tc.grad(loss, wrt=(0, 1))(w, x)
    y = np.tanh(x)
    coded = round_trip(y, **key, seed=5)
    assert not np.allclose(coded, y)
    np.testing.assert_allclose(gradients[0], coded.T @ np.ones((6, 3)), rtol=1e-13)
    np.testing.assert_allclose(gradients[1], (1 - coded**2) * w.sum(1), rtol=1e-12)
    assert tc.jit(loss)(w, x) == pytest.approx((y @ w).sum())  # the forward half reads y itself


def test_only_codes_are_saved() -> None:
    w, x = tc.Spec((16, 16), "float32"), tc.Spec((10, 16), "float32")
    graph = tc.differentiate(tc.build(layered(4, 48), w, x))
    kept = [node for node in saved_values(graph) if node.role == "activation"]
    assert [node.nbytes for node in kept] == [80, 16, 16] * 4  # 160 elements, of which 48 a group
    assert {graph.operators[node.producer or 0].kind for node in kept} == {"encode"}


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_compressed_gradients_are_bitwise_equal_under_every_policy_and_backend(bits: int) -> None:
    w, x = normal(4, 4), normal(6, 4)
    graph = tc.differentiate(tc.build(layered(bits), w, x))
    seen = set()
    for policy in ("store_all", "sqrt_n", "recompute_all", "greedy"):
        schedule = tc.plan(graph, policy)
        result = tc.run(schedule, w, x)
        assert result.trace == tc.replay(schedule)
        seen.add(result.gradients.tobytes() + result.value.tobytes())
        compiled = tc.compile(schedule)(w, x)
        seen.add(leaves(compiled)[1].tobytes() + leaves(compiled)[0].tobytes())
        elsewhere = tc.run(schedule, w, x, backend=strict.BACKEND)
        assert np.array_equal(strict.asnumpy(elsewhere.gradients), result.gradients)
    assert len(seen) == 1


def test_plan_combines_compression_and_recomputation_within_budget() -> None:
    w, x = tc.Spec((64, 64), "float32"), tc.Spec((512, 64), "float32")
    exact = tc.differentiate(tc.build(plain(12), w, x))
    coded = tc.differentiate(tc.build(layered(4, 64, 12), w, x))
    peaks = [tc.replay(tc.plan(graph, "store_all")).peak_bytes for graph in (exact, coded)]
    assert peaks[1] < peaks[0] / 2
    schedule = tc.plan(coded, "greedy", budget=peaks[1] - 40_000)
    trace = tc.replay(schedule)
    assert trace.peak_bytes <= peaks[1] - 40_000
    assert trace.recomputations > 0


def plain(layers: int) -> Callable[..., Any]:
    def loss(w: Any, x: Any) -> Any:
        h = x
        for _ in range(layers):
            h = tc.tanh(h @ w)
        return tc.mean(h**2)

    return loss


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("bits", [8, 4, 2])
def test_measured_peak_of_compressed_run_equals_replay(bits: int) -> None:
    w, x = normal(64, 64).astype("float32"), normal(16384, 64).astype("float32")
    graph = tc.differentiate(tc.build(layered(bits, 256, 6), w, x))
    assert measured(tc.plan(graph, "store_all"), w, x) == "within 1 %"
    code = 16384 * 64 * bits // 8 + 2 * 4 * 16384 * 64 // 256
    kept = [node for node in saved_values(graph) if node.role == "activation"]
    assert sum(node.nbytes for node in kept) == 6 * code


def test_compressed_gradient_is_unbiased() -> None:
    # Linear in the compressed value: the loss is a sum over rows of a product.
    x, w, g = normal(40, 8), normal(8, 3), normal(40, 3)

    def loss(w: Any, x: Any, seed: Any) -> Any:
        return tc.sum((tc.compressed(x * 1.0, 2, 32, seed=seed) @ w) * g)

    step = tc.grad(loss)
    draws = np.array([step(w, x, seed) for seed in range(2000)])
    deviation = draws.std(0) / np.sqrt(len(draws))
    assert deviation.min() > 0
    assert (np.abs(draws.mean(0) - x.T @ g) < 5 * deviation).all()


# Views, readers, layouts --------------------------------------------------------------------------


def kinds_kept(function: Callable[..., Any], *specs: Any) -> list[str]:
    """Return the operators that make the saved values of store-all."""
    graph = tc.differentiate(tc.build(function, *specs), tuple(range(len(specs))))
    kept = [node for node in saved_values(graph) if node.role == "activation"]
    return sorted({graph.operators[node.producer or 0].kind for node in kept})


def test_views_of_compressed_value_become_views_of_decoded_value() -> None:
    x, w = normal(2, 3, 4), normal(4, 5)

    def loss(w: Any, x: Any) -> Any:
        y = tc.compressed(tc.sin(x), 2, 8, seed=1)
        left, right = tc.split(y.reshape(6, 4), 2)
        return tc.sum(y @ w) + tc.sum(left[1:] * right[1:]) + tc.sum(y[:, 1].T @ y[:, 0] @ w)

    y = np.sin(x)
    coded = round_trip(y, 2, 8, seed=1)
    # The second product's other operand was computed in the forward pass, from y itself.
    expected = coded.reshape(6, 4).T @ np.ones((6, 5))
    expected += (y[:, 1].T @ y[:, 0]).T @ np.ones((4, 5))
    np.testing.assert_allclose(tc.grad(loss)(w, x), expected, rtol=1e-12)
    slopes = np.zeros_like(coded)
    slopes += w.sum(1)
    flat = slopes.reshape(6, 4)
    flat[1:3] += coded.reshape(6, 4)[4:6]
    flat[4:6] += coded.reshape(6, 4)[1:3]
    slopes[:, 1] += coded[:, 0] @ np.outer(w.sum(1), np.ones(4))
    slopes[:, 0] += coded[:, 1] @ np.outer(np.ones(4), w.sum(1))
    np.testing.assert_allclose(tc.grad(loss, wrt=1)(w, x), slopes * np.cos(x), rtol=1e-12)
    assert kinds_kept(lambda x: tc.sum(tc.compressed(tc.sin(x), seed=1).reshape(6, 4).T ** 2),
                      tc.Spec((2, 3, 4))) == ["encode"]  # fmt: skip


def test_readers_of_original_value_read_decoded_value_in_their_vjps() -> None:
    def loss(x: Any) -> Any:
        y = tc.exp(x)
        before = y.reshape(-1) ** 2
        z = tc.compressed(y, seed=1)
        return tc.sum(before) + tc.sum(y**3) + tc.sum(z**2)

    assert kinds_kept(loss, tc.Spec((8, 8))) == ["encode"]


def test_fused_attention_vjp_reads_codes_of_operands_and_output() -> None:
    def loss(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (tc.compressed(2 * x, 8, 8, seed=i) for i, x in enumerate((q, k, v)))
        out = tc.attention(q, k, v, causal=True, fused=True)
        return tc.sum(tc.compressed(out, 8, 8, seed=9) ** 2)

    arrays = [normal(2, 6, 4) for _ in "qkv"]
    graph = tc.differentiate(tc.build(loss, *arrays), (0, 1, 2))
    kinds = [operator.kind for operator in graph.operators]
    assert kinds.count("fused_attention_vjp") == 1
    exact = tc.grad(lambda *a: tc.sum(tc.attention(*(2 * x for x in a), causal=True, fused=True)
                                      ** 2), wrt=(0, 1, 2))(*arrays)  # fmt: skip
    result = tc.run(tc.plan(graph), *arrays)
    for found, expected in zip(result.gradients, exact, strict=True):
        np.testing.assert_allclose(found, expected, atol=0.05 * np.abs(expected).max())


@settings(max_examples=examples(40))
@given(
    shape=drawn.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7),
    dtype=st.sampled_from(FLOATS),
    bits=st.sampled_from([8, 4, 2]),
    transposed=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_compression_of_random_shapes_and_layouts(
    shape: tuple[int, ...], dtype: str, bits: int, transposed: bool, seed: int
) -> None:
    x = np.random.default_rng(seed).normal(size=shape).astype(dtype)

    def loss(x: Any) -> Any:
        y = tc.transpose(x * 2) if transposed else x * 2
        return tc.half_squared_norm(tc.compressed(y, bits, 4, seed=seed))

    graph = tc.differentiate(tc.build(loss, x))
    result = tc.run(tc.plan(graph), x)
    assert result.trace == tc.replay(tc.plan(graph))
    y = 2 * x.T if transposed else 2 * x
    coded = round_trip(np.ascontiguousarray(y), bits, 4, seed)
    np.testing.assert_array_equal(result.gradients, 2 * (coded.T if transposed else coded))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("group", [4, 256, 2**18])
def test_declared_workspace_equals_measured_workspace(group: int, dtype: str) -> None:
    x = (normal(509, 513) * 0.01).astype(dtype)
    kinds = set()
    for bits in (8, 2):
        for layout in (lambda x: x * 2, lambda x: tc.transpose(x * 2), lambda x: x[:40, :50] * 2):
            operators = check_workspace(
                lambda x, b=bits, v=layout: tc.sin(tc.compressed(v(x), b, group, seed=1)), x
            )
            kinds |= {operator.kind for operator in operators}
    assert kinds >= {"encode", "compressed", "decode"}


# Seeds and errors ---------------------------------------------------------------------------------


def test_seed_as_data_gives_same_code_as_seed_as_number() -> None:
    x = normal(4, 6)
    step = tc.value_and_grad(
        lambda x, seed: tc.sum(tc.compressed(tc.sin(x), 2, 4, seed=3 * seed) ** 2)
    )
    for seed in (0, 1, 7):
        known = tc.value_and_grad(
            lambda x, seed=seed: tc.sum(tc.compressed(tc.sin(x), 2, 4, seed=3 * seed) ** 2)
        )
        for found, expected in zip(step(x, seed), known(x), strict=True):
            assert np.array_equal(found, expected)
    with pytest.raises(tc.BackendError, match=r"encode_1 of .* the seed must be 0 or more, got -3"):
        step(x, -1)


def test_second_derivatives_of_compressed_values_raise() -> None:
    def slope(x: Any) -> Any:
        y = tc.compressed(tc.sin(x), seed=1)
        return tc.sum(tc.gradients(tc.sum(y**3), x) ** 2)

    with pytest.raises(tc.GraphError, match=r"take second derivatives of the function without tc"):
        tc.grad(slope)(normal(3))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"bits": 3}, "compressed: bits=3; expected one of 8, 4, 2"),
        ({"bits": True}, "compressed: bits=True; expected one of 8, 4, 2"),
        ({"bits": 8.0}, "compressed: bits=8.0; expected one of 8, 4, 2"),
        ({"group": 0}, "compressed: group=0; it must be a multiple of 4"),
        ({"group": 6}, "compressed: group=6; it must be a multiple of 4"),
        ({"group": 8.0}, "compressed: group=8.0; it must be a multiple of 4"),
        ({"seed": -1}, "compressed: the seed must be 0 or more, got -1"),
        ({"seed": 0.5}, "compressed: seed 0.5 must be an integer"),
        ({"seed": None}, "compressed: seed None must be an integer"),
        ({"seed": np.array([1, 2])}, r"encode: the seed must be one integer, got int64\[2\]"),
    ],
)
def test_invalid_options_raise(options: dict[str, Any], match: str) -> None:
    with pytest.raises(tc.GraphError, match=match):
        tc.build(lambda x: tc.compressed(x, **{"seed": 1, **options}), np.ones(3))


def test_compressing_integers_raises() -> None:
    with pytest.raises(tc.GraphError, match="encode: needs floating-point"):
        tc.build(lambda x: tc.compressed(x, seed=1), np.arange(3))
