"""Player page as a file: hostile names, sizes, themes, audits, long traces, expanding views."""

import json
import random
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
import viz
from tests.conftest import require
from tests.tinyckpt.documents.test_serialize import hostile_graph
from tests.viz.conftest import Open, assert_accessible
from tests.viz.layout.test_levels import views_and_moves
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import LOOKS, ROWS, TICK, seek, traces_of, until
from viz.layout.views import GroupView, overview, views_of
from viz.node_looks import CellLooks, Fill
from viz.node_memory import LEVELS
from viz.player.data import shown
from viz.player.page import json_text, minified
from viz.theme import THEMES
from viz.vector.svg import looks_at

NAMES = (
    "</script><script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 1'>",
    "a\u2028b\u2029c",
    "'\"`${window.broken = 1}",
    "{{data}}&amp;&lt;",
    "]]>-->",
    "x" * 10_240,
)
# Whether the ledger is drawn when a page has begun, whereupon an error happens; when it is ready.
BEGINNING = """window.drawn = []; new MutationObserver(() => {
  const { begun, ready } = document.documentElement?.dataset ?? {};
  if (window.drawn.length >= Boolean(begun) + Boolean(ready)) return;
  window.drawn.push(player.panels[0].ledger.layers.past !== null);
  if (!ready) dispatchEvent(new Event("error"));
}).observe(document, { attributes: true, subtree: true })"""


def named(names: tuple[str, ...]) -> tc.Graph:
    """Return a chain whose operators and values have these names."""
    graph = tc.networks.chain(len(names))
    operators = [
        replace(node, name=names[node.id % len(names)] + f" {node.id}", kind=names[0])
        for node in graph.operators
    ]
    data = [replace(node, name=names[node.id % len(names)] + f" {node.id}") for node in graph.data]
    return replace(graph, name=names[0] + names[3], operators=tuple(operators), data=tuple(data))


# The file, without a browser -----------------------------------------------------------------


def test_json_is_safe_inside_html() -> None:
    text = json_text({name: [name] for name in NAMES})
    assert json.loads(text) == {name: [name] for name in NAMES}
    assert text.isascii()
    assert not set("<>&") & set(text)


def test_stripped_code_keeps_all_statements() -> None:
    code = (
        "/** Doc.\n * @x */\nf(\n  `//not`, // said\n  'a // b',\n  g // it's\n);\n\n"
        "/* one */\n// two\n  // three\n  g();\n"
    )
    assert minified(code) == "f(\n`//not`,\n'a // b',\ng // it's\n);\ng();\n"


def test_page_of_a_deep_chain_is_small(tmp_path: Path) -> None:
    path = viz.player(traces_of("chain:256", ("sqrt_n",)), tmp_path / "deep.html")
    assert path.stat().st_size <= 250 * 1024


def test_heading_names_every_graph() -> None:
    traces = [*traces_of("chain:4", ("sqrt_n",)), *traces_of("mlp:3x8", ("sqrt_n",))]
    page = viz.player([*traces, traces[0]]).html
    names = ", ".join(trace.graph.name for trace in traces)
    assert f"<h1>√n checkpointing on {names}</h1>" in page


def test_player_refuses_bad_input(tmp_path: Path) -> None:
    traces = traces_of("chain:4", ("sqrt_n",))
    with pytest.raises(tc.TinyckptError, match=r"must end in \.html"):
        viz.player(traces, tmp_path / "player.gif")
    with pytest.raises(tc.TinyckptError, match="unknown theme 'blue'; known are auto, light, dark"):
        viz.player(traces, tmp_path / "player.html", theme="blue")
    with pytest.raises(tc.TinyckptError, match="nothing to draw"):
        viz.player([], tmp_path / "player.html")
    assert not list(tmp_path.iterdir())


