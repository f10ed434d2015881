"""Process isolation: run a student's file with limits, and take its answers as data.

In: a file, and questions, which ``child`` puts to it in a new process. Out: for each question a
nesting of lists, numbers and texts, or a sentence that says why there is none. Nothing else comes
back: no objects, no counts, no scores. The answers are a bounded file of JSON lines, parsed
strictly here; whoever writes it can claim no more than an answer, which is replayed like any other.

Limited are CPU time, elapsed time, address space, file sizes and processes, as far as the platform
has such limits (POSIX; elsewhere elapsed time alone). On Linux the process has no network and does
not see the solutions, where user namespaces are permitted; ``Answers.missing`` says what was not.
This keeps honest mistakes and pranks away from the grader. It is no defence against an attacker who
knows the kernel: to run code of strangers, start the grader in a container.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from tinyckpt.base.errors import FormatError

ROOT = Path(__file__).parents[2]  # where tinyckpt is imported from
BOOT = "import sys; sys.path.insert(0, {!r}); from tinyckpt.course.child import main; main()"
RESTARTS = 3  # after a question that ended the process, the next ones are put to another
LONGEST = 300  # characters of an explanation; of what is printed, ten times as many
LARGEST_INTEGER = 2**63


@dataclass(frozen=True, slots=True)
class Limits:
    """What a process may take.

    Attributes:
        cpu_seconds: CPU time, imports of the grader's own not counted.
        seconds: elapsed time, all counted.
        memory: bytes of address space beyond what the imports take.
        file_bytes: size of each file: what is printed, and the answers.
    """

    cpu_seconds: int = 10
    seconds: float = 60
    memory: int = 2**30
    file_bytes: int = 2**23


@dataclass(frozen=True, slots=True)
class Answers:
    """What a file answered.

    Attributes:
        values: for each question data, or None.
        problems: for each question why there is no answer; empty if there is one.
        printed: the beginning of what the file printed.
        missing: which protection the platform does not have; empty if all are there.
    """

    values: tuple[Any, ...]
    problems: tuple[str, ...]
    printed: str = ""
    missing: str = ""


def ask(
    path: str | os.PathLike[str],
    questions: Sequence[str],
    beside: Sequence[Path] = (),
    hidden: Sequence[Path] = (),
    limits: Limits | None = None,
    tests: str = "",
) -> Answers:
    """Run a Python file in a process of its own, and put questions to it.

    Args:
        path: of the file. A copy of it runs.
        questions: as ``child.reply`` understands them.
        beside: files that it may import.
        hidden: folders that it may not read.
        limits: of each process; there are several if a question ends one.
        tests: the source of the tests that questions name.

    Raises:
        FormatError: if there is no such file, or it cannot be imported by its name.
    """
    file = Path(path)
    if not file.is_file():
        raise FormatError(f"cannot grade {file}: there is no such file")
    if not file.stem.isidentifier() or file.suffix != ".py":
        raise FormatError(f"cannot grade {file}: expected a Python file, named such as answer.py")
    values: list[Any] = [None] * len(questions)
    problems = ["it was not reached"] * len(questions)
    todo, found = list(range(len(questions))), Answers((), ())
    for _ in range(1 + RESTARTS):
        asked = [questions[index] for index in todo]
        found = ask_once(file, asked, beside, hidden, limits or Limits(), tests)
        for index, value, problem in zip(todo, found.values, found.problems, strict=False):
            values[index], problems[index] = value, problem
        todo = todo[len(found.values) :]
        if not todo:
            break
    return replace(found, values=tuple(values), problems=tuple(problems))


def ask_once(
    file: Path, questions: Sequence[str], beside: Sequence[Path], hidden: Sequence[Path],
    limits: Limits, tests: str,
) -> Answers:  # fmt: skip
    """Put questions to one process; those after one that ended it are left out of the result."""
    token = secrets.token_hex(8)
    with TemporaryDirectory(prefix="tinyckpt-", ignore_cleanup_errors=True) as folder:
        work, answers = Path(folder, "work"), Path(folder, "answers")
        work.mkdir()
        answers.touch()
        for each in (*beside, file):
            shutil.copyfile(each, work / each.name)
        request = {
            "token": token, "file": file.name, "questions": list(questions),
            "answers": str(answers), "hidden": [str(each) for each in hidden], "tests": tests,
            **asdict(limits),
        }  # fmt: skip
        with Path(folder, "printed").open("wb+") as printed:
            end = run(json.dumps(request).encode(), work, printed, limits)
            printed.seek(0)
            text = printed.read(10 * LONGEST).decode(errors="replace")
        with answers.open("rb") as written:
            content = written.read(limits.file_bytes + 1)
    try:
        rows = parsed(content, token)
    except ValueError as error:
        return void(questions, f"the answer is not the grader's: {error}", text)
    return collected(questions, rows, end, text)


def run(request: bytes, work: Path, printed: Any, limits: Limits) -> str:
    """Run the process to its end; return how it ended, empty if as it should."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    posix = os.name == "posix"
    with subprocess.Popen(
        [sys.executable, "-I", "-B", "-c", BOOT.format(str(ROOT))],
        cwd=work, env={**kept, **threads, "HOME": str(work), "TMPDIR": str(work)},
        stdin=subprocess.PIPE, stdout=printed, stderr=subprocess.STDOUT, start_new_session=posix,
    ) as process:  # fmt: skip
        try:
            process.communicate(request, timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            return f"it took longer than {limits.seconds:g} s"
        finally:
            with suppress(ProcessLookupError, PermissionError):
                if posix:  # its group, too: what it started
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
    return told_end(process.returncode, limits)


def told_end(code: int, limits: Limits) -> str:
    """Say how a process ended; empty if as it should."""
    if code == 0:
        return ""
    if code < 0:
        name = signal.Signals(-code).name
        if name == "SIGXCPU":
            return f"it took more than {limits.cpu_seconds} s of CPU time"
        return f"its process was ended by {name}: out of stack, memory or CPU time"
    return f"its process ended with exit code {code}"


def parsed(content: bytes, token: str) -> list[list[Any]]:
    """Parse the lines of answers: rows ``token, question, what, data``, the token left out.

    Raises:
        ValueError: if anything else is in the file; says what.
    """
    rows: list[list[Any]] = []
    for line in content.decode("utf-8").splitlines():
        try:
            row = json.loads(line, parse_constant=refuse, parse_float=finite)
        except RecursionError:
            raise ValueError("lists are nested too deeply") from None
        if not isinstance(row, list) or len(row) != 4 or row[0] != token:
            raise ValueError(f"something wrote {line[:60]!r} where answers are collected")
        if type(row[1]) is not int or row[2] not in ("loaded", "value", "problem", "end"):
            raise ValueError("a row of another form")
        check_plain(row[3])
        rows.append(row[1:])
    return rows


def refuse(constant: str) -> NoReturn:
    """Refuse NaN and infinity."""
    raise ValueError(f"{constant} is no answer")


def finite(text: str) -> float:
    """Parse a float that is finite."""
    number = float(text)
    return number if math.isfinite(number) else refuse(text[:20])


def check_plain(value: Any) -> None:
    """Raise a ValueError unless a value is a nesting of lists, texts and numbers of 64 bits."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, list):
            todo += item
        elif isinstance(item, int) and abs(item) >= LARGEST_INTEGER:
            raise ValueError("an integer of more than 64 bits")
        elif not isinstance(item, int | float | str | None):
            raise ValueError(f"a {type(item).__name__}; expected lists, numbers and texts")


def collected(questions: Sequence[str], rows: list[list[Any]], end: str, printed: str) -> Answers:
    """Sort the rows of a process by question; the first without one gets how the process ended."""
    by_question = {index: (what, data) for index, what, data in rows if index >= 0}
    of_all = {what: data for index, what, data in rows if index < 0}
    ended = end or "its process ended before it answered, as os._exit does"
    if "loaded" not in of_all:
        return void(questions, of_all.get("problem", ended), printed)
    missing = clipped(of_all["loaded"])
    if of_all.get("problem"):  # found when all was answered
        return replace(void(questions, of_all["problem"], printed), missing=missing)
    values, problems = [], []
    for index in range(len(questions)):
        what, data = by_question.get(index, ("problem", ended))
        values.append(data if what == "value" else None)
        problems.append("" if what == "value" else clipped(data))
        if index not in by_question and "end" not in of_all:
            break
    return Answers(tuple(values), tuple(problems), printed, missing)


def void(questions: Sequence[str], problem: Any, printed: str) -> Answers:
    """Return no answers, all for one reason."""
    return Answers((None,) * len(questions), (clipped(problem),) * len(questions), printed)


def clipped(text: Any) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(str(text).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
