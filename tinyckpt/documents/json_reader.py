"""Validating reader of versioned JSON documents; bounded reads of regular files only.

A document has a schema name and a version; one that is damaged, truncated, hostile or of another
version raises one FormatError that says where. Files of every format are opened here: only regular
ones, up to a limit of bytes, so that an endless device cannot fill memory and a pipe without a
writer cannot block.
"""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from typing import Any, NoReturn

from tinyckpt.base.errors import FormatError
from tinyckpt.base.files import checked_path, write_atomically
from tinyckpt.base.units import size_text

VERSION = 2
LARGEST = 2**63  # bytes and extents must be less: they fit in an int64
LARGEST_FILE = 2**30  # bytes of a file that is read into memory: 1 GiB
# Entries of a JSON document: parsed, each may take 113 bytes, so that all take 6 GiB at most. The
# trace of 100,000 operators has 6 million.
MOST_ENTRIES = 50_000_000


@contextmanager
def open_regular(path: str | os.PathLike[str]) -> Iterator[BufferedReader]:
    """Open a regular file for reading; symbolic links are followed.

    Raises:
        FormatError: if it is no path, or that of a folder, a device or a pipe, or cannot be opened.
    """
    checked_path(path)  # an integer would be read as a descriptor
    # The type is checked before opening, since opening a pipe would steal it from its reader; and
    # again after, since the path may have been replaced in between (a race). O_NONBLOCK keeps a
    # pipe from blocking even then.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError) as error:  # ValueError: a null byte
        reason = getattr(error, "strerror", None) or error
        raise FormatError(f"cannot read {path}: {reason}") from error
    try:
        if regular:
            with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
                regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
                if regular:
                    yield file
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror or error}") from error
    if not regular:
        raise FormatError(f"cannot read {path}: it is not a regular file")


def read_bytes(path: str | os.PathLike[str], cure: str = "") -> bytes:
    """Read the content of a regular file of at most ``LARGEST_FILE`` bytes.

    Args:
        path: of the file.
        cure: how to get a smaller one, for the error.

    Raises:
        FormatError: if it cannot be read, is not a regular file, or is larger.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = b"" if size > LARGEST_FILE else file.read(size + 1)
        if len(content) > size:  # it grows, or reports size 0, as in /proc
            content += file.read(LARGEST_FILE - size)
            size = len(content)
    if size > LARGEST_FILE:
        most = size_text(LARGEST_FILE)
        raise FormatError(f"{path}: {size_text(size)}; at most {most} are read{cure}")
    return content


def write(kind: str, document: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a document atomically: to a temporary file, renamed to its destination."""
    named = {"schema": f"tinyckpt.{kind}", "version": VERSION, **document}
    text = json.dumps(named, default=plain)
    write_atomically(path, text.encode())


def plain(value: Any) -> Any:
    """Convert a NumPy number to Python's, and any other type that JSON lacks to text."""
    return value.item() if hasattr(value, "item") else str(value)


def check_entries(path: object, text: str | bytes) -> None:
    """Raise a FormatError if a JSON text has more than ``MOST_ENTRIES``; it is not parsed."""
    if len(text) > MOST_ENTRIES:  # a shorter one has no more entries: each follows a mark
        data = text if isinstance(text, bytes) else text.encode(errors="replace")
        if (count := sum(map(data.count, b"[{,:"))) > MOST_ENTRIES:
            most = f"of a JSON document at most {MOST_ENTRIES:,} are read"
            raise FormatError(f"{path}: {count:,} entries; {most}")


