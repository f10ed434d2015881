"""Questions wait at a terminal, and nowhere else."""

import builtins
import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import viz
from viz.terminal.asking import answer_of


class Terminal(io.StringIO):
    """What is typed, or shown, at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return what gives lines to be read from a terminal, and returns what is shown there."""

    def sit_down(lines: str) -> Terminal:
        monkeypatch.delenv("PYTEST_CURRENT_TEST")
        monkeypatch.delenv("CI", raising=False)
        shown = Terminal()
        monkeypatch.setattr(sys, "stdin", Terminal(lines))
        monkeypatch.setattr(sys, "stdout", shown)
        return shown

    return sit_down


def test_an_answer_is_waited_for_at_a_terminal(typed: Any) -> None:
    shown = typed("34\n")
    assert viz.ask("how many?", 0) == 34
    assert shown.getvalue() == "how many? [0] "


def test_it_is_asked_again_until_the_form_is_right(typed: Any) -> None:
    shown = typed("many\n41\n1,2,3\n(41, 1,162)\n")
    assert viz.ask("which two?", (0, 0)) == (41, 1162)
    wanted = "two numbers, with a space between them, please; or nothing, for 0 0: "
    assert shown.getvalue() == f"which two? [0 0] {wanted}{wanted}{wanted}"


@pytest.mark.parametrize("lines", ["\n", "", "many\n", "many\n\n"])
def test_nothing_and_the_end_of_input_stand_for_the_guess_in_the_script(
    typed: Any, lines: str
) -> None:
    typed(lines)
    assert viz.ask("how many?", 7) == 7


@pytest.mark.parametrize("where", ["CI", "PYTEST_CURRENT_TEST"])
def test_nothing_waits_in_ci_or_in_a_test(
    typed: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = typed("34\n")
    monkeypatch.setenv(where, "1")
    assert viz.ask("how many?", 0) == 0
    assert shown.getvalue() == "how many? Nobody is asked here, so: 0\n"


@pytest.mark.parametrize("piped", ["stdin", "stdout"])
def test_nothing_waits_in_a_pipe(typed: Any, piped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    typed("34\n")
    monkeypatch.setattr(sys, piped, io.StringIO("34\n"))
    assert viz.ask("how many?", 0) == 0
    monkeypatch.setattr(sys, piped, None)  # a program without a console
    if piped == "stdin":
        assert viz.ask("how many?", 0) == 0


@pytest.mark.parametrize("has_input", [True, False])
def test_a_notebook_asks_if_it_has_input(
    typed: Any, has_input: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(prompt: str) -> str:
        if not has_input:
            raise NotImplementedError("raw_input was called, but this frontend does not support it")
        return "34"

    typed("")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    shell = SimpleNamespace(kernel=None)
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    monkeypatch.setattr(builtins, "input", read)
    assert viz.ask("how many?", 0) == (34 if has_input else 0)


@pytest.mark.parametrize(
    ("text", "otherwise", "answer"),
    [
        ("1,162", 0, 1162), ("1_162", 0, 1162), ("45 %", 0, 45), (".5", 0.0, 0.5),
        ("-3", 0, -3), ("66.5 MiB", 0, 66.5), ("0.47%", 0.0, 0.47),
        ("4.4 and 2.5", (0.0, 0.0), (4.4, 2.5)),
        ("41 1162", (0, 0), (41, 1162)), ("12, 6144", (0, 0), (12, 6144)),
        ("nan", 0, None), ("inf", 0, None), ("1 2", 0, None), ("2**5", 0, None),
        ("1" * 5000, 0, None),
        ("g @ w.T", "g @ w", "g @ w.T"),
    ],
)  # fmt: skip
def test_answers(text: str, otherwise: Any, answer: Any) -> None:
    assert answer_of(text, otherwise) == answer


@pytest.mark.parametrize("otherwise", [None, True, (), ("a",), [0], (0, None)])
def test_a_guess_that_nobody_can_type_is_refused(otherwise: Any) -> None:
    with pytest.raises(ValueError, match="a guess is a text, a number, or a tuple of numbers, not"):
        viz.ask("what?", otherwise)


def test_a_process_at_a_terminal_waits() -> None:
    ours = {"CI", "PYTEST_CURRENT_TEST"}
    environment = {key: value for key, value in os.environ.items() if key not in ours}
    keyboard, terminal = pty.openpty()
    script = "import viz; print('you said', viz.ask('how many?', 0))"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=terminal, stdout=terminal, stderr=terminal, env=environment,
    )  # fmt: skip
    shown = b""
    try:
        while not shown.endswith(b"how many? [0] "):
            shown += os.read(keyboard, 1000)
        assert process.poll() is None
        os.write(keyboard, b"34\n")
        assert process.wait(60) == 0
        assert os.read(keyboard, 1000).split() == [b"34", b"you", b"said", b"34"]
    finally:
        process.kill()
        process.wait()
        os.close(keyboard)
        os.close(terminal)


LAYERS = [f"f{layer}" for layer in range(1, 13)]


@pytest.mark.parametrize(
    ("line", "chosen"),
    [
        ("f4 f8", ("f4", "f8")), ("f8,f4, f4", ("f4", "f8")), ("f1*", ("f1", "f10", "f11", "f12")),
        ("*", tuple(LAYERS)), ("", ("f2",)),
    ],
)  # fmt: skip
def test_names_are_chosen_among_those_that_there_are(
    typed: Any, line: str, chosen: tuple[str, ...]
) -> None:
    shown = typed(f"{line}\n")
    assert viz.ask("which?", ("f2",), among=LAYERS) == chosen
    assert shown.getvalue() == "which? [f2] "


@pytest.mark.parametrize("line", ["f13", "f4 g", "f4 f8 4", "[", "F4"])
def test_a_name_that_there_is_not_is_asked_for_again(typed: Any, line: str) -> None:
    shown = typed(f"{line}\nf4\n")
    assert viz.ask("which?", (), among=LAYERS) == ("f4",)
    assert "some of f1, f2, ..., f12, with spaces between them, please; or nothing, for" in (
        shown.getvalue()
    )


@pytest.mark.parametrize("otherwise", ["f1", 1, ("f1", "f0"), ["f1"]])
def test_a_guess_is_among_the_names(otherwise: Any) -> None:
    with pytest.raises(ValueError, match="a guess is a tuple of names that there are, not "):
        viz.ask("which?", otherwise, among=LAYERS)
