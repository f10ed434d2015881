"""tc.rewrite: equal loss, gradients that map back, fewer saved values; refusals with reasons."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.tinyckpt.networks.small import arguments, small
from tinyckpt.base.tree import leaves, leaves_with_paths
from tinyckpt.planner.model.saved_values import saved_values

R = np.random.default_rng(5)
# Networks whose norms all stand before linear layers.
PRE_NORM = ("vit", "llama", "llama_grouped")


def close(found: Any, expected: Any) -> None:
    """Compare two trees to 1e-10 of what is largest in each array."""
    pairs = zip(leaves_with_paths(found, ""), leaves_with_paths(expected, ""), strict=True)
    for (path, ours), (other, theirs) in pairs:
        assert (path, ours.dtype) == (other, theirs.dtype)
        atol = 1e-10 * max(float(np.abs(theirs).max()), 1e-3)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol, err_msg=path)


def check_exact(network: Any, args: Any, **options: Any) -> Any:
    """Compare loss and gradients of a network with those of its rewriting; return that."""
    rewriting = tc.rewrite(network, fit=None, **options)
    params, *data = args
    merged = rewriting.merged(params)
    found = tc.value_and_grad(rewriting.network.loss)(merged, *data)
    expected = tc.value_and_grad(network.loss)(params, *data)
    close(found[0], expected[0])
    close(rewriting.gradients(found[1], params), expected[1])
    # Merged parameters are the other network's own, with norms that do nothing.
    close(tc.jit(network.loss)(rewriting.unmerged(merged), *data), found[0])
    close(rewriting.merged(rewriting.unmerged(merged)), merged)
    return rewriting


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", PRE_NORM)
def test_rewritten_loss_and_gradients_equal_the_original(name: str, fused: bool, seed: int) -> None:
    network = small(name, fused=fused)
    rewriting = check_exact(network, arguments(name, network, seed))
    assert rewriting.left == rewriting.activations == ()
    assert len(rewriting.norms) == 5
    kinds = [operator.kind for operator in rewriting.network.graph().operators]
    assert not {"layer_norm", "rms_norm"} & set(kinds)
    assert kinds.count("ms_norm_vjp") == 5


def test_gpt2_norm_before_tied_embedding_is_unchanged() -> None:
    network = small("gpt2")
    with pytest.raises(tc.GraphError, match=r"layer_norm_5: params\['tokens'\] is read elsewhere"):
        tc.rewrite(network)
    rewriting = check_exact(network, arguments("gpt2", network), norms="possible")
    assert len(rewriting.norms) == 4
    assert [name for name, _ in rewriting.left] == ["layer_norm_5"]


@pytest.mark.parametrize("name", ["bert", "roberta", "bert_classes"])
def test_residual_after_a_norm_is_refused(name: str) -> None:
    network = small(name)
    why = r"layer_norm_1: add_\d+ reads it, which is not a product with a weight; .*; and 2 more"
    with pytest.raises(tc.GraphError, match=why):
        tc.rewrite(network)
    with pytest.raises(tc.GraphError, match="has nothing to rewrite with norms='possible'"):
        tc.rewrite(network, norms="possible", fit=None)
    coded = tc.rewrite(network, norms="possible")
    assert (len(coded.norms), len(coded.left), len(coded.activations)) == (0, 5, 2)


@pytest.mark.parametrize("fit", ["published", "symmetric"])
@pytest.mark.parametrize("name", [*PRE_NORM, "gpt2", "bert"])
def test_activations_save_two_bits_with_equal_loss(name: str, fit: str) -> None:
    network = small(name)
    params, *data = arguments(name, network)
    rewriting = tc.rewrite(network, norms=None, fit=fit)
    kinds = {operator.kind for operator in rewriting.network.graph().operators}
    assert kinds & {"regelu2", "resilu2"}
    assert not kinds & {"gelu", "gelu_tanh", "silu"}
    found, expected = (
        tc.value_and_grad(n.loss)(params, *data) for n in (rewriting.network, network)
    )
    assert found[0].tobytes() == expected[0].tobytes()
    pairs = zip(leaves(found[1]), leaves(expected[1]), strict=True)
    assert any(not np.array_equal(ours, theirs) for ours, theirs in pairs)


def test_residual_stream_and_gelu_input_are_not_saved() -> None:
    network = small("vit", fused=True, dtype="float32")
    kept = [
        sum(node.nbytes for node in saved_values(n.graph()) if node.role == "activation")
        for n in (network, tc.rewrite(network).network)
    ]
    stream = 2 * (4 + 1) * 8 * 4  # two images of four patches and a class, of width 8
    codes = 2 * (4 + 1) * 32 // 4
    means = 4 * (2 * (4 + 1)) * 4 + 2 * 4  # of four norms of all rows, and one of two
    # Each of two blocks kept what two norms read, and what gelu did, four times as wide. The last
    # norm reads the class's rows alone: a view of the stream.
    assert kept[0] - kept[1] == (4 + 1) * stream + means + 2 * (4 * stream - codes)


def test_scopes_labels_regions_and_once_are_preserved() -> None:
    def loss(params: Any, x: Any) -> Any:
        def block(x: Any) -> Any:
            with tc.scope("block"):
                y = tc.name(tc.layer_norm(x, params["s"]), "normed")
                return tc.once(tc.gelu(y @ params["w"]))

        return tc.sum(tc.checkpoint(lambda x: block(tc.checkpoint(block)(x)))(x) ** 2)

    shared = {"s": tc.Spec(4), "w": tc.Spec((4, 4))}
    graphs = [tc.build(loss, shared, tc.Spec((3, 4)))]
    rewriting = tc.rewrite(loss, shared, tc.Spec((3, 4)), norms=None)
    graphs.append(tc.build(rewriting.network.loss, *rewriting.network.specs))
    facts = [
        [(op.scope, op.regions, op.once, graph.data[op.outputs[0]].label) for op in graph.operators]
        for graph in graphs
    ]
    assert facts[0] == facts[1]
    assert ("block", (0, 1), True, None) in facts[0]
    assert ("block", (0,), False, "normed") in facts[0]


def test_transposed_weights_and_reshaped_rows_are_merged() -> None:
    def loss(params: list[Any], x: Any) -> Any:
        scale, shift, w, b, v, c = params
        y = tc.layer_norm(x, scale, shift)
        left = y @ w + b
        right = (y @ v.T + c).reshape(-1, 5)  # with a copy between product and bias
        return tc.sum(tc.sin(left)) + tc.sum(tc.cos(right) ** 2)

    shapes = ((4,), (4,), (4, 3), (3,), (5, 4), (5,))
    params = [R.normal(size=shape) for shape in shapes]
    x = R.normal(size=(2, 3, 4))
    rewriting = check_exact(tc.networks.Network("two", loss, (
        [tc.Spec(shape) for shape in shapes], tc.Spec(x.shape))), (params, x))  # fmt: skip
    merged = rewriting.merged(params)
    assert merged[:2] == [None, None]
    assert [m.shape for m in merged[2:]] == list(shapes[2:])
    by_arrays = tc.rewrite(loss, params, x, fit=None)
    assert by_arrays.network.specs == rewriting.network.specs


def test_norm_without_parameters_shares_memory_with_any_reader() -> None:
    def loss(params: Any, x: Any) -> Any:
        y = tc.rms_norm(x) + tc.layer_norm(x, axes=0)
        return tc.sum((y + y @ params["w"]) ** 2)

    params, x = {"w": R.normal(size=(4, 4))}, R.normal(size=(3, 4))
    network = tc.networks.Network("plain", loss, ({"w": tc.Spec((4, 4))}, tc.Spec((3, 4))))
    rewriting = check_exact(network, (params, x))
    assert rewriting.norms == ("rms_norm_1", "layer_norm_1")
    assert rewriting.merged(params) == params


def test_training_continues_on_merged_parameters() -> None:
    network = small("vit")
    params, *data = arguments("vit", network)
    rewriting = tc.rewrite(network)
    step = tc.train_step(rewriting.network.loss, tc.adam(1e-2))
    state = step.init(rewriting.merged(params))
    values = []
    for _ in range(20):
        state, value = step(state, *data)
        values.append(float(value))
    assert values[-1] < values[0] / 2
    back = rewriting.unmerged(state["parameters"])
    again = tc.jit(network.loss)(back, *data)
    assert again == pytest.approx(float(tc.jit(rewriting.network.loss)(state["parameters"], *data)))


def normed(x: Any, p: Any) -> Any:
    return tc.layer_norm(x, p["s"], p["t"])


REFUSED: dict[str, tuple[Any, str]] = {
    "no bias": (lambda p, x: tc.sum(normed(x, p) @ p["w"]), "matmul_1 adds no bias, into which"),
    "bias read twice": (
        lambda p, x: tc.sum(normed(x, p) @ p["w"] + p["b"]) + tc.sum(p["b"]),
        r"p\['b'\] is read elsewhere, too",
    ),
    "product read twice": (
        lambda p, x: (lambda z: tc.sum(z + p["b"]) + tc.sum(z**2))(normed(x, p) @ p["w"]),
        "matmul_1 adds no bias",
    ),
    "weight read twice": (
        lambda p, x: tc.sum(normed(x, p) @ p["w"] + p["b"]) + tc.sum(p["w"]),
        r"p\['w'\] is read elsewhere, too",
    ),
    "scale read twice": (
        lambda p, x: tc.sum(normed(x, p) @ p["w"] + p["b"]) + tc.sum(p["s"]),
        r"p\['s'\] is read elsewhere, too",
    ),
    "scale computed": (
        lambda p, x: tc.sum(tc.layer_norm(x, p["s"] + 1, p["t"]) @ p["w"] + p["b"]),
        "add_1 is not a parameter",
    ),
    "weight computed": (
        lambda p, x: tc.sum(normed(x, p) @ (2 * p["w"]) + p["b"]), "multiply_1 is not a parameter",
    ),
    "returned": (
        lambda p, x: (lambda y: (tc.sum(y @ p["w"] + p["b"]), y))(normed(x, p)),
        "layer_norm_1: the function returns it",
    ),
    "residual": (
        lambda p, x: (lambda y: tc.sum(y + (y @ p["w"] + p["b"])))(normed(x, p)),
        "reads it, which is not a product",
    ),
    "scale is shift": (
        lambda p, x: tc.sum(tc.layer_norm(x, p["s"], p["s"]) @ p["w"] + p["b"]),
        r"p\['s'\] is its scale and its shift",
    ),
    "second operand": (lambda p, x: tc.sum(p["w"] @ normed(x, p)), "matmul_1 reads it, which is"),
    "with itself": (
        lambda p, x: (lambda y: tc.sum(y @ tc.transpose(y)))(normed(x, p)), "reads it, which is",
    ),
    "other axes": (
        lambda p, x: tc.sum(tc.layer_norm(x, p["s"], p["t"], axes=0) @ p["w"] + p["b"]),
        "it is not over the last axis alone",
    ),
    "regrouped columns": (
        lambda p, x: tc.sum(normed(x, p).reshape(8, 2) @ p["v"] + p["c"]), "reshape_1 reads it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_unmergeable_norms_are_refused_with_reason(name: str) -> None:
    loss, why = REFUSED[name]
    params = {"s": tc.Spec(4), "t": tc.Spec(4), "w": tc.Spec((4, 4)), "b": tc.Spec(4),
              "v": tc.Spec((2, 3)), "c": tc.Spec(3)}  # fmt: skip
    with pytest.raises(tc.GraphError, match=why):
        tc.rewrite(loss, params, tc.Spec((4, 4)))
    with pytest.raises(tc.GraphError, match="nothing to rewrite"):
        tc.rewrite(loss, params, tc.Spec((4, 4)), norms="possible")


def test_illegal_arguments_are_refused() -> None:
    network = small("vit")
    with pytest.raises(tc.GraphError, match="norms='some'; expected 'all', 'possible' or None"):
        tc.rewrite(network, norms="some")
    with pytest.raises(tc.GraphError, match="fit='best'; expected one of published, symmetric"):
        tc.rewrite(network, fit="best")
    params, *data = network.arrays()
    rewriting = tc.rewrite(network)
    with pytest.raises(tc.GraphError, match="expected None"):
        tc.build(rewriting.network.loss, params, *data)
