"""Single-device schedules (no offloading), as starting points of planning with host memory.

A sample of the Pareto frontier, by peak; which schedules it has depends on neither the budget nor
the bandwidth. ``offload_schedules`` moves some of their values to the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tinyckpt.base.deadline import MOST_EVALUATIONS, Clock
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.heuristics.budget_grid import evenly_spaced
from tinyckpt.planner.model.binomial_bound import fewest_evaluations, uniform_chain
from tinyckpt.planner.model.liveness import problem_of
from tinyckpt.planner.model.plan_request import PlanRequest
from tinyckpt.planner.portfolio.resolve_policy import run_policy
from tinyckpt.planner.portfolio.search import search_frontier

NUM_BASES = 12  # schedules of a frontier that are tried with a host


@dataclass(frozen=True, slots=True)
class BaseSchedule:
    """A schedule for one device: its peak, cost and evaluations, and how to make it."""

    peak: int
    cost: float
    evaluations: int
    made: Callable[[], Schedule]


@dataclass(frozen=True, slots=True)
class KnownSchedules:
    """Schedules for one device, by peak.

    Attributes:
        within: the cheapest within the budget, if there is one.
        some: those of which values are offloaded; they do not depend on the budget.
        is_whole: whether the search for them was complete, not cut by the time limit.
    """

    within: BaseSchedule | None
    some: list[BaseSchedule]
    is_whole: bool


def base_schedules(graph: Graph, costs: Costs, budget: int, seconds: float) -> KnownSchedules:
    """Return schedules for one device, sampled over all peaks.

    On a uniform chain nothing is searched: Revolve is optimal at every budget.
    """
    uniform = uniform_chain(graph, costs)
    if uniform is not None:
        n, size = uniform
        least = 3
        while fewest_evaluations(n, least) > MOST_EVALUATIONS:
            least += 1
        rooms = evenly_spaced(range(least, n + 3), NUM_BASES)
        made = [revolve_base(graph, costs, n, room, size) for room in [*rooms, budget // size]]
        return KnownSchedules(made[-1] if budget // size >= least else None, made[:-1], True)
    # The budget sets the order of tasks.
    request = PlanRequest(graph, costs, budget, Clock(seconds), (), problem_of(graph, costs))
    found = search_frontier(request)
    points = [
        BaseSchedule(
            p.peak, p.cost, len(p.order), partial(from_order, graph, p.order.tolist(), p.policy)
        )
        for p in found.points
    ]
    within = [base for base in points if base.peak <= budget]
    return KnownSchedules(
        within[-1] if within else None, evenly_spaced(points, NUM_BASES), found.complete
    )


def revolve_base(graph: Graph, costs: Costs, n: int, room: int, size: int) -> BaseSchedule:
    """Return the best schedule of ``chain(n)`` with room for a number of values, at least 3."""
    room = min(max(room, 3), n + 2)
    count = fewest_evaluations(n, room)
    made = partial(run_policy, graph, "revolve", costs, {"slots": min(room - 2, n)})
    return BaseSchedule(room * size, count * float(costs.operators[0]), count, made)
