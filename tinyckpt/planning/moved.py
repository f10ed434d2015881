"""Schedules that are known for one device, with some of their values on the host.

What the portfolio finds for more memory than there is keeps much and recomputes little, that which
is cheap. Of what it keeps, as many values wait on the host as it takes to get within a goal: those
that are read last leave first. Goals are parts of the largest peak, the peaks of other schedules,
and whatever all that can be moved leaves over. Besides, what ``priced`` plans for a host at once.

Which schedules there are depends on neither the budget nor the bandwidth, and each of them comes no
later with more of either (``transfers.clock``); so does the best of them, if all are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import chain
from math import inf
from operator import attrgetter
from typing import TypeVar

from tinyckpt.analysis.chains import fewest_evaluations, uniform_chain
from tinyckpt.analysis.limits import ENDLESS, MOST_EVALUATIONS, Clock, OutOfTimeError, Pace
from tinyckpt.cost import Costs
from tinyckpt.errors import BudgetError
from tinyckpt.graph import Graph
from tinyckpt.orders.lowering import from_order, offloading
from tinyckpt.planning.asked import planned
from tinyckpt.planning.portfolio import frontier as search
from tinyckpt.planning.priced import Priced, priced_plans
from tinyckpt.policies.levels import thinned
from tinyckpt.replay import replay
from tinyckpt.schedule import EVALUATIONS, Fetch, Schedule
from tinyckpt.transfers.clock import Timeline, timed
from tinyckpt.transfers.link import Link
from tinyckpt.transfers.placing import fetched_early, idle_copies, movable_values
from tinyckpt.units import memory_text

SEARCH_SHARE = 0.5  # of the time, for the portfolio's search
BASES = 12  # how many of its schedules are tried with a host
PRICED_SHARE = 0.3  # of what is left then, for the plans of ``priced``
# Of what a plan of ``priced`` takes, the memory within which its copies come back early.
ROOMS = (Fraction(1), Fraction(5, 4), Fraction(3, 2), Fraction(2))
PARTS = 20  # of the largest peak: goals, so that 5 %, 10 % and so on of it are goals themselves


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Base:
    """A schedule for one device: its peak, its cost and its evaluations, and how to make it."""

    peak: int
    cost: float
    evaluations: int
    made: Callable[[], Schedule]


class Watch:
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
    known = known_bases(graph, costs, budget, SEARCH_SHARE * clock.left())
    smallest = known.some[0].peak
    watch = Watch(clock, len(graph.operators))
    if known.within is not None:
        base = known.within
        must = best is None
        with suppress(OutOfTimeError):
            stored = watch.over(base.evaluations, base.made, must)
            line = watch.over(
                base.evaluations, partial(timed, stored, link, costs, budget=budget), must
            )
            best = line if best is None or line.makespan < best.makespan else best
    fastest = inf if best is None else best.makespan
    is_whole = known.is_whole
    all_variants = chain(
        variants(graph, costs, known.some, budget), priced_variants(graph, costs, budget, clock)
    )
    for base, goal, made in all_variants if link.bandwidth else ():
        if made is None:
            is_whole = False
            continue
        if base.cost >= fastest:
            continue
        must = best is None and goal == 0  # as little as can be: the last resort
        try:
            schedule = made(watch, must)
            if schedule is None:
                continue
            trace = watch.over(base.evaluations, partial(replay, schedule), must)
            smallest = min(smallest, trace.peak_bytes)
            if trace.peak_bytes > budget or max(trace.host, default=0) > host_budget:
                continue
            with_copies = 2 * base.evaluations  # as many steps again, or nearly
            line = watch.over(
                with_copies, partial(timed, schedule, link, costs, budget=budget), must
            )
        except OutOfTimeError:
            is_whole = False
            if best is not None and clock.left() == 0:
                break
            continue
        makespan = line.makespan
        if makespan < fastest:
            best, fastest = line, makespan
    if best is None:
        cut = "" if is_whole else " in the time given; give it more (time_limit=...)"
        raise BudgetError(
            f"nothing was found within {memory_text(budget, costs.memory_unit)}{cut}; the smallest "
            f"peak that was found is {memory_text(smallest, costs.memory_unit)}",
            smallest,
        )
    return best, is_whole


Made = Callable[[Watch, bool], Schedule | None]  # a schedule, and whether it must be made


def priced_variants(
    graph: Graph, costs: Costs, budget: int, clock: Clock
) -> Iterator[tuple[Base, int, Made | None]]:
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

    def made(plan: Priced, room: Fraction, watch: Watch, must: bool) -> Schedule | None:
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


def variants(
    graph: Graph, costs: Costs, some: list[Base], budget: int
) -> Iterator[tuple[Base, int, Made]]:
    """Yield schedules with values on the host that may be within a budget, and how to make them.

    Each of some schedules for each goal; a goal of 0 is for as little as can be. What is next to
    the budget comes first; the budget decides nothing else.
    """
    largest = some[-1].peak
    parts = {largest * part // PARTS for part in range(PARTS)}
    goals = sorted(parts | {base.peak for base in some}, reverse=True)
    movable = set(movable_values(graph))
    orders: dict[int, tuple[Schedule, list[int]]] = {}

    def made(base: Base, goal: int, watch: Watch, must: bool) -> Schedule | None:
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
    watch: Watch | None = None,
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
    watch = Watch(ENDLESS) if watch is None else watch
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
