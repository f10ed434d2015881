"""Writing files so that nothing is lost: beside the destination first, then renamed into place."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tinyckpt.errors import FormatError


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file so that whoever reads the path sees the old content or the new, never a part.

    Raises:
        FormatError: if the folder does not exist, cannot be written to, or is full.
    """
    try:
        # A link stays a link, and what is no regular file (a pipe, a device) is written into.
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            target.write_bytes(content)
            return
        handle, beside = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(beside, 0o666 & ~current_umask())
            os.replace(beside, target)
        except BaseException:
            os.unlink(beside)
            raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FormatError(f"cannot write {path}: {reason}") from error


def current_umask() -> int:
    """Return the process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
