"""Player in a real browser: every control and key, and every node's state at any step."""

import random
from pathlib import Path

import pytest

import tinyckpt as tc
from tests.viz.conftest import Open, assert_accessible
from tests.viz.player.player_driver import (
    COUNTERS,
    LOOKS,
    POLICIES,
    PRESS,
    TICK,
    expected_counters,
    expected_looks,
    looks_of,
    seek,
    traces_of,
    until,
    written,
)
from viz.memory_curve import BANDS, memory_bands
from viz.scene import counts_nodes, live_of, live_text

pytestmark = pytest.mark.browser

# What is shown -------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize(
    "network", ["chain:16", "residual:3x8", "branching:2x8", "mlp:3x8", "unet"]
)
def test_node_states_match_stepping_both_ways_and_seeking(
    network: str, tmp_path: Path, open_page: Open
) -> None:
    traces = traces_of(network, ("sqrt_n",))
    last = len(traces[0].steps) - 1
    page = open_page(written(tmp_path, traces))
    assert page.evaluate(LOOKS) == expected_looks(traces, -1)
    for step, (looks, counters) in enumerate(page.evaluate(PRESS, ["ArrowRight", last + 1])):
        assert looks == expected_looks(traces, step), step
        assert counters == expected_counters(traces, step), step
    pressed = page.evaluate(PRESS, ["ArrowLeft", last])
    for step, (looks, _) in zip(reversed(range(last)), pressed, strict=True):
        assert looks == expected_looks(traces, step), step
    drawn = random.Random(network)
    for step in (drawn.randrange(-1, last + 1) for _ in range(60)):
        seek(page, step)
        assert page.evaluate(LOOKS) == expected_looks(traces, step), step


@pytest.mark.nightly
@pytest.mark.parametrize("network", ["chain:9", "mlp:3x8", "unet"])
def test_bands_equal_those_of_other_pictures(network: str, tmp_path: Path, open_page: Open) -> None:
    traces = traces_of(network, POLICIES)
    in_nodes = counts_nodes(traces)
    page = open_page(written(tmp_path, traces), "#step=-1&alone=0")
    shown = "() => player.models.map(m => m.bands.map(b => [b.name, b.fill, Array.from(b.live)]))"
    assert page.evaluate(shown) == [
        [[*names, band] for names, band in zip(BANDS.items(), bands.tolist(), strict=True)]
        for bands in (memory_bands(trace, in_nodes) for trace in traces)
    ]
    page.keyboard.press("End")
    page.locator(".timeline canvas").last.hover()
    tip = page.inner_text("#tip")
    step = int(tip.split("step ")[1].split(":")[0].replace("\u2009", ""))
    for name, band in zip(BANDS, memory_bands(traces[-1], in_nodes), strict=True):
        line = f"{name}: {live_text(int(band[step]), in_nodes)}"
        assert (line in tip) == bool(band[step])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("policies", [POLICIES[:2], POLICIES])
def test_compared_policies_step_together(
    policies: tuple[str, ...], tmp_path: Path, open_page: Open
) -> None:
    traces = traces_of("chain:9", policies)
    page = open_page(written(tmp_path, traces), "#step=-1&alone=0")
    for step in (0, 5, 17, 30, 41, max(len(trace.steps) for trace in traces) - 1):
        seek(page, step)
        assert page.evaluate(LOOKS) == expected_looks(traces, step)
        assert page.evaluate(COUNTERS) == expected_counters(traces, step)


def test_evaluation_axis_aligns_policies(tmp_path: Path, open_page: Open) -> None:
    traces = traces_of("chain:9", POLICIES)
    page = open_page(written(tmp_path, traces), "#evaluation=12&alone=0")
    at = [trace.evaluations_so_far.index(13) for trace in traces]
    expected = [looks_of(trace)[step + 1] for trace, step in zip(traces, at, strict=True)]
    assert page.evaluate(LOOKS) == expected
    assert {texts[1].split(" /")[0] for texts in page.evaluate(COUNTERS)} == {"13"}
    page.select_option("#axis", "step")  # at the step of the first policy
    assert page.evaluate(TICK) == at[0]
    assert page.evaluate(LOOKS) == expected_looks(traces, at[0])


