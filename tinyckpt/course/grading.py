"""Grading: a student's part, or an answer to a puzzle, to points per task and why.

The tests of the part run on the file, isolated, and on the solution, and what they compare is
compared here. A point for each test. A part is graded with the parts before it solved, so that a
mistake counts once.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tinyckpt.base.errors import FormatError, OptionError, ScheduleError
from tinyckpt.base.files import write_atomically
from tinyckpt.course import isolated
from tinyckpt.course.puzzles import PUZZLES, Result, score
from tinyckpt.course.recorded_tests import judge, names_of_tests, task_of

NEXT_LINE = "\n       "  # between the name of a test and what is wrong


def course_folder() -> Path:
    """Return the folder of the course: in a checkout beside the package, in a wheel inside it.

    >>> (course_folder() / "README.md").is_file()
    True
    """
    installed = Path(__file__).parent / "files"
    return installed if installed.is_dir() else isolated.ROOT / "course"


def best_answers() -> dict[int, Any]:
    """Return an answer to each puzzle at its optimum, of the course's solutions."""
    solutions = runpy.run_path(str(course_folder() / "solutions" / "puzzles.py"))
    return dict(solutions["ANSWERS"])


def parts() -> dict[int, str]:
    """Return the parts of the course that have tests, and the source of these."""
    folders = sorted(course_folder().glob("part_[0-9]"))
    tests = {int(each.name[5:]): each / f"test_{each.name}.py" for each in folders}
    return {part: path.read_text("utf-8") for part, path in tests.items() if path.is_file()}


