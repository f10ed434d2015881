"""What a policy is: a planner and the facts that a table about policies shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tinyckpt.core.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Policy:
    """A named way to turn (graph, costs, options) into a schedule.

    Attributes:
        name: what ``plan`` and the command line call it.
        plan: ``plan(graph, costs, **options)`` -> Schedule.
        summary: one line that says what it does.
        optimality: among which schedules its result is the best, if it is.
        complexity: how the time to plan grows.
        source: the paper it comes from, with a DOI or arXiv number, or "folklore".
    """

    name: str
    plan: Callable[..., Schedule]
    summary: str
    optimality: str
    complexity: str
    source: str
