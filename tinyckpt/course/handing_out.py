"""The lessons, the course's folder for students and for teachers, and test files for other graders.

Students get pages, stubs, tests and hints; teachers also solutions, and a folder ``grading`` with
files for pytest, nbgrader, Otter and Gradescope. Each of them calls ``grading``, so that points are
the same everywhere. A stub is made from the solution, by nbgrader's markers in it: ``stub_of``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from tinyckpt.base.errors import FormatError, OptionError
from tinyckpt.base.files import write_atomically
from tinyckpt.course import isolated
from tinyckpt.course.grading import course_folder, parts
from tinyckpt.course.puzzles import PUZZLES, statement
from tinyckpt.course.recorded_tests import names_of_tests, task_of

PYTEST = '''"""Grade part {part}: pytest test_grade_{part}.py; part_{part}.py is beside it."""

from pathlib import Path

import pytest

from tinyckpt.course.grading import assert_task


@pytest.mark.parametrize("task", {tasks})
def test_task(task):
    assert_task(Path(__file__).with_name("part_{part}.py"), task)
'''
# Otter: a test file without the OK format. https://otter-grader.readthedocs.io, "Exception-based".
OTTER = """from otter.test_files import test_case

OK_FORMAT = False
name = "{task}"
points = {points}


@test_case(points={points})
def test_task():
    from tinyckpt.course.grading import assert_task

    assert_task("part_{part}.py", "{task}")