def test_axis_change_keeps_the_position_after_a_shorter_policy_ended(
    tmp_path: Path, open_page: Open
) -> None:
    traces = traces_of("chain:9", POLICIES)
    last = max(len(trace.steps) for trace in traces) - 1
    assert len(traces[0].steps) < last
    page = open_page(written(tmp_path, traces), f"#step={last}")
    page.select_option("#axis", "evaluation")
    assert page.evaluate(TICK) == max(trace.evaluations for trace in traces) - 1


@pytest.mark.long
def test_deep_link_opens_its_step(tmp_path: Path, open_page: Open) -> None:
    traces = traces_of("chain:16", ("sqrt_n",))
    path = written(tmp_path, traces)
    page = open_page(path, "#step=33")
    assert page.evaluate(LOOKS) == expected_looks(traces, 33)
    page.evaluate("location.hash = 'step=7'")
    until(page, TICK, 7)
    assert page.evaluate(LOOKS) == expected_looks(traces, 7)
    for fragment, step in (("#step=99999", 82), ("#step=-9", -1), ("#step=x", -1), ("#a=b", -1)):
        assert open_page(path, fragment).evaluate(TICK) == step


@pytest.mark.nightly
def test_playback_ends_and_restarts(tmp_path: Path, open_page: Open) -> None:
    traces = traces_of("chain:16", ("sqrt_n",))
    last = len(traces[0].steps) - 1
    page = open_page(written(tmp_path, traces))
    page.select_option("#speed", "120")
    page.click("#play")
    until(page, TICK, last)
    page.wait_for_selector("#play[data-playing=false]")
    assert page.evaluate(LOOKS) == expected_looks(traces, last)
    until(page, "location.hash", f"#step={last}")
    page.select_option("#speed", "4")
    page.click("#play")
    until(page, "[0, 1, 2, 3].includes(Number(document.getElementById('scrub').value))")
    page.click("#play")
    step = page.evaluate(TICK)
    until(page, "location.hash", f"#step={step}")
    assert page.evaluate(LOOKS) == expected_looks(traces, step)
    assert f"step {step} of {last}: " in page.text_content("#status")


def test_fast_pause_and_play_does_not_double_speed(tmp_path: Path, open_page: Open) -> None:
    page = open_page(written(tmp_path, traces_of("chain:16", ("sqrt_n",))))
    shown = """times => new Promise(resolve => {
        const player = window.player, show = player.show.bind(player);
        let frames = 0, calls = 0;
        player.seek(-1);
        player.speed = 4000;  // every frame shows something
        player.show = () => { calls++; show(0); };
        for (let i = 0; i < times; i++) { player.pause(); player.play(); }
        const count = () => {
            if (++frames < 10) return requestAnimationFrame(count);
            player.pause();
            player.show = show;
            resolve(calls); };
        requestAnimationFrame(count); })"""
    assert page.evaluate(shown, 3) <= 11


def test_words_wait_while_it_plays_and_are_of_the_moment_when_it_rests(
    tmp_path: Path, open_page: Open
) -> None:
    traces = traces_of("chain:16", ("sqrt_n",))
    page = open_page(written(tmp_path, traces))
    seek(page, 0)
    page.evaluate("player.playing = true; player.saying.last = performance.now() + 1e6")
    page.evaluate("for (let tick = 1; tick <= 40; tick++) player.show(tick)")
    assert page.evaluate(COUNTERS) == expected_counters(traces, 0)
    page.evaluate("player.pause()")
    assert page.evaluate(COUNTERS) == expected_counters(traces, 40)
    assert page.evaluate(LOOKS) == expected_looks(traces, 40)


# Controls and keys ---------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("focus", ["body", "#scrub", ".graph .node", "#play", "#steps"])
def test_keys_step(focus: str, tmp_path: Path, open_page: Open) -> None:
    (trace,) = traces_of("chain:16", ("sqrt_n",))
    page = open_page(written(tmp_path, [trace]))
    for key, tick in (
        ("ArrowRight", 31), ("PageDown", 31), ("ArrowLeft", 29), ("PageUp", 29), ("Home", -1),
        ("End", 82), ("p", trace.peak_step), ("P", trace.peak_step),
    ):  # fmt: skip
        seek(page, 30)
        page.evaluate("selector => document.querySelector(selector).focus()", focus)
        page.keyboard.press(key)
        assert page.evaluate(TICK) == tick, key
        assert page.evaluate(LOOKS)[0] == looks_of(trace)[tick + 1], key


