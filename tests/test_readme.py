"""The README: its code runs, its commands print what it shows, its links resolve."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

import tinyckpt as tc
from tests.conftest import require
from tests.readme import ROOT, TEXT, commands, needs_torch, outputs, python_blocks
from tinyckpt.cli import main
from tinyckpt.cli.main import JOBS
from tinyckpt.cli.parser import make_parser


def shown(text: str = TEXT) -> list[list[str]]:
    """Return the lines of each block of printed output."""
    blocks = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [[line for line in block.splitlines() if line != "…"] for block in blocks]


@pytest.mark.long
def test_readme_code_prints_and_writes_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = (code for code in python_blocks() if not needs_torch(code))
    exec(code, {})
    assert capsys.readouterr().out.splitlines() == shown()[0]
    assert [path.name for path in tmp_path.iterdir()] == ["explainer.gif"]


def test_readme_is_short() -> None:
    assert len(TEXT.split()) <= 800


def test_readme_pytorch_code_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require("torch")
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    for code in filter(needs_torch, python_blocks()):
        exec(code, names)
    assert names["advice"].modules  # type: ignore[attr-defined]
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in shown()[1] if line not in printed] == []
    (command,) = filter(needs_torch, commands())
    assert main(shlex.split(command)[1:]) == 0
    assert "Wrap 4 of 7 modules" in capsys.readouterr().out


def test_readme_commands_parse() -> None:
    # That they run as they stand is what tests/test_newcomer.py finds out.
    parser = make_parser(JOBS)
    lines = [shlex.split(line, comments=True) for line in commands()]
    own = [words for words in lines if words[0] == "tinyckpt"]
    assert len(own) >= 5
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
    targets += re.findall(r'(?:src|srcset)="([^"]+)"', TEXT)
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_make_nightly_leaves_no_test_out() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "\t$(MAKE) test-deep" in makefile.partition("\nnightly:")[2].partition("\n\n")[0]
    recipe = makefile.partition("\ntest-deep:")[2].partition("\n\n")[0]
    assert recipe.endswith('$(PYTEST) -m ""')  # in place of pyproject's, which leaves nightly out


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


def test_policy_table_equals_policy_summaries() -> None:
    path = ROOT / "docs" / "policy_table.py"
    spec = importlib.util.spec_from_file_location("policy_table", path)
    assert spec is not None
    assert spec.loader is not None
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    text = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    assert writer.with_table(text) == text, "run python docs/policy_table.py"
    assert len(writer.policy_table().splitlines()) == 2 + len(tc.POLICIES)
