"""Text renderers with caches, for captions and counters that change from frame to frame.

A line is composed of cached words, and a counter of cached digits; only words that changed since
the last frame are redrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from ..node_style import truncated
from ..theme import RGB, font
from .canvas import Indices, Inks

if TYPE_CHECKING:
    from ..picture_layout import Header
    from .canvas import Box, Canvas

Word = tuple[Indices, float]  # pixels, advance width
MOST_WORDS = 4096  # size of the word cache


class Words:
    """Word cache of one font in one ink on the background."""

    def __init__(self, weight: str, size: int, ink: RGB, inks: Inks) -> None:
        self.weight, self.size, self.inks = weight, size, inks
        self.face = font(weight, size * inks.scale)
        self.ramp = inks.ramp(ink, inks.theme.background)
        self.known: dict[str, Word] = {}
        self.height = sum(self.face.getmetrics())

    def word(self, word: str) -> Word:
        """Return the image of a word, and its advance width including the space."""
        if word not in self.known:
            if len(self.known) >= MOST_WORDS:
                self.known.clear()
            advance = self.face.getlength(f"{word} ")
            coverage = self.inks.coverage(word, self.weight, self.size)
            # Fewer shades than elsewhere: captions take most of a file because of them.
            picture = self.ramp[np.array([0, 2, 2, 4, 4])[coverage]]
            self.known[word] = picture, advance
        return self.known[word]

    def line(self, texts: Iterable[str], room: float) -> list[Word]:
        """Return the words of the first text that fits a width in pixels; else the last, cut."""
        text = ""
        for text in texts:
            found = [self.word(word) for word in text.split(" ")]
            if sum(advance for _, advance in found) <= room:
                return found
        text = truncated(text, self.weight, self.size, room / self.inks.scale - self.size / 2)
        return [self.word(word) for word in text.split(" ")]

    def places(self, line: Sequence[Word]) -> list[int]:
        """Return the x of each word of a line, and of the end of the last one."""
        found, x = [], 0.0
        for _, advance in line:
            found.append(round(x))
            x += advance
        return [*found, round(x)]


class TextLine:
    """A changing line of text on a canvas; an unchanged prefix is not redrawn.

    Args:
        canvas: to draw on.
        box: position in pixels: top, bottom, left, right.
    """

    def __init__(self, canvas: Canvas, box: tuple[int, int, int, int]) -> None:
        self.canvas, self.box = canvas, box
        self.shown: list[Word] = []
        self.words: Words | None = None
        self.whole = ""  # the first (longest) text of the last request
        self.end = box[2]

    def write(self, words: Words, texts: Iterable[str]) -> None:
        """Write the first text that fits, or else the last one, truncated."""
        found = iter(texts)
        whole = next(found)
        if words is self.words and whole == self.whole:
            return
        self.whole = whole
        top, bottom, left, right = self.box
        line = words.line(chain((whole,), found), right - left)
        places = words.places(line)
        same = 0
        if words is self.words:
            for old, new in zip(self.shown, line, strict=False):
                if old is not new:
                    break
                same += 1
        begin = left + places[same]
        end = min(right, left + places[-1])
        if max(end, self.end) > begin:
            region = self.canvas.region(top, bottom, begin, max(end, self.end))
            region[:] = self.canvas.ground
            down = max(0, (bottom - top - words.height) // 2)
            for (picture, _), place in zip(line[same:], places[same:], strict=False):
                x = left + place - begin
                part = picture[: bottom - top - down, : max(0, region.shape[1] - x)]
                region[down : down + part.shape[0], x : x + part.shape[1]] = part
        self.shown, self.words, self.end = line, words, end


@lru_cache(maxsize=64)
def words_of(weight: str, size: int, ink: RGB, inks: Inks) -> Words:
    """Return the shared word cache of a font: pictures have most of their words in common."""
    return Words(weight, size, ink, inks)


class Glyphs:
    """Glyph cache of one font size, for texts that change from frame to frame.

    Digits are monospaced, so that counters do not jitter.
    """

    def __init__(self, size: int, inks: Inks) -> None:
        self.inks, self.size = inks, size
        self.sprites: dict[str, Indices] = {}
        face = font("SemiBold", size * inks.scale)
        self.digit_width = max(int(np.ceil(face.getlength(digit))) for digit in "0123456789")
        self.height = sum(face.getmetrics())

    def sprite(self, character: str) -> Indices:
        """Return the sprite of one character."""
        if character not in self.sprites:
            theme = self.inks.theme
            indices = self.inks.line(character, "SemiBold", self.size, theme.ink, theme.background)
            if character.isdigit():
                wide = np.full(
                    (self.height, self.digit_width), self.inks.index(theme.background), np.uint8
                )
                start = (self.digit_width - indices.shape[1]) // 2
                wide[:, start : start + indices.shape[1]] = indices[:, : self.digit_width]
                indices = wide
            self.sprites[character] = indices
        return self.sprites[character]

    def write(self, canvas: Indices, x: int, y: int, text: str) -> None:
        """Write a text with its top left corner at (x, y)."""
        for character in text:
            sprite = self.sprite(character)
            height, width = sprite.shape
            canvas[y : y + height, x : x + width] = sprite
            x += width


@lru_cache(maxsize=16)
def digits_of(inks: Inks) -> Glyphs:
    """Return the glyph cache of the counters."""
    return Glyphs(15, inks)


class Counters:
    """The counters of one panel, in one row or several.

    Args:
        canvas: to draw on.
        header: their positions on the panel.
        left, top: of the panel, at scale 1.
    """

    def __init__(self, canvas: Canvas, header: Header, left: float, top: float) -> None:
        self.canvas = canvas
        self.digits = digits_of(canvas.inks)
        scale, height = canvas.scale, self.digits.height
        self.rows: dict[Box, list[tuple[int, int]]] = {}  # by box, the counters in it: index, x
        places = list(zip(header.counters, header.widths, strict=True))
        for y in dict.fromkeys(y for (_, y), _ in places):
            row = [(which, x, width) for which, ((x, own), width) in enumerate(places) if own == y]
            upper = round((top + y + 17) * scale)
            begin, end = (
                round((left + x) * scale) for x in (row[0][1], row[-1][1] + row[-1][2] + 4)
            )
            box = (upper, upper + height, begin, end)
            self.rows[box] = [(which, round((left + x) * scale) - begin) for which, x, _ in row]

    def write(self, texts: Sequence[str]) -> None:
        """Overwrite the counters."""
        for box, row in self.rows.items():
            region = self.canvas.region(*box)
            region[:] = self.canvas.ground
            for which, x in row:
                self.digits.write(region, x, 0, texts[which])