def test_buttons_step(tmp_path: Path, open_page: Open) -> None:
    page = open_page(written(tmp_path, traces_of("chain:16", ("sqrt_n",))))
    for button, once, twice in (
        ("first", -1, -1), ("back", 29, 28), ("next", 31, 32), ("last", 82, 82),
    ):  # fmt: skip
        seek(page, 30)
        page.click(f"#{button}")
        assert page.evaluate(TICK) == once
        page.keyboard.press("Enter")  # the button has the focus
        assert page.evaluate(TICK) == twice


def test_space_toggles_playback_once_for_any_focus(tmp_path: Path, open_page: Open) -> None:
    page = open_page(written(tmp_path, traces_of("chain:16", ("sqrt_n",))))
    for focus in ("body", "#play", "#scrub", "#steps"):
        page.evaluate("selector => document.querySelector(selector).focus()", focus)
        for playing in ("true", "false"):
            page.keyboard.press("Space")
            assert page.get_attribute("#play", "data-playing") == playing, focus


def test_digit_keys_isolate_one_policy(tmp_path: Path, open_page: Open) -> None:
    traces = traces_of("chain:9", POLICIES)
    page = open_page(written(tmp_path, traces), "#step=20")
    assert page.evaluate(LOOKS) == expected_looks(traces[:1], 20)
    for key, shown in (
        ("2", [1]), ("3", [2]), ("3", [0, 1, 2]), ("1", [0]), ("0", [0, 1, 2]), ("7", [0, 1, 2]),
        ("2", [1]), ("Escape", [0]),
    ):  # fmt: skip
        page.keyboard.press(key)
        chosen = [traces[index] for index in shown]
        assert page.evaluate(LOOKS) == expected_looks(chosen, 20), key
    page.click(".panel:nth-child(2) .solo")
    assert page.evaluate(LOOKS) == expected_looks(traces[1:2], 20)
    assert page.input_value("#policy") == "1"


def test_node_details_disappear_with_their_policy(tmp_path: Path, open_page: Open) -> None:
    page = open_page(written(tmp_path, traces_of("chain:9", POLICIES)))
    page.click(".panel:nth-child(1) .node[data-cell='0']")
    page.keyboard.press("2")
    assert page.is_hidden("#node")
    assert not page.evaluate(
        "[...document.querySelectorAll('.mark')].some(m => m.checkVisibility("
        "{visibilityProperty: true}))"
    )
    page.click(".panel:nth-child(2) .node[data-cell='0']")
    page.keyboard.press("0")
    assert page.is_visible("#node")


def test_peak_key_cycles_through_peaks(tmp_path: Path, open_page: Open) -> None:
    traces = traces_of("chain:9", POLICIES)
    page = open_page(written(tmp_path, traces))
    for trace in [*traces, traces[0]]:
        page.keyboard.press("p")
        live = live_of(trace, in_nodes=True)
        assert page.evaluate(TICK) == live.index(max(live))


def test_coinciding_peaks_are_one_stop(tmp_path: Path, open_page: Open) -> None:
    first, second = traces_of("chain:9", ("store_all", "sqrt_n"))
    page = open_page(written(tmp_path, [first, first, second]))
    ticks = []
    for _ in range(3):
        page.keyboard.press("p")
        ticks.append(page.evaluate(TICK))
    peaks = [live.index(max(live)) for live in (first.nodes, second.nodes)]
    assert ticks == [*peaks, peaks[0]]


def test_controls_change_speed_help_theme_and_columns(tmp_path: Path, open_page: Open) -> None:
    page = open_page(written(tmp_path, traces_of("chain:9", POLICIES)), color_scheme="light")
    speed = int(page.input_value("#speed"))
    page.keyboard.press("+")
    assert int(page.input_value("#speed")) == 2 * speed
    page.keyboard.press("-")
    assert int(page.input_value("#speed")) == speed
    page.keyboard.press("?")
    assert page.is_visible("#keys")
    assert_accessible(page, within="#keys")
    page.keyboard.press("ArrowRight")  # not while the help is open
    assert page.evaluate(TICK) == -1
    page.keyboard.press("Escape")
    assert page.is_hidden("#keys")
    page.click("#help")
    page.click("#help-close")
    assert page.is_hidden("#keys")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.keyboard.press("t")
    assert page.evaluate(ground) == "rgb(14, 22, 36)"
    page.click("#theme")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    tops = "[...document.querySelectorAll('.panel')].map(e => e.getBoundingClientRect().top)"
    assert len(set(page.evaluate(tops))) == 3
    page.keyboard.press("c")
    assert len(set(page.evaluate(tops))) < 3
    page.click("#columns")
    assert len(set(page.evaluate(tops))) == 3


