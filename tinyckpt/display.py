"""How graphs, schedules and traces show themselves in notebooks.

As text; and as pictures once the reader has imported ``viz``. Nothing here imports it: the engine
needs NumPy alone, and whoever wants pictures says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable


def mimebundle(text: str, shown: Callable[[], object]) -> dict[str, str]:
    """Return what IPython is to display: representations by MIME type, the text among them.

    Args:
        text: the plain text.
        shown: called for the graph or trace that is shown, if ``viz`` is there to show it.
    """
    pictures = getattr(sys.modules.get("viz"), "mimebundle", None)
    return {**(pictures(shown()) if pictures else {}), "text/plain": text}
