"""Lab in a real browser: every choice by mouse, keyboard and touch."""

import pytest

import tinyckpt as tc
from tests.viz.conftest import assert_accessible
from tests.viz.lab.conftest import OpenLab
from tests.viz.lab.lab_driver import (
    KEEPING,
    LAYER,
    RINGS,
    SHOWN,
    STATE,
    counters,
    expected,
    place,
    steps_of,
    workbench,
)
from tests.viz.player.player_driver import SMALL, until

pytestmark = pytest.mark.browser
# What there is when a page says that it is ready.
AT_READY = """new MutationObserver((_, observer) => {
  if (!document.documentElement?.dataset.ready) return;
  observer.disconnect();
  window.atReady = document.querySelectorAll("#filling-list .row").length;
}).observe(document, { attributes: true, subtree: true })"""


def test_ready_page_has_been_drawn(lab: OpenLab) -> None:
    page = lab("chain:16")
    page.add_init_script(AT_READY)
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate("window.atReady") > 4
    # What is below the fold follows: sixteen layers, and the loss.
    until(page, "document.querySelectorAll('.rail-row').length", 17)


def test_budget_is_chosen_by_mouse_keys_text_and_policy(lab: OpenLab) -> None:
    graph = tc.networks.chain(16)
    page = workbench(lab, "chain:16", "#step=28")
    assert page.evaluate(STATE) == "budget=4608"  # half of store-all's memory
    page.mouse.move(*place(page, 4608))
    page.mouse.down()
    for nodes in (9, 5, 3, 12, 18):
        page.mouse.move(*place(page, 512 * nodes + 100))
        until(page, STATE, f"budget={512 * nodes}")
        until(page, "() => document.querySelector('[data-counter=peak]') !== null && !player.due")
        best = tc.plan(graph, budget=f"{nodes} nodes")
        page.evaluate("() => player.seek(player.ticks - 1)")
        until(page, "() => player.saying.timer", None)  # words are written
        shown = counters(page)
        assert shown["peak"] == str(tc.replay(best).peak_nodes)
        assert shown["evaluations"].split(" / ")[1] == str(tc.replay(best).evaluations)
        # Words follow a drag at their own, slower pace.
        until(page, f"document.getElementById('lab-now').innerText.includes('peak {nodes} values')")
    page.mouse.up()
    page.click("#lab-undo")  # all of the dragging is one change
    assert page.evaluate(STATE) == "budget=4608"
    page.click("#lab-redo")
    assert page.evaluate(STATE) == "budget=9216"
    # The handle stands on a policy's mark: a click leaves it there, and a drag moves it.
    page.select_option("#lab-policy", "sqrt_n")
    box = page.locator(".frontier .handle").bounding_box()
    at = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*at)
    page.mouse.down()
    page.mouse.up()
    assert page.evaluate(STATE) == "policy=sqrt_n"
    page.mouse.down()
    page.mouse.move(place(page, 6200)[0], at[1] + 30)
    page.mouse.up()
    assert page.evaluate(STATE) == "budget=6144"
    page.keyboard.press("ArrowLeft")  # the handle has the keyboard
    assert page.evaluate(STATE) == "budget=5632"
    # Keys move it from one schedule to the next, and do not step.
    tick = page.evaluate("() => player.tick")
    page.focus(".frontier .handle")
    for key, nodes in (
        ("Home", 3), ("ArrowRight", 4), ("ArrowUp", 5), ("PageDown", 3), ("PageUp", 8),
        ("ArrowLeft", 7), ("End", 18), ("ArrowDown", 17),
    ):  # fmt: skip
        page.keyboard.press(key)
        assert page.evaluate(STATE) == f"budget={512 * nodes}", key
        text = page.get_attribute(".frontier .handle", "aria-valuetext")
        assert text.startswith(f"peak {nodes} values, ")
    assert page.evaluate("() => player.tick") == tick  # the player did not step
    page.keyboard.press("Control+z")
    assert page.evaluate(STATE) == "budget=9216"
    page.keyboard.press("Control+y")
    assert page.evaluate(STATE) == "budget=8704"
    # It is typed, in any spelling that Python takes.
    for text, nodes in (("7 nodes", 7), ("4 KiB", 8), ("50 %", 9), ("3", 3), ("2600 bytes", 5)):
        page.fill("#lab-budget", text)
        page.keyboard.press("Enter")
        assert page.evaluate(STATE) == f"budget={512 * nodes}", text
        assert page.inner_text("#lab-said") == ""
    for text, said in (
        ("2 nodes", "Nothing runs within 2 values: b16 alone takes 1.5 KiB"),
        ("many", '"many" is no budget'), ("-4", "is no budget"), ("", "is no budget"),
        ("<b>1</b>", '"<b>1</b>" is no budget'),
    ):  # fmt: skip
        page.fill("#lab-budget", text)
        page.click("#lab-form button")
        assert said in page.inner_text("#lab-said"), text
        assert page.evaluate(STATE) == f"budget={512 * 5}"
    page.fill("#lab-budget", "2600 bytes")  # what stands already: nothing is wrong any more
    page.keyboard.press("Enter")
    assert page.inner_text("#lab-said") == ""
    # Policies are chosen by name, and by a click on their mark.
    for title, policy in (("store all", "store_all"), ("recompute all", "recompute_all")):
        page.select_option("#lab-policy", policy)
        assert page.evaluate(SHOWN) == steps_of(tc.plan(graph, policy))
        assert page.inner_text(".panel .title") == title
    page.focus(".frontier .handle")
    page.keyboard.press("End")
    assert page.input_value("#lab-policy") == ""
    page = workbench(lab, "residual:4x8")
    box = page.locator(".frontier").bounding_box()
    named = page.evaluate(
        "() => player.offers.named.map(n => [n.name, player.plot.x(n.peak), player.plot.y(n.cost)])"
    )
    for name, x, y in named:
        page.mouse.click(box["x"] + x, box["y"] + y)
        graph = tc.networks.network_from_text("residual:4x8")[0]
        assert page.evaluate(SHOWN) == steps_of(tc.plan(graph, name))


