"""Layout, pixels and files: no overlaps, no leftovers, clear errors."""

import sys
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import imageio.v3 as iio
import numpy as np
import pytest

import tinyckpt as tc
import viz
from tests.tinyckpt.documents.test_serialize import HOSTILE, hostile_graph
from tests.viz.layout.scoped_graphs import scoped_graph
from tinyckpt.base.display import printable
from viz.layout.drawn_nodes import SYMBOLS
from viz.layout.node_placement import WIDTH, layout
from viz.memory_curve import BANDS, by_column, memory_bands
from viz.raster.picture import Picture
from viz.scene import live_of, scene_of
from viz.time_axis import Span
from viz.vector.svg import svg_graph, svg_still

NETWORKS = (
    "chain:1", "chain:2", "chain:16", "chain:20", "chain:33", "chain:100", "mlp:6x8",
    "residual:4x8", "residual:12x8", "branching:3x8",
)  # fmt: skip


def graph_named(name: str) -> tc.Graph:
    return tc.networks.network_from_text(name)[0]


def trace_of(name: str, policy: str = "sqrt_n") -> tc.Trace:
    return tc.replay(tc.plan(graph_named(name), policy))


@pytest.mark.parametrize("name", NETWORKS)
def test_nodes_do_not_overlap_and_stay_inside(name: str) -> None:
    plan = layout(graph_named(name))
    radius = plan.diameter / 2
    for x, y in plan.centres:
        assert radius < x < WIDTH - radius
        assert radius < y < plan.height - radius
    for (x0, y0), (x1, y1) in combinations(plan.centres, 2):
        assert (x0 - x1) ** 2 + (y0 - y1) ** 2 >= plan.diameter**2
    for cell in plan.cells:
        if cell.mirror is not None:
            assert plan.centres[cell.id][0] == plan.centres[cell.mirror][0]
            assert plan.centres[cell.id][1] > plan.centres[cell.mirror][1]


def test_long_chain_folds_into_bands() -> None:
    plan = layout(tc.networks.chain(100))
    rows = {y for cell, (_, y) in zip(plan.cells, plan.centres, strict=True) if not cell.backward}
    assert len(rows) == 4
    assert not layout(tc.networks.chain(256)).labelled
    assert layout(tc.networks.chain(20)).labelled


def test_dot_matches_golden_text() -> None:
    assert viz.dot(tc.networks.chain(2)).source == (
        'digraph "chain:2" {\n'
        "\tgraph [nodesep=0.22 rankdir=LR ranksep=0.28]\n"
        "\tnode [fixedsize=true fontsize=10 shape=circle width=0.42]\n"
        "\t0 [label=f1 style=solid tooltip=f1]\n"
        "\t1 [label=f2 style=solid tooltip=f2]\n"
        "\t2 [label=l style=dashed tooltip=l]\n"
        "\t3 [label=b2 style=dashed tooltip=b2]\n"
        "\t4 [label=b1 style=dashed tooltip=b1]\n"
        "\t0 -> 1\n"
        "\t1 -> 2 [constraint=false style=dotted]\n"
        "\t1 -> 3 [constraint=false style=dotted]\n"
        "\t2 -> 3\n"
        "\t0 -> 4 [constraint=false style=dotted]\n"
        "\t3 -> 4\n"
        "}\n"
    )


def test_hostile_names_are_literal_text(tmp_path: Path) -> None:
    import pygraphviz

    graph = hostile_graph()
    parsed = pygraphviz.AGraph(string=viz.dot(graph).source)
    assert len(parsed.nodes()) == len(layout(graph).cells)
    renamed = tc.Graph(
        HOSTILE[2],
        graph.data,
        tuple(
            tc.Operator(o.id, HOSTILE[o.id % 5], "kind", o.inputs, o.outputs, o.phase)
            for o in graph.operators
        ),
        graph.arguments,
        graph.results,
        graph.gradients,
    )
    parsed = pygraphviz.AGraph(string=viz.dot(renamed).source)
    tooltips = {node.attr["tooltip"] for node in parsed.nodes()}
    assert HOSTILE[4] in tooltips
    assert r"line\\nbreak" in tooltips  # Graphviz shows its two strokes as one
    trace = tc.replay(tc.plan(renamed))
    viz.gif(trace, tmp_path / "hostile.gif", title="".join(HOSTILE))
    viz.timeline(trace, tmp_path / "hostile.svg")
    assert b"<script>" not in (tmp_path / "hostile.svg").read_bytes()


