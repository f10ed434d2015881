"""``tinyckpt lessons``, ``course``, ``puzzle``, ``grade``: files to learn with, and their grades.

The course is imported by the commands that use it: others begin without.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tinyckpt.cli.demo import command_for, shell_path
from tinyckpt.cli.resolve_options import PAGES, check_output, wrong_usage
from tinyckpt.codegen.arena import Arena
from tinyckpt.core.trace import Trace
from tinyckpt.pipeline import PipelineTrace


def puzzle_job(options: Any) -> int:
    """List the puzzles, state one, or score an answer; return 1 if it is not the best."""
    from tinyckpt.course.grading import grade_puzzle, save_json
    from tinyckpt.course.puzzles import POINTS, PUZZLES, statement

    number = options.number
    if number is None:
        for each, puzzle in PUZZLES.items():
            print(f"{each:2}  {puzzle.title}")
        return 0
    if number not in PUZZLES:
        wrong_usage(options, f"puzzle {number}: they are numbered 1 to {len(PUZZLES)}")
    if options.file is None:
        if options.picture or options.json:
            wrong_usage(
                options, "--picture and --json are about an answer; say which file it is in"
            )
        if options.lab:
            print(written_lab(number, options.lab))
            return 0
        print(statement(number))
        return 0
    if options.lab:
        wrong_usage(options, "--lab is a page on which a keep set is clicked; leave the file out")
    result, missing = grade_puzzle(number, options.file)
    print(result)
    tell_missing(missing)
    if options.json:
        save_json(result.document(), options.json)
    if options.picture:
        print(drawn(result, options.picture))
    return 0 if result.points == POINTS else 1


def tell_missing(missing: str) -> None:
    """Print which protection the platform does not have."""
    if missing:
        print(f"note: {missing}", file=sys.stderr)


def written_lab(number: int, path: str) -> str:
    """Write the lab page of a puzzle whose answer is a keep set; return what to say."""
    from tinyckpt import viz
    from tinyckpt.course.grading import best_answers
    from tinyckpt.course.puzzles import PUZZLES, task

    asked = task(number, best_answers()[number])
    viz.lab(PUZZLES[number].made_graph(), path, challenge=asked)
    return f"written to {path}; open it in a browser"


def drawn(result: Any, path: str) -> str:
    """Draw an attempt beside the best schedule; return what to say."""
    from tinyckpt import viz
    from tinyckpt.course.grading import best_answers
    from tinyckpt.course.puzzles import PUZZLES, as_data, best_text, score

    if result.trace is None:
        return "no picture: there is no legal schedule to draw"
    puzzle = PUZZLES[result.number]
    best = score(result.number, as_data(puzzle, best_answers()[result.number])).trace
    title = ["your answer", f"the best: {best_text(puzzle)}"]
    if isinstance(result.trace, Arena):
        assert isinstance(best, Arena)
        viz.memory_map([result.trace, best], path, title=title)
    elif isinstance(result.trace, PipelineTrace):
        assert isinstance(best, PipelineTrace)
        viz.pipeline([result.trace, best], path, title=title)
    else:
        assert isinstance(best, Trace)
        if path.lower().endswith((".png", ".svg")):
            viz.save_still([result.trace, best], path, result.trace.peak_step, title=title)
        else:
            viz.gif([result.trace, best], path, title=title)
    return f"written to {path}"


def grade_job(options: Any) -> int:
    """Grade a part; return 1 if points are missing."""
    from tinyckpt.course.grading import grade, save_gradescope, save_json

    report = grade(options.file, options.part)
    print(report)
    tell_missing(report.missing)
    if options.json:
        save_json({"file": Path(options.file).name, **report.document()}, options.json)
    if options.gradescope:
        save_gradescope(report, options.gradescope)
    return 0 if report.points == report.of else 1


def lessons_job(options: Any) -> int:
    """List the lessons, or write them to a folder."""
    from tinyckpt.course.handing_out import copy_lessons, lessons

    if options.copy:
        first, *_ = copy_lessons(options.copy)
        python = command_for(Path(sys.executable))
        print(f"written to {options.copy}; begin with {python} {shell_path(first)}")
    else:
        print("\n".join(lessons()))
    return 0


def course_job(options: Any) -> int:
    """Write a folder of the course, or a leaderboard."""
    from tinyckpt.course.board import save_board
    from tinyckpt.course.handing_out import copy_course

    given = [name for name in ("copy", "teacher", "board") if getattr(options, name)]
    if len(given) != 1:
        wrong_usage(options, "say one of --copy DIR, --teacher DIR and --board FILE...")
    if options.board:
        if not options.output:
            wrong_usage(options, "--board needs -o OUT.html")
        check_output(options, *PAGES)
        save_board(options.board, options.output)
        print(f"written to {options.output}; open it in a browser")
        return 0
    if options.output:
        wrong_usage(options, "-o is for --board")
    folder = copy_course(options.teacher or options.copy, teacher=bool(options.teacher))
    print(f"written to {folder}; begin with {folder / 'README.md'}")
    return 0
