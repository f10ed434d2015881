"""Generator of the live explainer (``viz.widget``) on the site: its script and its HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tinyckpt as tc
from tinyckpt import viz

FILE = "guide/out/explained.txt"  # what pages include as raw HTML


def write(app: Any) -> None:
    """Write the explainer of a chain, with the schedules of its frontier, for pages to include."""
    graph = tc.networks.chain(16)
    frontier = tc.frontier(graph, nodes=True)
    tag = viz.widget_tag(frontier, budget=9)
    text = (
        f'<div class="explained">{tag}</div>\n<script src="_static/tiny-ckpt.js" defer></script>\n'
    )
    (Path(app.srcdir) / FILE).write_text(text, encoding="utf-8")


def write_script(app: Any, error: Exception | None) -> None:
    """Write the element's script beside the site's own."""
    if error is None and app.builder.format == "html":
        viz.widget_script(Path(app.outdir) / "_static" / "tiny-ckpt.js")
