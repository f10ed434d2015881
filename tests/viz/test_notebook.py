"""Notebook display: MIME bundles, and an executed notebook."""

import html
import pickle
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
import viz
from tests.conftest import require
from tests.viz.player.player_driver import code_of
from viz.player import Page


def test_graph_displays_as_svg_and_trace_as_player() -> None:
    graph = tc.networks.chain(4)
    schedule = tc.plan(graph, "sqrt_n")
    trace = tc.replay(schedule)
    picture = graph._repr_mimebundle_()
    assert picture["text/plain"] == "<Graph chain:4, 9 operators>"
    assert picture["image/svg+xml"].startswith("<svg ")
    assert picture["image/svg+xml"].count('class="node"') == 9
    player = trace._repr_mimebundle_()
    assert player["text/plain"] == repr(trace)
    assert player["text/html"].startswith("<iframe srcdoc=")
    assert 'sandbox="allow-scripts allow-downloads"' in player["text/html"]
    assert schedule._repr_mimebundle_()["text/html"] == player["text/html"]


def test_timeline_displays_as_player_with_times() -> None:
    timeline = tc.timed(tc.plan(tc.networks.chain(4), "offload"), tc.Link(512))
    player = timeline._repr_mimebundle_()
    assert player["text/plain"] == repr(timeline)
    assert player["text/html"].startswith("<iframe srcdoc=")
    assert "class TimeLane" in code_of(html.unescape(player["text/html"]))


def test_player_without_a_path_displays_itself() -> None:
    traces = [tc.replay(tc.plan(tc.networks.chain(4), p)) for p in ("store_all", "sqrt_n")]
    page = viz.player(traces, title="two policies")
    assert isinstance(page, Page)
    assert repr(page) == "<Page that plays 2 traces>"
    frame = page._repr_mimebundle_()["text/html"]
    assert frame.count("<") == 2  # the document is an attribute: nothing of it is markup here
    assert "two policies" in frame


def test_svgs_of_two_graphs_share_no_ids() -> None:
    pictures = [tc.networks.chain(n)._repr_mimebundle_()["image/svg+xml"] for n in (3, 4)]
    first, second = (set(re.findall(r'id="([^"]+)"', picture)) for picture in pictures)
    assert first
    assert not first & second


def test_svgs_of_similar_graphs_share_only_equal_shapes() -> None:
    def loss(x: Any, wide: bool) -> Any:
        values = [tc.tanh(x)]
        for _ in range(23):
            values.append(tc.tanh(values[0 if wide else -1]))
        return values

    shapes = []
    for wide in (False, True):
        graph = tc.build(partial(loss, wide=wide), tc.Spec(3))
        picture = replace(graph, name="loss")._repr_mimebundle_()["image/svg+xml"]
        shapes.append(dict(re.findall(r'<g id="([^"]+)">(.*?)</g>', picture)))
    assert all(shapes[0][name] == shapes[1][name] for name in shapes[0].keys() & shapes[1].keys())
    assert shapes[0] != shapes[1]


