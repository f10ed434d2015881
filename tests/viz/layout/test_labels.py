"""Label fitting: user names first, truncated only where they do not fit, visually distinct."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.tinyckpt.documents.test_serialize import HOSTILE
from viz.layout.check_label_options import Naming
from viz.layout.drawn_nodes import one_line
from viz.layout.geometry import Layout
from viz.layout.label_fitting import POINTS, Wanted, fits, pixels, unique_labels
from viz.layout.views import overview, views_of

DISC, PILL = (30.0, 30.0), (60.0, 30.0)


def said(names: Sequence[str], size: tuple[float, float] = PILL) -> list[str]:
    """Return the labels of nodes of these names."""
    wanted = {node: Wanted(name, "", size, True) for node, name in enumerate(names)}
    found = unique_labels(wanted, dict.fromkeys(wanted, POINTS[2]))
    return [found.get(node, "") for node in wanted]


def named_graph(names: Sequence[str], line: bool, scope: str = "") -> tc.TrainingGraph:
    def loss(x: Any) -> Any:
        first = h = x
        for name in names:
            with tc.scope(scope) if scope else tc.scope("s"):
                h = tc.name(tc.tanh(h) if line else tc.tanh(h) + first, name)
        return tc.sum(h * h)

    return tc.differentiate(tc.build(loss, tc.Spec(3)))


def check_apart(plan: Layout) -> None:
    """Check that no two labels look the same, except in full under two headings or as mirrors."""
    seen: dict[bytes, int] = {}
    for cell, label, points in zip(plan.cells, plan.labels, plan.points, strict=True):
        if not label or not cell.named or (cell.mirror is not None):
            continue
        assert fits(label, plan.size(cell), points)
        assert pixels(label) not in seen, (label, plan.cells[seen[pixels(label)]].label)
        seen[pixels(label)] = cell.id


# One picture -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["loss", "hidden"], ["loss", "hidden"]),
        (["hidden"] * 3, ["hidden", "hidden₂", "hidden₃"]),
        (["hidden", "hidden", "hidden₂"], ["hidden", "hidden₃", "hidden₂"]),
        (["self_attention_query", "self_attention_key"], ["self…query", "self…n_key"]),
        (["attention_block1", "attention_block2"], ["attention…1", "attention…2"]),
        (["layers.1.attention", "layers.1.mlp"], ["attention", "layers.1.mlp"]),
        (["layers.1.attention", "layers.12.attention"], ["a1", "a12"]),
        (["layer13\u201316", "layer12501\u201315625"], ["layer13\u201316", "laye…15625"]),
        (["漢", "字"], ["漢", "字₂"]),  # letters that the font lacks look alike
        (["A", "Α"], ["A", "Α₂"]),  # noqa: RUF001  # and a Latin A as a Greek one
        (["a  b", "a b"], ["a  b", "a b"]),
        (["x" * 10_000, "x" * 10_000 + "y"], ["xxxx…xxxx", "xxxx…xxxy"]),
        ([""], [""]),
    ],
)  # fmt: skip
def test_labels_are_full_or_abbreviated(names: list[str], expected: list[str]) -> None:
    assert said(names) == expected


def test_thousand_equal_names_are_numbered() -> None:
    found = said(["attention_block"] * 1000)
    assert found[0] == "attention…₁"
    assert found[-1] == "attenti…₁₀₀₀"
    assert len(set(found)) == 1000


NAMES = st.lists(
    st.one_of(
        st.sampled_from(["hidden", "attention", "h", "@", "+", "tanh", "x" * 10_000, *HOSTILE]),
        st.text(min_size=1, max_size=30),
        st.text("ab\u200b \u0301é漢1₂", min_size=1, max_size=300),
        st.integers(0, 99).map("encoder.layers.{}.attention".format),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=examples(60))
@given(NAMES, st.sampled_from([DISC, PILL, (20.0, 20.0)]))
def test_random_names_have_distinct_labels(names: list[str], size: tuple[float, float]) -> None:
    names = [one_line(name) for name in names]
    shown = [text for text in said(names, size) if text]
    assert len({pixels(text) for text in shown}) == len(shown)
    assert all(fits(text, size, POINTS[2]) for text in shown)
    # A name is cut only where it does not fit, or where another is drawn alike.
    alike = Counter(pixels(name) for name in names if len(name) < 100)
    for name, text in zip(names, said(names, size), strict=True):
        if name and fits(name, size, POINTS[2]) and alike[pixels(name)] == 1:
            assert text == name


@settings(max_examples=examples(15))
@given(NAMES, st.booleans(), st.integers(320, 1600))
def test_nodes_of_a_picture_have_distinct_labels(names: list[str], line: bool, width: int) -> None:
    check_apart(overview(named_graph(names[:20], line), width))


# Graphs ------------------------------------------------------------------------------------------


def test_names_precede_symbols_and_scopes_are_headings() -> None:
    def loss(x: Any) -> Any:
        for layer in (1, 2):
            with tc.scope(f"layer{layer}"):
                x = tc.name(tc.tanh(x * 0.5), "hidden")
        return tc.name(tc.sum(x), "loss")

    plan = overview(tc.differentiate(tc.build(loss, tc.Spec(3))))
    forward = [label for cell, label in zip(plan.cells, plan.labels, strict=True) if cell.id < 5]
    assert forward == ["×", "hidden", "×", "hidden", "loss"]  # noqa: RUF001
    assert [heading.text for heading in plan.headings] == ["layer1", "layer2"]
    mirrors = [cell for cell in plan.cells if cell.mirror is not None]
    assert all(plan.labels[cell.id] == plan.labels[cell.mirror or 0] for cell in mirrors)
    assert plan.size(plan.cells[1])[0] > plan.size(plan.cells[0])[0] == plan.diameter


def test_single_outer_scope_has_no_heading() -> None:
    assert overview(named_graph(["a", "b"], line=True, scope="model/inner")).headings != ()

    def loss(x: Any) -> Any:
        with tc.scope("model"):
            return tc.sum(tc.tanh(x))

    assert overview(tc.differentiate(tc.build(loss, tc.Spec(3)))).headings == ()


@pytest.mark.parametrize(
    ("name", "label"),
    [("layer1", "layer1"), ("head", "head"), ("encoder", "encoder"), ("  ", "")],
)
def test_operators_of_a_custom_model_have_their_names(name: str, label: str) -> None:
    graph = tc.load_graph(Path(__file__).parents[3] / "docs" / "profile.json")
    operators = [replace(o, kind="custom_kind") for o in graph.operators]
    operators[0] = replace(operators[0], name=name)
    assert overview(replace(graph, operators=tuple(operators))).labels[0] == label


@pytest.mark.parametrize("network", ["resnet50", "transformer:12x64", "mlp:100x64", "unet"])
def test_groups_of_networks_have_distinct_labels(network: str) -> None:
    graph = tc.networks.network_from_text(network)[0]
    for view in views_of(graph)[:8]:
        plan = view.layout
        cut = [
            label
            for cell, label in zip(plan.cells, plan.labels, strict=True)
            if label and cell.named and label != cell.label and cell.mirror is None
        ]
        assert len(set(cut)) == len(cut)


def forward_of(plan: Layout) -> list[str]:
    return [label for cell, label in zip(plan.cells, plan.labels, strict=True) if not cell.backward]


def test_labels_option_sets_labels() -> None:
    graph = tc.networks.network_from_text("mlp:1x8")[0]

    def shown(labels: Any) -> list[str]:
        return forward_of(overview(graph, naming=Naming(labels)))

    assert shown(None) == ["@", "+", "tanh", "@", "+", "CE", "Σ", "loss"]
    assert shown("symbol") == [*shown(None)[:-1], "÷"]
    assert shown("name")[:4] == ["matmul_1", "add_1", "tanh_1", "matmul_2"]
    assert shown({"matmul_1": "first", 1: "bias"})[:3] == ["first", "bias", "tanh"]
    assert shown(lambda o: o.kind.upper() if o.kind == "tanh" else None)[:3] == ["@", "+", "TANH"]
    backward = overview(graph, naming=Naming({"tanh_1_vjp": "slope"}))
    assert "slope" in backward.labels
    assert forward_of(overview(tc.networks.chain(3), naming=Naming("symbol"))) == ["tanh"] * 3


def test_group_option_sets_groups() -> None:
    graph = tc.networks.network_from_text("mlp:3x8")[0]

    def shown(group: Any) -> list[str]:
        return forward_of(overview(graph, naming=Naming(group=group)))

    assert shown("scope") == ["layer1", "layer2", "layer3", "output"]
    assert shown("operator") == shown(None)
    halves = shown(lambda o: "lower" if o.scope < "layer3" else None)
    assert halves[:3] == ["lower", "@", "+"]
    # Only neighbours share a node, and those of one name are told apart.
    assert shown(lambda o: "even" if o.id % 4 < 2 else "odd")[:4] == [
        "even",
        "odd",
        "even₂",
        "odd₂",
    ]
    resnet = tc.networks.network_from_text("resnet50")[0]
    large = overview(resnet, naming=Naming(group="operator"))
    assert len(forward_of(large)) == resnet.forward_count
    assert large.diameter > 10
