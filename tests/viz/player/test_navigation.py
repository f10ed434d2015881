"""Ways through time: what is in sight, ranges, searches, links, by mouse, keyboard and touch."""

from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tests.viz.conftest import Open
from tests.viz.player.player_driver import TICK, traces_of, until, written
from tests.viz.player.test_player_page import NAMES, named
from tinyckpt.schedule import EVALUATIONS, data_title, operator_title

SIGHT = "() => [player.scales.extent.from, player.scales.extent.to]"
WHOLE = "player.scales.extent.isWhole"
FRAME = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def sight(page: Any) -> list[float]:
    """Return what is in sight, once what was asked for is."""
    page.evaluate(FRAME)
    return page.evaluate(SIGHT)


def over(page: Any, share: float, part: str = ".ledger .plot") -> tuple[float, float]:
    """Return a point of the screen that is so far along the axis."""
    box = page.locator(part).first.bounding_box()
    return box["x"] + share * box["width"], box["y"] + box["height"] / 2


def opened(
    tmp_path: Path, open_page: Open, network: str, fragment: str = "", **options: Any
) -> Any:
    return open_page(
        written(tmp_path, traces_of(network, ("sqrt_n",)), "ledger"), fragment, **options
    )


# What is in sight --------------------------------------------------------------------------------


@pytest.mark.browser
def test_the_wheel_zooms_around_the_pointer_and_pans(tmp_path: Path, open_page: Open) -> None:
    page = opened(tmp_path, open_page, "chain:16", "#step=40")
    count = len(traces_of("chain:16", ("sqrt_n",))[0].steps)
    for part in (".ledger .plot", ".strip .plot", "#minimap"):
        page.mouse.move(*over(page, 0.25, part))
        page.mouse.wheel(0, -200)
        low, high = sight(page)
        assert high - low < 0.8 * count
        assert low + 0.25 * (high - low) == pytest.approx(0.25 * count, abs=0.5)
        page.keyboard.down("Shift")
        page.mouse.wheel(0, 30)
        page.keyboard.up("Shift")
        later, end = sight(page)
        assert later > low
        assert end - later == pytest.approx(high - low)
        page.mouse.wheel(0, 2000)
        assert sight(page) == [0, count]
    page.mouse.wheel(0, 100)  # all is in sight: the wheel is the page's
    assert sight(page) == [0, count]
    for _ in range(20):
        page.mouse.wheel(0, -1000)
    low, high = sight(page)
    assert high - low == pytest.approx(4)
    assert page.evaluate(TICK) == 40


@pytest.mark.browser
def test_keys_and_buttons_zoom_and_pan(tmp_path: Path, open_page: Open) -> None:
    page = opened(tmp_path, open_page, "chain:16", "#step=40")
    page.keyboard.press("d")
    assert page.evaluate(WHOLE)
    for _ in range(4):
        page.keyboard.press("w")
    low, high = sight(page)
    assert low < 41 < high
    page.keyboard.press("a")
    before, end = sight(page)
    assert before < low
    assert end - before == pytest.approx(high - low)
    page.keyboard.press("d")
    assert sight(page) == [pytest.approx(low), pytest.approx(high)]
    page.keyboard.press("s")
    wider = sight(page)
    assert wider[1] - wider[0] > high - low
    page.click("#nearer")
    assert sight(page) == [pytest.approx(low), pytest.approx(high)]
    page.focus("#minimap")
    page.keyboard.press("ArrowRight")
    assert sight(page)[0] > low
    page.keyboard.press("Home")
    assert sight(page)[0] == 0
    words = page.get_attribute("#minimap", "aria-valuetext")
    assert words.startswith("steps 0 to ")
    page.click("#whole")
    page.evaluate(FRAME)
    assert page.evaluate(WHOLE)
    assert page.get_attribute("#minimap", "aria-valuetext") == "all of it"


@pytest.mark.browser
def test_a_drag_pans_and_is_no_click(tmp_path: Path, open_page: Open) -> None:
    page = opened(tmp_path, open_page, "chain:16", "#step=40&from=20&to=60")
    page.mouse.move(*over(page, 0.5))
    page.mouse.down()
    page.mouse.move(*over(page, 0.25), steps=4)
    page.mouse.up()
    assert sight(page) == [pytest.approx(30, abs=0.2), pytest.approx(70, abs=0.2)]
    assert page.is_hidden("#node")
    assert page.evaluate(TICK) == 40
    page.mouse.click(*over(page, 0.5))  # which a click still is
    assert page.evaluate(TICK) != 40 or page.is_visible("#node")


