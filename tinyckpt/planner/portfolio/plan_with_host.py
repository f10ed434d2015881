"""Planning with host memory: keep, recompute or offload each value, for the least known makespan.

From a graph to the plan, in this order:

1. *Single-device schedules*: a sample of the Pareto frontier that the portfolio finds. One for more
   memory than there is stores much, and recomputes little and cheaply.
2. *Offload candidates*: of the values that such a schedule stores, as many go to the host as it
   takes to reach a target peak (``offload_saved_values``); and the plans that a dynamic program
   makes with a host in mind (``offload_dp``). Their prefetches are hoisted (``prefetch``).
3. Each candidate is replayed, for its peaks, and simulated on the link, for its makespan
   (``simulate``). The fastest within the budgets is the plan.
4. Small graphs are searched exactly too (A*, ``exact.offload_astar``), unless the incumbent meets
   the lower bound: whether a graph is small is decided by its operators alone. Schedules that
   evaluate a backward operator again are outside the exact search's class.

**More resources are never slower**: a larger budget, on the device or on the host, more bandwidth,
less latency, two engines instead of one. The set of candidates depends on neither the budgets nor
the link, and each of them is no slower with more of either; so is the best of them, if all are
tried, and so is the best of a class. A plan that the time limit did cut short says so in its note,
and may then be slower than one for less.

Lower bound: a schedule with at most H bytes on the host can do without it on a device with H bytes
more, so its makespan is no less than the least on one device within budget + H. And a value on the
host at any time has been copied there before and is copied back after: at most bandwidth times half
the makespan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import chain
from math import gcd, inf
from operator import attrgetter
from time import monotonic
from typing import Any

from tinyckpt.base.deadline import (
    MOST_EVALUATIONS,
    NO_DEADLINE,
    Clock,
    OutOfTimeError,
    checked_seconds,
)
from tinyckpt.base.errors import BudgetError, ScheduleError, expect
from tinyckpt.base.quantities import LARGEST_COST
from tinyckpt.base.tracebacks import short_traceback
from tinyckpt.base.units import counted, memory_text, size_text
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import EVALUATIONS, Offload, Schedule
from tinyckpt.planner.exact.offload_astar import OFFLOAD_SCOPE, OffloadSearch, is_searched
from tinyckpt.planner.exact.stage_astar import SearchLimitError
from tinyckpt.planner.heuristics.budget_grid import evenly_spaced
from tinyckpt.planner.model.binomial_bound import fewest_evaluations, uniform_chain
from tinyckpt.planner.model.budget import is_total, parse_budget
from tinyckpt.planner.model.certificate import Certificate
from tinyckpt.planner.model.link import Link, checked_link
from tinyckpt.planner.model.liveness import problem_of
from tinyckpt.planner.model.lower_bounds import cost_bound, smallest_budget
from tinyckpt.planner.model.plan_request import PlanRequest
from tinyckpt.planner.offload.offload_dp import PricedPlan, priced_plans
from tinyckpt.planner.offload.offload_saved_values import (
    PacedWork,
    insert_useful_offloads,
    movable_values,
    offload_order,
    offload_to_peak,
)
from tinyckpt.planner.offload.prefetch import hoist_fetches
from tinyckpt.planner.offload.simulate import Timeline, timed
from tinyckpt.planner.portfolio.plan import Budget, costs_of
from tinyckpt.planner.portfolio.resolve_policy import run_policy
from tinyckpt.planner.portfolio.search import PORTFOLIO_SECONDS, search_frontier

# Operators of the largest graph that is searched by A*: those of chain:8, in seconds. Doubled, a
# search seldom ends: placements grow exponentially.
MAX_EXACT_OPERATORS = 17
# States that A* may visit, some 600 bytes each; chain:8 takes less than 100,000. Doubled: 1.2 GB.
MAX_ASTAR_STATES = 1_000_000
# Default seconds for a small graph; chain:8 takes up to 15, within 3 nodes, and more where cores
# are shared. Doubled: a slow machine proves the optimum, where it would not.
SMALL_SECONDS = 180.0
# Shares of the remaining time, for known schedules before A*, and for A*. Doubled, less is left for
# what comes after; neither matters to graphs that are not small.
KNOWN_SHARE, EXACT_SHARE = 0.05, 0.5
# Share of the time, for the lower bound. Doubled: tighter on large graphs, and fewer candidates.
HOST_BOUND_SHARE = 0.2
# Share of the time, for the portfolio search. Doubled: no time for candidates with a host.
PORTFOLIO_SHARE = 0.5
# Share of the rest, for making the plans of ``offload_dp``. Doubled: more plans, fewer are tried.
PRICED_SHARE = 0.3
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
class HostRequest:
    """What to plan: a graph, the durations of its evaluations, a link, and the budgets in bytes."""

    graph: Graph
    costs: Costs
    link: Link
    budget: int
    host_budget: float = inf


@short_traceback
def plan_with_host(
    graph: Graph,
    link: Link,
    *,
    budget: Budget,
    host_budget: Budget | None = None,
    costs: Costs | None = None,
    time_limit: float | None = None,
) -> Schedule:
    """Plan a schedule of the least known makespan: which values to keep, recompute and move.

    Without bandwidth it is a schedule on one device; where it is infinite, nothing is recomputed.

    Args:
        graph: the training graph.
        link: between the device and the host.
        budget: of the device, as in ``plan``, in bytes; values on their way to the host count.
        host_budget: of the host; without limit if not given.
        costs: the duration of each evaluation; if not given, as in ``plan``.
        time_limit: total seconds, of which half go to the search of a small graph. The best found
            by then is the answer. If not given, as in ``plan``, and 180 for a small graph, whose
            search is to end.

    Returns:
        A schedule whose certificate is about its makespan, ``timed(schedule, link, budget=...)``.

    Raises:
        BudgetError: if nothing was found within the budgets.
        ScheduleError: if the link is invalid, or memory is not counted in bytes.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(4)
    >>> for bandwidth in (0, 256, 512):
    ...     link = tc.Link(bandwidth, engines=1)
    ...     schedule = tc.plan_with_host(graph, link, budget=3 * 512)
    ...     print(schedule.note)
    15 evaluations, 6 of them recomputations; 0 values moved; 0 stalled
    12 evaluations, 3 of them recomputations; 1 value moved; 3 stalled
    10 evaluations, 1 of them recomputations; 2 values moved; 2 stalled
    """
    expect(graph, Graph)
    link, own = checked_link(link), costs_of(graph, costs)
    budget_size, problem = parse_budget(graph, own, budget)
    own = problem.costs
    host = inf if host_budget is None else host_bytes(graph, own, host_budget)
    if own.memory_unit != "bytes":
        raise ScheduleError(
            "plan_with_host: memory must be counted in bytes; give the budget in bytes"
        )
    is_small = len(graph.operators) <= MAX_EXACT_OPERATORS and is_searched(graph, own)
    default = SMALL_SECONDS if is_small else PORTFOLIO_SECONDS
    seconds = checked_seconds(default if time_limit is None else time_limit)
    clock = Clock(seconds)
    request = HostRequest(graph, own, link, budget_size, host)
    bound = host_bound(graph, own, link, budget_size, host, Clock(HOST_BOUND_SHARE * seconds))
    least = smallest_budget(problem)
    if budget_size < least and not graph.once:
        raise BudgetError(
            f"no schedule of {graph.name} is within {size_text(budget_size)}; any needs at least "
            f"{size_text(least)}",
            least,
        )
    line, is_best, is_whole = fastest(request, clock, bound, is_small)
    cost = float(line.makespan)
    options: dict[str, Any] = {"budget": budget_size, "bandwidth": link.bandwidth}
    options |= {"latency": link.latency, "engines": link.engines}
    if host != inf:
        options["host_budget"] = host
    if cost <= bound:
        known = "optimal", cost, ""
    elif is_best:
        known = "optimal in its class", cost, OFFLOAD_SCOPE
    else:
        known = "heuristic", bound, ""
    status, below, scope = known
    certificate = Certificate(status, cost, below, budget_size, own.unit, own.memory_unit, scope)  # type: ignore[arg-type]
    cut = "" if is_whole or cost <= bound else "; the search was cut short, more time may find more"
    return replace(
        line.schedule,
        policy="plan_with_host",
        options=options,
        note=note_of(line) + cut,
        certificate=certificate,
    )


def host_bytes(graph: Graph, costs: Costs, budget: Budget) -> int:
    """Return a budget of the host in bytes."""
    budget_size, problem = parse_budget(graph, costs, budget)
    if problem.costs.memory_unit != "bytes" or is_total(budget):
        raise BudgetError(
            f"host_budget={budget!r:.80}: expected bytes, such as '4 GiB', or a share of "
            "store-all's peak"
        )
    return budget_size


def note_of(line: Timeline) -> str:
    """Return the note of a plan: evaluations, moved values and stalls."""
    steps = line.schedule.steps
    count = sum(isinstance(step, Offload) for step in steps)
    evaluated = [step.operator for step in steps if isinstance(step, EVALUATIONS)]
    again = len(evaluated) - len(set(evaluated))
    return (
        f"{len(evaluated)} evaluations, {again} of them recomputations; "
        f"{counted(count, 'value')} moved; {float(line.stalled):.6g} stalled"
    )


# --------------------------------------------------------------------------------------------------
# The best within the budgets: candidates in order, A* for small graphs.


def fastest(
    request: HostRequest, clock: Clock, bound: float, is_small: bool
) -> tuple[Timeline, bool, bool]:
    """Return the fastest timeline found, whether it is optimal in its class, and if time sufficed.

    In most cases a known schedule meets the lower bound: then nothing is searched.
    """
    line, is_whole = None, True
    if is_small:
        with suppress(BudgetError):
            line, _ = fastest_known(request, Clock(KNOWN_SHARE * clock.left()))
        if line is not None and line.makespan <= bound:
            return line, True, True
        line, is_whole = astar_timeline(request, EXACT_SHARE * clock.left())
        if line is not None and line.makespan <= bound:
            return line, True, True
    best, is_all = fastest_known(request, clock, line)
    return best, is_whole and best is line, is_whole and is_all


def fastest_known(
    request: HostRequest, clock: Clock, best: Timeline | None = None
) -> tuple[Timeline, bool]:
    """Return the fastest known schedule, with or without values on the host.

    Args:
        request: what to plan.
        clock: of the time; at least one schedule is tried in any case.
        best: another schedule within the budgets, if one is known: the first incumbent.

    Returns:
        Its timeline, and whether nothing was left out for lack of time.

    Raises:
        BudgetError: if nothing was found within the budgets.
    """
    graph, costs, budget = request.graph, request.costs, request.budget
    within, bases, is_whole = base_schedules(graph, costs, budget, PORTFOLIO_SHARE * clock.left())
    paced = PacedWork(clock, len(graph.operators))
    found = Incumbent(request, best, bases[0].peak, is_whole)
    if within is not None:
        work = paced if best is not None else replace(paced, clock=NO_DEADLINE)
        with suppress(OutOfTimeError):
            stored = work.run(within.evaluations, within.make)
            found.take(work.run(within.evaluations, found.timeline, stored))
    if request.link.bandwidth:
        candidates = base_candidates(graph, costs, bases, budget)
        found.try_each(chain(candidates, dp_candidates(found, clock)), paced)
    if found.best is None:
        cut = "" if found.is_whole else " in the time given; give it more (time_limit=...)"
        raise BudgetError(
            f"nothing was found within {memory_text(budget, costs.memory_unit)}{cut}; the smallest "
            f"peak that was found is {memory_text(found.smallest, costs.memory_unit)}",
            found.smallest,
        )
    return found.best, found.is_whole


def astar_timeline(request: HostRequest, seconds: float) -> tuple[Timeline | None, bool]:
    """Run the exact search of a small graph: return its best timeline, and whether it ended."""
    search = OffloadSearch(
        request.graph, request.costs, request.link, request.budget, request.host_budget
    )
    try:
        is_whole = True
        search.cheapest(MAX_ASTAR_STATES, monotonic() + seconds)
    except SearchLimitError:
        is_whole = False
    steps = search.steps()
    if not steps:
        return None, is_whole
    schedule = Schedule(request.graph, tuple(steps), "plan_with_host")
    return timed(schedule, request.link, request.costs, budget=request.budget), is_whole


@dataclass(frozen=True, slots=True)
class Candidate:
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


@dataclass(slots=True)
class Incumbent:
    """The incumbent of a search with a host: the fastest of the candidates tried so far.

    Attributes:
        request: what to plan.
        best: the fastest timeline within the budgets, if there is one.
        smallest: the smallest peak of all candidates tried, within the budgets or not.
        is_whole: whether nothing was left out for lack of time.
    """

    request: HostRequest
    best: Timeline | None
    smallest: int
    is_whole: bool

    @property
    def makespan(self) -> float | Fraction:
        """The makespan of the fastest; infinite if there is none."""
        return inf if self.best is None else self.best.makespan

    def try_each(self, candidates: Iterable[Candidate], paced: PacedWork) -> None:
        """Make and time the candidates that may be faster than the incumbent, while time lasts."""
        for candidate in candidates:
            if candidate.cost >= self.makespan:
                continue
            must = self.best is None and candidate.is_last_resort
            try:
                work = replace(paced, clock=NO_DEADLINE) if must else paced
                self.take(self.line_within(candidate, work))
            except OutOfTimeError:
                self.is_whole = False
                if self.best is not None and paced.clock.left() == 0:
                    break

    def line_within(self, candidate: Candidate, work: PacedWork) -> Timeline | None:
        """Make and time a candidate; None if it is not within the budgets."""
        schedule = candidate.make(work)
        if schedule is None:
            return None
        trace = work.run(candidate.evaluations, replay, schedule)
        self.smallest = min(self.smallest, trace.peak_bytes)
        host = max(trace.host, default=0)
        if trace.peak_bytes > self.request.budget or host > self.request.host_budget:
            return None
        # With its copies it has nearly twice as many steps.
        return work.run(2 * candidate.evaluations, self.timeline, schedule)

    def timeline(self, schedule: Schedule) -> Timeline:
        """Simulate a schedule within the budget."""
        return timed(schedule, self.request.link, self.request.costs, budget=self.request.budget)

    def take(self, line: Timeline | None) -> None:
        """Accept a timeline as the incumbent if it is the fastest."""
        if line is not None and line.makespan < self.makespan:
            self.best = line


# --------------------------------------------------------------------------------------------------
# Candidates: single-device schedules with values moved to the host, and the plans of the DP.


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
) -> Iterator[Candidate]:
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
                yield Candidate(base.cost, base.evaluations, partial(make, base, goal), goal == 0)


def dp_candidates(found: Incumbent, clock: Clock) -> Iterator[Candidate]:
    """Yield the plans of ``offload_dp``, the cheapest first, as far as there is time to make them.

    If there is not, the incumbent is told that something was left out.
    """
    graph, costs, budget = found.request.graph, found.request.costs, found.request.budget
    plans = []
    try:
        for plan in priced_plans(graph, costs, Clock(PRICED_SHARE * clock.left())):
            plans.append(plan)
    except OutOfTimeError:
        found.is_whole = False
    for plan in sorted(plans, key=attrgetter("cost")):
        yield from plan_candidates(graph, costs, plan, budget)


def plan_candidates(
    graph: Graph, costs: Costs, plan: PricedPlan, budget: int
) -> Iterator[Candidate]:
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
        yield Candidate(plan.cost, count, partial(make, room))


# --------------------------------------------------------------------------------------------------
# The lower bound.


def host_bound(
    graph: Graph,
    costs: Costs,
    link: Link,
    budget: int,
    host_budget: float = inf,
    deadline: Clock = NO_DEADLINE,
) -> float:
    """Return a lower bound on the makespan of every schedule with a host.

    For every x, a schedule either stores less than x bytes on the host at all times, and costs no
    less than the best of a device with x more, or it stores x at some time, and takes 2 x /
    bandwidth.
    """
    within = device_bound(graph, costs, deadline)
    if link.bandwidth == 0:
        return within(budget)
    everything = sum(costs.data)
    most = everything if host_budget == inf else min(everything, int(host_budget))
    if link.bandwidth == inf:
        return within(budget + most)
    unit = gcd(*costs.data, *costs.workspace) or 1
    bandwidth = Fraction(link.bandwidth)
    # The bound holds for each x; it is largest where its two terms meet. Bisection, in units:
    low, high = 0, most // unit + 1
    while high - low > 1 and deadline.left():
        middle = (low + high) // 2
        on_device = within(budget + (middle - 1) * unit)
        if 2 * middle * unit < bandwidth * Fraction(min(on_device, LARGEST_COST)):
            low = middle
        else:
            high = middle
    on_device = within(budget + (high - 1) * unit)
    return min(on_device, float(2 * high * unit / bandwidth)) if high <= most // unit else on_device


def device_bound(graph: Graph, costs: Costs, deadline: Clock) -> Callable[[int], float]:
    """Return the function from a budget to the lower bound on cost on one device.

    It is called some twenty times: whether a graph is a chain is determined once.
    """
    uniform = uniform_chain(graph, costs)
    if uniform is None:
        return partial(cost_bound, problem_of(graph, costs), deadline=deadline)
    n, size = uniform
    cost = costs.operators[0]
    return lambda budget: (
        fewest_evaluations(n, budget // size) * cost if budget // size >= 3 else inf
    )
