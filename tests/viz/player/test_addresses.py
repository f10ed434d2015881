"""Memory by address in the player and the lab: no two live values overlap; what the page says."""

from collections import Counter
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given

import tinyckpt as tc
from tests.conftest import with_fixtures
from tests.viz.conftest import assert_accessible
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import go_to, traces_of, until
from tests.viz.test_host import moved
from tinyckpt.codegen.arena import ALIGNMENT, allocations_of
from tinyckpt.codegen.in_place import InPlace
from viz.scene import counts_nodes
from viz.theme import THEMES, css

pytestmark = pytest.mark.browser
ADDRESS = "&y=address"
# Rectangles: value, first step, end, amount and offset; the buffer's height.
PLACED = """() => { const { rectangles, height } = player.panels[0].strip.placed;
    return [rectangles.map(({ value, begin, end, amount, offset }) =>
        [value, begin, end, amount, offset]), height]; }"""
# At the middle of each rectangle that is large enough to be seen, and of each hole at the peak:
# whether a value is there, and the colours around it.
PIXELS = """() => { const { strip } = player.panels[0], { past, ratio } = strip.layers;
    const colours = (x, y) => { const found = new Set();
        for (let i = -4; i <= 4; i++) for (let k = -4; k <= 4; k++)
            found.add(past.pixels[(y + k) * past.width + x + i]);
        return [...found].map(pixel => "#" + [0, 8, 16].map(
            by => (pixel >> by & 255).toString(16).padStart(2, "0")).join("").toUpperCase()); };
    const y = at => past.height - Math.round(strip.scale.at(at) * strip.room);
    const first = step => strip.shown.findIndex(at => at >= step);
    return strip.placed.rectangles.flatMap(({ band, begin, end, amount, offset }) => {
        const left = first(begin), right = first(end) < 0 ? past.width : first(end);
        const [top, bottom] = [y(offset + amount), y(offset)];
        return right - left < 14 || bottom - top < 14 ? [] :
            [[band, colours((left + right) >> 1, (top + bottom) >> 1)]]; }); }"""
LIMITS = """() => [...document.querySelectorAll(".strip .limit span")].map(
    span => span.textContent)"""
NOTE = "() => document.querySelector('.panel:not(.compact) .note').textContent"


def short(nbytes: float) -> str:
    """Return bytes with three digits, as the page's axis has them."""
    units = iter(("B", "KiB", "MiB", "GiB"))
    unit = next(units)
    while nbytes >= (1024 if unit == "B" else 999.5):
        nbytes, unit = nbytes / 1024, next(units)
    digits = 0 if unit == "B" else max(0, 3 - len(str(int(nbytes))))
    return f"{nbytes:.{digits}f} {unit}"


def overlapping(rectangles: list[list[int]]) -> list[tuple[list[int], list[int]]]:
    """Return the pairs that share an address at a step."""
    return [
        (one, other)
        for one, other in combinations(rectangles, 2)
        if max(one[1], other[1]) < min(one[2], other[2])
        and max(one[4], other[4]) < min(one[4] + one[3], other[4] + other[3])
    ]


