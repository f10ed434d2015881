"""What the README says can be done."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()


def test_the_ten_lines_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    assert names["result"].trace == names["trace"]  # type: ignore[attr-defined]
    assert "def step(params, x, y):" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "plan.gif",
        "plan.html",
        "plan.png",
    ]


def test_everything_it_points_to_is_there() -> None:
    targets = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert len(targets) >= 10
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_two_commands_stand_before_the_first_heading() -> None:
    top = TEXT.split("\n## ")[0]
    assert "make demo" in top
    assert "make test" in top
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test", "check", "test-deep", "gpu-test", "images"):
        assert f"\n{target}:" in makefile
