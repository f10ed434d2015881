"""Candidates for a plan with a host: the values of known schedules offloaded, until a peak is met.

Of the values that a single-device schedule stores, as many go to the host as it takes to reach a
target peak (``offload_saved_values``); plans of the dynamic program (``offload_dp``) name the
values themselves. The prefetches of either are hoisted (``prefetch``). A candidate is made when it
is tried: what it costs at least is known before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from tinyckpt.base.deadline import MOST_EVALUATIONS, Clock
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.heuristics.budget_grid import evenly_spaced
from tinyckpt.planner.model.binomial_bound import fewest_evaluations, uniform_chain
from tinyckpt.planner.model.liveness import problem_of
from tinyckpt.planner.model.plan_request import PlanRequest
from tinyckpt.planner.offload.offload_dp import PricedPlan
from tinyckpt.planner.offload.offload_saved_values import (
    PacedWork,
    insert_useful_offloads,
    movable_values,
    offload_order,
    offload_to_peak,
)
from tinyckpt.planner.offload.prefetch import hoist_fetches
from tinyckpt.planner.portfolio.resolve_policy import run_policy
from tinyckpt.planner.portfolio.search import search_frontier

# Single-device schedules of which values are offloaded. Doubled: makespans of chains are up to 2 %
# shorter, in twice the time.
NUM_BASES = 12
# Target peaks: multiples of a 20th of the largest peak. Doubled: twice the candidates and the time,
# and no change on chains; without them, a ResNet within 40 % of its peak takes 0.7 % longer.
TARGET_PEAKS = 20
# Memory for prefetches, as multiples of the peak of a plan of ``offload_dp``. Twice as many take
# twice the time; with the first alone, makespans of chains are up to 6 % longer.
PREFETCH_ROOMS = (Fraction(1), Fraction(5, 4), Fraction(3, 2), Fraction(2))


@dataclass(frozen=True, slots=True)
class OffloadCandidate:
    """A schedule with values on the host, and how to make it.

    Attributes:
        cost: the sum of its evaluations: its makespan is no less.
        evaluations: their number.
        make: makes it, in passes that are run in time; None if its target cannot be reached.
        is_last_resort: whether no candidate has a smaller peak: it is made even if there is no
            time, while nothing else is known.
    """

    cost: float
    evaluations: int
    make: Callable[[PacedWork], Schedule | None]
    is_last_resort: bool = False


@dataclass(frozen=True, slots=True)
class BaseSchedule:
    """A schedule for one device: its peak, cost and evaluations, and how to make it."""

    peak: int
    cost: float
    evaluations: int
    make: Callable[[], Schedule]


def base_schedules(
    graph: Graph, costs: Costs, budget: int, seconds: float
) -> tuple[BaseSchedule | None, list[BaseSchedule], bool]:
    """Return schedules for one device, sampled over all peaks.

    On a uniform chain nothing is searched: Revolve is optimal at every budget.

    Returns:
        The cheapest within the budget, if there is one; those of which values are offloaded, by
        peak, which do not depend on the budget; and whether the search for them was complete, not
        cut by the time limit.
    """
    uniform = uniform_chain(graph, costs)
    if uniform is not None:
        n, size = uniform
        least = 3
        while fewest_evaluations(n, least) > MOST_EVALUATIONS:
            least += 1
        rooms = evenly_spaced(range(least, n + 3), NUM_BASES)
        bases = [revolve_base(graph, costs, n, room, size) for room in rooms]
        own = revolve_base(graph, costs, n, budget // size, size)
        return own if budget // size >= least else None, bases, True
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
    return within[-1] if within else None, evenly_spaced(points, NUM_BASES), found.complete


def revolve_base(graph: Graph, costs: Costs, n: int, room: int, size: int) -> BaseSchedule:
    """Return the best schedule of ``chain(n)`` with room for a number of values, at least 3."""
    room = min(max(room, 3), n + 2)
    count = fewest_evaluations(n, room)
    make = partial(run_policy, graph, "revolve", costs, {"slots": min(room - 2, n)})
    return BaseSchedule(room * size, count * float(costs.operators[0]), count, make)


def base_candidates(
    graph: Graph, costs: Costs, bases: list[BaseSchedule], budget: int
) -> Iterator[OffloadCandidate]:
    """Yield single-device schedules with values on the host that may be within a budget.

    One for each of them and each target peak: shares of the largest peak, the peaks of the others,
    and 0, for the smallest peak possible, with every movable value moved. The targets next to the
    budget come first; the budget decides nothing else.
    """
    largest = bases[-1].peak
    parts = {largest * part // TARGET_PEAKS for part in range(TARGET_PEAKS)}
    goals = sorted(parts | {base.peak for base in bases}, reverse=True)
    movable = set(movable_values(graph))
    stored: dict[int, tuple[Schedule, list[int]]] = {}  # with its values in order of leaving

    def make(base: BaseSchedule, goal: int, work: PacedWork) -> Schedule | None:
        if base.peak not in stored:
            schedule = work.run(base.evaluations, base.make)
            order = work.run(base.evaluations, offload_order, schedule, movable)
            stored[base.peak] = schedule, order
        return offload_to_peak(*stored[base.peak], goal, costs, work)

    for goal in goals:
        for base in reversed(bases):
            if goal <= budget < base.peak:
                yield OffloadCandidate(
                    base.cost, base.evaluations, partial(make, base, goal), goal == 0
                )


def plan_candidates(
    graph: Graph, costs: Costs, plan: PricedPlan, budget: int
) -> Iterator[OffloadCandidate]:
    """Yield a plan of ``offload_dp`` with several amounts of memory for its prefetches."""
    count = len(plan.order)
    made: list[tuple[Schedule, int]] = []  # without prefetches, and its peak; made on first use

    def make(room: Fraction, work: PacedWork) -> Schedule | None:
        if not made:
            stored = work.run(count, from_order, graph, plan.order)
            moved = work.run(2 * count, insert_useful_offloads, stored, set(plan.moved))
            made.append((moved, work.run(count, replay, moved).peak_bytes))
        moved, peak = made[0]
        goal = int(peak * room)
        return work.run(count, hoist_fetches, moved, costs, None, goal) if goal <= budget else None

    for room in PREFETCH_ROOMS:
        yield OffloadCandidate(plan.cost, count, partial(make, room))