"""
GRADESCOPE = {
    "setup.sh": "#!/usr/bin/env bash\n"
    "# A clone of tinyckpt, named tinyckpt, is in the zip file beside this one.\n"
    "pip install /autograder/source/tinyckpt\n",
    "run_autograder": "#!/usr/bin/env bash\n"
    "# One file named such as part_2.py is handed in. Exit status 1: points are missing.\n"
    "tinyckpt grade /autograder/submission/part_*.py"
    " --gradescope /autograder/results/results.json || true\n",
}
# A region of a solution, by the markers of nbgrader: what is given to students, and what is not.
REGION = re.compile(
    r"^ *### BEGIN SOLUTION\n((?: *#(?: .*)?\n)*)((?:.*\n)*?) *### END SOLUTION\n", re.MULTILINE
)
TASK = re.compile(r"^( *)(Task \d\.\d: .+)$", re.MULTILINE)


def lessons() -> dict[str, Path]:
    """Return the lessons by title, in order: beside the package, in a wheel inside it.

    >>> next(iter(lessons()))
    '1. The graph'
    """
    installed = Path(__file__).parent / "lessons"
    folder = installed if installed.is_dir() else isolated.ROOT / "lessons"
    return {
        path.read_text("utf-8").splitlines()[1].removeprefix("# # "): path
        for path in sorted(folder.glob("[0-9]*.py"))
    }


def copy_lessons(target: str | os.PathLike[str]) -> list[Path]:
    """Write the lessons to a new folder, and return their paths.

    Raises:
        OptionError: if there is something in the folder already.
    """
    folder = new_folder(target)
    return [Path(shutil.copyfile(path, folder / path.name)) for path in lessons().values()]


def new_folder(target: str | os.PathLike[str]) -> Path:
    """Make a folder, unless there is an empty one, and return it.

    Raises:
        OptionError: if there is something in it already.
        FormatError: if it cannot be made.
    """
    folder = Path(target)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OptionError(f"{folder}: it exists already, and is not an empty folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FormatError(f"cannot write {folder}: {error.strerror}") from None
    return folder


def copy_course(target: str | os.PathLike[str], teacher: bool = False) -> Path:
    """Write the course to a new folder: for students, or for teachers, with solutions.

    Raises:
        OptionError: if there is something in the folder already.
    """
    folder = new_folder(target)
    left_out = ["__pycache__", "*.pyc", ".*", *([] if teacher else ["solutions"])]
    ignored = shutil.ignore_patterns(*left_out)
    shutil.copytree(course_folder(), folder, ignore=ignored, dirs_exist_ok=True)
    for path in (course_folder() / "solutions").glob("part_*.py"):
        source = path.read_text(encoding="utf-8")
        (folder / path.stem / path.name).write_bytes(stub_of(source).encode())
        if teacher:
            (folder / "solutions" / path.name).write_bytes(solution_of(source).encode())
    texts = "\n\n".join(f"    {statement(number)}" for number in PUZZLES).replace("\n", "\n    ")
    puzzles = "# Puzzles\n\n`tinyckpt puzzle 3 answer.py` checks an answer.\n\n"
    (folder / "puzzles.md").write_text(f"{puzzles}{texts}\n", encoding="utf-8")
    if teacher:
        write_adapters(folder / "grading")
    return folder


def stub_of(solution: str) -> str:
    r"""Return what students fill in: a solution with markers, whose regions are replaced.

    A region is replaced by the comments that open it, as code; a task becomes an error that names
    it. So the sentence stands once, and the solution has it as a comment; the text that nbgrader
    itself would put there says only that code is missing.

    >>> print(stub_of("### BEGIN SOLUTION\n# Task 1.1: add.\nx + y\n### END SOLUTION\n"), end="")
    raise NotImplementedError("Task 1.1: add.")
    """
    stub = REGION.sub(given, solution)
    assert "### " not in stub, "a marker without its other one would hand the solution out"
    return stub


def solution_of(solution: str) -> str:
    """Return a solution without its markers, and without what is given to students."""
    return REGION.sub(r"\2", solution)


def given(region: re.Match[str]) -> str:
    """Return what students find in place of a region."""
    return TASK.sub(raised, re.sub(r"^( *)# ?", r"\1", region[1], flags=re.MULTILINE))


def raised(task: re.Match[str]) -> str:
    """Return the statement that raises an error with a task, on lines of at most 100 columns."""
    indent, sentence = task[1], json.dumps(task[2], ensure_ascii=False)
    line = f"{indent}raise NotImplementedError({sentence})"
    if len(line) <= 100:
        return line
    return f"{indent}raise NotImplementedError(\n{indent}    {sentence}\n{indent})"


def write_adapters(folder: Path) -> None:
    """Write test files for pytest, Otter, nbgrader and Gradescope."""
    files: dict[str, str] = {f"gradescope/{name}": text for name, text in GRADESCOPE.items()}
    for part, source in parts().items():
        points = Counter(map(task_of, names_of_tests(source)))
        files[f"pytest/test_grade_{part}.py"] = PYTEST.format(part=part, tasks=list(points))
        for task in points:
            name = f"otter/tests/part_{task.replace('.', '_')}.py"
            files[name] = OTTER.format(part=part, task=task, points=points[task])
        files[f"nbgrader/part_{part}.ipynb"] = json.dumps(notebook(part, points), indent=1)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, text.encode())


def notebook(part: int, points: dict[str, int]) -> dict[str, Any]:
    """Return an assignment of nbgrader: a cell to fill in, and a graded one for each task.

    The result of a graded cell is its points, which nbgrader takes as partial credit.
    """
    solution = course_folder() / "solutions" / f"part_{part}.py"
    stub = stub_of(solution.read_text(encoding="utf-8"))
    cells = [cell(f"part_{part}", f"%%writefile part_{part}.py\n{stub}", None)]
    for task, most in points.items():
        code = "from tinyckpt.course.grading import points_of\n\n"
        code += f'points_of("part_{part}.py", "{task}")'
        cells.append(cell(f"task_{task.replace('.', '_')}", code, most))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def cell(name: str, code: str, points: int | None) -> dict[str, Any]:
    """Return a cell of an assignment of nbgrader; one without points is the student's.

    That one is no solution cell of nbgrader, which would empty it.
    """
    state = {
        "grade": True, "grade_id": name, "locked": True, "points": points, "schema_version": 3,
        "solution": False, "task": False,
    }  # fmt: skip
    return {
        "cell_type": "code", "id": name, "execution_count": None, "outputs": [],
        "metadata": {} if points is None else {"nbgrader": state}, "source": code,
    }  # fmt: skip
