"""Difference of two policies: live values, evaluations and saved bytes, exact to the byte."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import tinyckpt as tc
from tests.conftest import with_fixtures
from tests.viz.conftest import Open, assert_accessible
from tests.viz.player.comparing import Compared, compared, evaluated, only_evaluated
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import POLICIES, TICK, go_to, seek, traces_of, until, written
from tinyckpt.core.schedule import EVALUATIONS
from viz.layout.views import views_of
from viz.node_memory import CellMemory
from viz.scene import counts_nodes, live_of

pytestmark = pytest.mark.browser

TITLES = ["store all", "√n checkpointing", "recompute all"]
HEADS = "Array.from(document.querySelectorAll('#as-table th[scope=col]'), head => head.innerText)"
# By tick: the steps, what only one holds as value and amount, how much both do, and what is live.
HELD = """() => Array.from({length: player.ticks + 1}, (_, i) => { player.show(i - 1);
    const {steps, held, pair} = player.difference;
    const blocks = some => some.map(({value, amount}) => [value, amount]);
    return [steps, ...held.only.map(blocks), held.shared]; })"""
# By place of an axis that counts and cell of the first view: what its bars say.
BARS = """() => { const {along, rows} = player.difference.ledger;
    const {first, places, both, onlyA, onlyB} = along;
    const at = (cell, place) => { let i = first[cell] - 1;
        while (i + 1 < first[cell + 1] && places[i + 1] <= place) i++;
        return i < first[cell] ? [0, 0, 0] : [both[i], onlyA[i], onlyB[i]]; };
    return Array.from({length: player.ticks}, (_, place) =>
        Array.from(along.isHeavy, (_, cell) => at(cell, place))); }"""
ADDED = """() => { const {pair} = player.difference;
    return [pair.a, pair.b].map((model, side) => { const found = {};
        pair.only[side].forEach((only, i) => { const operator = model.targets[model.computes[i]];
            if (only) found[operator] = (found[operator] ?? 0) + 1; });
        return found; }); }"""
STEPS = """() => Array.from({length: player.ticks}, (_, tick) => {
    player.show(tick); return player.difference.steps; })"""


def blocks_of(trace: tc.Trace) -> list[Counter[int]]:
    """Return the number of live blocks per value, before the first step and after each."""
    graph = trace.graph
    memory = CellMemory(graph, {}, 0)
    moments: list[Counter[int]] = [Counter()]
    for step in trace.steps:
        memory.take(step)
        held = zip(memory.owner, memory.holders, strict=True)
        moments.append(Counter(owner for owner, holders in held if holders))
    return moments


def workspace_of(trace: tc.Trace, step: int) -> int:
    """Return the workspace bytes of a step."""
    taken = trace.steps[step] if step >= 0 else None
    evaluates = isinstance(taken, EVALUATIONS)
    return trace.graph.operators[taken.operator].workspace if evaluates else 0


def check_held(traces: list[tc.Trace], page: Any) -> None:
    """Check the memory that only one of two has, at every tick, against Python's two accounts."""
    in_nodes = counts_nodes(traces)
    graph = traces[0].graph
    blocks = [blocks_of(trace) for trace in traces]
    live = [(0, *live_of(trace, in_nodes)) for trace in traces]
    for steps, *only, shared in page.evaluate(HELD):
        own, other = (held[step + 1] for held, step in zip(blocks, steps, strict=True))
        spaces = [
            0 if in_nodes else workspace_of(*pair) for pair in zip(traces, steps, strict=True)
        ]
        amounts = []
        for found, expected, space in zip(
            only, (own - other, other - own), (spaces[0] - spaces[1], spaces[1] - spaces[0]),
            strict=True,
        ):  # fmt: skip
            size = {value: 1 if in_nodes else graph.data[value].spec.nbytes for value in expected}
            wanted = [(value, size[value]) for value in expected.elements()]
            wanted += [(-1, space)] if space > 0 else []
            assert sorted(map(tuple, found)) == sorted(wanted), steps
            amounts.append(sum(amount for _, amount in found))
        for trace_live, step, amount in zip(live, steps, amounts, strict=True):
            assert trace_live[step + 1] == shared + amount


