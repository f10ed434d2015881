"""``tinyckpt lessons``: the list, and a folder of scripts to run."""

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tinyckpt.cli import main


def test_lessons_are_listed_by_title_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lessons"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [int(line.partition(".")[0]) for line in listed] == list(range(1, len(listed) + 1))
    assert len(listed) == len([*(ROOT / "lessons").glob("[0-9]*.py")])
    assert listed[2] == "3. Store all"


def test_lessons_are_copied_as_they_are_into_a_new_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mine"
    assert main(["lessons", "--copy", str(folder)]) == 0
    assert capsys.readouterr().out.rstrip().endswith("01_the_graph.py")
    copied = sorted(folder.iterdir())
    assert [path.name for path in copied] == sorted(
        path.name for path in (ROOT / "lessons").glob("[0-9]*.py")
    )
    for path in copied:
        assert path.read_bytes() == (ROOT / "lessons" / path.name).read_bytes()
    with pytest.raises(SystemExit, match="2"):
        main(["lessons", "--copy", str(folder)])
    assert "it exists already, and is not an empty folder" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["lessons", "course"])
def test_folder_that_cannot_be_made_is_named(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert main([command, "--copy", str(tmp_path / "file/inside")]) != 0
    assert f"cannot write {tmp_path}/file/inside: Not a directory" in capsys.readouterr().err
