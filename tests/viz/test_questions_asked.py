"""Lesson questions in a real browser: mouse, touch and keyboard, small, large and dark."""

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require
from tests.viz.conftest import Contexts, assert_accessible

DOCS = Path(__file__).parents[2] / "docs"
PAGE = """<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Questions</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'self' file:; style-src 'self' file:">
<link rel="stylesheet" href="page.css"><link rel="stylesheet" href="predict/predict.css">
{}<body><main><h1>Questions</h1>{}</main></body></html>"""
# Colours of the site's theme, which the questions use.
COLOURS = """body {{ background: {0}; color: {1}; --color-background-primary: {0};
 --color-background-secondary: {2}; --color-background-border: {2};
 --color-foreground-primary: {1}; --color-foreground-secondary: {3};
 --color-foreground-muted: #6b6f76; margin: 16px; font-family: sans-serif; }}"""
THEMES = {
    "light": COLOURS.format("#ffffff", "#000000", "#f8f9fb", "#5a5c63"),
    "dark": COLOURS.format("#131416", "#cfd0d0", "#1a1c1e", "#9ca0a5"),
}


@pytest.fixture
def docs(monkeypatch: pytest.MonkeyPatch) -> None:
    require("jupytext")
    monkeypatch.syspath_prepend(DOCS)


@pytest.fixture
def written(docs: None, tmp_path: Path) -> Path:
    """Return a page with all questions, in the colours of the site."""
    import predict

    shutil.copytree(DOCS / "static" / "predict", tmp_path / "predict")
    for script in ("lessons.js", "page.css"):
        source = DOCS / "static" / script
        (tmp_path / script).write_text(
            source.read_text("utf-8") if source.exists() else
            f"{THEMES['light']} @media (prefers-color-scheme: dark) {{ {THEMES['dark']} }}",
            encoding="utf-8",
        )  # fmt: skip
    script = f"const PREDICT = {json.dumps(predict.data())};"
    (tmp_path / predict.SCRIPTS[0]).write_text(script, encoding="utf-8")
    scripts = [f'<script src="{name}" defer></script>' for name in ("lessons.js", *predict.SCRIPTS)]
    questions = [text for texts in predict.ASKED.values() for text in texts]
    place = predict.PLACE.partition("\n\n<div")[2]
    folded = "<details class=answer><summary>?</summary>6</details>"
    body = "".join([*questions, f"<div{place}", folded])
    path = tmp_path / "page.html"
    path.write_text(PAGE.format("".join(scripts), body), encoding="utf-8")
    return path