class Reader:
    """Validating accessor of a JSON document; errors carry the path of the entry."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def fail(self, where: str, problem: str) -> NoReturn:
        """Raise the FormatError of one entry of the document."""
        raise FormatError(f"{self.path}: {where}: {problem}")

    def parse(self, text: str | bytes) -> Any:
        """Parse JSON of at most ``MOST_ENTRIES``, in which no entry of an object is given twice."""
        check_entries(self.path, text)

        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            found = dict(pairs)
            if len(found) < len(pairs):
                (key, count), *_ = Counter(key for key, _ in pairs).most_common(1)
                raise FormatError(f"{self.path}: {key[:80]!r} is given {count} times in one object")
            return found

        try:
            return json.loads(text, object_pairs_hook=unique)
        except (ValueError, RecursionError) as error:
            raise FormatError(
                f"{self.path} is not a complete JSON document ({error}); was the file cut short?"
            ) from error

    def document(self, kind: str) -> dict[str, Any]:
        """Parse the document, and check its schema and version."""
        content = self.parse(read_bytes(self.path))
        if not isinstance(content, dict) or content.get("schema") != f"tinyckpt.{kind}":
            if not isinstance(content, dict):
                found = f"it is no object, but {type(content).__name__}"
            elif "schema" not in content:
                found = "it has no schema"
            else:
                found = f"the schema is {str(content['schema'])[:80]!r}"
            raise FormatError(f"{self.path}: {found}; expected 'tinyckpt.{kind}'")
        version = content.get("version")
        if version != VERSION or isinstance(version, bool):
            raise FormatError(
                f"{self.path}: version {str(version)[:80]} of {content['schema']}; this tinyckpt "
                f"reads version {VERSION}; newer files need a newer one"
            )
        return content

    def get(self, document: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
        """Return a required entry of an object, after checking its type."""
        if not isinstance(document, dict):
            self.fail(where, f"expected an object, got {type(document).__name__}")
        if key not in document:
            self.fail(where, f"{key!r} is missing")
        return self.check(document[key], kind, f"{where}.{key}")

    def check(self, value: Any, kind: type | tuple[type, ...], where: str) -> Any:
        """Return a value after checking its type; a bool is not accepted as an int."""
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            self.fail(where, f"got {type(value).__name__}, which is not legal here")
        return value

    def only(self, document: Mapping[str, Any], legal: tuple[str, ...], where: str) -> None:
        """Fail if an object has an unknown entry, most likely a misspelt one."""
        for key in document:
            if key not in legal:
                self.fail(where, f"{key[:80]!r} means nothing here; legal are {', '.join(legal)}")

    def row(self, value: Any, length: int, where: str) -> list[Any]:
        """Return a list, after checking its length."""
        row: list[Any] = self.check(value, list, where)
        if len(row) != length:
            self.fail(where, f"expected {length} entries, got {len(row)}")
        return row

    def count(self, value: Any, where: str, limit: int | None = None) -> int:
        """Return a nonnegative integer, less than the limit if there is one."""
        number: int = self.check(value, int, where)
        if number < 0 or (limit is not None and number >= limit):
            bound = "" if limit is None else f" and less than {limit}"
            self.fail(where, f"{str(number)[:80]} must be at least 0{bound}")
        return number

    def counts(self, value: Any, where: str, limit: int | None = None) -> tuple[int, ...]:
        """Return a list of nonnegative integers."""
        items = self.check(value, list, where)
        return tuple(self.count(item, f"{where}[{i}]", limit) for i, item in enumerate(items))

    def one_of(self, value: Any, legal: tuple[str, ...], where: str) -> Any:
        """Return a string, after checking that it is one of the legal ones."""
        if value not in legal:
            self.fail(where, f"{str(value)[:80]!r} must be one of {', '.join(legal)}")
        return value

    def given(
        self, document: Any, key: str, kind: type | tuple[type, ...], default: Any, where: str
    ) -> Any:
        """Return an optional entry of an object, or its default."""
        if key not in self.check(document, dict, where):
            return default
        return self.get(document, key, kind, where)

    def number(self, value: Any, where: str) -> float:
        """Return a finite nonnegative number."""
        number: float = self.check(value, (int, float), where)
        if isinstance(value, bool) or not 0 <= number < LARGEST:  # false for NaN too
            self.fail(where, f"{str(value)[:80]} must be a finite number of 0 or more")
        return number
