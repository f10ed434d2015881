"""Compression of the data embedded in an HTML page: delta coding, DEFLATE, base64.

Integers are differences from entry to entry (delta coding), as little-endian numbers; lists of
texts are JSON. All columns of a page are concatenated in one deflated stream, in base64: a browser
inflates it natively, once, and a hundred thousand steps take some ten kilobytes. ``columns.js``
reads it.
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
    """Pack a column of integers below 2^53 by delta coding."""
    column = np.asarray(values)
    if column.size == 0:
        column = np.zeros(0, np.int64)
    steps = np.diff(column, prepend=column.dtype.type(0))
    # Both entries and differences must be in range, since the page accumulates them.
    small = max(np.abs(column).max(initial=0), np.abs(steps).max(initial=0)) < 2**31
    kind, dtype = ("int32", "<i4") if small else ("float64", "<f8")
    return {"type": kind, "bytes": steps.astype(dtype).tobytes()}


def packed_texts(texts: Iterable[str]) -> Packed:
    """Pack a list of texts."""
    listed = json.dumps(list(texts), ensure_ascii=True, separators=(",", ":"))
    return {"type": "texts", "bytes": listed.encode()}


def packed_lists(lists: Sequence[Sequence[int]]) -> dict[str, Packed]:
    """Pack lists of integers in CSR form: all items end to end, and the offset of each list."""
    return {
        "first": packed([0, *accumulate(map(len, lists))]),
        "items": packed(list(chain.from_iterable(lists))),
    }


def deflated(content: bytes) -> str:
    """Deflate bytes; return base64."""
    return base64.b64encode(zlib.compress(content, 9)).decode()


def bundle_columns(content: Any) -> dict[str, Any]:
    """Move the packed columns of a JSON-like value into one deflated stream.

    Each column is replaced by its type, offset and size in ``columns``, which is deflated and in
    base64.
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
