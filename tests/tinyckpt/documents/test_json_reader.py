"""Bounded reads: regular files only, at most the limit of bytes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import lacking, require
from tinyckpt.documents import json_reader as reader
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
        lacking("named pipes")
    os.mkfifo(path)


def make_link(path: Path) -> None:
    if not Path("/dev/zero").exists():
        lacking("/dev/zero")
    path.symlink_to("/dev/zero")


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)  # of which nothing is on disk


def test_entry_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    tc.save_graph(tc.networks.mlp(2, 4).graph(), path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"name":', '"name": "another", "name":', 1), encoding="utf-8")
    with pytest.raises(tc.FormatError, match=r"graph\.json: 'name' is given 2 times in one object"):
        tc.load_graph(path)


@pytest.mark.parametrize(("name", "load"), LOADERS)
@pytest.mark.parametrize("make", [Path.mkdir, make_link, make_pipe])
def test_irregular_file_is_refused_without_blocking(
    tmp_path: Path, name: str, load: Callable[[str], Any], make: Callable[[Path], object]
) -> None:
    if name == "a.safetensors":
        require("safetensors")
    path = tmp_path / name
    make(path)
    with pytest.raises(tc.TinyckptError, match=rf"cannot read .*{name}.*: it is not a regular"):
        load(str(path))
    assert not is_graph(path)


@pytest.mark.parametrize(("name", "load"), LOADERS)
def test_file_above_limit_is_refused(tmp_path: Path, name: str, load: Callable[[str], Any]) -> None:
    if name == "a.safetensors":
        require("safetensors")
    path = tmp_path / name
    make_sparse(path)
    with pytest.raises(tc.TinyckptError, match=r"1.0 TiB; at most 1.0 GiB are read|damaged"):
        load(str(path))


@pytest.mark.parametrize("text", ["[[],[],[],[]]", '{"a":1,"b":2,"c":3}', "[1,2,3,4,5,6,7,8]"])
def test_document_of_too_many_entries_is_refused_before_parsing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    path = tmp_path / "many.json"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(reader, "MOST_ENTRIES", 5)
    with pytest.raises(tc.FormatError, match="entries; of a JSON document at most 5 are read"):
        tc.load_graph(path)


@pytest.mark.parametrize(("name", "load"), LOADERS)
@pytest.mark.parametrize(("path", "reason"), [("no/such", "No such file"), ("a\0b", "null byte")])
def test_missing_file_is_clear_error(
    name: str, load: Callable[[str], Any], path: str, reason: str
) -> None:
    with pytest.raises(tc.TinyckptError, match=rf"cannot read .*{reason}"):
        load(f"{path}/{name}")


def test_growing_file_is_read_up_to_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_pipe_is_not_opened(tmp_path: Path) -> None:
    """Opening and closing a pipe would break it for its writer and its intended reader."""
    path = tmp_path / "a.json"
    os.mkfifo(path)
    with subprocess.Popen(
        [sys.executable, "-c", f"open({str(path)!r}, 'w').write('hello')"]
    ) as writer:
        for _ in range(20):
            with pytest.raises(tc.FormatError, match="it is not a regular file"):
                tc.load_graph(path)
        assert path.read_text() == "hello"
        assert writer.wait() == 0


def test_descriptor_is_no_path_and_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "chain.json"
    tc.save_graph(tc.networks.chain(2), path)
    with path.open("rb") as file:
        with pytest.raises(tc.FormatError, match=f"{file.fileno()}: expected a path"):
            tc.load_graph(file.fileno())  # type: ignore[arg-type]
        assert file.read(1) == b"{"