@pytest.mark.parametrize("letter", ["v", "\\", '"', "𝛁"])
def test_name_longer_than_graphviz_limit_is_truncated(letter: str, tmp_path: Path) -> None:
    import pygraphviz

    def loss(x: tc.Var) -> tc.Var:
        with tc.scope("layer " + 20_000 * letter):
            return tc.mean(tc.name(tc.tanh(x), "hidden " + 20_000 * letter) * x)

    graph = tc.differentiate(tc.build(loss, tc.Spec((4, 4))))
    parsed = pygraphviz.AGraph(string=viz.dot(graph).source)
    assert len(parsed.nodes()) == len(layout(graph).cells)
    assert viz.gif(tc.replay(tc.plan(graph)), tmp_path / "long.gif").stat().st_size


def pictures_of(count: int, odd: str, folder: Path) -> dict[str, Any]:
    """Return all pictures of a graph whose names contain a text, as written."""
    graph = scoped_graph(count, seed=5)
    operators = [
        replace(o, name=f"{odd}{o.id}", kind=f"{odd}k", scope=f"s{odd}{o.id // 40}/b{odd}")
        for o in graph.operators
    ]
    graph = replace(graph, name=f"chain:{odd}", operators=tuple(operators))
    trace = tc.replay(replace(tc.plan(graph, "store_all"), policy=f"p{odd}"))
    return {
        "gif": viz.gif(trace, folder / "odd.gif", every=50).read_bytes(),
        "player": viz.player(trace, folder / "odd.html").read_text(encoding="utf-8"),
        "still": svg_still(scene_of(trace)),
        "graph": svg_graph(graph),
        "timeline": viz.timeline(trace, folder / "odd.png").read_bytes(),
    }


@pytest.mark.nightly
@pytest.mark.parametrize("count", [5, 200])  # one node an operator, and groups under a heading
def test_unprintable_names_can_be_drawn(count: int, tmp_path: Path) -> None:
    odd = "\n\x01\ud800"
    found, expected = (pictures_of(count, text, tmp_path) for text in (odd, printable(odd)))
    assert [name for name in found if found[name] != expected[name]] == []
    assert found != pictures_of(count, "abc", tmp_path)
    for name in ("still", "graph"):
        texts = ElementTree.fromstring(found[name].encode()).itertext()
        assert all(text.isprintable() for text in texts if "@font-face" not in text)


def test_titles_are_on_one_line(tmp_path: Path) -> None:
    trace = trace_of("chain:4")
    for draw, name in ((viz.gif, "t.gif"), (viz.save_still, "t.svg"), (viz.save_still, "t.png")):
        odd, even, other = (
            draw(trace, tmp_path / name, title=f"a{text}b").read_bytes()
            for text in ("\n\x01\ud800", "   ", " ")
        )
        assert odd == even != other


def still(trace: tc.Trace, step: int) -> Any:
    picture = Picture(scene_of([trace], span=Span(step, step)))
    next(picture.play())
    return picture.rgb()


def test_still_equals_the_frame_of_its_step(tmp_path: Path) -> None:
    trace = trace_of("chain:4")
    path = viz.save_still(trace, tmp_path / "s.png", 7)  # a free between the frames of 6 and 8
    expected = still(trace, 6)
    assert np.array_equal(iio.imread(path), expected)
    assert not np.array_equal(still(trace, 8), expected)
    odd: Any
    for odd, name in product((19, "a", 2.0), ("s.png", "s.svg")):
        with pytest.raises(tc.OptionError, match=f"step {odd!r} is out of range: expected 0 to 18"):
            viz.save_still(trace, tmp_path / name, odd)


