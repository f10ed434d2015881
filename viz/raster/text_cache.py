"""Text renderer with a word cache, for captions that change from frame to frame.

A line is composed of cached words; only words that changed since the last frame are redrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw

from ..node_style import truncated
from ..theme import RGB, Theme, blend, font
from .sprites import INK_STEPS, Indices, inks_of

if TYPE_CHECKING:
    from .canvas import Canvas

Word = tuple[Indices, float]  # pixels, advance width
MOST_WORDS = 4096  # size of the word cache


def coverage_of(text: str, weight: str, size: float) -> Any:
    """Return the coverage of each pixel by a line of text, 0 to INK_STEPS; as high as its font."""
    face = font(weight, size)
    ascent, descent = face.getmetrics()
    image = Image.new("L", (max(1, int(np.ceil(face.getlength(text)))), ascent + descent), 0)
    ImageDraw.Draw(image).text((0, 0), text, fill=255, font=face)
    return np.round(np.asarray(image) * (INK_STEPS / 255)).astype(np.uint8)


def ramp(ink: RGB, ground: RGB, theme: Theme) -> Indices:
    """Return the palette indices of an ink on a ground, by coverage."""
    blends = [blend(ink, ground, level / INK_STEPS) for level in range(INK_STEPS + 1)]
    return inks_of(theme).match(np.array([blends], np.uint8))[0]


class Words:
    """Word cache of one font in one ink on the background."""

    def __init__(self, weight: str, size: int, ink: RGB, theme: Theme, scale: float) -> None:
        self.weight, self.size, self.scale = weight, size, scale
        self.ramp = ramp(ink, theme.background, theme)
        self.known: dict[str, Word] = {}
        self.height = sum(font(weight, size * scale).getmetrics())

    def word(self, word: str) -> Word:
        """Return the image of a word, and its advance width including the space."""
        if word not in self.known:
            if len(self.known) >= MOST_WORDS:
                self.known.clear()
            advance = font(self.weight, self.size * self.scale).getlength(f"{word} ")
            coverage = coverage_of(word, self.weight, self.size * self.scale)
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
        text = truncated(text, self.weight, self.size, room / self.scale - self.size / 2)
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
def words_of(weight: str, size: int, ink: RGB, theme: Theme, scale: float) -> Words:
    """Return the shared word cache of a font: pictures have most of their words in common."""
    return Words(weight, size, ink, theme, scale)
