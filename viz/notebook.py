"""What graphs, traces and players look like in a notebook: pictures by MIME type.

A player runs in a frame of its own with no right but to run its scripts and to save a picture: it
sees nothing of the notebook, and the notebook's styles do not reach into it.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from tinyckpt.base.errors import BackendError

from .player import Page, player
from .vector.svg import svg_graph

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph
    from tinyckpt.core.trace import Trace
    from tinyckpt.planner.offload.simulate import Timeline

MOST_STEPS = 50_000  # of a trace that is shown unasked: a page of about a megabyte


def mimebundle(shown: Graph | Trace | Timeline) -> dict[str, str]:
    """Return the pictures of a graph, trace or timeline; none where there is nothing to draw.

    A graph is a picture, the others are players. Where a layout needs a package that is missing,
    that is what is shown.
    """
    try:
        if hasattr(shown, "schedule"):
            return player_bundle(shown)
        return {"image/svg+xml": svg_graph(shown)} if shown.operators else {}
    except (BackendError, ImportError) as error:
        return {"text/html": f"<p>{html.escape(str(error))}</p>"}


def player_bundle(played: Any) -> dict[str, str]:
    """Return a trace or a timeline as a player, unless it is empty or very long."""
    steps = played.schedule.steps
    if not steps:
        return {}
    if len(steps) > MOST_STEPS:
        name = "timeline" if hasattr(played, "stall") else "trace"
        words = f"{played!r}: {len(steps):,} steps are not shown unasked; viz.player({name}) is"
        return {"text/html": f"<p>{html.escape(words)} the player.</p>"}
    page = player(played)
    assert isinstance(page, Page)
    return page._repr_mimebundle_()