@pytest.mark.browser
def test_the_minimap_moves_resizes_and_draws_what_is_in_sight(
    tmp_path: Path, open_page: Open
) -> None:
    page = opened(tmp_path, open_page, "chain:16")
    count = len(traces_of("chain:16", ("sqrt_n",))[0].steps)

    def drag(a: float, b: float) -> list[float]:
        page.mouse.move(*over(page, a, "#minimap"))
        page.mouse.down()
        page.mouse.move(*over(page, b, "#minimap"), steps=3)
        page.mouse.up()
        return [place / count for place in sight(page)]

    assert drag(0.3, 0.6) == pytest.approx([0.3, 0.6], abs=0.01)  # a part anew
    assert drag(0.45, 0.65) == pytest.approx([0.5, 0.8], abs=0.01)  # the part as it is
    assert drag(0.8, 0.95) == pytest.approx([0.5, 0.95], abs=0.01)  # an edge
    assert drag(0.5, 0.2) == pytest.approx([0.2, 0.95], abs=0.01)
    page.mouse.click(*over(page, 0.02, "#minimap"))
    assert sight(page)[0] == 0


@pytest.mark.browser
def test_two_fingers_pinch_and_one_steps_or_pans(tmp_path: Path, open_page: Open) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    page = opened(tmp_path, open_page, "chain:16", "#step=40", **phone)
    devtools = page.context.new_cdp_session(page)

    def touch(kind: str, *shares: float) -> None:
        points = [dict(zip("xy", over(page, share), strict=True), id=i)
                  for i, share in enumerate(shares)]  # fmt: skip
        devtools.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})

    def move(begin: tuple[float, ...], end: tuple[float, ...]) -> None:
        touch("Start", *begin)
        for part in (0.25, 0.5, 0.75, 1):
            touch("Move", *(a + part * (b - a) for a, b in zip(begin, end, strict=True)))
        touch("End")

    move((0.7,), (0.3,))
    assert page.evaluate(TICK) == 41
    move((0.3,), (0.7,))
    assert page.evaluate(TICK) == 40
    assert page.evaluate(WHOLE)
    count = len(traces_of("chain:16", ("sqrt_n",))[0].steps)
    move((0.4, 0.6), (0.3, 0.7))
    low, high = sight(page)
    assert high - low == pytest.approx(count / 2, rel=0.05)
    assert (low + high) / 2 == pytest.approx(count / 2, rel=0.05)
    move((0.3,), (0.5,))
    assert sight(page)[0] == pytest.approx(low - 0.2 * (high - low), rel=0.06)
    assert page.evaluate(TICK) == 40
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for button in page.locator(".near button").all():
        assert min(button.bounding_box()["width"], button.bounding_box()["height"]) >= 24


@pytest.mark.browser
def test_another_axis_shows_the_same_part(tmp_path: Path, open_page: Open) -> None:
    page = opened(tmp_path, open_page, "resnet50", "#step=300&from=200&to=400&loop=250-350")
    page.select_option("#axis", "FLOPs")
    places = page.evaluate("Array.from(player.models[0].places.get('FLOPs'))")
    assert sight(page) == [places[200], places[400]]
    page.select_option("#axis", "step")
    low, high = sight(page)
    assert low == pytest.approx(200, abs=3)
    assert high == pytest.approx(400, abs=3)
    loop = page.evaluate("player.navigation.loop")
    assert loop["from"] == pytest.approx(250, abs=3)
    assert loop["to"] == pytest.approx(350, abs=3)


# A range -----------------------------------------------------------------------------------------


