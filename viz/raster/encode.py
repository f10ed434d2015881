"""Streaming encoders of animations: GIF, animated PNG, animated WebP (video is in ``video``).

Each encoder takes one ``Change`` after the other and writes it immediately, so that memory use does
not grow with the number of frames: a GIF, PNG or WebP stores the changed rectangle, transparent
where nothing changed. Frames that look the same are not merged: a file has as many as were drawn.
Pillow compresses; the containers are written here.

Sources: "Graphics Interchange Format, Version 89a" (CompuServe, 1990); "Portable Network Graphics
Specification, Third Edition" (W3C); "WebP Container Specification" (Google).
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from PIL import Image

from .video import Film, write_mp4, write_webm

if TYPE_CHECKING:
    from .canvas import Change


@dataclass(frozen=True, slots=True)
class Encoder:
    """An animation format.

    Attributes:
        write: writes the frames of a film, as changes, to a seekable file.
        largest: maximum width and height of the format, in pixels.
        suffixes: of its file names.
    """

    write: Callable[[BinaryIO, Film, Iterable[Change]], None]
    largest: int
    suffixes: tuple[str, ...]


def write_gif(file: BinaryIO, film: Film, changes: Iterable[Change]) -> None:
    """Write a GIF with one colour table; each frame is drawn over the one before."""
    bits = max(2, film.unchanged.bit_length())
    table = film.colours.tobytes().ljust(3 * 2**bits, b"\0")
    screen = struct.pack("<HHBBB", film.width, film.height, 0xF0 | (bits - 1), 0, 0)
    file.write(b"GIF89a" + screen + table)
    file.write(b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00")  # for ever
    leave_and_transparent = 1 << 2 | 1
    for change, delay in zip(changes, film.delays, strict=True):
        height, width = change.pixels.shape
        control = struct.pack("<BHB", leave_and_transparent, delay, film.unchanged)
        place = struct.pack("<HHHHB", change.left, change.top, width, height, 0)
        # The indices are given to Pillow as a greyscale image, which it compresses unchanged.
        data = Image.fromarray(change.pixels).tobytes("gif", "L", bits, 0)
        file.write(b"!\xf9\x04" + control + b"\0," + place + bytes([bits]) + data + b"\0")
    file.write(b";")


def write_apng(file: BinaryIO, film: Film, changes: Iterable[Change]) -> None:
    """Write an animated PNG with a palette; each frame is drawn over the one before."""

    def chunk(kind: bytes, data: bytes) -> None:
        file.write(struct.pack(">I", len(data)) + kind + data)
        file.write(struct.pack(">I", zlib.crc32(data, zlib.crc32(kind))))

    file.write(b"\x89PNG\r\n\x1a\n")
    indexed = 3
    chunk(b"IHDR", struct.pack(">IIBBBBB", film.width, film.height, 8, indexed, 0, 0, 0))
    chunk(b"acTL", struct.pack(">II", len(film.delays), 0))
    chunk(b"PLTE", film.colours.tobytes() + b"\0\0\0")
    chunk(b"tRNS", b"\xff" * film.unchanged + b"\0")
    leave, over = 0, 1
    sequence = 0
    for change, delay in zip(changes, film.delays, strict=True):
        height, width = change.pixels.shape
        box = (width, height, change.left, change.top)
        chunk(b"fcTL", struct.pack(">IIIIIHHBB", sequence, *box, delay, 100, leave, over))
        sequence += 1
        rows = np.zeros((height, width + 1), np.uint8)  # each begins with its filter: none
        rows[:, 1:] = change.pixels
        data = zlib.compress(rows.tobytes())
        if sequence == 1:
            chunk(b"IDAT", data)
        else:
            chunk(b"fdAT", struct.pack(">I", sequence) + data)
            sequence += 1
    chunk(b"IEND", b"")


def write_webp(file: BinaryIO, film: Film, changes: Iterable[Change]) -> None:
    """Write a lossless animated WebP; each frame is drawn over the one before."""

    def small(number: int) -> bytes:
        return number.to_bytes(3, "little")

    begin = file.tell()
    file.write(b"RIFF\0\0\0\0WEBP")
    animation, alpha = 0x02, 0x10
    size = small(film.width - 1) + small(film.height - 1)
    file.write(riff(b"VP8X", bytes([animation | alpha, 0, 0, 0]) + size))
    file.write(riff(b"ANIM", struct.pack("<IH", 0, 0)))  # for ever
    opaque = np.full((len(film.colours), 1), 255, np.uint8)
    rgba = np.vstack([np.hstack([film.colours, opaque]), np.zeros((1, 4), np.uint8)])
    for change, delay in zip(changes, film.delays, strict=True):
        # WebP frames begin at even coordinates.
        left, top = change.left % 2, change.top % 2
        pixels = np.pad(change.pixels, ((top, 0), (left, 0)), constant_values=film.unchanged)
        place = small((change.left - left) // 2) + small((change.top - top) // 2)
        extent = small(pixels.shape[1] - 1) + small(pixels.shape[0] - 1)
        blend_and_leave = 0
        header = place + extent + small(10 * delay) + bytes([blend_and_leave])
        file.write(riff(b"ANMF", header + bitstream(Image.fromarray(rgba[pixels]))))
    end = file.tell()
    file.seek(begin + 4)
    file.write(struct.pack("<I", end - begin - 8))
    file.seek(end)


def riff(kind: bytes, data: bytes) -> bytes:
    """Return a RIFF chunk, padded to an even length."""
    return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def bitstream(image: Image.Image) -> bytes:
    """Return the chunk with the pixels of a lossless WebP image."""
    whole = io.BytesIO()
    # Method 0 uses no palette, and its files are ten times larger; methods above 2 are slower.
    image.save(whole, "WEBP", lossless=True, quality=25, method=2)
    content = whole.getvalue()
    place = 12  # after the file's header
    while content[place : place + 4] != b"VP8L":
        (length,) = struct.unpack_from("<I", content, place + 4)
        place += 8 + length + length % 2
    return content[place:]


# GIF has two bytes for a size, PNG 31 bits, a frame of WebP 14 bits; video the same limit.
ENCODERS = {
    "gif": Encoder(write_gif, 2**16 - 1, (".gif",)),
    "apng": Encoder(write_apng, 2**31 - 1, (".apng", ".png")),
    "webp": Encoder(write_webp, 2**14 - 1, (".webp",)),
    "mp4": Encoder(write_mp4, 2**14 - 1, (".mp4",)),
    "webm": Encoder(write_webm, 2**14 - 1, (".webm",)),
}
SUFFIXES = {suffix: name for name, encoder in ENCODERS.items() for suffix in encoder.suffixes}
