"""Attention: the fused and the unfused form agree, and their saved values are as documented."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.attention_examples import fused, in_blocks, operands, training_graph
from tests.conftest import examples
from tinyckpt.core.graph import Operator

FORMS = ("fused", "unfused")


def results(form: Any, arrays: Any, weights: Any = None) -> list[Any]:
    """Return the output of a form of attention and its three gradients."""
    weights = np.random.default_rng(1).normal(size=arrays[0].shape) if weights is None else weights

    def loss(*operands: Any) -> Any:
        out = form(*operands)
        return tc.sum(out * weights.astype(out.dtype)), out

    (_, out), gradients = tc.value_and_grad(loss, wrt=(0, 1, 2))(*arrays)
    return [out, *gradients]


def assert_agree(found: list[Any], expected: list[Any], tolerance: float) -> None:
    """Compare arrays by their largest element."""
    for array, other in zip(found, expected, strict=True):
        assert array.dtype == other.dtype
        assert abs(array - other).max() <= tolerance * max(1.0, abs(other).max())


def kept(graph: tc.Graph, scope: str = "attention") -> list[str]:
    """Return what the adjoint of the operators of a scope reads of the forward pass."""
    inside = {o.id for o in graph.operators if scope in o.scope or scope in o.kind}
    read = {
        data
        for operator in graph.operators
        if operator.phase == "backward" and operator.adjoint_of in inside
        for data in operator.inputs
        if graph.data[data].role != "cotangent"
    }
    # A view is saved in its base's memory; scalars are not counted.
    owners = {owner(graph, data) for data in read}
    return [graph.data[data].name for data in sorted(owners) if graph.data[data].spec.shape]


def owner(graph: tc.Graph, data: int) -> int:
    """Return the base of a view."""
    while (base := graph.data[data].view_of) is not None:
        data = base
    return data


# Values and gradients -----------------------------------------------------------------------------


@settings(max_examples=examples(40))
@given(data=st.data())
def test_fused_attention_equals_definition_for_any_block_size(data: st.DataObject) -> None:
    draw = data.draw
    size, shared = st.integers(1, 9), draw(st.integers(1, 3))
    causal, length = draw(st.booleans()), draw(size)
    keys = draw(st.integers(length, 9)) if causal else draw(size)
    before = draw(st.lists(st.integers(1, 3), max_size=2))
    arrays = operands(draw(st.integers(1, 2)) * shared, shared, length, keys, draw(size), *before)
    if draw(st.booleans()):  # other layouts in memory
        arrays = tuple(np.asfortranarray(array) for array in arrays)
    extents = (*[st.integers(1, 3)] * (len(before) + 1), st.integers(1, 10), st.integers(1, 10))
    block = draw(st.tuples(*extents))
    expected = results(partial(tc.attention, causal=causal), arrays)
    in_one = results(partial(fused, causal=causal), arrays)
    several = results(lambda *a: in_blocks(*a, causal, block)[0], arrays)
    assert_agree(in_one, expected, 1e-12)
    assert_agree(several, expected, 1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_both_forms_agree_for_large_and_tied_scores(causal: bool) -> None:
    query, key, value = operands(2, 1, 6, 8, 4)
    # Integers: the products are exact, up to 1e4 and more, with ties.
    query, key = np.round(query * 40), np.round(key * 80)
    assert (query @ key.mT).max() > 1e4
    for arrays in (
        (query, key, value),
        (query, np.ones_like(key), value),  # in every row all scores are equal
        (query, key, np.ones_like(value)),
        (np.zeros_like(query), key, value),
    ):
        expected = results(partial(tc.attention, causal=causal, scale=1.0), arrays)
        assert_agree(results(partial(fused, causal=causal, scale=1.0), arrays), expected, 1e-12)
        for block in ((1, 2, 3), (1, 1, 1), (1, 6, 2)):
            assert_agree(results(scaled_by_1(causal, block), arrays), expected, 1e-12)


def scaled_by_1(causal: bool, block: tuple[int, ...]) -> Any:
    """Return fused attention without a scale, in blocks."""
    attrs = {"causal": causal, "scale": 1.0, "block": block}
    return lambda *a: tc.apply_all(tc.PRIMITIVES["fused_attention"], *a, **attrs)[0]


def test_fused_logsumexp_equals_logsumexp_of_score_rows() -> None:
    query, key, value = operands(4, 2, 5, 7, 3, 2)
    found = tc.jit(lambda *a: in_blocks(*a, True, (1, 2, 2, 3))[1])(query, key, value)
    scores = query @ np.repeat(key, 2, axis=1).mT * 3**-0.5
    scores = np.where(np.tri(5, 7, 2, dtype=bool), scores, -np.inf)
    np.testing.assert_allclose(found, np.log(np.exp(scores).sum(-1)), rtol=1e-14)


def test_causal_mask_is_aligned_to_last_key() -> None:
    scores = np.log(np.arange(1.0, 5.0)) + np.zeros((2, 4))
    expected = np.array([[1, 2, 3, 0], [1, 2, 3, 4]]) / np.array([[6], [10]])
    np.testing.assert_allclose(tc.jit(tc.causal_softmax)(scores), expected, rtol=1e-15)
    value, query = np.eye(4)[None], np.ones((1, 2, 4))
    key = np.repeat(np.log(np.arange(1.0, 5.0))[None, :, None], 4, 2) / 4
    for form in (tc.attention, fused):
        function = tc.jit(partial(form, causal=True, scale=1.0))
        np.testing.assert_allclose(function(query, key, value)[0], expected, rtol=1e-14)


def test_float16_attention_accumulates_in_float32() -> None:
    # 4,096 equal weights: a float16 sum of ones stops at 2,048.
    query, key = np.zeros((1, 2, 4), "float16"), np.zeros((1, 4096, 4), "float16")
    value = np.ones((1, 4096, 4), "float16")
    for form in (partial(fused, causal=True), partial(tc.attention, causal=True), fused):
        out, *gradients = results(form, (query, key, value), np.ones((1, 2, 4)))
        assert out.dtype == np.float16
        np.testing.assert_allclose(out, 1, rtol=1e-3)
        np.testing.assert_allclose(gradients[2].sum(-2, dtype="float64"), 2, rtol=1e-3)
    graph = tc.build(lambda *a: in_blocks(*a, False, (1, 2, 3)), query, key, value)
    assert [graph.data[leaf].spec.dtype.name for leaf in graph.results] == ["float16", "float32"]
    arrays = [array.astype("float16") for array in operands(4, 2, 50, 70, 16, 2)]
    exact = [array.astype("float64") for array in arrays]
    for block in ((1, 1, 16, 16), (2, 2, 50, 70)):
        found = results(lambda *a, block=block: in_blocks(*a, True, block)[0], arrays)
        expected = results(partial(tc.attention, causal=True), exact)
        assert_agree([a.astype("float64") for a in found], expected, 4e-3)


def test_cotangent_of_logsumexp_raises() -> None:
    arrays = operands(1, 1, 2, 2, 2)
    with pytest.raises(tc.GraphError, match="logsumexp, has no derivative of its own; take"):
        tc.grad(lambda *a: tc.sum(in_blocks(*a, False, (1, 1, 1))[1]))(*arrays)


# Saved values, and shared adjoints ----------------------------------------------------------------


def test_fused_attention_saves_operands_output_and_one_number_per_row() -> None:
    for causal in (False, True):
        graph = training_graph(partial(fused, causal=causal), operands(4, 2, 5, 7, 3, 2))
        (adjoint,) = (o for o in graph.operators if o.kind == "fused_attention_vjp")
        *read, cotangent = (graph.data[data] for data in adjoint.inputs)
        assert cotangent.role == "cotangent"
        assert [str(node.spec) for node in read] == [
            "float64[2,4,5,3]", "float64[2,2,7,3]", "float64[2,2,7,3]",
            "float64[2,4,5,3]", "float64[2,4,5]",
        ]  # fmt: skip
        assert kept(graph) == [node.name for node in read]
        assert len(adjoint.outputs) == 3


def test_unfused_attention_saves_scaled_query_key_value_and_weights_but_no_mask() -> None:
    for causal, softmax in ((False, "softmax_1"), (True, "causal_softmax_1")):
        arrays = operands(2, 1, 5, 5, 3, 2)
        graph = training_graph(partial(tc.attention, causal=causal), arrays)
        assert kept(graph) == ["arg1", "arg2", "multiply_1", softmax]
        (scores,) = (node for node in graph.data if node.label == "attention_scores")
        assert scores.name == softmax
        assert all(node.spec.shape == () for node in graph.data if node.role == "constant")
        inside = [
            o.kind for o in graph.operators if o.scope == "attention" and o.phase == "forward"
        ]
        assert inside == ["multiply", "matmul", softmax.removesuffix("_1"), "matmul"]


def adjoints(graph: tc.Graph) -> list[Operator]:
    """Return the operators of a graph that are fused attention's adjoint."""
    return [operator for operator in graph.operators if operator.kind == "fused_attention_vjp"]


