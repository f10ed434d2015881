"""Pages of lessons: the player at the top, the answer folded away, questions for the mouse."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import require

DOCS = Path(__file__).parents[2] / "docs"
LESSONS = sorted((DOCS.parent / "lessons").glob("[0-9]*.py"))
PAGE = """<!DOCTYPE html><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'self' file:">
<script src="lessons.js"></script>
<script src="predict-data.js" defer></script><script src="predict.js" defer></script><body>{}"""


@pytest.fixture
def docs(monkeypatch: pytest.MonkeyPatch) -> None:
    require("jupytext")
    monkeypatch.syspath_prepend(DOCS)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_page_begins_with_the_player_and_folds_the_answer(docs: None, path: Path) -> None:
    import pages

    cells = pages.cells_of(path)
    texts = [cell.source for cell in cells]
    title, player, *_ = texts[0].split("\n\n")
    assert title.startswith("# ")
    assert f'src="out/{path.stem[:2]}_player.html"' in player
    assert sum("<iframe" in text for text in texts) == 1
    folded, unfolded = texts.index(pages.FOLDED), texts.index(pages.UNFOLDED)
    (asked,) = (i for i, text in enumerate(texts) if pages.QUESTION in text)
    (told,) = (i for i, text in enumerate(texts) if pages.ANSWER in text)
    assert asked < folded < told < unfolded
    # What follows says what the answer means, and is folded away with it.
    assert all(cell.cell_type == "markdown" for cell in cells[told + 1 : unfolded])
    assert unfolded + 1 == len(cells) or cells[unfolded + 1].cell_type == "code" or (
        "predict" in texts[unfolded + 1]
    )  # fmt: skip


def test_the_data_are_what_python_says(docs: None) -> None:
    import predict

    data = predict.data()
    peak, place = data["peak"], data["place"]
    chain = tc.networks.chain(predict.LAYERS)
    assert max(int(digit, 36) for digit in peak["nodes"]) == predict.LAYERS + 2
    assert len(peak["steps"]) == len(peak["nodes"]) == len(tc.plan(chain).steps)
    trace = tc.replay(tc.plan(tc.networks.chain(9), "retain", keep=["f2", "f7"]))
    number = 2**1 + 2**6
    assert tuple(int(digit, 36) for digit in place["nodes"][number]) == trace.nodes
    assert place["evaluations"][number] == trace.evaluations
    assert len(place["nodes"]) == len(place["evaluations"]) == 512
    policy = place["policy"]
    assert (policy["kept"], policy["evaluations"], max(policy["nodes"])) == (["f3", "f6"], 23, "7")
    assert len(json.dumps(data)) < 40_000


@pytest.fixture
def page(docs: None, browser: Any, tmp_path: Path) -> Iterator[Any]:
    import predict

    for script in ("lessons.js", "predict.js"):
        (tmp_path / script).write_bytes((DOCS / "static" / script).read_bytes())
    script = f"const PREDICT = {json.dumps(predict.data())};"
    (tmp_path / "predict-data.js").write_text(script, encoding="utf-8")
    folded = f"{predict.PEAK}{predict.PLACE}<details class=answer><summary>?</summary>6</details>"
    (tmp_path / "page.html").write_text(PAGE.format(folded), encoding="utf-8")
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto((tmp_path / "page.html").as_uri())
    yield page
    page.close()
    assert said == []


@pytest.mark.browser
def test_a_peak_is_guessed_with_keys_and_with_a_pointer(page: Any) -> None:
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
    place.locator("svg").click(position={"x": 5, "y": 5})
    assert "You said 12: 6 values more than there are; and step 0: 5 steps too early." in (
        place.locator(".said").inner_text()
    )


@pytest.mark.browser
def test_placed_checkpoints_are_held_against_the_policy(page: Any) -> None:
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
def test_print_opens_the_answer_and_closes_it_again(page: Any) -> None:
    is_open = "document.querySelector('details').open"
    assert not page.evaluate(is_open)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(is_open)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not page.evaluate(is_open)
