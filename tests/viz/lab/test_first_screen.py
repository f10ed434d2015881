"""First screen of the lab: a sentence, memory, the budget as a line on it, bars, few controls."""

import re
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tests.viz.conftest import Open, assert_accessible
from tests.viz.lab.conftest import OpenLab
from tests.viz.lab.lab_driver import STATE
from tests.viz.player.player_driver import SMALL, until
from tinyckpt import viz

pytestmark = pytest.mark.browser
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True,
}  # fmt: skip
SCREENS: list[dict[str, Any]] = [
    PHONE,
    *(
        {"viewport": {"width": w, "height": h}}
        for w, h in ((800, 600), (864, 608), (1280, 800), (3840, 2160))  # one: a frame on the site
    ),
]
# Which of what stands on the first screen, above the controls, is missing or not there.
UNSEEN = """parts => { const foot = document.querySelector("footer").getBoundingClientRect().top;
    const isSeen = element => { const box = element.getBoundingClientRect();
        return box.height && box.top >= 0 && box.bottom <= foot + 1 && box.right <= innerWidth; };
    return parts.filter(part => { const found = [...document.querySelectorAll(part)];
        return !found.length || !found.every(isSeen); }); }"""
# Bars of which a button covers the size, or leaves no room for the bar.
COVERED = """() => [...document.querySelectorAll(".bars .row")].filter(row => {
    const [track, size, act] = [".track", ".size", ".act"].map(
        part => row.querySelector(part)?.getBoundingClientRect());
    return track.width < 24 || (act && act.left < size.right); }).length"""
CONTROLS = """() => [...document.querySelectorAll(".top, footer, #lab-share, .tools")].flatMap(
    part => [...part.querySelectorAll("button, input, select, [tabindex='0']")]).filter(
    (element, i, all) => element.getBoundingClientRect().width && all.indexOf(element) === i
    ).map(element => element.id)"""
# Budgets at which what the plan costs covers what store-all takes, or words below the area.
COVERING = """() => player.offers.points.filter(point => {
    player.drag(point, true);
    const [a, ...others] = [".callout", ".stored:not(.covered)", ".phases"].map(
        part => document.querySelector(part)?.getBoundingClientRect() ?? { top: 1 / 0 });
    return others.some(b =>
        a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom);
    }).map(({ peak }) => peak)"""
GHOST = "() => Array.from(player.scales.ghostOf(player.models[0]))"
PEAK = "() => player.offers.plan(player.choice).peak"
KEPT = """() => [...player.offers.keptBy(player.choice)].map(
    value => player.offers.graph.data.names[value])"""
LINE = "() => document.querySelector('.budget-line').getBoundingClientRect().top"


def at_amount(page: Any, values: float) -> tuple[float, float]:
    """Return the point of the memory area at an amount, in values."""
    x, y = page.evaluate(
        """values => { const { strip } = player.panels[0], box = strip.plot.getBoundingClientRect();
        return [box.left + 0.8 * box.width,
            box.bottom - strip.scale.at(values) * (box.height - strip.head)]; }""",
        values,
    )
    return x, y


@pytest.mark.sampled(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: str(screen["viewport"]["width"]))
def test_first_screen_answers_without_scrolling(
    screen: dict[str, Any], scheme: str, lab: OpenLab
) -> None:
    page = lab("resnet50", color_scheme=scheme, **screen)
    assert page.inner_text("h1") == "resnet50 needs 2.53 GiB to train. Drag the line to use less."
    size = float(
        page.evaluate("parseFloat(getComputedStyle(document.querySelector('h1')).fontSize)")
    )
    assert size >= (28 if screen["viewport"]["width"] >= 1280 else 22)
    parts = ["h1", ".strip .plot", ".budget-line .knob", "#filling-list .row", ".panel .caption"]
    assert page.evaluate(UNSEEN, parts) == []
    assert 1 < page.locator("#filling-list .row").count() <= 8
    page.wait_for_selector(".bars.acts .act")
    assert page.evaluate(COVERED) == 0
    assert page.inner_text(".panel .caption").startswith("Memory is fullest: ")
    assert page.evaluate(CONTROLS) == [
        "play", "next-stop", "lab-undo", "lab-redo", "scrub", "lab-sharing", "lab-more",
    ]  # fmt: skip
    assert page.evaluate("document.documentElement.scrollWidth") <= screen["viewport"]["width"]
    assert screen is not PHONE or page.evaluate(SMALL) == []
    assert_accessible(page)


