"""The means of holding less for the backward half, weighed against each other on one network.

``case`` says what is weighed and what is found of each; ``planned`` has those that plan the graph
as it is, ``rewritten`` those that put another network in its place, ``divided`` those that part its
batch, and ``samples`` whether the parts add up. ``measured`` runs what can be run here.
``weighing`` has the table of all of them, ``rows`` what is found.
"""

from tinyckpt.means.case import Case, Planned
from tinyckpt.means.rows import Row, Weighing
from tinyckpt.means.weighing import MEANS, weigh

__all__ = ["MEANS", "Case", "Planned", "Row", "Weighing", "weigh"]
