"""Empty lab in a real browser: dropped documents play, bad ones give errors."""

import base64
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
import viz
from tests.snapshots import event, listed, pickled, snapshot, training
from tests.viz.conftest import assert_accessible
from tests.viz.lab.conftest import OpenLab
from tests.viz.lab.lab_driver import LAYER, SHOWN, STATE, steps_of
from tests.viz.player.player_driver import until

pytestmark = pytest.mark.browser
RESNET = Path(tc.__file__).parent / "data" / "graphs" / "resnet50.json"
# Drop files somewhere on the page, as a browser does with those of a desktop.
DROP = """files => {
    const transfer = new DataTransfer();
    for (const [name, content] of files) {
        const bytes = Uint8Array.from(atob(content), letter => letter.charCodeAt(0));
        transfer.items.add(new File([bytes], name));
    }
    document.documentElement.removeAttribute("data-ready");
    const fire = kind => document.body.dispatchEvent(new DragEvent(kind,
        { dataTransfer: transfer, bubbles: true, cancelable: true }));
    fire("dragenter");
    const dragging = document.documentElement.classList.contains("dragging");
    fire("drop");
    return dragging && !document.documentElement.classList.contains("dragging"); }"""


def choose(page: Any, *paths: Path) -> None:
    """Choose files by the button, and wait until they play."""
    page.evaluate("() => document.documentElement.removeAttribute('data-ready')")
    page.set_input_files("#desk-files", [str(path) for path in paths])
    page.wait_for_selector("html[data-ready]")
    page.evaluate("() => player.setMore?.(true)")


def drop(page: Any, *paths: Path) -> None:
    files = [[path.name, base64.b64encode(path.read_bytes()).decode()] for path in paths]
    assert page.evaluate(DROP, files)


def graph_file(folder: Path, network: str) -> Path:
    path = folder / f"{network.replace(':', '-')}.json"
    tc.save_graph(tc.networks.network_from_text(network)[0], path)
    return path


def test_dropped_graph_starts_with_store_all(empty: OpenLab, tmp_path: Path) -> None:
    page = empty()
    assert page.is_visible("#desk-open")
    assert not page.is_visible("#panels")
    graph = tc.networks.chain(16)
    drop(page, graph_file(tmp_path, "chain:16"))
    page.wait_for_selector("html[data-ready]")
    assert not page.is_visible("#desk")
    assert page.title() == "chain:16: chain-16.json"
    assert page.inner_text("h1").startswith("A chain of 16 layers needs 9.00 KiB to train. ")
    assert page.evaluate(SHOWN) == steps_of(tc.plan(graph, "store_all"))
    assert "Optimal" in page.inner_text("#lab-known")
    page.click(LAYER["ledger"].format(5))
    keep = page.evaluate("() => player.choice.keep.map(value => player.offers.nameOf(value))")
    assert "f6" not in keep
    assert page.evaluate(SHOWN) == steps_of(tc.plan(graph, "retain", keep=keep))
    page.click("#lab-undo")
    assert page.evaluate(STATE) == "policy=store_all"
    page.click("#lab-sharing")
    page.click("#lab-command")
    assert page.input_value("#lab-text").startswith("tinyckpt play chain-16.json --policy store_al")
    page.click("#lab-more")
    page.click("#front")
    page.click(LAYER["graph"].format(3))
    assert page.evaluate(STATE).startswith("keep=")


def test_offered_points_are_legal_with_stated_peak_and_cost(empty: OpenLab, tmp_path: Path) -> None:
    """Each point is a legal schedule with the stated peak and cost."""
    page = empty()
    path = graph_file(tmp_path, "residual:4x8")
    choose(page, path)
    graph = tc.load_graph(path)
    points = page.evaluate("() => player.offers.points.map(p => [p.peak, p.cost, [...p.order]])")
    assert len(points) >= 3
    for peak, cost, order in points:
        trace = tc.replay(tc.from_order(graph, order))
        assert (peak, cost) == (trace.peak_bytes, trace.evaluations)
    assert [cost for _, cost, _ in points] == sorted((c for _, c, _ in points), reverse=True)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["trace", "schedule"])
