"""SVG plot of memory over time (memory strip): stacked, filled up to the cursor."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from itertools import cycle, groupby
from math import ceil

from ..memory_curve import STRIPES, Curve
from ..node_style import HATCH, STRIPE, STRIPE_AND_GAP
from ..picture_layout import LANE
from ..strip_layout import HEAD, StripLine, strip_lines, strip_words
from ..theme import Theme, css, font
from .marks import number, text_element


def strip_elements(curve: Curve, step: int, width: int, height: int, theme: Theme) -> Iterator[str]:
    """Yield the memory strip, with its top left corner at the origin."""
    unit = (height - HEAD) / max(curve.highest, 1)
    now = (step + 1) * width / curve.longest
    yield f'<rect width="{width}" height="{height}" fill="{css(theme.panel)}"/>'
    columns = curve.columns(width).cumsum(axis=0) * unit
    here = round(now)
    bands = zip(curve.fills, columns, [0 * columns[0], *columns], strict=False)
    for fill, tops, below in reversed(list(bands)):
        shown = (tops > below)[:here].nonzero()[0]
        past, ink = skyline(tops[:here], 0, height), css(getattr(theme, fill))
        if not past or not shown.size:
            continue
        if fill in STRIPES:
            place = int(shown[0]), here, height, ceil(max(tops[:here]))
            yield hatched_elements(past, place, ink, css(getattr(theme, STRIPES[fill])))
        else:
            yield f'<path fill="{ink}" d="{past}"/>'
    for fill, tops, below in zip(curve.fills, columns, [0 * columns[0], *columns], strict=False):
        if future := outline(tops[here:], below[here:], here, height):
            ink = css(getattr(theme, fill))
            yield f'<path fill="none" stroke="{ink}" d="{future}"/>'
    cursor = f"M{number(now)} {HEAD}V{height}"
    words: list[str] = []
    taken: list[float] = []
    for mark in strip_lines(curve, height):
        line = height - mark.amount * unit
        yield line_element(line, width, mark, theme)
        right = width - sum(taken[place] for place in mark.beside)
        taken.append(font("Regular", 10).getlength(mark.words) + 8)
        words += words_elements(line, right, mark, theme)
    yield f'<path d="{cursor}" stroke="{css(theme.ink)}" stroke-width="2"/>'
    yield from words  # on top of the cursor
    shown = strip_words(curve, width, height)
    yield text_element(4, 10, shown, 10, theme.muted)


def hatched_elements(shape: str, place: tuple[int, int, int, int], ink: str, stripes: str) -> str:
    """Return a shape, and the stripes of its band; the bands below cover theirs.

    Args:
        shape: an outline; it is said once, as a clip path.
        place: where the band begins and ends, the height of the strip, and that of the shape, which
            no stripe exceeds.
        ink, stripes: their colours.
    """
    first, end, height, tall = place
    name = f"h{zlib.crc32(f'{stripes} {shape}'.encode()):x}"
    begin = first - tall - (first - tall + height) % HATCH  # as if stripes began at -height
    # Up one stripe and down the next.
    ways = cycle((f"l{tall}-{tall}m{HATCH} 0", f"l-{tall} {tall}m{HATCH} 0"))
    lines = f"M{begin} {height}" + "".join(next(ways) for _ in range(begin, end, HATCH))
    return (
        f'<clipPath id="{name}"><path d="{shape}"/></clipPath>'
        f'<g clip-path="url(#{name})"><rect width="{end}" height="{height}" fill="{ink}"/>'
        f'<path stroke="{stripes}" d="{lines}"/></g>'
    )


def line_element(y: float, width: int, mark: StripLine, theme: Theme) -> str:
    """Return a line across a strip."""
    return (
        f'<path d="M0 {number(y)}H{width}" stroke="{css(theme.muted)}" '
        f'stroke-dasharray="{mark.dashes[0]} {mark.dashes[1]}"/>'
    )


def words_elements(y: float, right: float, mark: StripLine, theme: Theme) -> tuple[str, str]:
    """Return the label of a line, right-aligned, and its background."""
    wide = font("Regular", 10).getlength(mark.words) + 8
    return (
        f'<rect x="{number(right - wide)}" y="{number(y - 13)}" width="{number(wide)}" '
        f'height="12" fill="{css(theme.panel)}"/>',
        text_element(right - 4, y - 3, mark.words, 10, theme.muted, anchor="end"),
    )


def skyline(tops: Sequence[float], left: int, height: int) -> str:
    """Return the outline of a column chart, equal columns merged; empty if all are 0."""
    if not max(tops, default=0):
        return ""
    runs = ((top, sum(1 for _ in run)) for top, run in groupby(map(round, tops)))
    steps = "".join(f"V{number(height - top)}h{wide}" for top, wide in runs)
    return f"M{left} {height}{steps}V{height}z"


def outline(tops: Sequence[float], below: Sequence[float], left: int, height: int) -> str:
    """Return the upper edge of a band where it is not empty, with its vertical steps."""
    parts: list[str] = []
    before, was = 0, False
    for (top, low), run in groupby(zip(map(round, tops), map(round, below), strict=True)):
        wide, here = sum(1 for _ in run), top > low
        if here and not was:
            parts.append(f"M{left}.5 {number(height - before + 0.5)}")
        if here or was:
            parts.append(f"V{number(height - top + 0.5)}")
        if here:
            parts.append(f"h{wide}")
        before, was = top, here
        left += wide
    return "".join(parts)


def lane_elements(curve: Curve, step: int, width: int, theme: Theme) -> Iterator[str]:
    """Yield the host memory lane, striped, with its top left corner at the origin."""
    unit = (LANE - HEAD) / max(curve.highest, 1)
    now = (step + 1) * width / curve.longest
    yield f'<rect width="{width}" height="{LANE}" fill="{css(theme.panel)}"/>'
    tops = curve.columns(width)[0] * unit
    here, ink = round(now), css(theme.kept)
    if lines := stripe_path(tops[:here], LANE):
        yield f'<path stroke="{ink}" stroke-width="{STRIPE}" d="{lines}"/>'
    if edge := outline(tops, 0 * tops, 0, LANE):
        yield f'<path fill="none" stroke="{ink}" d="{edge}"/>'
    for mark in strip_lines(curve, LANE):
        line = LANE - mark.amount * unit
        yield line_element(line, width, mark, theme)
        yield from words_elements(line, width, mark, theme)
    yield f'<path d="M{number(now)} {HEAD}V{LANE}" stroke="{css(theme.ink)}" stroke-width="2"/>'
    yield text_element(4, 10, strip_words(curve, width, LANE), 10, theme.muted)


def stripe_path(tops: Sequence[float], height: int) -> str:
    """Return horizontal stripes below a skyline, from the ground up."""
    parts: list[str] = []
    for up in range(0, height, STRIPE_AND_GAP):
        left = 0
        for filled, run in groupby(round(top) > up for top in tops):
            wide = sum(1 for _ in run)
            if filled:
                parts.append(f"M{left} {number(height - up - STRIPE / 2)}h{wide}")
            left += wide
    return "".join(parts)
