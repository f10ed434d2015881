"""Every lesson runs to its closing assertions, without a warning, and is short enough to finish."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import require

LESSONS = sorted((Path(__file__).parent.parent / "lessons").glob("[0-9]*.py"))
NEEDS = {"19_pytorch": "torch"}  # what a lesson imports that is an extra of its own


@pytest.mark.long
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if path.stem in NEEDS:
        require(NEEDS[path.stem])
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert text.startswith("# %% [markdown]\n# # ")
    assert "**Predict.**" in text
    assert "\nassert " in text.rpartition("# %%")[2]
    # Here, where warnings are errors and everything is imported; below, one as a process.
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert "you said" in capsys.readouterr().out
    assert (tmp_path / "out" / f"{path.stem[:2]}_player.html").exists()


def test_a_lesson_is_a_script(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(LESSONS[0])]
    environment = {**os.environ, "PYTHONUTF8": "1"}
    result = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "you said" in result.stdout


def test_there_are_lessons() -> None:
    assert [path.stem[:2] for path in LESSONS] == [f"{number:02}" for number in range(1, 20)]
