"""Static fallback of a page without JavaScript: a still and a table, all legible."""

import re
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
import viz
from tests.viz.conftest import Open
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import traces_of
from tests.viz.test_theme import LEAST_CONTRAST, contrast
from viz.layout.views import overview, views_of
from viz.scene import title_of

pytestmark = pytest.mark.browser


def test_fallback_has_a_still_and_a_table(player: Player) -> None:
    traces = traces_of("chain:9", ("store_all", "sqrt_n"))
    page = player(traces, java_script_enabled=False)
    assert page.is_visible(".still svg")
    assert page.locator(".still .node").count() == 2 * len(
        views_of(traces[0].graph)[0].layout.cells
    )
    assert page.is_visible("table")
    rows = page.locator("tbody tr").all_inner_texts()
    assert [row.split("\t")[2] for row in rows] == [str(trace.evaluations) for trace in traces]
    assert page.is_hidden("#play")
    assert page.is_visible("noscript p")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [360, 1280, 2560])
def test_fallback_still_is_legible(width: int, player: Player) -> None:
    viewport = {"width": width, "height": 900}
    page = player("chain:9", java_script_enabled=False, viewport=viewport)
    wide = page.locator(".still svg").bounding_box()["width"]
    assert wide >= 780  # as many units as it is drawn in
    assert wide > 0.6 * width
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_fallback_of_the_lab_lists_candidates(tmp_path: Path, open_page: Open) -> None:
    graph = tc.networks.chain(9)
    page = open_page(viz.lab(graph, tmp_path / "lab.html"), java_script_enabled=False)
    assert page.is_visible(".still svg")
    rows = [row.split("\t") for row in page.locator("tbody tr").all_inner_texts()]
    assert all(int(row[1]) - int(row[2]) == len(graph.operators) for row in rows)
    peaks = [float(row[3].split()[0]) for row in rows]
    assert peaks == sorted(peaks)
    for policy in ("store_all", "sqrt_n", "recompute_all"):
        (trace,) = traces_of("chain:9", (policy,))
        assert [title_of(trace), str(trace.evaluations)] in [row[:2] for row in rows]
    text = viz.lab(graph, challenge="5 nodes").html
    assert "Schedules to choose from" not in text  # they would be the answer


# Every text of the page as it is, with its colour and that of what it stands on.
TEXTS = """() => {
    const fill = element => getComputedStyle(element).fill;
    const groups = [...document.querySelectorAll(".still defs g")];
    const shapes = new Map(groups.map(group => [`#${group.id}`, group]));
    const middle = new DOMPoint(0, 0);
    const under = text => {
        const use = text.closest(".node")?.querySelector("use");
        if (use) {
            const own = shapes.get(use.getAttribute("xlink:href") ?? use.href.baseVal);
            return fill([...own.children].filter(
                shape => fill(shape) !== "none" && shape.isPointInFill(middle)).at(-1));
        }
        const rect = [...text.parentElement.children].filter(e => e.localName === "rect").at(-1);
        return fill(rect ?? document.querySelector(".still svg > rect")); };
    const drawn = [...document.querySelectorAll(".still text")].map(
        text => [text.textContent, fill(text), under(text)]);
    const page = getComputedStyle(document.documentElement).backgroundColor;
    const written = [...document.querySelectorAll(".static p, h1, caption, th, td")].filter(
        e => e.checkVisibility()).map(e => [e.textContent, getComputedStyle(e).color, page]);
    return [...drawn, ...written]; }"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("network", ["chain:16", "unet"])
def test_fallback_text_has_contrast(network: str, scheme: Any, theme: str, player: Player) -> None:
    texts = player(network, theme=theme, java_script_enabled=False, color_scheme=scheme).evaluate(
        TEXTS
    )
    labels = {cell.label for cell in overview(traces_of(network, ("sqrt_n",))[0].graph).cells}
    assert labels <= {text for text, _, _ in texts}
    colour = re.compile(r"\d+")
    contrasts = [
        (text, contrast(*(tuple(map(int, colour.findall(ink)[:3])) for ink in inks)))
        for text, *inks in texts
    ]
    assert [(text, ratio) for text, ratio in contrasts if ratio < LEAST_CONTRAST] == []