@pytest.mark.browser
def test_a_range_is_taken_and_played_again_and_again(tmp_path: Path, open_page: Open) -> None:
    page = opened(tmp_path, open_page, "chain:16", "#step=40")
    count = len(traces_of("chain:16", ("sqrt_n",))[0].steps)
    for part in (".ledger .plot", ".strip .plot"):
        page.mouse.move(*over(page, 0.5 / count, part))
        page.keyboard.down("Shift")
        page.mouse.down()
        page.mouse.move(*over(page, 5.5 / count, part), steps=3)
        page.mouse.up()
        page.keyboard.up("Shift")
        assert page.evaluate("player.navigation.loop") == {"from": 0, "to": 5}
        assert page.evaluate(TICK) == 40
        page.keyboard.press("l")
        assert page.evaluate("player.navigation.loop") is None
    page.evaluate("player.speed = 240; player.seek(10)")
    page.keyboard.press("[")
    page.evaluate("player.seek(13)")
    page.keyboard.press("]")
    until(page, "location.hash.includes('loop=10-13')")
    assert page.get_attribute("#loop", "aria-pressed") == "true"
    seen = page.evaluate("""async () => { const seen = [];
        const show = player.show.bind(player);
        player.show = (tick) => { show(tick); seen.push(player.tick); };
        player.play();
        while (seen.length < 12) await new Promise(done => setTimeout(done, 10));
        const playing = player.playing; player.pause(); return [playing, seen]; }""")
    assert seen[0]
    assert set(seen[1]) <= {10, 11, 12, 13}
    page.click("#loop")
    assert page.evaluate("player.navigation.loop") is None
    page.evaluate("player.scales.extent.set(20, 30)")
    page.click("#loop")  # what is in sight
    assert page.evaluate("player.navigation.loop") == {"from": 20, "to": 29}


# A search ----------------------------------------------------------------------------------------


@pytest.mark.browser
def test_a_search_marks_and_leads_to_what_it_finds(tmp_path: Path, open_page: Open) -> None:
    (trace,) = traces_of("resnet50", ("sqrt_n",))
    page = opened(tmp_path, open_page, "resnet50", "#step=300")
    graph = trace.graph
    texts = [
        "\n".join(
            [operator_title(graph, o.id), o.scope, o.kind]
            + [data_title(graph, value) for value in o.outputs]
        )
        for o in graph.operators
    ]
    wanted = [i for i, text in enumerate(texts) if "stage3" in text and "conv2d" in text]
    page.keyboard.press("/")
    page.keyboard.type("stage3 conv2d")
    assert page.evaluate("player.navigation.search.items") == wanted
    assert page.inner_text("#search-total") == str(len(wanted))
    evaluated = [
        place for place, step in enumerate(trace.steps)
        if isinstance(step, EVALUATIONS) and step.operator in set(wanted)
    ]  # fmt: skip
    found = "Array.from(player.navigation.search.evaluationsOf(player.models[0]))"
    assert page.evaluate(found) == evaluated
    # Rows with matches are marked, and no others.
    marked = page.evaluate("""() => { const {ledger} = player.panels[0];
        const canvas = ledger.element.querySelector(".found");
        const pixels = canvas.getContext("2d").getImageData(1, 0, 1, canvas.height).data;
        return ledger.rows.names.filter((_, row) => {
            const [high, low] = ledger.lane(ledger.rows.forward[row]);
            return pixels[4 * ((high + low) >> 1) + 3] > 0; }); }""")
    assert marked == [f"stage3/block{i}" for i in (1, 2, 3, 4)]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    second = operator_title(graph, wanted[1])
    assert page.inner_text("#node-title") == second
    assert page.inner_text("#search-total") == f"2 of {len(wanted)}"
    assert page.is_hidden(".path")
    page.keyboard.press("Enter")  # into the group
    assert page.inner_text(".path").split("\n")[:2] == ["resnet50", "stage3/block1"]
    assert page.evaluate("document.activeElement.id") == "search-input"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    last = operator_title(graph, wanted[-1])
    assert page.inner_text("#node-title") == last
    page.focus("#scrub")
    page.keyboard.press("n")
    page.keyboard.press("n")
    assert page.inner_text("#node-title") == second
    page.keyboard.press("Shift+N")
    page.click("#search-list .row >> nth=2")
    third = operator_title(graph, wanted[2])
    assert page.inner_text("#node-title") == third
    page.keyboard.press("Escape")
    assert page.is_hidden("#search")
    assert not page.evaluate("player.navigation.search.active")
    assert page.evaluate(TICK) == 300


@pytest.mark.browser
def test_a_match_out_of_sight_is_brought_there(tmp_path: Path, open_page: Open) -> None:
    page = opened(tmp_path, open_page, "chain:16", "#step=40&from=60&to=80")
    page.keyboard.press("/")
    page.keyboard.type("f3")
    page.keyboard.press("Enter")
    low, high = sight(page)
    assert high - low == pytest.approx(20)
    (trace,) = traces_of("chain:16", ("sqrt_n",))
    steps = [place for place, step in enumerate(trace.steps) if step == tc.Compute(2)]
    assert any(low <= step < high for step in steps)
    page.fill("#search-input", "nothing is called this")
    assert page.inner_text("#search-total") == "0"
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")


