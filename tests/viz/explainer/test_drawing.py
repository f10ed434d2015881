"""The explainer's pictures: files, sizes, nothing beyond the edge, the same marks in both forms."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt import viz
from viz.explainer.drawing import HEIGHT, WIDTH, Line, Rect, Text, end_card, picture
from viz.explainer.story import Story, story_of
from viz.theme import THEMES, font

GRAPHS = {
    "chain of 1": lambda: tc.networks.chain(1),
    "chain of 16": lambda: tc.networks.chain(16),
    "chain of 400": lambda: tc.networks.chain(400),
    "transformer": lambda: tc.networks.transformer(12, 128).graph(),
    "ResNet-50": lambda: tc.networks.resnet50(),
    "U-Net": lambda: tc.networks.unet(),
}


@pytest.fixture(scope="module")
def trace() -> tc.Trace:
    return tc.replay(tc.plan(tc.networks.chain(16), "sqrt_n"))


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_gif_of_chain_16_is_800_by_450_and_below_200_kilobytes(
    trace: tc.Trace, theme: str, tmp_path: Path
) -> None:
    path = viz.explainer(trace, tmp_path / "a.gif", theme=theme, command="tinyckpt gif chain:16")
    assert path.stat().st_size < 200_000
    frames = iio.imread(path)
    assert frames.shape == (44, HEIGHT, WIDTH, 3)
    ground = THEMES[theme].background
    assert all((frame[-1, -1] == ground).all() for frame in frames)
    again = viz.explainer(trace, tmp_path / "b.gif", theme=theme, command="tinyckpt gif chain:16")
    assert path.read_bytes() == again.read_bytes()


@pytest.mark.long
def test_still_png_is_the_frame_of_its_stop(trace: tc.Trace, tmp_path: Path) -> None:
    frames = iio.imread(viz.explainer(trace, tmp_path / "a.gif"))
    story = story_of(trace)
    for stop in ("start", "peak", "recomputation", "end"):
        still = iio.imread(viz.explainer(trace, tmp_path / f"{stop}.png", stop=stop))
        assert np.array_equal(still, frames[story.at(stop)]), stop
    card = iio.imread(viz.explainer(trace, tmp_path / "card.png", stop="card"))
    assert np.array_equal(card, frames[-1])


def pictures(story: Story, theme: str) -> list[list[object]]:
    """The marks of four moments and of the end card."""
    colours = THEMES[theme]
    places = {story.at(stop) for stop in ("start", "peak", "first recomputation", "end")}
    shown = [picture(story, place, colours) for place in places]
    shown.append([end_card(story, "tinyckpt gif chain:16 --style explainer", colours)])
    return [[mark for patch in patches for mark in patch.marks] for patches in shown]


def within(xs: Iterable[float], ys: Iterable[float]) -> bool:
    """Whether coordinates lie in the picture."""
    return all(0 <= x <= WIDTH for x in xs) and all(0 <= y <= HEIGHT for y in ys)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("policy", ["sqrt_n", "store_all"])
def test_no_mark_leaves_the_picture_and_no_two_texts_overlap(name: str, policy: str) -> None:
    story = story_of(tc.replay(tc.plan(GRAPHS[name](), policy)))
    for marks in pictures(story, "light"):
        boxes: list[tuple[str, tuple[float, float, float, float]]] = []
        for mark in marks:
            if isinstance(mark, Text):
                wide = font("SemiBold" if mark.bold else "Regular", mark.size).getlength(mark.text)
                left = mark.x - wide / 2 if mark.anchor == "middle" else mark.x
                box = left, left + wide, mark.y - 0.8 * mark.size, mark.y + 0.1 * mark.size
                assert within([left, left + wide], [mark.y, mark.y + 4]), mark
                for other, (a, b, c, d) in boxes:
                    apart = box[1] <= a or b <= box[0] or box[3] <= c or d <= box[2]
                    assert apart, f"{mark.text!r} over {other!r}"
                boxes.append((mark.text, box))
            elif isinstance(mark, Rect):
                assert within([mark.x, mark.x + mark.wide], [mark.y, mark.y + mark.high]), mark
            elif isinstance(mark, Line):
                assert within(*zip(*mark.points, strict=True)), mark


def test_tank_has_room_for_its_words_and_results_their_own_colour() -> None:
    story = story_of(tc.replay(tc.plan(tc.networks.network_from_text("mlp:4x8")[0])))
    for theme in THEMES.values():
        patches = picture(story, len(story.moments) - 1, theme)
        for patch in patches:
            for mark in patch.marks:
                if isinstance(mark, Text) and mark.text.startswith("peak"):
                    # The widest that can be written, as a trace of any size may reach it.
                    wide = font("SemiBold", mark.size).getlength("peak 1023.9 MiB")
                    assert mark.x + wide <= patch.box[0] + patch.box[2]
        fills = [mark.fill for patch in patches for mark in patch.marks if isinstance(mark, Rect)]
        assert fills.count(theme.staying) >= 3  # the tanks of both rows, and the legend
        words = [m.text for patch in patches for m in patch.marks if isinstance(m, Text)]
        assert "result" in words


@pytest.mark.parametrize(
    ("name", "policy", "legend"),
    [
        ("chain of 16", "sqrt_n", ["thrown away", "result"]),
        ("chain of 16", "offload", ["on the host", "result"]),
        ("U-Net", "sqrt_n", ["thrown away", "result", "workspace"]),
    ],
)
def test_legend_names_what_occurs(name: str, policy: str, legend: list[str]) -> None:
    story = story_of(tc.replay(tc.plan(GRAPHS[name](), policy)))
    *_, patch = picture(story, 0, THEMES["light"])
    said = [mark.text for mark in patch.marks if isinstance(mark, Text)]
    usual = ("in memory", "computed again", "gradient, going back")
    assert [words for words in said if words not in usual] == legend


def test_end_card_has_room_for_the_words_of_offloading() -> None:
    story = story_of(tc.replay(tc.plan(GRAPHS["chain of 16"](), "offload")))
    marks = end_card(story, "tinyckpt gif chain:16", THEMES["light"]).marks
    assert "move to host memory" in [mark.text for mark in marks if isinstance(mark, Text)]


@pytest.mark.parametrize(
    ("name", "footer"),
    [
        ("chain of 16", "chain of 16 layers, by tinyckpt"),
        ("chain of 400", "chain of 400 layers, 31 blocks, by tinyckpt"),
        ("U-Net", "unet, 10 blocks, by tinyckpt"),
    ],
)
def test_end_card_says_once_what_was_trained(name: str, footer: str, tmp_path: Path) -> None:
    trace = tc.replay(tc.plan(GRAPHS[name](), "sqrt_n"))
    assert footer in viz.explainer(trace, tmp_path / "card.svg", stop="card").read_text()


def test_first_frame_says_what_each_row_does_and_bars_say_that_they_count_work(
    trace: tc.Trace,
) -> None:
    story = story_of(trace)
    marks = [m for patch in picture(story, 0, THEMES["light"]) for m in patch.marks]
    said = [mark.text for mark in marks if isinstance(mark, Text)]
    assert {"Every layer's output stays", "The others are thrown away"} <= set(said)
    assert said.count("work") == 2


@pytest.mark.parametrize("name", GRAPHS)
def test_svg_has_the_marks_of_the_picture_with_text_as_text(name: str, tmp_path: Path) -> None:
    trace = tc.replay(tc.plan(GRAPHS[name](), "sqrt_n"))
    path = viz.explainer(trace, tmp_path / "a.svg", theme="dark")
    root = ElementTree.fromstring(path.read_text())
    story = story_of(trace)
    marks = [m for p in picture(story, story.at("recomputation"), THEMES["dark"]) for m in p.marks]
    texts = [element.text or "" for element in root if element.tag.endswith("text")]
    assert texts == [mark.text for mark in marks if isinstance(mark, Text)]
    assert path.stat().st_size < 40_000


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": "a.bmp"}, "must end in one of"),
        ({"theme": "blue"}, "unknown theme"),
        ({"scale": 4}, "scale 4"),
        ({"stop": "middle"}, "stop 'middle'"),
        ({"format": "tiff"}, "unknown format"),
    ],
    ids=["suffix", "theme", "scale", "stop", "format"],
)
def test_illegal_options_are_refused_and_nothing_is_written(
    trace: tc.Trace, tmp_path: Path, options: dict[str, object], text: str
) -> None:
    path = tmp_path / str(options.pop("path", "a.gif"))
    with pytest.raises(tc.OptionError, match=text):
        viz.explainer(trace, path, **options)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
