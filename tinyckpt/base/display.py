"""Escaping of text for terminals, and rich notebook output (MIME bundles) of graphs and traces.

Notebooks show text; and pictures, once the user has imported ``viz``. Nothing here imports it: the
engine needs NumPy alone, and pictures are opt-in.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable
from typing import Any

from tinyckpt.base.errors import ScheduleError

if sys.platform == "win32":
    from pathlib import WindowsPath as SystemPath
else:
    from pathlib import PosixPath as SystemPath

# MIME types that browsers show inline, by suffix; and the largest file embedded in a notebook.
PICTURES = {
    ".gif": "image/gif", ".apng": "image/apng", ".png": "image/png", ".webp": "image/webp",
    ".svg": "image/svg+xml",
}  # fmt: skip
VIDEOS = {".mp4": "video/mp4", ".webm": "video/webm"}
LARGEST_EMBEDDED = 2**25  # bytes
LONGEST_SPOKEN = 200  # characters of a title; a longer one is not shown whole
# The end of a title: the name of a backward operator, "matmul_3_vjp_2" or "hidden (tanh_1_vjp)".
ADJOINT = re.compile(r"(?P<name>[^/ ()]+)_vjp(?:_(?P<number>\d+))?(?=\)?$| \(\d+\)\)?$)")


def spoken(title: str) -> str:
    """Return the title of an operator of the backward pass, or of its value, in words.

    A title that is too long to be shown whole is left as it is.

    >>> spoken("block2/matmul_3_vjp_2"), spoken("layer1/hidden (tanh_1_vjp)")
    ('block2/gradient of matmul_3 (2)', 'layer1/hidden (gradient of tanh_1)')
    """
    while len(title) <= LONGEST_SPOKEN and (found := ADJOINT.search(title)):
        number = f" ({found['number']})" if found["number"] else ""
        title = f"{title[: found.start()]}gradient of {found['name']}{number}{title[found.end() :]}"
    return title


def printable(text: str) -> str:
    """Escape non-printable characters, as ``repr`` does.

    A name may come from an untrusted file. On a terminal its control characters would move the
    cursor, and bidirectional marks would reverse the text.

    >>> printable("tanh\\x1b[2J"), printable("größer")
    ('tanh\\\\x1b[2J', 'größer')
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def html_escaped(text: str) -> str:
    """Escape text for HTML; ``html``, with its table of entities, is loaded at the first call.

    >>> html_escaped("a < b")
    'a &lt; b'
    """
    import html

    return html.escape(text)


def make_printable(node: object, *names: str) -> None:
    """Escape non-printable characters in the text fields of a frozen object, in place.

    The types that hold names call this at construction, for traced functions and untrusted files
    alike, so that code which shows a name, on a terminal, in a picture or in an error, is safe.
    """
    for name in names:
        text = getattr(node, name)
        if text is not None and not text.isprintable():
            object.__setattr__(node, name, printable(text))


def mimebundle(text: str, shown: Callable[[], object]) -> dict[str, str]:
    """Return a MIME bundle for IPython: representations by MIME type, plain text always included.

    Args:
        text: the plain text.
        shown: returns the graph or trace to draw; called only if ``viz`` is imported.
    """
    pictures = getattr(sys.modules.get("tinyckpt.viz"), "mimebundle", None)
    return {**(pictures(shown()) if pictures else {}), "text/plain": text}


def notebook_method(shown: Callable[[Any], object]) -> Callable[..., dict[str, str]]:
    """Return the method ``_repr_mimebundle_``, by which notebooks show what ``shown`` returns.

    What cannot be shown, since it is illegal, is said in text.
    """

    def method(self: Any, include: Any = None, exclude: Any = None) -> dict[str, str]:
        try:
            return mimebundle(repr(self), lambda: shown(self))
        except ScheduleError as error:
            return {"text/plain": f"{self!r}, illegal: {error}"}

    return method


class DrawnPath(SystemPath):
    """The path of a drawn file: an ordinary path, which a notebook shows as the picture itself."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the picture or video inline; only a link if it cannot be embedded."""
        name, suffix = html_escaped(str(self)), self.suffix.lower()
        shown = f'<a href="{name}">{name}</a>'
        try:
            kind = PICTURES.get(suffix) or VIDEOS.get(suffix)
            if kind and self.stat().st_size <= LARGEST_EMBEDDED:
                content = f"data:{kind};base64,{base64.b64encode(self.read_bytes()).decode()}"
                shown = f'<img src="{content}" alt="{name}" style="max-width: 100%">'
                if suffix in VIDEOS:
                    shown = f'<video src="{content}" controls style="max-width: 100%"></video>'
        except OSError:  # deleted or not readable
            pass
        return {"text/plain": str(self), "text/html": shown}
