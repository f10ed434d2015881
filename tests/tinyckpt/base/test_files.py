"""Files are written beside and renamed into place: all of them, or as they were before."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tinyckpt.base.files import replacing, write_atomically


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept.txt"
    write_atomically(path, b"old")
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600

    def full(source: Any, target: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(tc.FormatError, match="No space left on device"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept.txt"]


def test_a_file_that_is_streamed_takes_the_path_only_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"-ew")
        file.seek(0)
        file.write(b"n")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"never")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path: Path) -> None:
    path = tmp_path / f"{'x' * 250}.json"
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_rights_are_those_of_the_file_before_or_of_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o027)
    try:
        # Nothing may set it meanwhile: it is one for all threads.
        monkeypatch.setattr(os, "umask", None)
        write_atomically(tmp_path / "new", b"")
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o600)
    write_atomically(tmp_path / "new", b"again")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


def test_links_stay_links_and_folders_are_refused(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    write_atomically(os.devnull, b"gone")
    assert not Path(os.devnull).is_file()
    with pytest.raises(tc.FormatError, match="Is a directory"):
        write_atomically(tmp_path, b"")
