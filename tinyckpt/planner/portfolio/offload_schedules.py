"""Schedules that are known for one device, with some of their values on the host.

What the portfolio finds for more memory than there is keeps much and recomputes little, that which
is cheap. Of what it keeps, as many values wait on the host as it takes to get within a goal: those
that are read last leave first. Goals are parts of the largest peak, the peaks of other schedules,
and whatever all that can be moved leaves over. Besides, what ``priced`` plans for a host at once.

Which schedules there are depends on neither the budget nor the bandwidth, and each of them comes no
later with more of either (``offload.simulate``); so does the best of them, if all are tried.
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

from tinyckpt.base.deadline import ENDLESS, Clock, OutOfTimeError, Pace
from tinyckpt.base.errors import BudgetError
from tinyckpt.base.units import memory_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order, offloading
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Schedule
from tinyckpt.planner.offload.link import Link
from tinyckpt.planner.offload.offload_dp import Priced, priced_plans
from tinyckpt.planner.offload.prefetch import fetched_early, idle_copies, movable_values
from tinyckpt.planner.offload.simulate import Timeline, timed
from tinyckpt.planner.portfolio.device_schedules import Base, known_bases

PORTFOLIO_SHARE = 0.5  # of the time, for the portfolio's search
PRICED_SHARE = 0.3  # of what is left then, for the plans of ``priced``
# Of what a plan of ``priced`` takes, the memory within which its copies come back early.
ROOMS = (Fraction(1), Fraction(5, 4), Fraction(3, 2), Fraction(2))
GOALS = 20  # of the largest peak: goals, so that 5 %, 10 % and so on of it are goals themselves


T = TypeVar("T")


class TimedWork:
    """Work that is begun only if it will probably be done in time: all of it goes along schedules.

    Args:
        clock: of the time.
        tail: evaluations that are to be gone along once more when all is done.
    """

    def __init__(self, clock: Clock, tail: int = 0) -> None:
        self.clock, self.tail, self.pace = clock, tail, Pace()

    def over(self, evaluations: int, work: Callable[[], T], must: bool = False) -> T:
        """Return what work over a schedule of so many evaluations comes to.

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
# A schedule for one device, a peak that is the goal, and how it is made; none for want of time.
Variant = tuple[Base, int, Made | None]


@dataclass(slots=True)
class Found:
    """What has been found so far.

    Attributes:
        best: the fastest within the budgets, if there is one.
        smallest: the least peak of all that was looked at, within the budgets or not.
        is_whole: whether nothing was left out for want of time.
    """

    best: Timeline | None
    smallest: int
    is_whole: bool

    @property
    def makespan(self) -> float | Fraction:
        """Of the fastest."""
        return inf if self.best is None else self.best.makespan

    def take(self, line: Timeline | None) -> None:
        """Keep a timeline if it is the fastest."""
        if line is not None and line.makespan < self.makespan:
            self.best = line


@dataclass(frozen=True, slots=True)
class HostBudget:
    """What there is room for, and how fast the host is: as in ``plan_with_host``."""

    graph: Graph
    costs: Costs
    link: Link
    budget: int
    host_budget: float

    def line(self, schedule: Schedule, watch: TimedWork, evaluations: int, must: bool) -> Timeline:
        """Return when all of a schedule happens, within the budget."""
        work = partial(timed, schedule, self.link, self.costs, budget=self.budget)
        return watch.over(evaluations, work, must)

    def line_within(
        self, base: Base, made: Made, watch: TimedWork, must: bool, found: Found
    ) -> Timeline | None:
        """Return when all of a variant happens; None if it is not within the budgets."""
        schedule = made(watch, must)
        if schedule is None:
            return None
        trace = watch.over(base.evaluations, partial(replay, schedule), must)
        found.smallest = min(found.smallest, trace.peak_bytes)
        if trace.peak_bytes > self.budget or max(trace.host, default=0) > self.host_budget:
            return None
        # With its copies it has twice as many steps, or nearly.
        return self.line(schedule, watch, 2 * base.evaluations, must)

    def variants(self, some: list[Base], clock: Clock) -> Iterator[Variant]:
        """Yield all schedules with values on the host that may be within the budget."""
        yield from variants(self.graph, self.costs, some, self.budget)
        yield from priced_variants(self.graph, self.costs, self.budget, clock)


