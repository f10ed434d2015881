"""How things show themselves: names on a terminal; graphs, schedules and traces in notebooks.

In notebooks as text; and as pictures once the reader has imported ``viz``. Nothing here imports it:
the engine needs NumPy alone, and whoever wants pictures says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable


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
    pictures = getattr(sys.modules.get("viz"), "mimebundle", None)
    return {**(pictures(shown()) if pictures else {}), "text/plain": text}