def checked_placement(page: Any, trace: tc.Trace) -> None:
    """Check what a page draws against Python's account of the same schedule."""
    rectangles, height = page.evaluate(PLACED)
    plan = tc.arena(trace.schedule)
    in_nodes = counts_nodes([trace])
    unit = trace.graph.data[-1].nbytes if in_nodes else 1
    rounded = 1 if in_nodes else ALIGNMENT
    assert overlapping(rectangles) == []
    assert all(offset % rounded == 0 for *_, offset in rectangles)
    tops = [offset + -(-amount // rounded) * rounded for *_, amount, offset in rectangles]
    assert height == max(tops, default=0)
    if in_nodes:
        assert height >= trace.peak_nodes
    else:
        assert height >= plan.lower_bound >= trace.peak_bytes
    if not any(isinstance(step, InPlace) for step in trace.steps):
        expected = Counter(
            (-1 if each.kind == "workspace" else each.storage, each.start, each.stop, each.nbytes)
            for each in allocations_of(trace.schedule)
            if each.nbytes
        )
        assert Counter((v, b, e, amount * unit) for v, b, e, amount, _ in rectangles) == expected
        return
    # In place, a result is where its operand was.
    at = {(value, begin): offset for value, begin, *_, offset in rectangles}
    ended = {end: (amount, offset) for value, _, end, amount, offset in rectangles if value >= 0}
    for position, step in enumerate(trace.steps):
        if isinstance(step, InPlace) and position in ended:
            (output,) = trace.graph.operators[step.operator].outputs
            assert at[output, position] == ended[position][1]


@pytest.mark.long
@with_fixtures(10, least=2)
@given(trace=moved())
def test_random_schedules_never_overlap_in_address(trace: tc.Trace, player: Player) -> None:
    page = player([trace], f"#step=-1{ADDRESS}")
    checked_placement(page, trace)
    page.close()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("network", ["chain:16", "resnet18:1", "unet", "transformer:2x64"])
@pytest.mark.parametrize("policy", ["store_all", "sqrt_n"])
def test_networks_never_overlap_and_waste_little(network: str, policy: str, player: Player) -> None:
    (trace,) = traces_of(network, (policy,))
    page = player([trace], f"#step=-1{ADDRESS}")
    checked_placement(page, trace)
    height = page.evaluate(PLACED)[1]
    assert height <= 1.02 * page.evaluate("() => player.models[0].peaks.at(-1)")
    reserved = tc.reserved(trace.schedule).nbytes
    said = page.evaluate(NOTE)
    assert said.startswith("Buffer 1.0")
    assert said.endswith(f" PyTorch's allocator would reserve {short(reserved)}.")


def test_in_place_results_stay_where_their_operand_was(player: Player) -> None:
    graph = tc.networks.network_from_text("mlp:4x16")[0]
    trace = tc.replay(tc.plan(graph, "sqrt_n", in_place=True))
    assert any(isinstance(step, InPlace) for step in trace.steps)
    checked_placement(player([trace], f"#step=-1{ADDRESS}"), trace)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_rectangles_have_the_colours_of_the_stack_and_holes_are_empty(
    theme: str, player: Player
) -> None:
    (trace,) = traces_of("unet", ("sqrt_n",))
    page = player([trace], f"#step={len(trace.steps) - 1}{ADDRESS}", theme=theme)
    page.evaluate("() => document.querySelector('.strip').style.flex = '0 0 600px'")
    page.wait_for_timeout(200)
    colours = THEMES[theme]
    found = page.evaluate(PIXELS)
    assert {band for band, _ in found} >= {0, 1}  # kept, and computed again
    for band, inside in found:
        if band == 0:
            assert inside == [css(colours.kept)]
        if band == 1:  # hatched
            assert set(inside) == {css(colours.recomputed), css(colours.kept)}
    panel, live = page.evaluate(
        """() => { const { strip, model } = player.panels[0], { past } = strip.layers;
        const x = strip.shown.indexOf(model.peakStep), at = [];
        for (let y = past.height - Math.round(strip.room); y < past.height; y++)
            at.push(past.pixels[y * past.width + x]);
        const early = strip.shown.indexOf(2), own = [];
        for (let y = past.height - Math.round(strip.room); y < past.height; y++)
            own.push(past.pixels[y * past.width + early]);
        return [own.filter(pixel => pixel === strip.ink.panel).length / own.length,
            at.filter(pixel => pixel !== strip.ink.panel).length / at.length]; }"""
    )
    assert panel > 0.8  # at the beginning nearly all of the buffer is a hole
    assert live > 0.95  # at the peak hardly anything is


def test_choice_labels_hover_details_and_address(player: Player) -> None:
    (trace,) = traces_of("residual:8x8", ("sqrt_n",))
    page = player([trace], f"#step={trace.peak_step}")
    assert "Memory in blocks" in page.get_attribute(".strip canvas", "aria-label")
    assert page.is_hidden(".note")
    page.select_option("#scale", "address")
    height = page.evaluate(PLACED)[1]
    peak = trace.peak_bytes
    sizes = [short(peak), short(height)]
    assert sizes[0] != sizes[1]  # 4-byte values, rounded up
    assert set(page.evaluate(LIMITS)) == {f"peak {sizes[0]}", f"buffer {sizes[1]}"}
    assert f"Memory by address in {sizes[1]}" in page.get_attribute(".strip canvas", "aria-label")
    assert page.inner_text(".note").startswith(
        f"Buffer {height / peak:.2f} \u00d7 peak of live bytes"
    )
    until(page, f"() => location.hash.endsWith('{ADDRESS}')")
    assert_accessible(page)
    # Hovering names a value, its bytes, offset and steps; a click chooses it for the card.
    value, begin, end, amount, offset = max(
        (each for each in page.evaluate(PLACED)[0] if each[0] >= 0 and each[1] <= trace.peak_step),
        key=lambda each: (each[2] - each[1]) * each[3],
    )
    x, y = page.evaluate(
        """([step, amount]) => { const { strip } = player.panels[0];
        const box = strip.plot.getBoundingClientRect(), x = strip.shown.indexOf(step);
        return [box.left + (x + 0.5) * box.width / strip.columns.length,
            box.bottom - strip.scale.at(amount) * (box.height - strip.head)]; }""",
        [(begin + end) // 2, offset + amount / 2],
    )
    page.mouse.move(x, y)
    tip = page.inner_text("#tip").splitlines()
    at = short(offset)
    assert tip[0] == page.evaluate(f"() => player.models[0].graph.data.names[{value}]")
    assert tip[1].startswith(f"{short(amount)} at offset {at}, ")
    assert f"from step {begin} to step {end - 1}" in tip[2]
    page.mouse.click(x, y)
    assert page.evaluate("() => player.chosen.value") == value
    facts = page.inner_text("#node-facts").splitlines()
    assert facts[facts.index("offset") + 1].startswith(f"{at} from step {begin}")
    # A hole is no value.
    page.mouse.move(
        x, page.evaluate("document.querySelector('.strip .plot').getBoundingClientRect().top + 24")
    )
    assert page.inner_text("#tip").startswith("step ")
    # Keys: the next axis is linear again, and the address of the page forgets it.
    page.keyboard.press("y")
    assert page.input_value("#scale") == "linear"
    assert page.is_hidden(".note")
    until(page, "() => location.hash.includes('y=')", False)
    go_to(page, f"#step=3{ADDRESS}")
    assert page.input_value("#scale") == "address"
    page.keyboard.press("g")
    assert page.is_hidden(".note")


def test_two_policies_share_a_scale_and_their_difference_has_no_addresses(player: Player) -> None:
    traces = traces_of("residual:4x8", ("store_all", "sqrt_n"))
    page = player(traces, f"#step=20{ADDRESS}")
    heights = page.evaluate("() => player.panels.map(panel => panel.strip.placed.height)")
    assert page.evaluate("() => player.panels.map(panel => panel.strip.highest)") == [
        max(heights), max(heights),
    ]  # fmt: skip
    notes = page.locator(".note").all_inner_texts()
    assert len(notes) == 2
    assert all(note.startswith("Buffer 1.0") for note in notes)
    page.keyboard.press("v")
    assert page.locator(".note:visible").count() == 0
    assert page.evaluate("() => player.difference.strip.placed") is None
    page.keyboard.press("v")
    page.keyboard.press("1")
    assert page.locator(".note:visible").count() == 1


@pytest.mark.long
def test_too_many_allocations_have_no_addresses_and_the_page_says_so(player: Player) -> None:
    (trace,) = traces_of("chain:160", ("recompute_all",))
    count = len(allocations_of(trace.schedule))
    assert count > 10_000
    page = player([trace], f"#step=100{ADDRESS}")
    assert page.evaluate(NOTE).replace("\u2009", "") == (
        f"No addresses: {count} allocations, of which at most 10000 are placed."
    )
    assert page.evaluate("() => player.panels[0].strip.placed") is None
    assert "Memory in blocks" in page.get_attribute(".strip canvas", "aria-label")
    assert any("lower bound" in text for text in page.evaluate(LIMITS))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 800, 1280])
def test_page_by_address_fits_and_is_accessible(width: int, scheme: Any, player: Player) -> None:
    traces = traces_of("residual:4x8", ("store_all", "sqrt_n", "recompute_all"))
    page = player(
        traces, f"#step=20{ADDRESS}", viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.is_visible(".panel:not(.compact) .note")
    assert page.evaluate("() => player.visible[0].strip.plot.clientHeight") >= 40
    assert_accessible(page)
