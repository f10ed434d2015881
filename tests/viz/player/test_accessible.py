"""Accessibility of the player: texts for screen readers, and colours for every vision."""

from typing import Any

import pytest

import tinyckpt as tc
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import ROWS, expected_looks, go_to, seek, traces_of, until
from tinyckpt.base.units import size_text
from viz.layout.views import views_of
from viz.theme import THEMES, css, legible

pytestmark = pytest.mark.browser
LABELS = """() => [...document.querySelectorAll(".graph .node")].map(
    node => node.getAttribute("aria-label"))"""
# The colours of a row's lower lane at a step, where the present is the end.
LANE = """([row, step]) => {
    const { ledger } = player.panels[0];
    const [high, low] = ledger.lane(ledger.rows.backward[row]);
    const [left, right] = [step, step + 1].map(at => ledger.x(ledger.places[at]));
    const { pixels, width } = ledger.layers.past;
    const found = new Set();
    for (let y = high; y < low; y++) {
        for (const pixel of pixels.subarray(y * width + left, y * width + right)) found.add(pixel);
    }
    return [...found].map(pixel => "#" + [0, 8, 16].map(
        by => (pixel >> by & 255).toString(16).padStart(2, "0")).join("").toUpperCase());
}"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("network", ["chain:9", "residual:4x8"])
def test_every_node_has_an_accessible_state(network: str, player: Player) -> None:
    (trace,) = traces_of(network, ("sqrt_n",))
    page = player([trace], view="graph")
    for step in range(0, len(trace.steps), 5):
        seek(page, step)
        there = set(trace.resident_at(step))
        looks = expected_looks([trace], step)[0]
        cells = views_of(trace.graph)[0].layout.cells
        for cell, label, look in zip(cells, page.evaluate(LABELS), looks, strict=True):
            held = sum(trace.graph.data[index].nbytes for index in there & set(cell.data))
            words = look.replace("*", ", checkpoint")
            assert label.endswith(f": {words}, {size_text(held)}" if held else f": {words}")


def spans_of(trace: tc.Trace, operator: int) -> list[tuple[int, int]]:
    """Return the live intervals of an operator's values, in steps."""
    outputs = set(trace.graph.operators[operator].outputs)
    there = [bool(outputs & set(trace.resident_at(step))) for step in range(len(trace.steps))]
    begins = [i for i, now in enumerate(there) if now and not (i and there[i - 1])]
    ends = [i for i, now in enumerate(there) if now and not [*there, False][i + 1]]
    return list(zip(begins, ends, strict=True))


def span_text(trace: tc.Trace, span: tuple[int, int]) -> str:
    begin, end = span
    return f"{begin} to {'the end' if end == len(trace.steps) - 1 else end}"


