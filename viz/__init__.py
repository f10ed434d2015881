"""Pictures of traces: animations, stills, charts, a player, a lab: ``from tinyckpt import viz``."""

if __name__ == "viz":  # in a clone: from here on another name of tinyckpt.viz
    from tinyckpt.base.aliases import alias_module

    alias_module("viz", "tinyckpt.viz")

from .packages import require_packages

require_packages()  # before what follows fails for one of them, with less of a clue

from .charts.breakdown import breakdown
from .charts.frontier import frontier
from .charts.gradient_error import gradient_error
from .charts.ledger import ledger
from .charts.pipeline import pipeline
from .charts.scaling import scaling
from .charts.techniques import techniques
from .charts.timeline import timeline
from .gif import frames, gif, save_still
from .lab import lab
from .lab.challenge import challenge
from .lab.empty import empty_lab
from .layout.dot import dot
from .notebook import mimebundle
from .player import player
from .progress import with_bar
from .terminal.asking import ask

__all__ = [
    "ask",
    "breakdown",
    "challenge",
    "dot",
    "empty_lab",
    "frames",
    "frontier",
    "gif",
    "gradient_error",
    "lab",
    "ledger",
    "mimebundle",
    "pipeline",
    "player",
    "save_still",
    "scaling",
    "techniques",
    "timeline",
    "with_bar",
]
