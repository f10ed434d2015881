"""NumPy archives (``.npz``), read such that every byte of the file is accounted for.

A zip describes each member twice: in a header before its data, and in the directory at the end, the
only one that readers look at. A damaged directory, or one that was written over, can leave members
out and is still a directory. Members must therefore lie one after another from the file's first
byte to its directory, each header with the name that the directory gives; what lies between them is
shorter than a header, so that no member is left out. The data of each must have its CRC-32.

Comes in: a file that anybody may have written. Goes out: its arrays by name. No memory is taken for
an array before its size is held to the file's, and nothing of the file is executed. Compressed
members are refused, since a small file would become large arrays.

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

MEMBER = struct.Struct("<4s2xH18xHH")  # a member's header: mark, flags, bytes of name and of extra
MARK, END = b"PK\3\4", b"PK\5\6"
LENGTH_OF_END = 22  # bytes of the end's record, without the comment after it
NAME_IS_UTF8 = 0x800  # among a header's flags
LONGEST_HEADER = 2**14  # bytes; NumPy's own reader refuses descriptions of more than 10,000


def read_archive(file: BufferedReader, path: object) -> dict[str, Any]:
    """Return the arrays of a ``.npz`` by name; ``path`` is what errors call the file.

    Raises:
        FormatError: if the file is no archive, or is damaged.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            places = data_places(archive, file, path)
            found = {}
            for entry, place in places:
                where = f"{path}: {entry.filename}"
                name = entry.filename.removesuffix(".npy")
                if name in found or name == entry.filename:
                    raise FormatError(f"{where} is damaged: its name is there twice, or no array's")
                found[name] = read_member(file, entry, place, where)
            return found
    # The last for an archive of a later version, or for another's encryption.
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, RuntimeError) as error:
        raise FormatError(f"{path} is no file of parameters, or is damaged: {error}") from error


def data_places(
    archive: zipfile.ZipFile, file: BufferedReader, path: object
) -> list[tuple[zipfile.ZipInfo, int]]:
    """Return each member in the order of the file, with the offset of its data.

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
                f"{path} is damaged: its directory calls {entry.filename!r:.80} what is "
                f"{name!r:.80} where it stands"
            )
        place = entry.header_offset + MEMBER.size + of_name + of_extra
        found.append((entry, place))
        end = place + entry.compress_size
    check_gap(path, end, archive.start_dir)
    file.seek(-min(LENGTH_OF_END + len(archive.comment), size_of(file)), os.SEEK_END)
    if file.read(len(END)) != END:
        raise FormatError(f"{path} is damaged: it goes on after its end")
    return found


def check_gap(path: object, end: int, begin: int) -> None:
    """Raise a FormatError if a member may lie between the end of one and the next's beginning.

    A few bytes may: writers to a pipe put a member's size and CRC after it.
    """
    if not 0 <= begin - end < MEMBER.size:
        raise FormatError(
            f"{path} is damaged: its directory leaves out what lies at byte {min(begin, end)}, or "
            "names it twice"
        )


def size_of(file: BufferedReader) -> int:
    """Return the bytes of a file."""
    return os.fstat(file.fileno()).st_size


def read_member(file: BufferedReader, entry: zipfile.ZipInfo, place: int, where: str) -> Any:
    """Return the array of one member."""
    if entry.compress_type != zipfile.ZIP_STORED:
        raise FormatError(f"{where} is compressed; store it as it is")
    if entry.file_size != entry.compress_size or place + entry.file_size > size_of(file):
        raise FormatError(f"{where} is damaged: wrong size")
    content: Any = np.empty(entry.file_size, np.uint8)
    file.seek(place)
    # What is one bit off here is not even looked at.
    if file.readinto(content.data) != content.size or zlib.crc32(content) != entry.CRC:
        raise FormatError(f"{where} is damaged: its checksum is not that of its data")
    return array_in(content, where)


def array_in(content: Any, where: str) -> Any:
    """Return the array that a file of NumPy's describes, in the memory of its bytes."""
    head = io.BytesIO(content[:LONGEST_HEADER].tobytes())
    try:
        version = np.lib.format.read_magic(head)
        first = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, by_column, dtype = read(head)
        claimed = math.prod(shape) * dtype.itemsize
    except Exception as error:
        # It is an expression in Python, whose parser has errors of many kinds.
        raise FormatError(f"{where} describes no array: {error}") from error
    if dtype.hasobject:
        raise FormatError(f"{where} is an array of Python's objects; legal are numbers")
    if head.tell() + claimed != content.size:
        raise FormatError(f"{where} is damaged: wrong size")
    try:
        if version == (3, 0):  # its fields have names of any letters, which the two do not read
            return np.lib.format.read_array(io.BytesIO(content.tobytes()), allow_pickle=False)
        array: Any = np.ndarray(shape[::-1] if by_column else shape, dtype, content, head.tell())
        return array.T if by_column else array
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        # Of no elements, and so many along one axis that no machine has addresses for them.
        raise FormatError(f"{where} is damaged: no array has the shape {shape}: {error}") from error
