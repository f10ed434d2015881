"""The README: its code runs, its commands print what it shows, its links resolve."""

import importlib.util
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

import tinyckpt as tc
from tests.conftest import require
from tests.readme import ROOT, TEXT, commands, needs_torch, outputs, python_blocks
from tinyckpt.cli import main
from tinyckpt.cli.main import JOBS
from tinyckpt.cli.parser import make_parser


@pytest.mark.long
def test_readme_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # Plans within budgets search for seconds; what they find then is no matter here.
    monkeypatch.setattr(import_module("tinyckpt.planner.portfolio.plan"), "PORTFOLIO_SECONDS", 0.5)
    names: dict[str, object] = {}
    for code in python_blocks():
        if not needs_torch(code):
            exec(code, names)
    assert names["result"].trace == names["trace"]  # type: ignore[attr-defined]
    assert "def step(params, x, y):" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "frames.gif",
        "plan.gif",
        "plan.html",
        "plan.png",
        "state.npz",
    ]


def test_readme_pytorch_code_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require("torch")
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    for code in filter(needs_torch, python_blocks()):
        exec(code, names)
    assert names["advice"].modules  # type: ignore[attr-defined]
    (command,) = filter(needs_torch, commands())
    assert main(shlex.split(command)[1:]) == 0
    assert "Wrap 4 of 7 modules" in capsys.readouterr().out


def test_readme_commands_parse() -> None:
    # That they run as they stand is what tests/test_newcomer.py finds out.
    parser = make_parser(JOBS)
    lines = [shlex.split(line, comments=True) for line in commands()]
    own = [words for words in lines if words[0] == "tinyckpt"]
    assert len(own) >= 14
    for words in own:
        parser.parse(words[1:])
    assert {words[0] for words in lines} == {"make", "source", "tinyckpt"}


def test_readme_commands_print_shown_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert outputs()
    for command, lines in outputs().items():
        assert main(shlex.split(command)[1:]) == 0
        printed = capsys.readouterr().out.splitlines()
        assert lines
        assert [line for line in lines if line not in printed] == []


def test_readme_links_resolve() -> None:
    targets = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert len(targets) >= 10
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_readme_has_two_commands_before_first_heading() -> None:
    top = TEXT.split("\n## ")[0]
    assert "make demo" in top
    assert "make test" in top
    makefile = (ROOT / "Makefile").read_text()
    for target in (
        "demo",
        "test",
        "test-all",
        "check",
        "test-deep",
        "gpu-test",
        "images",
        "newcomer",
    ):
        assert f"\n{target}:" in makefile


def test_readme_policy_table_equals_policy_summaries() -> None:
    path = ROOT / "docs" / "policy_table.py"
    spec = importlib.util.spec_from_file_location("policy_table", path)
    assert spec is not None
    assert spec.loader is not None
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert writer.with_table(text) == text, "run python docs/policy_table.py"
    assert len(writer.policy_table().splitlines()) == 2 + len(tc.POLICIES)
