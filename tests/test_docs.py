"""The pages of docs/: their code runs, and prints the output they show."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require
from tests.readme import commands, outputs, python_blocks
from tinyckpt.cli import main
from tinyckpt.cli.main import JOBS
from tinyckpt.cli.parser import make_parser
from tinyckpt.techniques import TECHNIQUES

ROOT = Path(__file__).parent.parent


@pytest.mark.long
@pytest.mark.usefixtures("hurried")
def test_code_of_page_your_own_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "your_own.md").read_text(encoding="utf-8")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, object] = {"__name__": "your_own"}
    for code in python_blocks(text):
        exec(code, names)
    assert shown_and_not_printed(text, capsys.readouterr().out.splitlines()) == []
    lines = commands(text)
    assert len(lines) >= 8
    for line in lines:
        command, *arguments = shlex.split(line)
        assert command == "tinyckpt"
        assert main(arguments) == 0, line
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"docs", "mine.gif", "mine.html", "my_model.json", "profile.html"}


def test_code_of_page_embedding_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require("anywidget")
    text = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "embedding"}
    for code in python_blocks(text):
        exec(code, names)
    assert {path.name for path in tmp_path.iterdir()} == {"tiny-ckpt.js", "chain16.json"}
    tag = '<tiny-ckpt src="chain16.json" stop="peak">'
    assert tag in capsys.readouterr().out
    assert f"\n{tag}</tiny-ckpt>\n" in text
    assert names["widget"].kept == [8]
    # What the page says of events and attributes is what the script has.
    script = (tmp_path / "tiny-ckpt.js").read_text(encoding="utf-8")
    assert set(re.findall(r'emit\("(ckpt-\w+)"', script)) == set(re.findall(r"`(ckpt-\w+)`", text))
    (listed,) = re.findall(r"observedAttributes = (\[.*?\])", script, re.DOTALL)
    (driven,) = re.findall(r"const DRIVEN = (\[.*?\])", script)
    known = {*re.findall(r'"(\w+)"', listed), *re.findall(r'"(\w+)"', driven)}
    assert known == set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


@pytest.mark.long
def test_code_of_page_offload_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "offload.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "offload"}
    for code in python_blocks(text):
        exec(code, names)
    printed = capsys.readouterr().out.splitlines()
    assert shown_and_not_printed(text, printed) == []
    # Logits of 1.5 GiB and their cotangent, against pieces and three gradients of the weight.
    assert printed[-2:] == ["3534 MiB, 0 recomputations", "467 MiB, 32 recomputations"]
    pictures = {"offload.gif", "times.png", "times.html"}
    assert {path.name for path in tmp_path.iterdir()} == pictures
    drawn = (tmp_path / "times.html").read_bytes()
    (line,) = commands(text)
    assert main(shlex.split(line)[1:]) == 0
    assert (tmp_path / "times.html").read_bytes() == drawn


@pytest.mark.long
def test_code_of_page_techniques_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "techniques.md").read_text(encoding="utf-8")
    ((command, shown),) = outputs(text).items()
    assert command == "tinyckpt compare transformer:12x768 --techniques --budget 50%"
    assert [line.split("  ")[0] for line in shown[2:-1]] == list(TECHNIQUES)
    assert shown[-1].startswith("nothing was measured: store-all: 4 steps may take ")
    names: dict[str, object] = {"__name__": "techniques"}
    for code in python_blocks(text):
        exec(code, names)
    printed = capsys.readouterr().out
    assert "approximate: codes of 8 bits" in printed
    assert re.search(r"^accumulation: [\d,]+ bytes, 1\.\d+ times the cost$", printed, re.MULTILINE)


def test_code_of_page_training_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "training"}
    for code in python_blocks(text):
        exec(code, names)
    assert "optimizer state" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"run.npz"}


# What a plan costs depends on how far the search came in its seconds.
NUMBER = re.compile(r"\d[\d.,e+]*|(?<= )-(?= |$)")  # - where there is none, in a table


def said(line: str) -> str:
    """Return a line without its numbers, and without what depends on their width."""
    return " ".join(NUMBER.sub("#", line).split())


def shown_and_not_printed(text: str, printed: list[str]) -> list[str]:
    """Return the lines of a page's blocks of output, without numbers, that were not printed."""
    blocks = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [said(line) for block in blocks for line in block.splitlines()]
    found = set(map(said, printed))
    # A plan that is found in time may be proven to be the best, or nearly so.
    return [line for line in lines if line not in found and "cost within" not in line]


@pytest.mark.long
def test_code_of_page_pipelines_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require("matplotlib")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "pipelines"}
    text = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    for code in python_blocks(text):
        exec(code, names)
    printed = capsys.readouterr().out.splitlines()
    shown = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert "".join(shown).splitlines() == printed
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"pipelines.png", "pipelines.html"}


TORCH_PAGE = (ROOT / "docs" / "torch.md").read_text(encoding="utf-8")
ADVICE, PLANS = TORCH_PAGE.split("\n## Plans, for compiled steps\n")