def test_dropped_trace_and_schedule_play(tmp_path: Path, empty: OpenLab, kind: str) -> None:
    graph = tc.networks.chain(9)
    page = empty()
    for policy in ("revolve", "offload", "sqrt_n"):
        options: Any = {"revolve": {"slots": 3}, "offload": {"bandwidth": 512}}.get(policy, {})
        schedule = tc.plan(graph, policy, **options)
        if kind == "trace":
            tc.save_trace(tc.replay(schedule), tmp_path / "t.json")
        else:
            tc.save_schedule(schedule, tmp_path / "t.json")
        choose(page, tmp_path / "t.json")  # each time in place of the one before
        assert page.evaluate(SHOWN) == steps_of(schedule)
        trace = tc.replay(schedule)
        assert page.evaluate("() => Array.from(player.models[0].live)") == list(trace.live_bytes)
        assert page.evaluate("() => player.models.length") == 1
        shown = page.evaluate("() => player.tick")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("() => player.tick") == shown + 1  # one player listens, and not two
        assert page.is_visible("[data-counter=host]") == (policy == "offload")
        assert page.locator("#legend li:has-text('on the host')").count() == 1


@pytest.mark.nightly
def test_dropped_snapshot_is_drawn_over_the_plan(empty: OpenLab, tmp_path: Path) -> None:
    page = empty()
    run = pickled(tmp_path, training(8192, base=700))
    drop(page, run)
    until(page, "() => document.getElementById('desk-said').textContent.length > 0")
    assert page.inner_text("#desk-said") == (
        "run.pickle: device 0 of a PyTorch snapshot, at most 8.7 KiB at once.\n"
        "Now the graph or the trace that it is to be drawn over."
    )
    chain = graph_file(tmp_path, "chain:4")
    choose(page, chain)
    assert page.evaluate("() => player.models[0].measured === undefined")
    choose(page, run)  # now there is a plan
    held = "() => [...player.models[0].measured.held]"
    assert page.evaluate(held)[0] == 700
    assert page.inner_text("#measured p").startswith("Measured: run.pickle, device 0 of a PyTorch")
    page.keyboard.press("End")
    page.wait_for_timeout(400)
    address = page.evaluate("() => location.hash")
    choose(page, listed(tmp_path, [(0, 1), (1, 2)], "run.csv"))
    assert page.evaluate(held) == [1, 2]
    assert page.evaluate("() => location.hash") == address
    choose(page, chain, run)  # both at once
    assert page.evaluate(held)[0] == 700
    choose(page, chain)  # another plan is not what was measured
    assert page.evaluate("() => player.models[0].measured === undefined")


def test_snapshot_device_is_chosen_on_the_page(empty: OpenLab, tmp_path: Path) -> None:
    page = empty()
    traces = [[event("alloc", 512, size, 0), event("alloc", 1024, 0, 1)] for size in (10, 20)]
    choose(page, graph_file(tmp_path, "chain:4"), pickled(tmp_path, snapshot(*traces)))
    assert page.evaluate("() => Math.max(...player.models[0].measured.held)") == 10
    page.evaluate("() => document.documentElement.removeAttribute('data-ready')")
    page.select_option("#measured select", "1")
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate("() => Math.max(...player.models[0].measured.held)") == 20
    assert "device 1" in page.inner_text("#measured p")


def test_bad_file_shows_an_error_and_keeps_the_page(empty: OpenLab, tmp_path: Path) -> None:
    page = empty()
    wrong = tmp_path / "<b>wrong.json"
    wrong.write_text('{"schema": "tinyckpt.graph", "version": 2, "data": 3}')
    chain = graph_file(tmp_path, "chain:4")
    said = "<b>wrong.json: graph.data: got int, which is not legal here"
    drop(page, wrong)
    until(page, "() => document.getElementById('desk-said').textContent", said)
    assert page.get_attribute("#desk-said", "role") == "alert"
    choose(page, chain)
    page.keyboard.press("End")
    for files in ([wrong], [chain, wrong], [wrong, chain]):
        drop(page, *files)
        until(page, "() => document.getElementById('desk-said').textContent", said)
        assert page.is_visible("#desk-close")
        page.keyboard.press("Escape")
        assert not page.is_visible("#desk")
        assert page.evaluate("() => player.tick === player.ticks - 1")
    cut = tmp_path / "cut.json"
    cut.write_bytes(chain.read_bytes()[:700])
    drop(page, cut)
    until(page, "() => document.getElementById('desk-said').textContent.startsWith("
          "'cut.json is not a complete JSON document (')")  # fmt: skip
    cut.write_bytes(chain.read_bytes().replace(b"chain:4", b"ch\xffin:4"))
    drop(page, cut)
    said = "cut.json is not a complete JSON document (it is no UTF-8); was the file cut short?"
    until(page, "() => document.getElementById('desk-said').textContent", said)
    for text in ("", " \n", "null", "[]\n", "{ }"):
        cut.write_text(text)
        drop(page, cut)
        legal = "a graph, a trace, a schedule, a snapshot, or a list of pairs of seconds and bytes"
        said = f"cut.json: nothing is in it; expected {legal}"
        until(page, "() => document.getElementById('desk-said').textContent", said)
        page.evaluate("() => { document.getElementById('desk-said').textContent = '' }")
    page.click("#desk-close")
    assert page.evaluate("() => document.activeElement.id") == "open"


