"""Rich display in notebooks (``_repr_mimebundle_``): graphs as SVG, traces as animated HTML.

A player runs in a sandboxed iframe whose only permissions are to run its scripts and to save a
picture: it sees nothing of the notebook, and the notebook's styles do not reach into it.
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

MOST_STEPS = 50_000  # of a trace that a notebook shows by default: a page of about a megabyte


def mimebundle(shown: Graph | Trace | Timeline) -> dict[str, str]:
    """Return the MIME bundle of a graph, trace or timeline; empty where there is nothing to draw.

    A graph is a picture, the others are players. Where a layout needs a package that is missing,
    the bundle is that message.

    >>> import tinyckpt as tc
    >>> from tinyckpt import viz
    >>> graph = tc.networks.chain(4)
    >>> list(viz.mimebundle(graph)), list(viz.mimebundle(tc.replay(tc.plan(graph))))
    (['image/svg+xml'], ['text/plain', 'text/html'])
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
