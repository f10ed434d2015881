"""A player: traces as one HTML file that steps, scrubs and plays, offline and anywhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tinyckpt.errors import TinyckptError
from tinyckpt.files import write_atomically
from viz.draw import as_list, check
from viz.player.page import page
from viz.theme import THEMES

if TYPE_CHECKING:
    from tinyckpt.trace import Trace

SUFFIXES = (".html", ".htm")


def player(
    traces: Trace | Sequence[Trace],
    path: str | os.PathLike[str],
    *,
    theme: str = "auto",
    title: str | None = None,
) -> Path:
    """Write traces as one HTML file: graph, memory, counters, steps and program, in step.

    The file needs no network and nothing beside it; a browser of 2023 or later plays it, and
    without scripts it shows a still and a table.

    Args:
        traces: one trace, or several to compare.
        path: of the file, ending in ``.html``; it is replaced only once the new one is complete.
        theme: ``light``, ``dark``, or ``auto`` for what the reader's system prefers.
        title: of the page; for one trace, in place of the policy's name too.

    Raises:
        TinyckptError: if there is nothing to show, an option is not legal, or the file cannot be
            written.
    """
    shown = as_list(traces)
    if theme not in ("auto", *THEMES):
        raise TinyckptError(f"unknown theme {theme!r}; known are auto, {', '.join(THEMES)}")
    check(shown, "light")
    if Path(path).suffix.lower() not in SUFFIXES:
        raise TinyckptError(f"{path}: the name of a page must end in .html")
    write_atomically(path, page(shown, theme, title).encode())
    return Path(path)
