"""Navigation in time: zoom, pan, ranges and minimap, by mouse, keyboard and touch."""

from pathlib import Path
from typing import Any

import pytest

from tests.viz.conftest import Open
from tests.viz.player.player_driver import TICK, traces_of, until, written

SIGHT = "() => [player.scales.extent.from, player.scales.extent.to]"
WHOLE = "player.scales.extent.isWhole"
FRAME = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def sight(page: Any) -> list[float]:
    """Return the visible range, once a requested change has happened."""
    page.evaluate(FRAME)
    return page.evaluate(SIGHT)


def over(page: Any, share: float, part: str = ".ledger .plot") -> tuple[float, float]:
    """Return the screen position of a fraction of the axis."""
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
def test_wheel_zooms_around_the_pointer_and_pans(tmp_path: Path, open_page: Open) -> None:
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
def test_drag_pans_and_does_not_click(tmp_path: Path, open_page: Open) -> None:
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
def test_minimap_moves_and_resizes_the_visible_range(tmp_path: Path, open_page: Open) -> None:
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
def test_pinch_zooms_and_one_finger_steps_or_pans(tmp_path: Path, open_page: Open) -> None:
    phone = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}
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
def test_axis_change_keeps_the_visible_range(tmp_path: Path, open_page: Open) -> None:
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
def test_range_loops_during_playback(tmp_path: Path, open_page: Open) -> None:
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
