"""How things show themselves: names on a terminal; graphs, schedules and traces in notebooks.

In notebooks as text; and as pictures once the reader has imported ``viz``. Nothing here imports it:
the engine needs NumPy alone, and whoever wants pictures says so.
"""

from __future__ import annotations

import base64
import html
import sys
from collections.abc import Callable
from typing import Any

if sys.platform == "win32":
    from pathlib import WindowsPath as SystemPath
else:
    from pathlib import PosixPath as SystemPath

# What a browser shows of a file, by its suffix; and a file that is too much for a notebook.
PICTURES = {
    ".gif": "image/gif", ".apng": "image/apng", ".png": "image/png", ".webp": "image/webp",
    ".svg": "image/svg+xml",
}  # fmt: skip
FILMS = {".mp4": "video/mp4", ".webm": "video/webm"}
LARGEST = 2**25  # bytes


def printable(text: str) -> str:
    """Return a text with what does not print written out, as Python writes it.

    A name may come from a file of somebody else's. On a terminal its control characters would move
    the cursor, and its marks of direction turn a line around.

    >>> printable("tanh\\x1b[2J"), printable("größer")
    ('tanh\\\\x1b[2J', 'größer')
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def make_printable(node: object, *names: str) -> None:
    """Write out what does not print in a frozen object's texts, before anything shows them.

    Whoever shows a name, on a terminal, in a picture or in an error, need not think of it: the
    types that hold names call this, and so do traced functions and files of somebody else's.
    """
    for name in names:
        text = getattr(node, name)
        if text is not None and not text.isprintable():
            object.__setattr__(node, name, printable(text))


def mimebundle(text: str, shown: Callable[[], object]) -> dict[str, str]:
    """Return what IPython is to display: representations by MIME type, the text among them.

    Args:
        text: the plain text.
        shown: called for the graph or trace that is shown, if ``viz`` is there to show it.
    """
    pictures = getattr(sys.modules.get("tinyckpt.viz"), "mimebundle", None)
    return {**(pictures(shown()) if pictures else {}), "text/plain": text}


class DrawnPath(SystemPath):
    """The path of a file that was drawn: any path, and in a notebook the picture itself."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the picture or the film; only a link where there is none to be shown."""
        name, suffix = html.escape(str(self)), self.suffix.lower()
        shown = f'<a href="{name}">{name}</a>'
        try:
            kind = PICTURES.get(suffix) or FILMS.get(suffix)
            if kind and self.stat().st_size <= LARGEST:
                content = f"data:{kind};base64,{base64.b64encode(self.read_bytes()).decode()}"
                shown = f'<img src="{content}" alt="{name}" style="max-width: 100%">'
                if suffix in FILMS:
                    shown = f'<video src="{content}" controls style="max-width: 100%"></video>'
        except OSError:  # it is gone, or not to be read
            pass
        return {"text/plain": str(self), "text/html": shown}
