"""The scripts of examples/ run, for a few steps each."""

import runpy
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tinyckpt as tc

EXAMPLES = Path(__file__).parents[1] / "examples"
SHORT = {
    "train_digits.py": (["--epochs", "1"], "% of the test part"),
    "train_gpt.py": (["--steps", "3", "--characters", "20"], "% of the entropy"),
}


def test_every_example_script_is_listed() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHORT)


@pytest.mark.long
@pytest.mark.parametrize("name", SHORT)
def test_example_script_runs(
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options, expected = SHORT[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *options])
    # A plan within a budget searches for seconds; how good it is is no matter here.
    monkeypatch.setattr(import_module("tinyckpt.planner.portfolio.plan"), "PORTFOLIO_SECONDS", 0.5)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert expected in capsys.readouterr().out
    if name == "train_gpt.py":
        assert int(tc.load_params(tmp_path / "gpt.npz")["step"]) == 3
