"""First screen of a player: the peak of its subject, stops, and memory as bars."""

import json
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
import viz
from tests.viz.conftest import Open, assert_accessible
from tests.viz.player.player_driver import traces_of, until
from tinyckpt.pipeline import gpipe, replay_pipeline

pytestmark = pytest.mark.browser
BOTH = ("store_all", "sqrt_n")
THREE = (*BOTH, "recompute_all")
STOPS = "() => player.stops.map(({ name }) => name)"
WORDS = "() => document.getElementById('stop-words').textContent"
# Names and sizes of the bars, and whether all of them are on the screen, above the controls.
BARS = """() => { const foot = document.querySelector("footer").getBoundingClientRect().top;
    return [...document.querySelectorAll("#filling-list .row")].map(row => [
        row.querySelector(".name").textContent.split(" ")[0],
        row.querySelector(".size").textContent,
        row.getBoundingClientRect().bottom <= Math.min(foot, innerHeight)]); }"""


def opened(
    open_page: Open, folder: Path, policies: Any, network: str = "chain:16", **how: Any
) -> Any:
    context = how.pop("context", {})
    path = viz.player(traces_of(network, policies), folder / "player.html", **how)
    return open_page(path, **context)


def test_page_opens_at_the_peak_of_its_subject(tmp_path: Path, open_page: Open) -> None:
    page = opened(open_page, tmp_path, ("sqrt_n",))
    (trace,) = traces_of("chain:16", ("sqrt_n",))
    assert page.evaluate("player.panels[0].step") == trace.peak_step
    assert page.evaluate(WORDS) == f"Memory is fullest: {trace.peak_nodes} values."
    page = opened(open_page, tmp_path, THREE)  # of several, the first that recomputes anything
    assert page.locator(".panel:not(.compact) .title").all_inner_texts() == ["√n checkpointing"]
    assert page.evaluate("player.visible[0].step") == trace.peak_step
    page = opened(open_page, tmp_path, THREE, show="recompute_all", stop="first recomputation")
    assert page.locator(".panel:not(.compact) .title").all_inner_texts() == ["recompute all"]
    assert page.evaluate(WORDS).startswith("Freed to save memory, now computed again: ")
    step = page.evaluate("player.tick")
    page = opened(open_page, tmp_path, THREE, show="recompute_all", stop="recomputation")
    assert page.evaluate("player.tick") == step
    page = opened(open_page, tmp_path, BOTH, show="all", stop="end")
    assert page.locator(".panel:visible").count() == 2
    assert page.evaluate("player.visible[0].step") == page.evaluate("player.models[0].count - 1")
    page = opened(open_page, tmp_path, ("store_all",), stop="first recomputation")  # it has none
    assert page.evaluate("player.tick") == -1


def test_two_policies_open_as_their_difference(tmp_path: Path, open_page: Open) -> None:
    page = opened(open_page, tmp_path, BOTH)
    assert page.evaluate("player.difference.models.map(({ policy }) => policy)") == list(BOTH)
    assert page.input_value("#axis") == "progress"
    assert page.evaluate(STOPS) == ["start", "peak", "first recomputation of B", "end"]
    assert page.evaluate(WORDS) == (
        "A: Memory is fullest: 18 values. B: Memory is fullest: 9 values."
    )
    # An address that names no pair is the page's own; to have left it, it says so.
    page.keyboard.press("v")
    until(page, "location.hash.includes('difference=none')")
    again = open_page(tmp_path / "player.html", page.evaluate("location.hash"))
    assert again.locator(".panel:visible").count() == 2
    assert opened(open_page, tmp_path, BOTH, view="graph").locator(".graph").count() == 2


def test_difference_opens_at_the_peak_that_sets_the_two_further_apart(
    tmp_path: Path, open_page: Open
) -> None:
    traces = traces_of("residual:4x32", BOTH)
    page = opened(open_page, tmp_path, BOTH, "residual:4x32")
    a, b = page.evaluate("player.difference.steps")
    assert a == traces[0].peak_step
    assert page.evaluate(WORDS).startswith("A: Memory is fullest")
    assert page.locator("#filling-list .bar").count() > 0
    page.keyboard.press("p")
    steps = page.evaluate("player.difference.steps")
    assert steps[1] == traces[1].peak_step
    live = [trace.live_bytes for trace in traces]
    assert live[0][a] - live[1][b] > abs(live[0][steps[0]] - live[1][steps[1]])


