"""Grading of parts: solutions get all points, stubs none, and mistakes are named."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import require
from tinyckpt.cli.main import main
from tinyckpt.course.board import save_board
from tinyckpt.course.grading import assert_task, course_folder, grade, judged, parts, points_of
from tinyckpt.course.handing_out import copy_course
from tinyckpt.course.recorded_tests import names_of_tests, run_recorded

SOLUTIONS = course_folder() / "solutions"
# A solution with one line changed: part, what is changed, by what, the task, what is said.
MISTAKES: dict[str, tuple[int, str, str, str, str]] = {
    "contribution lost": (0, "cotangents[left] +=", "cotangents[left] =", "0.4", "; expected "),
    "freed too early": (
        2, "        live |= inputs\n", "", "2.1", "step 1: you freed tanh_1, which tanh_2 reads at",
    ),
    "never freed": (
        2, "live.discard(operator.output)", "pass", "2.1", "step 6: you compute tanh_1 again while"
        " its value tanh_1 is in memory, since step 0",
    ),
    "counted twice": (
        2, "trace.evaluations += 1", "trace.evaluations += 2", "2.2", "it is 10; expected 5",
    ),
    "unchecked": (
        2, "if operator.output in memory:", "if False:", "2.2",
        "live is an error: ValueError with 'step 1' is no error; expected step 1",
    ),
    "wrong operand": (1, "lambda g, out, x, y: g * y", "lambda g, out, x, y: g * x", "1.2",
                      "rules of multiply add one product each: line"),
    "no segments": (3, "if index > last", "if index > 0", "3.6",
                    "of the test, counts(chain(8), sqrt_n(chain(8))): entry 0 is 18; expected 20"),
    "most recently used": (4, "return inf", "return 0", "4.3", "; expected inf"),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize("part", parts())
def test_solution_gets_all_points_and_stub_none(part: int, teacher: Path) -> None:
    solved = grade(SOLUTIONS / f"part_{part}.py")
    assert [task.why for task in solved.tasks] == [()] * len(solved.tasks)
    assert solved.points == solved.of == len(names_of_tests(parts()[part]))
    stub = grade(teacher / f"part_{part}" / f"part_{part}.py")
    assert (stub.points, stub.of) == (0, solved.of)
    assert all("NotImplementedError: Task" in why for task in stub.tasks for why in task.why)
    tasks = [task.task for task in solved.tasks]
    assert tasks == [f"{part}.{number}" for number in range(1, len(tasks) + 1)]


@pytest.mark.sampled(4)
@pytest.mark.long
@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_costs_its_task_and_is_named(name: str, tmp_path: Path) -> None:
    part, old, new, task, message = MISTAKES[name]
    text = (SOLUTIONS / f"part_{part}.py").read_text(encoding="utf-8")
    assert old in text
    file = tmp_path / f"part_{part}.py"
    file.write_text(text.replace(old, new), encoding="utf-8")
    found = grade(file, only=task)
    assert found.points < found.of
    assert message in str([task, found.document()])


def test_seed_may_be_a_number_or_an_array_without_axes(tmp_path: Path) -> None:
    text = (SOLUTIONS / "part_1.py").read_text(encoding="utf-8")
    file = tmp_path / "part_1.py"
    file.write_text(text.replace("graph.constants[seed.id] = np.ones(())",
                                 "graph.constants[seed.id] = 1.0"), encoding="utf-8")  # fmt: skip
    found = grade(file, only="1.3")
    assert found.points == found.of, found


def test_page_on_grading_shows_what_is_printed(tmp_path: Path) -> None:
    _, old, new, *_ = MISTAKES["freed too early"]
    file = tmp_path / "part_2.py"
    file.write_text((SOLUTIONS / "part_2.py").read_text("utf-8").replace(old, new), "utf-8")
    page = (Path(__file__).parents[3] / "docs" / "grading.md").read_text("utf-8")
    shown = page.split("```text\n")[1].split("```")[0]
    assert str(grade(file, only="2.1")).startswith(shown)


CHAIN = [[["tanh", [0], 1], ["tanh", [1], 2], ["tanh_vjp", [2, 3], 4], ["tanh_vjp", [1, 4], 5]],
         [0, 3], [5], 2]  # fmt: skip
BEST = [["compute", 0], ["compute", 1], ["compute", 2], ["free", 2], ["compute", 3], ["free", 1],
        ["free", 4]]  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (BEST, ""),
        ([*BEST[:1], ["free", 1], *BEST[1:]], "step 1: you freed tanh_1, which tanh_2 reads at"),
        ([*BEST[:2], ["free", 1], *BEST[2:]], "step 2: you freed tanh_1, which b_tanh_1 reads at"),
        (BEST[:-1], "6 steps; expected 7"),
        (BEST[:3] + BEST[4:6] + BEST[3:4] + BEST[6:], "the peak is 4 values; 3 are enough"),
        (BEST[:5] + BEST[:4:-1], "step 5 is free b_tanh_2; expected free tanh_1"),
        ([["compute", 9]], "step 0: ['compute', 9] is not a step of this graph"),
        ([["compute", True]], "is not a step"),
        ([3], "step 0: 3 is not a step"),
    ],
)
def test_schedules_are_replayed_and_the_first_mistake_named(steps: Any, message: str) -> None:
    best, mine = ([[7, "Eq", [["a schedule", CHAIN, each]], ["x"]]] for each in (BEST, steps))
    mine[0][2][0][1] = []  # the student's graph is not the one that counts
    found = judged(best, mine)
    assert message in found
    assert bool(message) == bool(found)


SOURCES = ["found", "best"]
RECORD = [[7, "Eq", [["a schedule", CHAIN, BEST]], ["steps"]], [8, "LtE", [3, 4], SOURCES],
          [9, "Eq", [1.0, 1.0], SOURCES]]  # fmt: skip


@pytest.mark.parametrize(
    ("got", "message"),
    [
        (RECORD, ""),
        ([*RECORD[:2], [9, "Eq", [1.0, 1.0 + 1e-9], SOURCES]], ""),
        (
            [*RECORD[:2], [9, "Eq", [1.0, 1.1], SOURCES]],
            "line 9 of the test, best: it is 1.1; expected 1.0",
        ),
        ([RECORD[0], [8, "LtE", [2, 4], SOURCES], RECORD[2]], ""),
        (
            [RECORD[0], [8, "LtE", [5, 9], SOURCES], RECORD[2]],
            "line 8 of the test, found: it is 5; expected 3",
        ),
        (RECORD[:1], "line 8 of the test is not reached"),
        ([*RECORD, RECORD[0]], "compares more"),
        *((data, "of another form") for data in (3, [3], [[1, 2]], [[7, "Eq", []]], None)),
    ],
)
def test_records_are_compared_with_the_solutions(got: Any, message: str) -> None:
    assert message in judged(RECORD, got)
    assert bool(message) == bool(judged(RECORD, got))


def test_assertions_become_data_and_random_numbers_others() -> None:
    source = """
