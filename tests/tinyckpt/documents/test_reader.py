"""What is read: regular files alone, and no more of them than the limit."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import require
from tinyckpt.documents import reader
from tinyckpt.documents.graphs import is_graph
from tinyckpt.documents.user_functions import function_of_file
from tinyckpt.networks import network_from_text

LOADERS: list[tuple[str, Callable[[str], Any]]] = [
    ("a.json", tc.load_graph),
    ("a.json", tc.load_schedule),
    ("a.json", tc.load_trace),
    ("a.csv", tc.load_measured),
    ("a.npz", tc.load_params),
    ("a.safetensors", tc.load_params),
    ("a.json", network_from_text),
    ("a.py", lambda path: network_from_text(f"{path}:f")),
    ("a.py", lambda path: function_of_file(path, "f")),
]


def make_pipe(path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs named pipes")
    os.mkfifo(path)


def make_link(path: Path) -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("needs /dev/zero")
    path.symlink_to("/dev/zero")


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)  # of which nothing is on disk


@pytest.mark.parametrize(("name", "load"), LOADERS)
@pytest.mark.parametrize("make", [Path.mkdir, make_link, make_pipe])
def test_what_is_no_regular_file_is_refused_at_once(
    tmp_path: Path, name: str, load: Callable[[str], Any], make: Callable[[Path], object]
) -> None:
    if name == "a.safetensors":
        require("safetensors")
    path = tmp_path / name
    make(path)
    with pytest.raises(tc.TinyckptError, match=rf"cannot read .*{name}.*: it is no regular file"):
        load(str(path))
    assert not is_graph(path)


@pytest.mark.parametrize(("name", "load"), LOADERS)
def test_no_more_is_read_than_the_limit(
    tmp_path: Path, name: str, load: Callable[[str], Any]
) -> None:
    if name == "a.safetensors":
        require("safetensors")
    path = tmp_path / name
    make_sparse(path)
    with pytest.raises(tc.TinyckptError, match=r"1.0 TiB; at most 1.0 GiB are read|damaged"):
        load(str(path))


@pytest.mark.parametrize(("name", "load"), LOADERS)
@pytest.mark.parametrize(("path", "reason"), [("no/such", "No such file"), ("a\0b", "null byte")])
def test_what_is_not_there(name: str, load: Callable[[str], Any], path: str, reason: str) -> None:
    with pytest.raises(tc.TinyckptError, match=rf"cannot read .*{reason}"):
        load(f"{path}/{name}")


def test_a_file_that_grows_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(100))
    monkeypatch.setattr(reader, "LARGEST_FILE", 100)
    assert len(reader.read_bytes(path)) == 100
    whole = os.stat_result((*path.stat()[:6], 40, *path.stat()[7:]))
    monkeypatch.setattr(os, "fstat", lambda _: whole)  # it was smaller then
    assert len(reader.read_bytes(path)) == 100
    path.write_bytes(bytes(10**6))
    with pytest.raises(tc.FormatError, match="101 B; at most 100 B are read"):
        reader.read_bytes(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_writer_of_a_pipe_is_not_disturbed(tmp_path: Path) -> None:
    """Opening a pipe and leaving it would end whoever writes into it for another's eyes."""
    path = tmp_path / "a.json"
    os.mkfifo(path)
    with subprocess.Popen(
        [sys.executable, "-c", f"open({str(path)!r}, 'w').write('hello')"]
    ) as writer:
        for _ in range(20):
            with pytest.raises(tc.FormatError, match="it is no regular file"):
                tc.load_graph(path)
        assert path.read_text() == "hello"
        assert writer.wait() == 0
