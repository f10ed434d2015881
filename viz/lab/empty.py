"""Interactive planning page without a graph: opens documents that are dropped onto it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, overload

import numpy as np

from tinyckpt.base.display import DrawnPath
from tinyckpt.base.errors import OptionError
from tinyckpt.base.files import suffix_of, write_atomically
from tinyckpt.base.spec import DTYPES

from ..layout.drawn_nodes import SYMBOLS
from ..memory_curve import BANDS
from ..player import SUFFIXES, Page
from ..player.packing import bundle_columns
from ..player.page import FRESH, HOST, MEASURED, SEVERAL, STYLES, TIMES, asset, filled, json_text
from ..scene import TITLES
from ..theme import check_theme

SCRIPTS = (FRESH, "desk")
HEADING = "tinyckpt lab"
WITHOUT_SCRIPTS = (
    "Scripts are off. With them this page reads a graph, a trace or a memory snapshot that is "
    "dropped onto it, and plays it."
)
BFLOAT16 = 2  # bytes; NumPy may not know it


@overload
def empty_lab(path: None = None, *, theme: str = "auto") -> Page: ...
@overload
def empty_lab(path: str | os.PathLike[str], *, theme: str = "auto") -> Path: ...
def empty_lab(path: str | os.PathLike[str] | None = None, *, theme: str = "auto") -> Path | Page:
    """Write a lab without a graph, which opens documents dropped onto it.

    The page reads the documents that tinyckpt writes (graphs, schedules, traces), and measured
    memory as ``tc.load_measured`` does; its error messages are those of Python. It makes no network
    requests. A graph starts with store-all, and a click saves or recomputes a value; the other
    schedules that the page offers save every n-th value.

    Args:
        path: of the file, ending in ``.html``. Without it nothing is written: the result displays
            itself in a notebook.
        theme: as in ``viz.player``.

    Raises:
        OptionError: if an option is not legal.
        FormatError: if the file cannot be written.

    >>> from tinyckpt import viz
    >>> viz.empty_lab(theme="dark")
    <Page that plays 0 traces>
    """
    check_theme(theme, "auto")
    if path is not None and suffix_of(path) not in SUFFIXES:
        raise OptionError(f"{path}: the name of a page must end in .html")
    more = (TIMES, HOST, MEASURED)
    text = filled(
        "player.html",
        styles=[f"{name}.css" for name in (*STYLES, *more, "lab", "empty")],
        scripts=SCRIPTS,
        left_out=SEVERAL,
        theme=theme,
        front="ledger",
        title=HEADING,
        card=asset("lab.html"),
        hint="",
        opening=asset("empty.html"),
        without=WITHOUT_SCRIPTS,
        data=json_text(bundle_columns(constants())),
        still="",
        caption="",
        table="",
    )
    if path is None:
        return Page(text, 0)
    write_atomically(path, text.encode())
    return DrawnPath(path)


def constants() -> dict[str, Any]:
    """Return Python's constants that the page needs: sizes of dtypes, titles, symbols, bands."""
    sizes = {name: BFLOAT16 if name == "bfloat16" else np.dtype(name).itemsize for name in DTYPES}
    return {
        "dtypes": sizes,
        "titles": dict(TITLES),
        "symbols": SYMBOLS,
        "bands": [{"name": name, "fill": fill} for name, fill in BANDS.items()],
    }
