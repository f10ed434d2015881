"""The pages for teachers: plans add up, the table is complete, and exam answers are what runs."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.conftest import require
from tests.readme import commands
from tinyckpt.cli.main import JOBS
from tinyckpt.cli.parser import make_parser

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGE = (DOCS / "teaching.md").read_text(encoding="utf-8")
EXAM = (DOCS / "exam.md").read_text(encoding="utf-8")
QUESTIONS = re.findall(r"^### (\d+)\. .*? \((\d+) points\)\n(.*?)^</details>$", EXAM, re.M | re.S)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[0])
def test_exam_answer_is_what_its_code_prints(
    question: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked, answer = question[2].split('<details class="answer" data-nosnippet>')
    ((code, shown),) = re.findall(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", answer, re.M | re.S
    )
    exec(code, {"__name__": "exam"})
    assert capsys.readouterr().out == shown
    answers = re.findall(r"\*\*(.+?)\*\*", answer.partition("```")[0])
    assert answers
    for bold in answers:
        assert re.search(rf"(?<![\w.]){re.escape(bold)}(?![\w.])", shown), bold
        assert f"**{bold}**" not in asked


def test_exam_has_forty_points_in_order() -> None:
    assert [int(number) for number, _, _ in QUESTIONS] == list(range(1, 15))
    assert len(QUESTIONS) == EXAM.count("\n### ") == EXAM.count("<details") == 14
    assert sum(int(points) for _, points, _ in QUESTIONS) == 40


def test_table_has_every_lesson_and_part(monkeypatch: pytest.MonkeyPatch) -> None:
    require("jupytext")
    monkeypatch.syspath_prepend(DOCS)
    import pages
    import teaching

    numbers = [int(path.stem[:2]) for path in pages.lessons()]
    assert list(teaching.LESSONS) == numbers
    parts = sorted(int(path.name[-1]) for path in (ROOT / "course").glob("part_?"))
    assert {*teaching.MISTAKES} >= {*parts}
    rows = teaching.table().splitlines()[2:]
    assert len(rows) == len(numbers) + len(parts)
    assert all(re.fullmatch(r"\| [^|]+ (\| [^|]+ ){2}\| \d+ (\| [^|]+ )\|", row) for row in rows)
    for number, lesson in teaching.LESSONS.items():
        needed = [int(text) for text in re.findall(r"\b\d+\b", lesson.needs)]
        assert all(1 <= other < number for other in needed), number


def test_plans_add_up_to_their_minutes() -> None:
    plans = re.findall(r"^### (.*?) minutes:.*?\n(.*?)(?=^#)", PAGE, re.M | re.S)
    assert [name for name, _ in plans] == ["45", "90", "3 \u00d7 90"]
    for name, plan in plans:
        rows = re.findall(r"^\| (\d+) \| (.*?) \|", plan, re.M)
        days: list[int] = []
        for minutes, what in rows:
            if not days or re.match(r"\*\*(Second|Third) day", what):
                days.append(0)
            days[-1] += int(minutes)
        assert days == [int(name.split()[-1])] * (3 if "\u00d7" in name else 1)
    for number in map(int, re.findall(r"question (\d+)", PAGE)):
        assert 1 <= number <= len(QUESTIONS)
    # Minutes of homework are those of the parts' pages.
    heads = [(ROOT / f"course/part_{part}/README.md").read_text("utf-8") for part in (1, 2, 3)]
    minutes = [int(re.findall(r"\*\*Minutes:\*\*\s(\d+)", head)[0]) for head in heads]
    assert f"parts 1 and 2 of the course ({minutes[0] + minutes[1]} minutes)" in PAGE
    assert f"part 3 ({minutes[2]}) after" in PAGE
    for number in re.findall(r"lesson (\d+)", PAGE):
        assert list((ROOT / "lessons").glob(f"{int(number):02}_*.py"))


def test_citation_has_this_version_and_no_address() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (cited,) = re.findall(r"^@software\{.*?^\}$", PAGE, re.M | re.S)
    assert f"version = {{{project['version']}}}" in cited
    assert "url     = {TO BE FILLED IN" in cited
    assert "http" not in cited
    assert "LICENSE-TEXTS.md" in project["license-files"]
    assert project["license"] == "MIT"


def test_page_of_puzzles_states_each_and_shows_what_its_code_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(DOCS)
    import puzzles

    titles = re.findall(r"^### (\d+)\. .+$", puzzles.statements(), re.M)
    assert [int(number) for number in titles] == list(range(1, 16))
    assert puzzles.statements().count("\nProof of the optimum: ") == 15
    assert puzzles.statements().count("```text\n  ") == 11  # graphs
    page = (DOCS / "puzzles.md").read_text(encoding="utf-8")
    ((code, shown),) = re.findall(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", page, re.M | re.S
    )
    exec(code, {"__name__": "puzzles"})
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("name", ["puzzles.md", "grading.md", "course.md"])
def test_commands_of_pages_for_students_and_teachers_parse(name: str) -> None:
    parser = make_parser(JOBS)
    lines = commands((DOCS / name).read_text(encoding="utf-8"))
    own = [words for line in lines if (words := shlex.split(line, comments=True))[0] == "tinyckpt"]
    assert len(own) >= 2
    for words in own:
        parser.parse(words[1:])
