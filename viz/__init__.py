"""Visualisation of traces: animated GIFs, still images, charts, interactive HTML pages.

A trace (what ``tc.replay`` returns) or a graph goes in; a file, or a page that a notebook displays,
comes out: ``from tinyckpt import viz``. Only ``lab`` and ``challenge`` search for schedules; every
other picture shows exactly the trace that it is given.
"""

import warnings

if __name__ == "viz":  # in a clone: make it an alias of tinyckpt.viz
    from tinyckpt.base.module_aliases import alias_module

    alias_module("viz", "tinyckpt.viz")

from .requirements import require_packages

require_packages()  # before an import below fails with a less helpful message

from .charts.breakdown import breakdown
from .charts.frontier import frontier
from .charts.gradient_error import gradient_error
from .charts.memory_map import memory_map
from .charts.pipeline import pipeline
from .charts.scaling import scaling
from .charts.space_time import ledger
from .charts.techniques import techniques
from .charts.timeline import timeline
from .explainer import explainer
from .gif import frames, gif, save_still
from .lab import lab
from .lab.challenge import challenge
from .lab.empty import empty_lab
from .layout.dot import dot
from .notebook import mimebundle
from .player import player
from .progress import with_bar
from .terminal.ask_prediction import ask
from .widget import widget, widget_script, widget_tag

__all__ = [
    "ask",
    "breakdown",
    "challenge",
    "dot",
    "empty_lab",
    "explainer",
    "frames",
    "frontier",
    "gif",
    "gradient_error",
    "lab",
    "ledger",
    "memory_map",
    "mimebundle",
    "pipeline",
    "player",
    "save_still",
    "scaling",
    "techniques",
    "timeline",
    "widget",
    "widget_script",
    "widget_tag",
    "with_bar",
]


def __getattr__(name: str) -> object:
    """Return a function by the name that it had; ``means`` goes with the next version."""
    if name == "means":
        warnings.warn("viz.means is now viz.techniques", DeprecationWarning, stacklevel=2)
        return techniques
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
