"""Web font (Inter, WOFF2) embedded as CSS, so that pages and SVG look the same everywhere."""

from __future__ import annotations

import base64
import io
from functools import cache, lru_cache
from xml.etree import ElementTree

from ..theme import FONTS, font_file

WEIGHTS = {"Regular": 400, "SemiBold": 600}


@cache
def font_faces() -> str:
    """Return one line of CSS that embeds Inter, about 27 KiB."""
    return "".join(
        f"@font-face{{font-family:Inter;font-weight:{weight};"
        f"src:url(data:font/woff2;base64,{encoded(name)})}}"
        for name, weight in WEIGHTS.items()
    )


def encoded(name: str) -> str:
    """Return a weight of the font in base64."""
    return base64.b64encode((FONTS / f"Inter-{name}.woff2").read_bytes()).decode()


def faces_of(elements: str) -> str:
    """Return the CSS that embeds the letters of SVG text: its weight is its own or of its group."""
    root = ElementTree.fromstring(f'<svg xmlns:xlink="x">{elements}</svg>')
    letters = {"400": "", "600": ""}
    pending = [(root, "400")]
    while pending:
        element, inherited = pending.pop()
        weight = element.get("font-weight", inherited)
        letters[weight] += element.text or ""
        pending += [(child, weight) for child in element]
    return subset_faces(letters["400"], letters["600"])


def subset_faces(regular: str, semibold: str) -> str:
    """Return one line of CSS that embeds those glyphs of Inter that texts need, 2 to 6 KiB each.

    Args:
        regular, semibold: the letters of each weight, in any order.
    """
    return "".join(
        f"@font-face{{font-family:Inter;font-weight:{WEIGHTS[name]};"
        f"src:url(data:font/woff;base64,{subset(name, ''.join(sorted(set(text))))})}}"
        for name, text in (("Regular", regular), ("SemiBold", semibold))
        if text
    )


@lru_cache(maxsize=64)
def subset(name: str, letters: str) -> str:
    """Return a weight of the font with some letters and their kerning, as WOFF in base64."""
    from fontTools.subset import Options, Subsetter, load_font, save_font

    options = Options(
        flavor="woff", layout_features=["kern"], hinting=False, desubroutinize=True,
        name_IDs=[], notdef_outline=True,
    )  # fmt: skip
    buffer = io.BytesIO()
    with load_font(font_file(name), options) as face:
        chosen = Subsetter(options)
        chosen.populate(text=letters)
        chosen.subset(face)
        save_font(face, buffer, options)
    return base64.b64encode(buffer.getvalue()).decode()