@pytest.mark.parametrize(
    ("network", "sentence", "cost"),
    [
        ("chain:1", "A chain of 1 layer needs 3 values to train. Nothing can use less.", "no work"),
        ("mlp:6x64", "mlp:6x64 needs 216 KiB to train. No plan found uses less.", "no work"),
        # Here no plan found is within half of the memory: the smallest is shown.
        (
            "branching:3x16",
            "branching:3x16 needs 24.0 KiB to train. Drag the line to use less.",
            "16.7 % more work",
        ),
    ],
)
def test_first_plan_is_the_smallest_where_none_is_within_half(
    network: str, sentence: str, cost: str, lab: OpenLab
) -> None:
    page = lab(network)
    assert page.inner_text("h1") == sentence
    assert page.inner_text(".callout span").startswith(cost)


def test_lab_of_values_without_bytes_says_so(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    tc.save_graph(tc.networks.chain(4), path)
    path.write_text(path.read_text().replace('"shape": [8, 8]', '"shape": [0, 8]'))
    page = open_page(viz.lab(tc.load_graph(path), tmp_path / "lab.html", time_limit=0.1))
    assert page.inner_text("h1") == "A chain of 4 layers needs 0 B to train. Nothing can use less."
    assert page.inner_text(".callout b") == "0 B \u00b7 all of the memory"


def test_graph_of_a_function_named_loss_is_called_this_network(
    open_page: Open, tmp_path: Path
) -> None:
    def loss(x: Any) -> Any:
        return tc.sum(tc.tanh(tc.tanh(x)))

    graph = tc.differentiate(tc.build(loss, tc.Spec((4,))))
    page = open_page(viz.lab(graph, tmp_path / "lab.html", time_limit=0.1))
    assert page.inner_text("h1").startswith("This network needs ")


def test_budget_is_dragged_by_mouse_keys_and_finger(lab: OpenLab) -> None:
    page = lab("chain:16")
    assert page.inner_text("h1").startswith("A chain of 16 layers needs 18 values to train.")
    start = page.evaluate(STATE)
    assert abs(page.evaluate(LINE) - at_amount(page, 9)[1]) <= 2
    assert page.inner_text(".callout").split("\n") == [
        "9 values · half the memory", "27.3 % more work · nothing costs less",
    ]  # fmt: skip
    page.mouse.move(*at_amount(page, 9))
    page.mouse.down()
    points = page.evaluate("() => player.offers.points.map(({ peak }) => peak / 512)")
    for values in (points[-1], points[2], points[1]):
        page.mouse.move(*at_amount(page, values + 0.3))
        until(page, STATE, f"budget={512 * values:.0f}")
        line = min(values + 0.3, 18)
        assert abs(page.evaluate(LINE) - at_amount(page, line)[1]) <= 2
    page.mouse.up()
    assert abs(page.evaluate(LINE) - at_amount(page, points[1])[1]) <= 2
    assert page.evaluate(PEAK) == points[1] * 512
    # It is at the peak of the other plan too, and all of the dragging is one change.
    assert page.evaluate("player.panels[0].step === player.models[0].peakStep")
    page.click("#lab-undo")
    assert page.evaluate(STATE) == start
    page.focus(".budget-line")
    tick = page.evaluate("player.tick")
    for key, at in (("Home", 0), ("ArrowUp", 1), ("ArrowDown", 0), ("End", -1)):
        values = points[at]
        page.keyboard.press(key)
        assert page.evaluate(STATE) == f"budget={512 * values:.0f}", key
        said = page.get_attribute(".budget-line", "aria-valuetext")
        assert said.startswith(f"{values:.0f} values · ")
    assert page.evaluate("player.models[0].peakStep") == page.evaluate("player.tick") != tick
    phone = lab("chain:16", **PHONE)
    assert abs(phone.evaluate(LINE) - at_amount(phone, 9)[1]) <= 2
    finger = phone.context.new_cdp_session(phone)
    for kind, values in (("Start", 9), ("Move", 7.5), ("Move", points[1] + 0.2)):
        x, y = at_amount(phone, values)
        touch = {"type": f"touch{kind}", "touchPoints": [{"x": x, "y": y}]}
        finger.send("Input.dispatchTouchEvent", touch)
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    until(phone, STATE, f"budget={512 * points[1]:.0f}")


def test_ghost_is_store_all_at_the_same_progress(lab: OpenLab) -> None:
    page = lab("chain:16", "#policy=recompute_all")
    ghost = page.evaluate(GHOST)
    stored = page.evaluate("() => Array.from(player.offers.stored.replay.bytes, b => b / 512)")
    again = page.evaluate(
        """() => { const { verbs, again, evaluations, count } = player.models[0];
        return Array.from({ length: count },
            (_, i) => verbs[i] === 0 && again[evaluations[i] - 1]); }"""
    )
    assert max(ghost) == max(stored) == 18
    assert set(ghost) <= set(stored)
    # While anything is recomputed, store-all waits.
    assert all(ghost[i] == ghost[i - 1] for i, waits in enumerate(again) if waits)
    # It is aligned with each plan anew.
    page.focus(".budget-line")
    page.keyboard.press("End")
    other = page.evaluate(GHOST)
    assert len(other) != len(ghost)
    assert set(other) <= set(stored)
    page.keyboard.press("Control+z")
    assert page.evaluate(GHOST) == ghost


def test_bars_say_what_dropping_saves_and_costs(lab: OpenLab) -> None:
    page = lab("resnet50", "#policy=store_all")
    page.wait_for_selector(".bars .act >> nth=2")
    act = page.locator(".bars .row >> nth=0 >> .act")
    before, cost = page.evaluate(PEAK), page.evaluate("player.offers.plan(player.choice).cost")
    assert act.inner_text().startswith("drop: \u2212")
    promised = act.get_attribute("aria-label")
    assert promised is not None
    act.click()
    assert page.evaluate(PEAK) < before
    assert page.evaluate("player.offers.plan(player.choice).cost") > cost
    assert promised.split(": ")[1] in page.inner_text("#lab-said")
    assert page.inner_text(".panel .title") == "hand-picked"
    page.click("#lab-undo")
    assert page.evaluate(STATE) == "policy=store_all"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [360, 1280])
