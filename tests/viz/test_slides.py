"""Slides and handouts in a browser: nothing overflows or is loaded, and pages print as one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require
from tests.viz.conftest import Contexts, assert_accessible

ROOT = Path(__file__).parents[2]
LESSONS = sorted(path.stem for path in (ROOT / "lessons").glob("[0-9]*.py"))
PAGES = re.compile(rb"/Type\s*/Page\b")  # of a PDF
SLIDES = 14


@pytest.fixture(scope="module")
def slides() -> Iterator[Any]:
    require("jupytext")
    require("markdown_it")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        import slides

        yield slides


@pytest.fixture(scope="module")
def folder(slides: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("slides")
    slides.write_all(written)
    return written


def test_numbers_on_slides_are_counted(slides: Any) -> None:
    facts = slides.facts()
    text = (slides.HERE / "deck.md").read_text("utf-8")
    assert set(re.findall(r"\$(\w+)", text)) == set(facts)
    assert (facts["four_operator"], facts["four_peak"]) == ("b4", 6)
    assert (facts["stored_peak"], facts["stored_evaluations"]) == (16 + 2, 2 * 16 + 1)
    assert (facts["none_peak"], facts["none_evaluations"]) == (3, 16 * 17 // 2 + 17)
    assert (facts["fifty_stored"], facts["fifty_wrapped"], facts["fifty_again"]) == (52, 51, 49)
    assert facts["table"].splitlines()[1] == "| 100 | 201 / 102 | 282 / 21 | 5,151 / 3 |"
    assert (facts["best_peak"], facts["best_segments"]) == (17, "7 to 10")
    assert (facts["core_share"], facts["core_work"]) == ("70.2", "0.5")
    assert str(facts["certificate"]).startswith("optimal: no schedule within 9 nodes")
    assert set(re.findall(r"picture:(\w+)", text)) < set(slides.PICTURES)


@pytest.mark.long
@pytest.mark.browser
def test_slides_fit_a_projector_and_print_as_pages(contexts: Contexts, folder: Path) -> None:
    page = contexts.new_page(viewport={"width": 1024, "height": 768})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url))
    page.goto((folder / "index.html").as_uri())
    assert [url for url in said if not url.startswith(("file:", "data:"))] == []
    page.wait_for_selector("tiny-ckpt .play")
    sections = page.locator("section")
    assert sections.count() == SLIDES
    for width, height in ((1024, 768), (1280, 800), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # Nothing reaches into the line of the number, or out of the slide.
        outside = sections.evaluate_all(
            """slides => slides.filter(slide => {
                const box = slide.getBoundingClientRect();
                const foot = box.bottom - parseFloat(getComputedStyle(slide).paddingBottom);
                const seen = [...slide.querySelectorAll("*")].filter(x => x.checkVisibility());
                return seen.map(x => x.getBoundingClientRect()).some(own => own.bottom > foot + 1
                    || own.right > box.right + 1 || own.left < box.left || own.top < box.top);
            }).map(slide => slide.innerText.split("\\n")[0])"""
        )
        assert outside == [], (width, height)
    page.set_viewport_size({"width": 1024, "height": 768})
    assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
    for key, number in (("ArrowRight", 1), (" ", 2), ("PageUp", 1), ("End", SLIDES - 1)):
        page.keyboard.press(key)
        page.wait_for_function(f"Math.round(scrollY / 768) === {number}")
    assert len(PAGES.findall(page.pdf(prefer_css_page_size=True))) == SLIDES
    assert_accessible(page, minor=True)
    page.close()


@pytest.mark.nightly
@pytest.mark.browser
def test_handouts_are_one_page_without_answers(contexts: Contexts, folder: Path) -> None:
    page = contexts.new_page(viewport={"width": 1024, "height": 768})
    for name in LESSONS:
        path = folder / f"{name}.html"
        page.goto(path.as_uri())
        for paper in ("A4", "Letter"):
            assert len(PAGES.findall(page.pdf(format=paper))) == 1, (name, paper)
        script = (ROOT / "lessons" / f"{name}.py").read_text("utf-8")
        questions = page.locator(".question")
        assert questions.count() == script.count(" = viz.ask("), name
        texts = questions.all_inner_texts()
        assert all(
            re.match(r"(Predict|Challenge)\. .*\?|Challenge\.", text, re.S) for text in texts
        )
        room = questions.evaluate_all(
            "boxes => boxes.map(box => box.clientHeight - box.lastElementChild.offsetTop "
            "+ box.offsetTop - box.lastElementChild.offsetHeight)"
        )
        assert min(room) > 60, name  # pixels to write in
        assert "you said" not in page.content()
        if name == LESSONS[4]:
            assert_accessible(page, minor=True)
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.set_viewport_size({"width": 1024, "height": 768})
    page.close()


@pytest.mark.long
def test_every_picture_is_a_png_and_an_svg(slides: Any, folder: Path) -> None:
    for name in slides.PICTURES:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        svg = (folder / f"{name}.svg").read_text("utf-8")
        assert "<svg" in svg
        assert "<image" not in svg  # vectors alone
    assert {path.stem for path in folder.glob("*.html")} == {"index", *LESSONS}
