"""Repeated use of the empty lab: old state is discarded, failures change nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tests.viz.lab.conftest import OpenLab
from tests.viz.lab.lab_driver import STATE
from tests.viz.lab.test_empty_lab import choose, graph_file
from tests.viz.player.player_driver import until

pytestmark = pytest.mark.browser
# Drag something that is no file over the page and let it go; return whether the page took it.
DROP_TEXT = """() => {
    const transfer = new DataTransfer();
    transfer.setData("text/plain", "f6");
    const fire = kind => document.body.dispatchEvent(new DragEvent(kind,
        { dataTransfer: transfer, bubbles: true, cancelable: true }));
    const taken = ["dragenter", "dragover", "drop"].map(kind => !fire(kind));
    return taken.includes(true) || document.documentElement.classList.contains("dragging"); }"""


def test_dropped_non_files_are_ignored(empty: OpenLab, tmp_path: Path) -> None:
    page = empty()
    choose(page, graph_file(tmp_path, "chain:9"))
    page.evaluate("() => { player.marked = true; }")
    assert not page.evaluate(DROP_TEXT)
    page.evaluate(
        "() => { document.getElementById('desk-files').dispatchEvent(new Event('change')); }"
    )
    page.wait_for_timeout(100)
    assert page.evaluate("() => player.marked")


@pytest.mark.nightly
def test_replaced_player_handles_no_more_events(empty: OpenLab, tmp_path: Path) -> None:
    page = empty(color_scheme="dark")
    for network in ("chain:9", "chain:4", "residual:2x4"):
        choose(page, graph_file(tmp_path, network))
    page.evaluate("() => { document.documentElement.dataset.theme = 'dark'; }")
    for media, theme in (("print", "light"), ("screen", "dark")) * 2:
        page.emulate_media(media=media)
        until(page, "document.documentElement.dataset.theme", theme)
        page.wait_for_timeout(50)  # for another that listens to come to it
        assert page.evaluate("() => document.documentElement.dataset.theme") == theme


def test_names_in_a_file_are_escaped_in_commands_and_links(empty: OpenLab, tmp_path: Path) -> None:
    page = empty()
    path = tmp_path / "s.json"
    tc.save_schedule(tc.plan(tc.networks.chain(5), "sqrt_n"), path)
    document: dict[str, Any] = json.loads(path.read_text())
    document["policy"] = "x; rm 'y' #\n&keep=none"
    path.write_text(json.dumps(document))
    choose(page, path)
    page.click("#lab-command")
    command = page.input_value("#lab-text")
    assert "--policy 'x; rm '\\''y'\\'' #\n&keep=none' -o x_rm_y_keep_none.html" in command
    key = page.evaluate(STATE)
    assert key.startswith("policy=x%3B%20rm")
    page.click("#lab-reset")
    found = page.evaluate(
        "key => player.offers.named.find(({ name }) =>"
        " name === new URLSearchParams(key).get('policy')).title",
        key,
    )
    assert found == page.evaluate("() => player.offers.named[0].title")


def test_unpaired_backward_operators_are_grouped_and_failures_change_nothing(
    empty: OpenLab, tmp_path: Path
) -> None:
    graph = graph_file(tmp_path, "chain:400")
    document = json.loads(graph.read_text())
    for operator in document["operators"]:
        operator.pop("adjoint_of", None)
    graph.write_text(json.dumps(document))
    page = empty()
    choose(page, graph)
    assert (
        page.evaluate("() => Math.max(...player.data.graphs[0].views.map(v => v.titles.length))")
        < 200
    )
    page.evaluate("() => { player.marked = true; }")
    page.evaluate("() => player.life.abort()")  # what is there prepares nothing more
    # Places are made of it, behind everything that is read.
    page.evaluate("() => { Uint8Array.from = () => { throw new Error('no room'); }; }")
    page.set_input_files("#desk-files", str(graph_file(tmp_path, "chain:4")))
    until(page, "document.getElementById('desk-said').textContent !== ''")
    assert page.evaluate("() => player.marked")
    assert "no room" in page.inner_text("#desk-said")
