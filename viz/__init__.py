"""Pictures of traces: animations, stills, charts, a player."""

from viz.packages import require_packages

require_packages()  # before what follows fails for one of them, with less of a clue

from viz.charts.breakdown import breakdown
from viz.charts.frontier import frontier
from viz.charts.gradient_error import gradient_error
from viz.charts.ledger import ledger
from viz.charts.pipeline import pipeline
from viz.charts.scaling import scaling
from viz.charts.techniques import means
from viz.charts.timeline import timeline
from viz.gif import frames, gif, save_still
from viz.lab import lab
from viz.lab.challenge import challenge
from viz.lab.empty import empty_lab
from viz.layout.dot import dot
from viz.notebook import mimebundle
from viz.player import player
from viz.progress import with_bar
from viz.terminal.asking import ask

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
    "means",
    "mimebundle",
    "pipeline",
    "player",
    "save_still",
    "scaling",
    "timeline",
    "with_bar",
]
