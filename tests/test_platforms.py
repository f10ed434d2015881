"""Windows and macOS, as far as Linux can tell: file names, code pages, and what POSIX alone has.

A platform is mocked by taking away what it lacks, or by raising what it raises.
"""

import importlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import ROOT
from tinyckpt.base.files import write_atomically
from tinyckpt.cli.streams_and_signals import unwinding_on_signals
from tinyckpt.documents.json_reader import read_bytes
from tinyckpt.networks.machine_memory import memory_of_machine
from tinyckpt.pipeline.rank_supervisor import supervise

# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
LONGEST_PATH = 180  # of the 259 characters of Windows, 79 for the folder of the clone


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, encoding="utf-8", check=True
    )
    return [name for name in listed.stdout.split("\0") if name]


def test_tracked_files_have_names_that_every_platform_can_write() -> None:
    names = tracked()
    assert len({name.lower() for name in names}) == len(names)
    for name in names:
        assert len(name) <= LONGEST_PATH
        assert not set(name) & set('<>:"\\|?*')
        for part in Path(name).parts:
            assert not RESERVED.fullmatch(part), name
            assert not part.endswith((" ", ".")), name


def test_file_that_another_program_has_open_keeps_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "open.gif"
    path.write_bytes(b"old")

    def shared(source: Any, target: Any) -> None:  # as MoveFileEx on Windows, WinError 32
        raise PermissionError(13, "The process cannot access the file", str(target))

    monkeypatch.setattr(os, "replace", shared)
    with pytest.raises(tc.FormatError, match=r"cannot write .*open.gif: The process cannot access"):
        write_atomically(path, b"new")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("open.gif", b"old")]


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["cp1252", "cp932", "ascii"])
def test_names_that_a_code_page_lacks_are_escaped(tmp_path: Path, encoding: str) -> None:
    text = (ROOT / "docs" / "profile.json").read_text(encoding="utf-8")
    profile = tmp_path / "profile.json"
    profile.write_text(re.sub(r"layer1(?=[\"_])", "größe层", text), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tinyckpt", "plan", str(profile), "--policy", "sqrt_n"],
        env={**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": encoding},
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = "größe层".encode(encoding, errors="backslashreplace").decode(encoding)
    assert shown in done.stdout.decode(encoding)
    assert "\\u" in shown or "\\x" in shown


@pytest.mark.long
def test_files_are_read_and_written_without_the_default_encoding(tmp_path: Path) -> None:
    # PEP 597: a warning for each use of the default encoding, which is a code page on Windows.
    lines = [
        ["lessons", "--copy", "lessons"], ["course", "--copy", "course"], ["puzzle", "3"],
        ["plan", "chain:9", "-o", "a.json"], ["gif", "a.json", "-o", "a.gif"],
        ["lab", "chain:9", "-o", "lab.html"], ["play", "chain:9", "-o", "play.html"],
        ["plan", "chain:9", "--frontier", "-o", "frontier.svg"],
    ]  # fmt: skip
    code = f"import sys; from tinyckpt.cli import main; sys.exit(max(map(main, {lines!r})))"
    command = [sys.executable, "-X", "warn_default_encoding", "-W", "always::EncodingWarning"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stderr.splitlines() if ": EncodingWarning: " in line]
    assert [line for line in warned if line.startswith((f"{ROOT}/tinyckpt", f"{ROOT}/viz"))] == []


def test_engine_needs_nothing_that_windows_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sysconf", "register_at_fork", "WUNTRACED", "O_NONBLOCK", "fork"):
        monkeypatch.delattr(os, name)
    for name in ("SIGALRM", "SIGHUP", "SIGKILL", "setitimer"):
        monkeypatch.delattr(signal, name)
    for name in ("resource", "fcntl", "pwd"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("PMI_RANK", "0")  # as MS-MPI's mpiexec sets it
    supervise()
    assert memory_of_machine() is None
    write_atomically(tmp_path / "a", b"1")
    assert read_bytes(tmp_path / "a") == b"1"
    with unwinding_on_signals():
        pass
    # Modules that look at the platform when they are imported.
    code = "tinyckpt.storage.disk", "tinyckpt.planner.portfolio.search"
    before = {name: sys.modules.pop(name) for name in code if name in sys.modules}
    try:
        for name in code:
            importlib.import_module(name)
    finally:
        sys.modules.update(before)
