"""What graphs, traces and players look like in a notebook: pictures by MIME type.

A player runs in a frame of its own with no right but to run its scripts and to save a picture: it
sees nothing of the notebook, and the notebook's styles do not reach into it.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from tinyckpt.errors import BackendError
from viz.player import Page, player
from viz.vector.svg import svg_graph

if TYPE_CHECKING:
    from tinyckpt.graph import Graph
    from tinyckpt.trace import Trace

MOST_STEPS = 50_000  # of a trace that is shown unasked: a page of about a megabyte


def mimebundle(shown: Graph | Trace) -> dict[str, str]:
    """Return the pictures of a graph or a trace; none where there is nothing to draw.

    A graph is a picture, a trace a player. Where a layout needs a package that is missing, that is
    what is shown.
    """
    try:
        if hasattr(shown, "steps"):
            return trace_bundle(shown)
        return {"image/svg+xml": svg_graph(shown)} if shown.operators else {}
    except (BackendError, ImportError) as error:
        return {"text/html": f"<p>{html.escape(str(error))}</p>"}


def trace_bundle(trace: Any) -> dict[str, str]:
    """Return a trace as a player, unless it is empty or very long."""
    if not trace.steps:
        return {}
    if len(trace.steps) > MOST_STEPS:
        words = f"{trace!r}: {len(trace.steps):,} steps are not shown unasked; viz.player(trace) is"
        return {"text/html": f"<p>{html.escape(words)} the player.</p>"}
    page = player(trace)
    assert isinstance(page, Page)
    return page._repr_mimebundle_()
