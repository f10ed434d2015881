"""Lesson pages: the player first, answers folded, and the data of questions."""

import json
from pathlib import Path

import pytest

import tinyckpt as tc
from tests.conftest import require

DOCS = Path(__file__).parents[2] / "docs"
LESSONS = sorted((DOCS.parent / "lessons").glob("[0-9]*.py"))


@pytest.fixture
def docs(monkeypatch: pytest.MonkeyPatch) -> None:
    require("jupytext")
    monkeypatch.syspath_prepend(DOCS)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_lesson_page_starts_with_the_player_and_hides_the_answer(docs: None, path: Path) -> None:
    import folding
    import pages

    cells = pages.cells_of(path)
    texts = [cell.source for cell in cells]
    title, player, *_ = texts[0].split("\n\n")
    assert title.startswith("# ")
    assert f'src="out/{path.stem[:2]}_player.html"' in player
    # A challenge has a lab besides, in sight before it is answered.
    pages_shown = [i for i, text in enumerate(texts) if "<iframe" in text]
    labs = [f'src="out/{path.stem[:2]}_lab.html"'] * path.read_text("utf-8").count("viz.lab(")
    assert len(pages_shown) == 1 + len(labs)
    assert all(lab in texts[pages_shown[1]] for lab in labs)
    asked = [i for i, cell in enumerate(cells) if folding.question_of(cell) is not None]
    folded = [i for i, text in enumerate(texts) if text == folding.FOLDED]
    *unfolded, end = [i for i, text in enumerate(texts) if text == folding.UNFOLDED]
    # The assertions come last, folded.
    assert end == len(texts) - 1
    assert texts[end - 2] == folding.CHECKED
    assert "\nassert " in f"\n{texts[end - 1]}"
    assert len(asked) == len(folded) == len(unfolded) >= 1
    for question, first, last in zip(asked, folded, unfolded, strict=True):
        # Between them, the question once more, for the mouse.
        assert all(text.startswith('<div class="predict"') for text in texts[question + 1 : first])
        (told,) = (i for i in range(first, last) if "you said {" in texts[i])
        # What follows says what the answer means, and is folded away with it.
        assert all(cell.cell_type == "markdown" for cell in cells[told + 1 : last])
        after = texts[last + 1]
        expected = after == folding.CHECKED or "**" in after or "predict" in after
        assert cells[last + 1].cell_type == "code" or expected
    assert all("you said {" not in text for text in texts[: folded[0]])
    last = asked[-1]
    assert all(folding.ASKED.search(texts[i + 1]) and i + 1 == last for i in pages_shown[1:])


def test_interactive_questions_have_their_place(docs: None) -> None:
    import folding
    import pages
    import predict

    placed: list[str] = []
    for path in LESSONS:
        texts = [cell.source for cell in pages.cells_of(path)]
        placed += [text for text in texts if "data-predict=" in text]
        for (lesson, name), questions in predict.ASKED.items():
            if lesson == path.stem:
                at = texts.index(questions[0])
                found = folding.ASKED.search(texts[at - 1])
                assert found is not None
                assert found[1] == name
    assert len(placed) == sum(map(len, [*predict.ASKED.values(), *predict.LAST.values()])) == 5
    kinds = {kind for kind in predict.KINDS if any(f'predict="{kind}"' in text for text in placed)}
    assert kinds == set(predict.KINDS) == set(predict.data())


def test_question_data_equal_python(docs: None) -> None:
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


def test_question_answers_equal_python(docs: None) -> None:
    import predict

    data = predict.data()
    trace = tc.replay(tc.plan(tc.networks.chain(predict.WRAPPED), "retain", keep=[]))
    drawn = data["draw"]
    assert len(drawn["nodes"]) == len(drawn["steps"]) == trace.evaluations
    assert max(int(digit, 36) for digit in drawn["nodes"]) == trace.peak_nodes
    again = data["needs"]["again"]["rounds"]
    layers, segments = predict.SEGMENTS
    planned = tc.replay(tc.plan(tc.networks.chain(layers), "sqrt_n", segments=segments))
    assert {question["target"]: question["right"] for question in again} == {
        "b11": [], "b7": ["f5", "f6", "f7"], "b6": [],
    }  # fmt: skip
    # The other segment that is not there is as long: all that is recomputed has been asked for.
    assert planned.recomputations == 2 * len(again[1]["right"])
    reads = {
        question["target"]: set(question["right"]) for question in data["needs"]["reads"]["rounds"]
    }
    assert reads == {"ds": {"e", "de"}, "dz": {"z", "ds"}, "dw": {"x", "dz"}}
    for questions in data["needs"].values():
        names = {name for column in questions["columns"] for name in column}
        for question in questions["rounds"]:
            ends = {name for edge in question["edges"] for name in edge}
            assert {question["target"], *question["right"], *question["held"], *ends} <= names
