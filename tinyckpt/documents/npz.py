"""Strict reader of NumPy archives (``.npz``): every byte accounted for, every CRC-32 checked.

A zip file describes each member twice: in a local header before its data, and in the central
directory at the end, the only one that readers use. A damaged or overwritten directory can omit
members and still be a valid directory. Members must therefore be contiguous from the file's first
byte to its directory, each local header with the name that the directory gives; gaps are shorter
than a header, so that no member can be omitted. The data of each must match its CRC-32.

In: an untrusted file. Out: its arrays by name. The size of an array is checked against the file's
before memory is allocated, and nothing in the file is executed. Compressed members are refused,
since a small file could expand to large arrays (a decompression bomb).

Source: PKWARE's APPNOTE.TXT, 4.3.7 for the headers; ``numpy.lib.format`` for the arrays.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
import zlib
from io import BufferedReader
from typing import Any

import numpy as np

from tinyckpt.base.errors import FormatError

MEMBER = struct.Struct("<4s2xH18xHH")  # local header: signature, flags, lengths of name and extra
MARK, END = b"PK\3\4", b"PK\5\6"
LENGTH_OF_END = 22  # bytes of the end-of-directory record, without its comment
NAME_IS_UTF8 = 0x800  # a flag of the local header
LONGEST_HEADER = 2**14  # bytes of a .npy header; NumPy's own reader refuses more than 10,000


def read_archive(file: BufferedReader, path: object) -> dict[str, Any]:
    """Read the arrays of a ``.npz``, by name; ``path`` names the file in errors.

    Raises:
        FormatError: if the file is no archive, or is damaged.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = member_offsets(archive, file, path)
            found = {}
            for entry, offset in members:
                where = f"{path}: {entry.filename}"
                name = entry.filename.removesuffix(".npy")
                if name in found or name == entry.filename:
                    raise FormatError(f"{where} is damaged: a duplicate name, or one without .npy")
                found[name] = read_member(file, entry, offset, where)
            return found
    # RuntimeError: of a later version of the format, or encrypted.
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, RuntimeError) as error:
        raise FormatError(f"{path} is not a file of parameters, or is damaged: {error}") from error


def member_offsets(
    archive: zipfile.ZipFile, file: BufferedReader, path: object
) -> list[tuple[zipfile.ZipInfo, int]]:
    """Return the members in file order, each with the byte offset of its data.

    Raises:
        FormatError: if bytes of the file belong to no member, or to two.
    """
    found = []
    end = 0
    for entry in sorted(archive.infolist(), key=lambda entry: entry.header_offset):
        check_gap(path, end, entry.header_offset)
        file.seek(entry.header_offset)
        mark, flags, of_name, of_extra = MEMBER.unpack(file.read(MEMBER.size).ljust(MEMBER.size))
        name = file.read(of_name).decode("utf-8" if flags & NAME_IS_UTF8 else "cp437")
        if mark != MARK or not name == entry.orig_filename == entry.filename:
            raise FormatError(
                f"{path} is damaged: its directory names a member {entry.filename!r:.80}, whose "
                f"own header says {name!r:.80}"
            )
        offset = entry.header_offset + MEMBER.size + of_name + of_extra
        found.append((entry, offset))
        end = offset + entry.compress_size
    check_gap(path, end, archive.start_dir)
    file.seek(-min(LENGTH_OF_END + len(archive.comment), size_of(file)), os.SEEK_END)
    if file.read(len(END)) != END:
        raise FormatError(f"{path} is damaged: bytes follow its end record")
    return found


def check_gap(path: object, end: int, begin: int) -> None:
    """Raise a FormatError if the gap between two members is long enough for a third, or negative.

    Short gaps are legal: writers to a pipe append a data descriptor, a member's size and CRC.
    """
    if not 0 <= begin - end < MEMBER.size:
        raise FormatError(
            f"{path} is damaged: its directory omits the bytes at {min(begin, end)}, or lists them "
            "twice"
        )


def size_of(file: BufferedReader) -> int:
    """Return the size of a file, in bytes."""
    return os.fstat(file.fileno()).st_size


def read_member(file: BufferedReader, entry: zipfile.ZipInfo, offset: int, where: str) -> Any:
    """Read the array of one member, after checking its size and CRC-32."""
    if entry.compress_type != zipfile.ZIP_STORED:
        raise FormatError(f"{where} is compressed; store it as it is")
    if entry.file_size != entry.compress_size or offset + entry.file_size > size_of(file):
        raise FormatError(f"{where} is damaged: wrong size")
    content: Any = np.empty(entry.file_size, np.uint8)
    file.seek(offset)
    # The checksum comes first: damaged bytes are never parsed.
    if file.readinto(content.data) != content.size or zlib.crc32(content) != entry.CRC:
        raise FormatError(f"{where} is damaged: its checksum does not match its data")
    return parse_npy(content, where)


def parse_npy(content: Any, where: str) -> Any:
    """Parse a ``.npy`` file; the array is a view of its bytes."""
    head = io.BytesIO(content[:LONGEST_HEADER].tobytes())
    try:
        version = np.lib.format.read_magic(head)
        first = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, by_column, dtype = read(head)
        claimed = math.prod(shape) * dtype.itemsize
    except Exception as error:
        # The header is a Python expression, whose parser raises errors of many types.
        raise FormatError(f"{where} describes no array: {error}") from error
    if dtype.hasobject:
        raise FormatError(f"{where} is an array of Python objects; expected numbers")
    if head.tell() + claimed != content.size:
        raise FormatError(f"{where} is damaged: wrong size")
    try:
        if version == (3, 0):  # a header in UTF-8, which the two readers above do not support
            return np.lib.format.read_array(io.BytesIO(content.tobytes()), allow_pickle=False)
        array: Any = np.ndarray(shape[::-1] if by_column else shape, dtype, content, head.tell())
        return array.T if by_column else array
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        # No elements, but an axis too long for any address space.
        raise FormatError(f"{where} is damaged: no array has the shape {shape}: {error}") from error