def test_empty_input_is_refused(tmp_path: Path) -> None:
    empty = tc.Trace(tc.Schedule(tc.networks.chain(1), (), "none"), *[()] * 7)
    for traces in ([], [empty]):
        with pytest.raises(tc.TinyckptError, match="nothing to draw"):
            viz.gif(traces, tmp_path / "out.gif")
        with pytest.raises(tc.TinyckptError, match="nothing to draw"):
            viz.timeline(traces, tmp_path / "out.png")
    viz.gif((trace_of(name) for name in ("chain:2", "chain:3")), tmp_path / "out.gif")


def test_unwritable_paths_raise_format_error(tmp_path: Path) -> None:
    trace = trace_of("chain:2")
    for write, name in ((viz.gif, "a.gif"), (viz.save_still, "a.png"), (viz.timeline, "a.svg")):
        with pytest.raises(tc.FormatError, match=r"cannot write .*No such file or directory"):
            write(trace, tmp_path / "missing" / name)


def test_missing_pygraphviz_affects_only_non_chains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    assert layout(tc.networks.chain(40)).cells
    with pytest.raises(tc.BackendError, match=r"needs pygraphviz.*pip install 'tinyckpt\[viz\]'"):
        layout(graph_named("residual:2x4"))


def test_strip_never_exceeds_the_peak() -> None:
    for name, policy in (("chain:64", "recompute_all"), ("residual:9x8", "recompute_all")):
        trace = trace_of(name, policy)
        in_nodes = name.startswith("chain")
        live = live_of(trace, in_nodes)
        bands = memory_bands(trace, in_nodes)
        assert bands.sum(axis=0).tolist() == list(live)
        for width in (10, 748, len(live), 2 * len(live)):
            columns = by_column(bands, len(live), width)
            assert columns.shape == (len(BANDS), width)
            assert columns.sum(axis=0).max() == max(live)


def test_graph_of_views_has_no_memory_and_can_be_drawn(tmp_path: Path) -> None:
    graph = tc.differentiate(tc.build(tc.sum, tc.Spec((1, 1))), value=False)
    trace = tc.replay(tc.plan(graph))
    assert trace.peak_bytes == 0
    viz.timeline(trace, tmp_path / "t.svg")
    viz.gif(trace, tmp_path / "t.gif")


def test_loss_is_not_in_the_gradient_band() -> None:
    x = tc.Spec(4)
    trace = tc.replay(tc.plan(tc.build(lambda x: {"a": tc.tanh(x), "b": tc.exp(x)}, x)))
    assert memory_bands(trace, False).tolist() == [[32, 64], [0, 0], [0, 0], [0, 0], [0, 0]]


def test_every_primitive_has_a_label_of_at_most_four_letters() -> None:
    for kind in tc.PRIMITIVES:
        base = kind.removesuffix("_vjp")
        assert base in SYMBOLS or len(base) <= 4, (
            f"{base}: add a label of at most four letters to SYMBOLS of viz/layout/drawn_nodes.py"
        )
    assert all(len(symbol) <= 4 for symbol in SYMBOLS.values())


def test_wide_graphs_fit_a_screen() -> None:
    def wide(x: Any) -> Any:
        return tc.half_squared_norm(sum(tc.tanh(x * float(i)) for i in range(80)))

    assert layout(tc.differentiate(tc.build(wide, tc.Spec(3)))).height < 800


def test_zero_gradients_have_no_arrows() -> None:
    def one_of_four(p: Any, x: Any) -> Any:
        return tc.sum(tc.tanh(x) * p[0])

    graph = tc.differentiate(tc.build(one_of_four, [tc.Spec(3)] * 4, tc.Spec(3)))
    plan = layout(graph)
    alone = [plan.centres[c.id] for c in plan.cells if c.backward and c.mirror is None]
    assert len(alone) == 3
    for x, _ in alone:
        assert all(abs(arrow[-1][0] - x) > plan.diameter for arrow in plan.arrows)