def test_keyboard_opens_a_file(empty: OpenLab, tmp_path: Path) -> None:
    page = empty()
    page.evaluate(
        """() => document.getElementById("desk-files").addEventListener("click", event => {
            event.preventDefault();
            window.asked = true; })"""
    )
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.id") == "desk-open"
    page.keyboard.press("Enter")
    until(page, "() => window.asked")
    choose(page, graph_file(tmp_path, "chain:4"))
    page.evaluate("() => player.setMore(false)")
    reached = []
    for _ in range(8):  # "more" is on the way
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => document.activeElement.id"))
        if reached[-1] == "lab-more":
            page.keyboard.press("Enter")
        if reached[-1] == "open":
            break
    assert reached[0] == "play"
    assert reached[-1] == "open"
    page.keyboard.press("Enter")
    assert page.is_visible("#desk")
    assert page.evaluate("() => document.activeElement.id") == "desk-open"
    page.keyboard.press("Escape")
    assert not page.is_visible("#desk")
    assert page.evaluate("() => document.activeElement.id") == "open"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("network", ["resnet50", "transformer:2x64", "unet", "mlp:200x8"])
def test_large_graphs_are_grouped_and_groups_expand(
    tmp_path: Path, empty: OpenLab, network: str
) -> None:
    page = empty()
    path = graph_file(tmp_path, network)
    choose(page, path)
    graph = tc.load_graph(path)
    views = page.evaluate(
        "() => player.models[0].graph.views.map(v => [[...v.operators.items], v.labels.length])"
    )
    assert sorted(views[0][0]) == list(range(len(graph.operators)))  # every operator, each once
    assert len(views) > 1
    assert views[0][1] <= 2 * 4 * 48
    row = page.locator(".rail-row", has_text="\u203a").first
    page.keyboard.press("k")  # a click opens, and does not keep
    row.click()
    assert page.evaluate("() => player.panels[0].index") > 0
    assert page.is_visible(".path")
    page.click("#front")
    assert page.locator(".graph .node").count() > 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_empty_lab_is_accessible(tmp_path: Path, scheme: str, empty: OpenLab, width: int) -> None:
    def audit() -> None:
        assert_accessible(page, minor=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width

    page = empty(color_scheme=scheme, viewport={"width": width, "height": 800})
    assert page.is_hidden("#tools-open")  # there are no tools yet
    audit()
    drop(page, listed(tmp_path, [(0, 1), (1, 2)]))
    until(page, "() => document.getElementById('desk-said').textContent.length > 0")
    audit()
    choose(page, graph_file(tmp_path, "chain:9"), listed(tmp_path, [(0, 10), (1, 7000)]))
    audit()
    if width < 560:
        page.click("#tools-open")
    page.click("#open")
    audit()


def test_empty_lab_without_scripts_explains_itself(empty: OpenLab) -> None:
    page = empty(java_script_enabled=False)
    assert "Scripts are off" in page.inner_text("body")
    assert not page.is_visible("#desk")


def test_empty_lab_refuses_bad_options(tmp_path: Path) -> None:
    assert "iframe" in viz.empty_lab()._repr_mimebundle_()["text/html"]
    with pytest.raises(tc.OptionError, match=r"must end in \.html"):
        viz.empty_lab(tmp_path / "lab.gif")
    with pytest.raises(tc.OptionError, match="unknown theme"):
        viz.empty_lab(theme="blue")
    assert list(tmp_path.iterdir()) == []
