"""Writing files so that nothing is lost: beside the destination first, then renamed into place."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tinyckpt.base.errors import FormatError


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file so that whoever reads the path sees the old content or the new, never a part.

    Raises:
        FormatError: if the folder does not exist, cannot be written to, or is full.
    """
    with replacing(path) as file:
        file.write(content)


BUFFER = 2**18  # bytes: an animation is written in thousands of small pieces


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield an empty file that takes the path's place once the block ends without an error.

    The file can be sought in. After an error, or if the process is killed, the path is as it was.

    Raises:
        FormatError: if the folder does not exist, cannot be written to, or is full; an OSError
            in the block counts as one of these.
    """
    try:
        # A link stays a link, and what is no regular file (a pipe, a device) is written into.
        target = real_path(path)
        into = into_place if target.is_file() or not target.exists() else into_device
        with into(target) as file:
            yield file
    except OSError as error:
        raise FormatError(f"cannot write {path}: {error.strerror or error}") from error


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return the path with all links followed.

    Raises:
        FormatError: if no file can have this name.
    """
    try:
        return Path(os.path.realpath(path))
    except ValueError as error:  # a null byte
        raise FormatError(f"cannot write {path}: {error}") from error


@contextmanager
def into_place(target: Path) -> Iterator[BinaryIO]:
    """Yield a file in the target's folder, and rename it to the target at the end."""
    # Made by open, so that its rights follow the umask: a process can read that only by setting it,
    # for all of its threads. And the name is its own, as the target's may be as long as names can.
    beside = target.with_name(f".tinyckpt-{secrets.token_hex(8)}")
    try:
        with beside.open("xb", buffering=BUFFER) as file:
            yield file
        if target.exists():
            shutil.copymode(target, beside)
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def into_device(target: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file, and copy it into a pipe or a device at the end."""
    with tempfile.TemporaryFile() as file:
        yield file
        file.seek(0)
        with target.open("wb") as device:
            shutil.copyfileobj(file, device)