@dataclass(frozen=True, slots=True)
class Task:
    """A task's points, one for each of its tests, and what is wrong with the others."""

    task: str
    points: int
    of: int
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The grade of a part.

    Attributes:
        part: its number.
        tasks: with their points.
        missing: which protection the platform does not have.
    """

    part: int
    tasks: tuple[Task, ...]
    missing: str = ""

    @property
    def points(self) -> int:
        """Return the sum of the points."""
        return sum(task.points for task in self.tasks)

    @property
    def of(self) -> int:
        """Return the points that can be had."""
        return sum(task.of for task in self.tasks)

    def __str__(self) -> str:
        lines = []
        for task in self.tasks:
            lines.append(f"{task.task}  {task.points} of {task.of}")
            lines += [f"     {why.replace(': ', NEXT_LINE, 1)}" for why in task.why]
        return "\n".join([*lines, f"part {self.part}: {self.points} of {self.of} points"])

    def document(self) -> dict[str, Any]:
        """Return the grade as JSON data."""
        tasks = [asdict(task) for task in self.tasks]
        return {"part": self.part, "points": self.points, "of": self.of, "tasks": tasks}


def part_of(path: str | os.PathLike[str]) -> int:
    """Return the part that a file is, by its name: ``part_2.py``.

    Raises:
        OptionError: if the name says none.
    """
    found, known = re.search(r"part_?(\d+)", Path(path).stem), parts()
    if not found or int(found[1]) not in known:
        raise OptionError(f"{path}: which part is it? Say --part N; there are {told(known)}")
    return int(found[1])


def told(known: dict[int, str]) -> str:
    """List the parts."""
    return ", ".join(map(str, known))


def grade(
    path: str | os.PathLike[str],
    part: int | None = None,
    only: str = "",
    limits: isolated.Limits | None = None,
) -> Report:
    """Grade a file of a part.

    Args:
        path: of the file.
        part: its number; by default from the file's name.
        only: one task, if not all.
        limits: of its process.

    Raises:
        FormatError: if there is no such file.
        OptionError: if there is no such part.
    """
    number = part_of(path) if part is None else part
    if number not in parts():
        raise OptionError(f"part {number}: there are {told(parts())}")
    solutions = course_folder() / "solutions"
    if not solutions.is_dir():
        raise FormatError(f"cannot grade: {course_folder()} has no folder solutions")
    beside = [solutions / f"part_{before}.py" for before in range(number)]
    beside += sorted(course_folder().glob("part_*/example_*.py"))
    source, seed = parts()[number], secrets.randbelow(2**31)
    names = [name for name in names_of_tests(source) if only in ("", task_of(name))]
    questions = [f"{seed} {name}" for name in names]
    ours = isolated.ask(solutions / f"part_{number}.py", questions, beside, tests=source)
    for name, problem in zip(names, ours.problems, strict=True):
        if problem:
            raise FormatError(f"the solution of {name} fails: {problem}")
    found = isolated.ask(path, questions, beside, [solutions], limits, source)
    whys: dict[str, list[str]] = {}
    for name, best, value, problem in zip(
        names, ours.values, found.values, found.problems, strict=True
    ):
        why = problem or judged(best, value)
        words = " ".join(name.split("_")[3:])
        whys.setdefault(task_of(name), []).append(f"{words}: {why}" if why else "")
    tasks = [
        Task(task, each.count(""), len(each), tuple(filter(None, each)))
        for task, each in whys.items()
    ]
    return Report(number, tuple(tasks), found.missing)


def judged(expected: Any, value: Any) -> str:
    """Judge data that may be anything; data of another form is wrong."""
    try:
        return judge(expected, value)
    except ScheduleError as error:
        return str(error)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError):
        return "the answer is of another form than the solution's"


def grade_puzzle(
    number: int, path: str | os.PathLike[str], limits: isolated.Limits | None = None
) -> tuple[Result, str]:
    """Score the ``answer`` that a file defines; return the result, and which protection is missing.

    Raises:
        FormatError: if there is no such file.
        OptionError: if there is no such puzzle.
    """
    if number not in PUZZLES:
        raise OptionError(f"puzzle {number}: they are numbered 1 to {len(PUZZLES)}")
    hidden = [course_folder() / "solutions"]
    found = isolated.ask(path, [f"puzzle {number}"], (), hidden, limits)
    (value,), (problem,) = found.values, found.problems
    result = Result(number, 0, problem) if problem else score(number, value)
    return result, found.missing


def graded_task(path: str | os.PathLike[str], task: str) -> Task:
    """Return the points of one task of a file, such as ``2.1``."""
    first, _, _ = task.partition(".")
    tasks = grade(path, int(first), task).tasks if first.isdecimal() else ()
    if not tasks:
        raise OptionError(f"there is no task {task}")
    return tasks[0]


def assert_task(path: str | os.PathLike[str], task: str) -> None:
    """Raise an AssertionError unless a task has all its points: a test for pytest or Otter."""
    found = graded_task(path, task)
    if found.why:
        raise AssertionError(f"task {task}: {'; '.join(found.why)}")


def points_of(path: str | os.PathLike[str], task: str) -> int:
    """Print what is wrong in a task, and return its points: a cell for nbgrader."""
    found = graded_task(path, task)
    if found.why:
        print(*found.why, sep="\n")
    return found.points


# Files --------------------------------------------------------------------------------------------


def save_json(document: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a grade or a score as JSON."""
    named = {"schema": "tinyckpt.grade", "version": 1, **document}
    write_atomically(path, f"{json.dumps(named, indent=1, allow_nan=False)}\n".encode())


def save_gradescope(report: Report, path: str | os.PathLike[str]) -> None:
    """Write a grade as Gradescope's ``results.json``.

    Source: gradescope-autograders.readthedocs.io, "Autograder specifications".
    """
    tests = [
        {
            "name": f"task {task.task}", "number": task.task, "score": task.points,
            "max_score": task.of, "output": "\n".join(task.why) or "right",
            "status": "passed" if task.points == task.of else "failed",
        }
        for task in report.tasks
    ]  # fmt: skip
    document = {"score": report.points, "output_format": "text", "tests": tests}
    write_atomically(path, f"{json.dumps(document, indent=1)}\n".encode())