def test_undisplayable_objects_fall_back_to_text(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = tc.networks.chain(3)
    schedule = tc.plan(graph)
    broken = tc.Schedule(graph, schedule.steps[1:], "by hand")
    bundle = broken._repr_mimebundle_()
    assert list(bundle) == ["text/plain"]
    assert "illegal: step 0" in bundle["text/plain"]
    empty = tc.build(lambda x: x, tc.Spec(()))
    assert list(empty._repr_mimebundle_()) == ["text/plain"]
    monkeypatch.setattr("viz.notebook.MOST_STEPS", 3)
    assert "are not shown unasked" in tc.replay(schedule)._repr_mimebundle_()["text/html"]


def test_explanations_and_frontiers_display_as_tables() -> None:
    graph = tc.differentiate(
        tc.build(lambda x: tc.sum(tc.name(tc.tanh(tc.sin(x)), "<b>")), tc.Spec(3), graph_name="<i>")
    )
    explained = tc.explain(tc.plan(graph, "recompute_all"))
    bundle = explained._repr_mimebundle_()
    assert bundle["text/plain"] == str(explained)
    assert bundle["text/html"].count("<table>") == 3
    assert "<i>" not in bundle["text/html"]
    for entry in explained.residuals:
        assert f">{html.escape(entry.name)}</td>" in bundle["text/html"]
    found = tc.frontier(graph)
    bundle = found._repr_mimebundle_()
    assert bundle["text/plain"] == str(found)
    assert bundle["text/html"].count("<tr>") == 1 + len(found.points)
    assert repr(found) == f"<Frontier of <i>, {len(found.points)} points>"


@pytest.mark.long
def test_pictures_without_a_path_display_themselves() -> None:
    trace = tc.replay(tc.plan(tc.networks.chain(3)))
    for path, kind in (
        (viz.gif(trace), "gif"),
        (viz.gif(trace, format="apng"), "apng"),
        (viz.timeline(trace), "svg+xml"),
    ):
        shown = path._repr_mimebundle_()["text/html"]  # type: ignore[attr-defined]
        assert shown.startswith(f'<img src="data:image/{kind};base64,')
        assert path.exists()
    assert viz.gif(trace) != viz.gif(trace)


def test_ledgers_and_programs_have_readable_displays() -> None:
    def loss(x: Any) -> Any:
        return tc.sum(tc.tanh(x) * 2.0)

    graph = tc.differentiate(tc.build(loss, tc.Spec(3), graph_name="<g>"))
    found = tc.ledger(tc.plan(graph))
    bundle = found._repr_mimebundle_()
    assert bundle["text/plain"] == str(found)
    assert "&lt;g&gt;, step" in bundle["text/html"]
    assert bundle["text/html"].count("<tr>") == str(found).count("\n")
    program = tc.compile(tc.plan(graph))
    lines = program.source.count("\n")
    assert repr(program) == f"<Compiled store_all of <g>, {lines} lines>"
    bundle = program._repr_mimebundle_()
    assert bundle["text/plain"] == repr(program)
    (source,) = re.findall(r"<pre>(.*)</pre>", bundle["text/html"], re.DOTALL)
    assert html.unescape(source) == program.source


@pytest.mark.long
def test_drawn_path_displays_itself_and_is_a_path(tmp_path: Path) -> None:
    trace = tc.replay(tc.plan(tc.networks.chain(3)))
    drawn = {
        ".gif": viz.gif(trace, tmp_path / "a.gif"),
        ".png": viz.save_still(trace, tmp_path / "a.png"),
        ".webp": viz.gif(trace, tmp_path / "a.webp"),
        ".svg": viz.timeline(trace, tmp_path / "a.svg"),
        ".html": viz.player(trace, tmp_path / "a.html"),
        ".pdf": viz.ledger(trace, tmp_path / "a.pdf"),
    }
    for suffix, path in drawn.items():
        assert isinstance(path, Path)
        assert path == tmp_path / f"a{suffix}"
        assert str(path) == str(tmp_path / f"a{suffix}")
        assert path.read_bytes()
        bundle = path._repr_mimebundle_()
        assert bundle["text/plain"] == str(path)
        begin = {".html": "<a href=", ".pdf": "<a href="}.get(suffix, '<img src="data:image/')
        assert bundle["text/html"].startswith(begin)
    drawn[".gif"].unlink()
    assert drawn[".gif"]._repr_mimebundle_()["text/html"].startswith("<a href=")
    assert pickle.loads(pickle.dumps(drawn[".png"])) == drawn[".png"]


def test_display_without_viz_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(__import__("sys").modules, "tinyckpt.viz")
    assert list(tc.networks.chain(3)._repr_mimebundle_()) == ["text/plain"]


@pytest.mark.nightly
def test_executed_notebook_shows_player_and_picture(tmp_path: Path) -> None:
    for module in ("nbclient", "nbformat", "ipykernel"):
        require(module)
    import nbformat
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell, new_notebook

    cells = [
        "import tinyckpt as tc, viz\ngraph = tc.networks.chain(4)\ngraph",
        "schedule = tc.plan(graph, 'sqrt_n')\nschedule",
        "tc.replay(schedule)",
        "viz.player([tc.replay(tc.plan(graph, p)) for p in ('store_all', 'sqrt_n')])",
        "viz.gif(tc.replay(schedule), 'a.gif')",
        "tc.explain(schedule)",
        "tc.frontier(graph)",
    ]
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path}}).execute()
    nbformat.validate(notebook)
    shown = [cell.outputs[0].data for cell in notebook.cells]
    assert shown[0]["image/svg+xml"].startswith("<svg ")
    assert all(data["text/html"].startswith("<iframe srcdoc=") for data in shown[1:4])
    assert shown[4]["text/html"].startswith('<img src="data:image/gif;base64,R0lGOD')
    assert all("<table>" in data["text/html"] for data in shown[5:])
    assert shown[1]["text/html"] == shown[2]["text/html"]
    assert "&quot;traces&quot;" in shown[3]["text/html"]
