"""JSON documents: a schema name, a version, and a reader that says where one is damaged.

A document that is damaged, cut short, hostile or of another version gives one FormatError.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from tinyckpt.errors import FormatError
from tinyckpt.files import write_atomically

VERSION = 2
LARGEST = 2**63  # bytes and extents from here on belong to no machine


def write(kind: str, document: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a document beside its destination and rename it there."""
    named = {"schema": f"tinyckpt.{kind}", "version": VERSION, **document}
    text = json.dumps(named, default=plain)
    write_atomically(path, text.encode())


def plain(value: Any) -> Any:
    """Return a NumPy number as Python's, and anything else that JSON lacks as its text."""
    return value.item() if hasattr(value, "item") else str(value)


class Reader:
    """Takes values out of a document, and says where one is not what it must be."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def fail(self, where: str, problem: str) -> NoReturn:
        """Raise the FormatError of one place in the document."""
        raise FormatError(f"{self.path}: {where}: {problem}")

    def document(self, kind: str) -> dict[str, Any]:
        """Return the document, after checking schema and version."""
        try:
            content = json.loads(Path(self.path).read_bytes())
        except OSError as error:
            raise FormatError(f"cannot read {self.path}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise FormatError(
                f"{self.path} is not a complete JSON document ({error}); was the file cut short?"
            ) from error
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
        """Return one entry of an object."""
        if not isinstance(document, dict):
            self.fail(where, f"expected an object, got {type(document).__name__}")
        if key not in document:
            self.fail(where, f"{key!r} is missing")
        return self.check(document[key], kind, f"{where}.{key}")

    def check(self, value: Any, kind: type | tuple[type, ...], where: str) -> Any:
        """Return a value after checking its type; a bool is no int here."""
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            self.fail(where, f"got {type(value).__name__}, which is not legal here")
        return value

    def only(self, document: Mapping[str, Any], legal: tuple[str, ...], where: str) -> None:
        """Fail if an object has an entry that means nothing: most likely it is misspelt."""
        for key in document:
            if key not in legal:
                self.fail(where, f"{key[:80]!r} means nothing here; legal are {', '.join(legal)}")

    def row(self, value: Any, length: int, where: str) -> list[Any]:
        """Return a list of a given length."""
        row: list[Any] = self.check(value, list, where)
        if len(row) != length:
            self.fail(where, f"expected {length} entries, got {len(row)}")
        return row

    def count(self, value: Any, where: str, limit: int | None = None) -> int:
        """Return an integer of 0 or more, below the limit if there is one."""
        number: int = self.check(value, int, where)
        if number < 0 or (limit is not None and number >= limit):
            bound = "" if limit is None else f" and less than {limit}"
            self.fail(where, f"{str(number)[:80]} must be at least 0{bound}")
        return number

    def counts(self, value: Any, where: str, limit: int | None = None) -> tuple[int, ...]:
        """Return a list of integers of 0 or more."""
        items = self.check(value, list, where)
        return tuple(self.count(item, f"{where}[{i}]", limit) for i, item in enumerate(items))

    def optional(self, value: Any, where: str, limit: int) -> int | None:
        """Return an integer of 0 or more, or None."""
        return None if value is None else self.count(value, where, limit)

    def one_of(self, value: Any, legal: tuple[str, ...], where: str) -> Any:
        """Return one of some strings."""
        if value not in legal:
            self.fail(where, f"{str(value)[:80]!r} must be one of {', '.join(legal)}")
        return value

    def given(
        self, document: Any, key: str, kind: type | tuple[type, ...], default: Any, where: str
    ) -> Any:
        """Return one entry of an object, or a default if there is none."""
        if key not in self.check(document, dict, where):
            return default
        return self.get(document, key, kind, where)

    def number(self, value: Any, where: str) -> float:
        """Return a finite number of 0 or more."""
        number: float = self.check(value, (int, float), where)
        if isinstance(value, bool) or not 0 <= number < LARGEST:  # NaN is not, either
            self.fail(where, f"{str(value)[:80]} must be a finite number of 0 or more")
        return number
