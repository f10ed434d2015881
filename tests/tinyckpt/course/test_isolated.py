"""Isolation: hostile answers get no points and an explanation; answers are parsed strictly."""

import json
from pathlib import Path

import pytest

import tinyckpt as tc
from tinyckpt.course import isolated
from tinyckpt.course.grading import course_folder, grade_puzzle

LIMITS = isolated.Limits(cpu_seconds=2, seconds=120, memory=2**28, file_bytes=2**20)
RIGHT = "answer = ['f4', 'f7']\n"  # of puzzle 1: what hostile files would get without their tricks
FORGED = '[0, 0, "value", ["entries", ["f4", "f7"]]]'
# A hostile file, and a part of the explanation that it gets instead of points.
HOSTILE = {
    "infinite loop": ("while True: pass", "more than 2 s of CPU time"),
    "reading the solutions": (
        f"{RIGHT}try: open({str(course_folder() / 'solutions' / 'part_1.py')!r})\n"
        "except OSError: pass",
        "which holds solutions",
    ),
    "os._exit": (f"{RIGHT}import os; os._exit(0)", "ended before it answered"),
    "patching tinyckpt": (
        "import tinyckpt as tc\n"
        "from tinyckpt.course import child, mistakes, puzzles\n"
        "perfect = puzzles.Result(1, 10, '', 5, 25, 0.0)\n"
        "tc.replay = tc.plan = lambda *a, **k: perfect\n"
        "puzzles.score = puzzles.graph_score = child.reply = lambda *a: perfect\n"
        "mistakes.first_mistake = lambda *a: ''\n"
        "answer = []",
        "not JSON serializable",
    ),
    "10 GB": (f"{RIGHT}bytearray(10 * 2**30)", "MemoryError: more than 256 MiB"),
    "forged JSON": (
        "import json, os\n"
        "for fd in range(3, 64):\n"
        '    try: os.write(fd, b\'{"points": 10, "of": 10}\\n\')\n'
        "    except OSError: pass\n"
        "os._exit(0)",
        "something wrote",
    ),
    "fork bomb": (f"{RIGHT}import os\nwhile True: os.fork()", "may not start a process"),
    "huge output": ("while True: print('x' * 10_000)", "it wrote more than 1 MiB"),
    "printing to the result channel": (
        f"{RIGHT}import os\n"
        "for fd in range(3, 64):\n"
        f"    try: os.write(fd, b'{FORGED}\\n')\n"
        "    except OSError: pass",
        "something wrote",
    ),
    "deep recursion": ("def answer(graph): return answer(graph)", "RecursionError"),
    "recursion without a limit": (
        "import sys; sys.setrecursionlimit(10**9)\ndef answer(graph): return [answer(graph)]",
        "",  # a crash, or a MemoryError: the interpreter's matter
    ),
    "sys.exit": (f"{RIGHT}import sys; sys.exit(0)", "it called sys.exit"),
    "threads that live on": (
        f"{RIGHT}import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
        "thread",  # is left running, or cannot be started
    ),
    "deleting files": (
        "import os\nfor name in os.listdir('.'): os.remove(name)",
        "may not change files",
    ),
    "huge integers": ("answer = [10**5000, 'f4']", "integer"),
    "a large integer": ("answer = ['f4', 2**64]", "more than 64 bits"),
    "NaN": ("answer = [float('nan')]", "not JSON compliant"),
    "a generator that never ends": (
        "def answer(graph):\n    while True: yield 'f4'",
        "may never end",
    ),
    "a huge message": ("raise ValueError('x' * 10**7)", "ValueError: xxx"),
    "a message that raises": (
        "class Trap(Exception):\n    def __str__(self): raise SystemExit\nraise Trap",
        "its message raises an error",
    ),
    "killing the grader": (
        f"{RIGHT}import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
        "may not send a signal",
    ),
    "the network": (f"{RIGHT}import socket; socket.socket()", "may not use the network"),
    "calling C": (f"{RIGHT}import ctypes; ctypes.CDLL(None)._exit(0)", "may not call C"),
    "deep lists": (
        "answer = []\nfor _ in range(100_000): answer = [answer]",
        "expected a number or a name",
    ),
}