def tried(
    graph: Graph,
    costs: Costs,
    link: Link,
    budget: int,
    host_budget: float,
    clock: Clock,
    best: Timeline | None = None,
) -> tuple[Timeline, bool]:
    """Return the fastest of what is known, with and without values on the host.

    Args:
        graph, costs, link, budget, host_budget: as in ``plan_with_host``.
        clock: of the time; some schedule is looked at in any case.
        best: another schedule within the budgets, if one is known: the first to beat.

    Returns:
        When all of it happens, and whether nothing was left out for want of time.

    Raises:
        BudgetError: if nothing was found within the budgets.
    """
    known = known_bases(graph, costs, budget, PORTFOLIO_SHARE * clock.left())
    watch = TimedWork(clock, len(graph.operators))
    room = HostBudget(graph, costs, link, budget, host_budget)
    found = Found(best, known.some[0].peak, known.is_whole)
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
        must = found.best is None and goal == 0  # as little as can be: the last resort
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
    """Yield the schedules of ``priced``, the cheapest first, and how to make them, as ``variants``.

    Each with memory of its own for copies that come back early. If the time for it runs out, the
    last one is none.
    """
    plans, is_whole = [], True
    try:
        for plan in priced_plans(graph, costs, Clock(PRICED_SHARE * clock.left())):
            plans.append(plan)
    except OutOfTimeError:
        is_whole = False

    def made(plan: Priced, room: Fraction, watch: TimedWork, must: bool) -> Schedule | None:
        def placed() -> Schedule | None:
            stored = from_order(graph, plan.order)
            moved = offloading(stored, plan.moved)
            moved = offloading(stored, set(plan.moved) - idle_copies(moved))
            peak = replay(moved).peak_bytes
            goal = int(peak * room)
            return fetched_early(moved, costs, None, goal) if goal <= budget else None

        return watch.over(4 * len(plan.order), placed, must)

    for plan in sorted(plans, key=attrgetter("cost")):
        base = Base(0, plan.cost, len(plan.order), partial(from_order, graph, plan.order))
        for room in ROOMS:
            yield base, budget, partial(made, plan, room)
    if not is_whole:
        yield Base(0, inf, 0, partial(from_order, graph, ())), budget, None


def variants(graph: Graph, costs: Costs, some: list[Base], budget: int) -> Iterator[Variant]:
    """Yield schedules with values on the host that may be within a budget, and how to make them.

    Each of some schedules for each goal; a goal of 0 is for as little as can be. What is next to
    the budget comes first; the budget decides nothing else.
    """
    largest = some[-1].peak
    parts = {largest * part // GOALS for part in range(GOALS)}
    goals = sorted(parts | {base.peak for base in some}, reverse=True)
    movable = set(movable_values(graph))
    orders: dict[int, tuple[Schedule, list[int]]] = {}

    def made(base: Base, goal: int, watch: TimedWork, must: bool) -> Schedule | None:
        if base.peak not in orders:
            stored = watch.over(base.evaluations, base.made, must)
            order = watch.over(base.evaluations, partial(leaving_order, stored, movable), must)
            orders[base.peak] = stored, order
        return moved_within(*orders[base.peak], goal, costs, watch, must)

    for goal in goals:
        for base in reversed(some):
            if goal <= budget < base.peak:
                yield base, goal, partial(made, base, goal)


def leaving_order(stored: Schedule, movable: set[int]) -> list[int]:
    """Return the values that can wait on the host, those that are read last first."""
    everything = offloading(stored, movable)
    idle = idle_copies(everything)
    returns = [step.data for step in everything.steps if isinstance(step, Fetch)]
    return [data for data in reversed(returns) if data not in idle]


def moved_within(
    stored: Schedule,
    order: list[int],
    goal: int,
    costs: Costs,
    watch: TimedWork | None = None,
    must: bool = True,
) -> Schedule | None:
    """Return the schedule with as few values on the host as a peak takes; None if it takes more.

    Args:
        stored: without copies.
        order: which values leave, the first ones first.
        goal: bytes; 0 for as few as there can be.
        costs: of the evaluations that copies are beside of.
        watch: of the time.
        must: whether it is made even if there is none.

    Raises:
        OutOfTimeError: if there is no time for it, and it need not be made.
    """
    watch = TimedWork(ENDLESS) if watch is None else watch
    count = sum(isinstance(step, EVALUATIONS) for step in stored.steps)

    def moved(some: int) -> Schedule:
        return watch.over(count, partial(offloading, stored, set(order[:some])), must)

    low, high = 0, len(order) + (goal > 0)
    while goal and high - low > 1:
        middle = (low + high) // 2
        if watch.over(count, partial(replay, moved(middle)), must).peak_bytes <= goal:
            high = middle
        else:
            low = middle
    if high > len(order):
        return None
    early = partial(fetched_early, moved(high), costs, None, goal or None)
    return watch.over(count, early, must)