def test_table_lists_and_legend_describe_all_bars(player: Player) -> None:
    (trace,) = traces_of("chain:9", ("sqrt_n",))
    page = player([trace], "#step=20")
    summary = page.locator("#as-table summary")
    summary.focus()
    page.keyboard.press("Enter")
    until(page, "() => document.querySelectorAll('#as-table tbody tr').length", 10)
    page.keyboard.press("Tab")  # the table can be scrolled by keys
    assert page.evaluate("() => document.activeElement.getAttribute('role')") == "region"
    names = {operator.name: operator.id for operator in trace.graph.operators}
    for step in (20, 33, 5):
        seek(page, step)
        looks = expected_looks([trace], step)[0]
        evaluated = [
            sum(s == tc.Compute(i) for s in trace.steps[: step + 1]) for i in range(len(names))
        ]
        for name, forward, backward, times, *held in page.evaluate(ROWS):
            pair = [names[name], names[f"b{name[1:]}"]] if name != "l" else [names[name]]
            said = [look.split(",")[0] for look in (forward, backward)][: len(pair)]
            if name == "l":  # the loss stands in the backward row
                said, held = [backward.split(",")[0]], held[1:]
            assert said == [looks[operator].replace("*", "") for operator in pair]
            assert int(times.split(" of ")[0]) == sum(evaluated[operator] for operator in pair)
            for operator, words in zip(pair, held, strict=False):
                spans = [span_text(trace, span) for span in spans_of(trace, operator)]
                assert words == ", ".join(spans)
    # Steps and the program are read by keys.
    go_to(page, "#step=10")
    page.click("#reading summary")
    for name in ("#steps", "#program"):
        page.focus(name)
        for key, tick in (("ArrowDown", 11), ("ArrowDown", 12), ("ArrowUp", 11), ("ArrowUp", 10)):
            page.keyboard.press(key)
            assert page.evaluate("() => player.tick") == tick
        assert page.locator(f"{name} [aria-current='step']").count() == 1
    go_to(page, "#step=-1")
    assert page.locator(".legend:visible").count() == 1
    shown = page.locator(".legend:visible li:visible").all_inner_texts()
    assert {"kept", "recomputed", "gradient", "checkpoint"} <= set(shown)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_result_gradients_have_one_colour(theme: str, player: Player) -> None:
    (trace,) = traces_of("residual:4x8", ("sqrt_n",))
    page = player([trace], theme=theme)
    last = len(trace.steps) - 1
    seek(page, last)
    stays, passes = (
        css(THEMES[theme].staying),
        css(legible(THEMES[theme].gradient, THEMES[theme])),
    )
    results = set(trace.graph.outputs)
    cells = views_of(trace.graph)[0].layout.cells
    seen = set()
    for row, cell in enumerate(page.evaluate("() => player.panels[0].ledger.rows.backward")):
        held = [] if cell < 0 else [i for i in cells[cell].data if trace.graph.data[i].nbytes]
        for step in range(last, -1, -1):
            if there := set(held) & set(trace.resident_at(step)):
                colours = set(page.evaluate(LANE, [row, step]))
                assert (stays in colours) == bool(there & results)
                assert stays in colours or passes in colours
                seen.add(stays in colours)
                break
    assert seen == {True, False}


def test_row_names_align_with_bars_when_text_wraps(player: Player) -> None:
    (trace,) = traces_of("transformer:2x64", ("sqrt_n",))
    page = player([trace], viewport={"width": 1180, "height": 760})
    for step in (len(trace.steps) - 1, 3):
        seek(page, step)
        page.evaluate(
            "() => document.querySelector('.subtitle').append(' and more words'.repeat(9))"
        )
        until(page, "() => player.panels[0].ledger.layers.fits")
        rows: list[Any] = page.evaluate(
            """() => [...document.querySelectorAll(".rail-row")].map(row => {
                const { top, height } = row.getBoundingClientRect();
                const plot = player.panels[0].ledger.plot.getBoundingClientRect();
                return [Number(row.dataset.row), top + height / 2 - plot.top, plot.height]; })"""
        )
        for row, middle, high in rows:
            count = page.evaluate("() => player.panels[0].ledger.rows.count")
            assert middle == pytest.approx(high - (row + 0.5) * high / count, abs=2)


def test_empty_moment_links_to_the_peak_and_its_cure(player: Player) -> None:
    (trace,) = traces_of("resnet50", ("sqrt_n",))
    page = player([trace])
    assert page.is_hidden("#filling-list")
    said = page.text_content("#stop-words")
    assert said == "Nothing is in memory yet."
    assert page.inner_text("#filling-none").startswith(said)
    page.click("text=What fills the peak of 903 MiB?")
    assert page.evaluate("() => player.tick") == trace.peak_step
    assert page.is_hidden("#filling-peak")
    assert page.locator("#filling-list .name").all_inner_texts() == [
        "stage3 \u203a", "stage2 \u203a", "gradients \u203a", "workspace", "loss",
    ]  # fmt: skip
    assert "tinyckpt lab NETWORK -o lab.html" in page.inner_text("#filling .hint")