@pytest.mark.parametrize("wrt", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_any_subset_of_gradients_takes_one_backward_operator(wrt: tuple[int, ...]) -> None:
    arrays = operands(2, 1, 4, 4, 3)
    loss = lambda *a: tc.sum(fused(*a, causal=True) ** 2)  # noqa: E731
    assert len(adjoints(tc.differentiate(tc.build(loss, *arrays), wrt))) == 1
    every = tc.value_and_grad(loss, wrt=(0, 1, 2))(*arrays)[1]
    some = tc.value_and_grad(loss, wrt=wrt)(*arrays)[1]
    for position, gradient in zip(wrt, some, strict=True):
        assert np.array_equal(gradient, every[position])


def test_backward_operators_of_two_applications_are_not_shared() -> None:
    arrays = operands(2, 1, 4, 4, 3)

    def twice(q: Any, k: Any, v: Any) -> Any:
        return tc.sum(fused(q, k, v) ** 2) + tc.sum(fused(q, k, v) ** 3)

    assert len(adjoints(tc.differentiate(tc.build(twice, *arrays), (0, 1, 2)))) == 2

    def of_two_losses(q: Any, k: Any, v: Any) -> Any:
        out = fused(q, k, v)
        slopes = [*tc.gradients(tc.sum(out), [q, k]), *tc.gradients(tc.sum(out**2), [q, k])]
        return [tc.sum(slope) for slope in slopes]

    graph = tc.build(of_two_losses, *arrays)
    assert len(adjoints(graph)) == 2
    assert len({operator.inputs for operator in adjoints(graph)}) == 2


def test_gradients_are_bitwise_equal_under_every_policy() -> None:
    arrays = operands(2, 1, 6, 6, 4)

    def loss(q: Any, k: Any, v: Any) -> Any:
        for _ in range(3):
            q = tc.attention(q, k, v, causal=True) + fused(q, k, v, causal=True)
        return tc.sum(q**2)

    found = [
        tc.value_and_grad(loss, policy, wrt=(0, 1, 2))(*arrays)[1]
        for policy in ("store_all", "sqrt_n", "recompute_all")
    ]
    assert len({b"".join(g.tobytes() for g in gradients) for gradients in found}) == 1
    graph = tc.differentiate(tc.build(loss, *arrays), (0, 1, 2))
    compiled = tc.compile(tc.plan(graph))
    assert "from tinyckpt.ops.kernels_attention import" in compiled.source
    assert all(map(np.array_equal, compiled(*arrays)[1], found[0]))


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (((4, 3, 2), (3, 3, 2), (3, 3, 2)), {}, "4 heads of the query must be a multiple of 3"),
        (((2, 3, 2), (2, 3, 4), (2, 3, 4)), {}, "d: it is 2 for the query and 4 for the key"),
        (((2, 3, 2), (2, 3, 2), (2, 4, 2)), {}, r"expected \(..., heads, length, d\) for "),
        (((3, 2), (3, 2), (3, 2)), {}, r"expected \(..., heads, length, d\) for "),
        (((1, 2, 3, 2), (2, 3, 2), (2, 3, 2)), {}, r"expected \(..., heads, length, d\)"),
        (((2, 0, 2), (2, 3, 2), (2, 3, 2)), {}, "no extent may be 0"),
        (((2, 3, 2), (2, 0, 2), (2, 0, 2)), {}, "no extent may be 0"),
        (((0, 2, 3, 2),) * 3, {}, "no extent may be 0"),
        (((5, 2, 3, 2), (4, 2, 3, 2), (4, 2, 3, 2)), {}, "the batch axes must agree"),
        (
            ((2, 4, 2), (2, 3, 2), (2, 3, 2)), {"causal": True},
            "causal, with 4 queries and 3 keys, would let the first queries see no key; give",
        ),
        (((2, 3, 2),) * 3, {"scale": float("nan")}, "scale nan must be a finite number"),
        (((2, 3, 2),) * 3, {"scale": "1"}, "scale '1' must be a finite number"),
        (((2, 3, 2),) * 3, {"scale": True}, "scale True must be a finite number"),
        (((2, 3, 2),) * 3, {"scale": 10**400}, "scale 1000+ must be a finite number"),
    ],
)  # fmt: skip
def test_invalid_attention_arguments_raise(
    form: str, shapes: Any, options: Any, message: str
) -> None:
    specs = [tc.Spec(shape) for shape in shapes]
    with pytest.raises(tc.GraphError, match=f"attention: .*{message}"):
        tc.build(partial(tc.attention, fused=form == "fused", **options), *specs)