@pytest.mark.sampled(12)
@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answer_gets_no_points_and_an_explanation(name: str, tmp_path: Path) -> None:
    code, explanation = HOSTILE[name]
    file = tmp_path / "answer.py"
    file.write_text(code)
    result, _ = grade_puzzle(1, file, LIMITS)
    assert result.points == 0
    assert explanation in result.why
    assert 0 < len(result.why) < 400
    assert (file.read_text(), list(tmp_path.iterdir())) == (code, [file])


def test_right_answer_gets_its_points_and_is_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "answer.py"
    file.write_text(f"{RIGHT}print('hello')\n")
    found = isolated.ask(file, ["puzzle 1"], hidden=[course_folder() / "solutions"])
    assert found.values == (["entries", ["f4", "f7"]],)
    assert found.problems == ("",)
    assert found.printed == "hello\n"


@pytest.mark.long
def test_elapsed_time_is_limited_too(tmp_path: Path) -> None:
    file = tmp_path / "answer.py"
    file.write_text("import time; time.sleep(1000)\n")
    found = isolated.ask(file, ["puzzle 1"], limits=isolated.Limits(seconds=2))
    assert found.problems == ("it took longer than 2 s",)


def test_questions_after_one_that_ends_the_process_are_asked_again(tmp_path: Path) -> None:
    file = tmp_path / "part_0.py"
    file.write_text("import os\ndef one(): os._exit(3)\ndef two(): return 2\n")
    tests = (
        "from part_0 import one, two\ndef test_0_1_one(): assert one() == 1\n"
        "def test_0_2_two(): assert two() == 2\n"
    )
    found = isolated.ask(file, ["1 test_0_1_one", "1 test_0_2_two"], tests=tests)
    assert found.problems == ("its process ended with exit code 3", "")
    assert found.values[1] == [[3, "Eq", [2, 2], ["two()", "2"]]]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing.py", "there is no such file"),
        ("not python.py", "expected a Python file"),
        ("notes.txt", "expected a Python file"),
    ],
)
def test_file_that_cannot_be_graded_is_an_error(name: str, problem: str, tmp_path: Path) -> None:
    if name != "missing.py":
        (tmp_path / name).write_text("")
    with pytest.raises(tc.FormatError, match=problem):
        isolated.ask(tmp_path / name, ["puzzle 1"])


def rows(*answers: object) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in answers).encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (rows(["other", 0, "value", 1]), "something wrote"),
        (rows({"points": 10}), "something wrote"),
        (rows(["t", 0, "points", 10]), "another form"),
        (rows(["t", True, "value", 10]), "another form"),
        (b'["t", 0, "value", NaN]', "NaN is no answer"),
        (b'["t", 0, "value", 1e999]', "1e999 is no answer"),
        (b'["t", 0, "value", 1' + b"0" * 30 + b"]", "more than 64 bits"),
        (b'["t", 0, "value", 1' + b"0" * 9999 + b"]", "integer"),
        (b'["t", 0, "value", {}]', "a dict"),
        (b'["t", 0, "value", ' + b"[" * 100_000 + b"]" * 100_000 + b"]", "too deeply"),
        (b'["t", 0, "value", ', "Expecting value"),
        (b"\xff\xfe", "decode"),
    ],
)
def test_answers_are_parsed_strictly(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        isolated.parsed(content, "t")


def test_folder_that_cannot_be_covered_is_told(tmp_path: Path) -> None:
    file = tmp_path / "answer.py"
    file.write_text("answer = ['f4', 'f7']")
    covered, absent = (
        isolated.ask(file, ["puzzle 1"], hidden=[tmp_path / name]) for name in (".", "absent")
    )
    assert covered.values == absent.values == (["entries", ["f4", "f7"]],)
    if not covered.missing:  # where user namespaces are permitted
        assert absent.missing == f"{tmp_path / 'absent'} is not covered: No such file or directory"
