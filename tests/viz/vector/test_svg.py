"""SVG stills: well-formed, every node in its state, hostile names as text."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import tinyckpt as tc
import viz
from tests.tinyckpt.documents.test_serialize import hostile_graph
from viz.layout.views import overview
from viz.node_looks import Fill
from viz.scene import Style, scene_of
from viz.theme import THEMES, css
from viz.vector.marks import level_path
from viz.vector.svg import looks_at, svg_still

SVG = "{http://www.w3.org/2000/svg}"


def trace_of(graph: tc.Graph, policy: str = "sqrt_n") -> tc.Trace:
    return tc.replay(tc.plan(graph, policy))


def nodes_of(text: str) -> list[tuple[str, str | None]]:
    """Return the shape used by every node, and its label."""
    root = ElementTree.fromstring(text)
    nodes = [element for element in root.iter() if element.get("class") == "node"]
    uses = [node if node.tag == f"{SVG}use" else node.find(f"{SVG}use") for node in nodes]
    labels = [node.findtext(f"{SVG}text") for node in nodes]
    href = "{http://www.w3.org/1999/xlink}href"
    return [
        ("" if use is None else str(use.get(href)), label)
        for use, label in zip(uses, labels, strict=True)
    ]


def test_nodes_share_a_shape_iff_they_look_the_same() -> None:
    trace = trace_of(tc.networks.chain(9))
    for step in (0, 7, len(trace.steps) - 1):
        looks = looks_at(trace, overview(trace.graph), step)
        nodes = nodes_of(svg_still(scene_of(trace), step))
        assert [label for _, label in nodes] == list(overview(trace.graph).labels)
        pairs = set(zip(looks, (used for used, _ in nodes), strict=True))
        assert len(pairs) == len(set(looks)) == len({used for used, _ in nodes})


def test_recomputed_nodes_are_hatched_and_others_are_not() -> None:
    trace, step = trace_of(tc.networks.chain(16)), 59
    root = ElementTree.fromstring(svg_still(scene_of(trace), step))
    (pattern,) = root.iter(f"{SVG}pattern")
    fill = f"url(#{pattern.get('id')}) {css(THEMES['light'].recomputed)}"
    looks = looks_at(trace, overview(trace.graph), step)
    shapes = {element.get("id"): element for element in root.iter(f"{SVG}g")}
    for look, (used, _) in zip(looks, nodes_of(ElementTree.tostring(root, "unicode")), strict=True):
        fills = {element.get("fill") for element in shapes[used[1:]].iter()}
        assert (fill in fills) == (look.fill is Fill.RECOMPUTED and look.activity != "recomputing")
    assert {look.fill for look in looks} >= {Fill.RECOMPUTED, Fill.KEPT, Fill.GRADIENT}


@pytest.mark.parametrize("theme", THEMES)
def test_hostile_names_are_literal_text(theme: str) -> None:
    trace = trace_of(hostile_graph(), "store_all")
    text = svg_still(scene_of([trace, trace], Style(theme)))
    tags = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(text).iter()}
    assert tags <= {
        "svg", "title", "style", "rect", "g", "defs", "circle", "use", "path", "text", "pattern",
        "clipPath",
    }  # fmt: skip
    assert "<script" not in text


def test_suffix_selects_the_still_format(tmp_path: Path) -> None:
    trace = trace_of(tc.networks.chain(4))
    path = viz.save_still(trace, tmp_path / "still.svg", 3, theme="dark")
    assert path.read_text(encoding="utf-8") == svg_still(scene_of(trace, Style("dark")), 3)


def test_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tc.OptionError, match=r"still.jpg: the name of a still must end in one of"):
        viz.save_still(trace_of(tc.networks.chain(4)), tmp_path / "still.jpg")
    assert list(tmp_path.iterdir()) == []


def test_step_out_of_range_is_refused() -> None:
    with pytest.raises(tc.TinyckptError, match="step 99 is out of range: expected 0 to 18"):
        svg_still(scene_of(trace_of(tc.networks.chain(4))), 99)


@pytest.mark.parametrize("share", [1 / 8, 1 / 2, 7 / 8])
def test_group_level_stays_within_its_square(share: float) -> None:
    numbers = [float(x) for x in re.findall(r"-?\d+\.\d+", level_path((60, 30), share))]
    assert max(map(abs, numbers)) <= 30
    assert numbers[1] == pytest.approx(15 - 30 * share, abs=0.01)


def test_groups_are_filled_by_their_resident_share() -> None:
    graph, _ = tc.networks.network_from_text("unet")
    trace = trace_of(graph)
    plan = overview(graph)
    looks = looks_at(trace, plan, trace.peak_step)
    partial = {look for look in looks if look.level not in (None, 0, 8)}
    assert len(partial) >= 3
    root = ElementTree.fromstring(svg_still(scene_of(trace), trace.peak_step))
    shapes = [shape for shape in root.iter(f"{SVG}g") if (shape.get("id") or "").startswith("p")]
    filled = [shape for shape in shapes if shape.find(f"{SVG}path") is not None]
    assert len(filled) == len(partial)