def test_page_points_equal_the_frontier(lab: OpenLab) -> None:
    page = workbench(lab, "residual:4x8")
    points = page.evaluate(
        """() => player.offers.points.map(p => { const { steps, replay } = player.offers.plan(p);
        return [p.peak, p.cost, Array.from(p.order), Array.from(steps.verbs),
            Array.from(steps.targets), Array.from(replay.bytes)]; })"""
    )
    graph = tc.networks.network_from_text("residual:4x8")[0]
    assert len(points) > 4
    for peak, cost, order, verbs, targets, live in points:
        trace = tc.replay(tc.from_order(graph, order))
        assert [verbs, targets] == steps_of(trace.schedule)
        assert live == list(trace.live_bytes)
        assert (peak, cost) == (trace.peak_bytes, trace.evaluations)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("network", "front"),
    [("chain:16", "ledger"), ("chain:16", "graph"), ("residual:4x8", "ledger")],
)
def test_click_toggles_a_saved_value(network: str, front: str, lab: OpenLab) -> None:
    graph = tc.networks.network_from_text(network)[0]
    page = workbench(lab, network, f"#view={front}")
    page.select_option("#lab-policy", "sqrt_n")
    kept = set(page.evaluate("() => player.offers.keptBy(player.choice)"))
    for cell in (2, 7, 7, 11):
        page.hover(LAYER[front].format(cell))
        tip = page.inner_text("#tip")
        before = page.evaluate("() => player.offers.plan(player.choice)")
        page.click(LAYER[front].format(cell))
        values = page.evaluate("c => player.toggled(player.panels[0], c).values", cell)
        kept = kept - set(values) if set(values) <= kept else kept | set(values)
        assert page.evaluate(KEEPING) == sorted(kept)
        schedule = tc.plan(graph, "retain", keep=sorted(kept))
        assert page.evaluate(SHOWN) == steps_of(schedule)
        said = page.inner_text("#lab-said")
        change = said.split(": ")[1]
        assert f": {change}" in tip  # what was promised is what happened
        after = tc.replay(schedule)
        cost = 100 * (after.evaluations / before["cost"] - 1)
        assert ("unchanged" in change.split("cost ")[1]) == (abs(cost) < 1e-9)
        assert page.evaluate(RINGS) == len(expected(schedule)[9]) <= len(kept)
    for _ in range(3):
        page.click("#lab-undo")
    page.click("#lab-reset")
    assert page.evaluate(STATE) == page.evaluate("() => player.start.key")
    # Without keeping, a click selects, as in any player.
    page.keyboard.press("k")
    page.click(LAYER[front].format(2))
    assert page.is_visible("#node")
    assert page.evaluate(STATE) == page.evaluate("() => player.start.key")
    said = page.inner_text("#lab-flip")
    page.keyboard.press("Shift+K")
    assert page.inner_text("#lab-said").split(": ")[1] == said.split(": ")[1]
    assert page.evaluate(KEEPING) is not None


