"""Columns of a page: long lists of integers and of texts, packed, and all deflated together.

Integers are differences from entry to entry, as little-endian numbers; lists of texts are JSON. All
columns of a page stand after each other in one deflated stream, in base64: a browser inflates it
without a loop of its own, once, and a hundred thousand steps take some ten kilobytes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np

Packed = dict[str, Any]  # a type, and bytes


def packed(values: Any) -> Packed:
    """Return a column of integers, none of 2^53 or more, as the page reads it."""
    column = np.asarray(values)
    if column.size == 0:
        column = np.zeros(0, np.int64)
    steps = np.diff(column, prepend=column.dtype.type(0))
    # Neither an entry nor a difference may leave the range, since the page adds them up.
    small = max(np.abs(column).max(initial=0), np.abs(steps).max(initial=0)) < 2**31
    kind, dtype = ("int32", "<i4") if small else ("float64", "<f8")
    return {"type": kind, "bytes": steps.astype(dtype).tobytes()}


def packed_texts(texts: Iterable[str]) -> Packed:
    """Return a list of texts as the page reads it."""
    listed = json.dumps(list(texts), ensure_ascii=True, separators=(",", ":"))
    return {"type": "texts", "bytes": listed.encode()}


def packed_lists(lists: Sequence[Sequence[int]]) -> dict[str, Packed]:
    """Return lists of integers end to end, and where each begins."""
    return {
        "first": packed([0, *accumulate(map(len, lists))]),
        "items": packed(list(chain.from_iterable(lists))),
    }


def deflated(content: bytes) -> str:
    """Return bytes deflated, in base64."""
    return base64.b64encode(zlib.compress(content, 9)).decode()


def bundled(content: Any) -> dict[str, Any]:
    """Return content of dicts and lists that JSON can hold, with the columns in it aside.

    In the place of each column stands where it is in ``columns``, deflated and in base64.
    """
    found: list[bytes] = []
    size = 0

    def placed(node: Any) -> Any:
        nonlocal size
        if isinstance(node, dict) and "bytes" in node:
            found.append(node["bytes"])
            begin, size = size, size + len(node["bytes"])
            return {"type": node["type"], "at": begin, "size": len(node["bytes"])}
        if isinstance(node, dict):
            return {key: placed(value) for key, value in node.items()}
        return [placed(value) for value in node] if isinstance(node, list) else node

    rest = placed(content)
    return {"content": rest, "columns": deflated(b"".join(found))}
