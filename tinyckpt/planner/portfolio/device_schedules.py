"""Schedules of a graph for one device that are known, at any budget: what a host starts from.

Which there are depends on neither the budget nor the bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tinyckpt.base.deadline import MOST_EVALUATIONS
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.heuristics.budget_grid import thinned
from tinyckpt.planner.model.binomial_bound import fewest_evaluations, uniform_chain
from tinyckpt.planner.portfolio.resolve_policy import planned
from tinyckpt.planner.portfolio.search import frontier as search

BASES = 12  # how many of a search's schedules are tried with a host


@dataclass(frozen=True, slots=True)
class Base:
    """A schedule for one device: its peak, its cost and its evaluations, and how to make it."""

    peak: int
    cost: float
    evaluations: int
    made: Callable[[], Schedule]


@dataclass(frozen=True, slots=True)
class Known:
    """Schedules for one device, by peak.

    Attributes:
        within: the cheapest within the budget, if there is one.
        some: those of which values are moved; they do not depend on the budget.
        is_whole: whether none is left out for want of time.
    """

    within: Base | None
    some: list[Base]
    is_whole: bool


def known_bases(graph: Graph, costs: Costs, budget: int, seconds: float) -> Known:
    """Return schedules for one device.

    On a uniform chain nothing is searched: Revolve is the best at any budget.
    """
    uniform = uniform_chain(graph, costs)
    if uniform is not None:
        n, size = uniform
        least = 3
        while fewest_evaluations(n, least) > MOST_EVALUATIONS:
            least += 1
        rooms = thinned(range(least, n + 3), BASES)
        made = [revolve_base(graph, costs, n, room, size) for room in [*rooms, budget // size]]
        return Known(made[-1] if budget // size >= least else None, made[:-1], True)
    found = search(graph, costs, seconds, budget=budget)  # the budget says what comes first
    points = [
        Base(p.peak, p.cost, len(p.order), partial(from_order, graph, p.order.tolist(), p.policy))
        for p in found.points
    ]
    within = [base for base in points if base.peak <= budget]
    return Known(within[-1] if within else None, thinned(points, BASES), found.complete)


def revolve_base(graph: Graph, costs: Costs, n: int, room: int, size: int) -> Base:
    """Return the best schedule of ``chain(n)`` with room for so many values, at least 3."""
    room = min(max(room, 3), n + 2)
    count = fewest_evaluations(n, room)
    made = partial(planned, graph, "revolve", costs, {"slots": min(room - 2, n)})
    return Base(room * size, count * float(costs.operators[0]), count, made)