import pytest
from random import Random

def test_1_1_all_kinds():
    value = Random(0).randrange(10**9)
    assert value == 3
    assert {2, 1} <= {value}
    assert all(map(abs, [value]))
    assert not value
    with pytest.raises(ValueError, match="lit.*al"):
        int("x")
"""
    one, other = (run_recorded(source, "test_1_1_all_kinds", seed) for seed in (1, 2))
    value = one[0][2][0]
    assert one == [
        [7, "Eq", [value, 3], ["value", "3"]],
        [8, "LtE", [[1, 2], [value]], ["{2, 1}", "{value}"]],
        [9, "", ["a function", [value]], ["abs", "[value]"]],
        [10, "", [False], ["not value"]],
        [0, "", [["ValueError with 'lit.*al'", "literal"]], [""]],
    ]  # fmt: skip
    assert other[0][2][0] != value


# Folders and other graders ------------------------------------------------------------------------


def test_copy_for_students_has_no_solutions(tmp_path: Path) -> None:
    folder = copy_course(tmp_path / "mine")
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {"README.md", "puzzles.md", "part_3/hints.md", "part_0/part_0.py"} <= names
    assert not [name for name in names if "solution" in name or "grading" in name]
    with pytest.raises(tc.OptionError, match="not an empty folder"):
        copy_course(folder)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_course(tmp_path_factory.mktemp("course") / "teacher", teacher=True)


@pytest.mark.nightly
def test_files_for_pytest_grade_each_task(teacher: Path, tmp_path: Path) -> None:
    shutil.copy(teacher / "grading" / "pytest" / "test_grade_0.py", tmp_path)
    shutil.copy(teacher / "solutions" / "part_0.py", tmp_path)
    quiet = ("-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path))
    run = subprocess.run([sys.executable, "-m", "pytest", *quiet], capture_output=True, check=False)
    assert b"5 passed" in run.stdout
    with pytest.raises(AssertionError, match=r"task 2\.1: .*Task 2\.1"):
        assert_task(teacher / "part_2" / "part_2.py", "2.1")
    with pytest.raises(tc.OptionError, match=r"no task 0\.9"):
        assert_task(tmp_path / "part_0.py", "0.9")


@pytest.mark.long
def test_notebooks_for_nbgrader_have_a_graded_cell_per_task(
    teacher: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = teacher / "grading" / "nbgrader" / "part_2.ipynb"
    if find_spec("nbformat"):
        import nbformat

        nbformat.validate(nbformat.read(path, as_version=4))
    first, *cells = json.loads(path.read_text())["cells"]
    assert first["source"].startswith('%%writefile part_2.py\n"""Part 2')
    assert [cell["metadata"]["nbgrader"]["points"] for cell in cells] == [5, 9]
    assert cells[1]["source"].endswith('points_of("part_2.py", "2.2")')
    assert points_of(teacher / "part_2" / "part_2.py", "2.2") == 0
    assert "NotImplementedError: Task 2.2" in capsys.readouterr().out


