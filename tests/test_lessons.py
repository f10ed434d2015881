"""Every lesson runs to its closing assertions, without a warning, and is short enough to finish."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import viz
from tests.conftest import HURRIED, require

LESSONS = sorted((Path(__file__).parent.parent / "lessons").glob("[0-9]*.py"))
NEEDS = {"19_pytorch": "torch"}  # what a lesson imports that is an extra of its own
# Numbers that are an answer, and stand above its question all the same, as another thing's.
FAMILIAR = {"11_training": {"16"}}  # of plain training; that it is the same is what surprises
CHALLENGES = ("05", "06", "07", "08", "09")
COSTS = re.compile(r"takes (?:less than )?([\d.]+)")


@pytest.mark.long
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_lesson_runs_without_warnings(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if path.stem in NEEDS:
        require(NEEDS[path.stem])
    text = path.read_text(encoding="utf-8")
    # Questions after the first one, and a challenge, come on top.
    assert len(text.splitlines()) <= 190 + 14 * (text.count("viz.ask(") - 1)
    assert text.startswith("# %% [markdown]\n# # ")
    assert "**Predict.**" in text
    assert "\nassert " in text.rpartition("# %%")[2]
    ask, player, lab, printed, played = viz.ask, viz.player, viz.lab, [], []

    def asked(*question: Any, **options: Any) -> Any:
        printed.append(capsys.readouterr().out)
        return ask(*question, **options)

    def drawn(traces: Any, *arguments: Any, **options: Any) -> Any:
        played.extend(traces if isinstance(traces, list) else [traces])
        return player(traces, *arguments, **options)

    def hurried(*arguments: Any, **options: Any) -> Any:
        return lab(*arguments, **{"time_limit": HURRIED, **options})

    monkeypatch.setattr(viz, "ask", asked)
    # Nobody looks at a lesson's lab here: a page is a page, however far its search came.
    monkeypatch.setattr(viz, "lab", hurried)
    monkeypatch.setattr(viz, "player", drawn)
    # Here, where warnings are errors and everything is imported; below, one as a process.
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    printed.append(capsys.readouterr().out)
    assert (tmp_path / "out" / f"{path.stem[:2]}_player.html").exists()
    parts = text.split(" = viz.ask(")
    assert len(parts) == len(printed)
    # The player stands at the top of the lesson's page.
    seen = [*map(headline, played), parts[0], printed[0]]
    for part, said in zip(parts[1:], printed[1:], strict=True):
        answer = re.findall(r"^you said .*?; it is (.*)$", said, re.MULTILINE)[0]
        # What a challenge can be met with comes last, after what has been asked.
        own = COSTS.findall(answer) or numbers(answer.partition(":")[0])
        for number in set(own) - FAMILIAR.get(path.stem, set()):
            assert not says("\n".join(seen), number), f"the answer {number} stands above"
        seen += [part, said]


def headline(trace: Any) -> str:
    """Return the numbers that a player shows large."""
    sizes = [f"{trace.peak_bytes / 2**power:.1f}" for power in (10, 20, 30)]
    return f"{trace.evaluations} {trace.peak_nodes} nodes {' '.join(sizes)}"


def says(text: str, number: str) -> bool:
    """Return whether a text has a number in it; one digit counts with what it is a number of."""
    if len(number) > 1:
        return number in numbers(text)
    return re.search(rf"\b{number} (nodes?|values?|blocks?|units?)\b", text) is not None


def numbers(text: str) -> set[str]:
    """Return the numbers in a text, as they are written."""
    return set(re.findall(r"\d+(?:\.\d+)?", text.replace(",", "")))


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_question_precedes_its_answer(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    names = re.findall(r"^(my_\w+) = viz\.ask\(", text, re.MULTILINE)
    assert (
        len(names) == len(set(names)) == len(re.findall(r"\*\*(?:Predict|Challenge)\.\*\*", text))
    )
    assert "my_guess" in names
    assert ("my_choice" in names) == ("viz.challenge(" in text) == path.stem.startswith(CHALLENGES)
    rest = text
    for name in names:
        kind = "**Challenge.**" if name == "my_choice" else "**Predict.**"
        order = [kind, f"{name} = viz.ask(", f"you said {{{name}}}; it is "]
        assert all(rest.count(part) == 1 for part in order[1:])
        assert sorted(order, key=rest.index) == order
        # Between question and answer stand nothing but the cell in which one answers, and the next.
        between = rest[rest.index(order[0]) : rest.index(order[1])]
        # A challenge's page, which one opens to try it out, stands there too.
        assert between.count("# %%") == 1 + between.count("viz.lab(")
        rest = rest[rest.index(order[2]) :]
    assert "viz.ask(" not in rest


def test_lesson_runs_as_plain_script(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(LESSONS[0])]
    environment = {**os.environ, "PYTHONUTF8": "1"}
    result = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "you said" in result.stdout


def test_lessons_exist() -> None:
    assert [path.stem[:2] for path in LESSONS] == [f"{number:02}" for number in range(1, 21)]
