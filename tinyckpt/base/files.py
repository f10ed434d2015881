"""Atomic file writes: to a temporary file in the same folder, then renamed to the destination.

``shutil`` and ``tempfile``, which load compression and cryptography, are imported where they are
used: ``import tinyckpt`` does without.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import BinaryIO

from tinyckpt.base.errors import FormatError


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file so that readers of the path see the old content or the new, never a part.

    Raises:
        FormatError: if the folder does not exist, is not writable, or the disk is full.
    """
    with replacing(path) as file:
        file.write(content)


def checked_path(path: object) -> Path:
    """Return a path; raise a FormatError if it is none, such as a number (a file descriptor)."""
    if not isinstance(path, str | os.PathLike):
        raise FormatError(f"{path!r:.80}: expected a path, a string or a pathlib.Path")
    return Path(path)


def suffix_of(path: object) -> str:
    """Return the suffix of a path in lower case, such as ``.gif``; raise a FormatError if none."""
    return checked_path(path).suffix.lower()


@cache
def temporary_folder() -> Path:
    """Return a new folder, which is removed when Python exits."""
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="tinyckpt-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def temporary_path(suffix: str) -> Path:
    """Return the path of a file that is not there yet, in a folder that is removed at exit."""
    return temporary_folder() / f"{os.urandom(8).hex()}{suffix}"


BUFFER = 2**18  # bytes: an animation is written in thousands of small chunks


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield an empty file that replaces the path once the block ends without an error.

    The file is seekable. After an error, or if the process is killed, the path is unchanged.

    Raises:
        FormatError: if the folder does not exist, is not writable, or the disk is full; an OSError
            in the block counts as one of these.
    """
    try:
        # A link stays a link; anything but a regular file (a pipe, a device) is written in place.
        target = real_path(path)
        into = into_place if target.is_file() or not target.exists() else into_device
        with into(target) as file:
            yield file
    except OSError as error:
        raise FormatError(f"cannot write {path}: {error.strerror or error}") from error


def real_path(path: str | os.PathLike[str]) -> Path:
    """Resolve all symbolic links of a path.

    Raises:
        FormatError: if the name is not a legal file name.
    """
    try:
        return Path(os.path.realpath(checked_path(path)))
    except ValueError as error:  # a null byte
        raise FormatError(f"cannot write {path}: {error}") from error


@contextmanager
def into_place(target: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file in the target's folder, and rename it to the target at the end."""
    # Created by open, so that its permissions follow the umask: a process can read the umask, as to
    # chmod a tempfile, only by setting it, for all of its threads. The name does not extend the
    # target's, which may already have the maximal length.
    temporary = target.with_name(f".tinyckpt-{os.urandom(8).hex()}")
    try:
        with temporary.open("xb", buffering=BUFFER) as file:
            yield file
        if target.exists():
            import shutil

            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def into_device(target: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file, and copy it into a pipe or a device at the end."""
    import shutil
    import tempfile

    with tempfile.TemporaryFile() as file:
        yield file
        file.seek(0)
        with target.open("wb") as device:
            shutil.copyfileobj(file, device)
