"""The examples run: a few steps of each."""

import subprocess
import sys
from pathlib import Path

import pytest

import tinyckpt as tc

EXAMPLES = Path(__file__).parents[1] / "examples"
SHORT = {
    "train_digits.py": (["--epochs", "1"], "% of the test part"),
    "train_gpt.py": (["--steps", "3", "--characters", "20"], "% of the entropy"),
}


def test_every_example_is_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHORT)


@pytest.mark.parametrize("name", SHORT)
def test_an_example_runs(tmp_path: Path, name: str) -> None:
    options, expected = SHORT[name]
    run = subprocess.run(
        [sys.executable, EXAMPLES / name, *options],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert expected in run.stdout
    if name == "train_gpt.py":
        assert int(tc.load_params(tmp_path / "gpt.npz")["step"]) == 3
