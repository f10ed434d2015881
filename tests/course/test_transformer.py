"""Part 6's bytes, FLOPs and peaks are those of tinyckpt's graphs, and what differs has a name."""

from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

import tinyckpt as tc
from tests.course.test_parts import SOLUTIONS, import_from

S, B, H, A = 16, 2, 32, 4
SBH, WEIGHTS = S * B * H, A * S * S * B
# Mean and deviation of two norms in float32, one of each per token: the paper neglects them.
STATISTICS = 2 * 2 * 4 * S * B


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    import_from(monkeypatch, SOLUTIONS)
    return import_module("part_6")


def network(layers: int) -> tc.TrainingGraph:
    """Return the paper's layers in 16 bit, with masks that are saved, and part 6's names."""
    split, turned = (B, S, A, H // A), (0, 2, 1, 3)

    def dropped(x: Any, seed: int, name: str) -> Any:
        mask = tc.name(tc.dropout(tc.ones(x.shape, x.dtype), 0.1, seed) > 0, name)
        return tc.where(mask, x * (1 / 0.9), 0)

    def layer(p: Any, x: Any, n: int) -> Any:
        read = tc.name(tc.layer_norm(x, p["scale"], p["shift"]), f"input of q, k, v {n}")
        q = tc.name(read @ p["q"] * (H // A) ** -0.5, f"q {n}")
        k, v = (tc.name(read @ p[one], f"{one} {n}") for one in "kv")
        q, k, v = (array.reshape(split).transpose(turned) for array in (q, k, v))
        weights = tc.name(tc.causal_softmax(q @ k.mT), f"softmax {n}")
        weights = dropped(weights, 3 * n, f"mask of softmax {n}")
        mixed = tc.name(weights, f"dropout of softmax {n}") @ v
        mixed = tc.name(mixed.transpose(turned).reshape(B * S, H), f"input of projection {n}")
        x = x + dropped(mixed @ p["out"], 3 * n + 1, f"mask of attention {n}")
        read = tc.layer_norm(tc.name(x, f"input of norm 2 {n}"), p["scale"], p["shift"])
        wide = tc.name(tc.name(read, f"input of fc1 {n}") @ p["fc1"], f"input of gelu {n}")
        narrow = tc.name(tc.gelu(wide), f"input of fc2 {n}") @ p["fc2"]
        return x + dropped(narrow, 3 * n + 2, f"mask of MLP {n}")

    def loss(params: Any, x: Any) -> Any:
        for n, p in enumerate(params):
            x = layer(p, tc.name(x, f"input of norm 1 {n}") if n else x, n)
        return tc.sum(x)

    shapes: dict[str, Any] = {"q": (H, H), "k": (H, H), "v": (H, H), "out": (H, H)}
    shapes |= {"fc1": (H, 4 * H), "fc2": (4 * H, H), "scale": H, "shift": H}
    specs = {name: tc.Spec(shape, "float16") for name, shape in shapes.items()}
    return tc.differentiate(tc.build(loss, [specs] * layers, tc.Spec((B * S, H), "float16")))


def saved_bytes(graph: tc.Graph) -> dict[str, int]:
    """Return the bytes of each saved tensor, by the label of the value or of a view of it."""
    labels: dict[int, str] = {}
    for node in graph.data:
        base = node
        while base.view_of is not None:
            base = graph.data[base.view_of]
        labels[base.id] = node.label or labels.get(base.id, base.name)
    found = [node for node in tc.saved_values(graph) if node.role == "activation"]
    return {labels[node.id]: node.nbytes for node in found}


def test_each_saved_tensor_of_a_layer_has_the_bytes_of_the_graph(part: Any) -> None:
    # Layer 1 of 2: the input of layer 0 is a source.
    nbytes = saved_bytes(network(2))
    for tensor in part.saved(part.Layer(S, B, H, A)):
        assert nbytes.pop(f"{tensor.name} 1") == tensor.nbytes
    rest = {name: size for name, size in nbytes.items() if not name.endswith(" 0")}
    assert {name.split("_")[0] for name in rest} == {"layer"}
    assert sum(rest.values()) == 2 * STATISTICS  # of both layers


def test_step_has_the_products_of_the_graph(part: Any) -> None:
    two, three = (
        sum(op.flops for op in network(layers).operators if op.kind == "matmul")
        for layers in (2, 3)
    )
    assert three - two == part.step_flops(part.Layer(S, B, H, A))


@pytest.mark.parametrize("layers", [2, 3, 4])
def test_peak_of_a_plan_is_that_of_the_replay(layers: int, part: Any) -> None:
    size, graph = part.Layer(S, B, H, A), network(layers)
    full = part.peak_bytes(size, [()] * layers)
    stored = max(tc.replay(tc.plan(graph, "store_all")).activation)

    def replayed(plan: Any) -> int:
        """Return how many bytes less the plan takes than store-all."""
        kept = [
            f"{tensor.name} {n}"
            for n, names in enumerate(plan)
            for tensor in part.saved(size)
            if tensor.name not in names and (n or tensor.name != part.KEPT)
        ]
        return stored - max(tc.replay(tc.plan(graph, "retain", keep=kept)).activation)

    core = {tensor.name for tensor in part.saved(size) if tensor.kind == "core"}
    plans = [[core] * (layers - 1) + [()]]
    plans += [part.choose(size, layers, full * tenths // 10) for tenths in (8, 7, 6)]
    for plan in plans:
        # Statistics of the norms are recomputed, too.
        assert replayed(plan) == full - part.peak_bytes(size, plan) + layers * STATISTICS
    # The replay recomputes when a tensor is read, not before: the last layer frees something.
    everywhere = [core] * layers
    assert replayed(everywhere) > full - part.peak_bytes(size, everywhere) + layers * STATISTICS


def test_layer_of_gpt2_differs_in_five_named_terms(part: Any) -> None:
    def total(layers: int) -> int:
        made = tc.networks.gpt2(layers, H, A, S, B, 50, positions=S, dropout=0.1, dtype="float16")
        found = tc.saved_values(tc.differentiate(tc.build(made.loss, *made.specs)))
        return sum(node.nbytes for node in found if node.role == "activation")

    formula = sum(tensor.nbytes for tensor in part.saved(part.Layer(S, B, H, A)))
    masks = 2 * SBH  # drawn anew from their seeds
    seeds = 2 * 8
    dropout_of_weights = 3 * WEIGHTS  # gpt2 has none
    scaled = 2 * SBH  # q times a factor, beside q, k and v, which share one array
    assert total(3) - total(2) == (
        formula - masks - dropout_of_weights + seeds + scaled + STATISTICS
    )