# The page in a browser -----------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.browser
@pytest.mark.parametrize("own", [True, False])
def test_hostile_names_are_literal_text(own: bool, player: Player) -> None:
    graph = named(NAMES) if own else hostile_graph()
    trace = tc.replay(tc.plan(graph, "store_all"))
    page = player([trace, trace], f"#step={len(trace.steps) // 2}", view="graph")
    page.locator(".graph .node").first.click()
    page.locator(".graph .node").first.hover()
    page.keyboard.press("End")
    assert page.evaluate("window.broken") is None
    assert page.locator("img").count() == 0
    looks = looks_at(trace, overview(trace.graph), len(trace.steps) - 1)
    assert page.evaluate(LOOKS) == [list(map(str, looks))] * 2
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    title = page.inner_text("#node-title")
    assert title == " ".join(shown(graph.operators[0].name).split())


@pytest.mark.long
def test_page_is_ready_only_after_drawing_and_without_web_fonts(player: Player) -> None:
    page = player("chain:4")
    page.add_init_script(BEGINNING)
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate("window.drawn") == [False, True]
    assert page.is_visible("#play")
    page.add_init_script("document.fonts.load = () => Promise.reject(new Error('blocked'))")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.is_visible("#play")


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 2560])
@pytest.mark.parametrize("view", ["ledger", "graph"])
def test_player_page_is_accessible(view: str, theme: Any, width: int, player: Player) -> None:
    traces = traces_of("residual:3x8", ("store_all", "sqrt_n"))
    size = {"width": width, "height": 900}
    page = player(traces, "#step=50", view=view, color_scheme=theme, viewport=size)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator(".graph .node" if view == "graph" else ".rail-row").nth(4).click()
    for act in (lambda: None, lambda: page.keyboard.press("?")):
        act()
        assert_accessible(page, minor=True)


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_colours_equal_the_theme(scheme: Any, player: Player) -> None:
    traces = traces_of("chain:9", ("sqrt_n",))
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    page = player(traces, view="graph", color_scheme=scheme)
    assert page.evaluate(ground) == f"rgb{THEMES[scheme].background}"
    assert (
        player(traces, theme="dark", color_scheme=scheme).evaluate(ground)
        == f"rgb{THEMES['dark'].background}"
    )
    for look, colour in (("kept", "kept"), ("gradient", "gradient"), ("not yet", "not_yet")):
        seek(page, 9)
        disc = page.evaluate(
            "part => { const disc = document.querySelector(`.graph ${part} .disc`);"
            "return disc && getComputedStyle(disc).fill; }",
            f".node[data-look^='{look}']",
        )
        assert disc in (None, f"rgb{getattr(THEMES[scheme], colour)}"), look


@pytest.mark.browser
def test_what_was_recomputed_is_hatched_in_graph_strip_and_saved_frame(player: Player) -> None:
    page = player(traces_of("chain:16", ("sqrt_n",)), "#step=59", view="graph")
    fills = page.evaluate(
        """() => [...document.querySelectorAll(".graph .node")].map(
            (node) => [node.dataset.look, getComputedStyle(node.querySelector(".disc")).fill])"""
    )
    hatched = {look for look, fill in fills if fill == 'url("#hatch-recomputed")'}
    assert hatched == {look for look, _ in fills if look.startswith("recomputed")} != set()
    assert "kept*" in dict(fills)
    # In the strip, along some row of pixels, stripes and fill take turns.
    turns = page.evaluate(
        """() => { const canvas = document.querySelector(".timeline canvas");
        const { width, height } = canvas;
        const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
        const turns = Array.from({ length: height }, (_, y) => { let [count, was] = [0, ""];
            for (let x = 0; x < width; x++) {
                const now = data.slice(4 * (y * width + x), 4 * (y * width + x) + 3).join();
                if (now !== was && now === "116,196,240" && was === "0,114,178") count++;
                was = now; }
            return count; });
        return Math.max(...turns); }"""
    )
    assert turns >= 10
    with page.expect_download() as download:
        page.click("#svg")
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert 'id="hatch-recomputed"' in text
    light = THEMES["light"]
    for ink in (light.recomputed, light.kept):
        assert "rgb({}, {}, {})".format(*ink) in text.split("<pattern")[1].split("</pattern")[0]


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_result_gradients_are_dark_pink_in_the_graph(scheme: Any, player: Player) -> None:
    (trace,) = traces_of("mlp:3x8", ("sqrt_n",))
    page = player([trace], view="graph", color_scheme=scheme)
    seek(page, len(trace.steps) - 1)
    fills = page.evaluate(
        """() => [...document.querySelectorAll(".graph .node[data-look^=gradient]")].map((node) =>
            [node.textContent, getComputedStyle(node.querySelector(".disc")).fill])"""
    )
    assert {fill for _, fill in fills} == {f"rgb{THEMES[scheme].staying}"}  # all results
    state = CellLooks(trace, overview(trace.graph).cells)
    seen: set[bool] = set()
    for step in range(len(trace.steps)):
        state.take(step)
        if step < trace.graph.forward_count:
            continue
        seek(page, step)
        shown = page.evaluate(
            """() => [...document.querySelectorAll(".graph .node[data-look^=gradient]")].map(
                (node) => node.classList.contains("stays"))"""
        )
        looks = [state.look(cell) for cell in state.cells]
        expected = [look.results == LEVELS for look in looks if look.fill is Fill.GRADIENT]
        assert shown == expected, step
        seen |= {*shown}
    assert seen == {False, True}
    assert page.locator("#legend [data-if=staying]").is_visible()


