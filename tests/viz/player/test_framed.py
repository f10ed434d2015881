"""Player in an iframe of a site that has a theme of its own."""

from pathlib import Path

import pytest

import tinyckpt as tc
import viz
from tests.viz.conftest import Open
from tests.viz.player.conftest import Player
from tests.viz.player.player_driver import until
from tinyckpt.pipeline import gpipe, replay_pipeline

pytestmark = pytest.mark.browser

SITE = """<!doctype html><html data-ready><meta charset="utf-8"><title>A site</title>
<iframe src="{}" style="width: 900px; height: 600px"></iframe>
<script>
let theme = "dark";
const frame = document.querySelector("iframe").contentWindow;
const say = (text) => frame.postMessage({{ theme: (theme = text) }}, "*");
addEventListener("message", ({{ data }}) => data.asks === "theme" && say(theme));
</script></html>"""


def framed(page: Path) -> Path:
    """Write a site with a page in an iframe."""
    path = page.with_name(f"site-of-{page.name}")
    path.write_text(SITE.format(page.name), encoding="utf-8")
    return path


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["player", "pipeline"])
def test_framed_page_follows_the_site_theme(kind: str, tmp_path: Path, open_page: Open) -> None:
    shown = (
        tc.replay(tc.plan(tc.networks.chain(4)))
        if kind == "player"
        else replay_pipeline(gpipe(2, 4))
    )
    page = open_page(framed(viz.player(shown, tmp_path / "a.html")), color_scheme="light")
    frame = page.frames[1]
    scheme = "() => getComputedStyle(document.documentElement).colorScheme"
    until(frame, scheme, "dark")  # as the site says when it is asked
    page.evaluate("() => say('light')")
    until(frame, scheme, "light")
    page.evaluate("() => say('auto')")
    until(frame, "() => document.documentElement.dataset.theme", "auto")
    page.evaluate("() => say('red; }')")
    page.evaluate("() => say('dark')")
    until(frame, scheme, "dark")
    assert frame.evaluate("() => document.documentElement.dataset.theme") == "dark"


def test_framed_page_keeps_its_own_theme(tmp_path: Path, open_page: Open) -> None:
    trace = tc.replay(tc.plan(tc.networks.chain(4)))
    page = open_page(framed(viz.player(trace, tmp_path / "a.html", theme="light")))
    frame = page.frames[1]
    frame.wait_for_selector("html[data-ready]")
    page.evaluate("() => say('dark')")
    assert frame.evaluate("() => document.documentElement.dataset.theme") == "light"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(360, 450), (390, 489), (740, 360)])
def test_controls_do_not_overlap_in_a_small_frame(size: tuple[int, int], player: Player) -> None:
    traces = [tc.replay(tc.plan(tc.networks.chain(16), name)) for name in ("store_all", "sqrt_n")]
    viewport = dict(zip(("width", "height"), size, strict=True))
    page = player(traces, viewport=viewport, has_touch=True, is_mobile=True)
    boxes = page.eval_on_selector_all(
        "footer button, footer select",
        """all => all.filter(one => one.checkVisibility()).map(one => {
            const { left, right, top, bottom } = one.getBoundingClientRect();
            return [left, right, top, bottom]; })""",
    )
    assert len(boxes) >= 10
    for number, (left, right, top, bottom) in enumerate(boxes):
        assert left >= 0
        assert right <= size[0]
        for other in boxes[number + 1 :]:
            apart = right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top
            assert apart, (boxes[number], other)