def test_every_bar_has_a_button_or_says_why_not(width: int, lab: OpenLab) -> None:
    page = lab("resnet50", "#policy=sqrt_n", viewport={"width": width, "height": 740})
    settled = """() => [...document.querySelectorAll(".bars .row")].every((row) =>
        row.querySelector(".act") || row.querySelector(".bar").title.includes("No button"))"""
    for _ in range(2):  # the first screen, and the workbench
        until(page, f"({settled})()")
        acts = page.locator(".bars .act").all_inner_texts()
        assert len(acts) >= 2  # what would take more memory or work is offered as well, and says so
        # Dropping promises less memory, keeping less work.
        promised = r"drop: \N{MINUS SIGN}.*|keep: .*,\s\N{MINUS SIGN}.*|(drop|keep): no\s+gain"
        assert all(re.fullmatch(promised, act) for act in acts)
        assert page.evaluate(COVERED) == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.click("#lab-more")
    titles = [bar.get_attribute("title") or "" for bar in page.locator(".bars .bar").all()]
    reasons = {title.split(": ")[0]: title for title in titles if "No button" in title}
    assert "the backward pass reads them" in reasons["gradients"]
    assert "freed when this evaluation ends" in reasons["workspace"]


@pytest.mark.parametrize(
    "screen",
    [*SCREENS, {"viewport": {"width": 320, "height": 568}}],
    ids=lambda screen: str(screen["viewport"]["width"]),
)
def test_words_at_budget_never_cover_those_of_store_all(
    screen: dict[str, Any], lab: OpenLab
) -> None:
    page = lab("chain:16", **screen)
    assert page.evaluate("player.offers.points.length") > 10
    assert page.evaluate(COVERING) == []


def test_bar_of_a_result_has_no_button(lab: OpenLab) -> None:
    page = lab("unet:2", "#policy=sqrt_n")
    page.wait_for_selector(".bars.acts")
    (row,) = page.locator(".bars .row:has-text('loss')").all()
    assert row.locator(".act").count() == 0
    assert row.locator(".name").inner_text() == "loss"  # and in full "output/loss (divide_1)"
    assert "a result: it stays to the end" in row.locator(".bar").get_attribute("title")


