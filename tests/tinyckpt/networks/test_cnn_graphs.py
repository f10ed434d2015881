"""Training graphs of published CNNs and the transformer, against published figures."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.cli.main import main
from tinyckpt.documents.verifier import check_graph
from tinyckpt.networks.cnn_graphs import SHAPES, mobilenet, resnet50, unet, vgg16
from tinyckpt.networks.registry import argument_specs
from tinyckpt.networks.transformer import transformer


@pytest.mark.parametrize(
    ("name", "macs"),
    [("vgg16", 15_470_264_320), ("resnet50", 4_089_184_256), ("mobilenet", 568_740_352)],
)
def test_multiply_adds_equal_published(name: str, macs: int) -> None:
    graph = SHAPES[name](batch=1)
    products = [o for o in graph.operators[: graph.forward_count] if o.kind in ("conv2d", "matmul")]
    biases = sum(graph.data[o.outputs[0]].spec.size for o in products if len(o.inputs) == 3)
    assert sum(o.flops for o in products) == 2 * macs + biases


@pytest.mark.parametrize("name", SHAPES)
def test_blocks_of_any_batch_are_not_visited_to_build_a_graph(name: str) -> None:
    small, large = SHAPES[name](batch=8), SHAPES[name](batch=8 * 10**9)
    assert [o.name for o in large.operators] == [o.name for o in small.operators]


@pytest.mark.parametrize("name", SHAPES)
def test_backward_flops_are_twice_forward_except_first_layer(name: str) -> None:
    graph = SHAPES[name]()
    check_graph(graph)
    products = [o for o in graph.operators if o.kind.startswith("conv") or o.kind == "matmul"]
    biases = sum(
        graph.data[o.outputs[0]].spec.size
        for o in products
        if o.phase == "forward" and o.kind != "matmul" and len(o.inputs) == 3
    )
    forward = sum(o.flops for o in products if o.phase == "forward") - biases
    first = graph.data[products[0].outputs[0]].spec.size
    first = products[0].flops - (first if len(products[0].inputs) == 3 else 0)
    backward = sum(o.flops for o in products if o.phase == "backward")
    assert backward == 2 * forward - first


@pytest.mark.parametrize("policy", ["recompute_all", "sqrt_n", "chen_budget", "revolve"])
def test_every_policy_plans_cnn_graphs(policy: str) -> None:
    # Of smaller images, what a convolution works in is a large part.
    for graph in (vgg16(4, 32), resnet50(4, 32), mobilenet(4, 32), unet(4, 16, 2, 4)):
        store_all = tc.replay(tc.plan(graph, "store_all"))
        assert tc.replay(tc.plan(graph, policy)).peak_bytes <= store_all.peak_bytes


def test_cnn_graphs_run() -> None:
    graph = unet(1, 4, 1, 2)
    schedule = tc.plan(graph, "sqrt_n")
    arrays = tc.networks.random_arrays(argument_specs(graph))
    result = tc.run(schedule, *arrays)
    assert result.trace == tc.replay(schedule)
    assert 0 < float(result.value) < 10


def test_indivisible_image_sizes_are_refused() -> None:
    with pytest.raises(tc.GraphError, match="vgg16: size=100; it must be a multiple of 32"):
        vgg16(size=100)
    with pytest.raises(tc.GraphError, match="unet: depth=0"):
        unet(depth=0)


@pytest.mark.parametrize("name", SHAPES)
def test_shipped_graph_documents_equal_command_output(name: str, tmp_path: Path) -> None:
    shipped = Path(str(files("tinyckpt").joinpath(f"data/graphs/{name}.json")))
    assert main(["graph", name, "-o", str(tmp_path / "graph.json")]) == 0
    assert (tmp_path / "graph.json").read_bytes() == shipped.read_bytes()
    loaded, graph = tc.load_graph(shipped), SHAPES[name]()
    assert (loaded.data, loaded.operators) == (graph.data, graph.operators)


def test_transformer_gradients_are_bitwise_equal_under_policies_and_match_differences() -> None:
    network = transformer(2, 8, 2, 5, 3, 11, dropout=0.1, dtype="float64")
    graph = network.graph()
    params, x, _ = network.arrays(seed=1)
    labels = np.random.default_rng(0).integers(0, 11, (3, 5))
    schedule = tc.plan(graph)
    expected = tc.run(schedule, params, x, labels)
    for keep in ("residual", ["attention_scores", "attention_out", "mlp_hidden", "mlp_out"]):
        planned = tc.plan(graph, "retain", keep=keep)
        result = tc.run(planned, params, x, labels)
        assert result.trace == tc.replay(planned)
        for ours, theirs in zip(leaves(result.gradients), leaves(expected.gradients), strict=True):
            assert np.array_equal(ours, theirs)
    generator = np.random.default_rng(3)
    direction = map_leaves(lambda array: generator.normal(size=array.shape), params)

    def value_at(step: float) -> float:
        moves = iter(leaves(direction))
        moved = map_leaves(lambda array: array + step * next(moves), params)
        return float(tc.run(schedule, moved, x, labels).value)

    difference = (value_at(1e-5) - value_at(-1e-5)) / 2e-5
    pairs = zip(leaves(expected.gradients), leaves(direction), strict=True)
    assert difference == pytest.approx(sum(float((a * b).sum()) for a, b in pairs), rel=1e-7)


def test_transformer_accepts_any_batch_size() -> None:
    network = transformer(2, 8, 2, 5, 4, 11, dtype="float64")
    params, x, labels = network.arrays()
    whole = tc.jit(network.loss)(params, x, labels)
    parts = [tc.jit(network.loss)(params, x[i : i + 2], labels[i : i + 2]) for i in (0, 2)]
    np.testing.assert_allclose(np.mean(parts), whole, rtol=1e-14)


def test_transformer_is_causal() -> None:
    network = transformer(2, 8, 2, 5, 1, 11, dtype="float64")
    params, x, _ = network.arrays(seed=1)
    labels = np.zeros((1, 5), "int64")

    def loss(x: Any, params: Any, labels: Any) -> Any:
        return network.loss(params, x, labels)

    step = tc.grad(loss)
    other = labels.copy()
    other[0, 1] = 3  # changes the loss of token 1 alone
    difference = step(x, params, other) - step(x, params, labels)
    assert np.any(difference[0, :2] != 0)
    assert np.array_equal(difference[0, 2:], np.zeros((3, 8)))


def test_transformer_of_gpt2_size_has_its_parameters() -> None:
    graph = transformer().graph()
    # 124,439,808 with the 1,024 positions of 768, which are not here.
    count = sum(n.spec.size for n in graph.data if n.role == "parameter")
    assert count == 124_439_808 - 1024 * 768
