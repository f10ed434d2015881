"""Ledger view of the player: blocks add up, one axis for all, full keyboard access."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import tinyckpt as tc
import viz
from tests.viz.conftest import Open
from tests.viz.layout.test_levels import views_and_moves
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import TICK, go_to, seek, traces_of, until, written
from tests.viz.player.test_player_page import NAMES, named
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import smallest_budget
from viz.scene import counts_nodes, live_of

POLICIES = ("sqrt_n", "recompute_all")

# Without a browser -------------------------------------------------------------------------------


def test_unknown_view_is_refused() -> None:
    with pytest.raises(tc.OptionError, match="unknown view 'list'; known are ledger, graph"):
        viz.player(traces_of("chain:4", ("sqrt_n",)), view="list")


# Amounts -----------------------------------------------------------------------------------------

# What all blocks take at every step, or -1 where bands are not in order.
SUMS = """() => player.panels.map(({strip, model}) => Array.from(model.verbs, (_, step) => {
    const blocks = strip.blocks(step);
    const ordered = blocks.every((block, i) => !i || blocks[i - 1].band <= block.band);
    return ordered ? blocks.reduce((sum, block) => sum + block.amount, 0) : -1; }))"""
LINES = "() => player.panels.map(({strip}) => strip.lines.map(line => [line.name, line.amount]))"


def limits_of(trace: tc.Trace) -> list[list[Any]]:
    """Return the reference lines of a trace's strip, in the page's unit, by Python."""
    graph, in_nodes = trace.graph, counts_nodes([trace])
    unit = max(node.nbytes for node in graph.data if not node.is_source) if in_nodes else 1
    least = smallest_budget(Problem(graph, tc.cost.evaluations(graph)))
    lines = [["peak", max(live_of(trace, in_nodes))], ["lower bound", least // unit]]
    if trace.schedule.policy != "store_all":
        stored = tc.replay(tc.plan(graph, "store_all"))
        lines.append(["store all", max(live_of(stored, in_nodes))])
    return lines


def check(traces: list[tc.Trace], page: Any) -> None:
    """Check that a page's blocks are the traces' memory at every step, and its lines Python's."""
    in_nodes = counts_nodes(traces)
    assert page.evaluate(SUMS) == [list(live_of(trace, in_nodes)) for trace in traces]
    assert page.evaluate(LINES) == [limits_of(trace) for trace in traces]


@pytest.mark.sampled(1)
@pytest.mark.browser
@pytest.mark.parametrize("network", ["chain:9", "residual:3x8", "unet", "by hand"])
def test_blocks_add_up_to_live_memory(network: str, player: Player) -> None:
    traces = [views_and_moves()] if network == "by hand" else traces_of(network, POLICIES)
    check(traces, player(traces))


# Choosing ----------------------------------------------------------------------------------------

ARROWS = """([x, y]) => { const {ledger} = player.panels[0]; const found = [];
    const arrow = ledger.arrow; ledger.arrow = (at, from, to) => found.push([from, to]);
    ledger.layers.canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: x, clientY: y}));
    ledger.arrow = arrow; return found; }"""