def check_bars(traces: list[tc.Trace], page: Any, index: int = 0) -> None:
    """Check the bars of every cell at every position against the live values of both."""
    in_nodes = counts_nodes(traces)
    graph = traces[0].graph
    cells = views_of(graph)[index].layout.cells
    blocks = [blocks_of(trace) for trace in traces]
    steps = page.evaluate(STEPS)
    for place, (now, bars) in enumerate(zip(steps, page.evaluate(BARS), strict=True)):
        own, other = (held[step + 1] for held, step in zip(blocks, now, strict=True))
        for cell, bar in zip(cells, bars, strict=True):
            if any(graph.data[value].nbytes for value in cell.data):
                sides = own & other, own - other, other - own
                size = [1 if in_nodes else graph.data[value].spec.nbytes for value in cell.data]
                expected = [
                    sum(side[value] * amount for value, amount in zip(cell.data, size, strict=True))
                    for side in sides
                ]
            else:
                held = [
                    {value for value in cell.data if step >= 0 and value in trace.resident_at(step)}
                    for trace, step in zip(traces, now, strict=True)
                ]
                expected = [
                    len(held[0] & held[1]), len(held[0] - held[1]), len(held[1] - held[0]),
                ]  # fmt: skip
            assert bar == expected, (place, cell.id)


def check_added(traces: list[tc.Trace], page: Any) -> None:
    """Check the evaluations that only one of two has."""
    added = page.evaluate(ADDED)
    assert [{int(key): n for key, n in side.items()} for side in added] == [
        dict(side) for side in only_evaluated(traces)
    ]
    counts = [Counter(evaluated(trace)) for trace in traces]
    for operator in counts[0] | counts[1]:
        one, other = (side.get(str(operator), 0) for side in added)
        assert one - other == counts[0][operator] - counts[1][operator]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("network", ["chain:9", "residual:3x8", "unet"])
@pytest.mark.parametrize("axis", ["progress", "evaluation"])
def test_difference_bars_and_bytes_are_exact(network: str, axis: str, player: Player) -> None:
    traces = list(traces_of(network, POLICIES[:2]))
    page = player(traces, f"#{axis}=0&difference=1-2")
    assert page.input_value("#axis") == axis
    check_bars(traces, page)
    if axis == "progress":
        check_held(traces, page)
        check_added(traces, page)


@with_fixtures(6, least=2)
@given(traces=compared())
def test_difference_of_random_schedules_is_exact(traces: Compared, player: Player) -> None:
    page = player(traces, "#progress=0&difference=1-2")
    check_held(traces, page)
    check_bars(traces, page)
    check_added(traces, page)
    page.keyboard.press("x")
    check_held(traces, page)
    check_bars(traces, page)
    page.close()


def opened(player: Player, fragment: str = "", **options: Any) -> Any:
    return player("chain:16", fragment, policies=POLICIES, **options)


def shown(page: Any) -> list[str]:
    """Return the compared pair; empty if there is none."""
    fields = page.locator(".which select")
    return [
        fields.nth(i).evaluate("e => e.selectedOptions[0].textContent")
        for i in range(fields.count())
    ]


@pytest.mark.nightly
def test_compared_pair_is_selected_by_control_keys_and_link(player: Player) -> None:
    page = opened(player, "#step=40&alone=2")
    page.click("#difference")
    assert shown(page) == TITLES[:2]
    assert page.get_attribute("#difference", "aria-pressed") == "true"
    assert page.input_value("#axis") == "progress"
    assert page.locator(".panel >> visible=true").count() == 1
    # Where the policy was that had been open, which is B.
    assert page.evaluate("player.difference.steps[1]") in (40, 39, 38)
    page.keyboard.press("3")
    assert shown(page) == [TITLES[0], TITLES[2]]
    page.locator(".which select").first.select_option("1")
    assert shown(page) == TITLES[1:]
    page.click(".which button")
    assert shown(page) == [TITLES[2], TITLES[1]]
    page.locator(".which select").first.select_option("1")  # the other one: they change places
    assert shown(page) == TITLES[1:]
    until(page, "location.hash.includes('&difference=2-3')")
    address = page.evaluate("location.hash")
    page.locator(".which select").first.blur()  # whose keys are its own
    page.keyboard.press("Escape")
    assert shown(page) == []
    assert page.input_value("#axis") == "step"
    page.keyboard.press("v")
    assert len(shown(page)) == 2
    page.keyboard.press("g")
    assert page.is_visible(".graph")
    assert shown(page) == []
    assert page.is_hidden("#difference")
    again = opened(player, address)
    assert shown(again) == TITLES[1:]
    assert again.evaluate("player.address()") == address
    for wrong in ("1-1", "0-2", "1-4", "1", "x-y", "1-2-"):
        again.evaluate("hash => { location.hash = hash }", f"#step=3&difference={wrong}")
        until(again, "player.tick", 3)
        assert len(shown(again)) == (2 if wrong == "1-2-" else 0), wrong
    again.go_back()
    phone = {"width": 360, "height": 740}
    touched = opened(player, "#step=9", viewport=phone, has_touch=True)
    touched.tap("#tools-open")
    touched.keyboard.press("Escape")  # closes what was opened last
    assert touched.get_attribute("#tools-open", "aria-expanded") == "false"
    touched.tap("#tools-open")
    touched.tap("#difference")
    assert shown(touched) == TITLES[:2]
    assert touched.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(360, 740), (1280, 800), (2560, 1440)])