def test_timeline_scrubs_and_reports_live_memory(tmp_path: Path, open_page: Open) -> None:
    (trace,) = traces_of("chain:16", ("sqrt_n",))
    page = open_page(written(tmp_path, [trace]))
    box = page.locator(".timeline canvas").bounding_box()
    count = len(trace.steps)

    def middle(step: int) -> tuple[float, float]:
        return box["x"] + (step + 0.5) / count * box["width"], box["y"] + box["height"] / 2

    page.mouse.move(*middle(28))
    tip = page.inner_text("#tip")
    assert f"step 28: {' '.join(tc_step(trace, 28))}" in tip
    names = {trace.graph.data[data].name for data in trace.resident_at(28)}
    assert all(name in tip for name in sorted(names)[:3])
    page.mouse.click(*middle(40), button="right")  # for the browser's menu
    assert page.evaluate(TICK) == -1
    page.mouse.move(*middle(28))
    page.mouse.down()
    assert page.evaluate(TICK) == 28
    page.mouse.move(*middle(60))
    page.mouse.up()
    assert page.evaluate(LOOKS) == expected_looks([trace], 60)
    page.mouse.move(5, 5)
    assert page.is_hidden("#tip")


def tc_step(trace: tc.Trace, step: int) -> tuple[str, str]:
    from tinyckpt.core.schedule import step_text

    return step_text(trace.graph, trace.steps[step])


def test_node_details_give_state_and_reason(tmp_path: Path, open_page: Open) -> None:
    (trace,) = traces_of("chain:16", ("sqrt_n",))
    page = open_page(written(tmp_path, [trace]), "#step=40")
    page.click(".graph .node[data-cell='8']")
    facts = page.inner_text("#node")
    computed = [p for p, s in enumerate(trace.steps) if s == tc.Compute(8)]
    for part in ("f9", "tanh", "float64[8,8]", "512 B", "of 2 times", "freed at step"):
        assert part in facts
    page.click(f"#node-facts button:has-text('{computed[1]}')")
    assert page.evaluate(TICK) == computed[1]
    assert "recomputed recomputing" in page.inner_text("#node")
    page.click("#node-close")
    assert page.is_hidden("#node")
    # By keyboard: from node to node, and select.
    page.focus(".graph .node[tabindex='0']")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.inner_text("#node-title") == "f8"
    assert "as a checkpoint" in page.inner_text("#node")
    page.keyboard.press("Escape")
    assert page.is_hidden("#node")
    page.hover(".graph .node[data-cell='3']")
    assert "f4" in page.inner_text("#tip")
    assert "512 B" in page.inner_text("#tip")


def test_schedule_and_program_lists_follow_and_navigate(tmp_path: Path, open_page: Open) -> None:
    traces = traces_of("chain:16", POLICIES[1:])
    page = open_page(written(tmp_path, traces), "#step=70")
    current = "#steps .row.current"
    assert page.inner_text(current).split()[:3] == ["70", *tc_step(traces[0], 70)]
    kernel = tc_step(traces[0], 70)[1]
    assert kernel in page.inner_text("#program .row.current")
    page.keyboard.press("End")
    assert page.is_visible(current)
    assert page.locator("#steps .row").count() < 60
    page.keyboard.press("Home")
    page.click("#steps .row:has-text('compute') >> nth=3")
    assert (
        page.evaluate(TICK)
        == [p for p, s in enumerate(traces[0].steps) if isinstance(s, tc.Compute)][3]
    )
    page.select_option("#policy", "1")
    page.locator("#policy").blur()
    page.keyboard.press("End")
    assert page.inner_text(current).split()[0] == str(len(traces[1].steps) - 1)