def test_files_for_otter_compile(teacher: Path) -> None:
    for path in (teacher / "grading" / "otter" / "tests").glob("*.py"):
        compile(path.read_text(), str(path), "exec")


@pytest.mark.filterwarnings("default::DeprecationWarning")  # of what Otter imports
@pytest.mark.nightly  # make nightly installs it; no extra has it
def test_files_for_otter_run_in_it(teacher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = teacher / "grading" / "otter" / "tests" / "part_2_1.py"
    require("otter")
    from otter import Notebook

    monkeypatch.chdir(teacher / "solutions")
    assert Notebook(tests_dir=str(path.parent)).check("part_2_1").score == 5


# The command --------------------------------------------------------------------------------------


@pytest.mark.long
def test_grade_prints_points_and_writes_json_and_gradescope(
    teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stub = teacher / "part_0" / "part_0.py"
    mine, results = tmp_path / "a.json", tmp_path / "results.json"
    assert main(["grade", str(stub), "--json", str(mine), "--gradescope", str(results)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(
        "0.1  0 of 1\n     forward computes the example\n       NotImplementedError"
    )
    assert out.endswith("part 0: 0 of 9 points\n")
    document = json.loads(mine.read_text())
    assert (document["part"], document["points"], document["of"]) == (0, 0, 9)
    assert [task["of"] for task in document["tasks"]] == [1, 1, 2, 3, 2]
    graded = json.loads(results.read_text())
    assert sum(test["max_score"] for test in graded["tests"]) == 9
    assert graded["tests"][0]["status"] == "failed"
    assert main(["grade", str(SOLUTIONS / "part_0.py")]) == 0


def test_puzzle_lists_states_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["puzzle"]) == 0
    assert capsys.readouterr().out.count("\n") == 15
    assert main(["puzzle", "3"]) == 0
    assert "graph chain:16; budget 9 nodes" in capsys.readouterr().out
    file, mine, board = (tmp_path / name for name in ("answer.py", "ann.json", "board.html"))
    file.write_text("answer = ['f3', 'f6']\n")
    assert main(["puzzle", "1", str(file), "--json", str(mine)]) == 1
    assert "8 of 10 points\npeak 6 nodes, 25 evaluations; the" in capsys.readouterr().out
    assert json.loads(mine.read_text())["gap"] == pytest.approx(0.2)
    assert main(["course", "--board", str(mine), "-o", str(board)]) == 0
    assert "<td>ann</td><td>8</td><td>6 nodes</td><td>25</td><td>20.0 %</td>" in board.read_text()


@pytest.mark.parametrize(
    "words",
    [["puzzle", "99"], ["puzzle", "3", "--json", "x.json"], ["course"],
     ["course", "--board", "a.json"], ["course", "--copy", "a", "-o", "x.html"],
     ["grade", "essay.py"]],
)  # fmt: skip
def test_wrong_usage_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "answer", "name"),
    [(1, "['f3', 'f6']", "a.png"), (12, "range(30)", "b.svg"),
     (15, "[0, 2, 6, 12, 2, 5, 14, 0, 5, 11]", "d.png"),
     (13, "['F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7'] * 4", "c.png")],
)  # fmt: skip
def test_picture_shows_the_attempt_beside_the_best(
    number: int, answer: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("matplotlib")
    file, picture = tmp_path / "answer.py", tmp_path / name
    file.write_text(f"answer = {answer}\n")
    assert main(["puzzle", str(number), str(file), "--picture", str(picture)]) == 1
    assert f"written to {picture}" in capsys.readouterr().out
    assert picture.stat().st_size > 10_000


def test_board_escapes_names_and_refuses_what_is_no_grade(tmp_path: Path) -> None:
    document = {"schema": "tinyckpt.grade", "part": 1, "points": 3, "of": 8}
    good = tmp_path / "<b>ann & bob.json"
    good.write_text(json.dumps(document))
    save_board([good], tmp_path / "board.html")
    page = (tmp_path / "board.html").read_text()
    assert "<td>&lt;b&gt;ann &amp; bob</td><td>3</td><td>8</td>" in page
    for wrong in (
        {},
        {**document, "points": "<script>"},
        {**document, "gap": "x"},
        {**document, "puzzle": 99},
        {**document, "puzzle": 0},
        {key: document[key] for key in ("schema", "points", "of")},  # of no part
        [],
    ):
        bad = tmp_path / "bad.json"
        bad.write_text(json.dumps(wrong))
        with pytest.raises(tc.FormatError, match="no grade"):
            save_board([bad], tmp_path / "board.html")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_board_refuses_pipes_and_devices_without_reading_them(tmp_path: Path) -> None:
    pipe, endless = tmp_path / "pipe.json", tmp_path / "endless.json"
    os.mkfifo(pipe)  # nobody writes to it: reading would block
    endless.symlink_to("/dev/zero")
    for path in (pipe, endless):
        with pytest.raises(tc.FormatError, match="is not a regular file"):
            save_board([path], tmp_path / "board.html")


@pytest.mark.long
def test_wheel_has_the_course(distributions: Path, tmp_path: Path) -> None:
    (archive,) = distributions.glob("*.whl")
    with zipfile.ZipFile(archive) as content:
        content.extractall(tmp_path / "site")
    names = {path.name for path in (tmp_path / "site").rglob("*")}
    assert not {"__pycache__"} & names
    file = tmp_path / "part_0.py"
    shutil.copy(SOLUTIONS / "part_0.py", file)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); from tinyckpt.cli import main"
    )
    lines = [["grade", str(file)], ["course", "--copy", str(tmp_path / "mine")]]
    run = subprocess.run(
        [sys.executable, "-I", "-c", f"{code}; sys.exit(max(map(main, {lines!r})))"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / "mine" / "part_3" / "README.md").is_file()