def run_torch_page(
    first: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> set[str]:
    """Run code, then a part of the page; compare what it prints; return the files it writes."""
    (folder / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"__name__": "torch_guide"}
    for code in (first, *python_blocks(text)):
        exec(code, names)
    assert shown_and_not_printed(text, capsys.readouterr().out.splitlines()) == []
    return {path.name for path in folder.iterdir()} - {"docs"}


@pytest.mark.long
def test_code_of_page_torch_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require("torch")
    assert run_torch_page("", ADVICE, tmp_path, monkeypatch, capsys) == set()


# Of the guide's model what the part about plans is run on in CI: of such a length that the budgets
# on the page are too small for a plain step, and large enough for a plan.
SMALLER = {"layers": 1, "width": 64, "heads": 2, "length": 1024, "vocabulary": 500}
AS_IS: dict[str, int] = {}


@pytest.mark.long
@pytest.mark.usefixtures("hurried")  # ten searches of six seconds and more
@pytest.mark.parametrize(
    "model",
    [pytest.param(SMALLER, id="smaller"), pytest.param(AS_IS, id="own", marks=pytest.mark.nightly)],
)
def test_code_of_page_torch_about_plans_runs(
    model: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    require("torch")
    from docs import my_model

    if model:
        defaults = (model["layers"], model["width"], model["heads"])
        monkeypatch.setattr(my_model.GPT.__init__, "__defaults__", defaults)
        monkeypatch.setattr(my_model, "LENGTH", model["length"])
        monkeypatch.setattr(my_model, "VOCABULARY", model["vocabulary"])
    # Of the part before: the imports, and the plain step.
    blocks = python_blocks(ADVICE)
    begin = blocks[0].partition("\n\n")[0]
    (plain,) = (block.partition("\n\n\n")[0] for block in blocks if "def plain():" in block)
    first = f"{begin}\n{plain}"
    written = run_torch_page(first, PLANS, tmp_path, monkeypatch, capsys)
    assert written == {"frontier.svg", "step.html"}


SHOWN_OF_TORCH = outputs(TORCH_PAGE)
TORCH = {each: lines for each, lines in SHOWN_OF_TORCH.items() if "--hf" not in each}


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("command", TORCH)
def test_commands_of_page_torch_print_its_output(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require("torch")
    monkeypatch.chdir(ROOT)
    lines = TORCH[command]
    assert main(shlex.split(command)[1:]) == 0
    printed = capsys.readouterr().out.splitlines()
    if any("with a plan" in line for line in lines):
        printed = list(map(said, printed))
        lines = [said(line) for line in lines if "cost within" not in line]
    assert [line for line in lines if line not in printed] == []


def test_page_torch_shows_four_commands() -> None:
    assert len(TORCH) == 4


@pytest.mark.long
def test_code_of_page_jax_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require("jax")
    text = (ROOT / "docs" / "jax.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "jax_guide"}
    for code in python_blocks(text):
        exec(code, names)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert capsys.readouterr().out.startswith(shown)


ISSUES = (ROOT / "docs" / "known_issues.md").read_text(encoding="utf-8")
SHOWN = re.findall(
    r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", ISSUES, re.MULTILINE | re.DOTALL
)


def drawn_by(code: str) -> set[str]:
    """Return the names of the pictures that code writes."""
    return set(re.findall(r'viz\.\w+\(.*"(\w+)\.svg"', code))


@pytest.mark.sampled(6)
@pytest.mark.long
@pytest.mark.parametrize("entry", range(len(SHOWN)))
def test_code_of_page_known_issues_prints_its_output(
    entry: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = SHOWN[entry]
    if "torch" in code:
        require("torch")
    monkeypatch.chdir(tmp_path)
    exec(code, {"__name__": "known_issues"})
    assert capsys.readouterr().out == shown
    assert {path.stem for path in tmp_path.iterdir()} == drawn_by(code)


def test_page_known_issues_shows_what_its_code_draws() -> None:
    assert len(SHOWN) == len(python_blocks(ISSUES)) == 16
    drawn = set().union(*(drawn_by(code) for code, _ in SHOWN))
    assert drawn == set(
        re.findall(r"\(guide/out/(\w+)\.svg\)\{\.only-light\}$", ISSUES, re.MULTILINE)
    )
    assert drawn == set(re.findall(r"out/(\w+)-dark\.svg\)\{\.only-dark\}$", ISSUES, re.MULTILINE))
    parser = make_parser(JOBS)
    for line in commands(ISSUES):
        parser.parse(shlex.split(line)[1:])


@pytest.mark.nightly  # tests/viz/lab runs commands alike on smaller networks
def test_commands_of_page_known_issues_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in commands(ISSUES):
        assert main(shlex.split(line)[1:]) == 0, line


def test_page_known_issues_has_an_issue_and_a_number_for_each_question() -> None:
    entries = ISSUES.split("\n### ")[1:]
    assert len(entries) == 15
    for entry in entries:
        assert re.search(r"\]\(https://github\.com/[\w./-]+/(issues|pull)/\d+\)", entry)
        assert "\n```text\n" in entry