def test_bars_keep_their_buttons_after_a_drag(lab: OpenLab) -> None:
    page = lab("resnet50")
    page.wait_for_selector(".bars .act")
    at = page.evaluate(STATE)
    knob = page.locator(".budget-line .knob").bounding_box()
    page.mouse.move(knob["x"] + 8, knob["y"] + 8)
    page.mouse.down()
    page.mouse.move(knob["x"] + 8, knob["y"] + 40, steps=4)
    until(page, f"player.choice.key !== '{at}' && !player.due")
    assert page.locator(".bars .act").count() == 0
    page.wait_for_timeout(400)  # longer than the page rests before it plans for its buttons
    assert page.locator(".bars .act").count() == 0
    page.mouse.up()
    page.wait_for_selector(".bars .act >> nth=1")


def test_button_of_a_bar_leaves_the_focus_on_the_bar(lab: OpenLab) -> None:
    page = lab("resnet50", "#policy=store_all")
    page.wait_for_selector(".bars .act >> nth=2")
    row = page.locator(".bars .row:has(.act)").nth(1)
    name = row.locator(".name").inner_text()
    before = page.evaluate(STATE)
    row.locator(".act").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(STATE) != before
    focused = page.locator(".bars .bar:focus")
    assert focused.count() == 1
    assert focused.locator(".name").inner_text() == name
    page.wait_for_selector(".bars .act")
    page.locator(".bars .act").first.focus()
    page.keyboard.press("ArrowRight")  # another moment, which has other buttons
    assert page.locator(".bars .bar:focus").count() == 1


def test_hand_picked_plan_has_no_policy_name(lab: OpenLab) -> None:
    page = lab("chain:16", "#policy=sqrt_n")
    for _ in range(2):  # dropped, and kept again: the same values as the policy's
        page.evaluate("player.takeFlipped(player.toggled(player.panels[0], -1, 8))")
    assert page.evaluate(STATE).startswith("keep=")
    assert page.inner_text(".panel .title") == "hand-picked"
    page.click("#lab-sharing")
    page.click("#lab-python")
    assert "sqrt_n" not in page.input_value("#lab-text")


def test_more_shows_everything_and_share_what_there_is_to_share(lab: OpenLab) -> None:
    page = lab("chain:16")
    hidden = (".frontier", "#axis", "#lab-policy", "#lab-challenge", "#reading", "#svg", "#minimap")
    assert not any(page.is_visible(part) for part in (*hidden, "#lab-link"))
    page.click("#lab-sharing")
    assert page.evaluate("document.activeElement.id") == "lab-link"
    page.click("#lab-link")
    link = page.input_value("#lab-text")
    assert page.is_visible("#save-page")
    assert_accessible(page)
    for leave in (lambda: page.keyboard.press("Escape"), lambda: page.click("h1")):
        leave()
        assert page.is_hidden("#lab-link")
        page.click("#lab-sharing")
    page.click("#lab-more")
    assert all(page.is_visible(part) for part in hidden)
    assert_accessible(page)
    until(page, "location.hash.includes('more=1')")
    again = lab("chain:16", page.evaluate("location.hash"))
    assert again.is_visible(".frontier")
    assert lab("chain:16", link[link.index("#") :]).is_hidden(".frontier")
    # The ledger is below the fold.
    page.click("#lab-more")
    foot = page.evaluate("document.querySelector('footer').getBoundingClientRect().top")
    assert page.locator(".ledger").bounding_box()["y"] > foot


def test_tap_selects_and_a_button_acts(lab: OpenLab) -> None:
    page = lab("chain:16", **PHONE)
    before, kept = page.evaluate(STATE), page.evaluate(KEPT)
    assert "f6" not in kept
    row = page.locator(".rail-row[data-row='5']")
    row.scroll_into_view_if_needed()
    row.tap()
    assert page.evaluate(STATE) == before
    assert page.is_visible("#node")
    assert page.inner_text("#lab-flip").startswith("keep f6: ")
    page.locator("#lab-flip").tap()
    until(page, "player.choice.kind", "kept")
    assert sorted(page.evaluate(KEPT)) == sorted([*kept, "f6"])
