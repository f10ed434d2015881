"""Offload candidates: single-device schedules with values moved to the host to reach a lower peak.

A schedule that the portfolio finds for more memory than there is keeps much, and recomputes little
and cheaply. Of the values it keeps, as many go to the host as it takes to reach a target peak,
those read last first (Belady's rule: the furthest next use). Targets are shares of the largest
peak, the peaks of other schedules, and the smallest peak, with every movable value moved. In
addition, the plans of the dynamic program ``offload_dp``, made for a host.

The set of candidates depends on neither the budget nor the bandwidth, and each of them is no slower
with more of either (``offload.simulate``); so is the best of them, if all are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import inf
from operator import attrgetter
from typing import TypeVar

from tinyckpt.base.deadline import NO_DEADLINE, Clock, OutOfTimeError, Pace
from tinyckpt.base.errors import BudgetError
from tinyckpt.base.units import memory_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Schedule
from tinyckpt.planner.offload.link import Link
from tinyckpt.planner.offload.offload_dp import PricedPlan, priced_plans
from tinyckpt.planner.offload.prefetch import hoist_fetches, idle_copies, movable_values
from tinyckpt.planner.offload.simulate import Timeline, timed
from tinyckpt.planner.portfolio.single_device_schedules import BaseSchedule, base_schedules
from tinyckpt.storage.offload_steps import insert_offloads

PORTFOLIO_SHARE = 0.5  # of the time limit, for the portfolio search
PRICED_SHARE = 0.3  # of the rest, for the plans of ``offload_dp``
# Budgets of prefetching, as multiples of the peak of a plan of ``offload_dp``.
PREFETCH_ROOMS = (Fraction(1), Fraction(5, 4), Fraction(3, 2), Fraction(2))
TARGET_PEAKS = 20  # 5 %, 10 % and so on of the largest peak


T = TypeVar("T")


class TimedWork:
    """Work that begins only if it is predicted to end in time; all of it is linear in evaluations.

    Args:
        clock: of the time.
        tail: evaluations of the final pass, for which time is reserved.
    """

    def __init__(self, clock: Clock, tail: int = 0) -> None:
        self.clock, self.tail, self.pace = clock, tail, Pace()

    def over(self, evaluations: int, work: Callable[[], T], must: bool = False) -> T:
        """Run work over a schedule of so many evaluations; return its result.

        Raises:
            OutOfTimeError: if there is probably no time for it, unless it must be done.
        """
        if not must:
            self.pace.check(self.clock, evaluations + self.tail)
        begin = self.clock.spent()
        made = work()
        self.pace.note(self.clock.spent() - begin, evaluations)
        return made


Made = Callable[[TimedWork, bool], Schedule | None]  # a schedule, and whether it must be made
# A schedule for one device, a target peak, and how to make it; None for lack of time.
Variant = tuple[BaseSchedule, int, Made | None]


@dataclass(slots=True)
class Incumbent:
    """The incumbent of a search with a host.

    Attributes:
        best: the fastest timeline within the budgets, if there is one.
        smallest: the smallest peak of all candidates tried, within the budgets or not.
        is_whole: whether nothing was left out for lack of time.
    """

    best: Timeline | None
    smallest: int
    is_whole: bool

    @property
    def makespan(self) -> float | Fraction:
        """The makespan of the fastest; infinite if there is none."""
        return inf if self.best is None else self.best.makespan

    def take(self, line: Timeline | None) -> None:
        """Accept a timeline as the incumbent if it is the fastest."""
        if line is not None and line.makespan < self.makespan:
            self.best = line


@dataclass(frozen=True, slots=True)
class HostBudget:
    """The budgets of device and host, and the link: as in ``plan_with_host``."""

    graph: Graph
    costs: Costs
    link: Link
    budget: int
    host_budget: float

    def line(self, schedule: Schedule, watch: TimedWork, evaluations: int, must: bool) -> Timeline:
        """Time a schedule within the budget."""
        work = partial(timed, schedule, self.link, self.costs, budget=self.budget)
        return watch.over(evaluations, work, must)

    def line_within(
        self, base: BaseSchedule, made: Made, watch: TimedWork, must: bool, found: Incumbent
    ) -> Timeline | None:
        """Make and time a variant; None if it is not within the budgets."""
        schedule = made(watch, must)
        if schedule is None:
            return None
        trace = watch.over(base.evaluations, partial(replay, schedule), must)
        found.smallest = min(found.smallest, trace.peak_bytes)
        if trace.peak_bytes > self.budget or max(trace.host, default=0) > self.host_budget:
            return None
        # With its copies it has nearly twice as many steps.
        return self.line(schedule, watch, 2 * base.evaluations, must)

    def variants(self, some: list[BaseSchedule], clock: Clock) -> Iterator[Variant]:
        """Yield all schedules with values on the host that may be within the budget."""
        yield from variants(self.graph, self.costs, some, self.budget)
        yield from priced_variants(self.graph, self.costs, self.budget, clock)


def fastest_known(
    graph: Graph,
    costs: Costs,
    link: Link,
    budget: int,
    host_budget: float,
    clock: Clock,
    best: Timeline | None = None,
) -> tuple[Timeline, bool]:
    """Return the fastest known schedule, with or without values on the host.

    Args:
        graph, costs, link, budget, host_budget: as in ``plan_with_host``.
        clock: of the time; at least one schedule is tried in any case.
        best: another schedule within the budgets, if one is known: the first incumbent.

    Returns:
        Its timeline, and whether nothing was left out for lack of time.

    Raises:
        BudgetError: if nothing was found within the budgets.
    """
    known = base_schedules(graph, costs, budget, PORTFOLIO_SHARE * clock.left())
    watch = TimedWork(clock, len(graph.operators))
    room = HostBudget(graph, costs, link, budget, host_budget)
    found = Incumbent(best, known.some[0].peak, known.is_whole)
    if known.within is not None:
        must = best is None
        with suppress(OutOfTimeError):
            stored = watch.over(known.within.evaluations, known.within.made, must)
            found.take(room.line(stored, watch, known.within.evaluations, must))
    for base, goal, made in room.variants(known.some, clock) if link.bandwidth else ():
        if made is None:
            found.is_whole = False
            continue
        if base.cost >= found.makespan:
            continue
        must = found.best is None and goal == 0  # the smallest peak possible: the last resort
        try:
            found.take(room.line_within(base, made, watch, must, found))
        except OutOfTimeError:
            found.is_whole = False
            if found.best is not None and clock.left() == 0:
                break
    if found.best is None:
        cut = "" if found.is_whole else " in the time given; give it more (time_limit=...)"
        raise BudgetError(
            f"nothing was found within {memory_text(budget, costs.memory_unit)}{cut}; the smallest "
            f"peak that was found is {memory_text(found.smallest, costs.memory_unit)}",
            found.smallest,
        )
    return found.best, found.is_whole


def priced_variants(graph: Graph, costs: Costs, budget: int, clock: Clock) -> Iterator[Variant]:
    """Yield the plans of ``offload_dp``, the cheapest first, as ``variants`` yields its own.

    Each with several amounts of memory for prefetches. If the time for it runs out, the last
    variant has no schedule.
    """
    plans, is_whole = [], True
    try:
        for plan in priced_plans(graph, costs, Clock(PRICED_SHARE * clock.left())):
            plans.append(plan)
    except OutOfTimeError:
        is_whole = False

    def made(plan: PricedPlan, room: Fraction, watch: TimedWork, must: bool) -> Schedule | None:
        def placed() -> Schedule | None:
            stored = from_order(graph, plan.order)
            moved = insert_offloads(stored, plan.moved)
            moved = insert_offloads(stored, set(plan.moved) - idle_copies(moved))
            peak = replay(moved).peak_bytes
            goal = int(peak * room)
            return hoist_fetches(moved, costs, None, goal) if goal <= budget else None

        return watch.over(4 * len(plan.order), placed, must)

    for plan in sorted(plans, key=attrgetter("cost")):
        base = BaseSchedule(0, plan.cost, len(plan.order), partial(from_order, graph, plan.order))
        for room in PREFETCH_ROOMS:
            yield base, budget, partial(made, plan, room)
    if not is_whole:
        yield BaseSchedule(0, inf, 0, partial(from_order, graph, ())), budget, None


def variants(
    graph: Graph, costs: Costs, some: list[BaseSchedule], budget: int
) -> Iterator[Variant]:
    """Yield schedules with values on the host that may be within a budget, and how to make them.

    One for each base schedule and target peak; a target of 0 is the smallest peak possible. Those
    next to the budget come first; the budget decides nothing else.
    """
    largest = some[-1].peak
    parts = {largest * part // TARGET_PEAKS for part in range(TARGET_PEAKS)}
    goals = sorted(parts | {base.peak for base in some}, reverse=True)
    movable = set(movable_values(graph))
    orders: dict[int, tuple[Schedule, list[int]]] = {}

    def made(base: BaseSchedule, goal: int, watch: TimedWork, must: bool) -> Schedule | None:
        if base.peak not in orders:
            stored = watch.over(base.evaluations, base.made, must)
            order = watch.over(base.evaluations, partial(offload_order, stored, movable), must)
            orders[base.peak] = stored, order
        return offload_to_peak(*orders[base.peak], goal, costs, watch, must)

    for goal in goals:
        for base in reversed(some):
            if goal <= budget < base.peak:
                yield base, goal, partial(made, base, goal)


def offload_order(stored: Schedule, movable: set[int]) -> list[int]:
    """Return the offloadable values in order of leaving: those that are read last first."""
    everything = insert_offloads(stored, movable)
    idle = idle_copies(everything)
    returns = [step.data for step in everything.steps if isinstance(step, Fetch)]
    return [data for data in reversed(returns) if data not in idle]


def offload_to_peak(
    stored: Schedule,
    order: list[int],
    goal: int,
    costs: Costs,
    watch: TimedWork | None = None,
    must: bool = True,
) -> Schedule | None:
    """Offload as few values as a target peak takes (bisection); None if it cannot be reached.

    Args:
        stored: without copies.
        order: the values to offload, the first ones first.
        goal: bytes; 0 for the smallest peak possible.
        costs: of the evaluations that copies overlap with.
        watch: of the time.
        must: whether it is made even if there is no time.

    Raises:
        OutOfTimeError: if there is no time for it, and it need not be made.
    """
    watch = TimedWork(NO_DEADLINE) if watch is None else watch
    count = sum(isinstance(step, EVALUATIONS) for step in stored.steps)

    def moved(some: int) -> Schedule:
        return watch.over(count, partial(insert_offloads, stored, set(order[:some])), must)

    low, high = 0, len(order) + (goal > 0)
    while goal and high - low > 1:
        middle = (low + high) // 2
        if watch.over(count, partial(replay, moved(middle)), must).peak_bytes <= goal:
            high = middle
        else:
            low = middle
    if high > len(order):
        return None
    early = partial(hoist_fetches, moved(high), costs, None, goal or None)
    return watch.over(count, early, must)