def test_difference_fits_the_screen(size: tuple[int, int], player: Player) -> None:
    width, height = size
    viewport = {"width": width, "height": height}
    page = player("unet", "#progress=90&difference=1-2", policies=POLICIES[:2], viewport=viewport)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width > 360:
        assert page.evaluate("document.documentElement.scrollHeight") <= height
        main = "(e => e.scrollHeight - e.clientHeight)(document.querySelector('main'))"
        assert page.evaluate(main) <= 0
        assert page.is_visible(".legend.of-difference")
        assert page.is_hidden(".legend.of-policies")


def test_difference_is_told_in_words_bars_lists_and_table(player: Player) -> None:
    page = opened(player, "#progress=17&difference=1-2")
    plot = page.locator(".difference .ledger .plot").bounding_box()
    x, row = plot["x"] + plot["width"] * 10 / 42, plot["height"] / 17
    y = plot["y"] + plot["height"] - 1.65 * row  # f2, when f11 is computed
    page.mouse.move(x, y)
    lines = page.locator("#tip div").all_inner_texts()
    assert lines == ["f2", "only in A store all: 1 value"]
    page.mouse.click(x, y)
    facts = page.inner_text("#node-facts").split("\n")
    assert page.inner_text("#node-title") == "f2"
    for term in ("now in A", "now in B", "why in A", "why in B", "shape"):
        assert term in facts
    page.mouse.click(x, plot["y"] + 0.4 * row)  # nothing is there: time goes there
    assert page.evaluate(TICK) == 9 or page.evaluate(TICK) == 10
    strip = page.locator(".difference .strip .plot").bounding_box()
    page.mouse.click(strip["x"] + strip["width"] * 30.5 / 42, strip["y"] + 40)
    assert page.evaluate(TICK) == 30
    with page.expect_download() as download:
        page.click("#svg")
    assert "A store all and B √n checkpointing" in Path(download.value.path()).read_text(
        encoding="utf-8"
    )
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("f11")
    page.keyboard.press("Enter")
    assert page.inner_text("#node-title").startswith("f11")
    page.keyboard.press("Escape")
    # Words, numbers and the table.
    go_to(page, "#progress=17&difference=1-2")
    said = page.inner_text(".difference > .subtitle >> nth=0")
    assert said == (
        "B against A: peak 9 instead of 18 values (\u22129, \u221250 %), "
        "42 evaluations instead of 33 (+9)"
    )
    assert "aligned at each operator's first evaluation" in page.inner_text(".how")
    page.keyboard.press("p")
    assert page.inner_text(".difference .number").split() == ["A", "18", "B", "9", "\u22129"]
    assert page.inner_text("#filling-title") == "In memory in only one"
    assert page.inner_text("#filling-total") == "A 9, B 0 values"
    rows = page.locator("#filling-list .row").all_inner_texts()
    assert rows[0].split()[:4] == ["f1", "1", "only", "A:"]
    page.select_option("#axis", "step")
    assert page.inner_text(".how") == "steps of each, from its own beginning"
    page.select_option("#axis", "progress")
    seek(page, 30)
    assert page.evaluate("[...player.difference.caption.children].map(line => line.textContent)")[
        0
    ] == ("A: waits for B")
    label = page.get_attribute(".rail-row[data-row='0']", "aria-label")
    assert label == "f1: forward only in A 1; backward in neither"
    page.click("#as-table summary")
    until(page, HEADS, ["row", "forward", "backward", "evaluated in A", "in B"])
    last = page.locator("#as-table tbody tr").last.inner_text().splitlines()
    assert last == ["f1", "only in A 1", "in neither", "1 of 2", "1 of 3"]
    page.keyboard.press("Escape")
    alone = ["evaluated", "forward held at steps", "backward held at steps"]
    until(page, f"{HEADS}.slice(3)", alone)
    assert page.inner_text("#filling-title") == "What is in memory now"