@pytest.fixture
def open_questions(contexts: Contexts, written: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that opens the page; it must neither complain nor be too wide."""
    said: list[str] = []
    pages = []

    def opened(width: int = 1000, **options: Any) -> Any:
        page = contexts.new_page(viewport={"width": width, "height": 800}, **options)
        pages.append(page)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(written.as_uri())
        return page

    yield opened
    for page in pages:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.close()
    contexts.close_old()
    assert said == []


@pytest.fixture
def page(open_questions: Callable[..., Any]) -> Any:
    return open_questions()


@pytest.mark.browser
def test_peak_question_takes_keys_and_pointer(page: Any) -> None:
    place = page.locator("[data-predict=peak]")
    high, when = place.locator("input").all()
    for _ in range(6):
        high.press("ArrowRight")
    for _ in range(5):
        when.press("ArrowRight")
    assert "6" not in place.locator(".said").inner_text()
    assert place.locator(".truth").count() == 0
    place.get_by_role("button", name="Reveal").press("Enter")
    truth = "The peak is 6 values, at step 5: compute b4. You said 6: right; and step 5: right too."
    assert place.locator(".said").inner_text() == truth
    place.locator("svg").click(position={"x": 10, "y": 5})
    assert "You said 12: 6 values more than there are; and step 0: 5 steps too early." in (
        place.locator(".said").inner_text()
    )


@pytest.mark.browser
def test_placed_checkpoints_are_compared_with_the_policy(page: Any) -> None:
    place = page.locator("[data-predict=place]")
    for name in ("f4", "f7"):
        place.get_by_role("button", name=name, exact=True).press("Enter")
    assert place.locator(".own").inner_text() == "You keep f4, f7."
    assert place.locator("[aria-pressed=true]").all_inner_texts() == ["f4", "f7"]
    assert place.locator(".said").inner_text() == ""
    place.get_by_role("button", name="Reveal").press("Enter")
    said = place.locator(".said").inner_text()
    assert said.startswith("Yours, the line: peak 5 values, 25 evaluations. sqrt_n, filled, keeps")
    assert "f3 and f6: peak 7 values, 23 evaluations. You take 2 values fewer, and 2 " in said
    assert "within your peak, none takes fewer evaluations; the lowest peak of all is 5." in said
    place.get_by_role("button", name="Start again").press("Enter")
    assert place.locator(".said").inner_text() == ""


@pytest.mark.browser
def test_answer_is_printed_only_if_it_was_opened(page: Any, written: Path) -> None:
    answer = page.locator("details.answer")
    styles = (DOCS / "static" / "site.css").read_text("utf-8")
    (written.parent / "page.css").write_text(styles, encoding="utf-8")
    page.reload()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert not answer.is_visible()
    page.evaluate("document.querySelector('details').open = true")
    assert answer.inner_text().split() == ["?", "6"]


@pytest.mark.browser
def test_memory_curve_question_takes_keys(page: Any) -> None:
    place = page.locator("[data-predict=draw]")
    columns = place.locator("[role=slider]")
    assert columns.count() == 18
    assert place.locator("[role=slider][tabindex='0']").count() == 1  # one stop of the tab key
    truth = [int(digit, 36) for digit in "122222232345676543"]
    columns.first.focus()
    for step, count in enumerate(truth):
        for _ in range(count // 5):
            page.keyboard.press("PageUp")
        for _ in range(count % 5):
            page.keyboard.press("ArrowUp")
        assert columns.nth(step).get_attribute("aria-valuetext").startswith(f"{count} value")
        page.keyboard.press("ArrowRight")
    assert place.locator(".own").inner_text() == "Step 17, b1: you say 3 values."
    assert place.locator(".said").inner_text() == ""
    assert place.locator(".truth").count() == 0
    place.get_by_role("button", name="Reveal").press("Enter")
    said = place.locator(".said").inner_text()
    assert "Of 18 steps: 18 right, 0 too high, 0 too low. You drew it." in said
    columns.last.focus()
    page.keyboard.press("ArrowDown")
    assert "17 right, 0 too high, 1 too low; hatched, 1 value total." in (
        place.locator(".said").inner_text()
    )
    assert place.locator(".own").inner_text() == "Step 17, b1: you say 2 values, it is 3."
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")  # not below nothing
    assert columns.first.get_attribute("aria-valuenow") == "0"
    place.get_by_role("button", name="Start again").press("Enter")
    assert place.locator(".truth").count() == 0
    assert columns.nth(5).get_attribute("aria-valuenow") == "0"


@pytest.mark.sampled(1)
@pytest.mark.browser
@pytest.mark.parametrize("finger", [False, True])
def test_memory_curve_question_takes_one_stroke(
    finger: bool, open_questions: Callable[..., Any]
) -> None:
    page = open_questions(360, has_touch=finger, is_mobile=finger)
    place = page.locator("[data-predict=draw]")
    place.scroll_into_view_if_needed()
    box = place.locator("svg").bounding_box()
    # From one corner to the other, with a single move between.
    from_, to = (
        (box["x"] + 30, box["y"] + box["height"] - 5),
        (box["x"] + box["width"] - 3, box["y"] + 11),
    )
    if finger:
        touch = page.context.new_cdp_session(page)
        for kind, points in (("Start", [from_]), ("Move", [to]), ("End", [])):
            at = [{"x": x, "y": y} for x, y in points]
            touch.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": at})
    else:
        page.mouse.move(*from_)
        page.mouse.down()
        page.mouse.move(*to)
        page.mouse.up()
    heights = [
        int(column.get_attribute("aria-valuenow"))
        for column in place.locator("[role=slider]").all()
    ]
    assert heights == sorted(heights)
    assert (heights[0], heights[-1]) == (0, 15)
    assert max(b - a for a, b in pairwise(heights)) <= 2  # no column left out


@pytest.mark.browser
def test_inputs_of_a_gradient_question_takes_clicks(page: Any) -> None:
    place = page.locator("[data-of=reads]")
    button = lambda name: place.get_by_role("button", name=name)  # noqa: E731
    for name in ("e", "s"):
        place.locator("button", has_text=name).and_(place.locator(f"[aria-label='{name}']")).press(
            "Space"
        )
    assert place.locator(".arrows > *").count() == 0
    assert place.locator("[data-state=right]").count() == 0
    button("Reveal").press("Enter")
    said = place.locator(".said").inner_text()
    assert said.startswith(
        "ds is computed from de and e. You found 1 of 2, missed de, and clicked s, which is not "
        "needed."
    )
    states = {
        name: place.locator(f"[data-state={name}]") for name in ("right", "missed", "surplus")
    }
    assert {name: found.all_inner_texts() for name, found in states.items()} == {
        "right": ["e"], "missed": ["de"], "surplus": ["s"],
    }  # fmt: skip
    assert states["missed"].get_attribute("aria-label") == "de, missed"
    assert place.locator(".arrows .read").count() == 2
    page.keyboard.press("Enter")  # the keyboard is on what comes next
    assert place.locator(".asked").inner_text().startswith("2 of 3: ")
    assert place.locator("[aria-pressed=true]").count() == 0
    for name in ("z", "ds"):
        place.locator(f"[aria-label='{name}']").click()
    button("Reveal").click()
    assert "You were right." in place.locator(".said").inner_text()
    assert place.locator(".own").inner_text() == "So far 1 of 2 correct."
    place.locator("[aria-label='x']").click()  # afterwards is too late
    assert place.locator(".own").inner_text() == "So far 1 of 2 correct."
    button("Next").click()
    button("Reveal").click()
    button("Start again").click()
    assert place.locator(".asked").inner_text().startswith("1 of 3: ")


@pytest.mark.browser
def test_recomputation_question_takes_taps(open_questions: Callable[..., Any]) -> None:
    page = open_questions(360, has_touch=True, is_mobile=True)
    place = page.locator("[data-of=again]")
    assert place.locator("[data-state=held]").all_inner_texts() == ["f4", "f8"]
    place.get_by_role("button", name="Reveal").tap()
    said = place.locator(".said").inner_text()
    assert said.startswith("Recomputed before b11: nothing. You were right.")
    place.get_by_role("button", name="Next").tap()
    for name in ("f5", "f6", "f7"):
        node = place.get_by_role("button", name=name, exact=True)
        assert min(node.bounding_box()["width"], node.bounding_box()["height"]) >= 24
        node.tap()
    place.get_by_role("button", name="Reveal").tap()
    said = place.locator(".said").inner_text()
    assert said.startswith("Recomputed before b7: f5, f6, f7. You were right.")


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lesson_questions_are_accessible(
    width: int, scheme: str, open_questions: Callable[..., Any]
) -> None:
    page = open_questions(width, color_scheme=scheme)
    for revealed in (False, True):
        if revealed:
            page.locator("[data-of=reads] [aria-label='s']").click()
            page.locator("[data-predict=place] .nodes button").first.click()
            for button in page.get_by_role("button", name="Reveal").all():
                button.click()
        assert_accessible(page, within=".predict", preload=False)
    # Circles are circles, and within their picture.
    for place in page.locator(".predict").all():
        box = place.bounding_box()
        for mark in place.locator("circle, .nodes button").all():
            own = mark.bounding_box()
            assert own["width"] == pytest.approx(own["height"], abs=1)
            assert own["x"] >= box["x"]
            assert own["x"] + own["width"] <= box["x"] + box["width"]


@pytest.mark.browser
def test_questions_without_scripts_are_text(
    open_questions: Callable[..., Any],
) -> None:
    page = open_questions(java_script_enabled=False)
    for place in page.locator(".predict").all():
        assert "needs scripts" in " ".join(place.inner_text().split())