@pytest.mark.browser
def test_bars_blocks_and_lists_tell_what_is_live_and_why(player: Player) -> None:
    (trace,) = traces_of("chain:16", ("sqrt_n",))
    page = player([trace], "#step=40")
    plot = page.locator(".ledger .plot").bounding_box()
    x = plot["x"] + 20.5 / len(trace.steps) * plot["width"]
    y = plot["y"] + plot["height"] - (3 + 0.65) * plot["height"] / 17
    b4 = 33 - 4  # cells are f1 to f16, and from there the loss and b16 to b1
    assert page.evaluate(ARROWS, [x, y]) == [[2, 3], [3, 4], [3, 4], [3, b4]]
    x = plot["x"] + 70.5 / len(trace.steps) * plot["width"]
    active = trace.steps[40]
    reads = page.evaluate(ARROWS, [x, plot["y"] + 5])  # over no bar: what happens now is shown
    inputs = trace.graph.operators[active.operator].inputs if hasattr(active, "operator") else ()
    assert len(reads) == len([data for data in inputs if not trace.graph.data[data].is_source])
    # Bars and blocks are chosen by a click, and free places are times.
    go_to(page, "#step=40")
    plot = page.locator(".ledger .plot").bounding_box()
    count, rows = len(trace.steps), 17
    row_high = plot["height"] / rows

    def over(step: float, row: int) -> tuple[float, float]:
        x = plot["x"] + (step + 0.5) / count * plot["width"]
        return x, plot["y"] + plot["height"] - (row + 0.65) * row_high

    page.mouse.move(*over(20, 3))
    tip = page.inner_text("#tip")
    assert "f4" in tip
    assert "checkpoint, for" in tip
    page.mouse.click(*over(20, 3))
    assert page.inner_text("#node-title") == "f4"
    page.mouse.click(*over(70, 16))  # nothing is there: time goes there
    assert page.evaluate(TICK) == 70
    seek(page, 40)
    strip = page.locator(".strip .plot").bounding_box()
    x = strip["x"] + 40.5 / count * strip["width"]
    page.mouse.click(x, strip["y"] + strip["height"] - 5)
    assert page.inner_text("#node-title") == "f4"
    page.mouse.click(x, strip["y"] + 30)
    assert page.evaluate(TICK) == 40
    # What is live is listed, with what it is for.
    step = trace.steps.index(tc.Compute(10), 40)  # f11, once more
    go_to(page, f"#step={step}")
    said = page.locator("#filling-list .row").all_inner_texts()
    assert [" ".join(row.split()) for row in said] == [
        "f4 1 checkpoint, for b4 and to recompute f5", "f8 1 checkpoint, for b8",
        "f9 1 recomputed from f8, for b9", "f10 1 recomputed from f9, for b10",
        "f11 1 recomputed now, for b11", "b12 1 gradient, for b11",
    ]  # fmt: skip
    assert page.inner_text("#filling-total") == "6 of 9 values"
    page.focus("#filling-list .bar >> nth=0")
    for key in ("ArrowUp", "ArrowDown", "ArrowDown", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    assert page.inner_text("#node-title") == "f8"
    selected = page.locator(".bar[aria-pressed=true]").all_inner_texts()
    assert [row.split()[0] for row in selected] == ["f8"]
    assert page.get_attribute(".rail-row[aria-pressed=true]", "data-row") == "7"
    assert page.evaluate(TICK) == step
    page.keyboard.press("Escape")
    assert page.is_hidden("#node")
    assert not page.locator(".bar[aria-pressed=true]").count()


@pytest.mark.browser
def test_graph_is_first_on_request_and_a_saved_frame_equals_the_screen(
    tmp_path: Path, open_page: Open
) -> None:
    path = written(tmp_path, traces_of("chain:9", ("sqrt_n",)), "ledger")
    page = open_page(path, "#step=20")
    assert page.is_visible(".ledger")
    assert page.is_visible(".strip")
    assert page.is_hidden(".holder")
    assert page.is_hidden("#steps")
    page.keyboard.press("g")
    assert page.is_hidden(".ledger")
    assert page.is_visible(".graph")
    assert page.is_visible("#steps")
    assert page.get_attribute("#front", "aria-pressed") == "true"
    until(page, "location.hash", "#step=20&view=graph")
    assert open_page(path, "#step=20&view=graph").is_visible(".graph")
    page.click("#front")
    assert page.is_visible(".ledger")
    assert page.is_hidden(".graph")
    # A saved frame has what is on the screen.
    go_to(page, "#step=20")
    with page.expect_download() as download:
        page.click("#svg")
    root = ElementTree.fromstring(Path(download.value.path()).read_bytes())
    said = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    names = {f"f{layer}" for layer in range(1, 10)}
    assert names | {"√n checkpointing", page.inner_text(".caption"), "to come", "peak 7"} <= said
    assert len(list(root.iter("{http://www.w3.org/2000/svg}image"))) == 4


@pytest.mark.sampled(1)
@pytest.mark.browser
@pytest.mark.parametrize("network", ["unet", "resnet50"])
def test_block_expands_when_the_graph_is_first(network: str, player: Player) -> None:
    page = player(network, "#step=30")
    page.keyboard.press("g")
    page.locator(".graph .node.group").first.dispatch_event("click")
    assert page.is_visible(".path")
    until(page, "location.hash.includes('&open=')")
    page.keyboard.press("g")
    names = page.evaluate("player.panels[0].ledger.rows.names")
    assert page.locator(".rail-row .name").last.inner_text().startswith(names[0][:2])


@pytest.mark.browser
def test_keyboard_rows_report_state_and_expand(player: Player) -> None:
    (trace,) = traces_of("resnet50", ("sqrt_n",))
    page = player([trace], f"#step={trace.peak_step}")
    page.focus(".rail-row[tabindex='0']")
    page.keyboard.press("ArrowUp")
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label.startswith("stage2/block1, opens: forward ")
    assert "; backward " in label
    page.keyboard.press("Enter")
    assert page.inner_text(".path").split("\n")[:2] == ["resnet50", "stage2/block1"]
    names = page.locator(".rail-row .name").all_inner_texts()
    assert any("conv2d" in name for name in names)
    page.keyboard.press("Escape")
    assert page.is_hidden(".path")
    page.click("#as-table summary")
    until(page, "document.querySelectorAll('#as-table tbody tr').length", 18)
    assert page.locator("#as-table tbody tr").last.inner_text().startswith("stage1")
    assert page.evaluate(TICK) == trace.peak_step


@pytest.mark.browser
def test_every_scale_maps_zero_to_peak_monotonically(player: Player) -> None:
    graph = tc.networks.chain(6)
    spike = tuple(replace(node, workspace=2**30 * (node.id == 3)) for node in graph.operators)
    trace = tc.replay(tc.plan(replace(graph, operators=spike), "sqrt_n"))
    page = player([trace], "#step=10")
    assert page.input_value("#scale") == "broken"  # unasked: it would hide everything else
    assert page.locator("#scale option").all_inner_texts() == ["linear", "log", "broken", "address"]
    for _ in range(4):
        page.keyboard.press("y")
        shares = page.evaluate("""() => { const {scale} = player.panels[0].strip;
            return [...Array(101).keys()].map(i => scale.at(i * scale.highest / 100)); }""")
        assert shares == sorted(shares)
        assert shares[0] == 0
        assert shares[-1] == pytest.approx(1)
    seen = page.evaluate("player.panels[0].strip.scale.at(5 * 512)")
    assert page.input_value("#scale") == "broken"
    assert seen > 0.5
    flat = player("chain:9")
    assert flat.locator("#scale option").all_inner_texts() == ["linear", "log", "address"]


@pytest.mark.browser
def test_row_names_do_not_overlap_in_little_room(player: Player) -> None:
    (trace,) = traces_of("resnet50", ("sqrt_n",))
    phone = {"width": 360, "height": 740}
    page = player([trace], viewport=phone)
    names = page.locator(".rail-row .name").all_inner_texts()
    assert len(names) == 18
    assert len(set(names)) == 18
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.browser
def test_hostile_names_are_literal_text_in_the_ledger(player: Player) -> None:
    trace = tc.replay(tc.plan(named(NAMES), "store_all"))
    page = player([trace], f"#step={len(trace.steps) // 2}")
    page.locator(".rail-row").first.click()
    page.locator("#filling-list .row").first.click()
    plot = page.locator(".ledger .plot").bounding_box()
    for part in range(1, 8):
        page.mouse.move(plot["x"] + part / 8 * plot["width"], plot["y"] + part / 8 * plot["height"])
    page.click("#as-table summary")
    page.wait_for_selector("#as-table tbody tr")
    assert page.evaluate("window.broken") is None
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.browser
def test_forward_graph_mentions_no_backward_pass(player: Player) -> None:
    graph = tc.build(lambda x: tc.sum(x), np.ones(3))
    page = player([tc.replay(tc.plan(graph, "store_all"))])
    page.keyboard.press("End")
    assert "1 evaluation =" in page.inner_text(".panel .subtitle")
    assert page.inner_text("#filling-total") == "1 of 1 value"
    assert page.is_hidden("#filling .hint")
    said = page.locator(".legend.of-policies li >> visible=true").all_inner_texts()
    assert said == ["kept", "evaluation", "to come"]
    trained = opened_legend(player)
    assert {"gradient", "backward"} <= set(trained)


def opened_legend(player: Player) -> list[str]:
    """Return what the legend of a page says on which something is trained."""
    page = player("chain:4", policies=POLICIES[:1])
    assert page.is_visible("#filling .hint")
    texts: list[str] = page.locator(".legend.of-policies li >> visible=true").all_inner_texts()
    return texts


@pytest.mark.browser
def test_reasons_say_gradient_once(player: Player) -> None:
    (trace,) = traces_of("mlp:3x8", ("sqrt_n",))
    page = player([trace], f"#step={trace.graph.forward_count + 12}")
    said = set()
    for step in range(trace.graph.forward_count, len(trace.steps), 3):
        go_to(page, f"#step={step}")
        said |= {
            line
            for line in page.locator("#filling-list .why").all_inner_texts()
            if "gradient" in line
        }
    assert any("for that of " in line or "for the gradient" in line for line in said)
    for line in said:
        assert "gradient, for gradient" not in line
        assert "for gradient of" not in line
        assert "vjp" not in line
