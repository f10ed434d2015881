"""tc.with_compression: equal loss, codes saved instead of activations, training converges."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.tinyckpt.networks.small import arguments, small
from tinyckpt.base.tree import leaves
from tinyckpt.planner.model.saved_values import saved_values


def kept(graph: tc.TrainingGraph) -> list[tc.DataNode]:
    return [node for node in saved_values(graph) if node.role == "activation"]


@pytest.mark.sampled(9)
@pytest.mark.long
@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("name", ["vit", "gpt2", "llama", "bert", "lenet5", "resnet18"])
def test_compression_keeps_the_loss_and_saves_codes(name: str, bits: int) -> None:
    network = small(name)
    args = arguments(name, network)
    coded = tc.with_compression(network, bits=bits, group=16)
    graph, plain = coded.graph(), network.graph()
    result = tc.run(tc.plan(graph), *args, 7)
    expected = tc.run(tc.plan(plain), *args)
    assert result.trace == tc.replay(tc.plan(graph))
    assert np.array_equal(leaves(result.value)[0], leaves(expected.value)[0])
    floats = [node for node in kept(graph) if node.spec.dtype.kind == "f" and node.spec.size >= 16]
    makers = {graph.operators[node.producer or 0].kind for node in floats}
    # Besides the ends of groups: what is one number a row, and so a second result.
    assert all(graph.operators[node.producer or 0].outputs[0] != node.id for node in floats), makers
    small_errors = [
        float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-12))
        for ours, theirs in zip(leaves(result.gradients), leaves(expected.gradients), strict=True)
    ]
    if bits == 8 and name != "resnet18":  # whose many norms are of very few numbers here
        assert 0 < max(small_errors) < 0.1


def test_saved_bytes_equal_the_code_size() -> None:
    network = tc.networks.gpt2(2, 64, 2, 32, 4, vocabulary=64, positions=32, fused=True)
    values = [node for node in kept(network.graph()) if node.spec.dtype == np.float32]
    large = [n for n in values if n.name.endswith(".0") or "." not in n.name]
    large = [n for n in large if n.spec.size >= 256]
    for bits in (8, 4, 2):
        graph = tc.with_compression(network, bits=bits).graph()
        total = sum(node.nbytes for node in kept(graph))
        predicted = sum(n.spec.size * bits // 8 + 8 * -(-n.spec.size // 256) for n in large)
        rest = sum(node.nbytes for node in values) - sum(node.nbytes for node in large)
        assert total == pytest.approx(predicted + rest, rel=0.01)


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_8_bit_training_ends_within_1_percent_of_exact_loss(seed: int) -> None:
    # Each token is one or two after the last, by chance: nobody can do better than log 2.
    network = tc.networks.gpt2(1, 16, 2, 12, 16, vocabulary=11, positions=12)
    params = network.arrays(seed)[0]
    coded = tc.with_compression(network, group=64)
    ends = []
    for loss, seeded in ((network.loss, False), (coded.loss, True)):
        generator = np.random.default_rng(seed)
        step = tc.train_step(loss, tc.adam(tc.cosine_rate(1e-2, 240)))
        state, values = step.init(params), []
        for index in range(240):
            line = np.cumsum(generator.integers(1, 3, (16, 13)), axis=1) % 11
            state, value = step(state, line[:, :-1], line[:, 1:], *([index] if seeded else []))
            values.append(float(value))
        ends.append(np.mean(values[-40:]))
    assert ends[0] == pytest.approx(np.log(2), rel=0.06)
    assert ends[1] == pytest.approx(ends[0], rel=0.01)


def test_compression_combines_with_rewrite_and_functions() -> None:
    network = small("vit", fused=True)
    params, *data = arguments("vit", network)
    rewriting = tc.rewrite(network, fit="symmetric")
    both = tc.with_compression(rewriting.network, bits=8, group=16)
    kinds = {graph_op.kind for graph_op in both.graph().operators}
    assert kinds >= {"regelu2_vjp", "ms_norm_vjp", "decode", "fused_attention_vjp"}
    value = tc.jit(both.loss)(rewriting.merged(params), *data, 3)
    np.testing.assert_allclose(value, tc.jit(network.loss)(params, *data), rtol=1e-12)

    def loss(w: Any, x: Any) -> Any:
        return tc.sum(tc.tanh(x @ w) ** 2)

    own = tc.with_compression(loss, np.ones((8, 8)), np.ones((4, 8)), bits=2, group=8)
    assert [spec.dtype.name for spec in leaves(own.specs)] == ["float64", "float64", "int64"]


def test_compression_refuses_illegal_arguments() -> None:
    network = small("vit")
    with pytest.raises(tc.GraphError, match="with_compression: bits=1; expected one of 8, 4, 2"):
        tc.with_compression(network, bits=1)
    with pytest.raises(tc.GraphError, match="saves no value of 4096 floats or more"):
        tc.with_compression(network, group=4096)
    for rewrite in (tc.with_compression, tc.rewrite):
        name = rewrite.__name__
        with pytest.raises(tc.GraphError, match=rf"^{name}: .* has specs of its own"):
            rewrite(network, tc.Spec(3))
        with pytest.raises(tc.GraphError, match=rf"^{name}: tanh needs its arguments"):
            rewrite(tc.tanh)
        for what in (3, None, "vit", network.graph()):
            with pytest.raises(tc.GraphError, match=rf"^{name}: expected a Network or a function"):
                rewrite(what, tc.Spec(3))  # type: ignore[arg-type]


def test_seeds_give_distinct_reproducible_codes() -> None:
    def loss(w: Any, x: Any) -> Any:
        return tc.sum(tc.tanh(tc.tanh(x @ w) @ w) @ w)

    w, x = np.random.default_rng(2).normal(size=(2, 8, 8))
    coded = tc.with_compression(loss, w, x, bits=2, group=8)
    step = tc.value_and_grad(coded.loss)
    seeds = (0, 1, 2**61, 2**62, 2**62 + 1, 2**63 - 1)
    assert len({step(w, x, np.int64(seed))[1].tobytes() for seed in seeds}) == len(seeds)
    assert step(w, x, 2**61)[1].tobytes() == step(w, x, np.int64(2**61))[1].tobytes()
    with pytest.raises(tc.BackendError, match="the seed must be 0 or more, got -1"):
        step(w, x, -1)
    for seed in (-1, 2**64, 10**5000):  # as numbers, when the function is traced
        with pytest.raises(tc.GraphError, match="compressed: the seed must be"):
            tc.value_and_grad(lambda w, x, seed=seed: coded.loss(w, x, seed))(w, x)
    known = tc.value_and_grad(lambda w, x: coded.loss(w, x, 2**62))(w, x)
    assert known[1].tobytes() == step(w, x, 2**62)[1].tobytes()