def test_difference_of_equal_peaks_opens_where_the_two_differ_most(
    tmp_path: Path, open_page: Open
) -> None:
    traces = traces_of("mlp:8x64", BOTH)
    assert traces[0].peak_bytes == traces[1].peak_bytes
    page = opened(open_page, tmp_path, BOTH, "mlp:8x64")
    a, b = page.evaluate("player.difference.steps")
    assert page.locator("#filling-list .bar").count() > 0
    live = [trace.live_bytes for trace in traces]
    largest = page.evaluate("""() => { const [one, other] = player.difference.models;
        let most = 0;
        for (let tick = 0; tick < player.ticks; tick++) { player.show(tick);
            const [a, b] = player.difference.steps;
            most = Math.max(most, Math.abs((one.live[a] ?? 0) - (other.live[b] ?? 0))); }
        return most; }""")
    assert abs(live[0][a] - live[1][b]) == largest > 0


def test_illegal_openings_are_refused() -> None:
    traces = traces_of("chain:4", BOTH)
    with pytest.raises(tc.OptionError, match="known are start, peak, first recomputation, end"):
        viz.player(traces, stop="middle")
    with pytest.raises(tc.OptionError, match="known are store_all, sqrt_n, difference, all"):
        viz.player(traces, show="greedy")
    other = [traces[0], *traces_of("chain:8", ("sqrt_n",))]
    with pytest.raises(tc.OptionError, match="known are store_all, sqrt_n, all"):
        viz.player(other, show="difference")
    with pytest.raises(tc.OptionError, match="a pipeline opens at its peak"):
        viz.player(replay_pipeline(gpipe(2, 2)), stop="end")


# Names of stops that are not over the mark of their moment.
ASTRAY = """() => [...document.querySelectorAll("#marks i")].filter(mark => {
    const at = mark.getBoundingClientRect().left, name = mark.nextElementSibling;
    const { left, right, width } = name.getBoundingClientRect();
    return width && name.textContent && (at < left - 8 || at > right + 8);
}).map(mark => mark.nextElementSibling.textContent)"""


def test_stops_are_reached_by_button_and_by_marks(tmp_path: Path, open_page: Open) -> None:
    page = opened(open_page, tmp_path, ("sqrt_n",), stop="start")
    names = page.evaluate(STOPS)
    assert names == ["start", "peak", "first recomputation", "end"]
    said = [page.evaluate(WORDS)]
    for name in [*names[1:], names[0]]:
        assert page.inner_text("#next-stop b") == name
        page.click("#next-stop")
        said.append(page.evaluate(WORDS))
    assert all(said)
    assert len(set(said)) == 4
    assert said[0] == said[-1]
    page.click("#marks span >> nth=2")
    assert page.evaluate(WORDS) == said[2]
    for width in (1280, 800, 390, 320):
        page.set_viewport_size({"width": width, "height": 700})
        page.wait_for_timeout(100)
        assert page.evaluate(ASTRAY) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.keyboard.press("ArrowRight")
    assert page.evaluate(WORDS) == ""
    # A keyboard user passes at most four other controls on the way to play.
    page = open_page(tmp_path / "player.html")
    for _ in range(5):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "play":
            break
    assert page.evaluate("document.activeElement.id") == "play"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 800, 1280, 3840])