def test_scale_accepts_numpy_scalars() -> None:
    arrays = operands(1, 1, 2, 2, 2)
    for form in (tc.attention, fused):
        found = [tc.jit(partial(form, scale=s))(*arrays) for s in (0.5, np.float32(0.5))]
        assert np.array_equal(*found)


def test_mismatched_dtypes_raise() -> None:
    shape = (2, 3, 2)
    with pytest.raises(tc.GraphError, match="attention: needs floating-point arrays, got int64"):
        tc.build(tc.attention, *[tc.Spec(shape, "int64")] * 3)
    with pytest.raises(tc.GraphError, match="attention: needs one dtype"):
        tc.build(fused, tc.Spec(shape), tc.Spec(shape, "float32"), tc.Spec(shape))


@pytest.mark.parametrize("shape", [(3, 2), (2, 0, 3), (4,), (2, 0, 0)])
def test_causal_softmax_with_fully_masked_rows_raises(shape: tuple[int, ...]) -> None:
    with pytest.raises(tc.GraphError, match=r"causal_softmax: .* no fewer keys than queries"):
        tc.build(tc.causal_softmax, tc.Spec(shape))


def test_empty_block_raises() -> None:
    arrays = operands(1, 1, 2, 2, 2)
    with pytest.raises(
        tc.GraphError, match=r"block \(1, 0, 2\): give \(..., kv_heads, queries, keys\)"
    ):
        tc.build(lambda *a: in_blocks(*a, False, (1, 0, 2))[0], *arrays)