def test_touch_drags_and_taps(lab: OpenLab) -> None:
    page = workbench(
        lab, "chain:16", viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True
    )
    page.locator(".frontier").scroll_into_view_if_needed()
    page.touchscreen.tap(*place(page, 3700))
    until(page, STATE, "budget=3584")
    node = page.locator(LAYER["ledger"].format(5))
    node.scroll_into_view_if_needed()
    before = set(page.evaluate("() => player.offers.keptBy(player.choice)"))
    node.tap()
    page.locator("#lab-flip").tap()
    until(page, "() => player.choice.kind", "kept")
    assert len(set(page.evaluate(KEEPING)) ^ before) == 1
    page.keyboard.press("Escape")  # the details, and above the footer: both cover the plot
    page.locator(".frontier").evaluate("plot => plot.scrollIntoView({ block: 'center' })")
    finger = page.context.new_cdp_session(page)
    for kind, peak in (("Start", 3700), ("Move", 5000), ("Move", 6000), ("Move", 7000)):
        x, y = place(page, peak)
        points = {"type": f"touch{kind}", "touchPoints": [{"x": x, "y": y}]}
        finger.send("Input.dispatchTouchEvent", points)
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    until(page, STATE, "budget=6656")
    wide = page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= 360
    assert page.evaluate(SMALL) == []


def test_active_row_stays_in_view_during_a_drag(lab: OpenLab) -> None:
    page = workbench(lab, "chain:64", viewport={"width": 1280, "height": 600})
    page.click("#rows")
    in_sight = """() => { const {activeRow, window} = player.panels[0].ledger;
        const [first, end] = window.range;
        return activeRow < 0 || (first <= activeRow && activeRow < end); }"""
    rows = set()
    # Parts of the step and of the frontier: how many of either there are is a matter of time.
    for part in range(24):
        page.evaluate("part => player.show(Math.floor((player.last * part) / 24))", part)
        page.evaluate(
            """part => { const { points } = player.offers;
            player.drag(points[Math.floor((points.length * part) / 24)]); }""",
            part,
        )
        page.evaluate("() => player.present()")
        assert page.evaluate(in_sight)
        rows.add(page.evaluate("() => player.panels[0].ledger.activeRow"))
    assert len(rows) > 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [360, 900])
def test_presented_or_printed_lab_has_one_column(width: int, lab: OpenLab) -> None:
    page = workbench(lab, "chain:16", viewport={"width": width, "height": 740})
    shape = """() => { const page = getComputedStyle(document.querySelector(".page"));
        return [page.gridTemplateColumns.split(" ").length, page.alignContent]; }"""
    page.keyboard.press("f")
    until(page, shape, [1, "normal"])
    page.keyboard.press("Escape")
    until(page, f"({shape})()[0]", 2 if width == 900 else 1)
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(shape) == [1, "normal"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lab_card_is_accessible(scheme: str, lab: OpenLab) -> None:
    page = workbench(lab, "residual:4x8", color_scheme=scheme)
    page.click(LAYER["ledger"].format(2))
    page.click("#lab-challenge")
    page.click("#lab-python")
    assert_accessible(page, within=".lab")


def test_view_and_selection_survive_a_schedule_change(lab: OpenLab) -> None:
    page = workbench(lab, "chain:16", "#step=20")
    share = "() => { const e = player.scales.extent; return [e.from / e.whole, e.to / e.whole]; }"
    page.evaluate("() => { const e = player.scales.extent; e.set(0.25 * e.whole, 0.5 * e.whole); }")
    page.keyboard.press("k")
    page.click(LAYER["ledger"].format(5))
    page.focus(".frontier .handle")
    for key in ("Home", "End", "PageDown"):
        page.keyboard.press(key)
        assert page.evaluate(share) == pytest.approx([0.25, 0.5])
        assert page.evaluate("() => player.panels[0].selected") == 5
        assert page.evaluate("() => player.tick") == 20
    page.select_option("#axis", "evaluation")
    page.click(LAYER["ledger"].format(7))
    page.keyboard.press("Shift+K")  # the row keeps the keyboard while the panel is another
    assert page.evaluate("() => document.activeElement.dataset.row") == "7"