def test_opening_fits_and_is_accessible(
    width: int, scheme: str, tmp_path: Path, open_page: Open
) -> None:
    phone = width < 500
    context = {
        "viewport": {"width": width, "height": 844 if phone else max(600, width * 10 // 16)},
        "color_scheme": scheme,
        **({"has_touch": True, "is_mobile": True} if phone else {}),
    }
    page = opened(open_page, tmp_path, BOTH, context=context)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert_accessible(page)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("policies", [("sqrt_n",), BOTH], ids=["one", "difference"])
@pytest.mark.parametrize("viewport", [(1280, 800), (800, 600), (390, 844)], ids=str)
def test_what_is_in_memory_is_in_sight_beside_its_curve(
    viewport: tuple[int, int], policies: tuple[str, ...], tmp_path: Path, open_page: Open
) -> None:
    width, height = viewport
    context = {"viewport": {"width": width, "height": height}}
    page = opened(open_page, tmp_path, policies, "resnet50", context=context)
    foot = page.locator("footer").bounding_box()["y"]
    bars = page.locator("#filling-list .bar")
    boxes = [bars.nth(place).bounding_box() for place in range(bars.count())]
    assert len(boxes) >= 2
    assert all(box["y"] > 0 and box["y"] + box["height"] <= foot for box in boxes)
    strips = page.locator(".strip .plot").all()
    (top,) = [box["y"] for strip in strips if (box := strip.bounding_box())]
    assert top + 60 < foot
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("show", ["sqrt_n", "difference"])
@pytest.mark.parametrize("network", ["chain:16", "mlp:6x64"])
def test_legend_of_low_window_is_in_sight(
    network: str, show: str, tmp_path: Path, open_page: Open
) -> None:
    context = {"viewport": {"width": 800, "height": 600}}
    page = opened(open_page, tmp_path, BOTH, network, show=show, context=context)
    foot = page.locator("footer").bounding_box()["y"]
    (legend,) = [box for each in page.locator(".legend").all() if (box := each.bounding_box())]
    assert legend["y"] + legend["height"] <= foot
    card = page.locator("#filling").bounding_box()["x"]
    boxes = [box for each in page.locator(".counters dd").all() if (box := each.bounding_box())]
    assert max(box["x"] + box["width"] for box in boxes) < card


def test_memory_is_grouped_and_opens_level_by_level(tmp_path: Path, open_page: Open) -> None:
    page = opened(open_page, tmp_path, ("store_all",), "resnet50")
    bars = page.evaluate(BARS)
    assert page.inner_text("#filling-title") == "What is in memory at the peak"
    assert len(bars) <= 8
    assert all(seen for _, _, seen in bars)
    assert [name for name, *_ in bars][:3] == ["stage2", "stage3", "stage4"]
    total = "() => player.filling.bars.reduce((sum, { amount }) => sum + amount, 0)"
    assert page.evaluate(total) == page.evaluate("player.models[0].live[player.tick]")
    page.click("#filling-list .bar >> nth=0")
    assert page.evaluate("document.activeElement.closest('.row').dataset.index") == "0"
    names = [name for name, *_ in page.evaluate(BARS)]
    assert sorted(names) == ["block1", "block2", "block3"]
    while page.locator("#filling-list .bar[aria-pressed]").count() == 0:
        page.click("#filling-list .bar >> nth=0")
    page.click("#filling-list .bar >> nth=0")
    assert page.is_visible("#node")
    while page.is_visible("#filling-back"):
        page.click("#filling-back")
    assert page.evaluate(BARS) == bars
    # What is open stays open from moment to moment, as long as there is anything in it.
    page.click("#filling-list .bar >> nth=2")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("player.filling.path") == ["stage4"]
    page.keyboard.press("Home")
    assert page.evaluate("player.filling.path") == []


def test_listed_values_are_turned_through_without_a_gap(tmp_path: Path, open_page: Open) -> None:
    page = opened(open_page, tmp_path, ("store_all",), "chain:300")
    while page.locator("#filling-list .bar[aria-pressed]").count() == 0:
        page.click("#filling-list .bar >> nth=0")
    names = page.locator("#filling-list .name")
    listed = names.all_inner_texts()
    while listed[-1].endswith(" more \u203a"):
        page.click("#filling-list .bar >> nth=-1")
        listed = listed[:-1] + names.all_inner_texts()
    inside = page.evaluate("player.filling.inside().map(({ value }) => value)")
    assert len(listed) == len(inside) >= 300
    named = "values => values.map(value => player.models[0].graph.data.names[value])"
    assert sorted(listed) == sorted(page.evaluate(named, inside))


def test_search_knows_aliases_and_suggests(tmp_path: Path, open_page: Open) -> None:
    page = opened(open_page, tmp_path, ("store_all",), "resnet50")
    page.keyboard.press("/")
    page.fill("#search-input", "conv layer3")
    assert int(page.inner_text("#search-total")) > 4
    found = """() => player.navigation.search.items.map(
        i => player.models[0].graph.operators.names[i])"""
    assert any("stage3/block1/conv" in name for name in page.evaluate(found))
    page.fill("#search-input", "stege3 convd")
    assert page.inner_text("#search-none") == "Nothing; did you mean stage3 conv2d"
    page.click("#search-meant")
    assert page.input_value("#search-input") == "stage3 conv2d"
    assert page.is_hidden("#search-none")
    page.fill("#search-input", "zzzzzzzzzzzz")
    assert page.inner_text("#search-none") == "Nothing has all these words."
    page.keyboard.press("Escape")
    page = opened(open_page, tmp_path, ("store_all",), "transformer:2x8")
    totals = []
    for words in ("attention layer2", "attn block2", "ffn 2", "mlp 2"):
        page.keyboard.press("/")
        page.fill("#search-input", words)
        totals.append(int(page.inner_text("#search-total")))
    assert totals[0] == totals[1] > 9
    assert totals[2] == totals[3] > 9
    # Inside an opened block names are without what they have in common.
    page.evaluate("player.panels[0].open(player.panels[0].ledger.view.opens[0] ?? 1)")
    title = page.evaluate("player.panels[0].view.title")
    names = page.evaluate("player.panels[0].ledger.rows.names")
    assert names
    assert not any(name.startswith(f"{title}/") for name in names)


def test_saved_page_opens_as_it_stands(tmp_path: Path, open_page: Open) -> None:
    page = opened(open_page, tmp_path, THREE)
    page.evaluate("player.choose(player.panels[1], 3); player.seek(30)")
    page.select_option("#axis", "evaluation")
    with page.expect_download() as download:
        page.click("#save-page")
    saved = tmp_path / "saved.html"
    download.value.save_as(saved)
    assert download.value.suggested_filename.endswith(".html")
    again = open_page(saved)
    state = (
        "() => [player.tick, player.align, player.solo, player.chosen.selected, player.address()]"
    )
    assert again.evaluate(state) == page.evaluate(state)
    other = open_page(saved, "#step=3")  # an address goes before what is in the file
    assert other.evaluate("player.tick") == 3


# Of each mark's colour, the contrast to what it stands on.
CONTRASTS = """names => { const style = getComputedStyle(document.documentElement);
    const light = text => { const [r, g, b] = [1, 3, 5].map(i =>
        Number.parseInt(text.trim().slice(i, i + 2), 16) / 255).map(x =>
            x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b; };
    const of = name => light(style.getPropertyValue(`--${name}`));
    const to = (name, on) => { const [low, high] = [of(name), of(on)].sort((a, b) => a - b);
        return (high + .05) / (low + .05); };
    return Object.fromEntries(names.map(name =>
        [name, Math.min(to(name, "background"), to(name, "panel"))])); }"""
MARKS = (
    "ink", "kept", "recomputed-edge", "gradient", "staying", "workspace", "recomputing",
    "checkpoint", "dropped-forward", "dropped-backward", "not-yet-outline", "edge", "in-both",
    "only-a", "only-b-stripe",
)  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_have_contrast_and_forced_colours_keep_them(
    scheme: str, tmp_path: Path, open_page: Open
) -> None:
    page = opened(open_page, tmp_path, ("sqrt_n",), context={"color_scheme": scheme})
    contrasts = page.evaluate(CONTRASTS, list(MARKS))
    assert {name: ratio for name, ratio in contrasts.items() if ratio < 3} == {}
    page.emulate_media(forced_colors="active")
    ground = "element => getComputedStyle(element).backgroundColor"
    canvas = page.locator("#filling").evaluate(ground)
    assert page.locator(".bars .track i").first.evaluate(ground) != canvas
    page.evaluate("player.choose(player.chosen, 3)")
    pressed = page.locator(".rail-row[aria-pressed=true]").evaluate(ground)
    assert pressed not in (
        canvas,
        page.locator(".rail-row[aria-pressed=false]").first.evaluate(ground),
    )
    assert page.locator("#scrub").evaluate("e => getComputedStyle(e).forcedColorAdjust") == "none"


def test_page_names_its_opening_in_its_data(tmp_path: Path) -> None:
    page = viz.player(traces_of("chain:4", THREE), show="sqrt_n", stop="end").html
    assert json.dumps({"show": 1, "stop": "end"}, separators=(",", ":")) in page


def test_long_sentence_of_a_stop_leaves_the_slider_its_width(
    tmp_path: Path, open_page: Open
) -> None:
    # The peak of both plans is at their end: three sentences at one stop.
    page = opened(open_page, tmp_path, BOTH, "mlp:6x64", stop="end")
    assert len(page.evaluate(WORDS)) > 80
    width = "document.getElementById('scrub').getBoundingClientRect().width"
    wide = page.evaluate(width)
    page.click("#first")
    assert page.evaluate(width) == wide


def test_memory_of_several_policies_is_in_sight_on_a_phone(tmp_path: Path, open_page: Open) -> None:
    context = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    page = opened(open_page, tmp_path, (*THREE, "revolve"), context=context, show="sqrt_n")
    foot = page.locator("footer").bounding_box()["y"]
    strip = page.locator(".panel:not(.compact) .strip .plot").bounding_box()
    assert min(strip["y"] + strip["height"], foot) - strip["y"] > 0.8 * strip["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert_accessible(page)