def test_equal_peaks_and_equal_values_are_said_to_be_equal(player: Player) -> None:
    # Gradients fill the peak of this network, at its end, under either policy.
    traces = traces_of("mlp:6x64", ("store_all", "sqrt_n"))
    assert traces[0].peak_bytes == traces[1].peak_bytes
    page = player(traces, "#step=1&difference=1-2")
    page.keyboard.press("End")
    said = page.inner_text(".difference > .subtitle >> nth=0")
    assert said == ("B against A: the same peak of 216 KiB, 61 evaluations instead of 52 (+9)")
    assert page.inner_text(".difference .strip .of-line") == "both peaks 216 KiB"
    assert page.inner_text("#filling-none").startswith("The same values are in memory in both. ")
    page.keyboard.press("Home")
    assert page.inner_text("#filling-none").startswith("Nothing is in memory yet. ")


@pytest.mark.nightly
def test_only_traces_of_one_graph_are_compared(player: Player) -> None:
    chain = traces_of("chain:4", ("sqrt_n", "store_all"))
    other = traces_of("mlp:3x8", ("sqrt_n",))
    page = player([chain[0], *other], "#step=3&difference=1-2")
    assert page.is_hidden("#difference")
    assert shown(page) == []
    page.keyboard.press("v")
    assert shown(page) == []
    mixed = player([chain[0], *other, chain[1]])
    assert "progress" not in mixed.locator("#axis option").all_inner_texts()
    mixed.keyboard.press("v")
    assert mixed.input_value("#axis") == "progress"
    assert mixed.locator(".which select >> nth=0 >> option").count() == 2
    mixed.keyboard.press("2")
    assert shown(mixed) == ["√n checkpointing", "store all"]
    mixed.keyboard.press("0")
    assert "progress" not in mixed.locator("#axis option").all_inner_texts()
    again = tc.networks.network_from_text("chain:4")[0]  # the same graph, built once more
    twice = [chain[0], tc.replay(tc.plan(again, "store_all"))]
    page = player(twice, "#progress=3&difference=1-2")
    check_held(twice, page)
    alone = player(chain[:1])
    assert alone.is_hidden("#difference")


@pytest.mark.nightly
@pytest.mark.parametrize("network", ["resnet50", "transformer:2x64"])
def test_expanded_groups_are_part_of_links(network: str, tmp_path: Path, open_page: Open) -> None:
    traces = list(traces_of(network, ("store_all", "sqrt_n")))
    path = written(tmp_path, traces, "ledger")
    page = open_page(path, "#progress=300&difference=1-2")
    page.locator(".difference .rail-row:has-text('\u203a')").first.click()
    assert page.is_visible(".difference .path")
    check_bars(traces, page, page.evaluate("player.difference.index"))
    until(page, "location.hash.includes('open=')")
    again = open_page(path, page.evaluate("location.hash"))
    assert again.evaluate("player.difference.index") == page.evaluate("player.difference.index")
    page.keyboard.press("Escape")
    assert page.is_hidden(".difference .path")


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("fragment", ["#progress=20&difference=1-2", "#step=20&alone=2"])
def test_difference_is_accessible(fragment: str, width: int, theme: Any, player: Player) -> None:
    size = {"width": width, "height": 800}
    page = opened(player, fragment, color_scheme=theme, viewport=size)
    page.click("#as-table summary")
    page.wait_for_selector("#as-table tbody tr")
    assert_accessible(page, minor=True)