@pytest.mark.browser
def test_page_respects_reduced_motion(tmp_path: Path, open_page: Open) -> None:
    path = viz.player(traces_of("chain:9", ("sqrt_n",)), tmp_path / "player.html", view="graph")
    duration = "getComputedStyle(document.querySelector('.graph .disc')).transitionDuration"
    calm, lively = open_page(path), open_page(path, reduced_motion="no-preference")
    for page in (calm, lively):
        page.keyboard.press("ArrowRight")
    assert calm.evaluate(duration) == "0s"
    assert lively.evaluate(duration) != "0s"
    lively.keyboard.press("End")  # a step fades, a leap does not
    assert lively.evaluate(duration) == "0s"
    assert int(calm.input_value("#speed")) < int(lively.input_value("#speed"))


@pytest.mark.long
@pytest.mark.browser
@pytest.mark.parametrize(
    ("layers", "least", "step"),
    [
        (1_200, 20_000, 17_777),  # more than a page has a program for
        pytest.param(4_000, 100_000, 77_777, marks=pytest.mark.nightly),
    ],
)
def test_page_handles_many_steps(layers: int, least: int, step: int, player: Player) -> None:
    traces = [tc.replay(tc.plan(tc.networks.chain(layers), "revolve", slots=4))]
    count = len(traces[0].steps)
    assert count > least
    page = player(traces, f"#step={step}", view="graph")
    assert page.evaluate(TICK) == step
    plan = overview(traces[0].graph)
    assert page.evaluate(LOOKS) == [list(map(str, looks_at(traces[0], plan, step)))]
    assert page.inner_text("#steps .row.current").replace("\u2009", "").startswith(str(step))
    assert "left out" in page.inner_text("#no-program")
    page.keyboard.press("End")
    assert page.evaluate(LOOKS) == [list(map(str, looks_at(traces[0], plan, count - 1)))]
    assert page.is_visible("#steps .row.current")
    assert page.locator("#steps .row").count() < 60
    page.keyboard.press("g")  # to the ledger, which can be read as a table
    page.click("#as-table summary")
    page.wait_for_selector("#as-table tbody tr")
    rows = page.evaluate(ROWS)
    assert 10 < len(rows) < 100  # groups: each row opens into more
    assert max(len(text) for row in rows for text in row) < 120
    seek(page, 3)
    assert page.evaluate(ROWS) != rows


