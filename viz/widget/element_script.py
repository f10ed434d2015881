"""Script of the element ``<tiny-ckpt>``: its modules as one, with styles and both themes."""

from __future__ import annotations

import json

from ..player.page import asset, custom_properties, minified, script
from ..theme import DARK, LIGHT


def element_script(entry: str = "tiny_ckpt") -> str:
    """Return the modules that ``entry`` starts, as statements of one scope."""
    themes = f".widget{{{custom_properties(LIGHT)}}}\n.widget.dark{{{custom_properties(DARK)}}}\n"
    styles = themes + minified(asset("tiny_ckpt.css"))
    return minified(script([entry])).replace('"{{styles}}"', json.dumps(styles))
