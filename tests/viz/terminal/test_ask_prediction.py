"""Interactive prompts wait on a terminal, and nowhere else."""

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
from viz.terminal.ask_prediction import parse_answer


class Terminal(io.StringIO):
    """Fake terminal: typed lines and shown text."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that feeds lines to a fake terminal, and returns its output."""

    def sit_down(lines: str) -> Terminal:
        monkeypatch.delenv("PYTEST_CURRENT_TEST")
        monkeypatch.delenv("CI", raising=False)
        shown = Terminal()
        monkeypatch.setattr(sys, "stdin", Terminal(lines))
        monkeypatch.setattr(sys, "stdout", shown)
        return shown

    return sit_down


def test_ask_waits_at_a_terminal(typed: Any) -> None:
    shown = typed("34\n")
    assert viz.ask("how many?", 0) == 34
    assert shown.getvalue() == "how many? [0] "


def test_ask_repeats_until_the_answer_parses(typed: Any) -> None:
    shown = typed("many\n41\n1,2,3\n(41, 1,162)\n")
    assert viz.ask("which two?", (0, 0)) == (41, 1162)
    wanted = "two numbers, with a space between them, please; or nothing, for 0 0: "
    assert shown.getvalue() == f"which two? [0 0] {wanted}{wanted}{wanted}"


@pytest.mark.parametrize("lines", ["\n", "", "many\n", "many\n\n"])
def test_empty_input_and_eof_return_the_default(typed: Any, lines: str) -> None:
    typed(lines)
    assert viz.ask("how many?", 7) == 7


@pytest.mark.parametrize("where", ["CI", "PYTEST_CURRENT_TEST"])
def test_ask_returns_the_default_in_ci_and_tests(
    typed: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = typed("34\n")
    monkeypatch.setenv(where, "1")
    assert viz.ask("how many?", 0) == 0
    assert shown.getvalue() == "how many? (non-interactive: using 0)\n"


@pytest.mark.parametrize("piped", ["stdin", "stdout"])
def test_ask_returns_the_default_in_a_pipe(
    typed: Any, piped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed("34\n")
    monkeypatch.setattr(sys, piped, io.StringIO("34\n"))
    assert viz.ask("how many?", 0) == 0
    monkeypatch.setattr(sys, piped, None)  # a program without a console
    if piped == "stdin":
        assert viz.ask("how many?", 0) == 0


@pytest.mark.parametrize("has_input", [True, False])
def test_ask_works_in_a_notebook_with_input(
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
def test_answers_are_parsed(text: str, otherwise: Any, answer: Any) -> None:
    assert parse_answer(text, otherwise) == answer


@pytest.mark.parametrize("otherwise", [None, True, (), ("a",), [0], (0, None)])
def test_untypeable_default_is_refused(otherwise: Any) -> None:
    with pytest.raises(ValueError, match="expected a text, a number, or a tuple of numbers, got"):
        viz.ask("what?", otherwise)


@pytest.mark.long
def test_process_at_a_terminal_waits() -> None:
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
def test_names_and_patterns_select_from_the_list(
    typed: Any, line: str, chosen: tuple[str, ...]
) -> None:
    shown = typed(f"{line}\n")
    assert viz.ask("which?", ("f2",), among=LAYERS) == chosen
    assert shown.getvalue() == "which? [f2] "


@pytest.mark.parametrize("line", ["f13", "f4 g", "f4 f8 4", "[", "F4"])
def test_unknown_name_is_asked_again(typed: Any, line: str) -> None:
    shown = typed(f"{line}\nf4\n")
    assert viz.ask("which?", (), among=LAYERS) == ("f4",)
    assert "some of f1, f2, ..., f12, with spaces between them, please; or nothing, for" in (
        shown.getvalue()
    )


@pytest.mark.parametrize("otherwise", ["f1", 1, ("f1", "f0"), ["f1"]])
def test_default_must_be_among_the_names(otherwise: Any) -> None:
    with pytest.raises(ValueError, match="expected a tuple of names from the list, got "):
        viz.ask("which?", otherwise, among=LAYERS)