@pytest.mark.sampled(1)
@pytest.mark.browser
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_frame_is_saved_as_png(suffix: str, player: Player) -> None:
    require("PIL")
    from io import BytesIO
    from xml.etree import ElementTree

    from PIL import Image

    traces = traces_of("chain:9", ("store_all", "sqrt_n"))
    page = player(traces, "#step=20", view="graph", color_scheme="dark")
    with page.expect_download() as download:
        page.click(f"#{suffix}")
    assert download.value.suggested_filename == f"store_all-sqrt_n-step-20.{suffix}"
    content = Path(download.value.path()).read_bytes()
    if suffix == "png":
        image = Image.open(BytesIO(content)).convert("RGB")
        assert image.size[0] == 1600
        colours = {colour for _, colour in image.getcolors(1 << 20)}
        assert {THEMES["dark"].background, THEMES["dark"].kept, THEMES["dark"].halo} <= colours
    else:
        texts = [element.text for element in ElementTree.fromstring(content).iter()]
        assert {"store all", "√n checkpointing", "f9", "20 / 36", "gradient"} <= set(texts)


# Views that open -----------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.parametrize("network", ["unet", "resnet50"])
def test_groups_show_state_and_expand(network: str, player: Player) -> None:
    (trace,) = traces_of(network, ("sqrt_n",))
    views = views_of(trace.graph)
    page = player(trace, view="graph")
    group = 3
    inside = views[views[0].opens[group]]
    steps = random.Random(0).sample(range(len(trace.steps)), 12)
    levels = set()
    for step in (*steps, trace.peak_step):
        seek(page, step)
        looks = looks_at(trace, views[0].layout, step)
        assert page.evaluate(LOOKS) == [list(map(str, looks))], step
        levels |= {look.level for look in looks}
    assert len(levels) > 4
    for enter, leave in (("click", "Escape"), ("key", "Backspace"), ("click", "crumb")):
        node = f".graph .node[data-cell='{group}']"
        if enter == "click":
            page.click(node)
        else:
            page.focus(node)
            page.keyboard.press("Enter")
        assert page.inner_text(".path").split("\n")[:2] == [trace.graph.name, inside.title]
        for step in steps:
            seek(page, step)
            looks = looks_at(trace, inside.layout, step)
            assert page.evaluate(LOOKS) == [list(map(str, looks))], step
        if leave == "crumb":
            page.click(f".path button:has-text('{trace.graph.name}')")
        else:
            page.keyboard.press(leave)
        until(page, "document.querySelectorAll('.graph .node').length", len(views[0].layout.cells))
        assert page.is_hidden(".path")


@pytest.mark.browser
def test_nested_groups_expand(player: Player) -> None:
    (trace,) = traces_of("transformer:12x8", ("sqrt_n",))
    views = views_of(trace.graph)
    page = player(trace, view="graph")
    steps = random.Random(0).sample(range(len(trace.steps)), 12)
    way = [len(views) - 1]
    while (parent := views[way[0]].parent) is not None:
        way.insert(0, parent)
    assert len(way) > 1
    for index, below in [*pairwise(way), (way[-1], None)]:
        for step in steps:
            seek(page, step)
            looks = looks_at(trace, views[index].layout, step)
            assert page.evaluate(LOOKS) == [list(map(str, looks))], step
        if below is not None:
            cell = next(cell for cell, target in views[index].opens.items() if target == below)
            page.focus(f".graph .node[data-cell='{cell}']")
            page.keyboard.press("Enter")
    shown_way = page.locator(".path > button").all_inner_texts()
    assert shown_way == [views[index].title or trace.graph.name for index in way]


@pytest.mark.browser
def test_page_memory_equals_python_blocks(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = views_and_moves()
    plan = overview(trace.graph)
    # As groups, so that levels say what is held.
    cells = tuple(replace(cell, group=True) for cell in plan.cells)
    grouped = replace(plan, sizes=((40.0, 30.0),) * len(cells), cells=cells)
    views = (GroupView("", None, grouped),)
    monkeypatch.setattr(sys.modules["viz.player.data"], "views_of", lambda *_: views)
    page = player(trace, view="graph")
    levels = set()
    for step in range(len(trace.steps)):
        seek(page, step)
        looks = looks_at(trace, grouped, step)
        assert page.evaluate(LOOKS) == [list(map(str, looks))], step
        levels |= {look.level for look in looks}
    assert levels == {0, 8}
