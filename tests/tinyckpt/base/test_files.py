"""Atomic file writes: the path has the whole new content, or the old one."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tinyckpt.base.files import replacing, write_atomically


def test_failed_write_leaves_old_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_streamed_file_replaces_path_only_at_end(tmp_path: Path) -> None:
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


def test_file_name_of_maximal_length_is_writable(tmp_path: Path) -> None:
    path = tmp_path / f"{'x' * 250}.json"
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_permissions_equal_old_files_or_umask(
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


def test_symlinks_are_kept_and_folders_refused(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("path", [1, None, [], b"a.json", 1.5])
def test_what_is_no_path_is_refused(path: Any) -> None:
    graph = tc.networks.chain(2)
    doors: list[Any] = [
        lambda: tc.save_graph(graph, path),
        lambda: tc.save_csv(tc.replay(tc.plan(graph)), path),
        lambda: tc.save_params({}, path),
        lambda: tc.load_params(path),
        lambda: tc.load_measured(path),
        lambda: tc.load_graph(path),
    ]
    for door in doors:
        with pytest.raises(tc.FormatError, match="expected a path, a string or"):
            door()