@pytest.mark.browser
def test_hostile_names_can_be_searched(tmp_path: Path, open_page: Open) -> None:
    trace = tc.replay(tc.plan(named(NAMES), "store_all"))
    page = open_page(written(tmp_path, [trace], "ledger"))
    page.keyboard.press("/")
    for query in ("<", "(", "[", "\\", ".*", "%", "é"):
        page.fill("#search-input", query)
        page.keyboard.press("ArrowDown")
    assert page.evaluate("window.broken") is None
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# Elsewhere, and links ----------------------------------------------------------------------------


@pytest.mark.browser
def test_an_open_group_says_what_is_active_elsewhere(tmp_path: Path, open_page: Open) -> None:
    (trace,) = traces_of("resnet50", ("sqrt_n",))
    step = next(
        place for place, step in enumerate(trace.steps)
        if isinstance(step, EVALUATIONS)
        and trace.graph.operators[step.operator].scope == "stage4/block4"
    )  # fmt: skip
    page = opened(tmp_path, open_page, "resnet50", f"#step={step}&open=3")
    held = page.evaluate("""() => { const {strip, ledger, step} = player.panels[0];
        const away = strip.blocks(step).filter(({value}) => value >= 0 && ledger.homeOf[value] < 0);
        return away.reduce((sum, {amount}) => sum + amount, 0); }""")
    words = f"also active elsewhere: {held / 2**20:.0f} MiB held now "
    assert page.inner_text(".elsewhere").replace("\n", " ").startswith(words)
    page.click(".elsewhere button")
    assert page.inner_text(".path [aria-current]") == "stage4/block4"
    assert page.is_hidden(".elsewhere button")
    page.click(".path button >> nth=0")
    assert page.is_hidden(".path")


@pytest.mark.browser
def test_back_and_forward_lead_through_what_was_seen(tmp_path: Path, open_page: Open) -> None:
    page = opened(tmp_path, open_page, "resnet50", "#step=300")
    page.keyboard.press("w")
    until(page, "location.hash.includes('from=')")
    zoomed = sight(page)
    page.click(".rail-row >> nth=-1")
    until(page, "location.hash.includes('open=')")
    page.keyboard.press("ArrowRight")
    until(page, "location.hash.startsWith('#step=301')")
    page.click("#filling-list .row >> nth=0")
    until(page, "location.hash.includes('select=')")
    last = page.evaluate("location.hash")
    page.go_back()
    until(page, "location.hash.includes('select=')", False)
    assert page.is_hidden("#node")
    assert page.is_visible(".path")
    page.go_back()
    until(page, "document.querySelector('.path').hidden")
    assert sight(page) == pytest.approx(zoomed)
    page.go_back()
    until(page, WHOLE)
    assert page.evaluate(TICK) == 300
    for _ in range(3):
        page.go_forward()
    until(page, "location.hash", last)
    until(page, "player.tick", 301)
    assert page.is_visible("#node")
    assert sight(page) == pytest.approx(zoomed)
    assert page.is_visible(".path")


@pytest.mark.browser
def test_a_link_leads_to_all_that_was_seen(tmp_path: Path, open_page: Open) -> None:
    traces = traces_of("resnet50", ("sqrt_n", "store_all"))
    path = written(tmp_path, traces, "ledger")
    address = (
        "#step=300&view=graph&open=2,3&select=1.v40&alone=2&from=100.5&to=400&loop=5-9&find=conv2d"
    )
    page = open_page(path, address)
    until(page, "player.address()", address)
    for wrong in (
        "#step=1e9&open=99,-1&select=7.v3&from=a&to=5", "#open=x&select=v99999999&loop=5-&alone=0",
        "#step=3&from=9&to=3&select=c&loop=9999999-3", "#FLOPs=3&from=1e300&to=1e301&alone=9",
    ):  # fmt: skip
        page.evaluate("hash => { location.hash = hash }", wrong)
        page.wait_for_timeout(30)
        assert page.evaluate("player.panels.map(panel => panel.index)") == [0, 0]
        assert page.evaluate("player.navigation.loop") is None
        assert page.evaluate("player.solo") == -1
    assert open_page(path, wrong).is_visible(".ledger")
