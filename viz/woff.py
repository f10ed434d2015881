"""The bundled fonts inside a document: WOFF, which is OpenType with its tables deflated.

Source: WOFF File Format 1.0, W3C Recommendation, 2012.
"""

from __future__ import annotations

import base64
import struct
import zlib
from functools import cache
from pathlib import Path

from viz.theme import font_file

HEADER, ENTRY = 44, 20  # bytes of the file's header, and of a table's entry in the directory
WEIGHTS = {"Regular": 400, "SemiBold": 600}


def woff(otf: bytes) -> bytes:
    """Return an OpenType font as WOFF."""
    flavour, count = struct.unpack_from(">4sH", otf)
    directory, tables = b"", b""
    padded = 12 + 16 * count  # what the font measures when it is unpacked
    begin = HEADER + ENTRY * count
    for index in range(count):
        tag, checksum, offset, length = struct.unpack_from(">4sIII", otf, 12 + 16 * index)
        table = otf[offset : offset + length]
        packed = zlib.compress(table, 9)
        packed = packed if len(packed) < length else table
        place = begin + len(tables)
        directory += struct.pack(">4sIIII", tag, place, len(packed), length, checksum)
        tables += packed + b"\0" * (-len(packed) % 4)
        padded += length + -length % 4
    total = begin + len(tables)
    versions = (1, 0)
    no_metadata = (0,) * 5
    header = struct.pack(
        ">4s4sIHHIHHIIIII", b"wOFF", flavour, total, count, 0, padded, *versions, *no_metadata
    )
    return header + directory + tables


@cache
def font_faces() -> str:
    """Return the CSS that brings the bundled Inter along."""
    return "".join(
        "@font-face{font-family:Inter;font-weight:"
        f"{weight};src:url(data:font/woff;base64,{encoded(name)})}}"
        for name, weight in WEIGHTS.items()
    )


def encoded(name: str) -> str:
    """Return a bundled font as WOFF in base64."""
    return base64.b64encode(woff(Path(font_file(name)).read_bytes())).decode()
